"""The kinds of network that families have, between a recipe, config.json and a module.

One function for each kind. What they compute is nets/; which family has which is families.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn

from anyorder.nets.flex import FlexNet
from anyorder.nets.flex_latent import FlexLatentNet
from anyorder.nets.latent import LatentNet
from anyorder.nets.planner import PlannedNet, planner_names
from anyorder.nets.shapes import (
    FlexConfig,
    FlexLatentConfig,
    LatentConfig,
    PlannedConfig,
    ShiftedConfig,
    SphereConfig,
    TransformerConfig,
)
from anyorder.nets.shifted import ShiftedNet, unshifted
from anyorder.nets.sphere import SphereNet
from anyorder.nets.start import take_weights
from anyorder.nets.transformer import Transformer
from anyorder.process.sphere import LEAST_SIGNAL, enough_signal

Completion = Callable[[TransformerConfig, Any, int], Any]


@dataclass(frozen=True)
class Network:
    """How a network is configured, read, built and begun."""

    complete: Completion
    """(backbone, the recipe, EOS) -> the network's configuration."""
    read: Callable[[dict[str, Any]], Any]
    """What config.json holds -> the network's configuration."""
    build: Callable[..., nn.Module]
    """(configuration, seed=) -> a network with fresh weights."""
    start: Callable[[Any, nn.Module], None]
    """(network, trained one): takes over the weights of one of its kind or of a plain backbone."""
    additions: Callable[[Any], set[str]] = lambda net: set()
    """network -> the names of the parameters that a plain backbone does not have."""


def plain_network() -> Network:
    """The backbone alone."""
    return Network(
        complete=_told(lambda backbone, recipe, eos: backbone),
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=_start_plain,
    )


def masked_network() -> Network:
    """The backbone, alone, with shifted states, or with a planner head, as the recipe asks."""
    return Network(
        complete=_told(_masked_config, shifts=True),
        read=_read_masked,
        build=lambda config, *, seed=0: MASKED_NETS[type(config)](config, seed=seed),
        start=lambda net, base: MASKED_STARTS[type(net)](net, base),
        additions=planner_names,
    )


def timed_network() -> Network:
    """The backbone, told a time."""
    return Network(
        complete=_told(lambda backbone, recipe, eos: replace(backbone, time_modulated=True)),
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=_start_timed,
        additions=lambda net: {name for name, _ in net.named_parameters() if TIME.match(name)},
    )


def flex_network() -> Network:
    """The backbone with time and a gap head."""
    return Network(
        complete=_told(_flex_config),
        read=FlexConfig.from_record,
        build=FlexNet,
        start=FlexNet.start_from,
        additions=FlexNet.additions,
    )


def sphere_network() -> Network:
    """The backbone, or the published DiT, over unit vectors."""
    return Network(
        complete=_told(_sphere_config),
        read=SphereConfig.from_record,
        build=SphereNet,
        start=take_weights,
    )


def latent_network() -> Network:
    """Encoder, latent transformer and decoder."""
    return Network(
        complete=_told(_latent_config),
        read=LatentConfig.from_record,
        build=LatentNet,
        start=LatentNet.start_from,
    )


def flex_latent_network() -> Network:
    """The same with time and a gap head."""
    return Network(
        complete=_told(_flex_latent_config),
        read=FlexLatentConfig.from_record,
        build=FlexLatentNet,
        start=FlexLatentNet.start_from,
        additions=FlexLatentNet.additions,
    )


TIME = re.compile(r"time\.|blocks\.\d+\.modulation\.")
"""The parameters of a backbone's time."""


def _start_timed(net: nn.Module, base: nn.Module) -> None:
    """A base without time predicts at first what it predicted before, at all times."""
    has_time = isinstance(base, Transformer) and base.config.time_modulated
    take_weights(net, base, without=None if has_time else TIME)


