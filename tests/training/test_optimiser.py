"""Groups, schedule and state of AdamW, against their definitions."""

from __future__ import annotations

import itertools
import math
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from anyorder.training.config import TrainConfig
from anyorder.training.optimiser import (
    learning_rate_factor,
    make_optimiser,
    optimiser_tensors,
    parameter_groups,
    restore_optimiser,
    set_learning_rate,
)


def test_decay_is_for_matrices_only(toy: ModuleType) -> None:
    net = toy.ToyNet()
    decay = {
        name: group["weight_decay"]
        for group in parameter_groups(net, TrainConfig(weight_decay=0.1))
        for name in group["names"]
    }
    assert decay == {
        "embed.weight": 0.0,  # also the head: tied
        "mix.weight": 0.1,
        "mix.bias": 0.0,
        "norm.weight": 0.0,
        "norm.bias": 0.0,
    }
    net.out.weight = nn.Parameter(torch.zeros(toy.VOCABULARY, toy.WIDTH))
    untied = parameter_groups(net, TrainConfig(weight_decay=0.1))
    assert any("out.weight" in group["names"] and group["weight_decay"] for group in untied)


def test_the_longest_prefix_sets_the_multiplier() -> None:
    net = nn.ModuleDict({"body": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))})
    net["body2"] = nn.Linear(2, 2)
    config = TrainConfig(lr=1.0, warmup=0, multipliers={"body": 0.5, "body.1": 3.0})
    optimiser = make_optimiser(net, config)
    set_learning_rate(optimiser, 0, config)
    rates = {name: g["lr"] for g in optimiser.param_groups for name in g["names"]}
    assert rates["body.0.weight"] == rates["body.0.bias"] == 0.5
    assert rates["body.1.weight"] == rates["body.1.bias"] == 3.0
    assert rates["body2.weight"] == 1.0, "a prefix ends at a dot"


def test_a_prefix_without_parameters_is_refused(toy: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"'heads'.*embed, mix, norm, out"):
        parameter_groups(toy.ToyNet(), TrainConfig(multipliers={"heads": 2.0}))


def test_frozen_parameters_are_left_out(toy: ModuleType) -> None:
    net = toy.ToyNet()
    net.mix.requires_grad_(False)
    names = {name for group in parameter_groups(net, TrainConfig()) for name in group["names"]}
    assert names == {"embed.weight", "norm.weight", "norm.bias"}
    net.requires_grad_(False)
    with pytest.raises(ValueError, match="unfreeze"):
        make_optimiser(net, TrainConfig())


@given(
    steps=st.integers(2, 500),
    warm=st.floats(0, 0.9),
    final=st.floats(0, 1),
)
@settings(deadline=None)
def test_schedule_rises_then_falls(steps: int, warm: float, final: float) -> None:
    config = TrainConfig(steps=steps, warmup=int(warm * steps), final_lr_fraction=final)
    factors = [learning_rate_factor(step, config) for step in range(steps + 1)]
    rising, falling = factors[: config.warmup], factors[config.warmup :]
    assert all(0 < factor <= 1 for factor in rising)
    assert rising == sorted(rising)
    assert falling[0] == pytest.approx(1.0)
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(falling))
    assert falling[-1] == pytest.approx(final)


def test_schedule_at_known_points() -> None:
    config = TrainConfig(steps=110, warmup=10, final_lr_fraction=0.2)
    assert learning_rate_factor(0, config) == pytest.approx(0.1)
    assert learning_rate_factor(60, config) == pytest.approx(0.6)
    assert learning_rate_factor(35, config) == pytest.approx(
        0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2
    )


def test_a_step_is_adamw_by_its_equation() -> None:
    net = nn.Linear(3, 2).double()
    config = TrainConfig(
        lr=0.1, warmup=0, betas=(0.8, 0.95), weight_decay=0.3, eps=1e-3, final_lr_fraction=1.0
    )
    optimiser = make_optimiser(net, config)
    expected = {name: value.detach().clone() for name, value in net.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in expected.items()}
    second = {name: torch.zeros_like(value) for name, value in expected.items()}
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        for name, parameter in net.named_parameters():
            gradient = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.grad = gradient
            first[name] = 0.8 * first[name] + 0.2 * gradient
            second[name] = 0.95 * second[name] + 0.05 * gradient**2
            m = first[name] / (1 - 0.8 ** (step + 1))
            v = second[name] / (1 - 0.95 ** (step + 1))
            decay = 0.3 if name == "weight" else 0.0
            expected[name] = expected[name] * (1 - 0.1 * decay) - 0.1 * m / (v.sqrt() + 1e-3)
        set_learning_rate(optimiser, step, config)
        optimiser.step()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-9, atol=1e-9)


def test_state_round_trip_and_its_refusals(toy: ModuleType) -> None:
    net, config = toy.ToyNet(), TrainConfig()
    optimiser = make_optimiser(net, config)
    toy.objective(net, toy.batch_of(0), toy.Noise(0, 0)).loss.backward()
    net.norm.bias.grad = None
    optimiser.step()
    tensors = optimiser_tensors(optimiser)
    assert "exp_avg.mix.weight" in tensors
    assert not any(name.endswith("norm.bias") for name in tensors), "it never had a gradient"

    other = make_optimiser(toy.ToyNet(), config)
    restore_optimiser(other, tensors)
    restored = optimiser_tensors(other)
    assert restored.keys() == tensors.keys()
    assert all(torch.equal(restored[name], tensors[name]) for name in tensors)

    fresh = make_optimiser(toy.ToyNet(), config)
    with pytest.raises(ValueError, match=r"exp_avg_sq\.mix\.weight is missing"):
        restore_optimiser(fresh, {k: v for k, v in tensors.items() if k != "exp_avg_sq.mix.weight"})
    with pytest.raises(ValueError, match=r"has shape \(2,\)"):
        restore_optimiser(fresh, tensors | {"exp_avg.mix.bias": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"unknown parameters: exp_avg\.gone"):
        restore_optimiser(fresh, tensors | {"exp_avg.gone": torch.zeros(2)})
