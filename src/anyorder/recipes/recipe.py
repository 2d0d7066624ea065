"""A recipe: everything that is needed to train one model, as one typed object.

A recipe is made by a Python function (tiny.py, paper.py). Users change fields by name, with
`--steps 500 --net.width 96` on the command line or `{"steps": 500, "net.width": 96}` in Python.
Unknown names are errors. The resolved recipe is saved with the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal

import tyro

from anyorder.data.corpora.trails import TrailsDials
from anyorder.data.segments import SegmentConfig
from anyorder.families.block.config import BlockLossConfig, BlockNetConfig
from anyorder.families.config import NetConfig
from anyorder.families.duo.config import UniformConfig
from anyorder.families.flexlatent.config import FlexLatentNetConfig, SegmentInsertionConfig
from anyorder.families.flexmdm.config import FlexNetConfig, InsertionConfig
from anyorder.families.latentmdm.config import LatentNetConfig, SegmentLossConfig
from anyorder.families.mdm.config import ImitationConfig, PlannedNetConfig, TuningConfig
from anyorder.families.sflm.config import SphereLossConfig, SphereNetConfig
from anyorder.training.config import TrainConfig


@dataclass(frozen=True)
class DataConfig:
    """What to train on."""

    source: str = "stories"
    """`stories` or `trails`; a folder of `anyorder data`; .jsonl, .txt (.gz too); or `hf:NAME`."""
    split: str = "train"
    """hf: which split of the dataset."""
    documents: Literal["blank", "line", "whole"] = "blank"
    """.txt: where a document ends: at a blank line, at every line, or with the file."""
    prompt_field: str = "prompt"
    """The prompt's field in a .jsonl file or dataset; empty: answers alone."""
    answer_field: str = "answer"
    """The answer's field in a .jsonl file or dataset."""
    messages_field: str = ""
    """In place of prompt and answer, the field with a conversation, a list of {role, content}: each
    turn of the assistant is one example (docs/chat.md)."""
    chat: str = ""
    """Conversations: a file with a chat template, or dream, diffucoder, qwen2.5, qwen3, smollm2,
    llada; empty: the template of data.vocab."""
    vocab: str = "stories"
    """`stories`, `trails`, `bytes`, a model or its hub id, or a folder with a tokenizer;
    `qwen2:NAME` takes the special tokens of LatentMDM, `dream:NAME` and `llada:NAME` those of these
    models."""
    layout: float = 0.0
    """stories: how freely the lines of a program are arranged, 0 to 1."""
    wording: float = 0.0
    """stories: how freely words are chosen, 0 to 1."""
    state_layout: bool = False
    """stories: whether the prompt states the layout."""
    canvas: int = 64
    """Slots for the answer (and its end) in families with a fixed canvas; the longest answer."""
    max_length: int = 112
    """The longest prompt and answer together."""
    align: Literal["left", "right"] = "left"
    """Which side of the canvas the answer touches."""
    bucket: int = 8
    """Batches that are sorted by length together."""
    seed: int = 0
    """Chooses the corpus (stories) and the order of the examples."""


