"""`anyorder measure`: runs -> order, AR-ness, diversity, similarity, placement -> measures.json.

The measures are functions of measure/ and, for placement, of placement.py. measures.json has the
digest of the traces and one entry per measure (order: per mode). Taking a measure again replaces
its entry and keeps the others.

In the tables, the controls `left to right` and `random` are the same programs with the sample's own
steps sorted and permuted. `between` says where the score lies, 0 at the first control and 1 at the
second (the other way round for AR-ness). Runs with blocks have the same controls within blocks, and
a note says that the order between blocks is given. Rows of the paper are printed only for
comparable runs: sampled by a published protocol (`--preset`, with no setting overridden) on the
task of a published table.

Order, diversity and similarity read statement trees. They are left out, and a line says so, for
runs that do not say that their texts are Python (programs.is_code) unless `--language` does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyorder.apps.jobs import MeasureJob, progress_bar
from anyorder.files import COPY_IT, alone_in, replacing
from anyorder.measure import published
from anyorder.measure.arness_scores import ArnessTable, arness
from anyorder.measure.intervals import LEAST_ROOM, Interval
from anyorder.measure.order_nodes import METRICS
from anyorder.measure.order_scores import order
from anyorder.measure.order_table import PARTS, OrderTable
from anyorder.measure.placement_table import BLOCK_SLOTS, PAPER_STEPS, PlacementTable
from anyorder.measure.programs import LANGUAGE, ProgramOptions, Programs, is_code
from anyorder.measure.similarity_scores import (
    DiversityTable,
    SimilarityOptions,
    SimilarityTable,
    diversity,
    similarity,
)
from anyorder.measure.trees import TREE_MEASURES
from anyorder.report.tables import (
    Cell,
    Table,
    bounds,
    in_keyboard_signs,
    missing,
    percent,
    plain,
    print_tables,
    shown,
    wide_console,
    with_bounds,
)
from anyorder.trace import Run, RunCard
from anyorder.trace.blocks import GIVEN_ORDER
from anyorder.trace.run import MEASURES_FILE, MEASURES_SCHEMA, installed_versions, open_runs


@dataclass
class Measured:
    """The measures, by the names of the runs."""

    runs: dict[str, Run]
    mode: str
    order: dict[str, OrderTable] = field(default_factory=dict)
    arness: dict[str, ArnessTable] = field(default_factory=dict)
    diversity: DiversityTable | None = None
    similarity: SimilarityTable | None = None
    reference_traces: str | None = None
    """The digest of the reference's traces, for similarity."""
    placement: dict[str, PlacementTable] = field(default_factory=dict)
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Run -> its measures that need programs, where nothing says that its texts are programs."""

    def to_record(self, *, nodes: bool = True) -> dict[str, Any]:
        """As JSON: per run and measure, with every sample and, if `nodes`, every node."""
        record: dict[str, Any] = {
            "runs": {
                name: {"run": str(run.folder), **self.of_run(name, nodes=nodes)}
                for name, run in self.runs.items()
            }
        }
        if self.left_out:
            record["left_out"] = {name: list(names) for name, names in self.left_out.items()}
        return record

    def of_run(self, name: str, *, nodes: bool) -> dict[str, Any]:
        """The entries of one run's measures.json."""
        found: dict[str, Any] = {}
        if name in self.order:
            found["order"] = {self.mode: self.order[name].to_record(nodes=nodes)}
        if name in self.arness:
            found["arness"] = self.arness[name].to_record()
        if self.diversity is not None and name not in self.left_out:
            found["diversity"] = _part(self.diversity.to_record(), name)
        if self.similarity is not None and name not in self.left_out:
            record = _part(self.similarity.to_record(), name)
            found["similarity"] = {**record, "reference_traces": self.reference_traces}
        if name in self.placement:
            found["placement"] = self.placement[name].to_record()
        return found


