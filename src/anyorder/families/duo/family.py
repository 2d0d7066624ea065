"""Combines the parts of duo: the backbone with a time, over a fixed canvas."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from anyorder.decode.canvas import Canvas
from anyorder.families.duo.config import DESCRIPTION, DuoOptions
from anyorder.families.duo.decode import check_network, decode, resolve
from anyorder.families.duo.loss import uniform_bound
from anyorder.families.family import GRID, Family, Network, no_frame
from anyorder.nets.init import ADDED_BY_TIME, matching_names, take_weights
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer


def _start(net: nn.Module, base: nn.Module) -> None:
    """Take the weights of a base. One without time first predicts the same at all times."""
    has_time = isinstance(base, Transformer) and base.config.time_modulated
    take_weights(net, base, without=None if has_time else ADDED_BY_TIME)


FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=False,
    answers="canvas",
    network=Network(
        complete=lambda backbone, recipe, eos: replace(backbone, time_modulated=True),
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=_start,
        additions=lambda net: matching_names(net, ADDED_BY_TIME),
    ),
    frame=no_frame,
    canvas=Canvas.of_text,
    options=DuoOptions,
    resolve=resolve,
    decode=decode,
    reader=None,
    losses={"bound": uniform_bound},
    levels=GRID,
    suits=check_network,
)
