"""Structural similarity to left-to-right decoding (Section 3.1, appendix B), and diversity.

For a prompt q with samples D and reference samples R, and a similarity s of two programs,

    BM_q(s) = mean over y in D of max over x in R of s(y, x)

and the score is the mean of BM_q over prompts. Metrics: ASTD (anonymised Python syntax trees,
rename cost 1), TSED (tree-sitter's trees, rename cost 0), Coarse (statements, rename cost 1).
Filters: `valid`, both programs parse; `correct`, both pass the tests. A prompt counts where a
sample and a reference pass the filter.

`SimilarityTable` has the rows of tables 1 to 3 of the paper, one per policy and filter, with
intervals over prompts. Differences between policies are paired by prompt. The ceiling is our own:
the reference's samples, each matched among the others. A policy that only rediscovers what
left-to-right finds scores about that, not 1.

Diversity: how the programs of one policy differ. Per prompt, over the samples that pass the filter:

    distinct texts   their number / samples
    distinct trees   the same by anonymised syntax tree (that of ASTD), so names do not count
    nearest          mean over samples of the similarity to the most similar other sample
    pairwise         mean similarity over all pairs of samples

then the mean over the prompts with two samples or more. Shares fall with the number of samples:
compare equal numbers. Low similarity is not good as such: wrong programs differ easily, which is
why there are filters.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from anyorder.measure.intervals import (
    LEVEL,
    RESAMPLES,
    Interval,
    Resampling,
    as_record,
    difference_interval,
    mean_interval,
)
from anyorder.measure.programs import (
    METRICS,
    Preparation,
    Prepared,
    ProgramOptions,
    Programs,
    as_programs,
    count_statuses,
)
from anyorder.measure.tree_edit import EditJob, best_matches, similarities
from anyorder.measure.trees import Tree, fingerprint


@dataclass(frozen=True)
class SimilarityRow:
    """One policy against the reference under one filter."""

    policy: str
    filter: str
    """valid: both programs parse; correct: both pass the tests."""
    ceiling: bool
    """Whether this is the reference, each sample matched among the others."""
    prompts: int
    samples: int
    """Samples that were matched."""
    of_samples: int
    """Samples of the policy on the reference's prompts."""
    scores: Mapping[str, Interval]
    """By metric; n is the number of prompts with a sample and a reference that pass the filter."""
    per_prompt: Mapping[str, Mapping[str, float]]
    """task_id -> metric -> mean best match of its samples."""

    def to_record(self) -> dict[str, Any]:
        return as_record(self)


@dataclass(frozen=True)
class SimilarityDifference:
    """Two policies on the prompts that both have: the mean of left - right."""

    left: str
    right: str
    filter: str
    scores: Mapping[str, Interval]

    def to_record(self) -> dict[str, Any]:
        return as_record(self)


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
    """All that the numbers depend on: options, Python's version, the grammar's fingerprint."""
    notes: tuple[str, ...] = ()
    """Why rows are missing."""

    def row(self, policy: str, filter: str = "valid") -> SimilarityRow:
        """The row of a policy; ValueError if there is none."""
        for row in self.rows:
            if row.policy == policy and row.filter == filter and not row.ceiling:
                return row
        known = sorted({(row.policy, row.filter) for row in self.rows if not row.ceiling})
        raise ValueError(f"no row for {policy!r} under {filter!r}: there are {known}")

    def to_record(self) -> dict[str, Any]:
        """As JSON; a missing number is null."""
        return as_record(self)

    def __str__(self) -> str:
        """A table to print: estimate and interval per metric."""
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


FILTERS: dict[str, Callable[[Prepared], bool]] = {
    "valid": lambda item: bool(item.trees),
    "correct": lambda item: bool(item.trees) and item.sample.correct is True,
}


@dataclass(frozen=True)
class SimilarityOptions:
    """How to compare, and how to draw intervals."""

    programs: ProgramOptions = field(default_factory=ProgramOptions)
    filters: tuple[str, ...] | None = None
    """None: valid, and correct where every run was graded."""
    ceiling: bool = True
    """Whether the reference is also compared with itself, each sample among the others."""
    level: float = LEVEL
    resamples: int = RESAMPLES
    seed: int = 0
    threads: int | None = None
    """None: all processors."""

    def interval(self, values: Sequence[float]) -> Interval:
        """The mean over prompts."""
        return mean_interval(values, **self._drawing)

    def difference(self, left: Sequence[float], right: Sequence[float]) -> Interval:
        """The mean difference over prompts."""
        return difference_interval(left, right, **self._drawing)

    @property
    def _drawing(self) -> Resampling:
        return {"level": self.level, "resamples": self.resamples, "seed": self.seed}


