"""The settings of ar: what a user may choose when it decodes. It trains without any of its own."""

from __future__ import annotations

from dataclasses import dataclass

from anyorder.families.config import Description, DrawOptions


@dataclass(frozen=True)
class ArOptions(DrawOptions):
    """How to decode with ar: only the drawing of tokens is open, the order is not."""


DESCRIPTION = Description(
    name="ar",
    title="AR",
    summary="autoregressive: the next token, left to right",
    order="left_to_right",
    masks=False,
    color=("#828a91", "#a9b3bb"),
    spare_color=4,
    likelihood="exact",
    options=ArOptions,
)
