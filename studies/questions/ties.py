"""How much of the collapse is due to tied confidences?

The same model and temperature, confidences read before or after temperature and top-p, ties broken
at random or to the left. After filtering, certain slots all have probability 1, and whoever breaks
ties decides the order.
"""

from __future__ import annotations

from anyorder.report.charts import Bar, BarChart, BarGroup, BarPanel, Drawing, Series, bars
from studies.cells import Claim, above_zero, beyond, within
from studies.plan import TIED, Plan
from studies.questions.section import (
    CLEARLY,
    OWN,
    Column,
    Pair,
    Question,
    Section,
    Table,
    difference_rows,
    number,
    percent,
    rows_of,
)
from studies.view import Group, Reading, Study, column

DIALS = {"layout1": "layout 1", "layout0": "layout 0"}
TAU = column("arness.tau")
LITTLE, NEAR_NONE = 0.05, 0.15
READS: dict[str, Reading] = {
    "tau": TAU,
    "AR-ness@1": column("arness.global@1"),
    "local@1": column("arness.local@1"),
    "RUB": column("order.split_only.rub"),
}
COLORS = {"untempered": "confidence", "filtered": "random"}


def _runs(plan: Plan) -> list[str]:
    return [name for name, run in plan.runs.items() if run.kind.startswith("ties-")]


def _words(rule: str) -> str:
    return rule.replace("-", ", ")


def _named(rule: str, dial: str) -> tuple[str, str]:
    """The run's kind, and what its row is called."""
    return f"ties-{rule}", f"{DIALS[dial]}, {_words(rule)}"


def _section(study: Study) -> Section:
    groups = {("layout1", rule): study.group("mdm", *_named(rule, "layout1")) for rule in TIED}
    groups |= {
        ("layout0", rule): study.dialled("mdm", kind, "layout0", label)
        for rule in TIED
        for kind, label in (_named(rule, "layout0"),)
    }
    drawing = _figure(groups)
    return Section(
        title="Ties: how much of the collapse comes from tied confidences?",
        asks="A sampler that ranks slots after temperature and top-p, and takes the leftmost of "
        "equal slots, looks left to right by construction. How much of the measured order is this "
        "effect?",
        how="mdm by confidence at temperature 0.2 and top-p 0.95, as published. Confidences are "
        "read from the untempered or the filtered posterior, and ties are broken at random or to "
        "the left. Layout 0 is the model of the dial, with a third of the training, so compare "
        "within a layout.",
        tables=(_table(groups), _effects(groups)),
        figures=() if drawing is None else (drawing,),
        claims=_claims(groups),
        checks=_checks(groups),
    )


def _table(groups: dict[tuple[str, str], Group]) -> Table:
    columns: list[Column] = [
        (column("ties"), percent, False),
        *((read, number, False) for read in READS.values()),
        (column("arness.global@1.chance"), number, False),
        (column("passed"), percent, True),
    ]
    rows = [row for group in groups.values() for row in rows_of(group, columns)]
    heads = ("corpus, scores, ties", "ties %", *READS, "chance of @1", "solved %")
    return Table("The four rules", heads, tuple(rows))


def _effects(groups: dict[tuple[str, str], Group]) -> Table:
    pairs = {
        "leftmost minus random ties, untempered": (
            "untempered-leftmost",
            "untempered-random",
        ),
        "leftmost minus random ties, filtered": ("filtered-leftmost", "filtered-random"),
        "filtered minus untempered, random ties": ("filtered-random", "untempered-random"),
        "published minus exact: filtered, leftmost minus untempered, random": (
            "filtered-leftmost",
            "untempered-random",
        ),
    }
    rows = []
    for dial, words in DIALS.items():
        for title, (a, b) in pairs.items():
            sides: list[Pair] = [
                (groups[dial, a], groups[dial, b], read, number, False) for read in READS.values()
            ]
            rows += difference_rows(f"{words}: {title}", sides)
    return Table("What each choice does, paired by problem", ("difference", *READS), tuple(rows))


def _claims(groups: dict[tuple[str, str], Group]) -> tuple[Claim, ...]:
    exact = groups["layout1", "untempered-random"].mean(TAU)
    rule = groups["layout1", "filtered-leftmost"].minus(groups["layout1", "filtered-random"], TAU)
    none = groups["layout0", "filtered-leftmost"].minus(groups["layout0", "filtered-random"], TAU)
    gone = groups["layout1", "filtered-random"].mean(TAU)
    fair = groups["layout1", "untempered-leftmost"].minus(
        groups["layout1", "untempered-random"], TAU
    )
    return (
        Claim(
            "at layout 1 mdm goes left to right also with untempered scores and random ties (tau "
            f"above {CLEARLY:g})",
            OWN,
            f"tau {number(exact)}",
            beyond(exact, CLEARLY),
        ),
        Claim(
            "with filtered scores the tie rule alone adds to the left-to-right order",
            OWN,
            f"tau, leftmost minus random: {number(rule)} at layout 1, {number(none)} at layout 0",
            above_zero(rule),
        ),
        Claim(
            f"with filtered scores and random ties the collapse is gone (tau within {NEAR_NONE:g} "
            "of 0)",
            OWN,
            f"tau {number(gone)}",
            within(gone, NEAR_NONE),
        ),
        Claim(
            f"with untempered scores the tie rule hardly matters (tau within {LITTLE:g})",
            OWN,
            f"tau, leftmost minus random ties: {number(fair)}",
            within(fair, LITTLE),
        ),
    )


def _checks(groups: dict[tuple[str, str], Group]) -> tuple[str, ...]:
    exact, published = (
        groups["layout1", rule] for rule in ("untempered-random", "filtered-leftmost")
    )
    parts = ", ".join(
        f"{name} {number(published.minus(exact, READS[name]))} of "
        f"{number(published.mean(READS[name]))}"
        for name in ("tau", "AR-ness@1", "local@1")
    )
    told = [
        f"{_words(rule)} {percent(groups['layout1', rule].mean(column('ties')))} %"
        for rule in TIED
        if groups["layout1", rule].stored
    ]
    return (
        "How much? It depends on the measure. For the published sampler at layout 1, the filter "
        f"and the leftmost rule add {parts}. Tau measures the order as a whole; AR-ness and "
        "local@1 look at the very next slot. The share of choices that a tie rule made there: "
        f"{', '.join(told)}. A tie counts if several slots have the same score. Certain slots tie "
        "with any sampler, so the rule that breaks ties should not have a direction.",
    )


def _figure(groups: dict[tuple[str, str], Group]) -> Drawing | None:
    if not any(group.stored for group in groups.values()):
        return None
    series = tuple(
        Series(_words(rule), COLORS[rule.partition("-")[0]], rule.endswith("leftmost"))
        for rule in TIED
    )
    panels = []
    for dial, words in DIALS.items():
        found = []
        for rule in TIED:
            group = groups[dial, rule]
            value = group.mean(TAU) if group.stored else None
            known = value is not None and value.n > 0
            label = _words(rule)
            found.append(BarGroup(label, (Bar(label, value if known else None),)))
        panels.append(BarPanel("tau", tuple(found), words))
    return bars(
        BarChart("ties", "Kendall's tau of mdm under four tie rules.", series, tuple(panels))
    )


QUESTION = Question("ties", _runs, _section)
