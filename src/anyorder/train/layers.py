"""The layers of a network as training treats them: computed twice, compiled, sharded one by one.

    recompute    a layer keeps its input only and is computed again in the backward pass
    compile      torch.compile, for any length
    units        the layers that are gathered one after another when a network is sharded

A unit must run exactly once for each batch, in every process: gathering it is a message among all.
The encoder and the decoder of a network over segments run once for each group of like segments,
which is a matter of the batch, so they are no units and stay gathered with the tables; so does the
latent network of a prefix_lm, which reads prompts by its layers' parts.

Not here: sharding itself (spread.py) and the layers (nets/stack.py, nets/dit.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from anyorder.nets.dit import DiT
from anyorder.nets.latent import LatentNet
from anyorder.nets.planner import PlannerHead
from anyorder.nets.stack import Stack
from anyorder.train.config import TrainConfig


def units(net: nn.Module) -> list[nn.Module]:
    """The layers that run exactly once for each batch."""
    others: set[nn.Module] = _reading_by_parts(net)
    for module in net.modules():
        if isinstance(module, LatentNet):
            others |= {module.encoder, module.decoder}
        elif isinstance(module, PlannerHead):
            others.add(module.layer)
    return [layer for stack in _stacks(net) if stack not in others for layer in stack.blocks]


@contextmanager
def prepared(net: nn.Module, config: TrainConfig) -> Iterator[None]:
    """Inside, the layers are compiled and computed twice, as the configuration says."""
    changed: list[nn.Module] = []
    by_parts = _reading_by_parts(net)
    try:
        for stack in _stacks(net):
            for layer in stack.blocks:
                forward = layer.forward
                if config.compile:
                    forward = torch.compile(forward, dynamic=True)
                # A layer that writes down its keys when it runs cannot run a second time.
                if config.recompute and stack not in by_parts:
                    forward = partial(
                        checkpoint, forward, use_reentrant=False, preserve_rng_state=False
                    )
                if forward is not layer.forward:
                    vars(layer)["forward"] = forward  # before the class's own
                    changed.append(layer)
        if (config.compile or config.recompute) and not changed:
            raise ValueError(
                "recompute and compile work on layers, and this network has none: leave them out"
            )
        yield
    finally:
        for layer in changed:
            del vars(layer)["forward"]


def layer_names(net: nn.Module) -> list[str]:
    """The names of all modules inside the layers."""
    inside = {module for stack in _stacks(net) for layer in stack.blocks
              for module in layer.modules()}  # fmt: skip
    return [name for name, module in net.named_modules() if module in inside]


def _stacks(net: nn.Module) -> list[Stack | DiT]:
    return [module for module in net.modules() if isinstance(module, Stack | DiT)]


def _reading_by_parts(net: nn.Module) -> set[nn.Module]:
    return {
        module.latent
        for module in net.modules()
        if isinstance(module, LatentNet) and module.config.attention == "prefix_lm"
    }
