"""Decoding by a planner: forced chances, blocks, fallbacks, lots, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from anyorder.decode.canvas import Canvas, Decoded
from anyorder.decode.policy import SCORES, Policy
from anyorder.decode.quota import (
    Bernoulli,
    Expected,
    Factor,
    Threshold,
    WindowProgress,
    parse_quota,
)
from anyorder.families.flexmdm import decode as flexmdm
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions, PlannedConfig
from anyorder.families.mdm.planner import PlannedNet
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.noise import Stream, key_of, uniform
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
Odds = Callable[[Tensor, Tensor], Tensor]


class Forced:
    """Tokens by position, log-odds as told; MASK is the likeliest of all, and must not come out."""

    def __init__(self, odds: Odds) -> None:
        self.odds = odds
        self.seen: list[Tensor] = []

    def hidden(self, ids: Tensor, *, mask: Tensor | None = None, **_: object) -> Tensor:
        place = torch.arange(ids.shape[1]).expand(ids.shape)
        logits = torch.nn.functional.one_hot(place % 3, VOCAB.size) * 3.0
        logits[..., VOCAB.mask_id] = 9.0
        return logits

    def head(self, hidden: Tensor) -> Tensor:
        return hidden

    def plan(
        self, states: Tensor, *, masked: Tensor, eligible: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        self.seen.append(eligible)
        place = torch.arange(states.shape[1]).expand(masked.shape)
        return self.odds(place, eligible)


def fixed(value: float) -> Odds:
    return lambda place, eligible: torch.full(place.shape, value)


def run(odds: Odds, *, slots: int = 8, rows: int = 1, **options: object) -> list[Decoded]:
    canvas = Canvas.of([[0, 1], slots], VOCAB)
    keys = [key_of("planner", row) for row in range(rows)]
    chosen = MdmOptions(policy="planner", **options)  # type: ignore[arg-type]
    return mdm.decode(Forced(odds), VOCAB, [canvas] * rows, keys, chosen)


@pytest.mark.parametrize("quota", ["bernoulli", "expected"])
def test_a_chance_of_one_reveals_a_block_in_one_step(quota: str) -> None:
    (row,) = run(fixed(1e9), quota=quota)
    assert row.reveal_step == [1] * 8 and row.steps == row.forwards == 1
    (row,) = run(fixed(1e9), quota=quota, block=3)
    assert row.reveal_step == [1, 1, 1, 2, 2, 2, 3, 3] and row.forwards == 3


@pytest.mark.parametrize("quota", ["bernoulli", "expected"])
def test_a_chance_of_nothing_falls_back_to_one_a_step_in_the_order_of_chances(quota: str) -> None:
    order = torch.tensor([0, 0, 5, 2, 7, 1, 3, 6, 0, 4])  # of positions; the prompt has two
    (row,) = run(lambda place, eligible: 50.0 * order[place] - 1000, quota=quota)
    assert row.steps == row.forwards == 8
    assert row.reveal_step == [8 - int(rank) for rank in order[2:]]
    (row,) = run(lambda place, eligible: 50.0 * order[place] - 1000, quota=quota, block=4)
    assert row.reveal_step == [2, 3, 1, 4, 7, 5, 8, 6]  # inside each block


@pytest.mark.parametrize("quota", ["bernoulli", "expected"])
def test_without_any_chance_the_leftmost_is_revealed(quota: str) -> None:
    (row,) = run(fixed(-torch.inf), quota=quota)
    assert row.reveal_step == list(range(1, 9))


@pytest.mark.parametrize("quota", ["bernoulli", "even"])
def test_a_planner_that_says_nothing_is_refused(quota: str) -> None:
    with pytest.raises(ValueError, match="log-odds are not numbers"):
        run(fixed(torch.nan), quota=quota)
    closed = lambda place, eligible: torch.where(eligible, 9.0, torch.nan)  # noqa: E731
    (row,) = run(closed, quota=quota)  # what is closed has no odds
    assert max(row.reveal_step) == row.steps


def test_nothing_beyond_the_block_is_eligible_or_revealed() -> None:
    net = Forced(fixed(0.0))
    canvas = Canvas.of([[0], 4, [1, 2], 5], VOCAB)
    options = MdmOptions(policy="planner", block=4)
    (row,) = mdm.decode(net, VOCAB, [canvas], [key_of("b")], options)
    ends = [max(part) for part in (row.reveal_step[:4], row.reveal_step[6:10])]
    starts = [min(part) for part in (row.reveal_step[6:10], row.reveal_step[10:])]
    assert ends[0] < starts[0] and ends[1] < starts[1]
    assert all(int(eligible.sum()) <= 4 for eligible in net.seen)
    blocks = [range(1, 5), range(7, 11), range(11, 12)]
    for eligible in net.seen:
        places = eligible[0].nonzero()[:, 0].tolist()
        assert any(set(places) <= set(block) for block in blocks)
    assert 3 <= row.forwards <= 9


def test_no_mask_is_ever_written() -> None:
    for temperature in (0.0, 1.0):
        for row in run(fixed(0.0), rows=20, temperature=temperature):
            assert VOCAB.mask_id not in row.token_ids
    (row,) = run(fixed(0.0))
    assert row.token_ids == [place % 3 for place in range(2, 10)]  # greedy, MASK barred


def test_lots_are_keyed_and_fall_by_their_chances() -> None:
    rows = run(lambda place, eligible: place - 5.0, slots=8, rows=2000)
    first = torch.tensor([[step == 1 for step in row.reveal_step] for row in rows])
    chance = torch.sigmoid(torch.arange(2, 10) - 5.0)
    lots = [
        uniform(0, int(Stream.PLAN), torch.tensor(key_of("planner", row)), 1, torch.arange(2, 10))
        for row in range(2000)
    ]
    expected = torch.stack(lots) < chance
    none = ~expected.any(dim=1)
    assert torch.equal(first[~none], expected[~none])
    assert first[none][:, -1].all() and (first[none].sum(dim=1) == 1).all()
    assert torch.allclose(first.float().mean(dim=0), chance, atol=0.05)


def test_the_temperature_divides_the_log_odds() -> None:
    rows = run(fixed(3.0), rows=1000, planner_temperature=100.0)
    share = sum(row.reveal_step.count(1) for row in rows) / 8000
    assert abs(share - 0.5) < 0.03
    cold = run(fixed(3.0), rows=50, planner_temperature=0.01)
    assert all(row.steps == 1 for row in cold)


def test_expected_takes_the_largest_chances() -> None:
    progress = WindowProgress(*(torch.tensor([x, x]) for x in (0, 9, 4, 4)))
    chances = torch.tensor([[0.9, 0.8, 0.7, 0.55], [0.2, 0.3, 0.1, 0.05]], dtype=torch.float64)
    assert Expected().counts(progress, chances.logit()).tolist() == [2, 1]
    (row,) = run(lambda place, eligible: torch.where(place < 6, 2.0, -1.0), quota="expected")
    assert [step == 1 for step in row.reveal_step] == [True] * 4 + [False] * 4  # floor(4.6)


def test_the_planner_ranks_under_other_quotas_too() -> None:
    (row,) = run(lambda place, eligible: place * 1.0, quota="even", steps=4)
    assert row.reveal_step == [4, 4, 3, 3, 2, 2, 1, 1] and row.ties == 0


def small_planned() -> PlannedNet:
    shape = TransformerConfig(
        vocab_size=VOCAB.size, width=32, layers=2, heads=4, kv_heads=2, head_width=8, mlp_width=64
    )
    net = PlannedNet(PlannedConfig(shape, planner_mlp_width=48, planner_features=16)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    return net


@pytest.mark.parametrize("quota", ["bernoulli", "expected"])
def test_batched_equals_alone(quota: str) -> None:
    frozen = [[0, 1], [2], [1, 1, 0, 2, 2], [0, 2, 1]]
    canvases = [Canvas.of([ids, n], VOCAB) for ids, n in zip(frozen, (9, 12, 7, 3), strict=True)]
    canvases.append(Canvas.of([[0], 4, [1, 2], 5, [0, 0, 0]], VOCAB))
    keys = [key_of(7, row) for row in range(len(canvases))]
    options = MdmOptions(policy="planner", quota=quota, block=5, temperature=0.8)
    net = small_planned()
    together = mdm.decode(net, VOCAB, canvases, keys, options)
    for canvas, key, row in zip(canvases, keys, together, strict=True):
        (alone,) = mdm.decode(net, VOCAB, [canvas], [key], options)
        assert (alone.token_ids, alone.reveal_step) == (row.token_ids, row.reveal_step)
        assert (alone.steps, alone.forwards) == (row.steps, row.forwards)
        assert alone.log_prob == pytest.approx(row.log_prob, abs=1e-4, nan_ok=True)


def test_factor_is_a_quota_of_mdm() -> None:
    progress = WindowProgress(*(torch.tensor([x]) for x in (0, 9, 5, 5)))
    scores = torch.tensor([[0.99, 0.9, 0.8, 0.5, 0.3]], dtype=torch.float64).log()
    assert parse_quota("factor").counts(progress, scores).tolist() == [3]
    assert parse_quota("factor:4").counts(progress, scores).tolist() == [5]
    assert parse_quota("factor:0") == Factor(0.0)
    canvas = Canvas.of([[0], 6], VOCAB)
    (row,) = mdm.decode(small_planned(), VOCAB, [canvas], [1], MdmOptions(quota="factor:100"))
    assert row.steps == 1


def test_models_without_a_head_refuse_the_policy() -> None:
    bare = small_planned().backbone
    with pytest.raises(ValueError, match=r"no planner head.*tiny/planner --start"):
        mdm.decode(bare, VOCAB, [Canvas.of([[0], 4], VOCAB)], [1], MdmOptions(policy="planner"))
    with pytest.raises(ValueError, match="only mdm can have"):
        flexmdm.resolve(FlexOptions(policy="planner"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"quota": "bernoulli", "policy": "confidence"}, "use the policy 'planner'"),
        ({"quota": "threshold"}, "use the policy 'confidence'"),
        ({"quota": "bernoulli:3"}, "unknown quota"),
        ({"quota": "factor:-1"}, "factor"),
        ({"steps": 4}, "its own steps"),
        ({"eos": "last"}, "undo the planner's choice"),
        ({"mode": "compat"}, "no planner"),
        ({"posterior": "filtered"}, "no effect"),
        ({"planner_temperature": 0.0}, "positive"),
        ({"planner_temperature": 2.0, "policy": "random"}, "no effect"),
        ({"planner_temperature": 2.0, "quota": "even"}, "only ranks"),
        ({"planner_temperature": 2.0, "remask": "cap:0.1", "steps": 8}, "only ranks"),
    ],
)
def test_what_has_no_effect_is_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mdm.resolve(MdmOptions(**{"policy": "planner"} | wrong))  # type: ignore[arg-type]


def test_the_defaults_of_the_planner() -> None:
    full = mdm.resolve(MdmOptions(policy="planner", eos="fill"))
    assert (full.quota, full.ties, full.posterior) == ("bernoulli", "leftmost", None)
    assert Policy(SCORES["planner"], Bernoulli()).score.scale == "log_odds"
    with pytest.raises(ValueError, match="compare probabilities"):
        Policy(SCORES["planner"], Threshold())