class Group(NamedTuple):
    """The prompts of one row: per task the samples and their references."""

    policy: str
    filter: str
    samples: dict[str, list[Prepared]]
    references: dict[str, list[Prepared]] | None
    """None: each sample is matched with the others."""
    of_samples: int

    def tasks(self) -> list[str]:
        """The tasks with something to compare."""
        if self.references is None:
            return [task for task, rows in self.samples.items() if len(rows) > 1]
        return [task for task in self.samples if self.references.get(task)]


def similarity(
    runs: Any, reference: Any, options: SimilarityOptions | None = None
) -> SimilarityTable:
    """The similarity of each run to the reference run.

    `runs` is a run or `Programs`, a sequence of them, or a mapping of names to them.
    """
    options = options or SimilarityOptions()
    policies, [base] = as_programs(runs), as_programs(reference)
    filters, notes = usable_filters([*policies, base], options.filters)
    prepare = Preparation(options.programs)
    references = prepare.by_task(base)
    prepared = {programs.name: prepare.by_task(programs) for programs in policies}
    notes += [
        f"{name} has no task in common with {base.name}: compare runs of the same task"
        for name, tasks in prepared.items()
        if not tasks.keys() & references.keys()
    ]
    groups = [
        group
        for name in filters
        for group in _groups(name, prepared, (base.name, references), options.ceiling)
    ]
    values = matched(groups, options.programs.metrics, options.threads)
    rows = tuple(_row(group, found, options) for group, found in zip(groups, values, strict=True))
    statuses = {
        name: count_statuses(item for items in tasks.values() for item in items)
        for name, tasks in [*prepared.items(), (f"{base.name} (reference)", references)]
    }
    return SimilarityTable(
        base.name,
        options.programs.metrics,
        rows,
        tuple(_differences(rows, options)),
        statuses,
        settings(options.programs) | {"level": options.level, "resamples": options.resamples},
        tuple(notes),
    )


def matched(
    groups: Sequence[Group], metrics: Sequence[str], threads: int | None
) -> list[dict[str, dict[str, float]]]:
    """Per group: task -> metric -> mean best match."""
    # All groups of a metric go to one call, so that its threads share the whole work.
    found: list[dict[str, dict[str, float]]] = [{} for _ in groups]
    where = [(number, task) for number, group in enumerate(groups) for task in group.tasks()]
    for metric in metrics:
        jobs = []
        for group, task in ((groups[number], task) for number, task in where):
            references = group.references
            others = None if references is None else _trees(references[task], metric)
            jobs.append(EditJob(_trees(group.samples[task], metric), others))
        matches = best_matches(jobs, METRICS[metric], threads=threads)
        for (number, task), match in zip(where, matches, strict=True):
            found[number].setdefault(task, {})[metric] = float(np.mean(match.similarity))
    return found


def settings(options: ProgramOptions) -> dict[str, Any]:
    """All that the numbers depend on, for the record."""
    record: dict[str, Any] = {**asdict(options), "python": platform.python_version()}
    if "TSED" in options.metrics:
        record["grammar"] = fingerprint()
    return record


def _trees(items: Sequence[Prepared], metric: str) -> list[Tree]:
    return [item.trees[metric] for item in items]


def usable_filters(
    programs: Sequence[Programs], given: tuple[str, ...] | None
) -> tuple[tuple[str, ...], list[str]]:
    """The filters to use, and a note where one cannot be used."""
    ungraded = [item.name for item in programs if not item.graded]
    if given is None:
        if not ungraded:
            return tuple(FILTERS), []
        return ("valid",), [f"no correct pairs: {', '.join(ungraded)} not graded"]
    unknown = [name for name in given if name not in FILTERS]
    if unknown or not given:
        raise ValueError(f"filters is {given}: choose some of {', '.join(FILTERS)}")
    if "correct" in given and ungraded:
        raise ValueError(
            f"{ungraded[0]} has no verdicts, so which programs are correct is unknown: "
            "run `anyorder grade` on it, or compare valid pairs only"
        )
    return given, []


def _groups(
    name: str,
    policies: Mapping[str, dict[str, list[Prepared]]],
    base: tuple[str, dict[str, list[Prepared]]],
    ceiling: bool,
) -> Iterator[Group]:
    """The rows of one filter: every policy, then the reference itself."""
    base_name, base_tasks = base
    references = _passing(base_tasks, name)
    for policy, tasks in policies.items():
        shared = {task: items for task, items in tasks.items() if task in base_tasks}
        total = sum(len(items) for items in shared.values())
        yield Group(policy, name, _passing(shared, name), references, total)
    if ceiling:
        total = sum(len(items) for items in base_tasks.values())
        yield Group(base_name, name, references, None, total)


