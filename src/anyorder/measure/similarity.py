"""How close a policy's programs are to those of left-to-right decoding (Section 3.1, appendix B).

For a prompt q with samples D and reference samples R, and a similarity s of two programs,

    BM_q(s) = mean over y in D of max over x in R of s(y, x)

and the score is the mean of BM_q over prompts. Metrics: ASTD (anonymised Python syntax trees,
rename cost 1), TSED (tree-sitter's trees, rename cost 0), Coarse (statements, rename cost 1).
Filters: `valid`, both programs parse; `correct`, both pass the tests. A prompt counts where a
sample and a reference pass the filter.

Beside the policies stands a ceiling of our own: the reference's samples, each matched among the
others. A policy that only rediscovers what left-to-right finds scores about that, not 1.
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
from anyorder.measure.similarity_table import (
    SimilarityDifference,
    SimilarityRow,
    SimilarityTable,
)
from anyorder.measure.syntax_grammar import fingerprint
from anyorder.measure.tree import Tree
from anyorder.measure.tree_edit import Job, best_matches

FILTERS: dict[str, Callable[[Prepared], bool]] = {
    "valid": lambda item: bool(item.trees),
    "correct": lambda item: bool(item.trees) and item.sample.correct is True,
}


@dataclass(frozen=True)
class SimilarityOptions:
    """What to compare and how to say it."""

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
        chance = {"level": self.level, "resamples": self.resamples, "seed": self.seed}
        return mean_interval(values, **chance)  # type: ignore[arg-type]

    def difference(self, left: Sequence[float], right: Sequence[float]) -> Interval:
        """The mean difference over prompts."""
        chance = {"level": self.level, "resamples": self.resamples, "seed": self.seed}
        return difference_interval(left, right, **chance)  # type: ignore[arg-type]


class Group(NamedTuple):
    """The prompts of one row: per task the samples, and what they are matched with."""

    policy: str
    filter: str
    samples: dict[str, list[Prepared]]
    references: dict[str, list[Prepared]] | None
    """None: the other samples."""
    of_samples: int

    def tasks(self) -> list[str]:
        """Those with something to compare."""
        if self.references is None:
            return [task for task, rows in self.samples.items() if len(rows) > 1]
        return [task for task in self.samples if self.references.get(task)]


def similarity(
    runs: Any, reference: Any, options: SimilarityOptions | None = None
) -> SimilarityTable:
    """The similarity of each run to the reference run.

    `runs` is a run, several, or a mapping of names to them; a run may also be given as `Programs`.
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
    found: list[dict[str, dict[str, float]]] = [{} for _ in groups]
    where = [(number, task) for number, group in enumerate(groups) for task in group.tasks()]
    for metric in metrics:
        jobs = [_job(groups[number], task, metric) for number, task in where]
        matches = best_matches(jobs, METRICS[metric], threads=threads)
        for (number, task), match in zip(where, matches, strict=True):
            found[number].setdefault(task, {})[metric] = float(np.mean(match.similarity))
    return found


def settings(options: ProgramOptions) -> dict[str, Any]:
    """What the numbers depend on, for the record."""
    record: dict[str, Any] = {**asdict(options), "python": platform.python_version()}
    if "TSED" in options.metrics:
        record["grammar"] = fingerprint()
    return record


def _job(group: Group, task: str, metric: str) -> Job:
    others = None if group.references is None else _trees(group.references[task], metric)
    return Job(_trees(group.samples[task], metric), others)


def _trees(items: Sequence[Prepared], metric: str) -> list[Tree]:
    return [item.trees[metric] for item in items]


def usable_filters(
    programs: Sequence[Programs], asked: tuple[str, ...] | None
) -> tuple[tuple[str, ...], list[str]]:
    """The filters to use, and what to say about one that cannot be."""
    ungraded = [item.name for item in programs if not item.graded]
    if asked is None:
        if not ungraded:
            return tuple(FILTERS), []
        return ("valid",), [f"no correct pairs: {', '.join(ungraded)} not graded"]
    unknown = [name for name in asked if name not in FILTERS]
    if unknown or not asked:
        raise ValueError(f"filters is {asked}: choose some of {', '.join(FILTERS)}")
    if "correct" in asked and ungraded:
        raise ValueError(
            f"{ungraded[0]} has no verdicts, so which programs are correct is unknown: "
            "run `anyorder grade` on it, or ask for valid pairs only"
        )
    return asked, []


def _groups(
    name: str,
    policies: Mapping[str, dict[str, list[Prepared]]],
    base: tuple[str, dict[str, list[Prepared]]],
    ceiling: bool,
) -> Iterator[Group]:
    """The rows of one filter: every policy, then the reference itself."""
    base_name, base_tasks = base
    references = _kept(base_tasks, name)
    for policy, tasks in policies.items():
        shared = {task: items for task, items in tasks.items() if task in base_tasks}
        total = sum(len(items) for items in shared.values())
        yield Group(policy, name, _kept(shared, name), references, total)
    if ceiling:
        total = sum(len(items) for items in base_tasks.values())
        yield Group(base_name, name, references, None, total)


def _kept(tasks: Mapping[str, list[Prepared]], name: str) -> dict[str, list[Prepared]]:
    """The tasks that have samples which pass the filter, with those."""
    passes = FILTERS[name]
    kept = {task: [item for item in items if passes(item)] for task, items in tasks.items()}
    return {task: items for task, items in kept.items() if items}


def _row(
    group: Group, values: Mapping[str, Mapping[str, float]], options: SimilarityOptions
) -> SimilarityRow:
    metrics = options.programs.metrics
    return SimilarityRow(
        group.policy,
        group.filter,
        {name: options.interval([task[name] for task in values.values()]) for name in metrics},
        prompts=len(values),
        samples=sum(len(group.samples[task]) for task in values),
        of_samples=group.of_samples,
        per_prompt=values,
        ceiling=group.references is None,
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
