"""The dial: does uncertainty about *where* cause the collapse, and are the remedies immune?

This tests the explanation of the paper. `layout` makes positions uncertain and leaves words alone;
`wording` does the reverse (docs/stories.md). Models of four families are trained at several
settings. Two controls go with them: runs without any network, on posteriors counted from renderings
(model_free.py), and a canvas that is filled in front, where the same mechanism must write from
right to left.
"""

from __future__ import annotations

from anyorder.measure.intervals import Interval
from anyorder.report.charts import Drawing, LineChart, LinePanel, LineSeries, lines
from studies.cells import Claim, Values, above_zero, all_of, within
from studies.model_plan import DIALLED, DIALS
from studies.plan import FREE_LAYOUTS, Plan
from studies.questions.dial_counted import (
    COLUMNS,
    HEADS,
    K_LOC,
    LINES,
    SMALL,
    TAU,
    counted_check,
    counted_claims,
    counted_group,
    counted_lines,
    counted_table,
    right_to_left,
    wanted,
)
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
from studies.records import Stored
from studies.view import Group, Reading, Study, beyond_chance, column, contrast

LAYOUTS = {"layout0": 0.0, "layout05": 0.5, "layout1": 1.0}
RIGHT = "mdm-dial-right"
FREE = {"layout05": "layout 0.5", "layout1": "layout 1", "wording1": "wording 1"}
"""The dials that are turned up."""
EFFECTS: dict[str, Column] = {
    "solved, points": (column("passed"), percent, True),
    "tau of lines, minus chance": (beyond_chance, number, False),
    "tau of tokens": (TAU, number, False),
    "AR-ness@1": (column("arness.global@1"), number, False),
    "LOC, wanted most": (wanted("top_loc"), number, False),
    "k-LOC, wanted most": (K_LOC, number, False),
}
FEW = 0.05
"""Shares of problems that differ by less count as the same."""
COUNTED_COLOR = "ar"
BECAUSE = "follows from the paper's explanation (Section 3.2); not tested there"

Groups = dict[tuple[str, str], Group]
"""By family and dial."""


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
        for family in DIALLED
        for dial in DIALS
    }
    right = Group("mdm, layout1, right-aligned", ((0, study.run(f"{RIGHT}.greedy")),))
    drawing = _figure(study, groups, right)
    return Section(
        title="The dial: does positional uncertainty cause the collapse?",
        asks="Do fixed-canvas models lose localisation and fall back to left to right when it "
        "becomes uncertain where tokens go, and only then? Are insertion and segments immune?",
        how="Models trained at layout 0, 0.5 and 1 (how much free length the programs have) and at "
        "wording 1 (free words of fixed length), greedy with their own confidence, random ties. "
        "Each model has 4,000 steps, fewer than the models of the other sections; flexmdm has "
        "4,000 more, after the mdm of the same setting. Within a family only the corpus differs. "
        "But each setting has one training: intervals draw problems and do not cover the luck of a "
        "training. The problems are the same at every setting. A control has no network at all: "
        "many renderings of each problem are drawn, and posteriors are counted among those that "
        "agree with the canvas; the decoder is the same. Tau is Kendall's tau of place and time: 1 "
        "is left to right, 0 is no order. Segment models choose the order of lines only, so "
        "families are compared by the tau of lines, minus the tau of a random order (see S3).",
        tables=(_models(groups, right), _effects(groups), counted_table(study)),
        figures=() if drawing is None else (drawing,),
        claims=(*_model_claims(groups, right), *counted_claims(study)),
        checks=_checks(study, groups),
    )


def _models(groups: Groups, right: Group) -> Table:
    columns = [each for _, each in COLUMNS]
    rows = [row for group in (*groups.values(), right) for row in rows_of(group, columns)]
    return Table("Trained models", ("model and corpus", *HEADS), tuple(rows))


