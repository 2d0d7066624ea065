"""Extraction: from the text of a sample to the program that is graded. Named modes.

Four modes are the paper's release. A sample's text follows the prompt; the prefix is the code that
belongs before it, such as a function's head:

    sanitize_completion   `sanitize` of prefix + text
    sanitize_cleaned      `sanitize` of prefix + the text before the first fence, stripped
    before_fence          prefix + the text before the first fence, as it is
    cleaned               the text before the first fence, stripped, alone

The release calls a sample right if any of the four passes. Grading calls that union any_of_4; it is
never taken silently. Further modes:

    completion   prefix + the text up to the first fence, or up to the margin where it begins as
                 an indented body (the next top-level definition, a call, prose)
    block        the fenced block that the text opens; else the text before a closing fence
    last_block   LiveCodeBench: the lines between the last two fences; a text without any as it is
    function     GSM8K and stories: the first fenced block, else the text, from the first `def`,
                 less the last lines that do not compile
    plain        the text as it is
    infill       prefix + what was filled in, up to a marker that ends it + suffix

`sanitize` is the clean-up of the release and of Dream-Coder's evaluation:

    1. tabs become four spaces, line ends "\\n"; blanks at both ends go
    2. of the first 100 lines, the longest run that parses (`longest_range`)
    3. keep imports, classes, functions that hold a `return`, and assignments to a plain name; of
       two with one name the later one, in the place of the earlier
    4. drop what the entry point does not reach by name. The walk does not look inside attributes:
       in `helper(x).y` it sees `y` alone, so `helper` is dropped (a quirk that is kept)
    5. write the trees out again, imports first

It loses functions that only print, top-level code, and annotated or tuple assignments.

`longest_range` gives the result of the release, which parses all runs of lines (some 5,000), with
one parse per statement. Top-level statements parse independently of their neighbours, so from a
line where one may begin, the run extends statement by statement until one fails; of that one the
longest beginning that parses is still taken. The winner has the most lines that are not blank; of
equals the first.

Stop rules (a fence, the margin, 100 lines) are applied here and nowhere else: decoding never looks
at text. None means that there is no code. Nothing here runs a program, and no text raises.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anyorder.checks import refuse_unknown

# Python's parser raises these on texts that are no programs: null bytes and surrogates
# (ValueError), nesting beyond its limits (the last three).
UNPARSEABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)

_CONTINUES = frozenset({"else", "elif", "except", "finally"})
"""Words at the margin that continue a statement."""
LONGEST_LINE = 10_000
"""Longer lines end a run: Python's tokenisers need minutes for some of them. A text that parses
whole may have longer ones."""
_UNREADABLE = re.compile(r"[\0\ud800-\udfff]|^\s*\\\s*$")
"""Null and surrogates, which not even a comment may hold; and lines of one backslash, which
releases of Python's tokeniser read differently (a text that parses whole may have them)."""
_BETWEEN = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
)


