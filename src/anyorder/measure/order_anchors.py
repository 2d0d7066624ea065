"""The order of a program's lines seen from its anchor: the name that the prompt asks about.

A task may say of a problem which place of the program its prompt names (facts `anchor`, such as
start, middle or goal, and `anchor_name`, the name; the run card holds them). Beside an anchor the
program may be easy to write, far from it hard. Two taus of one sample, each Kendall's tau-b:

    order       of when a line was finished and where it is: 1 is top to bottom, -1 bottom to top
    outwards    of when a line was finished and its distance from the anchor: 1 is outwards

The anchor is looked for in the program that was written, so that every layout and shape is judged
by its own lines: all lines that mention the name as a whole word have distance 0, another has the
number of lines to the nearest of these. A program that never mentions it has no `outwards`.

Lines without text and the line that defines the entry point are left out: the latter is the same in
all programs, so nothing is to be found out before it is written. Where a trace has segments, these
take the place of lines. Chance is 0 for segments, and for lines the mean over the random control.

Aggregation is in order_table.py. Letters: R rows of steps, N tokens, U units (lines or segments).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anyorder.measure.intervals import known_mean

IntArray = NDArray[np.int64]

ANCHOR, ANCHOR_NAME = "anchor", "anchor_name"
"""The facts of a problem that are read here."""
ANCHORS = ("start", "middle", "goal")
"""Anchors that are shown in this order, before all others."""


@dataclass(frozen=True)
class Units:
    """The parts of a program whose order is measured."""

    name: str
    """segment, or line where the trace has no segments."""
    number: IntArray  # N
    """The unit of each token: 0, 1, 2, ... from the top."""
    texts: tuple[str, ...]  # U


@dataclass(frozen=True)
class Tau:
    """One tau of one sample."""

    tau: float
    """NaN for fewer than two units, or if all are alike in one of the two."""
    chance: float


@dataclass(frozen=True)
class AnchorOrder:
    """The order of one sample's units seen from its anchor."""

    anchor: str
    unit: str
    """segment or line."""
    count: int
    """Units that are not left out."""
    order: Tau
    outwards: Tau


def anchor_order(
    units: Units, steps: IntArray, facts: Mapping[str, Any], entry_point: str | None
) -> AnchorOrder | None:
    """From the last step of each unit (R U): the sample's, then those of its random control.

    None if the task names no anchor.
    """
    if ANCHOR not in facts:
        return None
    header = _header(entry_point)
    kept = [n for n, text in enumerate(units.texts) if text.strip() and not header(text)]
    texts = [units.texts[number] for number in kept]
    own, random = steps[0, kept], steps[1:, kept]

    def tau(key: IntArray | None) -> Tau:
        found = math.nan if key is None else kendall(own, key)
        if key is None or math.isnan(found):
            return Tau(math.nan, math.nan)
        lines = units.name == "line"
        return Tau(found, known_mean(kendall(row, key) for row in random) if lines else 0.0)

    return AnchorOrder(
        str(facts[ANCHOR]),
        units.name,
        len(kept),
        order=tau(np.arange(len(kept))),
        outwards=tau(_distance(texts, facts.get(ANCHOR_NAME))),
    )


def _header(entry_point: str | None) -> Callable[[str], bool]:
    """Whether a unit is nothing but the line that defines the entry point."""
    if entry_point is None:
        return lambda text: False
    name = re.escape(entry_point.rpartition(".")[2])
    shape = re.compile(rf"(?:async\s+)?def\s+{name}\b.*:")
    return lambda text: shape.fullmatch(text.strip()) is not None


def _distance(texts: list[str], name: Any) -> IntArray | None:
    """How far each unit is from the nearest one that mentions the name; None if none does."""
    if name is None:
        return None
    word = re.compile(rf"(?<!\w){re.escape(str(name))}(?!\w)")
    there = np.array([n for n, text in enumerate(texts) if word.search(text)], dtype=np.int64)
    if not len(there):
        return None
    return np.asarray(np.abs(np.arange(len(texts))[:, None] - there).min(axis=1))


def kendall(one: IntArray, other: IntArray) -> float:
    """Kendall's tau-b of two keys of the same items; NaN where all items are alike in a key."""
    first, second = (np.sign(key[:, None] - key[None, :]) for key in (one, other))
    room = math.sqrt(float(np.abs(first).sum()) * float(np.abs(second).sum()))
    return float((first * second).sum()) / room if room else math.nan


Value = TypeVar("Value")


def by_anchor(
    values: Mapping[str, Value], facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Value]]:
    """Values by task id -> anchor -> the same for its problems; those without one are left out."""
    found: dict[str, dict[str, Value]] = {}
    for task_id, value in values.items():
        if ANCHOR in facts.get(task_id, ()):
            found.setdefault(str(facts[task_id][ANCHOR]), {})[task_id] = value
    return {anchor: found[anchor] for anchor in sorted(found, key=shown_first)}


def shown_first(anchor: str) -> tuple[int, str]:
    """A key to sort anchors by."""
    return (ANCHORS.index(anchor) if anchor in ANCHORS else len(ANCHORS)), anchor
