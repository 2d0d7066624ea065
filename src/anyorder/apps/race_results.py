"""What a race found: rates against time for every point, who is on the front, and beside it what
each entrant says of held-out texts and how well it fills gaps.

Intervals are over problems (95 %, bootstrap; measure/intervals.py). Because all lanes ran on the
same problems in the same minutes, times are also compared problem by problem: `against` is the
ratio of a lane's mean time to the reference lane's, with the problems drawn together. Nothing here
measures or runs anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anyorder.apps.race_fairness import Fairness
from anyorder.apps.race_families import ONE, SEVERAL
from anyorder.apps.race_infill import Infilled
from anyorder.apps.race_lanes import Lane
from anyorder.apps.race_likelihood import Nats
from anyorder.measure.intervals import Interval, bootstrap, mean_interval, ratio_interval
from anyorder.measure.pareto import on_front
from anyorder.measure.passk import Rate, Verdicts, ks_up_to, pass_table

BUSY = 0.5
"""A load average by so much above the race's own threads means that more was running."""


@dataclass(frozen=True)
class Timed:
    """One lane, timed and graded."""

    lane: str
    entrant: str
    family: str
    setting: str
    """The point in words; empty where there is nothing to set."""
    way: str
    """one attempt, or several."""
    rates: tuple[Rate, ...]
    """pass@k for every k up to the samples."""
    seconds: Interval
    """Mean wall seconds of one sample."""
    median_seconds: Interval
    """Median over problems."""
    cpu_seconds: Interval
    """Mean CPU seconds of one sample, the making of its trace included."""
    forwards: Interval
    """Mean network calls of one sample."""
    against: Interval
    """Its mean seconds over those of the reference."""
    front: bool = False

    @property
    def rate(self) -> Rate:
        """At the largest k: pass@1 of one attempt, pass@k of k."""
        return self.rates[-1]

    @property
    def total_seconds(self) -> Interval:
        """Of the attempts that `rate` counts."""
        return self.seconds.times(self.rate.k)

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        numbers = {
            name: getattr(self, name).to_record()
            for name in ("seconds", "median_seconds", "cpu_seconds", "forwards", "against")
        }
        return {
            "lane": self.lane,
            "entrant": self.entrant,
            "family": self.family,
            "setting": self.setting,
            "way": self.way,
            "rates": [rate.to_record() for rate in self.rates],
            **numbers,
            "total_seconds": self.total_seconds.to_record(),
            "front": self.front,
        }


@dataclass(frozen=True)
class Conditions:
    """Where and how it was run."""

    task: str
    problems: int
    samples: int
    temperature: float
    seed: int
    threads: int
    device: str
    processors: int
    load: float | None
    """The mean load average over the rounds; the race itself is about `threads`."""
    reference: str
    """The entrant whose first lane times are compared with."""
    reference_setting: str
    """That lane's point in words; empty where there is nothing to set."""

    @property
    def busy(self) -> bool:
        """Whether other work ran beside it."""
        return self.load is not None and self.load > self.threads + BUSY


@dataclass(frozen=True)
class Results:
    """All that a race found."""

    conditions: Conditions
    fairness: Fairness
    lanes: tuple[Timed, ...]
    nats: Mapping[str, Nats]
    """By entrant; empty: not asked for."""
    texts: int
    """Texts behind `nats`."""
    infill: Mapping[str, Infilled]
    """By entrant that can; empty: not asked for, or nothing that all can hold."""
    gaps: int = 0
    """Programs behind `infill`."""
    gaps_left_out: int = 0
    """Programs that some entrant could not hold."""

    def of_way(self, way: str) -> list[Timed]:
        """One table's lanes, by rising time."""
        found = [lane for lane in self.lanes if lane.way == way]
        return sorted(found, key=lambda lane: lane.total_seconds.estimate)

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "conditions": vars(self.conditions) | {"busy": self.conditions.busy},
            "fairness": self.fairness.to_record(),
            "lanes": [lane.to_record() for lane in self.lanes],
            "front": {
                way: [lane.lane for lane in self.of_way(way) if lane.front]
                for way in (ONE, SEVERAL)
            },
            "likelihood": {name: each.to_record() for name, each in self.nats.items()},
            "likelihood_texts": self.texts,
            "infill": {name: each.to_record() for name, each in self.infill.items()},
            "infill_gaps": self.gaps,
            "infill_gaps_left_out": self.gaps_left_out,
        }


@dataclass(frozen=True)
class Measured:
    """The raw numbers of a lane: a list for each problem, an entry for each sample."""

    seconds: list[list[float]]
    cpu_seconds: list[list[float]]
    forwards: list[list[float]]
    passed: Verdicts


def timed(lane: Lane, found: Measured, reference: Measured) -> Timed:
    """The lane's estimates with their intervals."""
    per_problem = _means(found.seconds)
    return Timed(
        lane=lane.key,
        entrant=lane.entrant.name,
        family=lane.entrant.model.family.name,
        setting=lane.point.label,
        way=lane.way,
        rates=tuple(pass_table(found.passed, ks_up_to(lane.samples))),
        seconds=mean_interval(per_problem),
        median_seconds=bootstrap(lambda rows: np.median(rows, axis=-1), [per_problem]),
        cpu_seconds=mean_interval(_means(found.cpu_seconds)),
        forwards=mean_interval(_means(found.forwards)),
        against=ratio_interval(per_problem, _means(reference.seconds)),
    )


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    """Of every problem's samples."""
    return [sum(row) / len(row) for row in rows]


def with_fronts(lanes: Sequence[Timed]) -> tuple[Timed, ...]:
    """Which lanes nothing beats, among those of the same way."""
    found = {}
    for way in (ONE, SEVERAL):
        own = [lane for lane in lanes if lane.way == way]
        points = [(lane.total_seconds.estimate, lane.rate.interval.estimate) for lane in own]
        for lane, leads in zip(own, on_front(points), strict=True):
            found[lane.lane] = replace(lane, front=leads)
    return tuple(found[lane.lane] for lane in lanes)
