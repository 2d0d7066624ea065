"""How often the programs are right: every run's pass@1, with what each run is and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anyorder.bench.verdicts import VERDICTS, shown
from anyorder.report.charts import Bar, BarChart, BarGroup, BarPanel, Series, bars
from anyorder.report.runs import RunFacts
from anyorder.report.sections.material import (
    Material,
    color_of,
    drawn_runs,
    grading,
    sampling,
    split_tables,
)
from anyorder.report.sections.section import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    count,
    label,
    missing,
    rate,
)

TITLE = "How often is the program right?"


def section(material: Material) -> Section | Absent:
    """The section, or what is missing for it."""
    runs = material.gathered.graded()
    if not runs:
        commands = tuple(run.command("grade") for run in material.gathered)
        return Absent(TITLE, "No run has been graded.", commands)
    drawn, everything = drawn_runs(runs), list(material.gathered)
    listed = everything if len(drawn) == len(runs) else drawn
    titles = dict.fromkeys((run.title, color_of(run)) for run in drawn)
    groups = tuple(BarGroup(run.label, (Bar(run.title, run.rates[0].interval),)) for run in drawn)
    drawing = bars(
        BarChart(
            name="accuracy",
            alt="Share of right programs of each run, with intervals over problems.",
            series=tuple(Series(title, color) for title, color in titles),
            panels=(BarPanel("programs that pass all tests", groups, limits=(0, 1), percent=True),),
        )
    )
    return Section(
        slug="accuracy",
        title=TITLE,
        short="Right programs",
        text=(
            "Every program was run in a sandbox against the tests of its [[problem]]. The bar is "
            "the share that [[passed]], the whisker its [[interval|95 % interval]].",
        ),
        figures=(
            Figure(
                title="Share of programs that pass all tests",
                drawing=drawing,
                commands=(*sampling(runs), *grading(runs)),
                tables=(
                    *split_tables(_rates, listed, everything),
                    _verdicts(material),
                ),
            ),
        ),
    )


def _rates(runs: Sequence[RunFacts]) -> Table:
    rows = []
    for run in runs:
        passed = rate(run.rates[0].interval) if run.rates else Cell("not graded")
        calls = run.timing.forwards if run.timing else None
        cost = Cell(f"{calls.estimate:.1f}", number=True) if calls else missing()
        problems = len({trace.task_id for trace in run.traces})
        rows.append((label(run.label, run.name), passed, count(problems), count(run.samples), cost))
    heads = ("run", "[[passed]]", "problems", "samples each", "[[network call|network calls]] each")
    return Table(heads, tuple(rows))


def _verdicts(material: Material) -> Table:
    runs = material.gathered.graded()
    counts = {run.label: Counter(run.verdicts.values()) for run in runs}
    names = [name for name in VERDICTS if any(found[name] for found in counts.values())]
    rows = tuple(
        (label(name), *(count(found[verdict]) for verdict in names))
        for name, found in counts.items()
    )
    heads = ("run", *map(shown, names))
    return Table(heads, rows, caption="What became of every program", folded=True)
