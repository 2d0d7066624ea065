"""Combines the parts of block: the backbone on a grid of blocks."""

from __future__ import annotations

from typing import Any

from anyorder.decode.canvas import Canvas
from anyorder.families.block.config import (
    DESCRIPTION,
    BlockConfig,
    BlockNetConfig,
    BlockOptions,
    BlockSettings,
)
from anyorder.families.block.decode import check_network, decode, grid_of, resolve
from anyorder.families.block.loss import counted_mean, timed_bound
from anyorder.families.block.net import BlockNet
from anyorder.families.block.replay import block_reader
from anyorder.families.config import settings_of
from anyorder.families.family import GRID, Family, Network, no_frame
from anyorder.nets.shapes import TransformerConfig


def _complete(backbone: TransformerConfig, recipe: Any, eos: int) -> BlockConfig:
    net = recipe.net
    return BlockConfig(backbone, **settings_of(net, BlockSettings), shift=bool(net.shift))


def _follow(net: BlockNetConfig, base: Any) -> dict[str, Any]:
    """What predicts the next token begins shifted, unless the recipe says no."""
    shifted = getattr(base, "causal", False) or getattr(base, "shift", False)
    return {"shift": True} if shifted and net.shift is None else {}


FAMILY = Family(
    name=DESCRIPTION.name,
    summary=DESCRIPTION.summary,
    causal=False,
    answers="canvas",
    network=Network(
        complete=_complete,
        read=BlockConfig.from_record,
        build=BlockNet,
        start=BlockNet.start_from,
        shifts=True,
        follow=_follow,
    ),
    frame=no_frame,
    canvas=Canvas.of_text,
    options=BlockOptions,
    resolve=resolve,
    decode=decode,
    reader=block_reader,
    losses={
        "mean": lambda vocab, settings, _: counted_mean(vocab, settings),
        "bound": lambda vocab, settings, _: timed_bound(vocab, settings),
    },
    levels=GRID,
    suits=check_network,
    usual=grid_of,
)
