"""S4: which segments first, and how many at once: policies of latentmdm by k.

Paper, appendix E, "Ablation on Segment Scoring" and "Parallel Decoding": accuracy by program,
greedy within segments.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.bench.checks import ERROR, WRONG
from anyorder.measure import published
from anyorder.measure.intervals import Interval
from anyorder.report.charts import Drawing, LineChart, LinePanel, LineSeries, lines
from studies.cells import Claim, above_zero, all_of
from studies.plan import SEGMENT_DRAWS, SEGMENT_KS, SEGMENT_POLICIES, Plan
from studies.questions.section import (
    NOTHING,
    Column,
    Pair,
    Question,
    Section,
    Table,
    difference_rows,
    number,
    one_digit,
    percent,
    rows_across,
    rows_of,
)
from studies.view import Group, Reading, Study, beyond_chance, column

BEST = "average"
COLORS = {
    "average": "latentmdm",
    "minimum": "score",
    "first": "top",
    "left_to_right": "left_to_right",
    "random": "random",
}
PASSED = column("passed")


def _ended(verdict: str) -> Reading:
    return lambda run: run.share_of(verdict)


ENDS = {verdict: _ended(verdict) for verdict in (ERROR, WRONG)}
"""Programs that stop with an error, and programs that give a wrong answer."""
Groups = dict[tuple[str, int], Group]


def _runs(plan: Plan) -> list[str]:
    return [name for name, run in plan.runs.items() if run.kind.startswith("segments-")]


def _groups(study: Study, ending: str) -> Groups:
    return {
        (policy, k): study.group("latentmdm", f"segments-{policy}-k{k}{ending}", label=policy)
        for policy in SEGMENT_POLICIES
        for k in SEGMENT_KS
    }


def _section(study: Study) -> Section:
    groups, drawn = (_groups(study, ending) for ending in SEGMENT_DRAWS)
    drawing = _figure({"greedy": groups, "temperature 1": drawn})
    return Section(
        title="S4. Which segments first, and how many at once?",
        asks="Is it better to choose segments by their average log-likelihood than by other "
        "orders? What does it cost to reveal several segments at once?",
        how="latentmdm at layout 1, greedy within segments; five policies, k = 1, 2, 4. Then the "
        "same at temperature 1, where the model makes mistakes that a good order can avoid. We "
        "added temperature 1 after we saw that greedy decoding solves nearly everything, and after "
        "a race on the first 30 problems had shown average at k = 1, 2 and 4 there.",
        tables=(
            _accuracy(groups, "Problems solved", _papers()),
            _differences(groups, "On the same problems and seeds"),
            _order(groups, "What the policies did at k = 1"),
            _cost(groups, "Network calls and ties"),
            _accuracy(drawn, "Problems solved at temperature 1"),
            _differences(drawn, "At temperature 1, on the same problems and seeds"),
            _order(drawn, "What the policies did at temperature 1 and k = 1"),
            _cost(drawn, "Network calls and ties at temperature 1"),
            _mistakes(drawn),
        ),
        figures=() if drawing is None else (drawing,),
        claims=(*_claims(groups), *_claims(drawn, "at temperature 1: ")),
        checks=_checks(groups, drawn),
    )


def _papers() -> list[tuple[str, ...]]:
    """The paper's rows, greedy as well."""
    return [
        (
            f"paper: {row['policy']} (GSM8K)",
            *(f"{row['accuracy_by_k'][str(k)]:.1f}" for k in SEGMENT_KS),
        )
        for row in published("segments")
    ]


def _accuracy(groups: Groups, title: str, beside: Sequence[tuple[str, ...]] = ()) -> Table:
    rows: list[tuple[str, ...]] = []
    for policy in SEGMENT_POLICIES:
        rows += rows_across(
            policy, [(groups[policy, k], PASSED, percent, True) for k in SEGMENT_KS]
        )
    heads = ("policy", *(f"k = {k}, solved %" for k in SEGMENT_KS))
    return Table(title, heads, (*rows, *beside))


def _less(groups: Groups, other: str, k: int) -> Interval:
    return groups[BEST, k].minus(groups[other, k], PASSED, rate=True)


def _differences(groups: Groups, title: str) -> Table:
    rows = []
    for other in SEGMENT_POLICIES:
        if other != BEST:
            pairs: list[Pair] = [
                (groups[BEST, k], groups[other, k], PASSED, percent, True) for k in SEGMENT_KS
            ]
            rows += difference_rows(f"{BEST} minus {other}", pairs)
    own: list[Pair] = [
        (groups[BEST, k], groups[BEST, 1], PASSED, percent, True) for k in SEGMENT_KS[1:]
    ]
    rows += [
        (label, NOTHING, *cells) for label, *cells in difference_rows("average, k minus k = 1", own)
    ]
    heads = ("paired difference, points", *(f"k = {k}" for k in SEGMENT_KS))
    return Table(title, heads, tuple(rows))


def _order(groups: Groups, title: str) -> Table:
    columns: list[Column] = [
        (column("segments.tau"), number, False),
        (column("segments.tau.chance"), number, False),
        (beyond_chance, number, False),
    ]
    rows = [row for p in SEGMENT_POLICIES for row in rows_of(groups[p, 1], columns)]
    return Table(title, ("policy", "tau of segments", "chance", "minus chance"), tuple(rows))