def _effects(groups: Groups) -> Table:
    """What each dial changes in every family."""
    rows = []
    for family in DIALLED:
        for dial, title in FREE.items():
            pairs: list[Pair] = [
                (groups[family, dial], groups[family, "layout0"], *effect)
                for effect in EFFECTS.values()
            ]
            rows += difference_rows(f"{family}, {title} minus neither", pairs)
    heads = ("difference", *EFFECTS)
    return Table("What each dial changes, paired by problem", heads, tuple(rows))


def _rise(groups: Groups, family: str, read: Reading, dial: str = "layout1") -> Interval:
    """From layout 0."""
    return groups[family, dial].minus(groups[family, "layout0"], read)


def _rise_beyond(
    groups: Groups, other: str, read: Reading, dial: str, first: str = "mdm"
) -> Interval:
    """How much more the first family rises from layout 0 than another, by problem."""
    pairs = [(groups[family, dial], groups[family, "layout0"]) for family in (first, other)]
    return contrast(pairs[0], pairs[1], read)


def _model_claims(groups: Groups, right: Group) -> tuple[Claim, ...]:
    return (
        *_mdm_claims(groups),
        *(claim for family in DIALLED[1:] for claim in _remedy_claims(groups, family)),
        _segment_claim(groups),
        *(_wording_claim(groups, family) for family in DIALLED),
        *(_accuracy_claim(groups, family) for family in DIALLED),
        _mirror_claim(right),
    )


def _mdm_claims(groups: Groups) -> tuple[Claim, ...]:
    up = _rise(groups, "mdm", TAU)
    words = groups["mdm", "layout1"].minus(groups["mdm", "wording1"], TAU)
    control = _rise(groups, "mdm", TAU, "wording1")
    spread = groups["mdm", "layout0"].minus(groups["mdm", "layout1"], K_LOC)
    return (
        Claim(
            "mdm drifts to left to right as layout rises from 0 to 1 (tau of tokens)",
            BECAUSE,
            f"layout 1 minus layout 0 {number(up)}",
            above_zero(up),
        ),
        Claim(
            "and not as wording does: layout 1 is further left to right than wording 1",
            BECAUSE,
            f"layout 1 minus wording 1 {number(words)}; wording 1 minus layout 0 {number(control)}",
            above_zero(words),
        ),
        Claim(
            "mdm loses localisation as layout rises (k-LOC of the tokens it wants most)",
            BECAUSE,
            f"layout 0 minus layout 1 {number(spread)}",
            above_zero(spread),
        ),
    )


def _remedy_claims(groups: Groups, family: str) -> tuple[Claim, ...]:
    more = {
        dial: _rise_beyond(groups, family, beyond_chance, dial) for dial in ("layout05", "layout1")
    }
    own = _rise(groups, family, beyond_chance)
    because = OWN if family == "flexlatent" else BECAUSE
    return (
        Claim(
            f"layout affects {family} less: from layout 0 to 0.5 and to 1 the order of its lines "
            "rises less towards left to right than mdm's",
            because,
            f"rise of mdm minus rise of {family}: {number(more['layout05'])} to 0.5, "
            f"{number(more['layout1'])} to 1",
            all_of(*map(above_zero, more.values())),
        ),
        Claim(
            f"layout does not affect {family}: from layout 0 to 1 the order of its lines hardly "
            f"changes (tau within {SMALL:g})",
            because,
            f"layout 1 minus layout 0 {number(own)}",
            within(own, SMALL),
        ),
    )


def _segment_claim(groups: Groups) -> Claim:
    """The reason that we suspect if layout affects latentmdm: its slots are a fixed canvas too."""
    more = _rise_beyond(groups, "flexlatent", beyond_chance, "layout1", "latentmdm")
    return Claim(
        "uncertain places affect segments, too: from layout 0 to 1 the order of latentmdm's lines "
        "rises more than that of flexlatent's, which inserts them",
        OWN,
        f"rise of latentmdm minus rise of flexlatent {number(more)}",
        above_zero(more),
    )


