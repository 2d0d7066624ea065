"""The shapes of networks, as data: what a model's config.json holds. Never torch.

`TransformerConfig` is the one backbone; the others add what a family's network has besides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from anyorder.vocab import Vocab


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a backbone."""

    vocab_size: int
    """Rows of the embedding table, special tokens included."""
    width: int
    """Width of the residual stream."""
    layers: int
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads: equal to `heads` (MHA) or a divisor of it (GQA)."""
    head_width: int
    """Width of one head; even, because rotary positions turn pairs."""
    mlp_width: int
    """Inner width of the SwiGLU."""
    causal: bool = False
    """Each position sees itself and what stands before it; otherwise everything."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    norm_eps: float = 1e-6
    qkv_bias: bool = True
    """Biases on the query, key and value maps (Qwen2 has them, Llama has none)."""
    o_bias: bool = False
    """Bias on the attention's output map."""
    tied: bool = True
    """The head is the embedding table."""
    time_modulated: bool = False
    """Every layer is conditioned on a time given per row."""

    def __post_init__(self) -> None:
        for name in (
            "vocab_size", "width", "layers", "heads", "kv_heads", "head_width", "mlp_width"
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads is {self.kv_heads} and does not divide heads = {self.heads}: "
                "every key/value head serves the same number of query heads"
            )
        if self.head_width % 2:
            raise ValueError(f"head_width is {self.head_width}: rotary positions need an even one")
        if self.time_modulated and self.width % 2:
            raise ValueError(f"width is {self.width}: time modulation needs an even one")
        if self.rope_theta <= 0 or self.norm_eps <= 0:
            raise ValueError("rope_theta and norm_eps must be positive")


@dataclass(frozen=True)
class ShiftedConfig:
    """The shape of a backbone whose predictions stand one place to the left."""

    backbone: TransformerConfig
    shift: bool = True
    """Always true; it tells this configuration from others in a model's config.json."""

    def __post_init__(self) -> None:
        if self.backbone.causal or self.backbone.time_modulated:
            raise ValueError("a shifted masked model has a bidirectional backbone without time")
        if self.shift is not True:
            raise ValueError("shift must be true: a model without it is its backbone alone")

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> ShiftedConfig:
        """From the dictionary that a model's config.json holds."""
        return cls(**record | {"backbone": TransformerConfig(**record["backbone"])})


@dataclass(frozen=True)
class PlannedConfig:
    """The shape of a backbone and of its planner head."""

    backbone: TransformerConfig
    planner_mlp_width: int
    """Inner width of the head's feed-forward map."""
    planner_features: int = 256
    """Sinusoids of tau; even."""

    def __post_init__(self) -> None:
        if self.backbone.causal or self.backbone.time_modulated:
            raise ValueError("a planner needs a bidirectional backbone without time modulation")
        if self.planner_mlp_width < 1:
            raise ValueError(f"planner_mlp_width={self.planner_mlp_width}: give at least 1")
        if self.planner_features < 2 or self.planner_features % 2:
            raise ValueError(
                f"planner_features={self.planner_features}: give an even number from 2 on"
            )

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> PlannedConfig:
        """From the dictionary that a model's config.json holds."""
        return cls(**record | {"backbone": TransformerConfig(**record["backbone"])})


