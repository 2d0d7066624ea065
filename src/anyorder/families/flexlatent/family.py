"""Combines the parts of flexlatent: the networks of latentmdm with a time and a gap head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anyorder.decode.canvas import GrowingSegments
from anyorder.families.config import settings_of
from anyorder.families.family import GRID, Family, Network
from anyorder.families.flexlatent.config import (
    DESCRIPTION,
    FlexLatentConfig,
    FlexLatentOptions,
    FlexLatentSettings,
)
from anyorder.families.flexlatent.decode import check, decode, resolve
from anyorder.families.flexlatent.loss import segment_insertion_bound
from anyorder.families.flexlatent.net import FlexLatentNet
from anyorder.families.latentmdm.config import LatentConfig
from anyorder.families.replay_segments import flex_latent_reader
from anyorder.nets.shapes import TransformerConfig


def _complete(backbone: TransformerConfig, recipe: Any, eos: int) -> FlexLatentConfig:
    latent = LatentConfig.of(replace(backbone, time_modulated=True), recipe, eos)
    return FlexLatentConfig(latent, **settings_of(recipe.net, FlexLatentSettings))


FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=False,
    answers="segments",
    network=Network(
        complete=_complete,
        read=FlexLatentConfig.from_record,
        build=FlexLatentNet,
        start=FlexLatentNet.start_from,
        additions=FlexLatentNet.additions,
    ),
    frame=FlexLatentConfig.frame,
    canvas=GrowingSegments.of_text,
    options=FlexLatentOptions,
    resolve=resolve,
    check=check,
    decode=decode,
    reader=flex_latent_reader,
    losses={"bound": segment_insertion_bound},
    levels=GRID,
)
