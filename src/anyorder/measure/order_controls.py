"""What the same program would score had its tokens come in another order.

A high order score is not good by itself: random order scores higher than any model. A control keeps
the final program and the sample's own steps, as many tokens at each step as before, and deals them
out anew:

    left_to_right    the steps sorted
    right_to_left    the same, backwards
    random           permuted, once per seed
    segments         the segments' last steps permuted over the segments, once per seed: what chance
                     scores for a sampler that commits a segment at once

Tokens outside the program and tokens that were given keep their steps. A permutation depends on
the seed, the task and the sample's number, and on nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anyorder.trace import Trace

IntArray = NDArray[np.int64]

LEFT_TO_RIGHT, RIGHT_TO_LEFT, RANDOM, SEGMENTS = (
    *("left_to_right", "right_to_left", "random", "segments"),
)
SEEDS = tuple(range(8))


@dataclass(frozen=True)
class Dealt:
    """One sample's movable tokens, left to right."""

    steps: IntArray
    segments: IntArray | None
    """The segment of each, -1 for none; None where the trace has no segments."""
    keys: tuple[tuple[int, int, int], ...]
    """What the permutations depend on: one key per seed."""


def control_keys(trace: Trace, seeds: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Seed, sample and task, as numbers."""
    return tuple((seed, trace.sample, zlib.crc32(trace.task_id.encode())) for seed in seeds)


def _left_to_right(dealt: Dealt) -> list[IntArray]:
    return [np.sort(dealt.steps)]


def _right_to_left(dealt: Dealt) -> list[IntArray]:
    return [np.sort(dealt.steps)[::-1]]


def _random(dealt: Dealt) -> list[IntArray]:
    return [np.random.default_rng(key).permutation(dealt.steps) for key in dealt.keys]


def _segments(dealt: Dealt) -> list[IntArray]:
    if dealt.segments is None:
        return []
    _, which = np.unique(dealt.segments, return_inverse=True)
    last = segment_steps(dealt.steps, which)
    return [np.random.default_rng(key).permutation(last)[which] for key in dealt.keys]


def segment_steps(steps: IntArray, which: IntArray) -> IntArray:
    """The last step of each segment, when tokens belong to segments 0, 1, 2, ..."""
    last = np.zeros(int(which.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(last, which, steps)
    return last


CONTROLS: dict[str, Callable[[Dealt], list[IntArray]]] = {
    LEFT_TO_RIGHT: _left_to_right,
    RIGHT_TO_LEFT: _right_to_left,
    RANDOM: _random,
    SEGMENTS: _segments,
}


def deal(
    steps: IntArray, movable: NDArray[np.bool_], dealt: Dealt, names: Sequence[str]
) -> tuple[IntArray, dict[str, slice]]:
    """The steps of a sample and of its controls, one row each, and which rows are whose.

    `steps` are those of all tokens, of which `movable` marks the ones that `dealt` holds.
    """
    rows = [steps]
    where = {}
    for name in names:
        made = CONTROLS[name](dealt)
        where[name] = slice(len(rows), len(rows) + len(made))
        for values in made:
            row = steps.copy()
            row[movable] = values
            rows.append(row)
    return np.stack(rows), where
