"""The shape of the one backbone, as data: the content of a model's config.json. No torch here.

Further settings of a family's network are in its config.py, on top of `OnBackbone`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from anyorder.checks import at_least


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
    """Each position sees itself and those before it; otherwise all."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    norm_eps: float = 1e-6
    qkv_bias: bool = True
    """Biases on the query, key and value maps (Qwen2 has them, Llama has none)."""
    o_bias: bool = False
    """Bias on the attention's output map."""
    qk_norm: bool = False
    """RMSNorm over each head of queries and keys, before they are turned (Qwen3)."""
    tied: bool = True
    """The head is the embedding table."""
    time_modulated: bool = False
    """Every layer is conditioned on a time given per row."""
    sentence_ends: tuple[int, ...] = ()
    """Ids that end a sentence, the last one a prompt: each sentence of a prompt is read as one sum
    (prompts.py). None: prompts are read token by token."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence_ends", tuple(self.sentence_ends))  # JSON has lists
        for name in (
            "vocab_size", "width", "layers", "heads", "kv_heads", "head_width", "mlp_width"
        ):  # fmt: skip
            at_least(name, getattr(self, name))
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


def as_record(config: Any) -> dict[str, Any]:
    """A network's configuration as config.json holds it: without `LATER` settings that are not
    used, as in models from before them."""
    return asdict(config, dict_factory=_without_later)


LATER = ("sentence_ends", "qk_norm")


def _without_later(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if name not in LATER or value}


@dataclass(frozen=True)
class OnBackbone:
    """The shape of a network that has a backbone and more."""

    backbone: TransformerConfig

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """From the dictionary that a model's config.json holds."""
        return cls(**record | {"backbone": TransformerConfig(**record["backbone"])})


@dataclass(frozen=True)
class ShiftedConfig(OnBackbone):
    """The shape of a backbone whose predictions stand one place to the left."""

    shift: bool = True
    """Always true; it tells this configuration from others in a model's config.json."""

    def __post_init__(self) -> None:
        if self.backbone.causal or self.backbone.time_modulated:
            raise ValueError("a shifted masked model has a bidirectional backbone without time")
        if self.shift is not True:
            raise ValueError("shift must be true: a model without it is its backbone alone")


def ends_of(config: Any) -> tuple[int, ...]:
    """The ids that end a sentence, of a network's configuration; none: it pools no prompts."""
    found: tuple[int, ...] = getattr(getattr(config, "backbone", config), "sentence_ends", ())
    return found
