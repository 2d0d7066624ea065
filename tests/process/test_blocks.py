"""Corruption block by block: exact objectives with the time integrated out, and their draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from scipy import integrate

from anyorder.process import masking
from anyorder.process.blocks import (
    block_levels,
    complement,
    corrupt_counts,
    corrupt_times,
    set_weight,
)
from anyorder.process.noise import Noise, uniform
from anyorder.process.schedule import LINEAR

JOINT = {(0, 0): 0.4, (0, 1): 0.1, (1, 0): 0.2, (1, 1): 0.3}
Word = tuple[int, ...]
FULL = (0.0, 1.0)


def conditional(joint: dict[Word, float], word: Word, place: int, seen: set[int]) -> float:
    """p(x_place | x_seen)."""
    fits = {w: p for w, p in joint.items() if all(w[i] == word[i] for i in seen)}
    return sum(p for w, p in fits.items() if w[place] == word[place]) / sum(fits.values())


def subsets(items: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(items) + 1):
        yield from itertools.combinations(items, count)


def objective(
    joint: dict[Word, float], word: Word, size: int, times: tuple[float, float] = FULL
) -> float:
    """The weighted sum over all sets of masked items of all blocks, with exact posteriors."""
    total = 0.0
    for start in range(0, len(word), size):
        block = list(range(start, min(start + size, len(word))))
        for masked in subsets(block):
            seen = set(range(start + len(block))) - set(masked)
            nats = sum(-math.log(conditional(joint, word, i, seen)) for i in masked)
            total += set_weight(len(masked), len(block), times) * nats
    return total


def test_the_exact_bound_is_the_nats_for_both_block_sizes() -> None:
    assert objective(JOINT, (0, 1), 2) == pytest.approx(2.302585, abs=5e-7)
    assert objective(JOINT, (0, 1), 1) == pytest.approx(-math.log(0.1), rel=1e-12)


def test_clipped_objectives() -> None:
    assert objective(JOINT, (0, 1), 2, (0.45, 0.95)) == pytest.approx(2.025326, abs=5e-7)
    assert objective(JOINT, (0, 1), 2, (0.3, 0.8)) == pytest.approx(2.233270, abs=5e-7)


def test_the_unweighted_sum() -> None:
    """Without 1/t a set of m of n items has the integral of t^m (1-t)^(n-m)."""
    one, both = -math.log(0.25) - math.log(0.2), -math.log(0.5) - math.log(0.4)
    plain = [integrate.quad(lambda t, m=m: t**m * (1 - t) ** (2 - m), 0, 1)[0] for m in (1, 2)]
    assert plain[0] * one + plain[1] * both == pytest.approx(1.035768, abs=5e-7)


def test_weights_of_four() -> None:
    assert [set_weight(m, 4) for m in range(1, 5)] == pytest.approx([1 / 4, 1 / 12, 1 / 12, 1 / 4])
    clipped = [set_weight(m, 4, (0.45, 0.95)) for m in range(1, 5)]
    assert clipped == pytest.approx([0.045750, 0.065083, 0.124083, 0.386750], abs=5e-7)


@pytest.mark.parametrize(("items", "times"), [(3, FULL), (7, FULL), (5, (0.3, 0.8))])
def test_weights_are_the_integrals(items: int, times: tuple[float, float]) -> None:
    for m in range(1, items + 1):
        found = integrate.quad(lambda t, m=m: t ** (m - 1) * (1 - t) ** (items - m), *times)[0]
        assert set_weight(m, items, times) == pytest.approx(found / (times[1] - times[0]))
        if times == FULL:
            assert set_weight(m, items) == pytest.approx(1 / (m * math.comb(items, m)), rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_bound_of_an_exact_model_does_not_depend_on_the_block_size(size: int) -> None:
    words = list(itertools.product(range(2), repeat=4))
    weight = uniform(7, torch.arange(len(words))).tolist()
    joint = {word: p / sum(weight) for word, p in zip(words, weight, strict=True)}
    for word in words[::3]:
        assert objective(joint, word, size) == pytest.approx(-math.log(joint[word]), rel=1e-12)


FREE = torch.tensor([[False, True, True, True, True, True, True, False]])
BLOCK = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2]])
ROWS = 12_000


def many() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return FREE.expand(ROWS, -1), BLOCK.expand(ROWS, -1), torch.arange(ROWS)


def set_shares(masked: torch.Tensor, weight: torch.Tensor, items: list[int]) -> dict[Word, float]:
    """For each set of a block's items, its frequency times the weight of its items."""
    found: dict[Word, float] = {}
    for row, scale in zip(masked[:, items].tolist(), weight[:, items].tolist(), strict=True):
        chosen = tuple(item for item, here in zip(items, row, strict=True) if here)
        if chosen:
            each = next(s for s, here in zip(scale, row, strict=True) if here)
            found[chosen] = found.get(chosen, 0.0) + each / ROWS
    return found