@dataclass(frozen=True)
class FlexConfig:
    """The shape of the network, and what its inputs mean."""

    backbone: TransformerConfig
    convention: Literal["plain", "release"] = "plain"
    coordinate: Literal["progress", "raw"] = "progress"
    """What `time` is: insertion progress tau = alpha(t), or raw time t."""
    insertion_exponent: float = 1.7
    """Trained with alpha(t) = 1 - (1 - t)^this."""
    unmasking_exponent: float = 2.89
    """Trained with beta(t) = 1 - (1 - t)^this."""
    gap_offset: bool = True
    """Add log(1 - alpha) to the gap head's output."""
    gap_reads: Literal["left", "both"] = "both"
    """The states beside a gap that its head reads."""

    def __post_init__(self) -> None:
        if self.backbone.causal or not self.backbone.time_modulated:
            raise ValueError("flexmdm needs a bidirectional backbone with time_modulated=True")
        choices = {"convention": ("plain", "release"), "coordinate": ("progress", "raw")}
        for name, known in (choices | {"gap_reads": ("left", "both")}).items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: choose {' or '.join(map(repr, known))}"
                )
        for name in ("insertion_exponent", "unmasking_exponent"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)}: give a positive exponent")

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> FlexConfig:
        """From the dictionary that a model's config.json holds."""
        return cls(**record | {"backbone": TransformerConfig(**record["backbone"])})

    def frame(self, vocab: Vocab) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that stand before and after every prompt."""
        if self.convention == "plain":
            return (), (vocab.eos_id if vocab.bos_id is None else vocab.bos_id,)
        if vocab.bos_id is None:
            raise ValueError("the release convention begins with BOS: use a vocabulary that has it")
        return (vocab.bos_id,), (vocab.pad_id,)


_CHOICES = {
    "segment_by": ("line", "statement", "fixed"),
    "pooling": ("content", "with_eos"),
    "empty": ("learned", "eos", "none"),
    "attention": ("bidirectional", "prefix_lm"),
}


@dataclass(frozen=True)
class LatentConfig:
    """The shape of the three networks, and what a segment is to them."""

    backbone: TransformerConfig
    """The latent transformer; encoder and decoder are like it except for their layers."""
    encoder_layers: int = 2
    decoder_layers: int = 2
    slots: int = 16
    """L_s: slots of a training example."""
    segment_length: int = 32
    """L_seg: positions of a segment, the closing EOS included unless the segment fills them all."""
    segment_by: Literal["line", "statement", "fixed"] = "line"
    """How training texts were cut into segments."""
    pooling: Literal["content", "with_eos"] = "content"
    """A segment's vector: the mean over its tokens, or over its closing EOS as well (release)."""
    empty: Literal["learned", "eos", "none"] = "learned"
    """The vector of an empty segment: its own, or the embedding of EOS (release); none: no segment
    is ever empty."""
    attention: Literal["bidirectional", "prefix_lm"] = "bidirectional"
    """prefix_lm: the prompt does not see the slots."""
    encoder_norm: bool = True
    """A norm after the encoder's last layer."""
    latent_norm: bool = True
    """A norm after the latent transformer's last layer."""
    decoder_norm: bool = True
    """A norm after the decoder's last layer."""
    eos_id: int | None = None
    """The id that closes a segment; needed where the network feeds it by itself."""

    def __post_init__(self) -> None:
        if self.backbone.causal or not self.backbone.tied:
            raise ValueError(
                "networks over segments need a bidirectional backbone (causal=False) and one table "
                "for input and head (tied=True)"
            )
        for name in ("encoder_layers", "decoder_layers", "slots", "segment_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: choose {' or '.join(map(repr, known))}"
                )
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
    def from_record(cls, record: dict[str, Any]) -> LatentConfig:
        """From the dictionary that a model's config.json holds."""
        return cls(**record | {"backbone": TransformerConfig(**record["backbone"])})

    def part(self, layers: int, *, causal: bool) -> TransformerConfig:
        """The shape of the encoder or the decoder."""
        return replace(self.backbone, layers=layers, causal=causal, time_modulated=False)


@dataclass(frozen=True)
class FlexLatentConfig:
    """The shape of the networks, and the clocks of their training."""

    latent: LatentConfig
    insertion_exponent: float = 1.7
    """Trained with alpha(t) = 1 - (1 - t)^this."""
    unmasking_exponent: float = 2.89
    """Trained with beta(t) = 1 - (1 - t)^this."""
    gap_offset: bool = False
    """Add log(1 - alpha) to the gap head's output, as flexmdm does. Off, because a prompt mostly
    decides how many lines there are, and what is missing is then known whatever the time."""

    def __post_init__(self) -> None:
        if not self.latent.backbone.time_modulated:
            raise ValueError("flexlatent needs a backbone with time_modulated=True")
        if self.latent.empty != "none":
            raise ValueError(
                f"empty={self.latent.empty!r}: flexlatent has no padding segments, give 'none'"
            )
        for name in ("insertion_exponent", "unmasking_exponent"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)}: give a positive exponent")

    @property
    def backbone(self) -> TransformerConfig:
        return self.latent.backbone

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> FlexLatentConfig:
        """From the dictionary that a model's config.json holds."""
        return cls(**record | {"latent": LatentConfig.from_record(record["latent"])})

    def frame(self, vocab: Vocab) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that stand before and after every prompt."""
        return (), (vocab.eos_id if vocab.bos_id is None else vocab.bos_id,)


ARCHITECTURES = ("backbone", "dit")


@dataclass(frozen=True)
class SphereConfig:
    """The shape of the network, and the signals that it was trained with."""

    backbone: TransformerConfig
    most_signal: float
    """The end of the schedule; the truncation a* of vocabulary and width."""
    least_signal: float = 1e-3
    """Its beginning."""
    architecture: Literal["backbone", "dit"] = "backbone"

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            known = " or ".join(map(repr, ARCHITECTURES))
            raise ValueError(f"architecture={self.architecture!r}: choose {known}")
        if self.backbone.causal or not self.backbone.time_modulated:
            raise ValueError("sflm needs a bidirectional network with time_modulated=True")
        if not 0 < self.least_signal < self.most_signal <= 1:
            raise ValueError(
                f"signals from {self.least_signal} to {self.most_signal} are no schedule: "
                "give 0 < least_signal < most_signal <= 1"
            )

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> SphereConfig:
        """From the dictionary that a model's config.json holds."""
        return cls(**record | {"backbone": TransformerConfig(**record["backbone"])})