def measure_runs(job: MeasureJob, *, progress: bool = True) -> Measured:
    """Take the measures, write measures.json into every run, and return them."""
    measured, wanted = Measured(open_runs(job.runs), job.mode), job.chosen()
    for run in measured.runs.values():
        run.measures()  # a damaged measures.json is an error before the work begins
    measured.left_out = _left_out(measured.runs, job)
    programs, references = _compared(measured, job)
    options = SimilarityOptions(programs=ProgramOptions(trees=job.tree))
    per_run: dict[str, Callable[[Run], Any]] = {
        # Placement comes first: it may still refuse a model that did not make the run.
        "placement": lambda run: _placement(run, job, progress),
        "order": lambda run: order(run, job.mode, seeds=range(job.seeds)),
        "arness": arness,
    }
    if not programs:  # nothing to compare, or no run of programs
        wanted = tuple(name for name in wanted if name in per_run)
    steps = len(measured.runs) * len(set(wanted) & set(per_run)) + len(set(wanted) - set(per_run))
    with progress_bar("measuring", steps, shown=progress) as advance:
        for name, run in measured.runs.items():
            for measure in (each for each in per_run if each in wanted):
                if measure not in measured.left_out.get(name, ()):
                    getattr(measured, measure)[name] = per_run[measure](run)
                advance(1)
            _store(run, measured.of_run(name, nodes=False), job.language)
        if "diversity" in wanted:
            measured.diversity = diversity(programs, options)
            advance(1)
        if "similarity" in wanted:
            measured.similarity = similarity(programs, references, options)
            advance(1)
    for name, run in measured.runs.items():
        _store(run, measured.of_run(name, nodes=False), job.language)
    return measured


def _left_out(runs: Mapping[str, Run], job: MeasureJob) -> dict[str, tuple[str, ...]]:
    """Run -> the measures that it does not get; ValueError if these were asked for by name."""
    trees = tuple(name for name in TREE_MEASURES if name in job.chosen())
    if job.language is not None or not trees:
        return {}
    base = {} if job.reference is None else {str(job.reference): Run.open(job.reference)}
    found = {name: trees for name, run in {**base, **runs}.items() if not is_code(run)}
    if found and (job.only is not None or base):
        raise ValueError(
            f"{', '.join(found)}: nothing says that the texts are programs, and "
            f"{', '.join(trees)} {'reads' if len(trees) == 1 else 'read'} statement trees: if they "
            "are, add --language python; if not, measure something else (--only arness)"
        )
    return found


def _compared(measured: Measured, job: MeasureJob) -> tuple[list[Programs], list[Programs]]:
    """The programs of the runs and of the reference, if a measure compares programs."""
    if not {"diversity", "similarity"} & {*job.chosen()}:
        return [], []
    base = {} if job.reference is None else open_runs((job.reference,))
    measured.reference_traces = next((run.traces_digest for run in base.values()), None)
    programs, references = (
        [
            Programs.of_run(run, name, extraction=job.extraction)
            for name, run in runs.items()
            if name not in measured.left_out
        ]
        for runs in (measured.runs, base)
    )
    return programs, references


def _placement(run: Run, job: MeasureJob, progress: bool) -> PlacementTable:
    from anyorder.apps.placement import placement

    assert job.placement is not None
    settings = {name: getattr(job, name) for name in ("stride", "region", "any_model")}
    return placement(run, job.placement, progress=progress, **settings)


def _part(record: dict[str, Any], name: str) -> dict[str, Any]:
    """The rows about one run in a table over several, and the ceiling."""

    def concerns(row: Mapping[str, Any]) -> bool:
        return row.get("ceiling") or name in (row.get("policy"), row.get("left"), row.get("right"))

    return {
        key: [row for row in rows if concerns(row)] if key in ("rows", "differences") else rows
        for key, rows in record.items()
    }


def _store(run: Run, found: dict[str, Any], language: str | None) -> None:
    # Read and write under one lock: another process may store other measures of this run.
    with alone_in(run.folder, COPY_IT):
        record = run.measures()
        for measure, entry in found.items():
            kept = record.get(measure, {}) if measure == "order" else {}
            record[measure] = {**kept, **entry}
        if language is not None:
            record[LANGUAGE] = language  # so that a report, too, takes the texts as programs
        versions = installed_versions()
        head = {"schema": MEASURES_SCHEMA, "traces": run.traces_digest, "versions": versions}
        with replacing(run.folder / MEASURES_FILE) as file:
            file.write(json.dumps(head | record, allow_nan=False).encode() + b"\n")


