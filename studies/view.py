"""The stored study as the questions read it: runs by seed, and which models are trained.

Reads FOLDER alone. A missing run is None, and tables show that it is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from anyorder.measure.intervals import Interval
from studies.cells import Values, contrast_cell, difference_cell, mean_cell
from studies.model_plan import StudyModel
from studies.plan import Plan
from studies.records import RUNS, Stored, check_size

RACE_FILE = "race.json"
MODELS, WEIGHTS_FILE, SUMMARY_FILE = "models", "model.safetensors", "training.json"

Reading = Callable[[Stored], Values]
"""How values are read from a run, by task."""


@dataclass(frozen=True)
class Group:
    """The same run of several seeds; a missing run is None."""

    label: str
    seeds: tuple[tuple[int, Stored | None], ...]

    @property
    def stored(self) -> list[Stored]:
        """The runs that are there."""
        return [run for _, run in self.seeds if run is not None]

    @property
    def missing(self) -> list[int]:
        """Seeds without a run."""
        return [seed for seed, run in self.seeds if run is None]

    def mean(self, read: Reading, *, rate: bool = False) -> Interval:
        """The mean over all seeds that are there."""
        return mean_cell([read(run) for run in self.stored], rate=rate)

    def minus(
        self, other: Group, read: Reading, other_read: Reading | None = None, *, rate: bool = False
    ) -> Interval:
        """The paired difference over the seeds that both have."""
        ours, theirs = self.against(other)
        second = other_read or read
        return difference_cell(
            [read(run) for run in ours], [second(run) for run in theirs], rate=rate
        )

    def only(self, seed: int) -> Group:
        """One seed of it."""
        return Group(self.label, ((seed, dict(self.seeds).get(seed)),))

    def against(self, other: Group) -> tuple[list[Stored], list[Stored]]:
        """The runs of the seeds that both have."""
        theirs = dict(other.seeds)
        pairs = [
            (run, mate)
            for seed, run in self.seeds
            if run is not None and (mate := theirs.get(seed)) is not None
        ]
        return [run for run, _ in pairs], [mate for _, mate in pairs]


def contrast(first: tuple[Group, Group], second: tuple[Group, Group], read: Reading) -> Interval:
    """(Left minus right) of the first pair minus that of the second, on the seeds that all have."""
    groups = (*first, *second)
    shared = set.intersection(
        *({seed for seed, run in each.seeds if run is not None} for each in groups)
    )
    values = [
        [read(run) for seed, run in each.seeds if run is not None and seed in shared]
        for each in groups
    ]
    return contrast_cell((values[0], values[1]), (values[2], values[3]))


@dataclass(frozen=True)
class Study:
    """A study's folder, read by its plan."""

    folder: Path
    plan: Plan

    @cached_property
    def _known(self) -> dict[str, Stored | None]:
        return {}

    def run(self, name: str) -> Stored | None:
        """The records of a run; None: it is not done yet."""
        if name not in self.plan.runs:
            raise ValueError(f"the study has no run {name!r}")
        if name not in self._known:
            folder = self.folder / RUNS / name
            there = check_size(folder, self.plan.runs[name])
            self._known[name] = Stored(folder) if there else None
        return self._known[name]

    def check_sizes(self) -> None:
        """Refuse runs and a race of other sizes; missing ones are allowed."""
        for name in self.plan.runs:
            self.run(name)
        _ = self.race

    def group(self, family: str, kind: str, label: str = "") -> Group:
        """A kind of run over the seeds of a family."""
        return self.of_models(self.plan.seeds_of(family), kind, label or f"{family} {kind}")

    def dialled(self, family: str, kind: str, dial: str, label: str) -> Group:
        """A kind of run of the dial's model of one setting."""
        return self.of_models([self.plan.dialled(family, dial)], kind, label)

    def of_models(self, models: Sequence[StudyModel], kind: str, label: str) -> Group:
        """A kind of run over some models."""
        return Group(
            label, tuple((model.seed, self.run(f"{model.name}.{kind}")) for model in models)
        )

    def trained(self, model: StudyModel) -> bool:
        """Whether the model is there."""
        path = self.folder / MODELS / model.name / WEIGHTS_FILE
        return model.shipped is not None or path.is_file()

    def seconds(self, model: StudyModel) -> float | None:
        """How long its last training took; None: unknown."""
        path = self.folder / MODELS / model.name / SUMMARY_FILE
        if not path.is_file():
            return None
        try:
            # A training whose log is empty leaves an empty record.
            found = dict(json.loads(path.read_bytes())).get("seconds")
            return None if found is None else float(found)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path} is damaged ({error}): restore it, or delete it: the page works without it"
            ) from None

    @cached_property
    def race(self) -> dict[str, Any] | None:
        """The record of the race; None: it was not run yet."""
        path = self.folder / RACE_FILE
        if not path.is_file():
            return None
        try:
            found = dict(json.loads(path.read_bytes()))
            problems = found["conditions"]["problems"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}): delete it and race again") from None
        if problems != self.plan.sizes.race:
            raise ValueError(
                f"{path} is of {problems} problems, and {self.plan.sizes.race} are asked for: give "
                f"--race {problems}, or delete it and race again"
            )
        return found


def column(name: str, among: str | None = None) -> Reading:
    """A column of the samples' records."""
    return lambda run: run.values(name, among=among)


def beyond_chance(run: Stored) -> Values:
    """Tau of lines minus the tau of a random order, sample by sample."""
    return run.excess("segments.tau", "segments.tau.chance")
