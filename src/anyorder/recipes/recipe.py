"""A recipe: everything that is needed to train one model, as one typed object.

Recipes are Python functions that return a `Recipe` (recipes/tiny.py); a user changes fields by
name, `--steps 500 --net.width 96` on the command line, `{"steps": 500, "net.width": 96}` in
Python. Unknown names are errors. The resolved recipe is saved with the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal

import tyro

from anyorder.data.segments import SegmentConfig
from anyorder.families.duo.config import UniformConfig
from anyorder.families.flexlatent.config import SegmentInsertionConfig
from anyorder.families.flexmdm.config import InsertionConfig
from anyorder.families.latentmdm.config import SegmentLossConfig
from anyorder.families.mdm.config import ImitationConfig, TuningConfig
from anyorder.families.sflm.config import SphereLossConfig
from anyorder.training.config import TrainConfig


@dataclass(frozen=True)
class NetConfig:
    """The shape of the network; vocabulary and direction follow from data and family."""

    width: int = 64
    """Size of a hidden state."""
    layers: int = 6
    """Transformer layers."""
    heads: int = 4
    """Attention heads."""
    kv_heads: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Key/value heads; unset: as many as heads."""
    mlp_width: int = 192
    """Inner width of the feed-forward map."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    qkv_bias: bool = True
    """Biases on queries, keys and values."""
    o_bias: bool = False
    """Bias on the attention's output."""
    tied: bool = True
    """Whether the head shares the embedding's weights."""
    vocab_size: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Rows of the embedding table; unset: the vocabulary's size."""
    norm_eps: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """Added to the norms' mean square; unset: 1e-6 (Llama and LLaDA have 1e-5)."""
    shift: Annotated[bool | None, tyro.conf.arg(metavar="True", help_behavior_hint="")] = None
    """mdm: the state at i - 1 predicts token i, as in Dream and in what begins left to right."""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise ValueError(f"net.width={self.width} must be a multiple of net.heads={self.heads}")


@dataclass(frozen=True)
class PlannedNetConfig(NetConfig):
    """The network of a planned mdm: the backbone and a planner head (nets/planner.py)."""

    planner_mlp_width: int = 128
    """Inner width of the head's feed-forward map."""
    planner_features: int = 64
    """Sinusoids that tell the head how much is masked (published: 256)."""


@dataclass(frozen=True)
class FlexNetConfig(NetConfig):
    """The network of flexmdm: the backbone, its time, and the gap head (nets/flex.py)."""

    convention: Literal["plain", "release"] = "plain"
    """plain: prompt, anchor, answer; release: BOS, prompt, PAD, answer, with shifted logits."""
    coordinate: Literal["progress", "raw"] = "progress"
    """What the network is told: insertion progress alpha(t), or raw time t."""
    insertion_exponent: float = 1.7
    """alpha(t) = 1 - (1 - t)^this."""
    unmasking_exponent: float = 2.89
    """beta(t) = 1 - (1 - t)^this; smaller reveals later."""
    gap_offset: bool = True
    """Add the known log(1 - alpha) to the gap head's output."""
    gap_reads: Literal["left", "both"] = "both"
    """The states beside a gap that its head reads."""


