"""pass@k with intervals (paper, tables of appendix D), and the sweep of insertion temperatures."""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.measure.passk import pass_differences
from anyorder.report.charts import LineChart, LinePanel, LineSeries, lines
from anyorder.report.records import is_different
from anyorder.report.runs import RunFacts
from anyorder.report.sections.material import Material, again, grading, sampling, series_of
from anyorder.report.sections.section import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    label,
    missing,
    points_apart,
    rate,
)

TITLE = "Does trying again help?"


def repeated(material: Material) -> list[RunFacts]:
    """The graded runs with several samples a problem."""
    return [run for run in material.gathered.graded() if len(run.rates) > 1]


def section(material: Material) -> Section | Absent:
    """The section, or what is missing for it."""
    runs = repeated(material)
    if not runs:
        return Absent(
            TITLE,
            "It needs several samples a problem, drawn at a temperature above 0.",
            (again(material.gathered.runs[0], "--samples", "8", "--temperature", "0.8"),),
        )
    ks = sorted({each.k for run in runs for each in run.rates})
    return Section(
        slug="passk",
        title=TITLE,
        short="Trying again",
        text=(
            "With several [[sample|samples]] of each problem one may ask how often at least one of "
            "k is right: [[pass@k]]. A model whose samples differ gains more from trying again "
            "than one that writes the same program every time.",
        ),
        figures=(
            Figure(
                title="Chance that at least one of k programs is right",
                drawing=lines(
                    LineChart(
                        name="pass-at-k",
                        alt="pass@k of each run with several samples a problem.",
                        x_label="programs tried for each problem (k)",
                        y_label="at least one is right",
                        panels=(LinePanel(_curves(runs)),),
                        log_x=True,
                        x_ticks=tuple(ks),
                        percent=True,
                    )
                ),
                commands=(*sampling(runs), *grading(runs)),
                caption="Bands are [[interval|95 % intervals]] over problems.",
                tables=(_rates(runs, ks), *differences_table(runs)),
            ),
        ),
    )


def _curves(runs: Sequence[RunFacts]) -> tuple[LineSeries, ...]:
    return tuple(
        LineSeries(
            run.label,
            series.color,
            [each.k for each in run.rates],
            [each.interval for each in run.rates],
            dashed=series.pale,
        )
        for run, series in zip(runs, series_of(runs), strict=True)
    )


def _rates(runs: Sequence[RunFacts], ks: Sequence[int]) -> Table:
    rows = []
    for run in runs:
        found = {each.k: rate(each.interval) for each in run.rates}
        rows.append((label(run.label), *(found.get(k, missing()) for k in ks)))
    return Table(("run", *(f"[[pass@k|pass@{k}]]" for k in ks)), tuple(rows))


def differences_table(runs: Sequence[RunFacts]) -> list[Table]:
    """The first run less each other one on the same task, at the largest k that both have."""
    first, *others = runs
    rows = []
    for other in others:
        if other.data != first.data or not first.correct.keys() & other.correct.keys():
            continue
        k = min(first.rates[-1].k, other.rates[-1].k)
        for at in sorted({1, k}):
            [apart] = pass_differences(first.correct, other.correct, [at])
            verdict = "differs" if is_different(apart.interval) else "no difference could be seen"
            names = label(first.label, f"less {other.label}")
            rows.append((names, Cell(f"pass@{at}"), points_apart(apart.interval), Cell(verdict)))
    heads = ("runs", "", "difference, in percentage points", "in words")
    caption = "Compared [[paired|problem by problem]]"
    return [Table(heads, tuple(rows), caption=caption)] if rows else []
