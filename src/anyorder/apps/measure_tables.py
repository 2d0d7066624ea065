"""Measures in a terminal: every value with its interval and its controls.

A score is read between its controls: `left to right` and `random` are the same programs with the
sample's own steps sorted and permuted, and `between` says where the score lies, 0 at the first and
1 at the second. Rows of the paper stand below where the run was sampled by its protocol.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from anyorder.apps.measuring import Measured
from anyorder.apps.published_beside import published_order, published_similarity
from anyorder.measure.arness import ArnessTable
from anyorder.measure.diversity import DiversityTable
from anyorder.measure.intervals import Interval
from anyorder.measure.order_nodes import METRICS
from anyorder.measure.order_sample import PARTS
from anyorder.measure.order_table import OrderTable
from anyorder.measure.placement_table import PAPER_STEPS, PlacementTable
from anyorder.measure.similarity_table import SimilarityTable
from anyorder.trace import RunCard

TITLES = {"cbc": "CBC", "rub": "RUB", "rub_plus": "RUB+", "obw": "OBW"}
PAPERS_MODE = "compat"
WIDEST = 160


def print_measured(measured: Measured) -> None:
    """All tables, run by run, then those over several runs."""
    # A narrow terminal wraps long rows; no number is ever cut.
    console = Console(highlight=False, width=max(Console().width, WIDEST))
    for name, run in measured.runs.items():
        if name in measured.order:
            _show(console, *_order(name, measured.order[name], run.card))
        if name in measured.arness:
            _show(console, *_arness(name, measured.arness[name]))
        if name in measured.placement:
            _show(console, *_placement(name, measured.placement[name]))
    if measured.diversity is not None:
        _show(console, *_diversity(measured.diversity))
    if measured.similarity is not None:
        cards = {name: run.card for name, run in measured.runs.items()}
        _show(console, *_similarity(measured.similarity, cards))
    folders = ", ".join(str(run.folder) for run in measured.runs.values())
    console.print(f"written to measures.json in {folders}", soft_wrap=True, markup=False)


def _show(console: Console, table: Table, notes: Iterable[str]) -> None:
    console.print(table)
    for note in notes:
        console.print(note, style="dim", soft_wrap=True, markup=False)
    console.print()


def _order(name: str, found: OrderTable, card: RunCard) -> tuple[Table, list[str]]:
    table = _table(f"Order, {found.setting.mode}: {name}", ["", *TITLES.values()])
    for scope in found.setting.scopes:
        for part in PARTS:
            cells = [found.cells[scope, part, metric] for metric in METRICS]
            if not any(cell.samples for cell in cells):
                continue
            title = f"{scope}, {part.replace('_', '-')} ({cells[0].samples})"
            _add(table, [title], [cell.interval for cell in cells])
            for control in cells[0].controls:
                values = [cell.controls[control] for cell in cells]
                table.add_row(f"  {control.replace('_', ' ')}", *map(_number, values))
            if cells[0].position is not None:
                table.add_row("  between", *(_estimate(cell.position) for cell in cells))
            for row in published_order(card):
                if row["scope"] == scope:
                    values = row["overall" if part == "overall" else "split"]
                    table.add_row(
                        f"  paper, {row['model']}", *(_number(values[m]) for m in METRICS)
                    )
    notes = [_counts("samples", found.statuses)]
    if published_order(card) and found.setting.mode != PAPERS_MODE:
        notes.append(f"the paper's numbers are by its published code: --mode {PAPERS_MODE}")
    notes += [
        f"order of the {unit}s: tau {_with(tau)}, chance {_number(chance)}, over {count} samples"
        for unit, (count, tau, chance) in found.segments.items()
    ]
    if found.misaligned:
        notes.append(f"{found.misaligned} samples misaligned, as in the published code")
    return table, notes


def _arness(name: str, found: ArnessTable) -> tuple[Table, list[str]]:
    heads = ["score", "value", "", "chance", "l. to r.", "mirrored", "between"]
    table = _table(f"AR-ness: {name}", heads)
    for score, cell in found.cells.items():
        ends = (cell.chance, cell.left_to_right, cell.mirrored, cell.position)
        own = (_estimate(cell.interval), _range(cell.interval))
        table.add_row(score, *own, *map(_number, ends))
    notes = [_counts("samples", found.statuses)]
    ties = "" if math.isnan(found.ties) else f"ties: {found.ties:.1%} of the choices; "
    notes.append(
        f"{ties}end and padding, {found.silent.share:.0%} of the tokens, are left out; "
        "between: 0 at chance, 1 at left to right"
    )
    return table, notes


def _placement(name: str, found: PlacementTable) -> tuple[Table, list[str]]:
    *steps, overall = found.summary()
    shown = [each for each in steps if each.step in PAPER_STEPS]
    if len(shown) < len(PAPER_STEPS):  # another stride, or fewer steps than the paper's
        shown = steps[:: -(-len(steps) // len(PAPER_STEPS)) or 1]
    heads = ["after step", *(str(each.step) for each in shown), "all", ""]
    table = _table(f"Placement: {name}", heads)
    for quantity, score in overall.values.items():
        series = (_estimate(each.values[quantity]) for each in shown)
        table.add_row(quantity, *series, _estimate(score), _range(score))
    return table, [f"{overall.canvases} canvases; what the rows mean: docs/placement.md"]


def _diversity(found: DiversityTable) -> tuple[Table, list[str]]:
    rows = [row for row in found.rows if row.prompts]
    metrics = list(rows[0].nearest) if rows else []
    heads = ["run", "programs", "prompts", "texts", "trees", *(f"nearest {m}" for m in metrics)]
    table = _table("Diversity within each run: distinct shares, nearest neighbours", heads)
    for row in rows:
        distinct = [row.distinct[kind] for kind in ("texts", "trees")]
        nearest = [row.nearest[metric] for metric in metrics]
        _add(table, [row.policy, row.filter, str(row.prompts)], distinct + nearest)
    notes = list(found.notes)
    if not rows:
        notes.append("no prompt has two samples: draw more (--samples) to see how they differ")
    return table, notes


def _similarity(found: SimilarityTable, cards: Mapping[str, RunCard]) -> tuple[Table, list[str]]:
    heads = ["run", "programs", "prompts", "samples", *found.metrics]
    table = _table(f"Similarity to {found.reference}", heads)
    for row in found.rows:
        name = f"{row.policy} (among itself)" if row.ceiling else row.policy
        counts = [row.filter, str(row.prompts), f"{row.samples}/{row.of_samples}"]
        _add(table, [name, *counts], [row.scores[metric] for metric in found.metrics])
        for theirs in published_similarity(cards[row.policy]) if row.policy in cards else ():
            values = theirs[row.filter]
            cells = (f"{values[metric.lower()]:.4f}" for metric in found.metrics)
            table.add_row(f"  paper, {theirs['model']}", row.filter, "", "", *cells)
    notes = [*found.notes]
    for each in found.differences:
        values = ", ".join(f"{m} {_with(score)}" for m, score in each.scores.items())
        notes.append(f"{each.left} - {each.right} ({each.filter}, paired by prompt): {values}")
    return table, notes


def _table(title: str, heads: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, no_wrap=True)
    return table


def _add(table: Table, labels: Sequence[str], scores: Sequence[Interval]) -> None:
    """A row of estimates, and below it their intervals."""
    table.add_row(*labels, *map(_estimate, scores))
    table.add_row("  interval", *[""] * (len(labels) - 1), *map(_range, scores))


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _estimate(score: Interval | None) -> str:
    return "-" if score is None else _number(score.estimate)


def _range(score: Interval) -> str:
    return "-" if math.isnan(score.low) else f"{score.low:.3f}..{score.high:.3f}"


def _with(score: Interval) -> str:
    return f"{_estimate(score)} [{_range(score)}]"


def _counts(what: str, counts: Mapping[str, Any]) -> str:
    return f"{what}: " + ", ".join(f"{count} {name}" for name, count in counts.items())