VARIED = ("policy", "insertion_temperature")
SIMILARITY_PRESETS = ("similarity", "similarity-llada", "dultra")
ORDER_MODELS = {"flexmdm-passk": "FlexMDM", "dream-coder-order": "Dream-Coder"}
RATE_MODELS = {"flexmdm-passk": "FlexMDM", "dream-coder-passk": "Dream-Coder-7B-Base"}

# The paper's Top-K scores what the sampler drew; its text speaks of the largest probability.
POLICIES = {"sampled": "confidence"}
CONFIDENCE = dict.fromkeys(("sampled", "margin", "entropy"), "confidence")


def published_similarity(card: RunCard) -> list[dict[str, Any]]:
    """The paper's rows for the run's task and policy, one per model."""
    if _preset(card) not in SIMILARITY_PRESETS:
        return []
    task, policy = card.config["task"], card.config["options"]["policy"]
    # On LiveCodeBench the three confidence policies wrote the same programs, and share a row.
    alike = CONFIDENCE if _benchmark(task) == "livecodebench" else POLICIES
    rows = published("similarity", policy=alike.get(policy, policy))
    return [row for row in rows if row["task"] in (task, _benchmark(task).removesuffix("+"))]


def published_order(card: RunCard) -> list[dict[str, Any]]:
    """The paper's rows for the preset's model and the run's task, one per scope."""
    if (model := ORDER_MODELS.get(_preset(card))) is None:
        return []
    return published("order", model=model, task=_benchmark(card.config["task"]).removesuffix("+"))


def published_rates(card: RunCard, task: str) -> list[dict[str, Any]]:
    """The paper's pass@k rows for the preset's model and the task that graded the run."""
    if (model := RATE_MODELS.get(_preset(card))) is None:
        return []
    rows = published("pass_at_k", model=model, task=_benchmark(task))
    temperature = card.config["options"].get("insertion_temperature")
    return [row for row in rows if row["insertion_temperature"] in (None, temperature)]


def _preset(card: RunCard) -> str:
    """The protocol whose settings the run has without exception, or an empty string."""
    config = card.config
    name = config.get("preset") or ""
    if not name:
        return ""
    from anyorder.recipes.presets import PRESETS  # few runs have one, and recipes import much

    if name not in PRESETS:
        return ""
    options = config["options"]
    settings = PRESETS[name].settings(config["family"], config["task"], options.get("policy"))
    followed = all(
        made.get(setting) == value
        for wanted, made in zip(settings, (config, options), strict=True)
        for setting, value in wanted.items()
        if setting not in VARIED
    )
    return name if followed else ""


def _benchmark(task: str) -> str:
    return task.partition(":")[0]


TITLES = {"cbc": "CBC", "rub": "RUB", "rub_plus": "RUB+", "obw": "OBW"}
PAPERS_MODE = "compat"
DIGITS = 3


TableRow = tuple[Cell | str, ...]


def print_measured(measured: Measured) -> None:
    """Print all tables, run by run, then those over several runs."""
    console = wide_console()
    print_tables(_tables(measured), console)
    for name, measures in measured.left_out.items():
        console.print(
            f"{name}: {', '.join(measures)} left out, since nothing says that its texts are "
            "programs; if they are, add --language python",
            soft_wrap=True,
            markup=False,
        )
    folders = ", ".join(str(run.folder) for run in measured.runs.values())
    console.print(f"written to measures.json in {folders}", soft_wrap=True, markup=False)


def _tables(measured: Measured) -> Iterator[Table]:
    for name, run in measured.runs.items():
        if name in measured.order:
            yield _order(name, measured.order[name], run.card)
            yield from _anchors(name, measured.order[name])
        if name in measured.arness:
            yield _arness(name, measured.arness[name])
        if name in measured.placement:
            yield _placement_table(name, measured.placement[name])
    if measured.diversity is not None:
        yield _diversity(measured.diversity)
    if measured.similarity is not None:
        cards = {name: run.card for name, run in measured.runs.items()}
        yield _similarity(measured.similarity, cards)


