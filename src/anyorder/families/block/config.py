"""The settings of block: block diffusion, the dial between ar (blocks of 1) and mdm (one block)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from anyorder.checks import at_least, one_of
from anyorder.families.config import Description, DrawOptions, NetConfig
from anyorder.nets.shapes import OnBackbone

Origin = Literal["absolute", "after_prompt", "left_padded"]
"""Where the grid of blocks begins (nets/blocks.py)."""


@dataclass(frozen=True)
class BlockSettings:
    """The usual grid of a model."""

    block_size: int = 4
    """Slots of a block when decoding and in likelihoods, unless another number is asked for."""
    origin: Origin = "after_prompt"
    """Where blocks are counted from: absolute (the row's start, prompt included), after_prompt (the
    prompt is one block) or left_padded (back from the prompt's end)."""


@dataclass(frozen=True)
class BlockNetConfig(BlockSettings, NetConfig):
    """The network of a block model: the backbone and its grid."""


@dataclass(frozen=True)
class BlockConfig(BlockSettings, OnBackbone):
    """The shape of a backbone whose columns see earlier blocks and their own."""

    block_size: int = field()  # a file without it is damaged
    shift: bool = False
    """Whether the state at i - 1 predicts token i; the first of a block, from the block before."""

    def __post_init__(self) -> None:
        at_least("block_size", self.block_size)
        one_of("origin", self.origin, ("absolute", "after_prompt", "left_padded"))
        if self.backbone.causal or self.backbone.time_modulated:
            raise ValueError("blocks need a bidirectional backbone without time modulation")
        if self.backbone.sentence_ends and self.origin != "after_prompt":
            raise ValueError(
                "net.prompt=sentences reads a prompt in columns of its own, which are one block: "
                "give net.origin=after_prompt, or net.prompt=tokens"
            )


@dataclass(frozen=True)
class BlockOptions(DrawOptions):
    """How to decode with block. Inside a block, the choices are those of mdm."""

    policy: str = "confidence"
    """Which slots of the block are revealed first: confidence, sampled, margin, entropy,
    left_to_right, right_to_left or random (the "first hitting" of BD3-LM)."""
    quota: str = "even"
    """How many slots a step reveals: even, dream[:eps], threshold[:p], factor[:f] or, with the
    policy entropy, entropy_bound[:nats]."""
    posterior: Literal["untempered", "filtered"] | None = None
    """The distribution that scores read: before temperature, top_p and top_k (untempered) or after
    them (filtered). Unset: untempered."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Unset: random."""
    block: int | None = None
    """Slots of a block; 1 is left to right. Unset: as the model says."""
    origin: Origin | None = None
    """Where blocks are counted from: absolute, after_prompt or left_padded. Unset: as the model was
    trained."""
    block_steps: int | None = None
    """Steps of each block, for the quotas even and dream. Unset: one for each open slot."""
    eos: Literal["finish", "plain", "last", "fill", "forbid"] = "finish"
    """What happens to EOS: finish (its block is finished, all later slots become EOS), plain (a
    token like any other), last (revealed after all others of its block), fill (all open slots to
    the right of one become EOS at once) or forbid (it is never written)."""
    cache: Literal["exact", "stale", "none"] | None = None
    """Keys and values of finished blocks: exact (one more call reads each finished block), stale
    (without that call: an approximation) or none (compute all columns in every step). Unset:
    exact."""


@dataclass(frozen=True)
class BlockLossConfig:
    """How blocks are corrupted in training (process/blocks.py)."""

    sizes: tuple[int, ...] = (4,)
    """Block sizes; each batch draws one of them. A size from the canvas on is one block."""
    time: Literal["block", "sequence"] = "block"
    """loss=bound: one time for each block, or one for the whole sequence."""
    weight: Literal["inverse", "none"] = "inverse"
    """loss=bound: 1/t, or none: the plain mean over masked tokens."""
    times: tuple[float, float] = (0.0, 1.0)
    """loss=bound: times are uniform between these; narrower ones (clipped) are no bound."""
    pairs: bool = False
    """loss=bound: show each text twice, the second time with the other tokens masked."""

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"blocks.sizes={self.sizes}: give block sizes from 1 on")
        one_of("blocks.time", self.time, ("block", "sequence"))
        one_of("blocks.weight", self.weight, ("inverse", "none"))
        if len(self.times) != 2 or not 0 <= self.times[0] < self.times[1] <= 1:
            raise ValueError(f"blocks.times={self.times}: give two rising times from 0 to 1")


DESCRIPTION = Description(
    name="block",
    title="Block",
    summary="block diffusion: blocks left to right, any masked token inside one",
    color=("#8a6d00", "#d1ac2b"),
    spare_color=7,
    race_points=({"block": 1}, {"block": 4}, {"block": 16}),
    predicted="blocks",
    likelihood="block bound over tokens",
    options=BlockOptions,
)
