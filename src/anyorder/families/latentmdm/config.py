"""The settings of latentmdm: masked diffusion over segments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from anyorder.checks import at_least
from anyorder.families.config import Description, DrawOptions, NetConfig, check_choices, settings_of
from anyorder.nets.shapes import OnBackbone, TransformerConfig

CHOICES = {
    "segment_by": ("line", "statement", "fixed"),
    "pooling": ("content", "with_eos"),
    "empty": ("learned", "eos", "none"),
    "attention": ("bidirectional", "prefix_lm"),
}


@dataclass(frozen=True)
class LatentSettings:
    """What the networks over segments have besides their backbone."""

    encoder_layers: int = 2
    """Layers of the segment encoder."""
    decoder_layers: int = 2
    """Layers of the segment decoder."""
    pooling: Literal["content", "with_eos"] = "content"
    """A segment's vector: the mean over its tokens, or over its closing EOS as well (release)."""
    empty: Literal["learned", "eos", "none"] = "learned"
    """The latent of an empty segment: a learned vector, or the embedding of EOS (release)."""
    attention: Literal["bidirectional", "prefix_lm"] = "bidirectional"
    """prefix_lm: the prompt does not see the segments, so that it is read once for all steps."""
    encoder_norm: bool = True
    """A norm after the encoder's last layer."""
    latent_norm: bool = True
    """A norm after the latent transformer's last layer."""
    decoder_norm: bool = True
    """A norm after the decoder's last layer."""


@dataclass(frozen=True)
class LatentNetConfig(LatentSettings, NetConfig):
    """The networks of latentmdm: encoder, latent transformer, decoder (latentmdm/net.py)."""

    layers: int = 4
    """Layers of the latent transformer."""
    empty: Literal["learned", "eos"] = "learned"  # 'none' is for networks that insert segments


@dataclass(frozen=True)
class LatentConfig(LatentSettings, OnBackbone):
    """The shape of the three networks, and what a segment is to them.

    The backbone is the latent transformer; encoder and decoder are like it except for their layers.
    With `empty` none, no segment is ever empty.
    """

    slots: int = 16
    """L_s: slots of a training example."""
    segment_length: int = 32
    """L_seg: positions of a segment, the closing EOS included unless the segment fills them all."""
    segment_by: Literal["line", "statement", "fixed"] = "line"
    """How training texts were cut into segments."""
    eos_id: int | None = None
    """The id that closes a segment; needed where the network feeds it by itself."""

    def __post_init__(self) -> None:
        if self.backbone.causal or not self.backbone.tied:
            raise ValueError(
                "networks over segments need a bidirectional backbone (causal=False) and one table "
                "for input and head (tied=True)"
            )
        for name in ("encoder_layers", "decoder_layers", "slots", "segment_length"):
            at_least(name, getattr(self, name))
        check_choices(self, CHOICES)
        if self.eos_id is None:
            if self.empty == "eos" or self.pooling == "with_eos":
                raise ValueError(
                    "empty='eos' and pooling='with_eos' feed EOS: give eos_id, the vocabulary's"
                )
        elif not 0 <= self.eos_id < self.backbone.vocab_size:
            raise ValueError(
                f"eos_id={self.eos_id} is no id below vocab_size={self.backbone.vocab_size}: "
                "give the vocabulary's"
            )

    @classmethod
    def of(cls, backbone: TransformerConfig, recipe: Any, eos: int) -> LatentConfig:
        """What a recipe says of the networks, and what its segments and its vocabulary add."""
        segments = recipe.segments
        return cls(
            backbone,
            slots=segments.slots,
            segment_length=segments.segment_length,
            segment_by=segments.by,
            eos_id=eos,
            **settings_of(recipe.net, LatentSettings),
        )

    def part(self, layers: int, *, causal: bool) -> TransformerConfig:
        """The shape of the encoder or the decoder."""
        return replace(self.backbone, layers=layers, causal=causal, time_modulated=False)


@dataclass(frozen=True)
class Tail:
    """What revealing an empty segment says about the slots after it.

    Texts are shorter than the slots there are, and in training all slots behind a text are empty.
    """

    closes: bool = False
    """Open slots after it become empty at that same step."""
    erases: bool = False
    """So do those that were revealed with content."""
    leads: bool = False
    """The leftmost open slot that is almost certainly empty is taken before all others."""


TAIL_THRESHOLD = 0.98
"""Unless another is given, a slot that is empty with more than this probability leads."""
TAILS = {
    "keep": Tail(),
    "stop": Tail(closes=True),
    "first": Tail(closes=True, leads=True),
    "erase": Tail(closes=True, erases=True),
}


@dataclass(frozen=True)
class LatentOptions(DrawOptions):
    """How to decode with latentmdm. Unset choices follow `mode`."""

    policy: str = "average"
    """Which segments are revealed first: average, minimum, first, left_to_right,
    right_to_left or random."""
    k: int = 1
    """Segments that a step reveals."""
    slots: int | None = None
    """The most segments of a text; unset: as many as in training."""
    slot_temperature: float = 0.0
    """0 takes the best segments; above 0 they are drawn by exp(score / slot_temperature)."""
    tail: Literal["stop", "first", "keep", "erase"] | None = None
    """After an empty segment: open slots become empty (stop; first: and a slot that is almost
    certainly empty is taken before the others), nothing happens (keep), or all slots become empty,
    also those with content (erase, compat only). Exact: stop; compat: erase."""
    tail_threshold: float | None = None
    """With the tail first: how probable it must be that the slot is empty; unset: 0.98."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random; compat: leftmost."""
    candidates: bool = False
    """Record every candidate of every step, with its score."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the choices of the published sampler; candidates get fresh noise in every step."""


@dataclass(frozen=True)
class SegmentLossConfig:
    """What latentmdm's loss has besides the masked segments."""

    reconstruct: float = 0.0
    """Weight of writing the revealed segments too, each from its own condition (the paper: 0). It
    teaches the decoder to read names out of one vector, which small models hardly learn from
    masked segments alone."""

    def __post_init__(self) -> None:
        check_reconstruct("segment_loss", self.reconstruct)


def check_reconstruct(room: str, weight: float) -> None:
    if not 0 <= weight < float("inf"):
        raise ValueError(f"{room}.reconstruct={weight}: give 0 or a positive weight")


DESCRIPTION = Description(
    name="latentmdm",
    title="LatentMDM",
    summary="masked diffusion over segments: any line of a fixed number of them",
    items="segments",
    color=("#005c3c", "#7af0c4"),
    spare_color=0,
    race_points=({"k": 1}, {"k": 2}, {"k": 4}),
    predicted="half",
    likelihood="any-order bound over lines",
    import_hint="check the records' steps",
    options=LatentOptions,
)
