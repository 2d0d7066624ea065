"""S2: what the models want most, and what they commit: mass and localisation over decoding.

Paper, Section 3.2, answer A1 of Section 4.2 and appendix C. The gap is the localisation of
committed tokens minus that of the two tokens with most mass on the same canvas; k-localisation
allows for tokens that stand in several places.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from anyorder.measure.intervals import Interval
from anyorder.report.charts import (
    Drawing,
    LineChart,
    LinePanel,
    LineSeries,
    PointChart,
    PointPanel,
    PointSet,
    Series,
    lines,
    points,
)
from studies.cells import YES, Claim, above_zero, all_of, mean_cell
from studies.plan import Plan
from studies.questions.section import (
    NOT_RUN,
    NOTHING,
    OWN,
    Column,
    Question,
    Section,
    Table,
    by_seed,
    number,
    part_of,
    rows_of,
)
from studies.view import Group, Reading, Study

FAMILIES = ("mdm", "flexmdm", "latentmdm", "flexlatent")
MAIN = ("mdm", "latentmdm")
TENTHS = 10
SHOWN = (
    ("top_mass", "mass, wanted most"),
    ("committed_mass", "mass, committed"),
    ("top_loc", "LOC, wanted most"),
    ("committed_localisation", "LOC, committed"),
    ("top_k_loc", "k-LOC, wanted most"),
    ("committed_k_loc", "k-LOC, committed"),
    ("top_spread", "spread, wanted most"),
    ("committed_spread", "spread, committed"),
    ("gap_loc", "gap LOC"),
    ("gap_k_loc", "gap k-LOC"),
)
COMPARED = ("gap_loc", "gap_k_loc", "committed_spread", "top_k_loc")
"""The quantities by which mdm and latentmdm are compared."""
TOP, COMMITTED = "wanted most", "committed"
LEAST_MASS = 0.01
"""Below it a token was hardly expected anywhere, and would stretch the axis."""


def _placed(quantity: str, tenth: int | None = None) -> Reading:
    return lambda run: run.placement(quantity, tenth)


def _runs(plan: Plan) -> list[str]:
    return [f"{model.name}.greedy" for family in FAMILIES for model in plan.seeds_of(family)]


def _section(study: Study) -> Section:
    groups = {family: study.group(family, "greedy", label=family) for family in FAMILIES}
    figures = [each for each in (_cloud(groups), _series(groups)) if each is not None]
    return Section(
        title="S2. Do the models know what, but not where?",
        asks="Are the tokens that a model wants most spread over many slots? What does the model "
        "commit instead? Does it help to decide on whole segments?",
        how="Greedy runs at layout 1; every family uses its own confidence. We ask the models "
        "again about the canvases of their decoding ([placement.md](placement.md)), mdm and "
        "flexmdm about every fourth canvas. Values are means over the tenths of a sample's "
        "decoding. LOC is the share of a token's mass at its best slot. k-LOC is the share in as "
        "many slots as the token is expected to fill. A token is spread if its mass is 1 or more "
        "and its LOC is 0.5 or less; for a committed token, LOC is the share at its slot. A gap is "
        "the value of committed tokens minus that of wanted tokens, on the canvases that commit a "
        "token of the program. Other canvases commit padding, so a gap is not the difference of "
        "the two columns beside it. Families commit program tokens at different times, so they are "
        "compared on the problems and tenths that both have. The posteriors of segment models are "
        "conditional on the earlier words of a segment; those of mdm are not.",
        tables=(
            _summary(groups),
            _compared(groups),
            *(_steps(group) for group in groups.values()),
        ),
        figures=tuple(figures),
        claims=_claims(groups),
        checks=_checks(groups),
    )


def _summary(groups: dict[str, Group]) -> Table:
    columns: list[Column] = [(_placed(name), number, False) for name, _ in SHOWN]
    rows = [row for group in groups.values() for row in rows_of(group, columns)]
    return Table(
        "Over the whole of decoding", ("model", *(title for _, title in SHOWN)), tuple(rows)
    )


def _compared(groups: dict[str, Group]) -> Table:
    """Latentmdm minus mdm in all ways that the claims and their check look at."""
    latent, mdm = groups["latentmdm"], groups["mdm"]
    titles = dict(SHOWN)
    ways = {
        "same tenths": together,
        "all tenths": lambda one, other, what: one.minus(other, _placed(what)),
        "same tenths, words alone": lambda one, other, what: together(one, other, f"{what}_words"),
    }
    rows = []
    for way, compare in ways.items():

        def cells(seed: int | None, compare: Compare = compare) -> list[str]:
            pair = part_of(latent, seed), part_of(mdm, seed)
            return [number(compare(*pair, what)) for what in COMPARED]

        rows += by_seed(f"latentmdm minus mdm, {way}", (latent, mdm), cells)
    heads = ("paired difference", *(titles[what] for what in COMPARED))
    return Table("latentmdm against mdm", heads, tuple(rows))


def _steps(group: Group) -> Table:
    rows = []
    for tenth in range(TENTHS):
        name = f"{10 * tenth} to {10 * tenth + 10} %"
        if not group.stored:
            rows.append((name, NOT_RUN, *[NOT_RUN] * len(SHOWN)))
            continue
        committing = {task for run in group.stored for task in run.placement("gap_loc", tenth)}
        cells = (group.mean(_placed(what, tenth)) for what, _ in SHOWN)
        told = (number(cell) if cell.n > 1 else NOTHING for cell in cells)
        rows.append((name, f"n = {len(committing)}", *told))
    heads = ("decoded", "problems", *(title for _, title in SHOWN))
    seeds = "all seeds" if len(group.seeds) > 1 else "one seed"
    note = "Problems: how many problems have a canvas in this tenth that commits a program token."
    return Table(f"{group.label} over its decoding, {seeds}", heads, tuple(rows), note)


def _claims(groups: dict[str, Group]) -> tuple[Claim, ...]:
    mdm, latent = groups["mdm"], groups["latentmdm"]
    gaps = [mdm.mean(_placed(name)) for name in ("gap_loc", "gap_k_loc")]
    later = together(mdm, latent, "gap_loc")
    spread = together(latent, mdm, "committed_spread")
    sure = together(latent, mdm, "top_k_loc")
    return (
        Claim(
            "mdm commits tokens that are better localised than those it wants most, also when "
            "copies are allowed for",
            "figures of Section 3.2: wanted tokens to the lower right, committed ones to the "
            "upper left",
            f"gap in LOC {number(gaps[0])}, in k-LOC {number(gaps[1])}",
            all_of(*map(above_zero, gaps)),
        ),
        Claim(
            "latentmdm commits wanted tokens although they are not localised: its gap is smaller "
            "than mdm's",
            'Section 4.2, A1: "commits a large fraction of high-mass but low-localization tokens"',
            f"gap of mdm minus gap of latentmdm {number(later)}",
            above_zero(later),
        ),
        Claim(
            "of the tokens that latentmdm commits, more are wanted but not localised (mass of 1 or "
            "more, LOC of 0.5 or less) than of mdm's",
            "the brown points of the same figure",
            f"share, latentmdm minus mdm: {number(spread)}",
            above_zero(spread),
        ),
        Claim(
            "what latentmdm wants most is better localised than what mdm does, copies allowed for "
            "(k-LOC)",
            f"{OWN}: does a segment know where its words go?",
            f"latentmdm minus mdm {number(sure)}",
            above_zero(sure),
        ),
    )


Compare = Callable[[Group, Group, str], Interval]


def together(left: Group, right: Group, quantity: str) -> Interval:
    """Left minus right on the tenths of each problem that both have."""
    pairs = [
        (one.tenths(quantity), other.tenths(quantity))
        for one, other in zip(*left.against(right), strict=True)
    ]
    differences = [
        {
            task: [fmean(own[part] - theirs[task][part] for part in shared)]
            for task, own in ours.items()
            if (shared := own.keys() & theirs.get(task, {}).keys())
        }
        for ours, theirs in pairs
    ]
    return mean_cell(differences)


def _checks(groups: dict[str, Group]) -> tuple[str, ...]:
    mdm, latent = groups["mdm"], groups["latentmdm"]
    late = [mdm.mean(_placed(name, TENTHS - 1)) for name in ("top_k_loc", "gap_k_loc")]
    early = [mdm.mean(_placed(name, 1)) for name in ("top_k_loc", "gap_k_loc")]
    gap = together(mdm, latent, "gap_loc_words")
    spread = together(latent, mdm, "committed_spread_words")
    wanted = latent.mean(_placed("top_k_loc_words"))
    back = (
        ""
        if YES in (above_zero(gap), above_zero(spread))
        else " So the paper's finding does not come back when we leave these tokens out. But where "
        "a no becomes undecided, they were a part of the reason."
    )
    return (
        "A token that certainly stands in five places has a low LOC, but not a low k-LOC. So the "
        "gap in LOC shows repetition and uncertainty together, and the gap in k-LOC shows "
        f"uncertainty alone. For mdm the k-LOC of wanted tokens is {number(early[0])} in the "
        f"second tenth of decoding, with a gap of {number(early[1])}. In the last tenth it is "
        f"{number(late[0])}, with a gap of {number(late[1])}.",
        "Why latentmdm may differ from the paper: some tokens are in every line (its newline, its "
        "end, `=`). The model wants them as often as there are open lines, and it never commits "
        "the end. This could hide what happens to words. With words and numbers alone: is its gap "
        f"smaller than that of mdm? {above_zero(gap)} ({number(gap)}). Are more of its committed "
        f"tokens wanted but not localised? {above_zero(spread)} ({number(spread)}).{back} Another "
        "reason, which we did not test: given the earlier words of a segment, the next word has "
        f"its place (k-LOC of the words that latentmdm wants most: {number(wanted)}). So few "
        "tokens are wanted and have no place.",
    )


def _cloud(groups: dict[str, Group]) -> Drawing | None:
    panels = []
    for family in MAIN:
        run = dict(groups[family].seeds).get(0)
        if run is None:
            continue
        clouds = {}
        for label, kind in ((TOP, "top"), (COMMITTED, "committed")):
            mass, loc = run.points(kind)
            kept = [pair for pair in zip(mass, loc, strict=True) if pair[0] >= LEAST_MASS]
            if kept:
                clouds[label] = PointSet([x for x, _ in kept], [y for _, y in kept])
        if clouds:
            panels.append(PointPanel(family, clouds))
    if not panels:
        return None
    return points(
        PointChart(
            "s2-mass-localisation",
            "Mass against localisation of tokens wanted most and of tokens committed, seed 0.",
            "mass: how often the token is expected",
            "localisation: share at one slot",
            (Series(TOP, "top"), Series(COMMITTED, "committed")),
            tuple(panels),
            log_x=True,
            y_limits=(0, 1.04),
        )
    )


def _series(groups: dict[str, Group]) -> Drawing | None:
    panels = []
    for title, names in (
        ("LOC", ("top_loc", "committed_localisation")),
        ("k-LOC", ("top_k_loc", "committed_k_loc")),
    ):
        series = []
        for family in MAIN:
            for name, dashed in zip(names, (True, False), strict=True):
                found = [
                    (10 * tenth + 5, cell)
                    for tenth in range(TENTHS)
                    if groups[family].stored
                    and (cell := groups[family].mean(_placed(name, tenth))).n > 1
                ]
                if found:
                    what = TOP if dashed else COMMITTED
                    x, y = [each for each, _ in found], [each for _, each in found]
                    series.append(LineSeries(f"{family}, {what}", family, x, y, dashed=dashed))
        if series:
            panels.append(LinePanel(tuple(series), title))
    if not panels:
        return None
    return lines(
        LineChart(
            "s2-over-decoding",
            "Localisation of wanted and committed tokens over decoding, mdm and latentmdm.",
            "per cent decoded",
            "share of a token's mass",
            tuple(panels),
            y_limits=(0, 1.04),
        )
    )


QUESTION = Question("s2", _runs, _section)
