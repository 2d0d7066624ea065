"""The shapes of a recipe's micro batch: what it costs on the average, and what it needs at most.

Lengths are the recipe's limits unless a mean is given. Which share of the answer is predicted:

    ar, duo, sflm     all of it
    mdm               n ~ Unif{1..N}: half; levels are stratified over B rows: at most N (B + 1) / 2
    flexmdm           masked at time t = 1 - u, for clocks 1 - u^a (insertion), 1 - u^c (unmasking):
                      a (u^a - u^c) / (c - a); its mean over u, and its largest value
    latentmdm         half of the slots are masked and written, the others encoded
    imitation         masked slots of a block: at most as many as mdm masks

Of a prompt and an answer that may share `max_length` tokens half is taken to be answer, except
where the answer fills a canvas. Not here: what such a batch costs (costs.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyorder.apps.costs import Shapes
from anyorder.families import find_family
from anyorder.recipes import Recipe


@dataclass(frozen=True)
class MicroBatch:
    """One micro batch: as it is on the average, and at its largest."""

    mean: Shapes
    peak: Shapes


def micro_batch(recipe: Recipe, length: float | None = None) -> MicroBatch:
    """The micro batch of a recipe; `length`: the mean tokens of a row, else all are full."""
    rows, data = recipe.train.micro_batch, recipe.data
    columns = float(min(length or data.max_length, data.max_length))
    fills = find_family(recipe.family).answers == "canvas"
    longest = float(min(data.canvas, data.max_length))
    answer = longest if fills else columns * min(0.5, longest / data.max_length)
    return MicroBatch(
        _shapes(recipe, rows, columns, answer, peak=False),
        _shapes(recipe, rows, float(data.max_length), longest, peak=True),
    )


def _shapes(recipe: Recipe, rows: int, columns: float, answer: float, *, peak: bool) -> Shapes:
    share = SHARES[recipe.loss if recipe.loss in SHARES else recipe.family](recipe, rows)
    predicted = rows * answer * share[peak]
    segments = getattr(recipe, "segments", None)
    if segments is None:
        return Shapes(rows, columns, predicted)
    slots = float(segments.slots)
    segment = min(segments.segment_length, answer / slots + 1)
    masked = rows * slots * share[peak]
    shown = rows * slots * (1 - share[False])
    again = shown if (recipe.settings.reconstruct > 0) else 0.0
    return Shapes(
        rows,
        columns,
        predicted=(masked + again) * segment,
        prompt=columns if peak else columns - answer,
        slots=slots,
        shown=shown,
        written=masked + again,
        segment=segment,
    )


Share = Callable[[Any, int], tuple[float, float]]
"""(recipe, rows) -> the predicted share of the answers: its mean, and its largest value."""


def _all(recipe: Recipe, rows: int) -> tuple[float, float]:
    return 1.0, 1.0


def _half(recipe: Recipe, rows: int) -> tuple[float, float]:
    return 0.5, 0.5 + 0.5 / rows


def _block(recipe: Recipe, rows: int) -> tuple[float, float]:
    """A block is half of the canvas or more on the average, and half of it is masked."""
    return 0.25 + 0.25 * recipe.settings.least_block / recipe.data.canvas, _half(recipe, rows)[1]


def _between_clocks(recipe: Any, rows: int) -> tuple[float, float]:
    """Inserted and not yet revealed."""
    a, c = recipe.net.insertion_exponent, recipe.net.unmasking_exponent
    if getattr(recipe.net, "coordinate", "progress") == "progress":
        a, c = 1.0, c / a  # u is then the share that is not inserted yet
    grid = [(number + 0.5) / 1024 for number in range(1024)]
    c = c if abs(c - a) > 1e-6 else a + 1e-6
    found = [a * (u**a - u**c) / (c - a) for u in grid]
    return sum(found) / len(found), max(found)


SHARES: dict[str, Share] = {
    "ar": _all,
    "duo": _all,
    "sflm": _all,
    "mdm": _half,
    "latentmdm": _half,
    "flexmdm": _between_clocks,
    "flexlatent": _between_clocks,
    "imitation": _block,
    "grpo": _all,
}
"""By family, or by a loss that has a rule of its own."""

LOGIT_BYTES: dict[str, float] = {
    "duo": 28.0,
    "imitation": 12.0,
}
USUAL_LOGIT_BYTES = 12.0
"""At the peak, for one float32 logit: log-probabilities, their gradient, the logits' gradient; for
imitation the logits and their float64 copy; duo has more (measured: tests/apps/test_dry_run.py)."""


def logit_bytes(recipe: Recipe) -> float:
    """What one predicted token needs for one word of the vocabulary, at the peak."""
    key = recipe.loss if recipe.loss in LOGIT_BYTES else recipe.family
    half = 2.0 if recipe.train.dtype == "bfloat16" else 0.0  # logits before they are widened
    return LOGIT_BYTES.get(key, USUAL_LOGIT_BYTES) + half
