"""Where a text ends: everything the decoders do about the EOS token, as one named object.

A fixed canvas is longer than the text, so masked models are trained to fill the rest with EOS, and
what the sampler does about these EOS changes length, order and accuracy. The choices are:

    plain    EOS is a token like any other
    last     a slot that proposes EOS waits until every open slot of the window does
    fill     once EOS is revealed, every later slot becomes EOS at that same step
    forbid   EOS is never produced (infilling of a given length)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ALL_SLOTS = 1 << 40
LAST = 1e6


@dataclass(frozen=True)
class Stopping:
    """What the sampler does about EOS."""

    forbid_first: int = 0
    """EOS cannot stand in the first so many free slots."""
    penalty: float = 0.0
    """Taken off the score of a slot whose proposal is EOS."""
    after_eos: Literal["keep", "fill"] = "keep"
    """`fill` sets every open slot right of a revealed EOS to EOS at once."""

    def __post_init__(self) -> None:
        if self.forbid_first < 0:
            raise ValueError(f"forbid_first must be 0 or positive, not {self.forbid_first}")
        if self.penalty < 0:
            raise ValueError(f"penalty must be 0 or positive, not {self.penalty}")
        if self.after_eos not in ("keep", "fill"):
            raise ValueError(f"after_eos must be 'keep' or 'fill', not {self.after_eos!r}")


STOPPING = {
    "plain": Stopping(),
    "last": Stopping(penalty=LAST),
    "fill": Stopping(after_eos="fill"),
    "forbid": Stopping(forbid_first=ALL_SLOTS),
}
