"""The corpora of the paper as recipes: columns -> (prompt, answer), with each one's filters.

    tinygsm            question -> program of TinyGSM; docstring and blank lines taken out; a
                       newline ends the prompt; each line is tokenised by itself, and is a segment
    gsm8k-programs     the same of GSM8K's training questions (word_problems.py)
    the code sources   five instruction corpora (appendix D), by their aliases
    code-mixture       all five: every one but OpenCodeInstruct is read twice an epoch

`mode`: compat is what the release does, row by row, with its substring filter; exact wants every
answer to parse as Python, and OpenCodeInstruct's to define or import something (python_code.py).

Limits, in tokens, with what stands around prompt and answer:

    tinygsm            prompt, answer and eos <= 512; compat also drops more than 16 lines, or one
                       of 32 tokens or more, which the paper truncates when it trains
    code               BOS, prompt, PAD, answer <= 768; compat drops 768 itself too

What this file does not do: read files, tokenise, count, write. Licences are those that the cards of
the datasets state; where we could not read the card, docs/data.md says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from anyorder.data.demonstrations import FlaskApp, without_demonstration
from anyorder.data.python_code import (
    LOOKS_LIKE_PYTHON,
    extract_python,
    parsed,
    whole_program,
    without_blank_lines,
    without_docstring,
)
from anyorder.data.segments import SegmentConfig
from anyorder.data.word_problems import NoProgram, program_of

Mode = Literal["exact", "compat"]
Record = Mapping[str, Any]
Render = Callable[[Record, Mode], tuple[str, str]]

TRUE_WORDS = frozenset({"1", "true", "yes", "y", "pass", "passed"})
LEAST_SCORE = 0.9


class LeftOut(Exception):
    """The row does not pass a filter; the message is the reason, as it is counted."""


@dataclass(frozen=True)
class CorpusSource:
    """One published dataset, and how its rows are read."""

    alias: str
    hub: str
    """The dataset's id on the hub."""
    config: str | None
    columns: tuple[str, ...]
    """The columns that a row must have."""
    optional: tuple[str, ...]
    """Columns that are read where they are there."""
    render: Render
    licence: str
    commercial: bool = True
    """Whether the licence allows commercial use."""
    repeat: int = 1
    """How often an epoch reads each training row."""


@dataclass(frozen=True)
class Limits:
    """What a row must fit into, in tokens."""

    total: int
    """Prompt, answer and what stands around them."""
    around: int
    segments: SegmentConfig | None = None
    """Also drop rows that do not fit these; None: of any number and length."""


@dataclass(frozen=True)
class CorpusRecipe:
    """A corpus: its sources, how its answers are cut, and its limits by mode."""

    name: str
    sources: tuple[CorpusSource, ...]
    vocab: str
    """The vocabulary of the paper's models."""
    limits: Mapping[str, Limits]
    """By mode; a mode that is not there has no published counterpart."""
    by_line: bool
    """Whether each line is tokenised by itself, and kept as a segment."""
    validation: float
    """The share of the rows that is never trained on."""


def _text(record: Record, column: str) -> str:
    value = record.get(column)
    if not isinstance(value, str) or not value.strip():
        raise LeftOut(f"no {column}")
    return value.strip()


def is_true(value: object) -> bool:
    """A boolean, a number, or a word for true."""
    if isinstance(value, str):
        return value.strip().lower() in TRUE_WORDS
    return bool(value)


def _program(code: str, mode: Mode) -> str:
    """An answer that is a program: taken as it is (compat), or if it parses (exact)."""
    if mode == "compat":
        return code
    found = whole_program(code)
    if found is None:
        raise LeftOut("not Python")
    return found


def _rstar_seed(record: Record, mode: Mode) -> tuple[str, str]:
    if not is_true(record.get("is_passed")):
        raise LeftOut("not passed")
    question, starter = _text(record, "question"), record.get("starter_code")
    if isinstance(starter, str) and starter.strip():
        question = f"{question}\n\nStarter code:\n{starter.strip()}"
    return question, _program(_text(record, "code"), mode)


def _rstar_synthetic(record: Record, mode: Mode) -> tuple[str, str]:
    if "is_passed" in record and not is_true(record["is_passed"]):
        raise LeftOut("not passed")
    return _text(record, "question"), _program(_text(record, "code"), mode)


def _opc(record: Record, mode: Mode) -> tuple[str, str]:
    return _text(record, "instruction"), _program(_text(record, "code"), mode)


def _kodcode(record: Record, mode: Mode) -> tuple[str, str]:
    first = record.get("4o_solution")
    column = "4o_solution" if isinstance(first, str) and first.strip() else "solution"
    return _text(record, "question"), _program(_text(record, column), mode)


