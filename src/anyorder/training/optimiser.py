"""Groups of parameters for AdamW and Muon, the learning rate by step, averages of the weights.

    factor(s) = (s + 1) / W                                        s < W   (W: warm-up steps)
              = f + (1 - f) / 2 * (1 + cos(pi (s - W) / (S - W)))  s >= W  (S: steps, f: final)

By default weight decay acts on matrices: parameters with fewer than two dimensions (norms, biases,
single vectors) and tables of `nn.Embedding` (also if tied to the head) have none. Groups can have
their own factor on the learning rate, chosen by name prefix. The fused kernel is used everywhere:
on one CPU thread, 55 tensors, 0.33M parameters, a step took 0.6 ms fused, 2.4 ms with foreach and
3.2 ms one tensor at a time, with equal results.

    average_n = d_n average_{n-1} + (1 - d_n) weights_n,   d_n = min(decay, (1 + n) / (10 + n))

average_0 are the initial weights, and n = 1, 2, ... counts the updates. The warm-up of the decay
lets the average follow the fast first steps. Buffers are not averaged. `Ema` swaps its averages
with the weights of the network while they are in use.

Not here: clipping, and when to update or which weights to use (loop.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.training.config import TrainConfig
from anyorder.training.muon import MuonAdamW
from anyorder.training.processes import local

ADAM_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""AdamW's state for one parameter, under torch's names."""
MUON_MOMENTS = ("momentum",)
"""Muon's."""
LAYER_MATRIX = re.compile(r"(^|\.)blocks\.\d+\.(attention|mlp)\.")
"""Names of the parameters that Muon trains, if they are matrices: not tables, heads or time."""


def learning_rate_factor(step: int, config: TrainConfig) -> float:
    """The fraction of `config.lr` that step number `step` (from 0) uses."""
    if step < config.warmup:
        # From 1 / W, not from 0: the first step should learn, too.
        return (step + 1) / config.warmup
    progress = min((step - config.warmup) / (config.steps - config.warmup), 1.0)
    cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.final_lr_fraction + (1.0 - config.final_lr_fraction) * cosine


def trained_parameters(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require gradients, by name; a tied one once."""
    return {name: value for name, value in net.named_parameters() if value.requires_grad}


def parameter_groups(net: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """Groups: for each multiplier with decay, without, and for Muon."""
    # By identity, because a tied table has the name of only one of its two places.
    tables = {
        id(weight)
        for module in net.modules()
        if isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
    }
    groups: dict[tuple[float, bool, bool], dict[str, Any]] = {}
    used: set[str] = set()
    for name, parameter in trained_parameters(net).items():
        prefix = _longest_prefix(name, config.multipliers)
        used |= {prefix} if prefix is not None else set()
        multiplier = 1.0 if prefix is None else config.multipliers[prefix]
        is_matrix = parameter.ndim >= 2 and id(parameter) not in tables
        decays = is_matrix or config.decay == "everything"
        muon = config.optimiser == "muon" and is_matrix and bool(LAYER_MATRIX.search(name))
        group = groups.setdefault(
            (multiplier, decays, muon),
            {
                "muon": muon,
                "params": [],
                "names": [],
                "multiplier": multiplier,
                "weight_decay": config.weight_decay if decays else 0.0,
            },
        )
        group["params"].append(parameter)
        group["names"].append(name)
    unused = sorted(set(config.multipliers) - used)
    if unused:
        modules = ", ".join(name for name, _ in net.named_children())
        raise ValueError(
            f"no trained parameter's name begins with {', '.join(map(repr, unused))}: "
            f"choose multipliers among this network's modules ({modules})"
        )
    return list(groups.values())


def _longest_prefix(name: str, multipliers: Mapping[str, float]) -> str | None:
    """The longest prefix of `name` in whole parts; `*` is any one part, and an exact part wins."""
    parts = name.split(".")
    matching = [
        prefix
        for prefix in multipliers
        for wanted in [prefix.split(".")]
        if len(wanted) <= len(parts)
        and all(mine in ("*", part) for mine, part in zip(wanted, parts, strict=False))
    ]
    return max(matching, key=lambda prefix: (prefix.count("."), -prefix.count("*")), default=None)


def make_optimiser(net: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """The optimiser over the groups of `net`; call set_learning_rate before each step."""
    groups = parameter_groups(net, config)
    if not groups:
        raise ValueError("the network has no parameter that requires a gradient: unfreeze some")
    kind = torch.optim.AdamW
    if config.optimiser == "muon":
        if not any(group["muon"] for group in groups):
            raise ValueError("optimiser=muon: the network trains no matrix of a layer, give adamw")
        kind = MuonAdamW
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, step: int, config: TrainConfig) -> None:
    """Give each group its learning rate for step number `step` (from 0)."""
    factor = learning_rate_factor(step, config)
    for group in optimiser.param_groups:
        largest = config.muon_lr if group["muon"] else config.lr
        group["lr"] = largest * factor * group["multiplier"]


def _moments(group: Mapping[str, Any]) -> tuple[str, ...]:
    return MUON_MOMENTS if group["muon"] else ADAM_MOMENTS


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors: `exp_avg.<parameter>` and so on.

    A parameter that never received a gradient has no state, and no tensors here.
    """
    return {
        f"{moment}.{name}": optimiser.state[parameter][moment]
        for group in optimiser.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
        if parameter in optimiser.state
        for moment in _moments(group)
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Undo optimiser_tensors; refuse names and shapes that do not fit the network."""
    remaining = dict(tensors)
    for group in optimiser.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            found = {key: remaining.pop(f"{key}.{name}", None) for key in _moments(group)}
            # A parameter that had received no gradient has no stored state.
            if all(value is None for value in found.values()):
                continue
            state = {}
            for key, value in found.items():
                shape = () if key == "step" else tuple(parameter.shape)
                if value is None or tuple(value.shape) != shape:
                    has = "is missing" if value is None else f"has shape {tuple(value.shape)}"
                    raise ValueError(f"optimiser state {key}.{name} {has}, expected {shape}")
                # Cloned into torch's own aligned memory: vector kernels may round by alignment.
                state[key] = value.to(parameter.device).clone()
            optimiser.state[parameter] = state
    if remaining:
        raise ValueError(f"optimiser state for unknown parameters: {', '.join(sorted(remaining))}")


def warm_decay(decay: float, update: int) -> float:
    """d_n of the equation at the head of this file."""
    return min(decay, (1 + update) / (10 + update))


class Ema:
    """The averages of the trained weights; of a sharded network, of this process's rows."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._net = net
        self._averages = [weight.clone() for weight in self._weights()]

    @contextmanager
    def shown(self) -> Iterator[nn.Module]:
        """The network itself, with the averaged weights inside the block."""
        weights = self._weights()  # the same after the block, even if it changes the network
        self._exchange(weights)
        try:
            yield self._net
        finally:
            self._exchange(weights)

    def update(self) -> None:
        """Follow one step of the optimiser."""
        self.updates += 1
        weight = 1.0 - warm_decay(self.decay, self.updates)
        # One call for all tensors: in a loop, most of the time would be the calls.
        torch._foreach_lerp_(self._averages, self._weights(), weight)

    def _weights(self) -> list[Tensor]:
        return [local(weight).detach() for weight in trained_parameters(self._net).values()]

    def _exchange(self, weights: list[Tensor]) -> None:
        # In place and weight by weight: memory for one copy, and FSDP keeps its tensors.
        for average, weight in zip(self._averages, weights, strict=True):
            current = weight.clone()
            weight.copy_(average)
            average.copy_(current)
