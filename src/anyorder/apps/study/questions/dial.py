"""The dial: does uncertainty about *where* cause the collapse, and do the remedies not mind?

The paper's explanation as an experiment. `layout` makes positions uncertain and leaves words alone,
`wording` the reverse (docs/stories.md). Models of three families are trained at several settings;
the same is done without any network, on posteriors counted from renderings (model_free.py), and on
a canvas that is filled in front, where the same mechanism must write from right to left.
"""

from __future__ import annotations

from anyorder.apps.study.cells import Claim, Values, above_zero, contrast_cell, negated
from anyorder.apps.study.model_plan import DIALS, FAMILIES
from anyorder.apps.study.plan import FREE_LAYOUTS, Plan
from anyorder.apps.study.questions.dial_counted import (
    COLUMNS,
    HEADS,
    K_LOC,
    LINES,
    TAU,
    counted_check,
    counted_claims,
    counted_group,
    counted_table,
)
from anyorder.apps.study.questions.section import (
    Question,
    Section,
    Table,
    number,
    percent,
    rows_of,
)
from anyorder.apps.study.view import Group, Reading, Study, column
from anyorder.measure.intervals import Interval
from anyorder.report.charts import Drawing, LineChart, LinePanel, LineSeries, lines

LAYOUTS = {"layout0": 0.0, "layout05": 0.5, "layout1": 1.0}
RIGHT = "mdm-dial-right"
COUNTED_COLOR = "ar"


def _runs(plan: Plan) -> list[str]:
    trained = [
        name
        for name, run in plan.runs.items()
        if run.kind == "greedy" and plan.models[run.model].dialled
    ]
    return [*trained, *(name for name, run in plan.runs.items() if run.free is not None)]


def _section(study: Study) -> Section:
    groups = {
        (family, dial): study.dialled(family, "greedy", dial, f"{family}, {dial}")
        for family in FAMILIES
        for dial in DIALS
    }
    right = Group("mdm, layout1, right-aligned", ((0, study.run(f"{RIGHT}.greedy")),))
    drawing = _figure(study, groups, right)
    return Section(
        title="The dial: does positional uncertainty cause the collapse?",
        asks="As it becomes uncertain where things go, and only then, do fixed-canvas models lose "
        "localisation and fall back to left to right; and do insertion and segments not mind?",
        how="Models trained at layout 0, 0.5 and 1 (how much free length the programs have) and at "
        "wording 1 (free words of fixed length), all for as many steps, greedy by their own "
        "confidence, random ties; fewer steps than the models of the other sections. The "
        "problems are the same at every setting. Beside them: no network at all. Many renderings "
        "of each problem are drawn and posteriors are counted among those that agree with the "
        "canvas; the decoder is the same. Tau is Kendall's, of place and time: 1 is left to right, "
        "0 no order. For segment models only the order of lines is theirs to choose, so families "
        "are compared by the tau of lines.",
        tables=(_models(groups, right), counted_table(study)),
        figures=() if drawing is None else (drawing,),
        claims=(*_model_claims(groups, right), *counted_claims(study)),
        checks=_checks(study, groups),
    )


def _models(groups: dict[tuple[str, str], Group], right: Group) -> Table:
    columns = [each for _, each in COLUMNS]
    rows = [row for group in (*groups.values(), right) for row in rows_of(group, columns)]
    return Table("Trained models", ("model and corpus", *HEADS), tuple(rows))


def _rise(groups: dict[tuple[str, str], Group], family: str, read: Reading) -> Interval:
    """From layout 0 to layout 1."""
    return groups[family, "layout1"].minus(groups[family, "layout0"], read)


def _rise_beyond(groups: dict[tuple[str, str], Group], other: str, read: Reading) -> Interval:
    """How much more mdm changes from layout 0 to layout 1 than another family, by problem."""

    def pair(family: str) -> tuple[list[Values], list[Values]]:
        high, low = groups[family, "layout1"].against(groups[family, "layout0"])
        return [read(run) for run in high], [read(run) for run in low]

    return contrast_cell(pair("mdm"), pair(other))


