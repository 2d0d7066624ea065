"""The masking process: its law, and both losses at the data's entropy under exact posteriors."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from anyorder.nets.oracles import Oracle
from anyorder.process import masking
from anyorder.process.noise import Noise
from anyorder.process.schedule import LINEAR, Power

MASK = 3
DATA = {
    sequence: 1.0 + (7 * sequence[0] + 3 * sequence[1] * sequence[2] + sequence[3]) % 5
    for sequence in itertools.product(range(3), repeat=4)
    if sum(sequence) % 2 == 0
}


def free_table(rows: int, items: int) -> torch.Tensor:
    return torch.ones(rows, items, dtype=torch.bool)


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 10**6), st.data())
def test_only_free_items_are_masked_and_counts_are_kept(
    rows: int, items: int, step: int, data: st.DataObject
) -> None:
    free = torch.tensor(
        data.draw(
            st.lists(
                st.lists(st.booleans(), min_size=items, max_size=items),
                min_size=rows,
                max_size=rows,
            )
        )
    )
    noise, index = Noise(1, step), torch.arange(rows)
    masked = masking.corrupt(free, index, noise)
    assert not (masked & ~free).any()
    counts = masking.uniform_counts(free, noise.levels(rows))
    assert masked.sum(dim=1).tolist() == counts.tolist()
    assert (counts[free.any(dim=1)] >= 1).all()


def test_count_is_uniform_and_places_are_exchangeable() -> None:
    free = free_table(6000, 5)
    masked = masking.corrupt(free, torch.arange(6000), Noise(0, 0))
    counts = torch.bincount(masked.sum(dim=1), minlength=6)
    assert counts[0] == 0 and counts[1:].tolist() == [1200] * 5  # stratified: exactly even
    pairs = torch.zeros(5, 5)
    for row in masked[masked.sum(dim=1) == 2]:
        a, b = row.nonzero()[:, 0].tolist()
        pairs[a, b] += 1
    seen = pairs[pairs > 0]
    assert len(seen) == 10 and stats.chisquare(seen.numpy()).pvalue > 1e-4


def test_noise_belongs_to_the_example_not_to_its_row() -> None:
    free, noise = free_table(3, 8), Noise(2, 9, level=0.4)
    index = torch.tensor([10, 20, 30])
    forward = masking.corrupt(free, index, noise)
    backward = masking.corrupt(free, index.flip(0), noise)
    assert torch.equal(forward, backward.flip(0))


def test_masking_in_time_has_the_schedules_probability() -> None:
    schedule, free = Power(1.7), free_table(20000, 3)
    masked, times = masking.corrupt_in_time(
        free, torch.arange(20000), Noise(0, 1, level=0.7), schedule
    )
    assert times.unique().tolist() == pytest.approx([0.3])
    assert float(masked.double().mean()) == pytest.approx(0.7**1.7, abs=0.006)


def exact_nats(oracle: Oracle, x: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    canvas = x.masked_fill(masked, MASK)
    log_p = oracle.hidden(canvas)
    return -log_p[masked].gather(1, x[masked][:, None])[:, 0]


def enumerated_loss() -> float:
    """E over x, n and subsets of (1/n) * sum of nats, times L: by enumeration, no sampling."""
    oracle, length, total = Oracle(DATA, MASK, 4), 4, 0.0
    for x, weight in zip(oracle.sequences, oracle.weights, strict=True):
        for n in range(1, length + 1):
            subsets = list(itertools.combinations(range(length), n))
            for subset in subsets:
                masked = torch.zeros(1, length, dtype=torch.bool)
                masked[0, list(subset)] = True
                parts = masking.mean_over_masked(exact_nats(oracle, x[None], masked), masked)
                total += float(weight) * float(parts.loss) / len(subsets) / length
    return total * length


def test_paper_loss_times_length_is_the_entropy_under_exact_posteriors() -> None:
    assert enumerated_loss() == pytest.approx(Oracle(DATA, MASK, 4).entropy(), abs=1e-9)


@pytest.mark.parametrize("schedule", [LINEAR, Power(2.5)])
def test_hazard_bound_is_the_entropy_under_exact_posteriors(schedule: Power) -> None:
    oracle, rows = Oracle(DATA, MASK, 4), 60000
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(oracle.weights, rows, replacement=True, generator=generator)
    x, free = oracle.sequences[drawn], free_table(rows, 4)
    masked, times = masking.corrupt_in_time(free, torch.arange(rows), Noise(0, 0), schedule)
    nats = exact_nats(oracle, x, masked)
    parts = masking.hazard_bound(nats, masked, schedule.hazard(times), free.sum(dim=1))
    assert float(parts.loss) * 4 == pytest.approx(oracle.entropy(), rel=0.03)
    assert int(parts.tokens) == int(masked.sum())
    assert float(parts.nats) == pytest.approx(float(nats.sum()))


def test_mean_over_masked_averages_within_rows_first() -> None:
    masked = torch.tensor([[True, True, False], [False, False, True]])
    parts = masking.mean_over_masked(torch.tensor([1.0, 3.0, 10.0]), masked)
    assert float(parts.loss) == pytest.approx((2.0 + 10.0) / 2)
    assert float(parts.nats_per_token) == pytest.approx(14 / 3)


def test_wrong_number_of_losses_is_refused() -> None:
    with pytest.raises(ValueError, match="one per masked item"):
        masking.mean_over_masked(torch.ones(2), torch.ones(1, 3, dtype=torch.bool))
