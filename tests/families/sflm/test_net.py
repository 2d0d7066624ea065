"""The network of sflm: its table, what each body is told, and how it begins."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
import torch
from small_timed import SMALL_TIMED
from torch import Tensor, nn

from anyorder.families.sflm.config import SphereConfig
from anyorder.families.sflm.net import BODIES, SphereNet
from anyorder.hub.weights import load_weights, save_weights

CONFIG = SphereConfig(SMALL_TIMED, most_signal=0.4, least_signal=1e-3)


def config_of(architecture: str) -> SphereConfig:
    return replace(CONFIG, architecture=architecture)  # type: ignore[arg-type]


def heard(net: SphereNet, signal: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors and the time that the body is given."""
    calls: list[tuple[Tensor, Tensor]] = []

    def listen(vectors: Tensor, mask: Tensor | None, time: Tensor) -> Tensor:
        calls.append((vectors, time))
        return vectors

    net.backbone.hidden = listen  # type: ignore[assignment]
    net.hidden(net.vectors(torch.arange(4)[None].expand(len(signal), 4)), signal=signal)
    (call,) = calls
    return call


@pytest.mark.parametrize("architecture", BODIES)
def test_at_first_it_knows_nothing(architecture: str) -> None:
    net = SphereNet(config_of(architecture), seed=5)
    ids = torch.arange(11)[None]
    states = net.hidden(net.vectors(ids), signal=torch.tensor([0.1]))
    loss = nn.functional.cross_entropy(net.head(states)[0], ids[0])
    assert float(loss.detach()) == pytest.approx(math.log(11), abs=1e-6)


@pytest.mark.parametrize("architecture", BODIES)
def test_tokens_are_unit_vectors_however_long_their_rows(architecture: str) -> None:
    net = SphereNet(config_of(architecture))
    before = net.unit_table()
    assert torch.allclose(before.norm(dim=1), torch.ones(11), atol=1e-6)
    with torch.no_grad():
        net.backbone.embed.weight.mul_(torch.linspace(0.01, 50, 11)[:, None])
    assert torch.allclose(net.unit_table(), before, atol=1e-6)
    ids = torch.tensor([[3, 3, 10]])
    assert torch.equal(net.vectors(ids)[0], net.unit_table()[ids[0]])


def test_the_table_begins_at_one_over_the_width() -> None:
    wide = replace(SMALL_TIMED, width=256, heads=4, kv_heads=4, head_width=64, vocab_size=300)
    table = SphereNet(replace(CONFIG, backbone=wide), seed=1).backbone.embed.weight.detach()
    assert float(table.std()) == pytest.approx(1 / 16, rel=0.02)
    assert not SphereNet(CONFIG).backbone.unembed.weight.any()  # type: ignore[union-attr]


def test_the_backbone_is_told_how_far_the_signal_is() -> None:
    net = SphereNet(CONFIG)
    vectors, time = heard(net, torch.tensor([1e-3, 0.2005, 0.4], dtype=torch.float64))
    assert time.tolist() == pytest.approx([0.0, 0.5, 1.0], abs=1e-6)
    assert torch.allclose(vectors.norm(dim=-1), torch.full((3, 4), 4.0), atol=1e-5)  # sqrt(16)


def test_the_dit_is_told_minus_the_logarithm() -> None:
    net = SphereNet(config_of("dit"))
    vectors, time = heard(net, torch.tensor([1e-3, 0.121], dtype=torch.float64))
    assert time.tolist() == pytest.approx([6.908, 2.112], abs=1e-3)
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(2, 4), atol=1e-6)


@pytest.mark.parametrize("architecture", BODIES)
def test_weights_and_configuration_come_back(architecture: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = config_of(architecture)
    assert SphereConfig.from_record(asdict(config)) == config
    net, other = SphereNet(config, seed=1), SphereNet(config, seed=2)
    save_weights(tmp_path / "w.safetensors", net)
    load_weights(tmp_path / "w.safetensors", other)
    assert all(map(torch.equal, net.state_dict().values(), other.state_dict().values()))


@pytest.mark.parametrize(
    ("backbone", "changed", "message"),
    [
        ({"causal": True}, {}, "needs a bidirectional network"),
        ({}, {"architecture": "unet"}, "choose 'backbone' or 'dit'"),
        ({}, {"most_signal": 1.5}, "0 < least_signal < most_signal <= 1"),
    ],
)
def test_other_configurations_are_refused(
    backbone: dict[str, object], changed: dict[str, object], message: str
) -> None:
    shape = replace(SMALL_TIMED, **backbone)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, backbone=shape, **changed)  # type: ignore[arg-type]
