"""The backbone as a family's whole network: alone (ar, plain mdm), or told a time (duo).

What an objective is: one batch and its noise -> the parts of a loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.family import Network
from anyorder.nets.denoiser import unshifted
from anyorder.nets.init import take_weights
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise

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


Objective = Callable[[nn.Module, Batch, Noise], LossParts]


def token_nats(net: Any, states: Tensor, targets: Tensor) -> Tensor:
    """-log p of the targets.  # M"""
    return functional.cross_entropy(net.head(states), targets, reduction="none")
