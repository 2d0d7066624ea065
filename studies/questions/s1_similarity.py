"""S1: are programs of confidence decoding closer to left-to-right ones than random ones are?

Paper, Section 3.1 and appendix B: best match among the left-to-right samples of the same prompt, by
three metrics, of valid and of correct programs; and the learned planner of its Section 3.2.
"""

from __future__ import annotations

from collections.abc import Collection

from anyorder.measure import published
from anyorder.measure.intervals import Interval
from anyorder.measure.programs import METRICS
from anyorder.report.charts import Bar, BarChart, BarGroup, BarPanel, Drawing, Series, bars
from studies.cells import YES, Claim, above_zero, all_of, within
from studies.plan import DIVERSE_POLICIES, SIMILARITY_POLICIES, Plan
from studies.questions.section import (
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

EXACT = ("confidence", "margin", "entropy")
PALE = ("margin", "entropy", "published")
FILTERS = ("valid", "correct")
REFERENCE, RANDOM, PLANNER = "left_to_right", "random", "planner"
THEIRS = {"published": "confidence"}
"""What the paper calls the sampler of the Dream family."""
SAME = 0.02
"""Similarities that differ by less count as alike."""


def _pairs(metric: str, kind: str, *, ceiling: bool = False) -> Reading:
    return lambda run: run.pairs(metric, kind, ceiling=ceiling)


def _runs(plan: Plan) -> list[str]:
    kinds = ("similarity-", "diverse-")
    return [name for name, run in plan.runs.items() if run.kind.startswith(kinds)]


def _groups(study: Study) -> dict[str, Group]:
    found = {
        policy: study.group("mdm", f"similarity-{policy}", label=policy)
        for policy in (*SIMILARITY_POLICIES, RANDOM, REFERENCE)
    }
    planner = study.run("planner-layout1.similarity-planner")
    found[PLANNER] = Group(PLANNER, ((0, planner),))
    return found


def _diverse(study: Study) -> dict[str, Group]:
    return {
        policy: study.group("mdm", f"diverse-{policy}", label=policy) for policy in DIVERSE_POLICIES
    }


def _section(study: Study) -> Section:
    groups, diverse = _groups(study), _diverse(study)
    drawing = _figure(groups)
    return Section(
        title="S1. Are confidence-decoded programs closer to left-to-right ones than random ones?",
        asks="Does the order that confidence chooses lead to other programs than writing from left "
        "to right? Does a learned planner escape this?",
        how="mdm at layout 1, temperature 0.2, top-p 0.95, one slot per step. confidence, margin "
        "and entropy read the untempered posterior and break ties at random. published is the "
        "sampler of the Dream family: it ranks after temperature and top-p, and it takes the "
        "leftmost of equal slots (see "
        "[ties](#ties-how-much-of-the-collapse-comes-from-tied-confidences)). As in the paper, "
        "left-to-right and random decoding have many samples per problem, and the others have one. "
        "The planner has many samples too: it draws its slots, but takes its tokens at temperature "
        "0, and the low temperature alone may bring its programs closer. Each program is matched "
        "with the most similar left-to-right program of the same problem. The ceiling matches each "
        "left-to-right sample with the other ones. These are one fewer, so at temperature 1, with "
        "few samples, a policy can score above the ceiling.",
        tables=(
            _similarities(groups, "Similarity to the nearest left-to-right program"),
            _differences(groups, "Against random order, on the same problems"),
            _orders(groups, "What the policies did"),
            _similarities(diverse, "The same at temperature 1, many samples of each policy"),
            _differences(diverse, "At temperature 1, against random order"),
            _orders(diverse, "What the policies did at temperature 1"),
        ),
        figures=() if drawing is None else (drawing,),
        claims=(*_claims(groups), *_diverse_claims(diverse)),
        checks=_checks(groups, diverse),
    )


def _similarities(groups: dict[str, Group], title: str) -> Table:
    columns: list[Column] = [
        (_pairs(metric, kind), _three, False) for kind in FILTERS for metric in METRICS
    ]
    rows = [
        row
        for name, group in groups.items()
        if name != REFERENCE
        for row in rows_of(group, columns)
    ]
    own: list[Column] = [
        (_pairs(metric, kind, ceiling=True), _three, False)
        for kind in FILTERS
        for metric in METRICS
    ]
    base = groups[REFERENCE]
    rows += rows_of(Group("ceiling", base.seeds), own)
    heads = ("policy", *(f"{kind} {metric}" for kind in FILTERS for metric in METRICS))
    return Table(title, heads, tuple(rows))


def _differences(groups: dict[str, Group], title: str) -> Table:
    rows = []
    for name, group in groups.items():
        if name not in (RANDOM, REFERENCE):
            pairs: list[Pair] = [
                (group, groups[RANDOM], _pairs(metric, kind), _three, False)
                for kind in FILTERS
                for metric in METRICS
            ]
            rows += difference_rows(f"{name} minus random", pairs)
    heads = ("paired difference", *(f"{kind} {m}" for kind in FILTERS for m in METRICS))
    note = "Positive: closer to left-to-right programs than random order is."
    return Table(title, heads, tuple(rows), note)


def _three(found: Interval | None) -> str:
    return number(found, 3)


def _orders(groups: dict[str, Group], title: str) -> Table:
    columns: list[Column] = [
        (column("passed"), percent, True),
        (column("valid"), percent, True),
        (column("arness.tau"), number, False),
        (column("arness.global@1"), number, False),
        (column("arness.global@1.chance"), number, False),
        (column("ties"), percent, False),
    ]
    rows = [row for group in groups.values() for row in rows_of(group, columns)]
    heads = ("policy", "solved %", "valid %", "tau", "AR-ness@1", "chance", "ties %")
    return Table(title, heads, tuple(rows))


def _paper(policy: str, kind: str = "valid") -> str:
    """The paper's ASTD over its models on HumanEval."""
    policy = THEIRS.get(policy, policy)
    values = [
        row[kind]["astd"]
        for row in published("similarity", policy=policy, task="humaneval")
        if (row["model"] == "dUltra-coding-b128") == (policy == PLANNER)
    ]
    return f"{min(values):.2f} to {max(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def _claims(groups: dict[str, Group]) -> tuple[Claim, ...]:
    found = []
    for name in (*SIMILARITY_POLICIES, PLANNER):
        room = _room(groups, {seed for seed, _ in groups[name].seeds})
        differences = {
            (kind, metric): groups[name].minus(groups[RANDOM], _pairs(metric, kind))
            for kind in FILTERS
            for metric in METRICS
        }
        who = "the learned planner does not escape: it" if name == PLANNER else name
        found.append(
            Claim(
                f"{who} is closer to left to right than random order is, valid and correct "
                "pairs, all three metrics",
                f"ASTD of valid pairs on HumanEval: {_paper(name)} against "
                f"{_paper(RANDOM)} for random",
                "; ".join(
                    f"{kind} ASTD {number(differences[kind, 'ASTD'], 3)}, where the ceiling is "
                    f"{number(room[kind], 3)} above random"
                    for kind in FILTERS
                ),
                all_of(*map(above_zero, differences.values())),
            )
        )
    return tuple(found)


def _closer(diverse: dict[str, Group], kind: str, metric: str = "ASTD") -> Interval:
    return diverse["confidence"].minus(diverse[RANDOM], _pairs(metric, kind))


def _diverse_claims(diverse: dict[str, Group]) -> tuple[Claim, ...]:
    """The same claim where programs of one problem differ, so that there is room for it."""
    return tuple(
        Claim(
            f"at temperature 1 confidence is closer to left to right than random order is, {kind} "
            "pairs, all three metrics",
            "the same, where samples of one problem differ",
            ", ".join(f"{m} {number(_closer(diverse, kind, m), 3)}" for m in METRICS),
            all_of(*(above_zero(_closer(diverse, kind, m)) for m in METRICS)),
        )
        for kind in FILTERS
    )


def _room(groups: dict[str, Group], seeds: Collection[int] | None = None) -> dict[str, Interval]:
    """How much nearer left-to-right programs are to each other than random order's are to them.

    `seeds`: use the models with these seeds only.
    """
    whole = groups[REFERENCE]
    base = Group(
        whole.label, tuple(each for each in whole.seeds if seeds is None or each[0] in seeds)
    )
    return {
        kind: base.minus(groups[RANDOM], _pairs("ASTD", kind, ceiling=True), _pairs("ASTD", kind))
        for kind in FILTERS
    }


def _by_filter(cells: dict[str, Interval]) -> str:
    return ", ".join(f"{kind} {number(each, 3)}" for kind, each in cells.items())


def _checks(groups: dict[str, Group], diverse: dict[str, Group]) -> tuple[str, ...]:
    """How much room there is for a difference, and the difference where there is more room."""
    room, more = _room(groups), _room(diverse)
    closer = {kind: _closer(diverse, kind) for kind in FILTERS}
    alike = within(room["correct"], SAME)
    size = (
        " So the claims about correct pairs hold by their sign, but the size is small."
        if alike == YES
        else ""
    )
    return (
        _alike(groups),
        "The differences in the paper are tenths of ASTD, larger than all of ours. In this corpus "
        "the prompt determines the program up to its layout, so there is little room between "
        "random order and the ceiling. ASTD of the ceiling minus ASTD of random order: "
        f"{_by_filter(room)}. Are correct programs of random order as close as left-to-right "
        f"programs are to each other (within {SAME})? {alike}.{size} At temperature 1 samples "
        f"differ, and the same room is {_by_filter(more)}; confidence minus random order is "
        f"{_by_filter(closer)}.",
    )


def _alike(groups: dict[str, Group]) -> str:
    """Whether the definitions of confidence wrote programs that no metric tells apart."""
    first, *others = EXACT
    apart = [
        groups[other].minus(groups[first], _pairs(metric, kind))
        for other in others
        for kind in FILTERS
        for metric in METRICS
    ]
    if any(each.n == 0 or each.method != "constant" or each.estimate for each in apart):
        return ""
    return (
        f"{', '.join(EXACT[:-1])} and {EXACT[-1]} differ on no problem, by any metric: read the "
        "claims about them as one finding, not as three."
    )


def _figure(groups: dict[str, Group]) -> Drawing | None:
    shown = [groups[name] for name in (*SIMILARITY_POLICIES, PLANNER, RANDOM)]
    if not any(group.stored for group in shown):
        return None
    palette = dict.fromkeys(SIMILARITY_POLICIES, "confidence") | {
        PLANNER: "planner",
        RANDOM: "random",
    }
    panels = []
    for kind in FILTERS:
        found = []
        for group in shown:
            value = group.mean(_pairs("ASTD", kind)) if group.stored else None
            known = value is not None and value.n > 0
            found.append(BarGroup(group.label, (Bar(group.label, value if known else None),)))
        panels.append(BarPanel("ASTD", tuple(found), f"{kind} pairs", limits=(0, 1)))
    series = tuple(
        Series(
            group.label,
            palette[group.label],
            pale=group.label in PALE,
        )
        for group in shown
    )
    return bars(
        BarChart(
            "s1-similarity",
            "ASTD of each policy's programs to the nearest left-to-right program.",
            series,
            tuple(panels),
        )
    )


QUESTION = Question("s1", _runs, _section)
