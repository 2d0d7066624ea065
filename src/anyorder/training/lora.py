"""Low-rank adapters through peft: train a few new weights beside a trained network.

    y = W x + scale * B A x,    A: in -> rank,  B: rank -> out,  B = 0 at first

W is frozen. The parts that a family adds to a plain backbone (time, heads) are new, so they are
trained in full. Afterwards `merge` replaces W by W + scale * B A, so that the exported model is an
ordinary one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.nets.init import WeightDraws
from anyorder.training.config import TrainConfig
from anyorder.training.distributed import layer_names

LORA_SEED = 0x10A
"""Separates the adapters' draws from the network's."""
INNER = ".base_layer"
"""peft adds this to the names of weights that have an adapter."""


def adapt(net: nn.Module, config: TrainConfig, additions: set[str]) -> None:
    """Add adapters to the layers' linear maps, in place; freeze all but them and `additions`."""
    try:
        import peft
    except ImportError as error:
        raise ValueError(
            "lora needs the library peft: pip install 'anyorder[hf]', or leave lora out"
        ) from error
    targets = _targets(net, config.lora_targets, additions)
    configure: Any = peft.LoraConfig  # its types allow only whole numbers for lora_alpha
    settings = configure(
        r=config.lora,
        lora_alpha=config.lora_scale * config.lora,
        target_modules=targets,
        lora_dropout=0.0,
        bias="none",
    )
    on_meta = next(net.parameters()).is_meta
    peft.inject_adapter_in_model(settings, net)
    if on_meta:
        net.to("meta")  # the adapters that peft added have memory
    for name, weight in net.named_parameters():
        weight.requires_grad_(_is_adapter(name) or name in additions)


def first_adapters(net: nn.Module, seed: int) -> Iterator[tuple[str, Tensor]]:
    """The adapters' first values, by name: A uniform within 1 / sqrt(in), B zero."""
    draws = WeightDraws(seed, part=LORA_SEED)
    for name, weight in net.named_parameters():
        if not _is_adapter(name):
            continue
        value = torch.zeros(weight.shape)
        if ".lora_A." in name:
            value.uniform_(-1.0, 1.0, generator=draws.of(name)).mul_(weight.shape[1] ** -0.5)
        yield name, value


def inner_names(net: nn.Module) -> dict[str, str]:
    """Plain name -> name with adapters, for all weights that a plain network has."""
    names = (name for name, _ in net.named_parameters() if not _is_adapter(name))
    return {name.replace(INNER, ""): name for name in names}


@torch.no_grad()
def merge(net: nn.Module) -> nn.Module:
    """Add the adapters' products to the weights and remove the adapters, in place."""
    for name, module in list(net.named_modules()):
        if hasattr(module, "lora_A") and hasattr(module, "get_base_layer"):
            layer: Any = module
            layer.merge()
            parent, _, last = name.rpartition(".")
            setattr(net.get_submodule(parent), last, layer.get_base_layer())
    return net


def _is_adapter(name: str) -> bool:
    return ".lora_" in name


def _targets(net: nn.Module, wanted: tuple[str, ...], additions: set[str]) -> list[str]:
    """The linear maps of all layers, or only those with the wanted names."""
    maps = [
        name
        for name in layer_names(net)
        if isinstance(net.get_submodule(name), nn.Linear) and f"{name}.weight" not in additions
    ]
    known = sorted({name.rpartition(".")[2] for name in maps})
    unknown = sorted(set(wanted) - set(known))
    if unknown or not maps:
        raise ValueError(
            f"no layer has a linear map called {', '.join(unknown)}: choose lora_targets among "
            f"{', '.join(known)}"
            if maps
            else "this network has no layers with linear maps: leave lora out"
        )
    return [name for name in maps if not wanted or name.rpartition(".")[2] in wanted]
