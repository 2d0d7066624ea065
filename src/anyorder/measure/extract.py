"""From what a model wrote to the program that is graded: named modes, one default for each task.

Four modes are the paper's release (a sample's text is what follows the prompt; the prefix is what
belongs before it, such as a function's head):

    sanitize_completion   clean-up (extract_sanitize.py) of prefix + text
    sanitize_cleaned      the same of prefix + the text before the first fence, stripped
    before_fence          prefix + the text before the first fence, as it is
    cleaned               the text before the first fence, stripped, alone

The release calls a sample right if any of the four passes. Here that union has its own name in
grading, any_of_4, and is never taken silently. Further modes:

    completion   prefix + the text up to the first fence, or up to the margin where it begins as
                 an indented body (the next top-level definition, a call, prose)
    block        the fenced block that the text opens; else the text before a closing fence
    last_block   LiveCodeBench: the lines between the last two fences; a text without any as it is
    function     GSM8K and stories: the first fenced block, else the text, from the first `def`,
                 less the last lines that do not compile
    plain        the text as it is

Stop rules are part of a mode (a fence, the margin, 100 lines) and are applied here and nowhere
else: decoding never looks at text. None means that there is no code. Nothing here runs a program,
and no text raises.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyorder.measure.extract_range import UNPARSEABLE
from anyorder.measure.extract_sanitize import sanitize

FENCE = "```"
MAX_DROPPED = 50
"""Lines that `function` may drop at the end until the program compiles."""

_OPENING = re.compile(r"[ \t]*```[ \t]*(?:python3?|py)?[ \t]*$", re.IGNORECASE)
_MARKED = re.compile(r"[ \t]*```[ \t]*(?:python3?|py)[ \t]*$", re.IGNORECASE)
_DEF = re.compile(r"^(?:async[ \t]+)?def ", re.MULTILINE)
_ANY_DEF = re.compile(r"\bdef ")
"""As published; the margin goes first, because prose and strings may say "def " as well."""
# The margin after an indented line. Closing brackets, strings and comments may stand at the margin
# within a statement.
_MARGIN = re.compile(r"(?<=\n)[^\s#)\]}'\"]")


@dataclass(frozen=True)
class Sample:
    """What a mode sees."""

    text: str
    """What the model wrote after the prompt."""
    prefix: str = ""
    """What belongs before it to make a program; "" where the text is one by itself."""
    entry_point: str | None = None


@dataclass(frozen=True)
class Extraction:
    """One mode."""

    apply: Callable[[Sample], str | None]
    doc: str


def extract(
    text: str, *, mode: str, entry_point: str | None = None, prefix: str = ""
) -> str | None:
    """The program in `text` by one mode, or None where there is no code."""
    if mode not in EXTRACTIONS:
        raise ValueError(f"no extraction {mode!r}: choose one of {', '.join(EXTRACTIONS)}")
    program = EXTRACTIONS[mode].apply(Sample(text, prefix, entry_point))
    return program if program and program.strip() else None


def sensitivity(
    text: str,
    *,
    entry_point: str | None = None,
    prefix: str = "",
    modes: Sequence[str] | None = None,
) -> dict[str, str | None]:
    """The program by each mode (default: the release's four), to be graded side by side."""
    chosen = RELEASE_MODES if modes is None else modes
    return {
        mode: extract(text, mode=mode, entry_point=entry_point, prefix=prefix) for mode in chosen
    }


def _before_fence(text: str) -> str:
    return text.split(FENCE, 1)[0]


def _sanitize_completion(sample: Sample) -> str | None:
    if not sample.text.strip():
        return None
    return sanitize(sample.prefix + sample.text, sample.entry_point)


def _sanitize_cleaned(sample: Sample) -> str | None:
    cleaned = _before_fence(sample.text).strip()
    return sanitize(sample.prefix + cleaned, sample.entry_point) if cleaned else None


def _prefix_before_fence(sample: Sample) -> str | None:
    before = _before_fence(sample.text)
    return sample.prefix + before if before.strip() else None


def _cleaned(sample: Sample) -> str:
    return _before_fence(sample.text).strip()


def _completion(sample: Sample) -> str | None:
    text = _before_fence(sample.text)
    begun = text.lstrip("\r\n")
    if sample.prefix and begun[:1].isspace():  # else it is a program of its own
        margin = _MARGIN.search(text, len(text) - len(begun))
        text = text[: margin.start()] if margin else text
    return sample.prefix + text if text.strip() else None


def _block(sample: Sample) -> str | None:
    lines = _lines(sample.text)
    fences = [number for number, line in enumerate(lines) if FENCE in line]
    if not fences:
        return sample.text
    first = fences[0]
    blank_before = not any(line.strip() for line in lines[:first])
    opens = _MARKED.match(lines[first]) or (blank_before and _OPENING.match(lines[first]))
    if not opens:
        return _before_fence(sample.text)
    stop = fences[1] if len(fences) > 1 else len(lines)
    return "\n".join(lines[first + 1 : stop])


def _last_block(sample: Sample) -> str | None:
    lines = _lines(sample.text)
    fences = [number for number, line in enumerate(lines) if FENCE in line]
    if not fences:
        return sample.text
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) > 1 else None


def _function(sample: Sample) -> str | None:
    text = sample.text
    lines = _lines(text)
    opening = next((n for n, line in enumerate(lines) if _OPENING.match(line)), None)
    if opening is not None and _DEF.search("\n".join(lines[opening + 1 :])):
        closing = (n for n in range(opening + 1, len(lines)) if FENCE in lines[n])
        text = "\n".join(lines[opening + 1 : next(closing, len(lines))])
    start = _DEF.search(text) or _ANY_DEF.search(text)
    if start is None:
        return None
    code = _lines(_before_fence(text[start.start() :]))
    for dropped in range(min(MAX_DROPPED, len(code) - 1) + 1):
        shorter = "\n".join(code[: len(code) - dropped])
        if _compiles(shorter):
            return shorter
    return "\n".join(code)  # graded as what it is: a program with a syntax error


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def _compiles(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<sample>", "exec", dont_inherit=True)
    except UNPARSEABLE:
        return False
    return True


RELEASE_MODES = ("sanitize_completion", "sanitize_cleaned", "before_fence", "cleaned")
"""The four whose union the paper's release counts; grading knows the union as ANY_OF_4."""
ANY_OF_4 = "any_of_4"

EXTRACTIONS: dict[str, Extraction] = {
    "sanitize_completion": Extraction(_sanitize_completion, "clean-up of prefix + text"),
    "sanitize_cleaned": Extraction(
        _sanitize_cleaned, "clean-up of prefix + text before the first fence, stripped"
    ),
    "before_fence": Extraction(
        _prefix_before_fence, "prefix + text before the first fence, as it is"
    ),
    "cleaned": Extraction(_cleaned, "text before the first fence, stripped, without the prefix"),
    "completion": Extraction(
        _completion, "prefix + text up to the first fence or line at the margin"
    ),
    "block": Extraction(_block, "the fenced block the text opens, else the text before a fence"),
    "last_block": Extraction(
        _last_block, "the lines between the last two fences; all of a text without fences"
    ),
    "function": Extraction(
        _function, "first fenced block, from the first def, less last lines that do not compile"
    ),
    "plain": Extraction(lambda sample: sample.text, "the text as it is"),
}
