"""The uniform-state oracle against Bayes' rule, written out."""

from __future__ import annotations

import itertools

import pytest
import torch

from anyorder.nets.oracles import UniformOracle

DATA = {(0, 1, 2): 0.5, (1, 1, 0): 0.2, (2, 0, 2): 0.2, (0, 0, 0): 0.1}
STATES, ROWS = 4, 5


def by_hand(
    canvas: tuple[int, ...], alpha: float, place: int, joint: bool, frozen: set[int]
) -> list[float]:
    mass = [0.0] * ROWS
    for x, p in DATA.items():
        for other, (shown, clean) in enumerate(zip(canvas, x, strict=True)):
            if other in frozen and (joint or other != place):
                p *= shown == clean
            elif joint or other != place:
                p *= alpha * (shown == clean) + (1 - alpha) / STATES
        mass[x[place]] += p
    return [each / sum(mass) for each in mass]


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("frozen", [set(), {1}])
def test_predictions_are_bayes_rule(joint: bool, frozen: set[int]) -> None:
    oracle = UniformOracle(DATA, STATES, ROWS, frozen=frozen, joint=joint)
    canvases = [z for z in itertools.product(range(STATES), repeat=3) if z[1] in (0, 1)]
    alphas = [0.05 + 0.9 * number / len(canvases) for number in range(len(canvases))]
    time = torch.tensor(alphas, dtype=torch.float64)
    found = oracle.hidden(torch.tensor(canvases), time=time).exp()
    for row, (canvas, alpha) in enumerate(zip(canvases, alphas, strict=True)):
        for place in range(3):
            assert found[row, place].tolist() == pytest.approx(
                by_hand(canvas, alpha, place, joint, frozen)
            )


def test_a_leave_one_out_prediction_does_not_read_its_own_place() -> None:
    oracle = UniformOracle(DATA, STATES, ROWS)
    canvases = torch.tensor([[0, 1, 2], [3, 1, 2]])
    first, second = oracle.hidden(canvases, time=torch.tensor([0.7, 0.7]))
    assert torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 3 tokens, not 2"):
        UniformOracle(DATA, STATES, ROWS).hidden(torch.zeros(1, 2), time=torch.ones(1))
    with pytest.raises(ValueError, match="one length"):
        UniformOracle({(0,): 1.0, (0, 1): 1.0}, 2, 2)