def _passing(tasks: Mapping[str, list[Prepared]], name: str) -> dict[str, list[Prepared]]:
    """The samples that pass the filter, by task; tasks without any are left out."""
    passes = FILTERS[name]
    found = {task: [item for item in items if passes(item)] for task, items in tasks.items()}
    return {task: items for task, items in found.items() if items}


def _row(
    group: Group, values: Mapping[str, Mapping[str, float]], options: SimilarityOptions
) -> SimilarityRow:
    metrics = options.programs.metrics
    return SimilarityRow(
        group.policy,
        group.filter,
        ceiling=group.references is None,
        prompts=len(values),
        samples=sum(len(group.samples[task]) for task in values),
        of_samples=group.of_samples,
        scores={m: options.interval([task[m] for task in values.values()]) for m in metrics},
        per_prompt=values,
    )


def _differences(
    rows: Sequence[SimilarityRow], options: SimilarityOptions
) -> Iterator[SimilarityDifference]:
    """Every two policies under the same filter, on the prompts of both."""
    for left, right in combinations([row for row in rows if not row.ceiling], 2):
        if left.filter != right.filter:
            continue
        tasks = [task for task in left.per_prompt if task in right.per_prompt]
        scores = {
            name: options.difference(
                [left.per_prompt[task][name] for task in tasks],
                [right.per_prompt[task][name] for task in tasks],
            )
            for name in options.programs.metrics
        }
        yield SimilarityDifference(left.policy, right.policy, left.filter, scores)


@dataclass(frozen=True)
class DiversityRow:
    """One policy under one filter."""

    policy: str
    filter: str
    prompts: int
    """Prompts with two samples or more that pass the filter."""
    samples: int
    distinct: Mapping[str, Interval]
    """texts and trees: distinct ones / samples."""
    nearest: Mapping[str, Interval]
    """By metric."""
    pairwise: Mapping[str, Interval]

    def to_record(self) -> dict[str, Any]:
        return as_record(self)


@dataclass(frozen=True)
class DiversityTable:
    """The diversity of some runs."""

    rows: tuple[DiversityRow, ...]
    statuses: Mapping[str, Mapping[str, int]]
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """As JSON; a missing number is null."""
        return as_record(self)


def diversity(runs: Any, options: SimilarityOptions | None = None) -> DiversityTable:
    """The diversity of each run: a run, several, or a mapping of names to them.

    The option `ceiling` has no effect here.
    """
    options = options or SimilarityOptions()
    policies = as_programs(runs)
    filters, notes = usable_filters(policies, options.filters)
    prepare = Preparation(options.programs)
    prepared = {programs.name: prepare.by_task(programs) for programs in policies}
    rows = tuple(
        _diversity_row(policy, name, tasks, options)
        for policy, tasks in prepared.items()
        for name in filters
    )
    statuses = {
        name: count_statuses(item for items in tasks.values() for item in items)
        for name, tasks in prepared.items()
    }
    return DiversityTable(rows, statuses, settings(options.programs), tuple(notes))


def _diversity_row(
    policy: str, name: str, tasks: Mapping[str, list[Prepared]], options: SimilarityOptions
) -> DiversityRow:
    groups = [items for items in _passing(tasks, name).values() if len(items) > 1]
    trees = {m: [_trees(items, m) for items in groups] for m in options.programs.metrics}
    return DiversityRow(
        policy,
        name,
        prompts=len(groups),
        samples=sum(len(items) for items in groups),
        distinct={
            "texts": _distinct(groups, lambda item: item.sample.text, options),
            "trees": _distinct(groups, lambda item: item.anonymous, options),
        },
        nearest={m: options.interval(_nearest(own, m, options)) for m, own in trees.items()},
        pairwise={m: options.interval(_pairwise(own, m)) for m, own in trees.items()},
    )


def _distinct(
    groups: Sequence[Sequence[Prepared]],
    part: Callable[[Prepared], object],
    options: SimilarityOptions,
) -> Interval:
    """Per prompt: distinct ones / samples."""
    return options.interval([len(set(map(part, items))) / len(items) for items in groups])


def _nearest(groups: list[list[Tree]], metric: str, options: SimilarityOptions) -> list[float]:
    jobs = [EditJob(trees, None) for trees in groups]
    matches = best_matches(jobs, METRICS[metric], threads=options.threads)
    return [float(np.mean(match.similarity)) for match in matches]


def _pairwise(groups: list[list[Tree]], metric: str) -> list[float]:
    means = []
    for trees in groups:
        values = similarities(trees, trees, METRICS[metric])
        means.append(float(np.mean(values[np.triu_indices(len(trees), 1)])))
    return means
