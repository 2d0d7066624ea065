"""From text to program: each mode on the texts it is for, and no text that raises."""

from __future__ import annotations

import gzip
import json
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.measure import extract as extract_module
from anyorder.measure.extract import ANY_OF_4, EXTRACTIONS, RELEASE_MODES, extract, sensitivity

PREFIX = 'def double(x):\n    """ Twice x. """\n\n'
BODY = "    y = x + x\n    return y\n"
WHOLE = "def double(x):\n    y = 2 * x\n    return y\n"
TEXTS = {
    "body": BODY,
    "body, fence": f"{BODY}```\nThat is it.",
    "body, code": f"{BODY}\n\nprint(double(2))\nThe end\n",
    "program": WHOLE,
    "program, fence": f"{WHOLE}```\nDone, isn't it?",
    "fenced": f"Here it is:\n```python\n{WHOLE}```\nDone.",
    "bare fence": f"\n```\n{WHOLE}```",
    "open fence": f"```python\n{WHOLE}",
    "two blocks": f"```python\nassert False, 1\n```\nBetter:\n```python\n{WHOLE}```",
    "windows": WHOLE.replace("\n", "\r\n"),
    "cut short": f"{WHOLE}\n\ndef other(x):\n    return (x +",
    "prose": "I do not know how to do that",
    "blank": " \n\n",
}
WORKS = {
    "sanitize_completion": set(TEXTS) - {"prose", "blank"},
    # Stripping takes the body's first indentation away: the release's rule.
    "sanitize_cleaned": {"program", "program, fence", "windows", "cut short"},
    "before_fence": {"body", "body, fence", "program", "program, fence", "windows"},
    "cleaned": {"program", "program, fence", "windows"},
    "completion": {"body", "body, fence", "body, code", "program", "program, fence", "windows"},
    "block": {"program", "program, fence", "fenced", "bare fence", "open fence", "windows"},
    "last_block": {"program", "fenced", "bare fence", "two blocks", "windows"},
    "function": {
        *("program", "program, fence", "fenced", "bare fence", "open fence", "windows"),
        "cut short",
    },
    "plain": {"program", "windows"},
    "infill": {"body", "program", "windows"},
}


def works(program: str | None) -> bool:
    scope: dict[str, object] = {}
    try:
        exec(program or "", scope)
        return scope["double"](3) == 6  # type: ignore[operator]
    except (SyntaxError, NameError, KeyError, AssertionError):
        return False


@pytest.mark.parametrize("mode", EXTRACTIONS)
@pytest.mark.parametrize("name", TEXTS)
def test_modes(mode: str, name: str) -> None:
    program = extract(TEXTS[name], mode=mode, entry_point="double", prefix=PREFIX)
    assert works(program) == (name in WORKS[mode]), program


def test_a_short_fenced_answer_loses_to_the_head() -> None:
    """The published rule counts lines: the prompt's own head is as long, comes first, and wins."""
    text = "```python\ndef double(x):\n    return 2 * x\n```"
    assert not works(extract(text, mode="sanitize_completion", entry_point="double", prefix=PREFIX))
    assert works(extract(text, mode="block", entry_point="double", prefix=PREFIX))


def test_what_is_no_code() -> None:
    assert extract(" \n", mode="before_fence", prefix=PREFIX) is None
    assert extract("```\nx = 1\n```", mode="cleaned") is None
    assert extract("one ``` only", mode="last_block") is None
    assert extract("x = 1", mode="function") is None
    assert extract("?!", mode="sanitize_completion", entry_point="f") is None
    # No code is not the same as code that is wrong: this one is graded as a syntax error.
    assert extract("def f(:", mode="function") == "def f(:"


def test_the_release_modes_word_for_word() -> None:
    text = "  a = 1\n```python\nb = 2\n```"
    found = sensitivity(text, entry_point="a", prefix="import re\n")
    assert found == {
        "sanitize_completion": "import re",
        "sanitize_cleaned": "import re\na = 1",
        "before_fence": "import re\n  a = 1\n",
        "cleaned": "a = 1",
    }
    assert tuple(found) == RELEASE_MODES
    assert ANY_OF_4 not in EXTRACTIONS  # a union is a way of grading, not of extracting