def _order(name: str, found: OrderTable, card: RunCard) -> Table:
    rows: list[TableRow] = []
    for scope in found.setting.scopes:
        for part in PARTS:
            cells = [found.cells[scope, part, metric] for metric in METRICS]
            if not any(cell.samples for cell in cells):
                continue
            title = f"{scope}, {part.replace('_', '-')} ({cells[0].samples})"
            rows += _with_intervals([title], [cell.interval for cell in cells])
            for control in cells[0].controls:
                values = [cell.controls[control] for cell in cells]
                rows.append((f"  {control.replace('_', ' ')}", *map(plain, values)))
            for head in ("position", "position_in_blocks"):
                found_at = [getattr(cell, head) for cell in cells]
                places = [math.nan if at is None else at.estimate for at in found_at]
                if not all(map(math.isnan, places)):
                    title = f"  {head.replace('position', 'between').replace('_', ' ')}"
                    rows.append((title, *(plain(place, DIGITS) for place in places)))
            for row in published_order(card):
                if row["scope"] == scope:
                    values = row["overall" if part == "overall" else "split"]
                    rows.append((f"  paper, {row['model']}", *(plain(values[m]) for m in METRICS)))
    notes = [_counts("samples", found.statuses)]
    if found.blocks is not None:
        slots, inside = found.blocks
        notes.append(
            f"{GIVEN_ORDER.format(slots)}; {in_keyboard_signs(percent(inside))} of the pairs of "
            "parts of a node lie inside one block, and chance is that within blocks"
        )
    if published_order(card) and found.setting.mode != PAPERS_MODE:
        notes.append(f"the paper's numbers are by its published code: --mode {PAPERS_MODE}")
    notes += [
        f"order of the {unit}s: tau {_text(tau)}, chance {in_keyboard_signs(shown(chance, DIGITS))}"
        f", over {count} samples"
        for unit, (count, tau, chance) in found.segments.items()
    ]
    if found.misaligned:
        notes.append(f"{found.misaligned} samples misaligned, as in the published code")
    title = f"Order, {found.setting.mode}: {name}"
    return Table(("scope, nodes", *TITLES.values()), tuple(rows), title, tuple(notes))


def _anchors(name: str, found: OrderTable) -> Iterator[Table]:
    """A table for each unit, where the task names anchors."""
    for unit, cells in found.anchors.items():
        rows: list[TableRow] = []
        for anchor, cell in cells.items():
            rows += _with_intervals([f"{anchor} ({cell.order.samples})"], [c.tau for c in cell])
            rows.append(("  chance", *(plain(part.chance) for part in cell)))
        note = (
            f"tau of the order of the {unit}s: 1 is top to bottom; outwards: by the distance from "
            "the anchor, over the programs that mention it (docs/order.md)"
        )
        yield Table(("anchor", "tau", "outwards"), tuple(rows), f"By anchor: {name}", (note,))


def _arness(name: str, found: ArnessTable) -> Table:
    rows: list[TableRow] = []
    ends: tuple[str, ...] = ("chance", "l. to r.", "mirrored", "between")
    if found.blocks is not None:
        ends = ("random in blocks", "l. to r. in blocks", "between", "whole canvas", "mirrored")
    for score, cell in found.cells.items():
        values = [cell.chance, cell.left_to_right, cell.mirrored, cell.position]
        if (inside := cell.ends) is not None:
            values = [inside.random_in_blocks, inside.left_to_right_in_blocks]
            values += [cell.position_in_blocks, cell.chance, cell.mirrored]
        elif found.blocks is not None:  # no sample has this score
            values = [math.nan] * len(ends)
        rows.append((score, _estimate(cell.interval), _range(cell.interval), *map(plain, values)))
    said = []
    if not math.isnan(found.ties):
        said.append(f"ties: {found.ties:.1%} of the choices")
    if not math.isnan(found.silent.share):
        said.append(f"end and padding, {found.silent.share:.0%} of the tokens, are left out")
    said.append(
        "between: 0 at chance, 1 at left to right, for scores where these are at least "
        f"{LEAST_ROOM:g} apart"
    )
    notes = [_counts("samples", found.statuses), "; ".join(said)]
    if found.blocks is not None:
        notes.append(
            f"{GIVEN_ORDER.format(found.blocks.slots)}; random and left to right are within "
            "blocks, whole canvas is random order across them, beyond what the sampler can do"
        )
        if not math.isnan(found.blocks.ordered):
            ordered = in_keyboard_signs(percent(found.blocks.ordered))
            notes.append(f"{ordered} of the pairs inside blocks have an order: not one step")
    heads = ("score", "value", "interval", *ends)
    return Table(heads, tuple(rows), f"AR-ness: {name}", tuple(notes))


