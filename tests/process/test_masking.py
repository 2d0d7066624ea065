"""The masking process: its law, and both losses at the data's entropy under exact posteriors."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from anyorder.nets.oracles import Oracle
from anyorder.process import masking
from anyorder.process import masking as causal
from anyorder.process.masking import action_log_prob, factor_choice, factor_counts, group_advantages
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


# The causal process: states stand one place left of what they predict.


def test_predictors_stand_one_place_left() -> None:
    targets = torch.tensor([[False, False, True, True], [False, True, False, False]])
    expected = torch.tensor([[False, True, True, False], [True, False, False, False]])
    assert torch.equal(causal.predictors(targets), expected)


def test_first_position_has_no_predictor() -> None:
    with pytest.raises(ValueError, match="BOS"):
        causal.predictors(torch.tensor([[True, False]]))


def test_token_mean() -> None:
    parts = causal.mean_over_tokens(torch.tensor([1.0, 2.0, 6.0]))
    assert float(parts.loss) == pytest.approx(3.0)
    assert int(parts.tokens) == 3 and float(parts.nats) == pytest.approx(9.0)


# The factor rule: its golden numbers, and a plain loop that says the same.


def plain(confidence: list[float], factor: float) -> int:
    """The published loop: stop at the first that is not sure enough; at the last, take all."""
    ordered = sorted(confidence, reverse=True)
    for number, sure in enumerate(ordered[1:], start=2):
        if sure < 1 - factor / (number + 1):
            return number if number == len(ordered) else number - 1
    return len(ordered)


def count(confidence: list[float], factor: float = 1.0) -> int:
    return int(factor_counts(torch.tensor([confidence], dtype=torch.float64).log(), factor))


def test_golden_numbers() -> None:
    assert count([0.99, 0.9, 0.8, 0.5, 0.3]) == 3
    assert count([0.9, 0.2, 0.1]) == 1
    assert count([0.99, 0.3]) == 2
    assert count([0.4]) == 1


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12),
    st.floats(0.0, 4.0),
    st.integers(0, 5),
)
def test_counts_are_those_of_the_published_loop(
    confidence: list[float], factor: float, closed: int
) -> None:
    log = torch.tensor([[*confidence, *[0.0] * closed]], dtype=torch.float64).log()
    # The rule compares probabilities; exp(log p) may differ from p in the last bit.
    back = log.exp()[0, : len(confidence)].tolist()
    assert int(factor_counts(log, factor)) == plain(back, factor)


def test_a_larger_factor_reveals_more_and_the_choice_is_the_surest() -> None:
    confidence = torch.tensor([[0.5, 0.99, 0.8, 0.9, 0.0, 0.7]], dtype=torch.float64).log()
    chosen = [factor_choice(confidence, factor)[0].tolist() for factor in (0.0, 1.0, 2.0)]
    assert [sum(each) for each in chosen] == [1, 3, 5]
    assert chosen[0] == [False, True, False, False, False, False]
    assert chosen[1] == [False, True, True, True, False, False]
    assert not chosen[2][4]  # closed


def test_rows_are_judged_alone() -> None:
    both = torch.tensor([[0.9, 0.2, 0.1], [0.99, 0.3, 0.0]], dtype=torch.float64).log()
    assert factor_counts(both).tolist() == [1, 2]
    assert factor_counts(torch.full((1, 3), -torch.inf)).tolist() == [0]


# The tuning mathematics: actions are a distribution, advantages are against the group.


ODDS = st.lists(st.floats(-4, 4), min_size=2, max_size=5)


@given(ODDS, st.integers(1, 5))
def test_the_chances_of_all_subsets_add_up_to_one(odds: list[float], open_slots: int) -> None:
    z = torch.tensor([odds], dtype=torch.float64)
    eligible = torch.arange(len(odds))[None] < open_slots
    free = int(eligible.sum())
    total = 0.0
    for chosen in itertools.product([False, True], repeat=free):
        taken = torch.tensor([[*chosen, *[False] * (len(odds) - free)]])
        total += float(action_log_prob(z, taken, eligible).exp())
    assert total == pytest.approx(1, abs=1e-9)


def test_a_hand_computed_action() -> None:
    u = [0.8, 0.3, 0.6, 0.5]
    z = torch.tensor([[math.log(p / (1 - p)) for p in u]])
    taken = torch.tensor([[True, False, False, False]])
    eligible = torch.tensor([[True, True, True, False]])
    tokens = torch.tensor([[math.log(0.9), 1.0, 1.0, 1.0]])
    bare = math.log(0.8) + math.log(0.7) + math.log(0.4)
    assert float(action_log_prob(z, taken, eligible)) == pytest.approx(bare, abs=1e-6)
    whole = float(action_log_prob(z, taken, eligible, tokens))
    assert whole == pytest.approx(bare + math.log(0.9), abs=1e-6)


def test_advantages_are_against_the_groups_own_mean_and_not_divided() -> None:
    rewards = torch.tensor([[1.0, 0.0, 1.0, 0.0], [10.0, 10.0, 10.0, 10.0]])
    assert group_advantages(rewards).tolist() == [[0.5, -0.5, 0.5, -0.5], [0.0] * 4]
    assert group_advantages(rewards, 0.0).tolist() == [[0.5, 0.0, 0.5, 0.0], [0.0] * 4]