def _cost(groups: Groups, title: str) -> Table:
    rows: list[tuple[str, ...]] = []
    for policy in SEGMENT_POLICIES:
        calls = [(groups[policy, k], column("forwards"), one_digit, False) for k in SEGMENT_KS]
        ties = [(groups[policy, k], column("ties"), percent, False) for k in SEGMENT_KS]
        rows += rows_across(policy, [*calls, *ties])
    heads = (f"{what}, k = {k}" for what in ("calls", "ties %") for k in SEGMENT_KS)
    return Table(title, ("policy", *heads), tuple(rows))


def _mistakes(groups: Groups) -> Table:
    """What unsolved programs did."""
    rows: list[tuple[str, ...]] = []
    for policy in SEGMENT_POLICIES:
        rows += rows_across(
            policy,
            [
                (groups[policy, k], read, percent, True)
                for k in SEGMENT_KS
                for read in ENDS.values()
            ],
        )
    heads = (f"{what} %, k = {k}" for k in SEGMENT_KS for what in ENDS)
    note = "The other unsolved programs have no valid syntax or do not end in time."
    return Table("How programs fail at temperature 1", ("policy", *heads), tuple(rows), note)


def _claims(groups: Groups, where: str = "") -> tuple[Claim, ...]:
    paper = {row["policy"]: row["accuracy_by_k"] for row in published("segments")}
    found = []
    for other in ("left_to_right", "random"):
        gain = _less(groups, other, 1)
        found.append(
            Claim(
                f"{where}at k = 1 average solves more than {other.replace('_', ' ')}",
                f"GSM8K: {paper[BEST]['1']} against {paper[other]['1']} %",
                f"{percent(gain)} points",
                above_zero(gain),
            )
        )
    rest = {
        f"{other.replace('_', ' ')} at k = {k}": _less(groups, other, k)
        for other in SEGMENT_POLICIES
        if other != BEST
        for k in (2, 4)
    }
    least = min(rest, key=lambda each: rest[each].low)
    found.append(
        Claim(
            f"{where}at k = 2 and k = 4 average solves more than every other policy",
            f"GSM8K, k = 4: {paper[BEST]['4']} %, the next, random, {paper['random']['4']} %",
            f"the least sure lead, over {least}: {percent(rest[least])} points",
            all_of(*map(above_zero, rest.values())),
        )
    )
    falls = [groups[BEST, 1].minus(groups[BEST, k], PASSED, rate=True) for k in (2, 4)]
    found.append(
        Claim(
            f"{where}revealing more segments at once costs accuracy",
            f"GSM8K, average: {paper[BEST]['1']}, {paper[BEST]['2']}, {paper[BEST]['4']} %",
            f"k = 1 minus k = 2: {percent(falls[0])}, minus k = 4: {percent(falls[1])} points",
            all_of(*map(above_zero, falls)),
        )
    )
    return tuple(found)


def _checks(groups: Groups, drawn: Groups) -> tuple[str, ...]:
    top, room = (each[BEST, 1].mean(PASSED, rate=True) for each in (groups, drawn))
    risen = {
        name: drawn[BEST, 2].minus(drawn[BEST, 1], read, rate=True) for name, read in ENDS.items()
    }
    saved = {
        (name, k): drawn[BEST, k].minus(drawn["minimum", k], read, rate=True)
        for name, read in ENDS.items()
        for k in SEGMENT_KS[1:]
    }
    told = "; ".join(
        f"at k = {k} {percent(saved[ERROR, k])} points of programs that stop with an error, "
        f"{percent(saved[WRONG, k])} of those that give a wrong answer"
        for k in SEGMENT_KS[1:]
    )
    return (
        "With greedy decoding there is little to gain: average at k = 1 solves "
        f"{percent(top)} %. At temperature 1 it solves {percent(room)} % at k = 1 and less at "
        "larger k, so we test the claims there too. Why larger k is worse: segments that are "
        "revealed together do not see one another. If they only disagreed about names, programs "
        f"would stop with an error. From k = 1 to k = 2 average has {percent(risen[ERROR])} points "
        f"more programs that stop with an error and {percent(risen[WRONG])} points more that give "
        "a wrong answer. Names explain no more than the first number. Why minimum can be better "
        "than average at larger k: minimum puts off a line with one doubtful word, and average "
        "hides this word among certain ones. If so, average must fail more often in both ways. "
        f"Average minus minimum: {told}.",
    )


def _lines(groups: Groups) -> tuple[LineSeries, ...]:
    series = []
    for policy in SEGMENT_POLICIES:
        found = [
            (k, groups[policy, k].mean(PASSED, rate=True))
            for k in SEGMENT_KS
            if groups[policy, k].stored
        ]
        if found:
            x, y = [k for k, _ in found], [cell for _, cell in found]
            series.append(LineSeries(policy.replace("_", " "), COLORS[policy], x, y))
    return tuple(series)


def _figure(both: dict[str, Groups]) -> Drawing | None:
    named = {title: _lines(groups) for title, groups in both.items()}
    panels = tuple(LinePanel(series, title) for title, series in named.items() if series)
    if not panels:
        return None
    return lines(
        LineChart(
            "s4-segments",
            "Problems solved by latentmdm under five segment policies, by k.",
            "segments revealed in a step (k)",
            "problems solved",
            panels,
            x_ticks=(1, 2, 4),
            percent=True,
        )
    )


QUESTION = Question("s4", _runs, _section)