def parse(source: str) -> ast.Module | None:
    """The syntax tree of a text; None if it is not a program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes in a sample
            return ast.parse(source)
    except UNPARSEABLE:
        return None


def longest_range(lines: Sequence[str]) -> tuple[int, int]:
    """[first, stop) of the longest run of lines that parses; (0, 0) for none.

    `lines` hold no line ends (as from `str.splitlines`).
    """
    solid = [bool(line.strip()) for line in lines]
    if lines and parse("\n".join([*lines, ""])) is not None:
        return (0, len(lines)) if any(solid) else (0, 0)
    chains = _Chains(lines)
    best, most, left = (0, 0), 0, sum(solid)
    for first in range(len(lines)):
        if left <= most:  # no later run can have more lines
            break
        stop = chains.stop(first)
        count = sum(solid[first:stop])
        if count > most:
            best, most = (first, stop), count
        left -= solid[first]
    return best


class _Chains:
    """How far the statements reach from each line; each result is computed once."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._walls = [
            number
            for number, line in enumerate(lines)
            if len(line) > LONGEST_LINE or _UNREADABLE.search(line)
        ]
        self._walls.append(len(lines))
        self._stops = {wall: wall for wall in self._walls}

    def stop(self, first: int) -> int:
        """One past the last line of the longest run from `first`; `first` itself if none."""
        path = []
        stop, whole = first, True
        while whole and stop not in self._stops:
            path.append(stop)
            stop, whole = self._step(stop)
        if whole:
            stop = self._stops[stop]
        # Every line on the path is the start of a statement of the same chain, with the same end.
        for line in path:
            self._stops[line] = stop
        return stop

    def _step(self, first: int) -> tuple[int, bool]:
        """One past the comment or statement that begins at `first`, and whether it is whole."""
        line = self._lines[first]
        if _is_empty(line):
            return first + 1, True
        if line[0].isspace():
            return first, False  # a top-level statement is not indented
        ends, whole = self._statement(first)
        for number, end in enumerate(reversed(ends)):
            if parse("\n".join([*self._lines[first:end], ""])) is not None:
                return (end, True) if whole and number == 0 else (self._over_empty(end), False)
        return first, False

    def _over_empty(self, first: int) -> int:
        while first not in self._walls and _is_empty(self._lines[first]):
            first += 1
        return first

    def _statement(self, first: int) -> tuple[list[int], bool]:
        """Where the statement that begins at `first` may end, and whether the last is its end."""
        ends: list[int] = []
        wall = next(wall for wall in self._walls if wall > first)
        complete = False  # decorators alone are no statement
        try:
            for text, column, end in _logical_lines(self._lines[first:wall]):
                if complete and column == 0 and text not in _CONTINUES:
                    return ends, True
                complete = complete or text != "@"
                if complete:
                    ends.append(first + end)
        except (tokenize.TokenError, SyntaxError, ValueError):
            return ends, False  # an open string or bracket, or indentation that fits nowhere
        return ends, True


