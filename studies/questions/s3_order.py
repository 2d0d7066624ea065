"""S3: does generation move back and forth across the program's tree, and do segments?

Paper, Section 4.1 and appendix D: CBC, RUB, RUB+ and OBW on statement trees, overall and at nodes
with several children, beside what the same steps score sorted from left to right and permuted.
"""

from __future__ import annotations

from anyorder.measure import published
from anyorder.measure.order_nodes import METRICS
from anyorder.measure.order_table import PARTS
from anyorder.report.charts import Bar, BarChart, BarGroup, BarPanel, Drawing, Series, bars
from studies.cells import Claim, Values, above_zero, all_of, within
from studies.plan import Plan
from studies.questions.section import (
    NOTHING,
    OWN,
    Column,
    Pair,
    Question,
    Section,
    Table,
    difference_rows,
    number,
    one_digit,
    percent,
    rows_of,
)
from studies.records import Stored
from studies.view import Group, Study, beyond_chance, column

TITLES = {"cbc": "CBC", "rub": "RUB", "rub_plus": "RUB+", "obw": "OBW"}
SPLIT = "split_only"
ROWS = {
    "mdm, confidence": ("mdm", "greedy"),
    "mdm, entropy (T 0.2)": ("mdm", "similarity-entropy"),
    "flexmdm, confidence": ("flexmdm", "greedy"),
    "flexmdm, sampled (T 0.1)": ("flexmdm", "insertion-1"),
    "latentmdm, average": ("latentmdm", "greedy"),
    "flexlatent, average": ("flexlatent", "greedy"),
}
CONTROLS = {"left to right": ".left_to_right", "random": ".random"}
SHUFFLED = ("lines at random", ".segments")
"""The control of models that write whole segments."""
NEAR = 0.1
"""Scores that differ by no more count as nearly the same."""
SEGMENTED = ("latentmdm, average", "flexlatent, average")


def _runs(plan: Plan) -> list[str]:
    return [
        f"{model.name}.{kind}" for family, kind in ROWS.values() for model in plan.seeds_of(family)
    ]


def _section(study: Study) -> Section:
    groups = {
        label: study.group(family, kind, label=label) for label, (family, kind) in ROWS.items()
    }
    drawing = _figure(groups)
    return Section(
        title="S3. Does generation move back and forth across the program?",
        asks="Insertion models may preview and revisit blocks of the program, while fixed-canvas "
        "models complete one block after another. Do they? In which order do segment models write "
        "lines?",
        how="Greedy runs at layout 1, every family with its own confidence, and two rows with the "
        "protocols of the paper (mdm by entropy at temperature 0.2; flexmdm by the probability of "
        "the drawn token at 0.1). Scope code_only, exact definitions ([order.md](order.md)). The "
        "rows of the paper are in mode compat, as its release computes them. The left-to-right "
        "control sorts single tokens and may cut a line that was written at once. So segment "
        "models have a third control: their lines in random order, each line still written at "
        "once. Compare segment models with this control, because nothing can return to a line that "
        "is written at once.",
        tables=(
            *(_metrics(groups, part) for part in PARTS),
            _differences(groups),
            _segments(groups),
        ),
        figures=() if drawing is None else (drawing,),
        claims=_claims(groups),
        checks=_checks(groups),
    )


def _metrics(groups: dict[str, Group], part: str) -> Table:
    columns: list[Column] = [(column(f"order.{part}.{name}"), number, False) for name in METRICS]
    columns.append((column("ties"), percent, False))
    rows = []
    for group in groups.values():
        rows += rows_of(group, columns)
        controls = [*CONTROLS.items(), *([SHUFFLED] if group.label in SEGMENTED else [])]
        for title, ending in controls if group.stored else ():
            values = (
                number(group.mean(column(f"order.{part}.{name}{ending}"))) for name in METRICS
            )
            rows.append((f"  control: {title}", *values, NOTHING))
    rows += [
        (f"paper: {row['model']}, {row['task']}", *(f"{row[key][m]:.2f}" for m in METRICS), NOTHING)
        for row in published("order", scope="code_only")
        for key in ["overall" if part == "overall" else "split"]
    ]
    heads = ("model and policy", *(TITLES[name] for name in METRICS), "ties %")
    title = "All nodes" if part == "overall" else "Nodes with several children"
    return Table(f"Order on the statement tree: {title.lower()}", heads, tuple(rows))


def _differences(groups: dict[str, Group]) -> Table:
    mdm, flex = groups["mdm, confidence"], groups["flexmdm, confidence"]
    rows = []
    for part, title in (("overall", "all nodes"), (SPLIT, "nodes with several children")):
        pairs: list[Pair] = [
            (flex, mdm, column(f"order.{part}.{name}"), number, False) for name in METRICS
        ]
        rows += difference_rows(f"flexmdm minus mdm, {title}", pairs)
    heads = ("paired difference", *(TITLES[name] for name in METRICS))
    return Table("flexmdm against mdm, both by confidence", heads, tuple(rows))


