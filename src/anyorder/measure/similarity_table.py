"""The table of structural similarity: tables 1 to 3 of the paper, for any runs, with intervals.

One row per policy and filter: the mean over prompts of each metric, an interval over prompts, and
how many prompts and samples are behind it. Differences between policies are paired by prompt, over
the prompts that both have. Computing the values is similarity.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyorder.measure.intervals import Interval


@dataclass(frozen=True)
class SimilarityRow:
    """One policy against the reference under one filter."""

    policy: str
    filter: str
    """valid: both programs parse; correct: both pass the tests."""
    scores: Mapping[str, Interval]
    """By metric; n is the number of prompts with a sample and a reference that pass the filter."""
    prompts: int
    samples: int
    """Samples that were matched."""
    of_samples: int
    """Samples of the policy on the reference's prompts."""
    per_prompt: Mapping[str, Mapping[str, float]]
    """task_id -> metric -> mean best match of its samples."""
    ceiling: bool = False
    """Whether this is the reference itself, each sample matched among the others."""

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "policy": self.policy,
            "filter": self.filter,
            "ceiling": self.ceiling,
            "prompts": self.prompts,
            "samples": self.samples,
            "of_samples": self.of_samples,
            "scores": {name: score.to_record() for name, score in self.scores.items()},
            "per_prompt": {task: dict(values) for task, values in self.per_prompt.items()},
        }


@dataclass(frozen=True)
class SimilarityDifference:
    """Two policies on the prompts that both have: the mean of left - right."""

    left: str
    right: str
    filter: str
    scores: Mapping[str, Interval]

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        scores = {name: score.to_record() for name, score in self.scores.items()}
        return {"left": self.left, "right": self.right, "filter": self.filter, "scores": scores}


@dataclass(frozen=True)
class SimilarityTable:
    """Structural similarity of runs to a reference run."""

    reference: str
    metrics: tuple[str, ...]
    rows: tuple[SimilarityRow, ...]
    differences: tuple[SimilarityDifference, ...]
    statuses: Mapping[str, Mapping[str, int]]
    """policy -> status -> samples; the reference included."""
    settings: Mapping[str, Any]
    """Options, and what else the numbers depend on: Python's version, the grammar's fingerprint."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""

    def row(self, policy: str, filter: str = "valid") -> SimilarityRow:
        """The row of a policy; ValueError where there is none."""
        for row in self.rows:
            if row.policy == policy and row.filter == filter and not row.ceiling:
                return row
        known = sorted({(row.policy, row.filter) for row in self.rows if not row.ceiling})
        raise ValueError(f"no row for {policy!r} under {filter!r}: there are {known}")

    def to_record(self) -> dict[str, Any]:
        """As JSON; a missing number is null."""
        return {
            "reference": self.reference,
            "metrics": list(self.metrics),
            "rows": [row.to_record() for row in self.rows],
            "differences": [item.to_record() for item in self.differences],
            "statuses": {name: dict(counts) for name, counts in self.statuses.items()},
            "settings": dict(self.settings),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """Lines to print: estimate and interval per metric."""
        head = ["against " + self.reference, "filter", "prompts", "samples", *self.metrics]
        lines = [head, *(self._cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([*text, *self.notes])

    def _cells(self, row: SimilarityRow) -> list[str]:
        name = f"{row.policy} (each among the others)" if row.ceiling else row.policy
        counts = [str(row.prompts), f"{row.samples}/{row.of_samples}"]
        return [name, row.filter, *counts, *(_shown(row.scores[m]) for m in self.metrics)]


def _shown(score: Interval) -> str:
    if np.isnan(score.estimate):
        return "-"
    return f"{score.estimate:.4f} [{score.low:.4f}, {score.high:.4f}]"
