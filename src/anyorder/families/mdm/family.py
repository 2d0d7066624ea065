"""Combines the parts of mdm: the backbone alone, shifted, or with a planner head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from anyorder.decode.canvas import Canvas
from anyorder.families.config import NetConfig, settings_of
from anyorder.families.family import GRID, Family, Network, no_frame
from anyorder.families.mdm.config import (
    DESCRIPTION,
    MdmOptions,
    PlannedConfig,
    PlannedNetConfig,
    PlannerSettings,
)
from anyorder.families.mdm.decode import check, check_network, decode, resolve
from anyorder.families.mdm.loss import imitation, masked_bound, masked_mean
from anyorder.families.mdm.planner import PlannedNet, planner_names
from anyorder.families.replay import masked_reader
from anyorder.nets.denoiser import ShiftedNet, start_backbone
from anyorder.nets.shapes import ShiftedConfig, TransformerConfig
from anyorder.nets.transformer import Transformer

NETS: dict[type, Callable[..., nn.Module]] = {
    TransformerConfig: Transformer,
    ShiftedConfig: ShiftedNet,
    PlannedConfig: PlannedNet,
}
STARTS: dict[type, Callable[[Any, nn.Module], None]] = {
    Transformer: start_backbone,
    ShiftedNet: ShiftedNet.start_from,
    PlannedNet: PlannedNet.start_from,
}


def masked_network() -> Network:
    """The backbone alone, with shifted states, or with a planner head: the recipe decides."""
    return Network(
        complete=_complete,
        read=_read,
        build=lambda config, *, seed=0: NETS[type(config)](config, seed=seed),
        start=lambda net, base: STARTS[type(net)](net, base),
        shifts=True,
        additions=planner_names,
        follow=_follow,
    )


def _complete(backbone: TransformerConfig, recipe: Any, eos: int) -> Any:
    net = recipe.net
    if not isinstance(net, PlannedNetConfig):
        return ShiftedConfig(backbone) if net.shift else backbone
    if net.shift:
        raise ValueError("a planner reads states that predict their own place: leave net.shift out")
    return PlannedConfig(backbone, **settings_of(net, PlannerSettings))


def _follow(net: NetConfig, base: Any) -> dict[str, Any]:
    """Dream's shape, and what predicts the next token, begin shifted, unless the recipe says no."""
    shifted = isinstance(base, ShiftedConfig) or getattr(base, "causal", False)
    chosen = net.shift is not None or isinstance(net, PlannedNetConfig)
    return {"shift": True} if shifted and not chosen else {}


def _read(record: dict[str, Any]) -> TransformerConfig | ShiftedConfig | PlannedConfig:
    if "shift" in record:
        return ShiftedConfig.from_record(record)
    if "backbone" in record:
        return PlannedConfig.from_record(record)
    return TransformerConfig(**record)  # plain models store the backbone's fields alone


def _by_its_planner(net: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A planner head chooses the order, unless the given options choose another way."""
    chosen = given.get("policy") or given.get("remask") or given.get("mode") == "compat"
    return {"policy": "planner"} if hasattr(net, "plan") and not chosen else {}


FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=False,
    answers="canvas",
    network=masked_network(),
    frame=no_frame,
    canvas=Canvas.of_text,
    options=MdmOptions,
    resolve=resolve,
    check=check,
    decode=decode,
    reader=masked_reader,
    losses={
        "mean": lambda vocab, *_: masked_mean(vocab),
        "bound": lambda vocab, *_: masked_bound(vocab),
        "imitation": lambda vocab, settings, _: imitation(vocab, settings),
    },
    levels=GRID,
    suits=check_network,
    usual=_by_its_planner,
)
