"""The planner head: its sinusoids, its shapes, its formula by hand, and what it may look at."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.families.mdm.config import PlannedConfig
from anyorder.families.mdm.planner import PlannedNet, planner_names
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import sinusoids
from anyorder.nets.transformer import Transformer

MASK = 9
SHAPE = TransformerConfig(
    vocab_size=10, width=16, layers=2, heads=2, kv_heads=2, head_width=8, mlp_width=24,
    qkv_bias=False,
)  # fmt: skip
CONFIG = PlannedConfig(SHAPE, planner_mlp_width=48, planner_features=32)


def planned(seed: int = 0, config: PlannedConfig = CONFIG) -> PlannedNet:
    return PlannedNet(config, seed=seed).eval()


def canvas() -> tuple[Tensor, Tensor, Tensor]:
    """ids, masked, eligible: a prompt of 3, a block of 4 with 3 masks, 3 masks beyond it."""
    ids = torch.tensor([[1, 2, 3, MASK, 4, MASK, MASK, MASK, MASK, MASK]])
    masked = ids == MASK
    return ids, masked, masked & (torch.arange(10) < 7)


def test_the_golden_sinusoid() -> None:
    found = sinusoids(torch.tensor([0.5]), 256, scale=1.0)[0]
    assert torch.allclose(found[:3], torch.tensor([0.877583, 0.893693, 0.907719]), atol=1e-6)
    assert torch.allclose(found[128:131], torch.tensor([0.479426, 0.448678, 0.41958]), atol=1e-6)


def test_the_tensors_are_those_of_the_published_head() -> None:
    """At the published width: 20 tensors (its biases of q, k, v are none), about 303 M numbers."""
    width = 4096
    shape = TransformerConfig(
        vocab_size=16, width=width, layers=1, heads=32, kv_heads=32, head_width=128,
        mlp_width=12288, qkv_bias=False,
    )  # fmt: skip
    with torch.device("meta"):
        net = PlannedNet(PlannedConfig(shape, planner_mlp_width=12288))
    head = {name: tuple(value.shape) for name, value in net.planner.named_parameters()}
    assert len(head) == 20 and len(planner_names(net)) == 20
    assert head["inner.weight"] == (width, 256) and head["outer.weight"] == (width, width)
    assert head["before.weight"] == head["after.weight"] == (2 * width, width)
    assert head["mark.weight"] == (2, width) and head["odds.weight"] == (1, width)
    assert head["layer.blocks.0.mlp.gate.weight"] == (12288, width)
    assert head["layer.blocks.0.mlp.down.weight"] == (width, 12288)
    # 20 tensors of these shapes; the specification counts about 303.1 million.
    assert abs(sum(p.numel() for p in net.planner.parameters()) / 303.1e6 - 1) < 0.005


def test_the_formula_by_hand() -> None:
    net = planned(3)
    head, block = net.planner, net.planner.layer.blocks[0]
    ids, masked, eligible = canvas()
    with torch.no_grad():
        states = net.hidden(ids)
        found = net.plan(states, masked=masked, eligible=eligible)
        tau = torch.tensor(1 - 6 / 10)
        angle = tau * 10000.0 ** (-torch.arange(16) / 16)
        told = torch.cat([angle.cos(), angle.sin()])
        condition = head.outer(F.silu(head.inner(told))) + head.mark.weight[eligible.long()]

        def normed(x: Tensor, linear: torch.nn.Linear) -> Tensor:
            both = condition @ linear.weight.T + linear.bias
            centred = x - x.mean(dim=-1, keepdim=True)
            plain = centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-4).sqrt()
            return plain * (1 + both[..., :16]) + both[..., 16:]

        x = normed(states, head.before)
        x = block(x, head.layer.plain_context(x), None)
        expected = (normed(x, head.after) @ head.odds.weight[0]) + head.odds.bias
    assert torch.allclose(found, expected, atol=1e-5)


def test_what_may_be_revealed_is_told_apart() -> None:
    """Marks and the share of masks matter; which state the backbone gave matters."""
    net = planned()
    ids, masked, eligible = canvas()
    states = net.hidden(ids)
    plan = net.plan(states, masked=masked, eligible=eligible)
    assert not torch.allclose(plan, net.plan(states, masked=masked, eligible=masked))
    assert not torch.allclose(plan, net.plan(states, masked=eligible, eligible=eligible))


def test_padding_changes_nothing() -> None:
    net = planned()
    ids, masked, eligible = canvas()
    alone = net.plan(net.hidden(ids), masked=masked, eligible=eligible)
    wide, more = F.pad(ids, (0, 4)), [F.pad(each, (0, 4)) for each in (masked, eligible)]
    real = torch.arange(14)[None] < 10
    states = net.hidden(wide, mask=real)
    padded = net.plan(states, masked=more[0], eligible=more[1], mask=real)
    assert torch.allclose(padded[:, :10], alone, atol=1e-5)


def test_the_backbone_speaks_as_without_a_head_and_starts_from_a_plain_model() -> None:
    base, net = Transformer(SHAPE, seed=7).eval(), planned(1)
    ids = canvas()[0]
    before = {name: value.clone() for name, value in net.named_parameters()}
    net.start_from(base)
    assert torch.equal(net.head(net.hidden(ids)), base(ids))
    for name, value in net.named_parameters():
        assert torch.equal(value, before[name]) == (name in planner_names(net) or "norm" in name)
    other = planned(2)
    other.start_from(net)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_weights_are_a_function_of_the_seed() -> None:
    first, again, other = planned(4), planned(4), planned(5)
    assert torch.equal(first.planner.odds.weight, again.planner.odds.weight)
    assert not torch.equal(first.planner.odds.weight, other.planner.odds.weight)
