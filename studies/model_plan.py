"""The models of the study: families, dials and seeds, and the trainings that make them.

A model ships with the package, or training commands make it: those of recipes/shipped_models.py
with another seed, or shorter ones at several settings of the corpus. This file trains nothing;
models.py does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STEPS, START_STEPS = 12_000, 4_000
"""Training steps of the shipped models and their other seeds; flexmdm begins with an mdm."""
DIAL_STEPS = 4_000
"""Training steps of the models of the dial: enough for mdm and latentmdm to solve nearly
everything, in a third of the time. flexmdm has as many again, after the mdm of the dial."""
WIDE = {"net.mlp_width": 272}
"""Makes an mdm as large as the other models."""
SHARED = {"first_weights": "in_order", "threads": 1}
"""Settings of all trainings; first weights are drawn as in the shipped models."""

SEEDS = (0, 1, 2)
FAMILIES = ("mdm", "flexmdm", "latentmdm")
DIALLED = (*FAMILIES, "flexlatent")
"""Families of the dial: fixed and growing canvases, of tokens and of segments."""
DIALS: Mapping[str, Mapping[str, float]] = {
    "layout0": {"data.layout": 0.0},
    "layout05": {"data.layout": 0.5},
    "layout1": {"data.layout": 1.0},
    "wording1": {"data.layout": 0.0, "data.wording": 1.0},
}
"""Settings of the corpus, by the part of a model's name."""


@dataclass(frozen=True)
class Training:
    """One training: a recipe and the changes to it."""

    name: str
    """The name of its folder."""
    recipe: str
    changes: Mapping[str, Any]
    start: str | None = None
    """The training that it begins with."""

    def words(self, folder: str) -> list[str]:
        """As a command, for models below `folder`."""
        words = ["anyorder", "train", self.recipe]
        words += ["--start", f"{folder}/{self.start}"] if self.start else []
        for name, value in self.changes.items():
            spelled = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{name.replace('_', '-')}", spelled]
        return [*words, "--out", f"{folder}/{self.name}"]


@dataclass(frozen=True)
class StudyModel:
    """A model, and how it is made."""

    name: str
    family: str
    dial: str
    seed: int = 0
    shipped: str | None = None
    """Its name in the package; None: it is trained by the study."""
    trainings: tuple[Training, ...] = ()
    """The last makes the model itself."""
    align: str = "left"
    dialled: bool = False
    """Whether it belongs to the dial, whose models have equal and shorter trainings."""


def all_models() -> list[StudyModel]:
    """In the order of the page."""
    found = [_model(family, seed) for seed in SEEDS for family in FAMILIES]
    found += [
        StudyModel(f"{family}-layout1", family, "layout1", shipped=family)
        for family in ("flexlatent", "ar", "duo", "sflm")
    ]
    found.append(StudyModel("planner-layout1", "mdm", "layout1", shipped="planner"))
    found += [_dialled(family, dial) for dial in DIALS for family in DIALLED]
    found.append(_right())
    return found


def _model(family: str, seed: int) -> StudyModel:
    """A model as it ships, or another seed of it."""
    dial = "layout1"
    if not seed:
        return StudyModel(f"{family}-{dial}", family, dial, shipped=family)
    name, more = f"{family}-{dial}-s{seed}", {**DIALS[dial], "seed": seed, **SHARED}
    if family == "flexmdm":
        start = Training(f"mdmstart-{dial}-s{seed}", "tiny/mdm", {"steps": START_STEPS, **more})
        rest = {"steps": STEPS - START_STEPS, **more}
        trainings = start, Training(name, "tiny/flexmdm", rest, start.name)
        return StudyModel(name, family, dial, seed, None, trainings)
    wide = WIDE if family == "mdm" else {}
    training = Training(name, f"tiny/{family}", {**wide, "steps": STEPS, **more})
    return StudyModel(name, family, dial, seed, None, (training,))


def _dialled(family: str, dial: str) -> StudyModel:
    """A model of the dial; flexmdm goes on from the mdm of the same setting."""
    changes = {"steps": DIAL_STEPS, **DIALS[dial], **SHARED}
    start = Training(f"mdm-dial-{dial}", "tiny/mdm", changes)
    name = f"{family}-dial-{dial}"
    if family == "mdm":
        trainings: tuple[Training, ...] = (start,)
    elif family == "flexmdm":
        trainings = start, Training(name, "tiny/flexmdm", changes, start.name)
    else:
        trainings = (Training(name, f"tiny/{family}", changes),)
    return StudyModel(name, family, dial, trainings=trainings, dialled=True)


def _right() -> StudyModel:
    """The mirror: the same programs at the end of the canvas."""
    name = "mdm-dial-right"
    changes = {"steps": DIAL_STEPS, **DIALS["layout1"], "data.align": "right", **SHARED}
    training = Training(name, "tiny/mdm", changes)
    return StudyModel(name, "mdm", "layout1", trainings=(training,), align="right", dialled=True)
