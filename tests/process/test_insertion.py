"""The insertion process: closed forms, hazards, gap targets, weights and normalisations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor

from anyorder.process import insertion
from anyorder.process.insertion import Clocks, InsertionItems
from anyorder.process.noise import Noise
from anyorder.process.schedule import Power, carried

PUBLISHED = Clocks(Power(1.7), Power(2.89))
TIMES = st.floats(0.0, 0.999)
EXPONENTS = st.floats(0.3, 5.0)


def double(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def items_of(rows: int, answer: int) -> InsertionItems:
    """An anchor and so many free items in every row."""
    free = torch.ones(rows, answer + 1, dtype=torch.bool)
    gaps = free.clone()
    free[:, 0] = False
    return InsertionItems(free, gaps, torch.full((rows,), answer + 1))


# --- the law of the interpolant --------------------------------------------------------------


@pytest.mark.parametrize("coordinate", ["raw", "progress"])
@pytest.mark.parametrize("b", [1.7, 1.0, 0.4])
@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
def test_shares_are_the_closed_forms(b: float, t: float, coordinate: str) -> None:
    """P(deleted) = (1-t)^a, P(masked) = ((1-t)^a - (1-t)^(ab)) / (b-1), to 3 standard errors."""
    a, rows, count = 1.7, 4000, 6
    clocks, here = Clocks(Power(a), Power(a * b)), t
    if coordinate == "progress":
        clocks, here = clocks.in_progress(), float(Power(a).value(double(t)))
    noise = Noise(11, 0, level=1 - here)
    seen = insertion.corrupt(items_of(rows, count), torch.arange(rows), noise, clocks)
    left = (1 - t) ** a
    masked = -left * math.log(left) if b == 1 else (left - left**b) / (b - 1)
    total = rows * count
    found = (1 - (int(seen.real.sum()) - rows) / total, int(seen.masked.sum()) / total)
    for share, expected in zip(found, (left, masked), strict=True):
        assert abs(share - expected) < 3 * math.sqrt(expected * (1 - expected) / total)
    closed = [float(share) for share in clocks.shares(double(here))]
    assert closed == pytest.approx([left, masked, 1 - left - masked], abs=1e-12)


def test_items_are_independent_and_frozen_ones_untouched() -> None:
    rows, t = 20_000, 0.45
    seen = insertion.corrupt(
        items_of(rows, 2), torch.arange(rows), Noise(3, 7, level=1 - t), PUBLISHED
    )
    state = torch.zeros(rows, 3, dtype=torch.int64)  # 0 deleted, 1 masked, 2 clean
    state.scatter_reduce_(1, seen.origin, (2 - seen.masked.long()) * seen.real, "amax")
    assert (state[:, 0] == 2).all()
    observed = torch.bincount(state[:, 1] * 3 + state[:, 2], minlength=9)
    each = torch.stack(PUBLISHED.shares(double(t)))
    expected = torch.outer(each, each).flatten() * rows
    assert stats.chisquare(observed.numpy(), expected.numpy()).pvalue > 1e-3


def test_an_items_times_belong_to_its_example() -> None:
    items, noise, index = items_of(3, 9), Noise(2, 9, level=0.4), torch.tensor([10, 20, 30])
    forward = insertion.corrupt(items, index, noise, PUBLISHED)
    backward = insertion.corrupt(items, index.flip(0), noise, PUBLISHED)
    for name in ("origin", "real", "masked", "missing"):
        assert torch.equal(getattr(forward, name), getattr(backward, name).flip(0))


@given(st.floats(0.3, 3.0), st.floats(0.3, 3.0), st.floats(0.01, 0.95))
def test_hazards_integrate_to_the_schedules(a: float, c: float, t: float) -> None:
    """The integral of the hazard is -log of what is left, in both coordinates."""
    raw = Clocks(Power(a), Power(c))
    tau = float(raw.insertion.value(double(t)))
    for clocks, end in ((raw, t), (raw.in_progress(), tau)):
        for schedule in (clocks.insertion, clocks.unmasking):
            total = integrate.quad(lambda u, of=schedule: float(of.hazard(double(u))), 0, end)[0]
            left = float(1 - schedule.value(double(end)))
            assert math.exp(-total) == pytest.approx(left, rel=1e-6, abs=1e-12)
    carried_along = carried(raw.unmasking, raw.insertion).value(double(tau))
    assert float(carried_along) == pytest.approx(float(raw.unmasking.value(double(t))), abs=1e-9)


@given(EXPONENTS, EXPONENTS, st.lists(TIMES, min_size=1, max_size=8))
def test_thinning_over_any_grid_gives_the_same_law(a: float, c: float, grid: list[float]) -> None:
    """Walk over the grid: who is inserted in a cell, and who of the masked is revealed in it."""
    clocks = Clocks(Power(a), Power(c))
    deleted, masked, previous = double(1.0), double(0.0), double(0.0)
    waiting = double(1.0)
    for time in sorted(grid):
        here = double(time)
        # The power family begins anew at every time: what happens in (t, s] to an item deleted at
        # t is what happens by 1 - (1-s)/(1-t) to one deleted at 0.
        stay, shown_late, _ = clocks.shares(1 - (1 - here) / (1 - previous))
        masked = masked * (1 - clocks.unmasking.thinning(previous, here)) + deleted * shown_late
        deleted = deleted * (1 - clocks.insertion.thinning(previous, here))
        waiting = waiting * stay
        previous = here
    expected = clocks.shares(previous)
    assert float(deleted) == pytest.approx(float(expected[0]), rel=1e-9, abs=1e-12)
    assert float(waiting) == pytest.approx(float(expected[0]), rel=1e-9, abs=1e-12)
    assert float(masked) == pytest.approx(float(expected[1]), rel=1e-6, abs=1e-9)


ROW = st.lists(st.sampled_from("dmc"), min_size=0, max_size=9)


@given(st.lists(ROW, min_size=1, max_size=4), st.integers(1, 3))
def test_gap_targets_by_hand(fates: list[list[str]], prompt: int) -> None:
    longest = prompt + max(map(len, fates))
    lengths = torch.tensor([prompt + len(fate) for fate in fates])
    place = torch.arange(longest).expand(len(fates), longest)
    inside = place < lengths[:, None]
    items = InsertionItems(inside & (place >= prompt), inside & (place >= prompt - 1), lengths)
    rows = [["c"] * prompt + fate + ["c"] * (longest - prompt - len(fate)) for fate in fates]
    deleted = torch.tensor([[each == "d" for each in row] for row in rows])
    masked = torch.tensor([[each in "dm" for each in row] for row in rows])
    seen = insertion.pack(items, deleted=deleted, masked=masked, time=torch.zeros(len(fates)))
    for row, length in enumerate(lengths.tolist()):
        kept = [j for j in range(length) if rows[row][j] != "d"]
        count = len(kept)
        assert seen.real[row].tolist() == [i < count for i in range(seen.real.shape[1])]
        assert seen.origin[row, :count].tolist() == kept
        assert seen.masked[row, :count].tolist() == [rows[row][j] == "m" for j in kept]
        assert seen.gaps[row, :count].tolist() == [j >= prompt - 1 for j in kept]
        ends = [*kept[1:], length]
        missing = [end - j - 1 if j >= prompt - 1 else 0 for j, end in zip(kept, ends, strict=True)]
        assert seen.missing[row, :count].tolist() == missing
        for table in (seen.masked, seen.gaps, seen.missing):
            assert not table[row, count:].any()


# --- weights and normalisation ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "insert", "ideal_insert", "unmask", "ideal_unmask"),
    [
        (0.5, "3.39", "3.4", "5.74", "5.78"),
        (0.2, "8.37", "8.5", "13.1", "14.5"),
        (0.1, "16.2", "17", "16.3", "28.9"),
        (0.05, "29.2", "34", "8.56", "57.8"),
        (0.01, "48.4", "170", "0.48", "289"),
    ],
)
def test_published_weights_to_their_printed_digits(
    left: float, insert: str, ideal_insert: str, unmask: str, ideal_unmask: str
) -> None:
    time = double(1 - left)
    for schedule, compat, ideal in (
        (PUBLISHED.insertion, insert, ideal_insert),
        (PUBLISHED.unmasking, unmask, ideal_unmask),
    ):
        digits = len(compat.replace(".", "").lstrip("0"))
        found = float(insertion.weights("compat", schedule, time))
        assert float(f"{found:.{digits}g}") == float(compat)
        exact = float(insertion.weights("hazard", schedule, time, math.inf))
        assert float(f"{exact:.3g}") == float(ideal)
        assert float(insertion.weights("hazard", schedule, time, 20.0)) == min(exact, 20.0)


def test_published_weights_have_their_maxima() -> None:
    time = torch.linspace(0, 1, 200_001, dtype=torch.float64)[:-1]
    for schedule, highest in ((PUBLISHED.insertion, 50.2), (PUBLISHED.unmasking, 16.6)):
        assert float(insertion.weights("compat", schedule, time).max()) == pytest.approx(
            highest, abs=0.05
        )
    with pytest.raises(ValueError, match="unknown weighting"):
        insertion.weights("exact", PUBLISHED.insertion, time)  # type: ignore[arg-type]


def test_normalisations() -> None:
    place = torch.arange(6).expand(3, 6)
    lengths = torch.tensor([6, 3, 1])
    items = InsertionItems(
        (place >= 1) & (place < lengths[:, None]), place < lengths[:, None], lengths
    )
    assert insertion.divisor("items", items, 9).tolist() == pytest.approx([7 / 3] * 3)
    assert insertion.divisor("rows", items, 9).tolist() == [1, 1, 1]
    assert insertion.divisor("max_length", items, 9).tolist() == [9, 9, 9]
    with pytest.raises(ValueError, match="unknown normalisation"):
        insertion.divisor("tokens", items, 9)
