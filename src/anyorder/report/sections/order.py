"""The order in which texts are written: AR-ness; for programs the tree metrics; by anchor.

Paper: figure and table of the any-order metrics (appendix D); docs/order.md, docs/arness.md.

Where a run fills blocks of slots from left to right, both controls are those within blocks, and a
table of its own says what is left to find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anyorder.measure.arness_scores import TAU_IN_BLOCKS
from anyorder.measure.intervals import LEAST_ROOM, Interval
from anyorder.measure.order_blocks import LEFT_TO_RIGHT_IN_BLOCKS, RANDOM_IN_BLOCKS
from anyorder.report import charts
from anyorder.report.runs import (
    Material,
    RunFacts,
    drawn_runs,
    family_series,
    main_runs,
    sampling,
    series_of,
    share_bars,
    split_tables,
)
from anyorder.report.tables import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    apart,
    bounds,
    count,
    interval_of,
    missing,
    number_of,
    percent,
    plain,
    rate,
    score,
    shown,
)
from anyorder.trace.blocks import GIVEN_ORDER

TITLE = "In which order does it write?"
TREE_TITLE = "How the parts of a block are written"
SCOPE, PART = "full_output", "split_only"
CONTROLS = {"left_to_right": "left-to-right order", "random": "random order"}
LINES = {"segments": "random order of whole lines"}
"""A third control, for models that commit whole lines."""
IN_BLOCKS = {
    LEFT_TO_RIGHT_IN_BLOCKS: "left-to-right order within blocks",
    RANDOM_IN_BLOCKS: "random order within blocks",
    "random": "random order of the whole canvas",
}
"""The controls of runs with blocks. The last is beyond their samplers, and for comparison only."""
METRICS = {
    "cbc": ("CBC", "previewed before the first is finished"),
    "rub": ("RUB", "left unfinished and returned to"),
    "rub_plus": ("RUB+", "returned to repeatedly"),
    "obw": ("OBW", "open at the same time"),
}
LEFTMOST, TAU = "global@1", "tau"


def section(material: Material) -> Section | Absent:
    """The leftmost-first share of every run that recorded its steps; the trees of programs."""
    runs = [run for run in material.gathered if leftmost(run)]
    if not runs:
        why = "No run says when its tokens came: traces of text alone have no steps."
        return Absent(TITLE, why, ())
    trees = [run for run in runs if cell(run, "cbc") is not None]
    first = (
        "is the next [[token]] simply the leftmost that is missing ([[leftmost|leftmost-first "
        "share]])?"
    )
    questions = (
        f"Two questions. Token by token: {first} And block by block, in the program's "
        "[[tree|statement tree]]: are the parts of a function or a loop written one after the "
        "other, or are several begun, left and returned to?"
    )
    trap = (
        "A high score is not good by itself: random order scores highest. So every"
        if trees
        else "Every"
    )
    return Section(
        slug="order",
        title=TITLE,
        short="Order of writing",
        text=(
            questions if trees else f"Token by token: {first}",
            f"{trap} bar carries two [[control|controls]], the same finished "
            f"{material.gathered.what}s with their steps dealt out strictly from left to right, "
            "and at random. Read where a bar lies between them.",
            *_given_between(runs),
        ),
        figures=(
            _token_figure(runs),
            *_block_figure(runs),
            *_tree_figure(trees),
            *_anchor_figure(runs),
        ),
    )


def blocks_of(run: RunFacts) -> dict[str, Any] | None:
    """What is known of the blocks of slots that a run fills from left to right; None: no blocks."""
    return (run.measures.get("arness") or {}).get("blocks")


def _given_between(runs: Sequence[RunFacts]) -> Iterator[str]:
    """The paragraph about runs with blocks, if there are such."""
    slots = sorted({found["slots"] for run in runs if (found := blocks_of(run)) is not None})
    if slots:
        sizes = " or ".join(map(str, slots))
        yield (
            f"In runs with [[slot block|blocks of slots]], {GIVEN_ORDER.format(sizes)}. Both "
            "controls of such a run deal the steps out inside its blocks. The smaller the blocks, "
            "the less is left to choose, so compare such runs at equal block sizes only."
        )


def trees_section(material: Material) -> Absent | None:
    """Why the tree metrics are absent for runs that do not say that their texts are programs."""
    runs = [run for run in material.gathered if not run.code and leftmost(run)]
    if not runs:
        return None
    return Absent(
        TREE_TITLE,
        "Nothing says that the texts of these runs are programs. If they are, say so.",
        tuple(run.command("measure", "--language", "python") for run in runs),
    )


def leftmost(run: RunFacts) -> dict[str, Any] | None:
    """The record of the leftmost-first share; None if no sample has one."""
    record = (run.measures.get("arness") or {}).get("aggregate", {}).get(LEFTMOST)
    return record if record and record["samples"] else None


def cell(run: RunFacts, metric: str) -> dict[str, Any] | None:
    """The record of a tree metric over nodes with a choice; None if no sample has one."""
    record = (run.measures.get("order") or {}).get("aggregate", {}).get(SCOPE)
    found = record[PART][metric] if record else None
    return found if found and found["samples"] else None


def ends_of(run: RunFacts) -> tuple[Interval, dict[str, float]]:
    """The leftmost-first share of a run, and of its two controls."""
    record = leftmost(run)
    assert record is not None
    low, high = ("left_to_right", "chance") if blocks_of(run) is None else tuple(IN_BLOCKS)[:2]
    return interval_of(record["interval"]), {
        CONTROLS["left_to_right"]: number_of(record[low]),
        CONTROLS["random"]: number_of(record[high]),
    }


def tau_of(run: RunFacts) -> Interval:
    """Kendall's tau of a run's tokens; within its blocks, where it has some."""
    name = TAU if blocks_of(run) is None else TAU_IN_BLOCKS
    return interval_of(run.measures["arness"]["aggregate"][name]["interval"])


def _token_table(runs: Sequence[RunFacts]) -> Table:
    rows = []
    for run in runs:
        interval, ends = ends_of(run)
        tau = run.measures["arness"]["aggregate"][TAU]
        by_chance = number_of(tau.get(RANDOM_IN_BLOCKS))
        raw = score(interval_of(tau["interval"]), 2)
        if not math.isnan(by_chance):
            raw = replace(raw, small=f"{raw.small}; chance {shown(by_chance)}")
        ties = number_of(run.measures["arness"].get("ties"))
        rows.append(
            (
                Cell(run.label, run.name),
                rate(interval),
                *(Cell(percent(value, 1), number=True) for value in ends.values()),
                raw,
                _lines_cell(run),
                Cell(percent(ties, 1), number=True),
            )
        )
    heads = (
        "run",
        "[[leftmost|leftmost first]]",
        *CONTROLS.values(),
        "[[tau]] of tokens",
        "[[tau]] of lines",
        "[[tie|decided by a tie]]",
    )
    return Table(heads, tuple(rows))


def _token_figure(runs: Sequence[RunFacts]) -> Figure:
    drawn = drawn_runs(runs)
    drawing = share_bars(
        "leftmost-first",
        "How often each run reveals the leftmost missing token, with both controls.",
        "tokens that were the leftmost missing one",
        (charts.BarGroup(run.label, (charts.Bar(run.title, *ends_of(run)),)) for run in drawn),
        family_series(drawn),
        tuple(CONTROLS.values()),
    )
    return Figure(
        title="How often the next token is the leftmost one that is missing",
        drawing=drawing,
        commands=(*sampling(runs), _measure(runs, "arness")),
        caption="Where several tokens come in one step, not all of them can be the leftmost, so "
        "the left-to-right [[control]] is below 100 %. [[tau|Kendall's tau]] of tokens in random "
        "order is 0; a long line ends late in a random order, so chance for lines may be below.",
        tables=split_tables(_token_table, drawn, runs),
    )


def _block_figure(runs: Sequence[RunFacts]) -> Iterator[Figure]:
    """What runs with blocks do inside them."""
    inside = [run for run in runs if blocks_of(run) is not None]
    if inside:
        yield Figure(
            title="Inside blocks of slots",
            commands=(*sampling(inside), _measure(inside, "arness,order")),
            caption="The order between blocks is given, so only pairs of tokens inside one block "
            "count here. [[tau]] within blocks is the mean over blocks, each weighted by its "
            "pairs; random order is 0. Tokens of one step have no order: where few pairs have "
            "one, there is little to measure. The same holds for the parts of a function or loop "
            "that do not lie in one block.",
            tables=split_tables(_block_table, drawn_runs(inside), inside),
        )


def _block_table(runs: Sequence[RunFacts]) -> Table:
    rows = []
    for run in runs:
        record, found = leftmost(run), blocks_of(run)
        assert record is not None and found is not None
        controls = (number_of(record[name]) for name in (*tuple(IN_BLOCKS)[:2], "chance"))
        nodes = (run.measures.get("order") or {}).get("blocks") or {}
        shares = (number_of(each) for each in (found["ordered"], nodes.get("pairs_inside_one")))
        rows.append(
            (
                Cell(run.label, run.name),
                count(found["slots"]),
                rate(interval_of(record["interval"])),
                *(Cell(percent(value, 1), number=True) for value in controls),
                score(tau_of(run), 2),
                *(Cell(percent(value), number=True) for value in shares),
            )
        )
    heads = (
        "run",
        "slots of a block, at most",
        "[[leftmost|leftmost first]]",
        *IN_BLOCKS.values(),
        "[[tau]] within blocks",
        "pairs in a block that have an order",
        "pairs of a node's parts in one block",
    )
    return Table(heads, tuple(rows))


def _tree_figure(runs: Sequence[RunFacts]) -> Iterator[Figure]:
    if not runs:
        return
    chosen = main_runs(runs)
    yield Figure(
        title=TREE_TITLE,
        drawing=_tree_drawing(chosen),
        commands=(*sampling(runs), _measure(runs, "order")),
        caption="Over blocks with at least two parts. Place between the two: 0 is strict left to "
        f"right, 1 is chance, for scores whose two controls are at least {LEAST_ROOM:g} apart. "
        "Models that [[commit]] whole lines cannot leave a line unfinished, so "
        "they carry a third [[control]], the same lines in random order: compare them with that.",
        tables=split_tables(_tree_table, chosen, runs),
    )


def _tree_table(runs: Sequence[RunFacts]) -> Table:
    heads = ("run", *(f"[[{name}|{name}]]: {says}" for name, says in METRICS.values()))
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        records = [cell(run, metric) for metric in METRICS]
        known = [record for record in records if record is not None]
        rows.append((Cell(run.label), *(score(interval_of(r["interval"]), 2) for r in known)))
        for control, says in _controls(run).items():
            if all(control in record["controls"] for record in known):
                values = (number_of(record["controls"][control]) for record in known)
                rows.append((Cell("", says), *(plain(value, 2) for value in values)))
        places = [place(run, metric) for metric in METRICS]
        if any(places):
            between = (missing() if each is None else apart(each, 2) for each in places)
            rows.append((Cell("", "place between the two"), *between))
    return Table(heads, tuple(rows))


def _anchor_figure(runs: Sequence[RunFacts]) -> Iterator[Figure]:
    """The order of the lines by the place that the prompt names, where a task names one."""
    anchored = [run for run in runs if (run.measures.get("order") or {}).get("anchors")]
    if anchored:
        yield Figure(
            title="From which end, by the place that the prompt names",
            commands=(*sampling(anchored), _measure(anchored, "order")),
            caption="The prompt of each [[problem]] names a place of the program, its anchor. "
            "[[tau]] of lines is 1 from top to bottom and -1 from bottom to top; outwards is the "
            "same for the distance of a line from the anchor: 1 is from the anchor outwards.",
            tables=split_tables(_anchor_table, drawn_runs(anchored), anchored),
        )


def _anchor_table(runs: Sequence[RunFacts]) -> Table:
    rows = []
    for run in runs:
        for unit, cells in run.measures["order"]["anchors"].items():
            for anchor, found in cells.items():
                taus = (_tau_cell(found[part]) for part in ("order", "outwards"))
                samples = count(found["order"]["samples"])
                rows.append((Cell(run.label, f"by {unit}s"), Cell(anchor), *taus, samples))
    return Table(("run", "anchor", "[[tau]] of lines", "outwards", "samples"), tuple(rows))


def _tau_cell(record: Mapping[str, Any]) -> Cell:
    tau, chance = interval_of(record["tau"]), number_of(record["chance"])
    if math.isnan(tau.estimate):
        return missing()
    return Cell(shown(tau.estimate), f"{bounds(tau)}; chance {shown(chance)}", number=True)


def _tree_drawing(runs: Sequence[RunFacts]) -> charts.Drawing:
    groups = []
    for metric, (_, says) in METRICS.items():
        own = []
        for run in runs:
            record = cell(run, metric)
            assert record is not None
            known = record["controls"]
            # Both marks of a run with blocks are within them: the names are those of the places.
            names = (*tuple(_controls(run))[:2], *LINES)
            marks = {
                says: number_of(known[name])
                for name, says in zip(names, (CONTROLS | LINES).values(), strict=True)
                if name in known
            }
            own.append(charts.Bar(run.label, interval_of(record["interval"]), marks))
        groups.append(charts.BarGroup(says, tuple(own)))
    return charts.bars(
        charts.BarChart(
            name="tree-order",
            alt="Four scores of how the parts of a block are written, with their controls.",
            series=series_of(runs),
            panels=(charts.BarPanel("share of a block's parts", tuple(groups), limits=(0, 1)),),
            controls=tuple((CONTROLS | LINES).values()),
        )
    )


def _controls(run: RunFacts) -> dict[str, str]:
    """The controls of the tree metrics; the first two are the ends of `place`."""
    return (CONTROLS if blocks_of(run) is None else IN_BLOCKS) | LINES


def place(run: RunFacts, metric: str) -> Interval | None:
    """The place of a tree metric between its controls: 0 is left to right, 1 is random.

    The controls are those within blocks, if the run has blocks. None where they differ by less than
    LEAST_ROOM.
    """
    record = cell(run, metric) or {}
    kept = record.get("position_in_blocks" if blocks_of(run) is not None else "position")
    found = interval_of(kept) if kept else None
    return None if found is None or math.isnan(found.estimate) else found


def writes_lines(run: RunFacts) -> bool:
    """Whether it commits whole lines; then the place between the two controls says little."""
    return line_order(run)[0] == "segment"


def line_order(run: RunFacts) -> tuple[str, Interval, float] | tuple[None, None, float]:
    """("segment" or "line", Kendall's tau of their order, tau of a random order)."""
    found = (run.measures.get("order") or {}).get("segments") or {}
    for unit in ("segment", "line"):
        if unit in found:
            return unit, interval_of(found[unit]["tau"]), number_of(found[unit]["chance"])
    return None, None, math.nan


def _lines_cell(run: RunFacts) -> Cell:
    unit, _, _ = line_order(run)
    return missing() if unit is None else _tau_cell(run.measures["order"]["segments"][unit])


def _measure(runs: Sequence[RunFacts], only: str) -> str:
    return f"anyorder measure {' '.join(run.folder for run in runs)} --only {only}"