def _start_plain(net: nn.Module, base: nn.Module) -> None:
    """A causal net predicts the next token, as a shifted masked model does."""
    shifts = bool(vars(net)["config"].causal)
    take_weights(net, unshifted(base, wanted=shifts, remedy="give the recipe net.shift=True"))


def _told(complete: Completion, *, shifts: bool = False) -> Completion:
    """The same, with what a recipe may say of every backbone; `shifts`: net.shift is known."""

    def completed(backbone: TransformerConfig, recipe: Any, eos: int) -> Any:
        eps, shift = (getattr(recipe.net, name, None) for name in ("norm_eps", "shift"))
        if shift and not shifts:
            raise ValueError(f"{recipe.family} does not use net.shift: leave it out")
        return complete(backbone if eps is None else replace(backbone, norm_eps=eps), recipe, eos)

    return completed


MASKED_NETS: dict[type, Callable[..., nn.Module]] = {
    TransformerConfig: Transformer,
    ShiftedConfig: ShiftedNet,
    PlannedConfig: PlannedNet,
}
MASKED_STARTS: dict[type, Callable[[Any, nn.Module], None]] = {
    Transformer: _start_plain,
    ShiftedNet: ShiftedNet.start_from,
    PlannedNet: PlannedNet.start_from,
}


def _masked_config(backbone: TransformerConfig, recipe: Any, eos: int) -> Any:
    own = {field.name for field in fields(PlannedConfig)} - {"backbone"}
    shift = getattr(recipe.net, "shift", None)
    if not all(hasattr(recipe.net, name) for name in own):
        return ShiftedConfig(backbone) if shift else backbone
    if shift:
        raise ValueError("a planner reads states that predict their own place: leave net.shift out")
    return PlannedConfig(backbone, **{name: getattr(recipe.net, name) for name in own})


def _read_masked(record: dict[str, Any]) -> TransformerConfig | ShiftedConfig | PlannedConfig:
    """Plain models hold the fields of the backbone alone."""
    if "shift" in record:
        return ShiftedConfig.from_record(record)
    if "backbone" in record:
        return PlannedConfig.from_record(record)
    return TransformerConfig(**record)


def _flex_config(backbone: TransformerConfig, recipe: Any, eos: int) -> FlexConfig:
    own = {field.name for field in fields(FlexConfig)} - {"backbone"}
    return FlexConfig(
        replace(backbone, time_modulated=True), **{name: getattr(recipe.net, name) for name in own}
    )


def _sphere_config(backbone: TransformerConfig, recipe: Any, eos: int) -> SphereConfig:
    net = recipe.net
    if recipe.data.align == "right":
        raise ValueError(
            "sflm never writes the PAD that stands before right-aligned answers: leave data.align "
            "out"
        )
    if net.architecture == "dit":
        backbone = replace(backbone, qkv_bias=False)  # as it has none, the recipe's is not read
    return SphereConfig(
        replace(backbone, time_modulated=True),
        most_signal=enough_signal(backbone.vocab_size, backbone.width, net.delta),
        least_signal=LEAST_SIGNAL,
        architecture=net.architecture,
    )


def _latent_config(backbone: TransformerConfig, recipe: Any, eos: int) -> LatentConfig:
    segments = recipe.segments
    given = {
        "backbone": backbone,
        "slots": segments.slots,
        "segment_length": segments.segment_length,
        "segment_by": segments.by,
        "eos_id": eos,
    }
    own = {field.name for field in fields(LatentConfig)} - set(given)
    return LatentConfig(**given, **{name: getattr(recipe.net, name) for name in own})


def _flex_latent_config(backbone: TransformerConfig, recipe: Any, eos: int) -> FlexLatentConfig:
    net = recipe.net
    return FlexLatentConfig(
        _latent_config(replace(backbone, time_modulated=True), recipe, eos),
        insertion_exponent=net.insertion_exponent,
        unmasking_exponent=net.unmasking_exponent,
        gap_offset=net.gap_offset,
    )