def test_sensitivity_to_other_modes() -> None:
    assert sensitivity(WHOLE, modes=("plain", "block")) == {"plain": WHOLE, "block": WHOLE}


def test_a_wrong_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="choose one of sanitize_completion"):
        extract("x", mode="any")


@pytest.mark.parametrize(
    "text",
    [
        f" {WHOLE}",  # tokenizers put a blank before the first word
        f"Answer: {WHOLE}",
        "".join(f"  {line}" for line in WHOLE.splitlines(keepends=True)) + "  print(1)\n",
        f"To define: def it.\n{WHOLE}",
    ],
)
def test_function_begins_at_the_margin_or_else_anywhere(text: str) -> None:
    assert works(extract(text, mode="function"))


@pytest.mark.parametrize("dropped", [0, 1, 50, 51])
def test_function_drops_at_most_fifty_lines(dropped: int) -> None:
    program = extract(WHOLE + "oops oops\n" * dropped + "x (", mode="function")
    assert works(program) == (dropped < 50)


def test_every_mode_is_described() -> None:
    described = re.findall(r"^    (\w+)  ", extract_module.__doc__ or "", re.MULTILINE)
    assert set(EXTRACTIONS) <= set(described)


@given(st.text(st.characters(), max_size=80), st.sampled_from(["", PREFIX]))
def test_no_text_raises(text: str, prefix: str) -> None:
    for mode in EXTRACTIONS:
        extract(text, mode=mode, entry_point="double", prefix=prefix)


@given(st.lists(st.sampled_from([*TEXTS.values(), "```", "def f(", "'''", "\\\n", "\0", "\udcff"])))
def test_no_mixture_of_texts_raises(pieces: list[str]) -> None:
    for mode in EXTRACTIONS:
        extract("".join(pieces), mode=mode, entry_point="double", prefix=PREFIX)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "-" * 100_000 + "1",
        "not " * 50_000 + "1",
        "a" + ".b" * 20_000,
        "x = " + "1 + " * 20_000 + "1",
        "x = " + "lambda: " * 20_000 + "0",
        "x = " + "[" * 150 + "]" * 150 + "\noops oops",
        "\n".join(" " * depth + "if x:" for depth in range(120)),
        "x = '" + "a" * 1_000_000,
        "\0" * 1_000_000,
        "\ud800" * 1_000_000,
        "```" * 100_000,
        "```\n" * 100_000,
        "word " * 50_000,
        "x = 1\n" * 150_000,
        "def f(x):\n" * 20_000,
        "@a\n" * 100,
    ],
    ids=lambda text: ascii(text[:8]),
)
def test_hostile_texts_end_soon(text: str) -> None:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("sanitize_completion", "function", "block"):
            extract(text, mode=mode, entry_point="double", prefix=PREFIX)
    assert time.process_time() - start < 5


def test_a_deep_expression_keeps_its_own_lines() -> None:
    """Where the release's unparse would raise, the statement is taken as it stands."""
    text = f"def double(x):\n    return x{' + 0' * 900} + x\n"
    program = extract(text, mode="sanitize_completion", entry_point="double")
    assert program is not None
    assert works(program)


def test_canonical_solutions_survive_extraction(data_file: Callable[[str], Path]) -> None:
    """Prompt and completion make a program in which the entry point is the canonical one."""
    with gzip.open(data_file("benchmarks/HumanEval.jsonl.gz"), "rt") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        for tail in ("", "```\nDone.", "\n\nprint('x')\n# Test\nHere is why"):
            program = extract(
                row["canonical_solution"] + tail,
                mode="sanitize_completion",
                entry_point=row["entry_point"],
                prefix=f"{row['prompt']}\n",
            )
            scope: dict[str, object] = {}
            # What a prompt defines beside the entry point is the tests' business, not the sample's.
            exec(f"{row['prompt']}    pass\n{program}", scope)
            exec(f"{row['test']}\ncheck({row['entry_point']})", scope)
