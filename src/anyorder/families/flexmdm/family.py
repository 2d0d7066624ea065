"""Combines the parts of flexmdm: the backbone with a time and a gap head."""

from __future__ import annotations

from dataclasses import replace

from anyorder.decode.canvas import GrowingCanvas
from anyorder.families.config import settings_of
from anyorder.families.family import GRID, Family, Network
from anyorder.families.flexmdm.config import DESCRIPTION, FlexConfig, FlexOptions, FlexSettings
from anyorder.families.flexmdm.decode import check, decode, resolve
from anyorder.families.flexmdm.loss import insertion_bound
from anyorder.families.flexmdm.net import FlexNet
from anyorder.families.replay import flex_reader
from anyorder.nets.shapes import ShiftedConfig

FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=False,
    answers="bare",
    network=Network(
        complete=lambda backbone, recipe, eos: FlexConfig(
            replace(backbone, time_modulated=True), **settings_of(recipe.net, FlexSettings)
        ),
        read=FlexConfig.from_record,
        build=FlexNet,
        start=FlexNet.start_from,
        additions=FlexNet.additions,
        follow=lambda net, base: (
            {"convention": "release"} if isinstance(base, ShiftedConfig) else {}
        ),
    ),
    frame=FlexConfig.frame,
    canvas=GrowingCanvas.of_text,
    options=FlexOptions,
    resolve=resolve,
    check=check,
    decode=decode,
    reader=flex_reader,
    losses={"bound": insertion_bound},
    levels=GRID,
)
