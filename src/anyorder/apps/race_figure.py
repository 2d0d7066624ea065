"""The figure of a race: how often right against how long it takes, with the Pareto front."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from anyorder.apps.race_families import ONE, SEVERAL
from anyorder.apps.race_results import Results, Timed
from anyorder.apps.race_tables import UNEQUAL
from anyorder.files import replacing
from anyorder.report.charts import PALETTE, Drawing
from anyorder.report.charts.front import FrontChart, FrontPanel, FrontPoint, FrontSeries, front

SPARE = ("committed", "score", "random", "top", "clean", "masked")
"""Colours for families, and second models of a family, that have none of their own."""


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
    panels = []
    for way in (ONE, SEVERAL):
        lanes = results.of_way(way)
        if lanes:
            panels.append(_panel(lanes, way, colors))
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


def _panel(lanes: list[Timed], way: str, colors: dict[str, str]) -> FrontPanel:
    k = lanes[0].rate.k
    title = "One attempt, temperature 0" if way == ONE else f"At least one of {k} drawn"
    label = "seconds for one attempt" if way == ONE else f"seconds for {k} attempts"
    series = tuple(
        FrontSeries(
            name,
            colors[name],
            # From the cheapest on, so that the line that joins them does not turn back.
            tuple(
                _point(lane)
                for lane in sorted(lanes, key=lambda lane: lane.total_seconds.estimate)
                if lane.entrant == name
            ),
        )
        for name in dict.fromkeys(colors)
    )
    return FrontPanel(title, label, tuple(each for each in series if each.points))


def _point(lane: Timed) -> FrontPoint:
    return FrontPoint(
        lane.total_seconds,
        lane.rate.interval,
        label=lane.setting if lane.front else "",
        front=lane.front,
    )


def _colors(results: Results) -> dict[str, str]:
    """A colour for every entrant: its family's where that is free, else a spare one."""
    found: dict[str, str] = {}
    for each in results.fairness.facts:
        own = [each.family] if each.family in PALETTE else []
        found[each.name] = _free([*own, *SPARE], found.values())
    return found


def _free(wanted: list[str], taken: Iterable[str]) -> str:
    """The first colour that is not taken; the last where all are."""
    used = set(taken)
    return next((color for color in wanted if color not in used), wanted[-1])
