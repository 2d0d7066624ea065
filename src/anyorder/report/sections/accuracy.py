"""How often the programs are right: pass@1 of every run, and pass@k (paper, appendix D, tables)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anyorder.bench.checks import VERDICTS, shown
from anyorder.measure.passk import pass_differences
from anyorder.report import charts
from anyorder.report.runs import (
    Material,
    RunFacts,
    again,
    drawn_runs,
    family_series,
    grading,
    sampling,
    series_of,
    share_bars,
    split_tables,
)
from anyorder.report.tables import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    apart,
    count,
    is_different,
    missing,
    rate,
)

TITLE = "How often is the program right?"


def section(material: Material) -> Section | Absent | None:
    """pass@1 of every run; None if no run holds programs that could be graded."""
    runs = material.gathered.graded()
    if not runs:
        gradable = material.gathered.gradable()
        if not gradable and not any(run.code for run in material.gathered):
            return None
        why = "No run has been graded."
        if len(gradable) < len(material.gathered.runs):
            why += " A run without a task needs `--task`, and the ids of that task's problems."
        return Absent(TITLE, why, tuple(run.command("grade") for run in gradable))
    drawn, everything = drawn_runs(runs), list(material.gathered)
    listed = everything if len(drawn) == len(runs) else drawn
    drawing = share_bars(
        "accuracy",
        "Share of right programs of each run, with intervals over problems.",
        "programs that pass all tests",
        (
            charts.BarGroup(run.label, (charts.Bar(run.title, run.rates[0].interval),))
            for run in drawn
        ),
        family_series(drawn),
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
        rows.append((Cell(run.label, run.name), passed, count(problems), count(run.samples), cost))
    heads = ("run", "[[passed]]", "problems", "samples each", "[[network call|network calls]] each")
    return Table(heads, tuple(rows))


def _verdicts(material: Material) -> Table:
    runs = material.gathered.graded()
    counts = {run.label: Counter(run.verdicts.values()) for run in runs}
    names = [name for name in VERDICTS if any(found[name] for found in counts.values())]
    rows = tuple(
        (Cell(name), *(count(found[verdict]) for verdict in names))
        for name, found in counts.items()
    )
    heads = ("run", *map(shown, names))
    return Table(heads, rows, title="What became of every program", folded=True)


PASSK_TITLE = "Does trying again help?"


def repeated(material: Material) -> list[RunFacts]:
    """The graded runs with several samples a problem."""
    return [run for run in material.gathered.graded() if len(run.rates) > 1]


def passk_section(material: Material) -> Section | Absent | None:
    """pass@k of the runs with several samples a problem; None if no run can be graded."""
    runs = repeated(material)
    if not runs:
        gradable = material.gathered.gradable()
        if not gradable:
            return None
        return Absent(
            PASSK_TITLE,
            "It needs several samples a problem, drawn at a temperature above 0, and graded.",
            again(gradable[0], "--samples", "8", "--temperature", "0.8"),
        )
    ks = sorted({each.k for run in runs for each in run.rates})
    return Section(
        slug="passk",
        title=PASSK_TITLE,
        short="Trying again",
        text=(
            "With several [[sample|samples]] of each problem one may ask how often at least one of "
            "k is right: [[pass@k]]. A model whose samples differ gains more from trying again "
            "than one that writes the same program every time.",
        ),
        figures=(
            Figure(
                title="Chance that at least one of k programs is right",
                drawing=charts.lines(
                    charts.LineChart(
                        name="pass-at-k",
                        alt="pass@k of each run with several samples a problem.",
                        x_label="programs tried for each problem (k)",
                        y_label="at least one is right",
                        panels=(charts.LinePanel(_curves(runs)),),
                        log_x=True,
                        x_ticks=tuple(ks),
                        percent=True,
                    )
                ),
                commands=(*sampling(runs), *grading(runs)),
                caption="Bands are [[interval|95 % intervals]] over problems.",
                tables=(passk_table(runs), *differences_table(runs)),
            ),
        ),
    )


def _curves(runs: Sequence[RunFacts]) -> tuple[charts.LineSeries, ...]:
    return tuple(
        charts.LineSeries(
            run.label,
            series.color,
            [each.k for each in run.rates],
            [each.interval for each in run.rates],
            dashed=series.pale,
        )
        for run, series in zip(runs, series_of(runs), strict=True)
    )


def passk_table(runs: Sequence[RunFacts]) -> Table:
    """pass@k of each run, at every k of any of them."""
    ks = sorted({each.k for run in runs for each in run.rates})
    rows = []
    for run in runs:
        found = {each.k: rate(each.interval) for each in run.rates}
        rows.append((Cell(run.label), *(found.get(k, missing()) for k in ks)))
    return Table(("run", *(f"[[pass@k|pass@{k}]]" for k in ks)), tuple(rows))


def differences_table(runs: Sequence[RunFacts]) -> list[Table]:
    """The first run minus each other run on the same task, at 1 and the largest k of both."""
    first, *others = runs
    rows = []
    for other in others:
        if other.data != first.data or not first.correct.keys() & other.correct.keys():
            continue
        k = min(first.rates[-1].k, other.rates[-1].k)
        for at in sorted({1, k}):
            [found] = pass_differences(first.correct, other.correct, [at])
            verdict = "differs" if is_different(found.interval) else "no difference could be seen"
            names = Cell(first.label, f"minus {other.label}")
            rows.append(
                (names, Cell(f"pass@{at}"), apart(found.interval.times(100), 1), Cell(verdict))
            )
    heads = ("runs", "rate", "difference, in percentage points", "in words")
    caption = "Compared [[paired|problem by problem]]"
    return [Table(heads, tuple(rows), title=caption)] if rows else []
