"""The imitation loss: its corruption, its targets and its value by hand; the backbone stays."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from same_run import fingerprint

from anyorder.data import BatchConfig, Batches, StoriesConfig, StoriesSource, stories_vocab
from anyorder.families.mdm.config import ImitationConfig, PlannedConfig, TuningConfig
from anyorder.families.mdm.loss import corrupt_block, imitation, imitation_parts, log_confidence
from anyorder.families.mdm.planner import PlannedNet, planner_names
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import Noise
from anyorder.training.config import TrainConfig
from anyorder.training.loop import FitOptions, fit

VOCAB = stories_vocab()
SHAPE = TransformerConfig(
    vocab_size=VOCAB.size, width=16, layers=2, heads=2, kv_heads=1, head_width=8, mlp_width=32
)
CONFIG = PlannedConfig(SHAPE, planner_mlp_width=24, planner_features=8)


def batches(size: int = 4) -> Batches:
    deal = BatchConfig(size=size, canvas=64)
    return Batches(StoriesSource(StoriesConfig(layout=0.5)), VOCAB, deal)


@given(st.integers(0, 50), st.integers(1, 70), st.sampled_from([None, 0.0, 0.3, 1.0]))
def test_masks_fill_a_block_partly_and_all_that_is_right_of_it(
    step: int, least: int, level: float | None
) -> None:
    batch = batches()(0)
    masked, eligible = corrupt_block(batch.answer, batch.index, Noise(5, step, level), least)
    assert not (masked & ~batch.answer).any() and not (eligible & ~masked).any()
    for row in range(len(batch.ids)):
        slots = masked[row][batch.answer[row]]
        inside = eligible[row][batch.answer[row]]
        assert inside.any()
        beyond = (slots & ~inside).nonzero()[:, 0]
        end = int(beyond[0]) if len(beyond) else len(slots)
        assert slots[end:].all() and not inside[end:].any()
        if level == 1.0:  # every slot of the block: it is one run, and long enough
            places = inside.nonzero()[:, 0]
            assert len(places) == end - int(places[0]) >= min(least, len(slots))
        if level == 0.0:
            assert int(inside.sum()) == 1


def test_blocks_have_all_lengths_and_noise_names_them() -> None:
    batch = batches(32)(0)
    lengths = {
        int(count)
        for step in range(40)
        for count in corrupt_block(batch.answer, batch.index, Noise(1, step, 1.0), 16)[1].sum(dim=1)
    }
    assert min(lengths) == 16 and max(lengths) == 64 and len(lengths) > 40
    again = [corrupt_block(batch.answer, batch.index, Noise(1, 3), 16)[0] for _ in range(2)]
    assert torch.equal(*again)


def test_the_loss_by_hand() -> None:
    odds = torch.tensor([2.0, -1.0, 0.5, 3.0])
    target = torch.tensor([True, False, False, True])
    parts = imitation_parts(odds, target, balanced=True)
    each = [math.log1p(math.exp(-2)), math.log1p(math.exp(-1)), math.log1p(math.exp(0.5))]
    each.append(math.log1p(math.exp(-3)))
    assert float(parts.loss) == pytest.approx(sum(each) / 4, abs=1e-6)  # as many of each kind
    assert float(parts.nats) == pytest.approx(sum(each), abs=1e-6)
    assert int(parts.extras["agreement"]) == 3 and int(parts.extras["revealed"]) == 2
    uneven = imitation_parts(odds[1:], target[1:], balanced=True)
    assert float(uneven.loss) == pytest.approx((each[1] + each[2] + 2 * each[3]) / 3, abs=1e-6)
    plain = imitation_parts(odds[1:], target[1:], balanced=False)
    assert float(plain.loss) == pytest.approx(sum(each[1:]) / 3, abs=1e-6)
    alike = imitation_parts(odds[1:3], target[1:3], balanced=True)  # one kind only: unweighted
    assert float(alike.loss) == pytest.approx(sum(each[1:3]) / 2, abs=1e-6)


def test_targets_are_the_rules_on_the_networks_own_confidences() -> None:
    """Against a plain loop over slots and tokens; MASK does not compete."""
    net = PlannedNet(CONFIG, seed=2).eval()
    with torch.no_grad():
        net.backbone.embed.weight.mul_(8)  # sure of some slots
    batch, noise = batches()(3), Noise(9, 1)
    config = ImitationConfig(least_block=20)
    with torch.no_grad():
        parts = imitation(VOCAB, config)(net, batch, noise)
    masked, eligible = corrupt_block(batch.answer, batch.index, noise, 20)
    canvas = batch.ids.masked_fill(masked, VOCAB.mask_id)
    with torch.no_grad():
        states = net.hidden(canvas, mask=batch.real)
        logits = net.head(states).double()
        found = log_confidence(net, states, eligible, VOCAB)
        odds = net.plan(states, masked=masked, eligible=eligible, mask=batch.real)
    logits[..., VOCAB.mask_id] = -torch.inf
    revealed, agreed = 0, 0
    for row in range(len(canvas)):
        places = eligible[row].nonzero()[:, 0].tolist()
        sure = {at: float(logits[row, at].softmax(-1).max()) for at in places}
        for at in places:
            assert math.exp(float(found[row, at])) == pytest.approx(sure[at], abs=1e-9)
        order = sorted(places, key=lambda at: -sure[at])
        count = len(order)
        for number, at in enumerate(order[1:], start=2):
            if sure[at] < 1 - 1 / (number + 1):
                count = number if number == len(order) else number - 1
                break
        revealed += count
        agreed += sum((float(odds[row, at]) > 0) == (at in order[:count]) for at in places)
    assert 0 < revealed < int(eligible.sum())
    assert int(parts.extras["revealed"]) == revealed
    assert int(parts.extras["agreement"]) == agreed
    assert int(parts.tokens) == int(eligible.sum())


def frozen_net() -> PlannedNet:
    net = PlannedNet(CONFIG, seed=3)
    for parameter in net.backbone.parameters():
        parameter.requires_grad_(False)
    return net


class Killed(BaseException):
    """Stands for SIGKILL: nothing handles it."""


def fitted(out: Path, kill_at: int | None = None) -> PlannedNet:
    net, deal = frozen_net(), batches(8)
    config = TrainConfig(
        steps=12, batch=8, lr=1e-2, warmup=2, log_every=2, validate_every=6, validate_batches=1,
        save_every=4,
    )  # fmt: skip

    def dealt(index: int) -> Any:
        if index == kill_at:
            raise Killed
        return deal(index)

    options = FitOptions(levels=(0.25, 0.75), progress=False)
    objective = imitation(VOCAB, ImitationConfig())
    fit(net, objective, dealt, [deal(100)], config, out, options)
    return net


def test_training_moves_the_planner_only_and_resumes(tmp_path: Path) -> None:
    before = {name: value.clone() for name, value in frozen_net().named_parameters()}
    whole = fitted(tmp_path / "whole")
    with pytest.raises(Killed):
        fitted(tmp_path / "halves", kill_at=7)
    resumed = fitted(tmp_path / "halves")
    assert fingerprint(tmp_path / "halves") == fingerprint(tmp_path / "whole")
    added = planner_names(whole)
    for (name, value), again in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(value, again), name
        assert torch.equal(value, before[name]) == (name not in added), name


def test_it_needs_a_planner() -> None:
    with pytest.raises(ValueError, match="tiny/planner"):
        imitation(VOCAB, None)
    plain = Transformer(SHAPE)
    with pytest.raises(ValueError, match="no planner head"):
        imitation(VOCAB, ImitationConfig())(plain, batches()(0), Noise(0, 0))
    for wrong in ({"factor": -1.0}, {"least_block": 0}):
        with pytest.raises(ValueError, match="imitation"):
            ImitationConfig(**wrong)  # type: ignore[arg-type]
    for wrong in ({"group": 1}, {"step_penalty": -1.0}, {"block": 0}):
        with pytest.raises(ValueError, match="tuning"):
            TuningConfig(**wrong)  # type: ignore[arg-type]