@dataclass(frozen=True)
class Recipe:
    """One training run, complete."""

    family: tyro.conf.Fixed[str]
    """Which kind of model."""
    loss: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The objective's name; unset: the family's default."""
    start: Annotated[str | None, tyro.conf.arg(metavar="MODEL", help_behavior_hint="")] = None
    """A trained model to begin with: one of the same family, or what the family can build on. Its
    shape takes the place of the recipe's."""
    train: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    net: NetConfig = field(default_factory=NetConfig)
    data: DataConfig = field(default_factory=DataConfig)
    trails: TrailsDials = field(default_factory=TrailsDials)

    SETTINGS: ClassVar[str | None] = None
    """The field with the settings of the objective."""

    @property
    def settings(self) -> Any:
        """The settings of this family's objective; None if it has none."""
        return None if self.SETTINGS is None else getattr(self, self.SETTINGS)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Name prefixes of the parameters that are not trained."""
        return ()

    def as_json(self) -> dict[str, Any]:
        stored = asdict(self) | {"train": self.train.as_json()}
        # Left out where they have no effect: older trainings lack them, and can go on.
        if self.data.source != "trails":
            del stored["trails"]
        if self.net.prompt == "tokens":
            del stored["net"]["prompt"]
        if self.net.head_width is None:
            del stored["net"]["head_width"]
        if not self.net.qk_norm:
            del stored["net"]["qk_norm"]
        if not self.data.messages_field:
            del stored["data"]["messages_field"], stored["data"]["chat"]
        return stored


@dataclass(frozen=True)
class PlannerRecipe(Recipe):
    """A recipe that adds a planner head to a trained mdm and trains the head alone."""

    SETTINGS = "imitation"
    loss: tyro.conf.Fixed[str | None] = "imitation"
    net: PlannedNetConfig = field(default_factory=PlannedNetConfig)
    imitation: ImitationConfig = field(default_factory=ImitationConfig)

    @property
    def frozen(self) -> tuple[str, ...]:
        return ("backbone.",)


@dataclass(frozen=True)
class TuningRecipe(Recipe):
    """A recipe that tunes the planner of a planned mdm by rewards (apps/planner_grpo.py)."""

    SETTINGS = "tuning"
    loss: tyro.conf.Fixed[str | None] = "grpo"
    net: PlannedNetConfig = field(default_factory=PlannedNetConfig)
    tuning: TuningConfig = field(default_factory=TuningConfig)

    @property
    def frozen(self) -> tuple[str, ...]:
        return () if self.tuning.joint else ("backbone.",)


@dataclass(frozen=True)
class FlexRecipe(Recipe):
    """A recipe of flexmdm, with the choices of its network and its loss."""

    SETTINGS = "insertion"
    net: FlexNetConfig = field(default_factory=FlexNetConfig)
    insertion: InsertionConfig = field(default_factory=InsertionConfig)


@dataclass(frozen=True)
class DuoRecipe(Recipe):
    """A recipe of duo, with the choices of its loss."""

    SETTINGS = "uniform"
    uniform: UniformConfig = field(default_factory=UniformConfig)


@dataclass(frozen=True)
class BlockRecipe(Recipe):
    """A recipe of block, with the grid of its network and the choices of its loss."""

    SETTINGS = "blocks"
    net: BlockNetConfig = field(default_factory=BlockNetConfig)
    blocks: BlockLossConfig = field(default_factory=BlockLossConfig)


@dataclass(frozen=True)
class SphereRecipe(Recipe):
    """A recipe of sflm, with the choices of its network and its loss."""

    SETTINGS = "sphere"
    net: SphereNetConfig = field(default_factory=SphereNetConfig)
    sphere: SphereLossConfig = field(default_factory=SphereLossConfig)


@dataclass(frozen=True)
class LatentRecipe(Recipe):
    """A recipe of latentmdm, with the choices of its networks and segments."""

    SETTINGS = "segment_loss"
    net: LatentNetConfig = field(default_factory=LatentNetConfig)
    segments: SegmentConfig = field(default_factory=SegmentConfig)
    segment_loss: SegmentLossConfig = field(default_factory=SegmentLossConfig)


@dataclass(frozen=True)
class FlexLatentRecipe(Recipe):
    """A recipe of flexlatent, with the choices of its networks, segments and loss."""

    SETTINGS = "insertion"
    net: FlexLatentNetConfig = field(default_factory=FlexLatentNetConfig)
    segments: SegmentConfig = field(default_factory=SegmentConfig)
    insertion: SegmentInsertionConfig = field(default_factory=SegmentInsertionConfig)


PLAIN = ("loss", "start")
"""The fields of a recipe that are plain values, not groups of fields."""


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
    # A group checks its fields against each other, so all its changes are applied together.
    parts = {room: replace(getattr(recipe, room), **new) for room, new in rooms.items()}
    return replace(recipe, **plain, **parts)


def names(recipe: Recipe) -> list[str]:
    """Every field that `override` accepts."""
    found = list(PLAIN)
    for each in fields(recipe):
        if each.name not in (*PLAIN, "family"):
            prefix = "" if each.name == "train" else f"{each.name}."
            found += [prefix + inner.name for inner in fields(getattr(recipe, each.name))]
    return found
