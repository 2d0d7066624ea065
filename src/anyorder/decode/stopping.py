"""Where a text ends: everything the decoders do about the EOS token, as one named object.

A fixed canvas is longer than the text, so masked models are trained to fill the rest with EOS, and
what the sampler does about these EOS changes length, order and accuracy. The choices are:

    plain    EOS is a token like any other
    last     a slot that proposes EOS comes after every open slot of the window that does not
    fill     once EOS is revealed, every open slot to its right becomes EOS at that same step
    forbid   EOS is never produced (infilling of a given length)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Stopping:
    """What the sampler does about EOS."""

    waits: bool = False
    """A slot whose proposal is EOS comes after all others, whatever its score."""
    fills: bool = False
    """Open slots right of a revealed EOS become EOS at once."""
    forbids: bool = False
    """EOS has probability 0."""


STOPPING = {
    "plain": Stopping(),
    "last": Stopping(waits=True),
    "fill": Stopping(fills=True),
    "forbid": Stopping(forbids=True),
}


def behind(ends: Tensor, slots: Tensor) -> Tensor:
    """Those of the slots that stand right of an end, in the same row.  # B L each"""
    return (ends.long().cumsum(dim=1) > 0) & slots


def find_stopping(name: str) -> Stopping:
    if name not in STOPPING:
        raise ValueError(f"unknown eos choice {name!r}: choose one of {', '.join(STOPPING)}")
    return STOPPING[name]
