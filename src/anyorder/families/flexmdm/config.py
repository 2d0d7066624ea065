"""The settings of flexmdm: masked diffusion that opens slots by insertion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyorder.families.config import (
    ClockOptions,
    Description,
    DrawOptions,
    NetConfig,
    Specials,
    check_choices,
    check_exponents,
)
from anyorder.nets.shapes import OnBackbone


@dataclass(frozen=True)
class FlexSettings:
    """What a network of flexmdm has besides its backbone, and what its inputs mean."""

    convention: Literal["plain", "release"] = "plain"
    """plain: prompt, anchor, answer; release: BOS, prompt, PAD, answer, with shifted logits."""
    coordinate: Literal["progress", "raw"] = "progress"
    """What the network reads as time: insertion progress alpha(t), or raw time t."""
    insertion_exponent: float = 1.7
    """alpha(t) = 1 - (1 - t)^this."""
    unmasking_exponent: float = 2.89
    """beta(t) = 1 - (1 - t)^this; smaller reveals later."""
    gap_offset: bool = True
    """Add the known log(1 - alpha) to the gap head's output."""
    gap_reads: Literal["left", "both"] = "both"
    """The states beside a gap that its head reads."""


@dataclass(frozen=True)
class FlexNetConfig(FlexSettings, NetConfig):
    """The network of flexmdm: the backbone, its time, and the gap head (flexmdm/net.py)."""


@dataclass(frozen=True)
class FlexConfig(FlexSettings, OnBackbone):
    """The shape of the network, and what its inputs mean."""

    def __post_init__(self) -> None:
        if self.backbone.causal or not self.backbone.time_modulated:
            raise ValueError("flexmdm needs a bidirectional backbone with time_modulated=True")
        check_choices(
            self,
            {
                "convention": ("plain", "release"),
                "coordinate": ("progress", "raw"),
                "gap_reads": ("left", "both"),
            },
        )
        check_exponents(self)

    def frame(self, vocab: Specials) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids before and after every prompt."""
        if self.convention == "plain":
            return (), (vocab.eos_id if vocab.bos_id is None else vocab.bos_id,)
        if vocab.bos_id is None:
            raise ValueError("the release convention begins with BOS: use a vocabulary that has it")
        return (vocab.bos_id,), (vocab.pad_id,)


COMPAT_POLICIES = ("sampled", "entropy", "random")


@dataclass(frozen=True)
class CorrectOptions:
    """What happens after decoding."""

    correct: int = 0
    """After decoding, ask about every item again, and insert, delete or replace one at a time, at
    most this often. A heuristic: it prefers likely texts. 0: leave the text as it is."""

    def check_corrections(self) -> None:
        """Refuse a number that is none."""
        if self.correct < 0:
            raise ValueError(
                f"correct={self.correct}: give the most corrections of a text, or 0 for none"
            )


@dataclass(frozen=True)
class FlexOptions(CorrectOptions, DrawOptions, ClockOptions):
    """How to decode with flexmdm. Unset choices follow `mode` and `clock`."""

    policy: str | None = None
    """Which masks are revealed first: confidence, sampled, margin, entropy,
    left_to_right, right_to_left or random. Exact: confidence; compat: sampled, also entropy or
    random (each mask decides for itself, the release's `origin`)."""
    posterior: Literal["untempered", "filtered"] | None = None
    """The distribution that scores read: before temperature, top_p and top_k (untempered) or after
    them (filtered). Exact: untempered."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random."""
    force_unmask: bool = False
    """Reveal one more token inside each long run of masks that the step left alone."""
    meaningful_replace: bool = False
    """Give up the least likely reveal of a step for a likely word inside a long run of masks."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the published sampler, draw for draw."""

    @property
    def has_extras(self) -> bool:
        """Whether a rule for long runs of masks is on."""
        return self.force_unmask or self.meaningful_replace


@dataclass(frozen=True)
class InsertionConfig:
    """How the two terms of flexmdm's loss are weighted, normalised and targeted."""

    weighting: Literal["hazard", "compat"] = "hazard"
    """hazard: the exact 1 / (1 - t) weights, capped; compat: the published ones."""
    cap: float = 100.0
    """hazard: weights stay level above this."""
    normalise: Literal["max_length", "items", "rows"] = "max_length"
    """Divide the batch's mean by data.max_length (published), by its mean number of free tokens
    (a tilt of order 1 / batch towards short answers), or by nothing."""
    targets: Literal["sampled", "integrated"] = "sampled"
    """sampled: the one alignment that was drawn; integrated: all alignments, exactly (less
    variance, somewhat slower)."""
    infill: float = 0.0
    """Share of the examples in which only a random span of the answer is corrupted."""

    def __post_init__(self) -> None:
        if not self.cap > 0:
            raise ValueError(f"insertion.cap={self.cap}: give a positive weight")
        if not 0 <= self.infill <= 1:
            raise ValueError(f"insertion.infill={self.infill}: give a share from 0 to 1")
        if self.weighting == "compat" and self.cap != InsertionConfig.cap:
            raise ValueError("insertion.cap has no effect on compat weights: leave it out")


DESCRIPTION = Description(
    name="flexmdm",
    title="FlexMDM",
    summary="insertion-based masked diffusion: opens slots, then fills them",
    inserts=True,
    color=("#cc7a14", "#eba02c"),
    spare_color=1,
    race_points=({"steps": 16}, {"steps": 32}, {"steps": 64}, {"clock": "events"}),
    predicted="between_clocks",
    likelihood="insertion bound over tokens",
    import_hint="check prompt_len in the files",
    options=FlexOptions,
)