def _model_claims(groups: dict[tuple[str, str], Group], right: Group) -> tuple[Claim, ...]:
    because = "follows from the paper's explanation (Section 3.2); not tested there"
    up = _rise(groups, "mdm", TAU)
    words = groups["mdm", "layout1"].minus(groups["mdm", "wording1"], TAU)
    control = groups["mdm", "wording1"].minus(groups["mdm", "layout0"], TAU)
    spread = groups["mdm", "layout0"].minus(groups["mdm", "layout1"], K_LOC)
    found = [
        Claim(
            "mdm drifts to left to right as layout rises from 0 to 1 (tau of tokens)",
            because,
            number(up),
            above_zero(up),
        ),
        Claim(
            "and not as wording does: layout 1 is further left to right than wording 1",
            because,
            f"layout 1 less wording 1 {number(words)}; wording 1 less layout 0 {number(control)}",
            above_zero(words),
        ),
        Claim(
            "mdm loses localisation as layout rises (k-LOC of the tokens it wants most)",
            because,
            f"layout 0 less layout 1 {number(spread)}",
            above_zero(spread),
        ),
    ]
    for family in FAMILIES[1:]:
        own, more = _rise(groups, family, LINES), _rise_beyond(groups, family, LINES)
        found.append(
            Claim(
                f"{family} minds less: the order of its lines changes less with layout than mdm's",
                because,
                f"rise of mdm less rise of {family} {number(more)}; of {family} itself "
                f"{number(own)}",
                above_zero(more),
            )
        )
    mirror = right.mean(TAU) if right.stored else None
    found.append(
        Claim(
            "on a right-aligned canvas mdm writes from right to left (tau below 0)",
            "the mirror of the same mechanism",
            number(mirror),
            negated(above_zero(mirror)),
        )
    )
    return tuple(found)


def _checks(study: Study, groups: dict[tuple[str, str], Group]) -> tuple[str, ...]:
    told = [
        f"{family} {percent(groups[family, dial].mean(column('passed'), rate=True))} % at {dial}"
        for family in FAMILIES
        for dial in ("layout0", "layout1")
        if groups[family, dial].stored
    ]
    return (
        counted_check(study),
        "A failing model would be no evidence, so the share of problems solved: "
        f"{', '.join(told)}.",
    )


def _line(
    label: str, color: str, cells: list[tuple[float, Interval]], dashed: bool = False
) -> list[LineSeries]:
    known = [(x, cell) for x, cell in cells if cell.n > 1]
    if not known:
        return []
    return [LineSeries(label, color, [x for x, _ in known], [y for _, y in known], dashed=dashed)]


def _figure(study: Study, groups: dict[tuple[str, str], Group], right: Group) -> Drawing | None:
    def trained(family: str, read: Reading) -> list[tuple[float, Interval]]:
        own = [(x, groups[family, dial]) for dial, x in LAYOUTS.items()]
        return [(x, group.mean(read)) for x, group in own if group.stored]

    def counted(align: str, read: Reading) -> list[tuple[float, Interval]]:
        own = [(x, counted_group(study, x, 0.0, align, "random")) for x in FREE_LAYOUTS]
        return [(x, group.mean(read)) for x, group in own if group.stored]

    tokens = _line("no network", COUNTED_COLOR, counted("left", TAU))
    tokens += _line("no network, right-aligned", COUNTED_COLOR, counted("right", TAU), True)
    tokens += _line("mdm", "mdm", trained("mdm", TAU))
    if right.stored:
        tokens += _line("mdm, right-aligned", "mdm", [(1.0, right.mean(TAU))], True)
    tokens += _line("flexmdm", "flexmdm", trained("flexmdm", TAU))
    order = [
        series for family in FAMILIES for series in _line(family, family, trained(family, LINES))
    ]
    spread = _line("no network", COUNTED_COLOR, counted("left", K_LOC))
    spread += [
        series for family in FAMILIES for series in _line(family, family, trained(family, K_LOC))
    ]
    named = (
        ("Order of tokens (tau)", tokens),
        ("Order of lines (tau)", order),
        ("k-LOC, wanted most", spread),
    )
    panels = tuple(LinePanel(tuple(series), title) for title, series in named if series)
    if not panels:
        return None
    return lines(
        LineChart(
            "dial",
            "Order and localisation against the layout dial, with and without a network.",
            "layout: how much free length the programs have",
            "tau, or share of mass",
            panels,
            x_ticks=(0, 0.25, 0.5, 1),
            y_limits=(-1.04, 1.04),
        )
    )


QUESTION = Question("dial", _runs, _section)