def _placement_table(name: str, found: PlacementTable) -> Table:
    *steps, overall = found.summary()
    kept = [each for each in steps if each.step in PAPER_STEPS]
    if len(kept) < len(PAPER_STEPS):  # another stride, or fewer steps than the paper's
        kept = steps[:: -(-len(steps) // len(PAPER_STEPS)) or 1]
    rows: list[TableRow] = [
        (
            quantity,
            *(_estimate(each.values[quantity]) for each in kept),
            _estimate(score),
            _range(score),
        )
        for quantity, score in overall.values.items()
    ]
    heads = ("after step", *(str(each.step) for each in kept), "all", "interval")
    notes = [f"{overall.canvases} canvases; what the rows mean: docs/placement.md"]
    if (slots := found.about.get(BLOCK_SLOTS)) is not None:
        notes.append(
            f"within-block: only the open slots of the block that is being filled, of at most "
            f"{slots}, so LOC is at least 1/masked, and what belongs in later blocks does not "
            "count; compare runs at equal numbers of masked slots, or by above_even"
        )
    return Table(heads, tuple(rows), f"Placement: {name}", tuple(notes))


def _diversity(found: DiversityTable) -> Table:
    known = [row for row in found.rows if row.prompts]
    metrics = list(known[0].nearest) if known else []
    rows: list[TableRow] = []
    for row in known:
        distinct = [row.distinct[kind] for kind in ("texts", "trees")]
        nearest = [row.nearest[metric] for metric in metrics]
        rows += _with_intervals([row.policy, row.filter, str(row.prompts)], distinct + nearest)
    notes = list(found.notes)
    if not known:
        notes.append("no prompt has two samples: draw more (--samples) to see how they differ")
    heads = ("run", "programs", "prompts", "texts", "trees", *(f"nearest {m}" for m in metrics))
    title = "Diversity within each run: distinct shares, nearest neighbours"
    return Table(heads, tuple(rows), title, tuple(notes))


def _similarity(found: SimilarityTable, cards: Mapping[str, RunCard]) -> Table:
    rows: list[TableRow] = []
    for row in found.rows:
        name = f"{row.policy} (among itself)" if row.ceiling else row.policy
        labels = [name, row.filter, str(row.prompts), f"{row.samples}/{row.of_samples}"]
        rows += _with_intervals(labels, [row.scores[metric] for metric in found.metrics])
        for theirs in published_similarity(cards[row.policy]) if row.policy in cards else ():
            values = theirs[row.filter]
            cells = (plain(values[metric.lower()], 4) for metric in found.metrics)
            rows.append((f"  paper, {theirs['model']}", row.filter, "", "", *cells))
    notes = [*found.notes]
    for each in found.differences:
        scores = ", ".join(f"{m} {_text(score)}" for m, score in each.scores.items())
        notes.append(f"{each.left} - {each.right} ({each.filter}, paired by prompt): {scores}")
    heads = ("run", "programs", "prompts", "samples", *found.metrics)
    return Table(heads, tuple(rows), f"Similarity to {found.reference}", tuple(notes))


def _with_intervals(labels: Sequence[str], scores: Sequence[Interval]) -> list[TableRow]:
    """A row of estimates, and a row of their intervals."""
    blank = [""] * (len(labels) - 1)
    return [
        (*labels, *map(_estimate, scores)),
        ("  interval", *blank, *map(_range, scores)),
    ]


def _estimate(score: Interval | None) -> Cell:
    return missing() if score is None else plain(score.estimate, DIGITS)


def _range(score: Interval) -> Cell:
    return Cell(bounds(score, DIGITS), number=True)


def _text(score: Interval) -> str:
    """An estimate and its interval, for a sentence."""
    return in_keyboard_signs(with_bounds(score, DIGITS))


def _counts(what: str, counts: Mapping[str, Any]) -> str:
    return f"{what}: " + ", ".join(f"{count} {name}" for name, count in counts.items())