def _segments(groups: dict[str, Group]) -> Table:
    columns: list[Column] = [
        (column("segments.tau"), number, False),
        (column("segments.tau.chance"), number, False),
        (beyond_chance, number, False),
        (column("segments.count"), one_digit, False),
        (column("passed"), percent, True),
    ]
    rows = [row for group in groups.values() for row in rows_of(group, columns)]
    heads = ("model and policy", "tau", "chance", "minus chance", "segments or lines", "solved %")
    note = (
        "Kendall's tau of place and completion: 1 is left to right, -1 right to left. Chance is "
        "the tau of a random order of the same tokens. It is below 0 for lines that are written "
        "token by token, because the long first line is finished late."
    )
    return Table("In which order segments (or lines) are finished", heads, tuple(rows), note)


def _claims(groups: dict[str, Group]) -> tuple[Claim, ...]:
    mdm, flex = groups["mdm, confidence"], groups["flexmdm, confidence"]
    reads = {name: column(f"order.{SPLIT}.{name}") for name in METRICS}
    over = {name: flex.minus(mdm, read) for name, read in reads.items()}
    sequential = {
        name: mdm.minus(mdm, read, column(f"order.{SPLIT}.{name}.left_to_right"))
        for name, read in reads.items()
    }
    paper = {
        row["model"]: row["split"]
        for row in published("order", scope="code_only", task="humaneval")
    }
    told = ", ".join(
        f"{TITLES[m]} {paper['FlexMDM'][m]:.2f} against {paper['Dream-Coder'][m]:.2f}"
        for m in METRICS
    )
    claims = [
        Claim(
            "flexmdm scores higher than mdm in CBC, RUB, RUB+ and OBW at nodes with several "
            "children",
            f"HumanEval, code_only: {told}",
            ", ".join(f"{TITLES[name]} {number(each)}" for name, each in over.items()),
            all_of(*map(above_zero, over.values())),
        ),
        Claim(
            f"mdm by confidence collapses: within {NEAR:g} of its own left-to-right control in all "
            "four",
            "the paper's Dream-Coder: RUB 0.07 at nodes with several children",
            ", ".join(f"{TITLES[name]} {number(each)}" for name, each in sequential.items()),
            all_of(*(within(each, NEAR) for each in sequential.values())),
        ),
    ]
    for label in SEGMENTED:
        group = groups[label]
        below = group.mean(_beyond_near)
        above = group.mean(beyond_chance)
        claims.append(
            Claim(
                f"{label.partition(',')[0]} writes its segments neither strictly from left to "
                f"right nor at random: tau below {1 - NEAR:g}, and above that of random order",
                "the generation trace of appendix E" if label.startswith("latentmdm") else OWN,
                f"how far below {1 - NEAR:g}: {number(below)}; tau minus chance: {number(above)}",
                all_of(above_zero(below), above_zero(above)),
            )
        )
    return tuple(claims)


def _beyond_near(run: Stored) -> Values:
    """How far tau is from left to right, beyond what counts as near."""
    values = run.values("segments.tau")
    return {task: [1 - NEAR - each for each in own] for task, own in values.items()}


def _checks(groups: dict[str, Group]) -> tuple[str, ...]:
    mdm, flex = groups["mdm, confidence"], groups["flexmdm, confidence"]
    reads = {"tau": column("arness.tau"), "local AR-ness": column("arness.local@1")}
    told = ", ".join(
        f"{name} {number(flex.mean(read))} and {number(mdm.mean(read))}"
        for name, read in reads.items()
    )
    solved = ", ".join(
        f"{TITLES[name]} {number(flex.minus(mdm, column(f'order.{SPLIT}.{name}', among='passed')))}"
        for name in METRICS
    )
    ends = [
        group.minus(group, column(f"order.{SPLIT}.rub.random"), column(f"order.{SPLIT}.rub"))
        for group in (flex, mdm)
    ]
    return (
        "Statements of this corpus have three to ten tokens. So an order that goes from left to "
        "right but skips single words already returns to blocks, and RUB counts each such return "
        f"in full. flexmdm and mdm: {told}. RUB of the random control minus their own: "
        f"{number(ends[0])} and {number(ends[1])}.",
        "flexmdm solves fewer problems, and its broken programs could be those that it wrote out "
        f"of order. On the problems that both solved, flexmdm minus mdm: {solved}.",
        "The order in which flexmdm finishes lines: tau minus chance is "
        f"{number(flex.mean(beyond_chance))}; random order has 0.",
    )


def _figure(groups: dict[str, Group]) -> Drawing | None:
    if not any(group.stored for group in groups.values()):
        return None
    panels = []
    for name in METRICS:
        found = []
        for label, group in groups.items():
            value = group.mean(column(f"order.{SPLIT}.{name}")) if group.stored else None
            known = value is not None and value.n > 0
            controls = {}
            if known:
                controls = {
                    title: group.mean(column(f"order.{SPLIT}.{name}{ending}"))
                    for title, ending in CONTROLS.items()
                }
            bar = Bar(label, value if known else None, controls)
            found.append(BarGroup(label, (bar,)))
        panels.append(BarPanel(TITLES[name], tuple(found), TITLES[name], limits=(0, 1)))
    series, seen = [], set()
    for label, (family, _) in ROWS.items():
        series.append(Series(label, family, pale=family in seen))
        seen.add(family)
    return bars(
        BarChart(
            "s3-order",
            "Order metrics at nodes with several children, beside both controls.",
            tuple(series),
            tuple(panels),
            tuple(CONTROLS),
        )
    )


QUESTION = Question("s3", _runs, _section)
