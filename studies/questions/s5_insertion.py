"""S5: the insertion temperature: where slots open, and never how many.

Paper, appendix D, "Insertion Temperature": pass@k by T_ins, 16 samples a problem, token temperature
0.1; the expected length does not depend on T_ins.
"""

from __future__ import annotations

import math

from anyorder.measure import published
from anyorder.report.charts import Drawing, LineChart, LinePanel, LineSeries, lines
from studies.cells import Claim, above_zero, all_of, below_zero, within
from studies.plan import INSERTION_TEMPERATURES, Plan
from studies.questions.section import (
    Column,
    Pair,
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
from studies.view import Group, Study, column

NEUTRAL, SHARP = 1.0, 0.6
LENGTH_MARGIN = 0.03
"""Lengths within so much of the mean length count as the same."""
COLORS = ("flexmdm", "clean", "score", "confidence")


def _runs(plan: Plan) -> list[str]:
    return [name for name, run in plan.runs.items() if run.kind.startswith("insertion-")]


def _section(study: Study) -> Section:
    groups = {
        value: study.group("flexmdm", f"insertion-{value:g}", label=f"T_ins {value:g}")
        for value in INSERTION_TEMPERATURES
    }
    ks = attempts(groups.values())
    drawing = _figure(groups, ks)
    return Section(
        title="S5. What does the insertion temperature do?",
        asks="If insertions are placed more decisively, does one attempt solve more? Do many "
        "attempts lose diversity? Does the length stay the same?",
        how="flexmdm at layout 1, token temperature 0.1, policy sampled, clock events; several "
        "samples per problem.",
        tables=(_rates(groups, ks), _differences(groups, ks), _lengths(groups)),
        figures=() if drawing is None else (drawing,),
        claims=_claims(groups, ks),
        checks=_checks(groups, ks),
    )


def _rates(groups: dict[float, Group], ks: list[int]) -> Table:
    columns: list[Column] = [(passes(k), percent, True) for k in ks]
    rows = [row for group in groups.values() for row in rows_of(group, columns)]
    for row in published("pass_at_k", model="FlexMDM"):
        if row["task"] in ("mbpp", "humaneval"):
            values = (f"{row['pass_at_k'].get(str(k), math.nan):.1f}" for k in ks)
            rows.append((f"paper: {row['task']}, T_ins {row['insertion_temperature']}", *values))
    heads = ("insertion temperature", *(f"pass@{k} %" for k in ks))
    return Table("pass@k", heads, tuple(rows))


def _differences(groups: dict[float, Group], ks: list[int]) -> Table:
    base = groups[NEUTRAL]
    rows = []
    for value, group in groups.items():
        if value != NEUTRAL:
            pairs: list[Pair] = [(group, base, passes(k), percent, True) for k in ks]
            rows += difference_rows(f"T_ins {value:g} minus 1", pairs)
    heads = ("paired difference, points", *(f"pass@{k}" for k in ks))
    return Table("Against the neutral temperature", heads, tuple(rows))


def _lengths(groups: dict[float, Group]) -> Table:
    columns: list[Column] = [
        (column("tokens"), one_digit, False),
        (column("valid"), percent, True),
        (column("forwards"), one_digit, False),
        (column("ties"), percent, False),
    ]
    rows = [row for group in groups.values() for row in rows_of(group, columns)]
    heads = ("insertion temperature", "tokens of the program", "valid %", "network calls", "ties %")
    return Table("Length", heads, tuple(rows))


def _claims(groups: dict[float, Group], ks: list[int]) -> tuple[Claim, ...]:
    base, sharp = groups[NEUTRAL], groups[SHARP]
    first = sharp.minus(base, passes(1), rate=True)
    last = sharp.minus(base, passes(ks[-1]), rate=True)
    mean = base.mean(column("tokens")).estimate if base.stored else 0.0
    margin = LENGTH_MARGIN * mean
    lengths = [
        group.minus(base, column("tokens")) for value, group in groups.items() if value != NEUTRAL
    ]
    widest = max(lengths, key=lambda each: abs(each.estimate)) if lengths else None
    return (
        Claim(
            "sharpening insertions to 0.6 raises pass@1",
            _paper(1),
            f"{percent(first)} points",
            above_zero(first),
        ),
        Claim(
            f"it raises pass@{ks[-1]}, as on MBPP, whose prompts leave the program's shape open",
            _paper(16),
            f"{percent(last)} points",
            above_zero(last),
        ),
        Claim(
            f"it lowers pass@{ks[-1]}, as on HumanEval, whose prompts fix it",
            _paper(16),
            f"{percent(last)} points",
            below_zero(last),
        ),
        Claim(
            f"the length stays the same: within {LENGTH_MARGIN:.0%} of that at 1 at every "
            "temperature",
            "by construction: only the placement is tempered",
            f"largest difference {number(widest)} tokens; at 1 there are "
            f"{one_digit(base.mean(column('tokens')) if base.stored else None)}",
            all_of(*(within(each, margin) for each in lengths)),
        ),
    )


def _paper(k: int) -> str:
    """What the paper's sweep has, from neutral to the value that it chose or tried."""
    rows = {
        (row["task"], row["insertion_temperature"]): row["pass_at_k"][str(k)]
        for row in published("pass_at_k", model="FlexMDM")
    }
    told = (("MBPP", "mbpp", 0.6), ("HumanEval", "humaneval", 0.7))
    return "; ".join(
        f"{name} {rows[task, 1.0]:.1f} to {rows[task, value]:.1f} % at {value:g}"
        for name, task, value in told
    )


def _checks(groups: dict[float, Group], ks: list[int]) -> tuple[str, ...]:
    valid = groups[SHARP].minus(groups[NEUTRAL], column("valid"), rate=True)
    solved = groups[SHARP].minus(groups[NEUTRAL], column("passed", among="valid"), rate=True)
    right = groups[SHARP].minus(groups[NEUTRAL], column("tokens", among="valid"))
    return (
        "Sharper placement can help in two ways: fewer programs are broken, or valid programs are "
        f"better. From 1 to 0.6, valid programs change by {percent(valid)} points, solved programs "
        f"among the valid ones by {percent(solved)} points, and the tokens of valid programs by "
        f"{number(right)}. Given the canvas, every step keeps the expected number of insertions. "
        "But a canvas that was filled in another way may need another total.",
    )


def _figure(groups: dict[float, Group], ks: list[int]) -> Drawing | None:
    series = []
    for color, (value, group) in zip(COLORS, groups.items(), strict=True):
        if group.stored:
            cells = [group.mean(passes(k), rate=True) for k in ks]
            series.append(LineSeries(f"T_ins {value:g}", color, ks, cells))
    if not series:
        return None
    return lines(
        LineChart(
            "s5-insertion",
            "pass@k of flexmdm at several insertion temperatures.",
            "attempts (k)",
            "problems solved",
            (LinePanel(tuple(series)),),
            log_x=True,
            x_ticks=tuple(ks),
            percent=True,
        )
    )


QUESTION = Question("s5", _runs, _section)
