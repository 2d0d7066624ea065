"""Texts to programs: statuses, fallbacks in their order, offsets, and no exception on anything."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.measure.syntax import ParseLimits, Status, parse_program, parse_source

CODE = "def f(x):\n    return x"

FOUND = {
    "whole": (f"\n\n  \n{CODE}\n", Status.PARSED, "whole", CODE),
    "fenced": (f"Sure:\n```python\n{CODE}\n```\nDone", Status.FALLBACK, "fenced", CODE),
    "fenced py": (f"It is\n```PY\n\n{CODE}```", Status.FALLBACK, "fenced", CODE),
    "fenced, no mark": (f"It is\n```\n{CODE}\n```", Status.FALLBACK, "fenced", CODE),
    "first fence": (f"a b\n```\n{CODE}\n```\n```\nx = 1\n```", Status.FALLBACK, "fenced", CODE),
    "fence that does not parse": (
        f"{CODE}\n```\nthat was all\n```",
        Status.FALLBACK,
        "before_fence",
        CODE,
    ),
    "only a closing fence": (
        f"{CODE}\n```\nThis is it.",
        Status.FALLBACK,
        "before_fence",
        CODE,
    ),
    "truncated": (f"{CODE}\n\nassert f(1", Status.FALLBACK, "longest_lines", CODE),
    "prose around": (f"Here it is:\n{CODE}\nI hope so!", Status.FALLBACK, "longest_lines", CODE),
    "more lines win": (
        f"a = 1\nb c\n{CODE}\n d e\n", Status.FALLBACK, "longest_lines", CODE
    ),
    "of equals the first": ("a = 1\nb c\nd = 2", Status.FALLBACK, "longest_lines", "a = 1"),
    "nothing": ("", Status.EMPTY, "whole", ""),
    "blanks": (" \n\t\n", Status.EMPTY, "whole", ""),
    "a comment": ("# nothing", Status.EMPTY, "whole", "# nothing"),
    "an empty fence": ("It is ```python\n```", Status.EMPTY, "fenced", ""),
}  # fmt: skip


@pytest.mark.parametrize(("text", "status", "fallback", "source"), FOUND.values(), ids=FOUND)
def test_what_is_found(text: str, status: Status, fallback: str, source: str) -> None:
    parsed = parse_program(text)
    assert (parsed.status, parsed.fallback, parsed.source) == (status, fallback, source)
    assert text[parsed.offset : parsed.offset + len(source)] == source
    assert parsed.tree is not None and bool(parsed.tree.body) == parsed.valid


REFUSED = {
    "prose": ("this is no program", Status.UNPARSABLE),
    "null": ("x = 1\0", Status.NULL_BYTES),
    "surrogate": ("x = '\ud800'", Status.NOT_TEXT),
    "parentheses": ("(" * 1000, Status.UNPARSABLE),
    "a long sum": ("1+" * 50_000 + "1", Status.TOO_LARGE),
    "a deep sum": ("1+" * 600 + "1", Status.TOO_DEEP),
    "a very deep sum": ("1+" * 30_000 + "1", Status.TOO_DEEP),
    "minus signs": ("-" * 40_000 + "1", Status.TOO_DEEP),
    "elif": ("if x:\n    y\n" + "elif x:\n    y\n" * 600, Status.FALLBACK),
    "too long a number": ("x = " + "9" * 5000, Status.UNPARSABLE),
    "indentation": ("\n".join(" " * i + "if x:" for i in range(150)), Status.UNPARSABLE),
}


@pytest.mark.parametrize(("text", "status"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(text: str, status: Status) -> None:
    parsed = parse_program(text)
    assert parsed.status == status
    assert parsed.valid or (parsed.tree is None and parsed.detail and "\n" not in parsed.detail)


def test_a_part_without_the_trouble_is_still_found() -> None:
    parsed = parse_program(f"\0\ud800 ```\n{CODE}\n```")
    assert (parsed.status, parsed.source) == (Status.FALLBACK, CODE)


def test_the_order_of_fallbacks_is_an_argument() -> None:
    text = f"Sure:\n```\n{CODE}\n```"
    assert parse_program(text, ["whole"]).status == Status.UNPARSABLE
    assert parse_program(text, ["longest_lines", "fenced"]).fallback == "longest_lines"
    with pytest.raises(ValueError, match="no fallback 'guess'"):
        parse_program(text, ["guess"])
    with pytest.raises(ValueError, match="whole, fenced"):
        parse_program(text, [])


def test_limits_are_arguments() -> None:
    assert parse_program(CODE, limits=ParseLimits(characters=5)).status == Status.TOO_LARGE
    assert parse_program(CODE, limits=ParseLimits(depth=3)).status == Status.TOO_DEEP
    late = "\n".join(["a b"] * 50 + ["x = 1"])
    assert parse_program(late).source == "x = 1"
    assert parse_program(late, limits=ParseLimits(lines=50)).status == Status.UNPARSABLE
    assert parse_source("1+1+1", depth=5)[0] == Status.PARSED
    assert parse_source("1+1+1+1+1", depth=5)[0] == Status.TOO_DEEP


def test_warnings_of_a_sample_are_nobodys_concern() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_program(r"x = '\d'").status == Status.PARSED


@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_has_a_status(text: str) -> None:
    parsed = parse_program(text)
    assert text[parsed.offset :].startswith(parsed.source)


@given(st.lists(st.sampled_from(["x = 1", "a b", "```", " y", "", "if x:", "# c"]), max_size=9))
def test_the_longest_run_of_lines_by_trying_all(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = parse_program(text, ["longest_lines"])
    rows = text.strip().split("\n")
    best, most = "", 0
    for first in range(len(rows)):
        for last in range(first, len(rows)):
            run = "\n".join(rows[first : last + 1])
            solid = sum(bool(row.strip()) for row in rows[first : last + 1])
            if solid > most and parse_source(run)[1] is not None:
                best, most = run, solid
    assert found.source.strip() == best.strip()
