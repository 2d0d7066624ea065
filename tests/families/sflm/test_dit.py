"""The published DiT: its parameters, what is zero at first, time and padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_timed import SMALL_TIMED as SMALL
from torch import Tensor

from anyorder.families.sflm.net import CONDITION, DiT
from anyorder.nets.shapes import TransformerConfig

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
