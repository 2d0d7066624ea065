"""The options of latentmdm decoding: what a user may choose, what is filled in, what is refused.

An option that the chosen path would not use is an error, never ignored. The loop is latentmdm.py.

The choices of the losses over segments. Torch-free, like config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from anyorder.decode.draw import Draw
from anyorder.decode.policy import Policy, find_segment_score
from anyorder.families.flexmdm.config import InsertionConfig


@dataclass(frozen=True)
class Tail:
    """What revealing an empty segment says about the slots after it.

    Texts are shorter than the slots there are, and in training all slots behind a text are empty.
    """

    closes: bool = False
    """Open slots after it become empty at that same step."""
    erases: bool = False
    """So do those that were revealed with content."""


TAILS = {
    "keep": Tail(),
    "stop": Tail(closes=True),
    "erase": Tail(closes=True, erases=True),
}


@dataclass(frozen=True)
class LatentOptions:
    """How to decode with latentmdm. Unset choices follow `mode`."""

    policy: str = "average"
    """average, minimum, first, left_to_right or random: which segments first."""
    k: int = 1
    """Segments that a step reveals."""
    slots: int | None = None
    """At most so many segments; unset: as many as in training."""
    slot_temperature: float = 0.0
    """0 takes the best segments; above, they are drawn, by exp(score / slot_temperature)."""
    tail: Literal["stop", "keep", "erase"] | None = None
    """After an empty segment: open slots become empty (stop), nothing happens (keep), or all slots
    become empty, also those with content (erase, compat only). Exact: stop; compat: erase."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random; compat: leftmost."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    candidates: bool = False
    """Record every candidate of every step, with its score."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the choices of the published sampler; candidates get fresh noise in every step."""

    def resolved(self) -> LatentOptions:
        """The same options with every unset choice filled in that has an effect; checked."""
        if self.mode not in ("exact", "compat"):
            raise ValueError(f"mode must be 'exact' or 'compat', not {self.mode!r}")
        compat = self.mode == "compat"
        full = replace(self, tail=self.tail or ("erase" if compat else "stop"))
        if self.build_policy().score.reads != "nothing" and self.slot_temperature == 0:
            full = replace(full, ties=self.ties or ("leftmost" if compat else "random"))
        full._refuse()
        return full

    def _refuse(self) -> None:
        """What is set must make sense and have an effect."""
        policy = self.build_policy()
        if self.k < 1:
            raise ValueError(
                f"a step reveals at least one segment: set k to 1 or more, not {self.k}"
            )
        if self.slots is not None and self.slots < 1:
            raise ValueError(
                f"there is at least one slot: set slots to 1 or more, not {self.slots}"
            )
        if not 0 <= self.slot_temperature < float("inf"):
            raise ValueError(f"slot_temperature must be 0 or positive, not {self.slot_temperature}")
        if self.tail not in TAILS:
            raise ValueError(f"unknown tail {self.tail!r}: choose one of {', '.join(TAILS)}")
        if self.tail == "erase" and self.mode == "exact":
            raise ValueError(
                "tail='erase' throws revealed segments away, as the published sampler does: "
                "choose stop or keep, or mode='compat'"
            )
        if policy.score.reads == "nothing":
            for name in ("slot_temperature", "ties"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name} has no effect on the policy {self.policy!r}: leave it out"
                    )
        elif self.slot_temperature > 0 and self.ties is not None:
            raise ValueError("with a slot_temperature there are no ties: leave ties out")
        self.draw().refuse_idle_filters()

    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_p, self.top_k)

    def build_policy(self) -> Policy:
        return Policy(score=find_segment_score(self.policy), ties=self.ties or "random")

    def build_tail(self) -> Tail:
        return TAILS[self.tail or "stop"]


@dataclass(frozen=True)
class SegmentLossConfig:
    """What latentmdm's loss has besides the masked segments."""

    reconstruct: float = 0.0
    """Weight of writing the revealed segments too, each from its own condition (the paper: 0). It
    teaches the decoder to read names out of one vector, which small models hardly learn from
    masked segments alone."""

    def __post_init__(self) -> None:
        check_reconstruct("segment_loss", self.reconstruct)


@dataclass(frozen=True)
class SegmentInsertionConfig(InsertionConfig):
    """How flexlatent's loss is weighted, normalised and targeted."""

    reconstruct: float = 0.0
    """Weight of writing the revealed segments too, each from its own condition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reconstruct("insertion", self.reconstruct)


def check_reconstruct(room: str, weight: float) -> None:
    if not 0 <= weight < float("inf"):
        raise ValueError(f"{room}.reconstruct={weight}: give 0 or a positive weight")