def _logical_lines(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The first token, its column, and one past the last line, of each logical line."""
    started: tuple[str, int] | None = None
    source = io.StringIO("\n".join([*lines, ""]))
    for token in tokenize.generate_tokens(source.readline):
        if token.type == tokenize.NEWLINE:
            if started is not None:
                yield *started, token.start[0]
            started = None
        elif token.type == tokenize.ERRORTOKEN and token.string.isascii():
            raise tokenize.TokenError("not a token of Python", token.start)
        elif token.type == tokenize.ENDMARKER:
            return
        elif token.type not in _BETWEEN and started is None:
            started = token.string, token.start[1]


def _is_empty(line: str) -> bool:
    """Whether a line, unless inside a string, has no code."""
    text = line.strip()
    return not text or text.startswith("#")


MAX_LINES = 100

_Definition = ast.ClassDef | ast.FunctionDef | ast.Assign


def sanitize(text: str, entry_point: str | None) -> str | None:
    """The cleaned program, or None where no line of the text parses or nothing is kept."""
    text = text.replace("\t", "    ").replace("\r\n", "\n").replace("\r", "\n").strip()
    lines = text.splitlines()[:MAX_LINES]
    first, stop = longest_range(lines)
    tree = parse("\n".join([*lines[first:stop], ""]))
    if tree is None:
        return None
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    definitions = _definitions(tree)
    if entry_point:
        reached = _reached(entry_point, definitions)
        definitions = {name: node for name, node in definitions.items() if name in reached}
    kept = [_written(node, lines[first:stop]) for node in (*imports, *definitions.values())]
    return "\n".join(kept) or None


def _definitions(tree: ast.Module) -> dict[str, _Definition]:
    found: dict[str, _Definition] = {}
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                found[name] = node
            case ast.FunctionDef(name=name):
                if any(isinstance(inner, ast.Return) for inner in ast.walk(node)):
                    found[name] = node
            case ast.Assign(targets=[ast.Name(id=name), *_]):
                found[name] = node
    return found


def _reached(entry_point: str, definitions: dict[str, _Definition]) -> set[str]:
    reached: set[str] = set()
    waiting = [entry_point]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            if name in definitions:
                waiting += _names_in(definitions[name])
    return reached


def _names_in(definition: ast.AST) -> set[str]:
    """Names that the walk sees; below an attribute it sees the attribute's name only."""
    names: set[str] = set()
    waiting = [definition]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            match child:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    names.add(name)
                case _:
                    waiting.append(child)
    return names


def _written(node: ast.stmt, lines: list[str]) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        # Too deep for `unparse`: the source lines mean the same.
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        return "\n".join(lines[first - 1 : node.end_lineno])


FENCE = "```"
MAX_DROPPED = 50
"""Lines that `function` may drop at the end until the program compiles."""

_OPENING = re.compile(r"[ \t]*```[ \t]*(?:python3?|py)?[ \t]*$", re.IGNORECASE)
_MARKED = re.compile(r"[ \t]*```[ \t]*(?:python3?|py)[ \t]*$", re.IGNORECASE)
_DEF = re.compile(r"^(?:async[ \t]+)?def ", re.MULTILINE)
_ANY_DEF = re.compile(r"\bdef ")
"""As published. Tried after _DEF, because prose and strings may hold "def " too."""
# A line at the margin that ends an indented body. Closing brackets, strings and comments may be at
# the margin within a statement.
_MARGIN = re.compile(r"(?<=\n)[^\s#)\]}'\"]")
# Tokenizers of models that fill in the middle list these as text. Written into a middle, each ends
# it as EOS does: the model goes on with another file.
_MARKER = re.compile(r"<\|(?:fim_\w+|repo_name|file_sep)\|>|<fim_\w+>|<\uff5cfim\u2581\w+\uff5c>")


@dataclass(frozen=True)
class ExtractionInput:
    """The input of a mode."""

    text: str
    """The generated text, without the prompt."""
    prefix: str = ""
    """Code that belongs before the text; "" where the text is a whole program."""
    entry_point: str | None = None
    suffix: str = ""
    """Code that belongs behind the text, where the text fills a gap."""


def extract(
    text: str, *, mode: str, entry_point: str | None = None, prefix: str = "", suffix: str = ""
) -> str | None:
    """The program in `text` by one mode, or None where there is no code."""
    refuse_unknown("extraction", mode, EXTRACTIONS)
    program = EXTRACTIONS[mode](ExtractionInput(text, prefix, entry_point, suffix))
    return program if program and program.strip() else None


def sensitivity(
    text: str,
    *,
    entry_point: str | None = None,
    prefix: str = "",
    modes: Sequence[str] | None = None,
) -> dict[str, str | None]:
    """The program by each mode (default: the four of the release), to grade side by side."""
    chosen = RELEASE_MODES if modes is None else modes
    return {
        mode: extract(text, mode=mode, entry_point=entry_point, prefix=prefix) for mode in chosen
    }


def _before_fence(text: str) -> str:
    return text.split(FENCE, 1)[0]


def _sanitize_completion(sample: ExtractionInput) -> str | None:
    if not sample.text.strip():
        return None
    return sanitize(sample.prefix + sample.text, sample.entry_point)


def _sanitize_cleaned(sample: ExtractionInput) -> str | None:
    cleaned = _before_fence(sample.text).strip()
    return sanitize(sample.prefix + cleaned, sample.entry_point) if cleaned else None


def _prefix_before_fence(sample: ExtractionInput) -> str | None:
    before = _before_fence(sample.text)
    return sample.prefix + before if before.strip() else None


def _completion(sample: ExtractionInput) -> str | None:
    text = _before_fence(sample.text)
    begun = text.lstrip("\r\n")
    if sample.prefix and begun[:1].isspace():  # else it is a whole program
        margin = _MARGIN.search(text, len(text) - len(begun))
        text = text[: margin.start()] if margin else text
    return sample.prefix + text if text.strip() else None


def _block(sample: ExtractionInput) -> str | None:
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


def _last_block(sample: ExtractionInput) -> str | None:
    lines = _lines(sample.text)
    fences = [number for number, line in enumerate(lines) if FENCE in line]
    if not fences:
        return sample.text
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) > 1 else None


def _function(sample: ExtractionInput) -> str | None:
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
    return "\n".join(code)  # graded as it is: a program with a syntax error


def _infill(sample: ExtractionInput) -> str:
    middle = _MARKER.split(sample.text, maxsplit=1)[0]
    return f"{sample.prefix}{middle}{sample.suffix}"


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
"""The four whose union the paper's release counts; grading calls the union ANY_OF_4."""
ANY_OF_4 = "any_of_4"

EXTRACTIONS: dict[str, Callable[[ExtractionInput], str | None]] = {
    "sanitize_completion": _sanitize_completion,
    "sanitize_cleaned": _sanitize_cleaned,
    "before_fence": _prefix_before_fence,
    "cleaned": lambda sample: _before_fence(sample.text).strip(),
    "completion": _completion,
    "block": _block,
    "last_block": _last_block,
    "function": _function,
    "plain": lambda sample: sample.text,
    "infill": _infill,
}
"""Mode -> its function; the head of this file says what each does."""