@pytest.mark.parametrize("kind", ["counts", "block", "clipped", "sequence", "complement"])
def test_draws_weigh_every_set_as_the_integral_does(kind: str) -> None:
    free, block, index = many()
    noise = Noise(3, 5)
    # Not from 0 on: there 1/t is not bounded, and a mean over draws has heavy tails.
    times = {"counts": FULL, "clipped": (0.3, 0.8)}.get(kind, (0.05, 1.0))
    drawn = {
        "counts": lambda: corrupt_counts(free, block, index, noise),
        "block": lambda: corrupt_times(free, index, noise, block, times),
        "clipped": lambda: corrupt_times(free, index, noise, block, times),
        "sequence": lambda: corrupt_times(free, index, noise, None, times),
        "complement": lambda: complement(free, corrupt_times(free, index, noise, block, (0, 0.95))),
    }[kind]()
    assert not bool((drawn.masked & ~free).any())
    for items in ([1, 2], [3, 4, 5], [6]):
        shares = set_shares(drawn.masked, drawn.weight, items)
        for chosen in subsets(items):
            wanted = set_weight(len(chosen), len(items), times)
            assert shares[chosen] == pytest.approx(wanted, rel=0.1), chosen


def test_counts_mask_something_in_every_block() -> None:
    free, block, index = many()
    masked = corrupt_counts(free, block, index, Noise(0, 1)).masked
    assert all(bool(masked[:, items].any(dim=1).all()) for items in ([1, 2], [3, 4, 5], [6]))


def test_a_pair_masks_every_item_once() -> None:
    free, block, index = many()
    one = corrupt_times(free, index, Noise(1, 2), block)
    other = complement(free, one)
    assert torch.equal(one.masked ^ other.masked, free)
    assert torch.allclose(1 / one.weight + 1 / other.weight, torch.ones(1, dtype=torch.float64))


def test_levels_are_stratified_in_every_block_and_fixed_on_a_grid() -> None:
    free, block, _ = many()
    levels = block_levels(free, block, Noise(1, 2))
    for place in (1, 3, 6):
        strata = (levels[:, place] * ROWS).floor().long().bincount(minlength=ROWS)
        assert int(strata.max()) <= 2  # a shift moves strata by a part of one
    assert torch.equal(levels[:, 3], levels[:, 5]) and not torch.equal(levels[:, 2], levels[:, 3])
    assert bool((block_levels(free, block, Noise(1, 2, 0.25)) == 0.25).all())


def test_one_block_is_corrupted_as_by_mdm() -> None:
    answer = torch.tensor([[False, True, True, True, True], [False, False, True, True, False]])
    index, noise = torch.tensor([4, 9]), Noise(2, 3)
    block = torch.tensor([[0, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    counts = corrupt_counts(answer, block, index, noise)
    assert torch.equal(counts.masked, masking.corrupt(answer, index, noise))
    drawn = corrupt_times(answer, index, noise, block)
    masked, times = masking.corrupt_in_time(answer, index, noise, LINEAR)
    assert torch.equal(drawn.masked, masked)
    assert torch.allclose(drawn.weight[:, 2], LINEAR.hazard(times))
