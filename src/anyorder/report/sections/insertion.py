"""The sweep of insertion temperatures (paper, appendix D), and the schedule counted in traces."""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.families.config import Description
from anyorder.report.charts import (
    LineChart,
    LinePanel,
    LineSeries,
    ScheduleChart,
    SchedulePanel,
    lines,
    schedule,
)
from anyorder.report.runs import (
    Material,
    RunFacts,
    again,
    color_of,
    grading,
    main_runs,
    sampling,
    shares_of,
)
from anyorder.report.sections.accuracy import differences_table
from anyorder.report.tables import Absent, Figure, Section, Table, label, plain, rate

SWEEP_TITLE = "How freely should new slots be placed?"
SCHEDULE_TITLE = "How does the canvas grow?"
SHOWN_ROWS = 9


def _inserts(family: Description) -> bool:
    return family.inserts


def sweeps(material: Material) -> list[list[RunFacts]]:
    """Groups of graded runs that differ only in their insertion temperature, sorted by it."""
    groups: dict[tuple[object, ...], dict[float, RunFacts]] = {}
    for run in material.gathered.graded():
        if run.description.inserts and run.options.get("insertion_temperature") is not None:
            key = (run.policy, *run.alike("insertion_temperature"))
            groups.setdefault(key, {}).setdefault(run.options["insertion_temperature"], run)
    return [
        [group[value] for value in sorted(group)] for group in groups.values() if len(group) > 1
    ]


def sweep_section(material: Material) -> Section | Absent | None:
    """Right programs over the insertion temperature; None if no model inserts."""
    found = sweeps(material)
    if not found:
        models = material.gathered.of(_inserts)
        if not models:
            return None
        command = again(models[0], "--insertion-temperature", "0.6")
        return Absent(
            SWEEP_TITLE, "It needs runs of one model at two insertion temperatures.", (command,)
        )
    runs = [run for group in found for run in group]
    series = []
    for group in found:
        at = [run.options["insertion_temperature"] for run in group]
        for number, dashed in ((0, False), (-1, True)):
            k = group[0].rates[number].k
            if number == 0 or k > 1:
                values = [run.rates[number].interval for run in group]
                name = f"{group[0].title}, {'one' if k == 1 else f'best of {k}'}"
                series.append(LineSeries(name, color_of(group[0]), at, values, dashed))
    drawing = lines(
        LineChart(
            name="insertion-temperature",
            alt="Share of right programs over the insertion temperature.",
            x_label="insertion temperature",
            y_label="right programs",
            panels=(LinePanel(tuple(series)),),
            x_ticks=tuple(sorted({run.options["insertion_temperature"] for run in runs})),
            percent=True,
        )
    )
    rows = tuple((label(run.label), *(rate(each.interval) for each in run.rates)) for run in runs)
    heads = ("run", *(f"[[pass@k|pass@{each.k}]]" for each in runs[0].rates))
    figure = Figure(
        title="Right programs at each insertion temperature",
        drawing=drawing,
        commands=(*sampling(runs), *grading(runs)),
        caption="Bands are [[interval|95 % intervals]] over problems.",
        tables=(
            Table(heads, rows),
            *(table for group in found for table in differences_table(group)),
        ),
    )
    text = (
        "A model that inserts decides in every step where new [[slot|slots]] go. The "
        "[[insertion temperature]] says how freely: at 1 as often as the model expects something "
        "to be missing there, below 1 rather where most is missing.",
    )
    return Section("insertion", SWEEP_TITLE, "Insertion temperature", text, (figure,))


def schedule_section(material: Material) -> Section | Absent | None:
    """Shares inserted, masked and written after each step; None if no model inserts."""
    inserting = material.gathered.of(_inserts)
    runs = main_runs([run for run in inserting if run.options.get("clock", "steps") == "steps"])
    if not inserting:
        return None
    if not runs:
        command = again(main_runs(inserting)[0], "--clock", "steps")
        return Absent(SCHEDULE_TITLE, "It needs a run of fixed steps.", (command,))
    panels, tables = [], []
    for run in runs:
        found = shares_of(run.traces)
        curves = {name: found[name] for name in ("inserted", "masked", "clean")}
        panels.append(SchedulePanel(run.label, "steps done", found["step"], curves))
        tables.append(_table(run, found))
    text = (
        "A model that inserts begins with an empty [[canvas]]. The [[schedule]] says how much of "
        "the final text is there after each step; slots stay [[mask|masked]] for a while, so that "
        "the layout can settle before words are chosen.",
    )
    figure = Figure(
        title="Inserted, masked and written, as shares of the final text",
        drawing=schedule(
            ScheduleChart(
                "schedule", "Shares of slots inserted, masked and written by step.", tuple(panels)
            )
        ),
        commands=sampling(runs),
        caption="Means over the samples, counted in their [[trace|traces]].",
        tables=tuple(tables),
    )
    return Section("schedule", SCHEDULE_TITLE, "How the canvas grows", text, (figure,))


def _table(run: RunFacts, found: dict[str, list[float]]) -> Table:
    steps = _some(len(found["step"]))
    rows = tuple(
        (
            label(f"after {found['step'][at]:g}"),
            *(plain(found[name][at], 2) for name in ("inserted", "masked", "clean")),
        )
        for at in steps
    )
    return Table(("steps", "inserted", "masked", "written"), rows, run.label, folded=True)


def _some(count: int) -> Sequence[int]:
    """Evenly spaced places of a list, with the first and the last."""
    shown = min(count, SHOWN_ROWS)
    return sorted({round(number * (count - 1) / max(1, shown - 1)) for number in range(shown)})
