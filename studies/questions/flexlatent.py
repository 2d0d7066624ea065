"""What flex-latent, insertion over segments, gains over both parents.

The paper leaves the combination to future work (Section 4.2, Discussion). The families are compared
by accuracy, order, cost, likelihood and infilling; the race gives the last two.
"""

from __future__ import annotations

from typing import Any

from anyorder.report.tables import interval_of
from studies.cells import Claim, above_zero, proportion
from studies.plan import Plan
from studies.questions.section import (
    NOT_RUN,
    NOTHING,
    OWN,
    Column,
    Question,
    Section,
    Table,
    attempts,
    difference_rows,
    number,
    one_digit,
    passes,
    percent,
    rows_of,
)
from studies.view import Group, Study, beyond_chance, column

CHILD, PARENTS = "flexlatent", ("flexmdm", "latentmdm")
FAMILIES = ("mdm", *PARENTS, CHILD)
PASSED = column("passed")


def _runs(plan: Plan) -> list[str]:
    return [f"{family}-layout1.{kind}" for family in FAMILIES for kind in ("greedy", "drawn")]


def _group(study: Study, family: str, kind: str) -> Group:
    """Seed 0 alone: the child has no other."""
    return Group(family, ((0, study.run(f"{family}-layout1.{kind}")),))


def _section(study: Study) -> Section:
    greedy = {family: _group(study, family, "greedy") for family in FAMILIES}
    drawn = {family: _group(study, family, "drawn") for family in FAMILIES}
    return Section(
        title="Flex-latent: what does the combination gain over both parents?",
        asks="Insertion over whole segments needs neither a fixed canvas nor single tokens. Is it "
        "better than insertion of tokens, and than a fixed number of segments?",
        how="The shipped models of one seed, equal in parameters and texts: greedy, and several "
        "samples at temperature 1. Likelihood and infilling come from the race (S6).",
        tables=(_accuracy(greedy, drawn), _differences(greedy), _order(greedy), _raced(study.race)),
        claims=_claims(greedy),
        checks=_checks(greedy),
    )


def _accuracy(greedy: dict[str, Group], drawn: dict[str, Group]) -> Table:
    ks = attempts(drawn.values())
    rows = []
    for family in FAMILIES:
        first = rows_of(greedy[family], [(PASSED, percent, True)])[0]
        columns: list[Column] = [(passes(k), percent, True) for k in ks]
        second = rows_of(drawn[family], columns)[0]
        rows.append((*first, *second[1:]))
    heads = ("model", "greedy, solved %", *(f"temperature 1, pass@{k} %" for k in ks))
    return Table("Problems solved", heads, tuple(rows))


def _differences(greedy: dict[str, Group]) -> Table:
    reads: dict[str, Column] = {
        "solved, points": (PASSED, percent, True),
        "valid, points": (column("valid"), percent, True),
        "network calls": (column("forwards"), one_digit, False),
        "tau of lines, minus chance": (beyond_chance, number, False),
    }
    rows = [
        row
        for parent in PARENTS
        for row in difference_rows(
            f"{CHILD} minus {parent}",
            [(greedy[CHILD], greedy[parent], *each) for each in reads.values()],
        )
    ]
    return Table(
        "Against each parent, greedy, paired by problem", ("difference", *reads), tuple(rows)
    )


def _order(greedy: dict[str, Group]) -> Table:
    columns: list[Column] = [
        (column("segments.tau"), number, False),
        (column("segments.tau.chance"), number, False),
        (column("order.split_only.rub"), number, False),
        (column("order.split_only.rub.left_to_right"), number, False),
        (column("order.split_only.rub.random"), number, False),
        (column("tokens"), one_digit, False),
        (column("forwards"), one_digit, False),
        (column("ties"), percent, False),
    ]
    rows = [row for group in greedy.values() for row in rows_of(group, columns)]
    heads = (
        "model", "tau of lines", "chance", "RUB", "left to right", "random", "tokens",
        "network calls", "ties %",
    )  # fmt: skip
    return Table("Order and cost, greedy", heads, tuple(rows))


def _raced(race: dict[str, Any] | None) -> Table:
    heads = ("model", "nats an answer", "which is", "infilled, solved %", "told of the gap")
    title = "Held-out texts and infilling (from the race)"
    if race is None:
        return Table(title, heads, tuple((family, *[NOT_RUN] * 4) for family in FAMILIES))
    rows = []
    for family in FAMILIES:
        told, filled = race["likelihood"].get(family, {}), race["infill"].get(family, {})
        nats, rate = told.get("nats_per_answer"), filled.get("rate")
        sign = "" if told.get("exact") else "<= "
        rows.append(
            (
                family,
                NOTHING if nats is None else sign + number(interval_of(nats)),
                told.get("name", NOTHING),
                NOTHING if rate is None else percent(proportion(interval_of(rate))),
                filled.get("told", NOTHING),
            )
        )
    note = (
        "A value with <= is a bound, and the true value may be far below it. So two bounds cannot "
        "be ranked ([race.md](race.md)). A model that is told more about a gap has less to guess."
    )
    return Table(title, heads, tuple(rows), note)


def _claims(greedy: dict[str, Group]) -> tuple[Claim, ...]:
    found = []
    for parent in PARENTS:
        gain = greedy[CHILD].minus(greedy[parent], PASSED, rate=True)
        found.append(
            Claim(
                f"flexlatent solves more than {parent}",
                f"{OWN}; the paper leaves the combination to future work",
                f"{percent(gain)} points",
                above_zero(gain),
            )
        )
    fewer = greedy["flexmdm"].minus(greedy[CHILD], column("forwards"))
    found.append(
        Claim(
            "flexlatent needs fewer network calls than flexmdm",
            OWN,
            f"flexmdm minus flexlatent {number(fewer, 1)}",
            above_zero(fewer),
        )
    )
    return tuple(found)


def _checks(greedy: dict[str, Group]) -> tuple[str, ...]:
    told = []
    for family in (*PARENTS, CHILD):
        group = greedy[family]
        if group.stored:
            valid = group.mean(column("valid"), rate=True)
            among = group.mean(column("passed", among="valid"), rate=True)
            told.append(f"{family} {percent(valid)} % valid, {percent(among)} % of these solved")
    return (
        "Are the failures broken programs or wrong ones? This shows which part fails: "
        f"{'; '.join(told)}.",
    )


QUESTION = Question("flexlatent", _runs, _section)