@dataclass(frozen=True)
class SphereNetConfig(NetConfig):
    """The network of sflm over unit vectors (nets/sphere.py)."""

    tied: bool = False
    """Whether the head is the table of token vectors; published, and of the dit, are two."""
    architecture: Literal["backbone", "dit"] = "backbone"
    """The one backbone of all families, or the published DiT, which has no attention biases."""
    delta: float = 0.1
    """The schedule ends where the clean token is the nearest but for this chance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.architecture == "dit" and (self.o_bias or self.kv_heads is not None):
            raise ValueError("the dit uses neither net.o_bias nor net.kv_heads: leave them out")
        if self.architecture == "dit" and self.tied:
            raise ValueError("the dit has a head of its own: leave net.tied out")


@dataclass(frozen=True)
class LatentNetConfig(NetConfig):
    """The networks of latentmdm: encoder, latent transformer, decoder (nets/latent.py)."""

    layers: int = 4
    """Layers of the latent transformer."""
    encoder_layers: int = 2
    """Layers of the segment encoder."""
    decoder_layers: int = 2
    """Layers of the segment decoder."""
    pooling: Literal["content", "with_eos"] = "content"
    """A segment's vector: the mean over its tokens, or over its closing EOS as well (release)."""
    empty: Literal["learned", "eos"] = "learned"
    """What stands for an empty segment: a vector of its own, or the embedding of EOS (release)."""
    attention: Literal["bidirectional", "prefix_lm"] = "bidirectional"
    """prefix_lm: the prompt does not see the segments, so that it is read once for all steps."""
    encoder_norm: bool = True
    """A norm after the encoder's last layer."""
    latent_norm: bool = True
    """A norm after the latent transformer's last layer."""
    decoder_norm: bool = True
    """A norm after the decoder's last layer."""


@dataclass(frozen=True)
class FlexLatentNetConfig(LatentNetConfig):
    """The networks of flexlatent: those of latentmdm, time, and a gap head."""

    empty: tyro.conf.Fixed[Any] = "none"
    """No segment is ever empty."""
    insertion_exponent: float = 1.7
    """alpha(t) = 1 - (1 - t)^this."""
    unmasking_exponent: float = 2.89
    """beta(t) = 1 - (1 - t)^this; smaller reveals later."""
    gap_offset: bool = False
    """Add the known log(1 - alpha) to the gap head's output."""


@dataclass(frozen=True)
class DataConfig:
    """What to train on."""

    source: str = "stories"
    """`stories`; a folder of `anyorder data`; .jsonl, .txt (.gz too); or `hf:NAME`."""
    split: str = "train"
    """hf: which split of the dataset."""
    documents: Literal["blank", "line", "whole"] = "blank"
    """.txt: where a document ends: at a blank line, at every line, or with the file."""
    prompt_field: str = "prompt"
    """The prompt's field in a .jsonl file or dataset; empty: answers alone."""
    answer_field: str = "answer"
    """The answer's field in a .jsonl file or dataset."""
    vocab: str = "stories"
    """`stories`, `bytes`, a model or its hub id, or a folder with a tokenizer; `qwen2:NAME` takes
    the special tokens of LatentMDM, `dream:NAME` and `llada:NAME` those of these models."""
    layout: float = 0.0
    """stories: freedom of where things stand, 0 to 1."""
    wording: float = 0.0
    """stories: freedom of which words are used, 0 to 1."""
    state_layout: bool = False
    """stories: whether the prompt tells the layout."""
    canvas: int = 64
    """Slots for the answer (and its end) in families with a fixed canvas; the longest answer."""
    max_length: int = 112
    """The longest prompt and answer together."""
    align: Literal["left", "right"] = "left"
    """Which side of the canvas the answer touches."""
    bucket: int = 8
    """Batches that are sorted by length together."""
    seed: int = 0
    """Names the corpus (stories) and the order of the examples."""


@dataclass(frozen=True)
class Recipe:
    """One training run, complete."""

    family: tyro.conf.Fixed[str]
    """Which kind of model."""
    loss: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The objective's name; unset: the family's default."""
    start: Annotated[str | None, tyro.conf.arg(metavar="MODEL", help_behavior_hint="")] = None
    """A trained model to begin with: one of the same family, or what the family can build on."""
    train: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    net: NetConfig = field(default_factory=NetConfig)
    data: DataConfig = field(default_factory=DataConfig)

    @property
    def settings(self) -> Any:
        """What only this family's objective asks for; None where it asks for nothing."""
        return None

    @property
    def frozen(self) -> tuple[str, ...]:
        """How the names of parameters begin that keep their values."""
        return ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"train": self.train.as_json()}


