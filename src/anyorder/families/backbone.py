"""The backbone as a family's whole network: alone (ar, plain mdm), or told a time (duo)."""

from __future__ import annotations

import re
from dataclasses import replace

from torch import nn

from anyorder.families.family import Network
from anyorder.nets.denoiser import unshifted
from anyorder.nets.init import take_weights
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer

TIME = re.compile(r"time\.|blocks\.\d+\.modulation\.")
"""The parameters of a backbone's time."""


def plain_network() -> Network:
    """The backbone alone."""
    return Network(
        complete=lambda backbone, recipe, eos: backbone,
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=start_plain,
    )


def timed_network() -> Network:
    """The backbone, told a time."""
    return Network(
        complete=lambda backbone, recipe, eos: replace(backbone, time_modulated=True),
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=_start_timed,
        additions=lambda net: {name for name, _ in net.named_parameters() if TIME.match(name)},
    )


def start_plain(net: nn.Module, base: nn.Module) -> None:
    """A causal net predicts the next token, as a shifted masked model does."""
    shifts = bool(vars(net)["config"].causal)
    take_weights(net, unshifted(base, wanted=shifts, remedy="give the recipe net.shift=True"))


def _start_timed(net: nn.Module, base: nn.Module) -> None:
    """A base without time predicts at first what it predicted before, at all times."""
    has_time = isinstance(base, Transformer) and base.config.time_modulated
    take_weights(net, base, without=None if has_time else TIME)
