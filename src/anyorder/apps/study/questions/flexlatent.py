"""What flex-latent, insertion over segments, gains over both parents.

The paper leaves the combination to future work (Section 4.2, Discussion). Compared by accuracy,
order, cost, likelihood and infilling; the last two are the race's.
"""

from __future__ import annotations

from typing import Any

from anyorder.apps.study.cells import Claim, above_zero, pass_values
from anyorder.apps.study.plan import Plan
from anyorder.apps.study.questions.section import (
    NOT_RUN,
    NOTHING,
    Column,
    Question,
    Section,
    Table,
    difference_rows,
    number,
    percent,
    rows_of,
)
from anyorder.apps.study.view import Group, Reading, Study, beyond_chance, column
from anyorder.report.records import interval_of

CHILD, PARENTS = "flexlatent", ("flexmdm", "latentmdm")
FAMILIES = ("mdm", *PARENTS, CHILD)
PASSED = column("passed")


def _runs(plan: Plan) -> list[str]:
    return [f"{family}-layout1.{kind}" for family in FAMILIES for kind in ("greedy", "drawn")]


def _group(study: Study, family: str, kind: str) -> Group:
    """Seed 0 alone: the child has no other."""
    return Group(family, ((0, study.run(f"{family}-layout1.{kind}")),))


def _passes(k: int) -> Reading:
    return lambda run: pass_values(run.values("passed"), k)


def _section(study: Study) -> Section:
    greedy = {family: _group(study, family, "greedy") for family in FAMILIES}
    drawn = {family: _group(study, family, "drawn") for family in FAMILIES}
    return Section(
        title="Flex-latent: what does the combination gain over both parents?",
        asks="Insertion over whole segments needs neither a fixed canvas nor single tokens. Is it "
        "better than insertion of tokens, and than a fixed number of segments?",
        how="The shipped models of one seed, equal in parameters and texts: greedy, and several "
        "samples at temperature 1. Likelihood and infilling are those of the race (S6).",
        tables=(_accuracy(greedy, drawn), _differences(greedy), _order(greedy), _raced(study.race)),
        claims=_claims(greedy),
        checks=_checks(greedy),
    )


def _ks(drawn: dict[str, Group]) -> list[int]:
    counts = [
        min(map(len, run.values("passed").values()))
        for group in drawn.values()
        for run in group.stored
    ]
    return [1 << power for power in range(min(counts, default=1).bit_length())]


def _accuracy(greedy: dict[str, Group], drawn: dict[str, Group]) -> Table:
    ks = _ks(drawn)
    rows = []
    for family in FAMILIES:
        first = rows_of(greedy[family], [(PASSED, percent, True)])[0]
        columns: list[Column] = [(_passes(k), percent, True) for k in ks]
        second = rows_of(drawn[family], columns)[0]
        rows.append((*first, *second[1:]))
    heads = ("model", "greedy, solved %", *(f"temperature 1, pass@{k} %" for k in ks))
    return Table("Problems solved", heads, tuple(rows))


def _differences(greedy: dict[str, Group]) -> Table:
    reads: dict[str, Column] = {
        "solved, points": (PASSED, percent, True),
        "valid, points": (column("valid"), percent, True),
        "network calls": (column("forwards"), lambda each: number(each, 1), False),
        "tau of lines, less chance": (beyond_chance, number, False),
    }
    rows = [
        row
        for parent in PARENTS
        for row in difference_rows(
            f"{CHILD} less {parent}",
            [(greedy[CHILD], greedy[parent], *each) for each in reads.values()],
        )
    ]
    return Table("Against each parent, greedy, paired by problem", ("", *reads), tuple(rows))


def _order(greedy: dict[str, Group]) -> Table:
    columns: list[Column] = [
        (column("segments.tau"), number, False),
        (column("segments.tau.chance"), number, False),
        (column("order.split_only.rub"), number, False),
        (column("order.split_only.rub.left_to_right"), number, False),
        (column("order.split_only.rub.random"), number, False),
        (column("tokens"), lambda each: number(each, 1), False),
        (column("forwards"), lambda each: number(each, 1), False),
        (column("ties"), percent, False),
    ]
    rows = [row for group in greedy.values() for row in rows_of(group, columns)]
    heads = (
        "model", "tau of lines", "chance", "RUB", "left to right", "random", "tokens",
        "network calls", "ties %",
    )  # fmt: skip
    return Table("Order and cost, greedy", heads, tuple(rows))


def _raced(race: dict[str, Any] | None) -> Table:
    heads = ("model", "nats an answer", "infilled, solved %")
    title = "Held-out texts and infilling (from the race)"
    if race is None:
        return Table(title, heads, tuple((family, NOT_RUN, NOT_RUN) for family in FAMILIES))
    rows = []
    for family in FAMILIES:
        nats = race["likelihood"].get(family, {}).get("nats_per_answer")
        rate = race["infill"].get(family, {}).get("rate")
        rows.append(
            (
                family,
                NOTHING if nats is None else number(interval_of(nats)),
                NOTHING if rate is None else percent(interval_of(rate)),
            )
        )
    return Table(title, heads, tuple(rows))


def _claims(greedy: dict[str, Group]) -> tuple[Claim, ...]:
    found = []
    for parent in PARENTS:
        gain = greedy[CHILD].minus(greedy[parent], PASSED, rate=True)
        found.append(
            Claim(
                f"flexlatent solves more than {parent}",
                "our own question; the paper leaves the combination to future work",
                f"{percent(gain)} points",
                above_zero(gain),
            )
        )
    fewer = greedy["flexmdm"].minus(greedy[CHILD], column("forwards"))
    found.append(
        Claim(
            "flexlatent needs fewer network calls than flexmdm",
            "our own question",
            f"flexmdm less flexlatent {number(fewer, 1)}",
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
        "Whether errors are broken programs or wrong ones tells which part fails: "
        f"{'; '.join(told)}.",
    )


QUESTION = Question("flexlatent", _runs, _section)