@dataclass(frozen=True)
class PlannerRecipe(Recipe):
    """A recipe that adds a planner head to a trained mdm and trains the head alone."""

    loss: tyro.conf.Fixed[str | None] = "imitation"
    net: PlannedNetConfig = field(default_factory=PlannedNetConfig)
    imitation: ImitationConfig = field(default_factory=ImitationConfig)

    @property
    def settings(self) -> ImitationConfig:
        return self.imitation

    @property
    def frozen(self) -> tuple[str, ...]:
        return ("backbone.",)


@dataclass(frozen=True)
class TuningRecipe(Recipe):
    """A recipe that tunes the planner of a planned mdm by rewards (apps/planner_tuning.py)."""

    loss: tyro.conf.Fixed[str | None] = "grpo"
    net: PlannedNetConfig = field(default_factory=PlannedNetConfig)
    tuning: TuningConfig = field(default_factory=TuningConfig)

    @property
    def settings(self) -> TuningConfig:
        return self.tuning

    @property
    def frozen(self) -> tuple[str, ...]:
        return () if self.tuning.joint else ("backbone.",)


@dataclass(frozen=True)
class FlexRecipe(Recipe):
    """A recipe of flexmdm, with the choices of its network and its loss."""

    net: FlexNetConfig = field(default_factory=FlexNetConfig)
    insertion: InsertionConfig = field(default_factory=InsertionConfig)

    @property
    def settings(self) -> InsertionConfig:
        return self.insertion


@dataclass(frozen=True)
class DuoRecipe(Recipe):
    """A recipe of duo, with the choices of its loss."""

    uniform: UniformConfig = field(default_factory=UniformConfig)

    @property
    def settings(self) -> UniformConfig:
        return self.uniform


@dataclass(frozen=True)
class SphereRecipe(Recipe):
    """A recipe of sflm, with the choices of its network and its loss."""

    net: SphereNetConfig = field(default_factory=SphereNetConfig)
    sphere: SphereLossConfig = field(default_factory=SphereLossConfig)

    @property
    def settings(self) -> SphereLossConfig:
        return self.sphere


@dataclass(frozen=True)
class LatentRecipe(Recipe):
    """A recipe of latentmdm, with the choices of its networks and segments."""

    net: LatentNetConfig = field(default_factory=LatentNetConfig)
    segments: SegmentConfig = field(default_factory=SegmentConfig)
    segment_loss: SegmentLossConfig = field(default_factory=SegmentLossConfig)

    @property
    def settings(self) -> SegmentLossConfig:
        return self.segment_loss


@dataclass(frozen=True)
class FlexLatentRecipe(Recipe):
    """A recipe of flexlatent, with the choices of its networks, segments and loss."""

    net: FlexLatentNetConfig = field(default_factory=FlexLatentNetConfig)
    segments: SegmentConfig = field(default_factory=SegmentConfig)
    insertion: SegmentInsertionConfig = field(default_factory=SegmentInsertionConfig)

    @property
    def settings(self) -> SegmentInsertionConfig:
        return self.insertion


PLAIN = ("loss", "start")
"""The fields of a recipe that are no room of their own."""


def override(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with fields changed by name: a training field, or `net.x`, `data.x`, `loss`."""
    known = names(recipe)
    rooms: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(f"no field {name!r} in a recipe: choose from {', '.join(known)}")
        room, _, last = name.rpartition(".")
        rooms.setdefault(room or ("" if name in PLAIN else "train"), {})[last] = value
    plain = rooms.pop("", {})
    # Fields are checked against each other, so those of one room change together.
    parts = {room: replace(getattr(recipe, room), **new) for room, new in rooms.items()}
    return replace(recipe, **plain, **parts)


def names(recipe: Recipe) -> list[str]:
    """Every field that `override` takes."""
    found = list(PLAIN)
    for each in fields(recipe):
        if each.name not in (*PLAIN, "family"):
            prefix = "" if each.name == "train" else f"{each.name}."
            found += [prefix + inner.name for inner in fields(getattr(recipe, each.name))]
    return found
