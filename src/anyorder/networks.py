"""The kinds of network that families have, between a recipe, config.json and a module.

One function for each kind. What they compute is nets/; which family has which is families.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn

from anyorder.nets.flex import FlexConfig, FlexNet
from anyorder.nets.flex_latent import FlexLatentConfig, FlexLatentNet
from anyorder.nets.latent import LatentConfig, LatentNet
from anyorder.nets.start import take_weights
from anyorder.nets.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class Network:
    """How a network is configured, read, built and begun."""

    complete: Callable[[TransformerConfig, Any, int], Any]
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
        complete=lambda backbone, recipe, eos: backbone,
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=take_weights,
    )


def flex_network() -> Network:
    """The backbone with time and a gap head."""
    return Network(
        complete=_flex_config,
        read=FlexConfig.from_record,
        build=FlexNet,
        start=FlexNet.start_from,
        additions=FlexNet.additions,
    )


def latent_network() -> Network:
    """Encoder, latent transformer and decoder."""
    return Network(
        complete=_latent_config,
        read=LatentConfig.from_record,
        build=LatentNet,
        start=LatentNet.start_from,
    )


def flex_latent_network() -> Network:
    """The same with time and a gap head."""
    return Network(
        complete=_flex_latent_config,
        read=FlexLatentConfig.from_record,
        build=FlexLatentNet,
        start=FlexLatentNet.start_from,
        additions=FlexLatentNet.additions,
    )


def _flex_config(backbone: TransformerConfig, recipe: Any, eos: int) -> FlexConfig:
    own = {field.name for field in fields(FlexConfig)} - {"backbone"}
    return FlexConfig(
        replace(backbone, time_modulated=True), **{name: getattr(recipe.net, name) for name in own}
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
