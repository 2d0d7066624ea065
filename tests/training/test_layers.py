"""Layers: which are gathered one by one, and that computing them twice changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from anyorder.apps.train import network_config
from anyorder.families.family import find_family
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import Attention
from anyorder.nets.transformer import Transformer
from anyorder.recipes import find_recipe, override
from anyorder.training.config import TrainConfig
from anyorder.training.distributed import prepared, units

IDS = torch.arange(20).reshape(2, 10)
SHAPE = TransformerConfig(
    vocab_size=29, width=16, layers=3, heads=2, kv_heads=1, head_width=8, mlp_width=24
)


def names(recipe: str, **changes: Any) -> set[str]:
    """The names of the units of a recipe's network."""
    chosen = override(find_recipe(recipe), {f"net.{key}": value for key, value in changes.items()})
    with torch.device("meta"):
        net = find_family(chosen.family).network.build(network_config(chosen, 97, 1))
    found = units(net)
    assert len(set(found)) == len(found)
    return {name.rpartition(".")[0] for name, module in net.named_modules() if module in found}


@pytest.mark.parametrize(
    ("recipe", "changes", "where"),
    [
        ("tiny/ar", {}, {"blocks"}),
        ("tiny/flexmdm", {}, {"backbone.blocks"}),
        ("tiny/planner", {}, {"backbone.blocks"}),
        ("tiny/latentmdm", {}, {"latent.blocks"}),
        ("tiny/latentmdm", {"attention": "prefix_lm"}, set()),
        ("tiny/flexlatent", {}, {"backbone.latent.blocks"}),
        ("tiny/block", {}, {"backbone.blocks"}),
        ("tiny/sflm", {"architecture": "dit"}, {"backbone.blocks"}),
    ],
)
def test_a_unit_runs_once_for_each_batch(
    recipe: str, changes: dict[str, Any], where: set[str]
) -> None:
    assert names(recipe, **changes) == where


def gradients(net: nn.Module) -> dict[str, torch.Tensor | None]:
    net.zero_grad()
    net(IDS).square().mean().backward()
    return {name: weight.grad for name, weight in net.named_parameters()}


def test_computing_layers_twice_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = Attention.forward

    def counted(self: Attention, *arguments: Any) -> torch.Tensor:
        calls.append(self.layer)
        return real(self, *arguments)

    monkeypatch.setattr(Attention, "forward", counted)
    net = Transformer(SHAPE)
    plain = gradients(net)
    assert sorted(calls) == [0, 1, 2]
    calls.clear()
    with prepared(net, TrainConfig(recompute=True)):
        twice = gradients(net)
    assert sorted(calls) == [0, 0, 1, 1, 2, 2]
    for name, grad in plain.items():
        assert grad is not None and torch.equal(grad, twice[name]), name  # type: ignore[arg-type]
    assert all("forward" not in vars(block) for block in net.blocks), "as it was before"


def test_a_network_without_layers_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="this network has none: leave them out"),
        prepared(nn.Linear(2, 2), TrainConfig(recompute=True)),
    ):
        pass
