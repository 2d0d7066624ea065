"""The network of sflm: its table, what each body is told, and how it begins."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
import torch
from small_timed import SMALL_TIMED
from small_timed import SMALL_TIMED as SMALL
from torch import Tensor, nn

from anyorder.families.sflm.config import SphereConfig
from anyorder.families.sflm.net import BODIES, CONDITION, DiT, SphereNet
from anyorder.hub.weights import load_weights, save_weights
from anyorder.nets.shapes import TransformerConfig

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


# The published DiT: its parameters, what is zero at first, time and padding.


PUBLISHED = replace(
    SMALL,
    vocab_size=49153,
    width=768,
    layers=12,
    heads=12,
    kv_heads=12,
    head_width=64,
    mlp_width=3072,
)


def vectors(rows: int = 2, length: int = 5) -> Tensor:
    return torch.randn(rows, length, SMALL.width, generator=torch.Generator().manual_seed(1))


def stirred(seed: int = 0) -> DiT:
    """A network of which nothing is zero."""
    net = DiT(SMALL, seed=seed).eval()
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in net.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.2 * noise)
    return net


def sizes(config: TransformerConfig) -> dict[str, int]:
    with torch.device("meta"):
        net = DiT(config)
    found = {name: sum(p.numel() for p in part.parameters()) for name, part in net.named_children()}
    return found | {"all": sum(p.numel() for p in net.parameters())}


def test_the_published_parameter_counts() -> None:
    """167.93M in all: 92.1M in blocks, 37.7M in the table, 38.0M in the head and its modulation."""
    found = sizes(PUBLISHED)
    assert found["all"] / 1e6 == pytest.approx(167.93, abs=0.005)
    assert found["blocks"] / 1e6 == pytest.approx(92.1, abs=0.05)
    assert found["embed"] / 1e6 == pytest.approx(37.7, abs=0.06)
    head = found["unembed"] + found["modulation"] + found["norm"]
    assert head / 1e6 == pytest.approx(38.0, abs=0.05)


def test_the_size_at_the_papers_shape() -> None:
    """512 x 14 with Qwen's vocabulary: 205M, and 127.6M if table and head were one."""
    shape = replace(PUBLISHED, vocab_size=151645, width=512, layers=14, heads=8, kv_heads=8)
    found = sizes(replace(shape, mlp_width=2048))
    assert found["all"] / 1e6 == pytest.approx(205, abs=0.5)
    assert (found["all"] - found["embed"]) / 1e6 == pytest.approx(127.6, abs=0.1)


def test_what_is_zero_at_first() -> None:
    net = DiT(SMALL, seed=3)
    for module in (net.modulation, net.unembed, *(block.modulation for block in net.blocks)):
        assert not module.weight.any() and not module.bias.any()
    x, time = vectors(), torch.tensor([2.2, 6.9])
    states = net.hidden(vectors=x, time=time)
    assert torch.equal(states, torch.nn.functional.layer_norm(x, (SMALL.width,)))  # the identity
    assert not net.head(states).any()
    for block in net.blocks:
        assert block.modulation.weight.shape == (6 * SMALL.width, CONDITION)
        assert block.qkv.weight.any() and block.qkv.bias is None and block.out.bias is None
        assert block.mlp_in.bias is not None and block.attention_norm.bias is None


def test_weights_are_a_function_of_the_seed() -> None:
    first, same, other = DiT(SMALL, seed=1), DiT(SMALL, seed=1), DiT(SMALL, seed=2)
    assert all(map(torch.equal, first.state_dict().values(), same.state_dict().values()))
    assert not torch.equal(first.blocks[0].qkv.weight, other.blocks[0].qkv.weight)


def test_padding_changes_nothing_and_time_changes_something() -> None:
    net, x, time = stirred(), vectors(), torch.tensor([2.2, 6.9])
    whole = net.hidden(vectors=x, time=time)
    longer = torch.cat([x, vectors(2, 3) * 5], dim=1)
    mask = torch.arange(8).expand(2, 8) < 5
    padded = net.hidden(vectors=longer, mask=mask, time=time)[:, :5]
    assert torch.allclose(whole, padded, atol=1e-5)
    assert not torch.allclose(whole, net.hidden(vectors=x, time=time.flip(0)), atol=1e-3)


def test_shifts_scales_and_gates_come_in_the_published_order() -> None:
    """Only the gate of attention is open: what is added is attention of the plain norm."""
    net = stirred()
    block, width = net.blocks[0], SMALL.width
    x, condition = vectors(), torch.ones(2, CONDITION)
    rotation = net.rotary.prefix(5, x.device)
    with torch.no_grad():
        block.modulation.weight.zero_()
        block.modulation.bias.zero_()
        block.modulation.bias[2 * width : 3 * width] = 1.0
    expected = x + block._attend(block.attention_norm(x), rotation, None)
    assert torch.allclose(block(x, rotation, None, condition), expected, atol=1e-6)
    with torch.no_grad():
        block.modulation.bias.zero_()
        block.modulation.bias[3 * width : 4 * width] = 0.5  # the map's shift
        block.modulation.bias[4 * width : 5 * width] = 2.0  # its scale
        block.modulation.bias[5 * width :] = 1.0  # its gate
    inner = block.mlp_in(block.mlp_norm(x) * 3 + 0.5)
    expected = x + block.mlp_out(torch.nn.functional.gelu(inner, approximate="tanh"))
    assert torch.allclose(block(x, rotation, None, condition), expected, atol=1e-5)


@pytest.mark.parametrize("changed", [{"qkv_bias": True}, {"tied": True}, {"kv_heads": 1}])
def test_what_it_does_not_have_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"the dit has {next(iter(changed))}="):
        DiT(replace(SMALL, **changed))  # type: ignore[arg-type]
