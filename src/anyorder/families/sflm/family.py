"""Combines the parts of sflm: the backbone, or the published DiT, over unit vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anyorder.decode.canvas import Canvas
from anyorder.families.config import settings_of
from anyorder.families.family import GRID, Family, Network, no_frame
from anyorder.families.sflm.config import DESCRIPTION, SflmOptions, SphereConfig, SphereSettings
from anyorder.families.sflm.decode import check_network, decode, resolve
from anyorder.families.sflm.loss import sphere_mean
from anyorder.families.sflm.net import SphereNet
from anyorder.nets.init import take_weights
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.sphere import LEAST_SIGNAL, enough_signal


def _complete(backbone: TransformerConfig, recipe: Any, eos: int) -> SphereConfig:
    net = recipe.net
    if recipe.data.align == "right":
        raise ValueError(
            "sflm never writes the PAD before right-aligned answers: leave data.align out"
        )
    if net.architecture == "dit":
        backbone = replace(backbone, qkv_bias=False)  # as it has none, the recipe's is not read
    return SphereConfig(
        replace(backbone, time_modulated=True),
        most_signal=enough_signal(backbone.vocab_size, backbone.width, net.delta),
        least_signal=LEAST_SIGNAL,
        **settings_of(net, SphereSettings),
    )


FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=False,
    answers="canvas",
    network=Network(
        complete=_complete,
        read=SphereConfig.from_record,
        build=SphereNet,
        start=take_weights,
    ),
    frame=no_frame,
    canvas=Canvas.of_text,
    options=SflmOptions,
    resolve=resolve,
    decode=decode,
    reader=None,
    losses={"mean": sphere_mean},
    levels=GRID,
    suits=check_network,
)
