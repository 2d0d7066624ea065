"""The models, their policies and all runs; the table at the top of the page; accuracy against cost.

Cost is network calls, which do not depend on the machine. Seconds are compared only between runs at
batch 1 with the same device and precision (measure/passk.py says why).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from anyorder.measure.intervals import Interval
from anyorder.report import charts
from anyorder.report.glossary import TERMS
from anyorder.report.runs import (
    Material,
    RunFacts,
    again,
    color_of,
    grading,
    main_runs,
    sampling,
)
from anyorder.report.sections.order import leftmost, place, writes_lines
from anyorder.report.sections.similarity import METRIC
from anyorder.report.tables import (
    NOTHING,
    POLICIES_MEAN,
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    apart,
    count,
    foldable,
    interval_of,
    missing,
    rate,
    score,
)

TITLE = "The models, and how they were made to write"


def section(material: Material) -> Section:
    """A paragraph for each family, the policies, and a table of all runs."""
    gathered = material.gathered
    families = list(dict.fromkeys(run.title for run in gathered))
    text = []
    for name in (name for name in families if name in TERMS):
        # The title of a term has the words behind its acronym in brackets.
        full = TERMS[name].title.partition("(")[2].rstrip(")")
        text.append(f"**{name}** ([[{name}|{full}]]). {TERMS[name].means}")
    ways = {run.policy: run.way for run in gathered if run.policy in POLICIES_MEAN}
    figures = []
    if ways:
        text.append("Which place comes next is decided by a rule, the [[policy]].")
        rules = tuple((Cell(way), Cell(POLICIES_MEAN[policy])) for policy, way in ways.items())
        figures.append(
            Figure(
                title="The rules for the order",
                commands=sampling(gathered.runs),
                tables=(Table(("rule", "what it does"), rules),),
            )
        )
    rows = tuple(
        (
            Cell(run.label, run.name),
            Cell(PurePath(run.model).name or NOTHING),
            Cell(run.task or "imported"),
            count(len({trace.task_id for trace in run.traces})),
            count(run.samples),
            missing()
            if (heat := run.options.get("temperature")) is None
            else Cell(f"{heat:g}", number=True),
        )
        for run in gathered
    )
    heads = (
        "[[run]]",
        "model",
        "task",
        "[[problem|problems]]",
        "[[sample|samples]] each",
        "[[temperature]]",
    )
    return Section(
        slug="models",
        title=TITLE,
        short="The models",
        text=tuple(text),
        figures=(
            *figures,
            Figure(
                title="All runs of this report",
                commands=sampling(gathered.runs),
                tables=(foldable(heads, rows, f"{len(rows)} runs"),),
            ),
        ),
    )


ROWS = 9


def glance(material: Material) -> Table:
    """The main numbers of each main run; columns without numbers are left out."""
    runs = main_runs(material.gathered.runs, ROWS)
    found = [_main_numbers(run, material) for run in runs]
    heads = [head for head in found[0] if any(numbers[head] for numbers in found)]
    rows = tuple(
        (Cell(run.label), *(numbers[head] or missing() for head in heads))
        for run, numbers in zip(runs, found, strict=True)
    )
    return Table(("run", *heads), rows)


def _main_numbers(run: RunFacts, material: Material) -> dict[str, Cell | None]:
    record = leftmost(run)
    first = rate(interval_of(record["interval"])) if record else None
    cbc = None if writes_lines(run) else place(run, "cbc")
    rows = [row for each in material.comparisons for row in each.rows]
    alike = [row.scores[METRIC] for row in rows if row.run is run and row.filter == "valid"]
    calls = run.timing.forwards if run.timing else None
    return {
        "[[passed|pass all tests]]": rate(run.rates[0].interval) if run.rates else None,
        "[[leftmost|leftmost token first]]": first,
        "[[CBC|blocks previewed]], 0 strict to 1 random": apart(cbc, 2) if cbc else None,
        "[[ASTD|like left to right]]": score(alike[0], 2) if alike else None,
        "[[network call|network calls]]": score(calls, 1) if calls else None,
    }


COST_TITLE = "What does it cost?"
SECONDS_TITLE = "How long does it take?"
WIDE = 4
"""Costs with a larger ratio than this get a logarithmic axis."""


def cost_sections(material: Material) -> list[Section | Absent]:
    """Accuracy against cost; seconds are absent if no runs are comparable.

    Nothing concerns runs that cannot be graded.
    """
    runs = [run for run in material.gathered.graded() if run.timing and run.timing.forwards]
    timed, gradable = _timed(material.gathered.graded()), material.gathered.gradable()
    found: list[Section | Absent] = []
    figures = []
    if len(runs) > 1:
        figures.append(_calls_figure(runs))
    if timed:
        figures.append(_seconds(timed))
    elif gradable:
        why = (
            "Seconds can be compared between graded runs that decode one sample at a time "
            "(batch 1) on the same device, on a machine that does nothing else."
        )
        found.append(Absent(SECONDS_TITLE, why, again(gradable[0], "--batch", "1")))
    if figures:
        text = (
            "Each step of decoding asks the network once or more often. A [[network call]] costs "
            "the same whatever the machine is busy with, so calls are the fair measure; a call "
            "over whole lines does more than one over tokens, so read them beside the seconds "
            "where these are given.",
        )
        found.insert(0, Section("cost", COST_TITLE, "Cost", text, tuple(figures)))
    return found


def _timed(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """The largest set of runs at batch 1 on one device and precision; empty if below two."""
    groups: dict[tuple[object, ...], list[RunFacts]] = {}
    for run in runs:
        if run.timing is not None and run.timing.batch == 1:
            groups.setdefault((run.timing.device, run.timing.dtype), []).append(run)
    best = max(groups.values(), key=len, default=[])
    return best if len(best) > 1 else []


def _calls_figure(runs: Sequence[RunFacts]) -> Figure:
    costs = [run.timing.forwards for run in runs if run.timing and run.timing.forwards]
    rows = tuple(
        (Cell(run.label), rate(run.rates[0].interval), score(cost, 1))
        for run, cost in zip(runs, costs, strict=True)
    )
    heads = ("run", "[[passed]]", "[[network call|network calls]]")
    return Figure(
        title="Right programs against network calls",
        drawing=_drawing("accuracy-against-calls", "network calls for one program", runs, costs),
        commands=(*sampling(runs), *grading(runs)),
        caption="Upper left is better. Whiskers are [[interval|95 % intervals]] over problems.",
        tables=(Table(heads, rows, title="Exact numbers", folded=True),),
    )


def _seconds(runs: Sequence[RunFacts]) -> Figure:
    timings = [run.timing for run in runs if run.timing]
    costs = [each.seconds for each in timings]
    rows = tuple(
        (Cell(run.label), rate(run.rates[0].interval), score(each.seconds), count(each.samples))
        for run, each in zip(runs, timings, strict=True)
    )
    device, dtype = timings[0].device, timings[0].dtype
    return Figure(
        title="Right programs against time",
        drawing=_drawing("accuracy-against-time", "seconds for one program", runs, costs),
        commands=(*sampling(runs), *grading(runs)),
        caption=f"Decoding alone, one sample at a time, on {device} in {dtype}; the first sample, "
        "which also warms up, is left out. Times are true only if nothing else ran.",
        tables=(Table(("run", "[[passed]]", "seconds", "samples timed"), rows),),
    )


def _drawing(
    name: str, x_label: str, runs: Sequence[RunFacts], costs: Sequence[Interval]
) -> charts.Drawing:
    families = list(dict.fromkeys(run.title for run in runs))
    named = main_runs(runs)  # names of all runs would cover each other
    series = []
    for title in families:
        own = [(run, cost) for run, cost in zip(runs, costs, strict=True) if run.title == title]
        series.append(
            charts.LineSeries(
                title,
                color_of(own[0][0]),
                [cost.estimate for _, cost in own],
                [run.rates[0].interval for run, _ in own],
                point_labels=[_short(run) if run in named else "" for run, _ in own],
            )
        )
    estimates = [cost.estimate for cost in costs]
    return charts.lines(
        charts.LineChart(
            name=name,
            alt=f"Share of right programs against {x_label}, a point for each run.",
            x_label=x_label,
            y_label="right programs",
            panels=(charts.LinePanel(tuple(series)),),
            log_x=max(estimates) > WIDE * min(estimates),
            connect=False,
            percent=True,
        )
    )


def _short(run: RunFacts) -> str:
    return run.title if run.left_to_right else f"{run.title}, {run.way}"
