"""Muon: its update against torch's and against singular values; its groups; resumed bit for bit."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from anyorder.families.family import BUILT_IN, find_family
from anyorder.recipes import find_recipe, override
from anyorder.training.config import TrainConfig
from anyorder.training.muon import ITERATION, STEPS, MuonAdamW, orthogonal
from anyorder.training.optimiser import (
    make_optimiser,
    optimiser_tensors,
    parameter_groups,
    restore_optimiser,
    set_learning_rate,
)

MUON = TrainConfig(optimiser="muon", steps=100, warmup=10)
SHAPES = [(16, 16), (40, 16), (16, 40)]


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonal_keeps_singular_vectors_and_levels_singular_values(
    shape: tuple[int, int],
) -> None:
    matrices = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0)).double()
    found = orthogonal(matrices)
    for matrix, levelled in zip(matrices, found, strict=True):
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        values = values / matrix.norm()
        for _ in range(STEPS):  # the quintic, on each singular value by itself
            powers = [c * values**p for c, p in zip(ITERATION, (1, 3, 5), strict=True)]
            values = torch.stack(powers).sum(0)
        torch.testing.assert_close(levelled, left @ torch.diag(values) @ right)
        assert values.median() > 0.65
        assert values.max() < 1.25


@pytest.mark.parametrize("shape", SHAPES)
def test_the_update_is_that_of_torch(shape: tuple[int, int]) -> None:
    """torch iterates in bfloat16, so the two agree to about its precision."""
    generator = torch.Generator().manual_seed(1)
    ours = nn.Parameter(torch.randn(shape, generator=generator))
    theirs = nn.Parameter(ours.detach().clone())
    settings = {"lr": 0.02, "weight_decay": 0.01}
    mine = MuonAdamW([{"params": [ours], "muon": True, **settings}])
    peer = torch.optim.Muon([theirs], **settings)
    start = ours.detach().clone()
    for _ in range(4):
        gradient = torch.randn(shape, generator=generator)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        peer.step()
    moved = (ours - start).norm()
    assert (ours - theirs).norm() < 0.02 * moved


def test_matrices_of_one_shape_move_together_as_they_would_alone() -> None:
    weights = [torch.randn(8, 8, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    together = [nn.Parameter(weight.clone()) for weight in weights]
    alone = [nn.Parameter(weight.clone()) for weight in weights]
    groups = [together, *([each] for each in alone)]
    for group in groups:
        optimiser = MuonAdamW([{"params": group, "muon": True, "lr": 0.1, "weight_decay": 0.1}])
        for step in range(3):
            for weight in group:
                weight.grad = torch.cos(weight.detach() * (step + 1))
            optimiser.step()
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", BUILT_IN)
def test_only_matrices_of_layers_are_trained_by_muon(family: str) -> None:
    recipe = override(find_recipe(f"tiny/{family}"), {"net.layers": 2})
    row = find_family(family)
    net = row.network.build(row.network_config(recipe, 40, 3), seed=0)
    groups = parameter_groups(net, MUON)
    by_muon = {name for group in groups if group["muon"] for name in group["names"]}
    expected = {
        name
        for name, weight in net.named_parameters()
        if weight.ndim == 2 and re.search(r"blocks\.\d+\.(attention|mlp)\.", name)
    }
    assert by_muon == expected != set()
    assert sum(len(group["names"]) for group in groups) == len(list(net.named_parameters()))
    assert not any(group["muon"] for group in parameter_groups(net, TrainConfig()))


def test_each_kind_has_its_own_learning_rate() -> None:
    net = _toy()
    optimiser = make_optimiser(net, MUON)
    set_learning_rate(optimiser, 9, MUON)  # the end of the warm-up
    rates = {group["muon"]: group["lr"] for group in optimiser.param_groups}
    assert rates == pytest.approx({True: 0.02, False: 3e-3})


def _toy() -> nn.Module:
    recipe = override(find_recipe("tiny/mdm"), {"net.layers": 1, "net.width": 16, "net.heads": 2})
    row = find_family("mdm")
    return row.network.build(row.network_config(recipe, 12, 3), seed=0)


def _step(net: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> None:
    set_learning_rate(optimiser, step, MUON)
    ids = torch.randint(0, 12, (4, 7), generator=torch.Generator().manual_seed(step))
    nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def test_the_state_goes_through_names_and_back_bit_for_bit() -> None:
    net, other = _toy(), _toy()
    optimiser, resumed = make_optimiser(net, MUON), make_optimiser(other, MUON)
    for step in range(3):
        _step(net, optimiser, step)
    tensors = optimiser_tensors(optimiser)
    assert any(name.startswith("momentum.blocks.0.") for name in tensors)
    assert any(name.startswith("exp_avg.embed") for name in tensors)
    other.load_state_dict(net.state_dict())
    restore_optimiser(resumed, {name: value.clone() for name, value in tensors.items()})
    for step in range(3, 6):
        _step(net, optimiser, step)
        _step(other, resumed, step)
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    plain = make_optimiser(_toy(), TrainConfig())
    with pytest.raises(ValueError, match=r"momentum\."):
        restore_optimiser(plain, tensors)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"optimiser": "sgd"}, "choose 'adamw'"),
    ({"muon_lr": 0.1}, "no effect"),
    ({"optimiser": "muon", "muon_lr": 0.0}, "muon_lr"),
    ({"optimiser": "muon", "lora": 4}, "lora"),
]


@pytest.mark.parametrize(("fields", "named"), WRONG)
def test_settings_without_sense_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TrainConfig(**fields)


def test_a_network_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="no matrix of a layer"):
        make_optimiser(nn.Linear(3, 3), MUON)
