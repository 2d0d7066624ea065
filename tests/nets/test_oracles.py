"""The insertion oracle against Bayes' rule on the enumerated forward process."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from anyorder.nets.oracles import NOTHING, InsertionOracle, UniformOracle

Data = Mapping[tuple[int, ...], float]
ANCHOR, MASK, PAD, SIZE = 7, 8, 9, 10


def generic(tokens: int, longest: int, sparse: bool = False) -> dict[tuple[int, ...], float]:
    """Every string up to a length, with weights that have no symmetry; sparse: half of them."""
    strings = [x for n in range(longest + 1) for x in itertools.product(range(tokens), repeat=n)]
    weights = {x: 0.1 + ((i * 37 + 11) % 101) / 50 for i, x in enumerate(strings)}
    return {x: p for i, (x, p) in enumerate(weights.items()) if not sparse or i % 3 != 1}


class Bayes:
    """Sums over all (x, which tokens are deleted, masked, clean), each with its own probability."""

    def __init__(self, data: Data, deleted: float, masked: float) -> None:
        self.total: dict[tuple[int, ...], float] = defaultdict(float)
        self.token: dict[tuple[tuple[int, ...], int, int], float] = defaultdict(float)
        self.missing: dict[tuple[tuple[int, ...], int], float] = defaultdict(float)
        chance = {"d": deleted, "m": masked, "c": 1 - deleted - masked}
        for x, p in data.items():
            for fate in itertools.product("dmc", repeat=len(x)):
                weight = p
                for each in fate:
                    weight *= chance[each]
                self._add(x, fate, weight)

    def _add(self, x: tuple[int, ...], fate: tuple[str, ...], weight: float) -> None:
        kept = [j for j in range(len(x)) if fate[j] != "d"]
        canvas = tuple(MASK if fate[j] == "m" else x[j] for j in kept)
        self.total[canvas] += weight
        for i, j in enumerate(kept):
            self.token[canvas, i, x[j]] += weight
        edges = [-1, *kept, len(x)]
        for i in range(len(kept) + 1):
            self.missing[canvas, i] += weight * (edges[i + 1] - edges[i] - 1)


def rows_of(canvases: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
    width = 1 + max(map(len, canvases))
    ids = torch.full((len(canvases), width), PAD)
    for row, canvas in enumerate(canvases):
        ids[row, : 1 + len(canvas)] = torch.tensor([ANCHOR, *canvas])
    lengths = torch.tensor([1 + len(canvas) for canvas in canvases])
    return ids, torch.arange(width) < lengths[:, None]


def check_against(bayes: Bayes, oracle: InsertionOracle, time: float) -> int:
    canvases = [z for z, weight in bayes.total.items() if weight > 0]
    ids, real = rows_of(canvases)
    look = oracle.look(ids, mask=real, time=torch.full((len(ids),), time, dtype=torch.float64))
    for row, canvas in enumerate(canvases):
        weight = bayes.total[canvas]
        for i in range(len(canvas)):
            expected = [bayes.token[canvas, i, v] / weight for v in range(SIZE)]
            assert look.states[row, i + 1].exp().tolist() == pytest.approx(expected, abs=1e-12)
        for i in range(len(canvas) + 1):
            expected_gap = bayes.missing[canvas, i] / weight
            assert float(look.gaps[row, i].exp()) == pytest.approx(expected_gap, abs=1e-12)
        assert (look.gaps[row, len(canvas) + 1 :] == NOTHING).all()
    return len(canvases)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("tokens", "longest"), [(2, 4), (3, 3), (3, 0)])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.95])
def test_posteriors_are_those_of_the_forward_process(
    tokens: int, longest: int, sparse: bool, alpha: float
) -> None:
    """Whatever share of the inserted tokens is masked: beta drops out."""
    data = generic(tokens, longest, sparse)
    oracle = InsertionOracle(data, MASK, SIZE)
    for share in (0.2, 0.9):
        bayes = Bayes(data, deleted=1 - alpha, masked=alpha * share)
        seen = check_against(bayes, oracle, alpha)
    if alpha > 0 and not sparse:  # every string of tokens and masks can occur
        assert seen == sum((tokens + 1) ** n for n in range(longest + 1))


def test_raw_time_is_progress_in_another_coordinate() -> None:
    data = generic(3, 3)
    raw = InsertionOracle(data, MASK, SIZE, coordinate="raw", insertion_exponent=2.5)
    time = 0.4
    bayes = Bayes(data, deleted=(1 - time) ** 2.5, masked=0.1)
    check_against(bayes, raw, time)


def test_rows_may_have_times_of_their_own() -> None:
    oracle = InsertionOracle(generic(3, 3), MASK, SIZE)
    ids, real = rows_of([(MASK,), (MASK,), (0, MASK), ()])
    time = torch.tensor([0.1, 0.9, 0.5, 0.5])
    together = oracle.look(ids, mask=real, time=time)
    for row in range(4):
        length = int(real[row].sum())
        alone = oracle.look(ids[row : row + 1, :length], time=time[row : row + 1])
        assert torch.equal(together.states[row, :length], alone.states[0])
        assert torch.equal(together.gaps[row, :length], alone.gaps[0])
    assert not torch.equal(together.states[0], together.states[1])


def test_a_longer_prompt_is_not_part_of_the_answer() -> None:
    data = generic(3, 3)
    one, three = (InsertionOracle(data, MASK, SIZE, prompt_length=n) for n in (1, 3))
    time = torch.tensor([0.4])
    short = one.look(torch.tensor([[ANCHOR, 1, MASK]]), time=time)
    # Prompts may hold anything, masks too.
    long = three.look(torch.tensor([[0, MASK, ANCHOR, 1, MASK]]), time=time)
    assert torch.equal(long.states[:, 3:], short.states[:, 1:])
    assert torch.equal(long.gaps[:, 2:], short.gaps)
    assert (long.gaps[:, :2] == NOTHING).all()


@pytest.mark.parametrize("left", [1e-9, 1e-300, 0.0])
def test_at_the_end_the_fewest_deletions_win(left: float) -> None:
    """0^0 = 1; where something must be missing, the limit of the posterior."""
    data = {(): 0.5, (0, 1): 0.25, (0, 1, 0): 0.15, (2,): 0.1}
    oracle = InsertionOracle(data, MASK, SIZE, coordinate="raw", insertion_exponent=1.0)
    ids, real = rows_of([(), (MASK,), (1,), (MASK, MASK)])
    # 1 - t cannot hold 1e-300, so the smallest ones go in through the exponent.
    if left == 1e-300:
        oracle.insertion_exponent, time = 100.0, 1 - 1e-3
    else:
        time = 1 - left
    look = oracle.look(ids, mask=real, time=torch.full((4,), time, dtype=torch.float64))
    gaps = look.gaps.exp()
    assert gaps[0].tolist() == pytest.approx([0, 0, 0], abs=1e-8)
    assert look.states[1, 1].exp().tolist()[:3] == pytest.approx([0, 0, 1], abs=1e-8)
    # "1" alone is what remains of "01", with the 0 before it, as surely as can be.
    assert gaps[2].tolist() == pytest.approx([1, 0, 0], abs=1e-8)
    assert look.states[3, 1:].exp().argmax(dim=-1).tolist() == [0, 1]
    assert not look.gaps.isnan().any() and not look.states.isnan().any()


def test_a_canvas_that_no_data_explain_is_refused() -> None:
    oracle = InsertionOracle({(0, 1): 0.5, (1,): 0.5}, MASK, SIZE)
    time = torch.tensor([0.5])
    for canvas in ((1, 0), (MASK, MASK, MASK), (2,)):
        ids, _ = rows_of([canvas])
        with pytest.raises(ValueError, match="no sequence of the data explains"):
            oracle.look(ids, time=time)
    with pytest.raises(ValueError, match="shorter than its prompt"):
        InsertionOracle({(0,): 1.0}, MASK, SIZE, prompt_length=2).look(
            torch.tensor([[ANCHOR]]), time=time
        )
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        oracle.look(torch.tensor([[ANCHOR]]), time=torch.tensor([1.5]))
    with pytest.raises(ValueError, match="coordinate"):
        InsertionOracle({(0,): 1.0}, MASK, SIZE, coordinate="alpha")
    with pytest.raises(ValueError, match="prompt_length"):
        InsertionOracle({(0,): 1.0}, MASK, SIZE, prompt_length=0)
    with pytest.raises(ValueError, match="probabilities"):
        InsertionOracle({(0,): 0.0}, MASK, SIZE)


def test_nothing_but_the_empty_answer() -> None:
    oracle = InsertionOracle({(): 1.0}, MASK, SIZE)
    look = oracle.look(torch.tensor([[ANCHOR]]), time=torch.tensor([0.5]))
    assert look.gaps.tolist() == [[NOTHING]]


# The uniform-state oracle against Bayes' rule, written out.


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
