"""Similarity to left-to-right programs (paper, section 3.1 and appendix B): bars and tables."""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.measure.intervals import Interval
from anyorder.report import charts
from anyorder.report.runs import (
    LEFT_TO_RIGHT,
    RANDOM,
    Comparison,
    Material,
    SimilarityToReference,
    again,
    family_mains,
    grading,
    sampling,
)
from anyorder.report.tables import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    apart,
    count,
    foldable,
    is_different,
    policy_title,
    score,
)

TITLE = "Does choosing the order change what is written?"
METRIC = "ASTD"
FILTERS = {"valid": "all programs that parse", "correct": "only programs that pass"}


def section(material: Material) -> Section | Absent | None:
    """Tree similarity to the left-to-right runs; None if no model has a choice of orders."""
    found = material.comparisons
    programs = [run for run in material.gathered if run.code]
    free = [run for run in family_mains(programs) if run.description.has_choice]
    if not found and not free:
        return None
    if not found:
        return Absent(
            TITLE,
            "It needs a run from left to right and another order of the same model, on the same "
            "problems and drawn alike.",
            again(free[0], "--policy", LEFT_TO_RIGHT),
        )
    runs = [run for each in found for run in (*each.runs, each.reference)]
    return Section(
        slug="similarity",
        title=TITLE,
        short="Same programs?",
        text=(
            "If a model that may write in any order ends up with the programs that left-to-right "
            "writing finds anyway, its freedom is of little use. Every program is therefore "
            "compared with those that the same model wrote from left to right for the same "
            "problem, as trees of statements ([[ASTD|tree similarity]]: 1 is the same structure).",
            "Writing in random order shows how different programs for these problems can be. A "
            "bar well above it means that the [[policy]] found much the same programs as left to "
            "right.",
        ),
        figures=(
            Figure(
                title="How similar the programs are to those written from left to right",
                drawing=_drawing(found),
                commands=(
                    *sampling(runs),
                    *grading(runs),
                    *(each.command() for each in found),
                ),
                caption="Mean over problems, with [[interval|95 % intervals]] over problems.",
                tables=(_table(found), *_differences(found)),
            ),
        ),
    )


def _drawing(found: Sequence[Comparison]) -> charts.Drawing:
    policies = dict.fromkeys(run.policy for each in found for run in each.runs)
    spare, known = iter(charts.spare_colors()), charts.chart_colors()
    colors = {policy: policy if policy in known else next(spare) for policy in policies}
    panels = []
    for name, says in FILTERS.items():
        groups = tuple(group for each in found if (group := _group(each, name)).bars)
        if groups:
            panels.append(charts.BarPanel("tree similarity", groups, title=says, limits=(0, 1)))
    return charts.bars(
        charts.BarChart(
            name="similarity",
            alt="Tree similarity of each policy's programs to those written from left to right.",
            series=tuple(
                charts.Series(policy_title(name), color) for name, color in colors.items()
            ),
            panels=tuple(panels),
        )
    )


def _group(each: Comparison, name: str) -> charts.BarGroup:
    rows = {row.run.policy: row for row in reversed(each.rows) if row.filter == name}
    in_order = [
        rows[policy] for policy in dict.fromkeys(r.run.policy for r in each.rows) if policy in rows
    ]
    own = (charts.Bar(policy_title(row.run.policy), row.scores[METRIC]) for row in in_order)
    k = each.reference.options.get("k")
    name = each.reference.title if k in (None, 1) else f"{each.reference.title}, {k} at a time"
    return charts.BarGroup(name, tuple(own))


def _table(found: Sequence[Comparison]) -> Table:
    metrics = found[0].metrics
    rows = tuple(
        (
            Cell(row.run.label, FILTERS[row.filter]),
            *(score(row.scores[metric]) for metric in metrics),
            count(row.prompts),
        )
        for each in found
        for row in each.rows
    )
    names = {
        "ASTD": "[[ASTD|trees]]",
        "TSED": "[[TSED|parser's trees]]",
        "Coarse": "[[Coarse|statements]]",
    }
    heads = ("run", *(names[metric] for metric in metrics), "problems")
    return foldable(heads, rows, "Exact numbers")


def differences(
    found: Sequence[Comparison],
) -> list[tuple[SimilarityToReference, SimilarityToReference, Interval]]:
    """Tree similarity of every policy minus that of the model's random order, paired by problem."""
    pairs = []
    for each in found:
        for row in each.rows:
            other = each.row(RANDOM, row.filter)
            if other is None or row.run.policy == RANDOM:
                continue
            less = row.less(other, METRIC)
            if less is not None:
                pairs.append((row, other, less))
    return pairs


def _differences(found: Sequence[Comparison]) -> list[Table]:
    rows = tuple(
        (
            Cell(row.run.label, FILTERS[row.filter]),
            apart(less),
            count(less.n),
            Cell("more alike" if less.estimate > 0 else "less alike")
            if is_different(less)
            else Cell("no difference could be seen"),
        )
        for row, _, less in differences(found)
    )
    heads = (
        "run",
        "similarity less that of random order",
        "problems in both",
        "so, than random order",
    )
    caption = "Each run against random order, [[paired|problem by problem]]"
    return [foldable(heads, rows, caption)] if rows else []
