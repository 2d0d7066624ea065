"""The backbone as a whole network: alone (ar, plain mdm) or with time (duo). The objective type."""

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
"""The parameters that time adds to a backbone."""


def plain_network() -> Network:
    """The backbone alone."""
    return Network(
        complete=lambda backbone, recipe, eos: backbone,
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=start_plain,
    )


def timed_network() -> Network:
    """The backbone with time as an input."""
    return Network(
        complete=lambda backbone, recipe, eos: replace(backbone, time_modulated=True),
        read=lambda record: TransformerConfig(**record),
        build=Transformer,
        start=_start_timed,
        additions=lambda net: {name for name, _ in net.named_parameters() if TIME.match(name)},
    )


def start_plain(net: nn.Module, base: nn.Module) -> None:
    """Take the weights of a base. A causal net shifts: it predicts the next token."""
    shifts = bool(vars(net)["config"].causal)
    take_weights(net, unshifted(base, wanted=shifts, remedy="give the recipe net.shift=True"))


def _start_timed(net: nn.Module, base: nn.Module) -> None:
    """Take the weights of a base. One without time first predicts the same at all times."""
    has_time = isinstance(base, Transformer) and base.config.time_modulated
    take_weights(net, base, without=None if has_time else TIME)


Objective = Callable[[nn.Module, Batch, Noise], LossParts]
"""One batch and its noise -> the parts of a loss."""


def token_nats(net: Any, states: Tensor, targets: Tensor) -> Tensor:
    """-log p of the targets.  # M"""
    return functional.cross_entropy(net.head(states), targets, reduction="none")
