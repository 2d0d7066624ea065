"""The order of examples is a keyed permutation in each epoch, and nothing but a function."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder.data.keyed import WORD, Draws, Permutation, example_at, key, mix

SEEDS = st.integers(-(2**70), 2**70)


@given(size=st.integers(1, 400), seed=SEEDS)
def test_a_permutation_is_a_bijection(size: int, seed: int) -> None:
    shuffle = Permutation(size, seed)
    assert sorted(map(shuffle, range(size))) == list(range(size))


@given(size=st.integers(1, 120), seed=SEEDS, epoch=st.integers(0, 5))
def test_every_epoch_reads_every_example_once(size: int, seed: int, epoch: int) -> None:
    read = [example_at(epoch * size + place, size, seed) for place in range(size)]
    assert sorted(read) == list(range(size))


@given(size=st.integers(50, 300), seed=SEEDS)
def test_epochs_and_seeds_shuffle_anew(size: int, seed: int) -> None:
    first = [example_at(place, size, seed) for place in range(size)]
    second = [example_at(size + place, size, seed) for place in range(size)]
    other = [example_at(place, size, seed + 1) for place in range(size)]
    assert first != list(range(size))
    assert first != second
    assert first != other
    assert first == [example_at(place, size, seed) for place in range(size)]


@settings(max_examples=20)
@given(size=st.integers(2**40, 2**45), place=st.integers(0, 2**40 - 1))
def test_the_size_costs_nothing(size: int, place: int) -> None:
    assert 0 <= Permutation(size, "large")(place) < size


@pytest.mark.parametrize("size", [3, 4])
def test_small_permutations_are_all_about_as_likely(size: int) -> None:
    """Chi-square against even odds over many keys; 0.001 is exceeded by 49.7 at 23 degrees."""
    keys = 2400
    counts = Counter(tuple(map(Permutation(size, seed), range(size))) for seed in range(keys))
    every = list(permutations(range(size)))
    even = keys / len(every)
    assert sum((counts[each] - even) ** 2 / even for each in every) < 49.7


def test_neighbours_are_torn_apart() -> None:
    size = 1000
    order = [Permutation(size, 7)(place) for place in range(size)]
    steps = [abs(a - b) for a, b in pairwise(order)]
    assert abs(sum(steps) / len(steps) - size / 3) < 40  # what an even shuffle gives
    assert sum(step == 1 for step in steps) < 10


def test_a_source_without_end_is_read_as_it_comes() -> None:
    assert [example_at(place, None, 3) for place in (0, 5, 10**12)] == [0, 5, 10**12]


@pytest.mark.parametrize(("position", "size"), [(-1, 5), (-1, None), (0, 0)])
def test_places_that_do_not_exist_are_refused(position: int, size: int | None) -> None:
    with pytest.raises(ValueError, match=r"from 0 on|source is empty"):
        example_at(position, size, 0)


def test_permutations_refuse_what_is_outside() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Permutation(0)
    with pytest.raises(ValueError, match=r"not in range\(3\)"):
        Permutation(3)(3)


def test_keys_tell_their_parts_apart() -> None:
    parts: list[tuple[int | str, ...]] = [(1,), ("1",), (1, 1), (11,), ("1", "1"), (-1,), ()]
    assert len({key(*each) for each in parts}) == len(parts)


@given(st.integers(0, WORD), st.integers(0, WORD))
def test_mixing_loses_nothing(one: int, two: int) -> None:
    assert (mix(one) == mix(two)) == (one == two)
    assert 0 <= mix(one) <= WORD


def test_draws_are_even_and_belong_to_their_key() -> None:
    draws = Draws("a", 1)
    values = [draws.uniform() for _ in range(4000)]
    assert 0 <= min(values) <= max(values) < 1
    assert abs(sum(values) / len(values) - 0.5) < 0.02
    counts = Counter(int(value * 10) for value in values)
    assert sum((n - 400) ** 2 / 400 for n in counts.values()) < 27.9  # 0.001 at 9 degrees
    again, other = Draws("a", 1), Draws("a", 2)
    assert [again.uniform() for _ in range(5)] == values[:5]
    assert [other.uniform() for _ in range(5)] != values[:5]
    assert {Draws("b", i).between(2, 4) for i in range(50)} == {2, 3, 4}
    assert sorted(Draws("c").sample("abcde", 5)) == list("abcde")