def _wording_claim(groups: Groups, family: str) -> Claim:
    """The control of the claims about lines."""
    more = groups[family, "layout1"].minus(groups[family, "wording1"], beyond_chance)
    control = _rise(groups, family, beyond_chance, "wording1")
    return Claim(
        f"the order of {family}'s lines rises more with layout than with wording",
        f"{OWN}: the control of the claims about lines",
        f"layout 1 minus wording 1 {number(more)}; wording 1 minus layout 0 {number(control)}",
        above_zero(more),
    )


def _accuracy_claim(groups: Groups, family: str) -> Claim:
    lost = groups[family, "layout1"].minus(groups[family, "layout0"], column("passed"), rate=True)
    return Claim(
        f"{family} solves as much at layout 1 as at layout 0 (within {100 * FEW:g} points)",
        OWN,
        f"layout 1 minus layout 0 {percent(lost)} points",
        within(lost, FEW),
    )


def _mirror_claim(right: Group) -> Claim:
    tau = right.mean(TAU) if right.stored else None
    return Claim(
        f"on a right-aligned canvas mdm writes from right to left (tau below -{CLEARLY:g})",
        "the mirror of the same mechanism",
        f"tau {number(tau)}",
        right_to_left(tau),
    )


def _checks(study: Study, groups: Groups) -> tuple[str, ...]:
    told = "; ".join(
        f"{family} "
        + ", ".join(
            f"{number(_rise(groups, family, _beyond_solved, dial))} to {title}"
            for dial, title in FREE.items()
        )
        for family in DIALLED
    )
    return (
        counted_check(study),
        counted_lines(study),
        "A model that fails would be weak evidence (the first table has the shares solved). So we "
        "also look only at the problems that a model solves at both settings. The tau of lines "
        f"changes from neither dial by: {told}.",
        "Why the lines of latentmdm may drift with layout: its slots for segments are a fixed "
        "canvas too. Layout adds lines, so the slot of a line is as uncertain as the slot of a "
        "token. If so, insertion over segments must drift less, which is a claim above. Wording "
        "fixes all places, so there it need not drift less: the rise of latentmdm minus the rise "
        "of flexlatent is "
        f"{number(_rise_beyond(groups, 'flexlatent', beyond_chance, 'wording1', 'latentmdm'))} "
        "there. If this is as large, then insertion damps any drift, not only the drift that "
        "places cause. With more training (the models of S3 at layout 1), tau of lines minus "
        f"chance: flexlatent minus latentmdm is {number(_inserted(study))}, flexmdm minus mdm is "
        f"{number(_inserted(study, 'flexmdm', 'mdm'))}.",
    )


def _inserted(study: Study, one: str = "flexlatent", other: str = "latentmdm") -> Interval:
    """What insertion changes in the order of lines at layout 1."""
    return study.group(one, "greedy").minus(study.group(other, "greedy"), beyond_chance)


def _beyond_solved(run: Stored) -> Values:
    solved = {task for task, values in run.values("passed").items() if all(values)}
    return {task: values for task, values in beyond_chance(run).items() if task in solved}


def _line(
    label: str, color: str, cells: list[tuple[float, Interval]], dashed: bool = False
) -> list[LineSeries]:
    known = [(x, cell) for x, cell in cells if cell.n > 1]
    if not known:
        return []
    return [LineSeries(label, color, [x for x, _ in known], [y for _, y in known], dashed=dashed)]


def _figure(study: Study, groups: Groups, right: Group) -> Drawing | None:
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
        series for family in DIALLED for series in _line(family, family, trained(family, LINES))
    ]
    spread = _line("no network", COUNTED_COLOR, counted("left", K_LOC))
    spread += [
        series for family in DIALLED for series in _line(family, family, trained(family, K_LOC))
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
