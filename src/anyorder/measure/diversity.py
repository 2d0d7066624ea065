"""How different the programs of one policy are from each other.

Per prompt, over the samples that parse (or that are correct):

    distinct texts   their number / samples
    distinct trees   the same by anonymised syntax tree (that of ASTD), so names do not count
    nearest          mean over samples of the similarity to the most similar other sample
    pairwise         mean similarity over all pairs of samples

then the mean over the prompts with two samples or more, with an interval over prompts. Shares fall
with the number of samples: compare equal numbers. And low similarity is not good by itself: wrong
programs differ easily, which is what the filters are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyorder.measure.intervals import Interval
from anyorder.measure.programs import METRICS, Preparation, Prepared, as_programs, count_statuses
from anyorder.measure.similarity import FILTERS, SimilarityOptions, settings, usable_filters
from anyorder.measure.tree import Tree
from anyorder.measure.tree_edit import Job, best_matches, similarities


@dataclass(frozen=True)
class DiversityRow:
    """One policy under one filter."""

    policy: str
    filter: str
    prompts: int
    """Those with two samples or more that pass the filter."""
    samples: int
    distinct: Mapping[str, Interval]
    """texts and trees: how many there are / samples."""
    nearest: Mapping[str, Interval]
    """By metric."""
    pairwise: Mapping[str, Interval]

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        record: dict[str, Any] = {
            "policy": self.policy,
            "filter": self.filter,
            "prompts": self.prompts,
            "samples": self.samples,
        }
        for name in ("distinct", "nearest", "pairwise"):
            scores = getattr(self, name)
            record[name] = {what: score.to_record() for what, score in scores.items()}
        return record


@dataclass(frozen=True)
class DiversityTable:
    """The diversity of some runs."""

    rows: tuple[DiversityRow, ...]
    statuses: Mapping[str, Mapping[str, int]]
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """As JSON; a missing number is null."""
        return {
            "rows": [row.to_record() for row in self.rows],
            "statuses": {name: dict(counts) for name, counts in self.statuses.items()},
            "settings": dict(self.settings),
            "notes": list(self.notes),
        }


def diversity(runs: Any, options: SimilarityOptions | None = None) -> DiversityTable:
    """The diversity of each run: a run, several, or a mapping of names to them.

    Of the options, `ceiling` plays no part here.
    """
    options = options or SimilarityOptions()
    policies = as_programs(runs)
    filters, notes = usable_filters(policies, options.filters)
    prepare = Preparation(options.programs)
    prepared = {programs.name: prepare.by_task(programs) for programs in policies}
    rows = tuple(
        _row(policy, name, tasks, options) for policy, tasks in prepared.items() for name in filters
    )
    statuses = {
        name: count_statuses(item for items in tasks.values() for item in items)
        for name, tasks in prepared.items()
    }
    return DiversityTable(rows, statuses, settings(options.programs), tuple(notes))


def _row(
    policy: str, name: str, tasks: Mapping[str, list[Prepared]], options: SimilarityOptions
) -> DiversityRow:
    passes = FILTERS[name]
    kept = [[item for item in items if passes(item)] for items in tasks.values()]
    groups = [items for items in kept if len(items) > 1]
    metrics = options.programs.metrics
    return DiversityRow(
        policy,
        name,
        prompts=len(groups),
        samples=sum(len(items) for items in groups),
        distinct={what: options.interval(list(values)) for what, values in _shares(groups)},
        nearest={m: options.interval(_nearest(_trees(groups, m), m, options)) for m in metrics},
        pairwise={m: options.interval(_pairwise(_trees(groups, m), m)) for m in metrics},
    )


def _shares(groups: Sequence[Sequence[Prepared]]) -> Iterator[tuple[str, list[float]]]:
    """Per prompt: distinct texts / samples, and distinct trees / samples."""
    yield "texts", [len({item.sample.text for item in items}) / len(items) for items in groups]
    yield "trees", [len({item.anonymous for item in items}) / len(items) for items in groups]


def _trees(groups: Sequence[Sequence[Prepared]], metric: str) -> list[list[Tree]]:
    return [[item.trees[metric] for item in items] for items in groups]


def _nearest(groups: list[list[Tree]], metric: str, options: SimilarityOptions) -> list[float]:
    jobs = [Job(trees, None) for trees in groups]
    matches = best_matches(jobs, METRICS[metric], threads=options.threads)
    return [float(np.mean(match.similarity)) for match in matches]


def _pairwise(groups: list[list[Tree]], metric: str) -> list[float]:
    means = []
    for trees in groups:
        values = similarities(trees, trees, METRICS[metric])
        means.append(float(np.mean(values[np.triu_indices(len(trees), 1)])))
    return means
