"""Masked models that predict one place to the left, and what they may begin with."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch

from anyorder.families.flexmdm.config import FlexConfig
from anyorder.families.flexmdm.net import FlexNet
from anyorder.families.mdm.config import PlannedConfig
from anyorder.families.mdm.family import masked_network
from anyorder.families.mdm.planner import PlannedNet
from anyorder.nets.denoiser import ShiftedNet, start_backbone
from anyorder.nets.shapes import ShiftedConfig, TransformerConfig
from anyorder.nets.transformer import Transformer

SHAPE = TransformerConfig(13, 16, 2, 2, 1, 8, 24)
IDS = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]])
REAL = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


def test_states_stand_one_place_to_the_right_of_the_backbones() -> None:
    net = ShiftedNet(ShiftedConfig(SHAPE), seed=3)
    states, hidden = net.backbone.hidden(IDS, mask=REAL), net.hidden(IDS, mask=REAL)
    assert torch.equal(hidden[:, 1:], states[:, :-1]) and torch.equal(hidden[:, 0], states[:, 0])
    assert torch.equal(net.head(hidden), net.backbone.head(hidden))
    assert torch.equal(net.backbone.embed.weight, Transformer(SHAPE, seed=3).embed.weight)


def test_the_configuration_survives_json_and_refuses_nonsense() -> None:
    config = ShiftedConfig(SHAPE)
    assert masked_network().read(asdict(config)) == config
    assert masked_network().read(asdict(SHAPE)) == SHAPE
    for shape in (replace(SHAPE, causal=True), replace(SHAPE, time_modulated=True)):
        with pytest.raises(ValueError, match="bidirectional backbone without time"):
            ShiftedConfig(shape)
    with pytest.raises(ValueError, match="shift must be true"):
        ShiftedConfig(SHAPE, shift=False)


def test_it_begins_with_its_kind_or_with_a_causal_model() -> None:
    start = masked_network().start
    base = ShiftedNet(ShiftedConfig(SHAPE), seed=1)
    net = ShiftedNet(ShiftedConfig(SHAPE), seed=2)
    start(net, base)
    assert torch.equal(net.hidden(IDS), base.hidden(IDS))
    causal = Transformer(replace(SHAPE, causal=True), seed=5)
    start(net, causal)
    assert torch.equal(net.backbone.embed.weight, causal.embed.weight)
    with pytest.raises(ValueError, match=r"predicts token i at i cannot.*leave net\.shift out"):
        start(net, Transformer(SHAPE, seed=5))


def test_who_may_begin_with_it() -> None:
    base = ShiftedNet(ShiftedConfig(SHAPE), seed=1)
    with pytest.raises(ValueError, match=r"predicts token i at i - 1: give the recipe net\.shift"):
        masked_network().start(Transformer(SHAPE), base)
    with pytest.raises(ValueError, match="a planner needs one that predicts it at i"):
        PlannedNet(PlannedConfig(SHAPE, 24)).start_from(base)
    timed = replace(SHAPE, time_modulated=True)
    with pytest.raises(ValueError, match=r"net\.convention=release"):
        FlexNet(FlexConfig(timed)).start_from(base)
    flex = FlexNet(FlexConfig(timed, convention="release"))
    flex.start_from(base)
    look = flex.look(IDS, mask=REAL, time=torch.tensor([0.3, 0.9]))
    assert torch.equal(look.states, base.hidden(IDS, mask=REAL))
    causal = Transformer(replace(SHAPE, causal=True))
    start_backbone(causal, base)
    assert torch.equal(causal.embed.weight, base.backbone.embed.weight)
