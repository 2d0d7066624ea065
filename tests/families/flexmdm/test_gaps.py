"""How many slots a step inserts, and where: laws, caps and the insertion temperature."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from flex_mocks import (
    Mock,
    about,
    by_place,
    decode,
    ragged,
)

from anyorder.decode.growing import INSERTION_COUNTS, InsertionDemand, expected_missing, place


def demand_of(expected: list[list[float]], room: int, rows: int, step: int = 1) -> InsertionDemand:
    missing = torch.tensor(expected, dtype=torch.float64).expand(rows, -1)
    slot = torch.arange(missing.shape[1]).expand(rows, -1)
    return InsertionDemand(missing, torch.full((rows,), room), torch.arange(rows), slot, step)


GAPS = [[0.0, 0.3, 1.0, 2.0, 2.6]]


@pytest.mark.parametrize("law", INSERTION_COUNTS)
def test_a_gap_gets_its_share_on_average(law: str) -> None:
    rows, share = 20_000, 0.4
    drawn = INSERTION_COUNTS[law](demand_of(GAPS, 1000, rows), share).double()
    for i, expected in enumerate(GAPS[0]):
        mean, spread = share * expected, float(drawn[:, i].std())
        assert float(drawn[:, i].mean()) == pytest.approx(mean, abs=4 * spread / rows**0.5 + 1e-12)
    variance = {"poisson": 0.8, "binomial": 2 * 0.4 * 0.6, "floor_bernoulli": 0.8 * 0.2}[law]
    assert float(drawn[:, 3].var()) == pytest.approx(variance, rel=0.05)


def test_poisson_in_all_is_poisson_in_each_gap() -> None:
    drawn = INSERTION_COUNTS["poisson"](demand_of(GAPS, 1000, 20_000), 0.5)
    for i, expected in ((2, 1.0), (4, 2.6)):
        for k in range(4):
            p = math.exp(-expected / 2) * (expected / 2) ** k / math.factorial(k)
            assert int((drawn[:, i] == k).sum()) == pytest.approx(2e4 * p, abs=4 * (2e4 * p) ** 0.5)
    pair = torch.stack([drawn[:, 2], drawn[:, 4]]).double()
    assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.03  # a fixed total would tie them together


@pytest.mark.parametrize("law", INSERTION_COUNTS)
def test_a_cap_favours_no_side(law: str) -> None:
    """Five equal gaps and room for three: a cut from left to right starves the last ones."""
    rows = 6000
    drawn = INSERTION_COUNTS[law](demand_of([[2.0] * 5], 3, rows), 0.9)
    assert int(drawn.sum(dim=1).max()) == 3
    share = drawn.double().mean(dim=0)
    assert float(share.sum()) > 2.8
    assert torch.allclose(share, share.mean(), atol=0.05)


def test_a_cap_keeps_rows_that_have_room_as_they_are() -> None:
    tight, wide = demand_of([[2.0] * 5], 3, 50), demand_of([[2.0] * 5], 100, 50)
    room = torch.where(torch.arange(50) % 2 == 0, 3, 100)
    mixed = INSERTION_COUNTS["binomial"](replace(tight, room=room), 0.9)
    assert torch.equal(mixed[::2], INSERTION_COUNTS["binomial"](tight, 0.9)[::2])
    assert torch.equal(mixed[1::2], INSERTION_COUNTS["binomial"](wide, 0.9)[1::2])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_insertion_temperature_keeps_the_expected_number(temperature: float) -> None:
    gaps = torch.tensor([[-3.0, 0.2, 1.5, 40.0, 0.0], [0.3, 0.3, -60.0, 1.0, 2.0]])
    grows = torch.tensor([[True, True, True, False, True], [False] * 5])
    expected = expected_missing(gaps, grows, temperature)
    plain = gaps.double().exp()[0, [0, 1, 2, 4]]
    assert float(expected[0].sum()) == pytest.approx(float(plain.sum()), rel=1e-12)
    tempered = torch.softmax(gaps[0, [0, 1, 2, 4]].double() / temperature, dim=0)
    assert torch.allclose(expected[0, [0, 1, 2, 4]] / expected[0].sum(), tempered)
    assert expected[0, 3] == 0 and not expected[1].any()


def test_insertion_temperature_moves_nothing_between_equal_gaps() -> None:
    net = Mock(about(14).missing, by_place)
    plain, other = (decode(net, ragged(), steps=20, insertion_temperature=t) for t in (1.0, 0.5))
    assert [row.token_ids for row in other] == [row.token_ids for row in plain]
    assert [row.insert_step for row in other] == [row.insert_step for row in plain]
    assert sum(len(row.token_ids) for row in plain) > 15


def test_insertion_temperature_one_is_none_bit_for_bit() -> None:
    gaps = torch.tensor([[0.123456, -1.7, 20.0]])
    every = torch.ones(1, 3, dtype=torch.bool)
    assert torch.equal(expected_missing(gaps, every, 1.0), gaps.double().clamp(max=15).exp())
    net = Mock(about(14).missing, by_place)
    plain, one = (
        decode(net, ragged(), steps=20),
        decode(net, ragged(), steps=20, insertion_temperature=1),
    )
    assert [repr(row) for row in plain] == [repr(row) for row in one]
    uneven = Mock(lambda ids, mask, left: left * (1.0 + torch.arange(ids.shape[1])) / 4, by_place)
    assert decode(uneven, ragged(), steps=20) != decode(
        uneven, ragged(), steps=20, insertion_temperature=0.5
    )


def test_placing_is_keyed_and_proportional() -> None:
    demand = demand_of([[0.0, 1.0, 3.0, 0.0]], 9, 8000)
    placed = place(demand, torch.ones(8000, dtype=torch.int64))
    assert placed.sum(dim=0)[[0, 3]].tolist() == [0, 0]
    assert float(placed[:, 2].double().mean()) == pytest.approx(0.75, abs=0.02)
    assert torch.equal(placed, place(demand, torch.ones(8000, dtype=torch.int64)))
    assert not torch.equal(
        placed, place(replace(demand, step=2), torch.ones(8000, dtype=torch.int64))
    )