def _open_code(record: Record, mode: Mode) -> tuple[str, str]:
    prompt, answer = _text(record, "input"), _text(record, "output")
    try:
        score = float(record["average_test_score"])
    except (TypeError, ValueError):
        raise LeftOut("no average_test_score") from None
    if not score >= LEAST_SCORE:
        raise LeftOut("tests fail")
    code = extract_python(answer, mode)
    if code is None:
        raise LeftOut("not Python")
    try:
        code = without_demonstration(code, prompt)
    except FlaskApp:
        raise LeftOut("Flask app") from None
    if not LOOKS_LIKE_PYTHON[mode](code):
        raise LeftOut("not Python")
    return prompt, code


def _tinygsm(record: Record, mode: Mode) -> tuple[str, str]:
    question, code = _text(record, "question"), _text(record, "code")
    if mode == "exact" and parsed(code) is None:
        raise LeftOut("not Python")
    return f"{question}\n", without_blank_lines(without_docstring(code))


def _gsm8k(record: Record, mode: Mode) -> tuple[str, str]:
    try:
        return f"{_text(record, 'question')}\n", program_of(_text(record, "answer"))
    except NoProgram as reason:
        raise LeftOut(f"no program: {reason}") from None


CODE_SOURCES = (
    CorpusSource(
        "rstarcoder-seed-sft",
        "microsoft/rStar-Coder",
        "seed_sft",
        ("question", "code"),
        ("starter_code", "is_passed"),
        _rstar_seed,
        "CC BY 4.0",
    ),
    CorpusSource(
        "rstarcoder-synthetic-sft",
        "microsoft/rStar-Coder",
        "synthetic_sft",
        ("question", "code"),
        ("is_passed",),
        _rstar_synthetic,
        "CC BY 4.0",
    ),
    CorpusSource(
        "opc-sft-stage2-educational",
        "OpenCoder-LLM/opc-sft-stage2",
        "educational_instruct",
        ("instruction", "code"),
        (),
        _opc,
        "MIT",
    ),
    CorpusSource(
        "KodCode-V1-SFT-4o",
        "KodCode/KodCode-V1-SFT-4o",
        None,
        ("question",),
        ("4o_solution", "solution"),
        _kodcode,
        "CC BY-NC 4.0",
        commercial=False,
    ),
    CorpusSource(
        "OpenCodeInstruct-score1-py-all",
        "nvidia/OpenCodeInstruct",
        None,
        ("input", "output", "average_test_score"),
        (),
        _open_code,
        "CC BY 4.0",
    ),
)
"""The five of appendix D, each of the release's alias."""

TINYGSM = CorpusSource(
    "tinygsm", "TinyGSM/TinyGSM", None, ("question", "code"), (), _tinygsm, "MIT"
)
GSM8K = CorpusSource(
    "gsm8k-programs", "openai/gsm8k", "main", ("question", "answer"), (), _gsm8k, "MIT"
)

ONCE = "OpenCodeInstruct-score1-py-all"
"""The one source of the mixture that is not repeated."""

_MATHS = Limits(total=512, around=1)
_CODE = {"exact": Limits(total=768, around=2), "compat": Limits(total=767, around=2)}


def _code_recipe(name: str, sources: tuple[CorpusSource, ...]) -> CorpusRecipe:
    return CorpusRecipe(
        name,
        sources,
        vocab="Dream-org/Dream-Coder-v0-Base-7B",
        limits=_CODE,
        by_line=False,
        validation=0.005,
    )


def _maths_recipe(source: CorpusSource, limits: Mapping[str, Limits]) -> CorpusRecipe:
    return CorpusRecipe(
        source.alias,
        (source,),
        vocab="Qwen/Qwen2-0.5B",
        limits=limits,
        by_line=True,
        validation=0.02,
    )


_DROPPING = SegmentConfig(by="line", slots=16, segment_length=32, overflow="drop")

CORPORA: dict[str, CorpusRecipe] = {
    recipe.name: recipe
    for recipe in (
        _maths_recipe(TINYGSM, {"exact": _MATHS, "compat": replace(_MATHS, segments=_DROPPING)}),
        _maths_recipe(GSM8K, {"exact": _MATHS}),
        *(_code_recipe(source.alias, (source,)) for source in CODE_SOURCES),
        _code_recipe(
            "code-mixture",
            tuple(
                replace(source, repeat=1 if source.alias == ONCE else 2) for source in CODE_SOURCES
            ),
        ),
    )
}


def find_corpus(name: str) -> CorpusRecipe:
    """A data recipe by its name."""
    if name not in CORPORA:
        raise ValueError(f"no data recipe {name!r}: choose one of {', '.join(CORPORA)}")
    return CORPORA[name]
