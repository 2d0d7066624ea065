"""The results of a race: pass rates against time for every lane, and the Pareto front.

The same `Results` become race.json (`to_record`), tables for a terminal and for race.md, and a
figure. Unequal conditions appear in each table's title, not in a note below it.

Intervals are over problems (95 %, bootstrap; measure/intervals.py). All lanes ran on the same
problems in the same minutes, so times are also compared problem by problem: `against` is the ratio
of a lane's mean time to the reference lane's, with the problems resampled together. Nothing here
runs a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.apps.race.beside import Infilled, Nats
from anyorder.apps.race.plan import ONE, SEVERAL, Fairness, Lane
from anyorder.files import replacing
from anyorder.measure.intervals import Interval, bootstrap, mean_interval, on_front, ratio_interval
from anyorder.measure.passk import Rate, Verdicts, ks_up_to, pass_table
from anyorder.report.charts import Drawing, chart_colors
from anyorder.report.charts.kinds import FrontChart, FrontPanel, FrontPoint, FrontSeries, front
from anyorder.report.tables import Cell, Table, missing, plain, score, to_markdown

BUSY = 0.5
"""If the load average exceeds the race's threads by more than this, other work was running."""


@dataclass(frozen=True)
class TimedLane:
    """One lane, timed and graded."""

    lane: str
    entrant: str
    family: str
    setting: str
    """The point in words; empty if there is nothing to set."""
    way: str
    """one attempt, or several."""
    rates: tuple[Rate, ...]
    """pass@k for every k up to the samples."""
    seconds: Interval
    """Mean wall seconds of one sample."""
    median_seconds: Interval
    """Median over problems."""
    cpu_seconds: Interval
    """Mean CPU seconds of one sample, including the making of its trace."""
    forwards: Interval
    """Mean network calls of one sample."""
    against: Interval
    """Ratio of its mean seconds to the reference lane's."""
    front: bool = False

    @property
    def rate(self) -> Rate:
        """The rate at the largest k: pass@1 of one attempt, pass@k of k."""
        return self.rates[-1]

    @property
    def total_seconds(self) -> Interval:
        """Seconds of all attempts that `rate` counts."""
        return self.seconds.times(self.rate.k)

    def to_record(self) -> dict[str, Any]:
        own = {
            name: value.to_record() if isinstance(value, Interval) else value
            for name, value in vars(self).items()
        }
        rates = [rate.to_record() for rate in self.rates]
        return own | {"rates": rates, "total_seconds": self.total_seconds.to_record()}


@dataclass(frozen=True)
class Conditions:
    """Where and how the race ran."""

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
    """The entrant whose first lane is the reference for times."""
    reference_setting: str
    """That lane's point in words; empty if there is nothing to set."""

    @property
    def busy(self) -> bool:
        """Whether other work ran beside it."""
        return self.load is not None and self.load > self.threads + BUSY


@dataclass(frozen=True)
class Results:
    """All that a race found."""

    conditions: Conditions
    fairness: Fairness
    lanes: tuple[TimedLane, ...]
    nats: Mapping[str, Nats]
    """By entrant; empty: not requested."""
    texts: int
    """Texts behind `nats`."""
    infill: Mapping[str, Infilled]
    """By entrant that can fill; empty: not requested, or no program fits all."""
    gaps: int = 0
    """Programs behind `infill`."""
    gaps_left_out: int = 0
    """Programs that some entrant could not hold."""

    def of_way(self, way: str) -> list[TimedLane]:
        """The lanes of one way, fastest first."""
        found = [lane for lane in self.lanes if lane.way == way]
        return sorted(found, key=lambda lane: lane.total_seconds.estimate)

    def to_record(self) -> dict[str, Any]:
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
class MeasuredLane:
    """The raw numbers of a lane: a list for each problem, an entry for each sample."""

    seconds: list[list[float]]
    cpu_seconds: list[list[float]]
    forwards: list[list[float]]
    passed: Verdicts


