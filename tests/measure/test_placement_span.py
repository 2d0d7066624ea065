"""Which tokens count as code: found exactly, through the prompt, by lines, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from anyorder.measure.placement_scores import find_program, tokens_inside
from anyorder.trace import Trace

EOS = 9


def trace(pieces: list[str], program: str | None, prompt: str = "", eos: int = 0) -> Trace:
    """Tokens 0, 1, 2, ... with these texts, and some ends of sequence after them."""
    ends = np.cumsum([len(piece) for piece in pieces])
    count = len(pieces) + eos
    return Trace(
        task_id="t",
        sample=0,
        prompt=prompt,
        text="".join(pieces),
        program=program,
        prompt_ids=np.asarray([0]),
        token_ids=np.asarray([*range(len(pieces)), *[EOS] * eos]),
        char_end=np.asarray([*ends, *[ends[-1]] * eos]),
        insert_step=np.zeros(count, dtype=int),
        reveal_step=np.arange(1, count + 1),
        steps=count,
    )


def inside(sample: Trace, region: str = "code") -> list[int]:
    return np.flatnonzero(tokens_inside(sample, region, (EOS,))[1]).tolist()


def test_a_program_within_prose() -> None:
    sample = trace(["Sure:", "\n", "def", " f", "(): pa", "ss\nBye", "!"], "def f(): pass", eos=2)
    assert find_program(sample) == ("exact", (6, 19))
    assert inside(sample) == [2, 3, 4, 5]  # the token that spans the end shares a character
    assert inside(sample, "all") == list(range(9))
    assert tokens_inside(sample, "all", (EOS,))[0] == "all"


def test_no_program_means_the_text_before_the_end() -> None:
    sample = trace(["a", "b", "", "c", ""], None, eos=3)
    assert find_program(sample)[0] == "text"
    assert inside(sample) == [
        0,
        1,
        2,
        3,
        4,
    ]  # what has no characters of its own belongs to its left


def test_every_end_ends_the_code() -> None:
    sample = trace(["a", "b", "c", "d"], None, eos=1)
    assert tokens_inside(sample, "code", (EOS, 2))[1].tolist() == [True, True, False, False, False]
    assert tokens_inside(sample, "all", (EOS, 2))[1].all()


def test_no_program_where_one_was_looked_for_means_no_code() -> None:
    sample = trace(["a", "b"], None, eos=1)
    how, found = tokens_inside(sample, "code", (EOS,), looked_for=True)
    assert how == "none" and not found.any()
    assert tokens_inside(sample, "all", (EOS,), looked_for=True)[1].all()


def test_later_bytes_of_a_character_belong_to_it() -> None:
    sample = trace(["x", "", "é", "", "y"], "é")
    assert inside(sample) == [2, 3]


def test_a_program_that_begins_in_the_prompt() -> None:
    prompt = 'def f(x):\n    """Add."""\n'
    sample = trace(["    return", " x", "\n\n", "print(1)"], prompt + "    return x", prompt)
    assert find_program(sample) == ("exact", (0, 12))
    assert inside(sample) == [0, 1]


@pytest.mark.parametrize("between", ["", "\n", "    "])
def test_a_completion_that_extraction_cleaned(between: str) -> None:
    """The prompt, what the task's rule puts between, and the text without what is around it."""
    prompt = "def f(x):\n"
    sample = trace(["\n", "    ret", "urn x", "\n\n", "bye"], f"{prompt}{between}return x", prompt)
    assert find_program(sample) == ("exact", (1, 13))
    assert inside(sample) == [1, 2]


def test_a_program_that_was_cleaned_is_found_by_lines() -> None:
    text = ["intro\n", "def f(x):\n", "    print(x)\n", "    return x  \n", "\n", "done\n"]
    sample = trace(text, "import math\n\ndef f(x):\n    return x\n")
    assert find_program(sample) == ("lines", (6, 41))
    assert inside(sample) == [1, 2, 3]


@pytest.mark.parametrize("program", ["something else", "", "\n  \n"])
def test_a_program_that_is_not_there(program: str) -> None:
    sample = trace(["a", "b"], program)
    assert find_program(sample)[0] == "none" and inside(sample) == []


def test_a_program_that_is_all_prompt_leaves_nothing() -> None:
    sample = trace(["a", "b"], "def g(): 1", prompt="def g(): 1\n")
    assert find_program(sample)[0] == "none" and inside(sample) == []


def test_what_is_refused() -> None:
    sample = trace(["a"], None)
    with pytest.raises(ValueError, match="choose 'code' or 'all'"):
        tokens_inside(sample, "tests", (EOS,))
    strings = Trace(task_id="s", sample=1, prompt="", text="ab", char_end=[1, 2],
                    insert_step=[0, 0], reveal_step=[1, 2], steps=2)  # fmt: skip
    with pytest.raises(ValueError, match="'s' sample 1 holds strings, not token ids"):
        tokens_inside(strings, "code", (EOS,))
