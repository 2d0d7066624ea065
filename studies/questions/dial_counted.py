"""The dial without a network: what confidence does with posteriors counted from renderings.

The second half of dial.py: the runs of model_free.py, at every setting of the dials, on both
canvases and under both tie rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.data.corpora.stories import StoriesConfig, core, freedom
from anyorder.measure.intervals import Interval
from studies.cells import Claim, above_zero, all_of, beyond, mean_cell, mirrored, within
from studies.plan import FREE_LAYOUTS, FREE_WORDINGS, SEEN
from studies.questions.section import CLEARLY, Column, Table, number, percent, rows_of
from studies.view import Group, Reading, Study, column

TAU, LINES = column("arness.tau"), column("segments.tau")
FEWER = ((1.0, 0.0), (0.0, 1.0))
"""Layout and wording of the runs that are repeated with fewer renderings."""
SMALL = 0.15
"""Smaller differences of tau count as small."""


def wanted(quantity: str) -> Reading:
    """A quantity of placement."""
    return lambda run: run.placement(quantity)


K_LOC = wanted("top_k_loc")

COLUMNS: list[tuple[str, Column]] = [
    ("solved %", (column("passed"), percent, True)),
    ("tau of lines", (LINES, number, False)),
    ("tau of tokens", (TAU, number, False)),
    ("AR-ness@1", (column("arness.global@1"), number, False)),
    ("chance", (column("arness.global@1.chance"), number, False)),
    ("@1, right to left", (column("arness.global@1.mirrored"), number, False)),
    ("AR-ness@3", (column("arness.global@3"), number, False)),
    ("local@1", (column("arness.local@1"), number, False)),
    ("LOC, wanted most", (wanted("top_loc"), number, False)),
    ("k-LOC, wanted most", (K_LOC, number, False)),
    ("LOC, committed", (wanted("committed_localisation"), number, False)),
    ("ties %", (column("ties"), percent, False)),
]
HEADS = tuple(title for title, _ in COLUMNS)


def counted_group(
    study: Study, layout: float, wording: float, align: str, ties: str, fewer: str = ""
) -> Group:
    """One setting, as a group of one."""
    kind = f"layout{layout:g}-wording{wording:g}-{align}-{ties}{fewer}"
    canvas = "" if align == "left" else ", right-aligned"
    label = f"layout {layout:g}, wording {wording:g}{canvas}, {ties} ties"
    return Group(label + (", fewer draws" if fewer else ""), ((0, study.run(f"counted.{kind}")),))


def counted_table(study: Study) -> Table:
    """Every setting."""
    columns = [each for _, each in COLUMNS]
    dials = [*((layout, 0.0) for layout in FREE_LAYOUTS), *((0.0, each) for each in FREE_WORDINGS)]
    groups = [
        counted_group(study, layout, wording, align, ties)
        for align in ("left", "right")
        for ties in ("random", "leftmost")
        for layout, wording in dials
    ]
    groups += [counted_group(study, *each, "left", "random", "-fewer") for each in FEWER]
    rows = [row for group in groups for row in rows_of(group, columns)]
    return Table("No network: posteriors counted from renderings", ("corpus", *HEADS), tuple(rows))


def counted_claims(study: Study) -> tuple[Claim, ...]:
    """What the posterior alone does."""
    free = [layout for layout in FREE_LAYOUTS if layout]
    left = [_mean(counted_group(study, layout, 0.0, "left", "random")) for layout in free]
    right = [_mean(counted_group(study, layout, 0.0, "right", "random")) for layout in free]
    none = _mean(counted_group(study, 0.0, 0.0, "left", "random"))
    words = [counted_group(study, 0.0, wording, "left", "random") for wording in FREE_WORDINGS]
    least = counted_group(study, free[0], 0.0, "left", "random")
    apart = [least.minus(group, TAU) for group in words]
    because = "posteriors counted from renderings in place of a network"
    return (
        Claim(
            "without a network: left to right at every layout above 0, random ties (tau above "
            f"{CLEARLY:g})",
            because,
            _at("tau", left, free),
            all_of(*(beyond(each, CLEARLY) for each in left)),
        ),
        Claim(
            f"without a network: no order at layout 0 (tau within {SMALL:g} of 0)",
            because,
            f"tau {number(none)}",
            within(none, SMALL),
        ),
        Claim(
            f"without a network: layout {free[0]:g} is further left to right than any wording",
            because,
            f"{_at('tau of wording', list(map(_mean, words)), FREE_WORDINGS)}; layout "
            f"{_at('less wording', apart, FREE_WORDINGS)}",
            all_of(*map(above_zero, apart)),
        ),
        Claim(
            "without a network: right to left on the right-aligned canvas (tau below "
            f"-{CLEARLY:g})",
            because,
            _at("tau", right, free),
            all_of(*(right_to_left(each) for each in right)),
        ),
    )


def right_to_left(tau: Interval | None) -> str:
    """Whether it is clearly that."""
    return beyond(None if tau is None else mirrored(tau), CLEARLY)


def _at(what: str, cells: Sequence[Interval | None], places: Sequence[float]) -> str:
    told = (f"{number(each)} at {x:g}" for x, each in zip(places, cells, strict=True))
    return f"{what} {', '.join(told)}"


def _mean(group: Group, read: Reading = TAU) -> Interval | None:
    return group.mean(read) if group.stored else None


def counted_check(study: Study) -> str:
    """How much is free, how certain the counts are, and what ties do."""
    many, few = (
        [counted_group(study, *each, "left", "random", ending) for each in FEWER]
        for ending in ("", "-fewer")
    )
    changes = [one.minus(other, TAU) for one, other in zip(few, many, strict=True)]
    problems = study.plan.sizes.counted
    tied = counted_group(study, 0.0, 0.0, "left", "leftmost")
    bits = ", ".join(
        f"{number(_bits(layout, wording, problems), 1)} at {what} {layout or wording:g}"
        for what, layout, wording in (
            *(("layout", each, 0.0) for each in FREE_LAYOUTS if each),
            *(("wording", 0.0, each) for each in FREE_WORDINGS),
        )
    )
    return (
        "If only the amount of freedom mattered, and not its kind, wording would have the effect "
        f"of layout. Free bits of a program beyond its prompt: {bits}. The claims give the taus "
        "without a network. Posteriors that are counted from a sample of renderings are more "
        "certain than the true ones. With a quarter of the draws tau changes by "
        f"{number(changes[0], 3)} at layout 1 and by {number(changes[1], 3)} at wording 1. At "
        "layout 0 nearly every choice is a tie, and a leftmost rule alone gives a tau of "
        f"{number(_mean(tied))} there. This is why ties are random in the claims."
    )


def counted_lines(study: Study) -> str:
    """Whether the effect of a dial on the order of lines reverses with the canvas."""
    cells = {
        (dial, align): number(_mean(counted_group(study, *setting, align, "random"), LINES))
        for dial, setting in (("layout", (1.0, 0.0)), ("wording", (0.0, 1.0)))
        for align in ("left", "right")
    }
    return (
        "Lines drift with wording as well, although every position is fixed there. Without a "
        "network we can test the mirror: if the canvas caused the drift, a canvas that is filled "
        f"in front would reverse it. Tau of lines at layout 1: {cells['layout', 'left']}, "
        f"right-aligned {cells['layout', 'right']}; at wording 1: {cells['wording', 'left']}, "
        f"right-aligned {cells['wording', 'right']}. So the effect of wording does not come from "
        "places: the positions of the free words decide when a line is finished. In trained models "
        "the order of lines alone does not separate the two effects, but the order of the tokens "
        "of mdm does."
    )


def _bits(layout: float, wording: float, problems: int) -> Interval:
    """How many bits the prompt leaves open, by the corpus, on the problems of these runs."""
    config = StoriesConfig(split="heldout", layout=layout, wording=wording)
    found = {str(n): [sum(freedom(core(config, n), config))] for n in range(SEEN, problems)}
    return mean_cell([found])