def timed(lane: Lane, found: MeasuredLane, reference: MeasuredLane) -> TimedLane:
    """The lane's estimates with their intervals."""
    per_problem = _means(found.seconds)
    return TimedLane(
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
    # Intervals are over problems, so the samples of a problem count as one number.
    return [sum(row) / len(row) for row in rows]


def with_fronts(lanes: Sequence[TimedLane]) -> tuple[TimedLane, ...]:
    """Mark the lanes on the Pareto front of their way."""
    found = {}
    for way in (ONE, SEVERAL):
        own = [lane for lane in lanes if lane.way == way]
        points = [(lane.total_seconds.estimate, lane.rate.interval.estimate) for lane in own]
        for lane, leads in zip(own, on_front(points), strict=True):
            found[lane.lane] = replace(lane, front=leads)
    return tuple(found[lane.lane] for lane in lanes)


UNEQUAL = "NOT EQUAL CONDITIONS"
FRONT = "*"


def tables_of(results: Results) -> list[Table]:
    """All tables of a race."""
    ways = {way: lanes for way in (ONE, SEVERAL) if (lanes := results.of_way(way))}
    return [_entrants(results), *(_race(results, way, lanes) for way, lanes in ways.items())]


def markdown(tables: Sequence[Table], heading: str) -> str:
    """A page with all tables."""
    return "\n\n".join([f"# {heading}", *map(to_markdown, tables)]) + "\n"


def _warning(results: Results) -> str:
    return "" if results.fairness.equal else f" ({UNEQUAL})"


def _entrants(results: Results) -> Table:
    rows = []
    for each in results.fairness.facts:
        nats, filled = results.nats.get(each.name), results.infill.get(each.name)
        rows.append(
            (
                each.name,
                each.family,
                f"{each.parameters:,}",
                "unknown" if each.texts is None else f"{each.texts:,}",
                missing() if nats is None else _nats(nats),
                "not measured" if nats is None else nats.name,
                missing() if filled is None else _percent(filled.rate),
                missing() if filled is None else filled.told,
            )
        )
    heads = (
        *("model", "family", "parameters", "training texts", "nats per answer", "which is"),
        *("middle filled, %", "told of the gap"),
    )
    notes = [f"{UNEQUAL}: {line}" for line in results.fairness.differences]
    notes += [f"not known: {line}" for line in results.fairness.unknown]
    if results.nats:
        notes.append(
            f"nats per answer: {results.texts} held-out texts, less is better; after <= a bound, "
            "and the truth may be far below it"
        )
    if results.gaps or results.gaps_left_out:
        notes.append(
            f"middle filled: {results.gaps} held-out programs; {results.gaps_left_out} more are "
            "left out, which some model cannot hold"
        )
    return Table(heads, tuple(rows), f"The entrants{_warning(results)}", tuple(notes))


def _race(results: Results, way: str, lanes: Sequence[TimedLane]) -> Table:
    several, k = way == SEVERAL, lanes[0].rate.k
    about = results.conditions
    title = (
        f"{k} attempts at temperature {about.temperature:g}"
        if several
        else "One attempt at temperature 0"
    )
    setting = f" at {about.reference_setting}" if about.reference_setting else ""
    reference = f"x {about.reference}{setting}"
    heads = ["front", "model", "setting", *(["pass@1, %"] if several else []), f"pass@{k}, %"]
    heads += [f"ms of {k}" if several else "ms", "median ms", "CPU ms", "calls", reference]
    rows = [_row(lane, several) for lane in lanes]
    notes = [
        f"{FRONT}: on the Pareto front, nothing else is both as fast and as often right; "
        f"{about.problems} problems, 95 % intervals over them",
        f"batch 1, {about.threads} {'thread' if about.threads == 1 else 'threads'} on "
        f"{about.device}, problem by problem in shuffled order, warm-up left out; median, CPU and "
        "calls are of one sample",
    ]
    if about.busy:
        notes.append(
            f"other work ran on this machine (mean load {about.load:.1f} on {about.processors} "
            "processors): read the ratios, not the milliseconds"
        )
    return Table(tuple(heads), tuple(rows), f"{title}{_warning(results)}", tuple(notes))


def _row(lane: TimedLane, several: bool) -> tuple[Cell | str, ...]:
    first = [_percent(lane.rates[0].interval)] if several else []
    return (
        FRONT if lane.front else "",
        lane.entrant,
        lane.setting or missing(),
        *first,
        _percent(lane.rate.interval),
        score(lane.total_seconds.times(1000), 0),
        plain(1000 * lane.median_seconds.estimate, 0),
        plain(1000 * lane.cpu_seconds.estimate, 0),
        plain(lane.forwards.estimate, 1),
        score(lane.against, 2),
    )


def _percent(value: Interval) -> Cell:
    return score(value.times(100), 0)


def _nats(found: Nats) -> Cell:
    if found.interval is None:
        return missing()
    cell = score(found.interval, 2)
    return cell if found.exact else replace(cell, text=f"<= {cell.text}")


SPARE = ("committed", "score", "random", "top", "clean", "masked")
"""Colours for families without a colour, and for second models of a family."""


def save_figure(results: Results, folder: Path) -> list[Path]:
    """`race.svg`, `race.png` and `race.pdf` in `folder`."""
    drawing = figure(results)
    path = folder / f"{drawing.name}.svg"
    with replacing(path) as file:
        file.write(drawing.svg().encode())
    return [path, *drawing.save(folder)]


def figure(results: Results) -> Drawing:
    """One panel for one attempt, one for several."""
    colors = _colors(results)
    panels = [
        _panel(lanes, way, colors) for way in (ONE, SEVERAL) if (lanes := results.of_way(way))
    ]
    warning = ""
    if not results.fairness.equal:
        warning = f"{UNEQUAL}: {'; '.join(results.fairness.differences)}"
    return front(
        FrontChart(
            name="race",
            alt="Share of problems solved against seconds, for every model and setting; "
            f"{sum(lane.front for lane in results.lanes)} points are on a Pareto front. {warning}",
            value_label="problems solved",
            panels=tuple(panels),
            warning=warning,
        )
    )


def _panel(lanes: list[TimedLane], way: str, colors: dict[str, str]) -> FrontPanel:
    k = lanes[0].rate.k
    title = "One attempt, temperature 0" if way == ONE else f"At least one of {k} drawn"
    label = "seconds for one attempt" if way == ONE else f"seconds for {k} attempts"
    series = tuple(
        FrontSeries(
            name,
            colors[name],
            # The lanes come cheapest first, so the line that joins them does not turn back.
            tuple(_point(lane) for lane in lanes if lane.entrant == name),
        )
        for name in dict.fromkeys(colors)
    )
    return FrontPanel(title, label, tuple(each for each in series if each.points))


def _point(lane: TimedLane) -> FrontPoint:
    return FrontPoint(
        lane.total_seconds,
        lane.rate.interval,
        label=lane.setting if lane.front else "",
        front=lane.front,
    )


def _colors(results: Results) -> dict[str, str]:
    """A colour for every entrant: its family's if that is free, else a spare one."""
    found: dict[str, str] = {}
    known = chart_colors()
    for each in results.fairness.facts:
        own = [each.family] if each.family in known else []
        found[each.name] = _free([*own, *SPARE], found.values())
    return found


def _free(wanted: list[str], taken: Iterable[str]) -> str:
    """The first colour that is not taken, or the last if all are."""
    used = set(taken)
    return next((color for color in wanted if color not in used), wanted[-1])
