"""What the family is, and its decoding options; never torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyorder.families.ar.config import ArOptions
from anyorder.families.config import Description


@dataclass(frozen=True)
class BackwardOptions(ArOptions):
    """As ar; `policy` says in traces and run cards what decided the order."""

    policy: Literal["right_to_left"] = "right_to_left"
    """Which token comes next: there is one order."""


DESCRIPTION = Description(
    name="backward",
    title="Backward",
    summary="autoregressive: the token before, right to left",
    order="left_to_right",
    masks=False,
    color=("#663399", "#b794f4"),
    options=BackwardOptions,
)
