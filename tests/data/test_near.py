"""Duplicates: signatures estimate similarity, tables find what is alike, files bring them back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_corpora import made_program, made_prompt, planted_repeats, rewritten

from anyorder.data.filters import RowViews, grams, numbers, shape, words
from anyorder.data.near import (
    BYTES_IN_MEMORY,
    HASHES,
    RECORD,
    SHAPE_GRAM,
    WORD_GRAM,
    KnownRows,
    exact_key,
    signature,
)


def test_words_and_shape_see_through_layout_and_names() -> None:
    assert words("Max_value = 12; // Ünïcode\\nnext") == ["max", "value", "12", "ünïcode", "next"]
    one = "def f(a, b):\n    '''Doc.'''\n    x = a[0]  # note\n    return len(x) ** 2 + 'y'"
    two = 'def other(\n  first,\n  second,\n):\n  thing = first[0]\n  return len(thing)**2+"z"'
    assert shape(one) == shape(two)
    assert shape(one) != shape(one.replace("2", "3")) != shape(one.replace("len", "sum"))


def test_grams_are_those_of_the_tokens_and_do_not_depend_on_the_process() -> None:
    tokens = ["the", "cat", "sat", "on", "the", "cat", "sat"]
    found = grams(numbers(tokens), 3)
    assert len(found) == 5 and found[0] == found[4] and len(set(found.tolist())) == 4
    assert grams(numbers(tokens), 8).shape == (0,)
    assert int(found[0]) == 2833710277056945687


def jaccard(left: RowViews, right: RowViews) -> float:
    sets = [
        {*grams(row.prompt_words, WORD_GRAM).tolist(), *grams(row.shape, SHAPE_GRAM).tolist()}
        for row in (left, right)
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_equal_hashes_estimate_the_similarity() -> None:
    errors = []
    for index in range(60):
        tokens = made_prompt(1, index).split()
        changed = [*tokens[: 1 + index % 20], "new", *tokens[2 + index % 20 :]]
        program = made_program(1, index)
        one, two = RowViews(" ".join(tokens), program), RowViews(" ".join(changed), program)
        estimate = float(np.mean(signature(one) == signature(two)))
        errors.append(estimate - jaccard(one, two))
    # Each is a mean of HASHES Bernoulli draws; their mean is within five standard errors of 0.
    assert abs(float(np.mean(errors))) < 5 * 0.5 / np.sqrt(HASHES * len(errors))
    assert float(np.max(np.abs(errors))) < 5 * 0.5 / np.sqrt(HASHES)


def open_seen(folder: Path, *, near: bool = True) -> KnownRows:
    return KnownRows(folder / "seen.bin", near=near, threshold=0.8)


def offer(seen: KnownRows, row: int, prompt: str, answer: str) -> tuple[int, float | None] | None:
    views = RowViews(prompt, answer)
    exact, held = exact_key(views), signature(views)
    found = seen.find(exact, held)
    if found is None:
        seen.add(exact, held, 3, row)
        return None
    assert found.source == 3
    return found.row, found.similarity


def test_repeats_are_found_near_ones_too_and_nothing_else(tmp_path: Path) -> None:
    seen = open_seen(tmp_path)
    for index in range(400):
        assert offer(seen, index, made_prompt(0, index), made_program(0, index)) is None
        if index % 50 == 0:
            assert seen.flush() == (index + 1) * RECORD.itemsize
    for kind, index, prompt, program in planted_repeats(0, 400):
        found = offer(seen, 999, prompt, program)
        assert found is not None and found[0] == int(index)
        assert (found[1] is None) == (kind == "repeat")
    assert len(seen) == 400
    seen.close()


def test_without_near_duplicates_only_equal_text_counts(tmp_path: Path) -> None:
    seen = open_seen(tmp_path, near=False)
    prompt, program = made_prompt(0, 0), made_program(0, 0)
    assert offer(seen, 0, prompt, program) is None
    assert offer(seen, 1, prompt, rewritten(program, 1)) is None
    assert offer(seen, 2, f"  {prompt}\n", program.replace("\n", "\n\n")) == (0, None)
    seen.close()


def test_what_was_flushed_is_known_again(tmp_path: Path) -> None:
    first = open_seen(tmp_path)
    for index in range(30):
        offer(first, index, made_prompt(0, index), made_program(0, index))
        if index == 19:
            first.flush()
    first.close()  # as if killed: rows from 20 on were never committed
    again = open_seen(tmp_path)
    assert len(again) == 20
    for index in range(30):
        found = offer(again, index, made_prompt(0, index), made_program(0, index))
        assert found == ((index, None) if index < 20 else None)
    again.close()


def test_templates_crowd_no_band_and_memory_is_as_stated(tmp_path: Path) -> None:
    seen = open_seen(tmp_path)
    draws = np.random.default_rng(0)
    alike = draws.integers(0, 2**32, HASHES, dtype=np.uint32)
    for row in range(14_000):
        held = draws.integers(0, 2**32, HASHES, dtype=np.uint32)
        held[:6] = alike[:6]  # one band that all share
        if row % 100 == 0:
            assert seen.find(row + 1, held) is None
            seen.flush()
        seen.add(row + 1, held, 0, row)
    assert len(seen) == 14_000
    # The first table is full, and the second, twice as large, almost empty.
    assert len(seen) > seen.memory / 3 / BYTES_IN_MEMORY
    seen.close()


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "seen.bin").write_bytes(b"123")
    with pytest.raises(AssertionError, match="whole records"):
        open_seen(tmp_path)
