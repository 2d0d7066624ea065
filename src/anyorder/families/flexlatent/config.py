"""The options of flexlatent decoding: what a user may choose, what is filled in, what is refused.

The clock's are those of flexmdm (clock_options.py), the policies those of latentmdm. How many
segments a step reveals is the clock's business, so there is no k. An option that the chosen path
would not use is an error, never ignored. The loop is flexlatent.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from anyorder.decode.clocks import ClockOptions
from anyorder.decode.draw import Draw
from anyorder.decode.policy import Policy, find_segment_score
from anyorder.decode.quota import find_clocked_quota


@dataclass(frozen=True)
class FlexLatentOptions(ClockOptions):
    """How to decode with flexlatent. Unset choices follow `clock` and `policy`."""

    policy: str = "average"
    """average, minimum, first, left_to_right or random: which open segments first."""
    slots: int | None = None
    """At most so many segments; unset: as many as in training."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Unset: random."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    candidates: bool = False
    """Record every candidate of every step, with its score."""

    def resolved(self) -> FlexLatentOptions:
        """The same options with every unset choice filled in that has an effect; checked."""
        full = self._with_schedules("carried")._with_exact_clock()
        if self.slots is not None and self.slots < 1:
            raise ValueError(
                f"there is at least one slot: set slots to 1 or more, not {self.slots}"
            )
        if full.build_policy().score.reads == "nothing":
            full._refuse_set(f"on the policy {full.policy!r}", "ties")
        else:
            full = replace(full, ties=self.ties or "random")
        full.draw().refuse_idle_filters()
        return full

    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_p, self.top_k)

    def build_policy(self) -> Policy:
        return Policy(
            score=find_segment_score(self.policy),
            quota=find_clocked_quota(self.quota or "thinned"),
            ties=self.ties or "random",
        )
