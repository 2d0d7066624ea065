"""Does a run of the study: samples, grades, measures, and stores what the tables need.

The records are a part of the study (records.py); the traces are not. Traces go to a separate
folder, whose name depends on the model and the settings. Everything resumes: a run is skipped if
its records are there and belong to the same model and settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anyorder import Run, Vocab
from anyorder.apps.jobs import GradeJob, SampleJob
from anyorder.apps.report import command
from anyorder.files import replacing
from anyorder.measure import arness, order
from anyorder.measure.arness_scores import COLUMNS, SCORED
from anyorder.measure.intervals import known_mean
from anyorder.measure.order_nodes import METRICS
from anyorder.measure.order_table import PARTS, SampleOrder
from anyorder.measure.placement_scores import TOP
from anyorder.measure.placement_table import PlacementTable, numbers_of
from anyorder.trace.run import CARD_FILE
from studies.model_free import free_model, sample_free
from studies.plan import ARNESS, ORDER, PLACEMENT, StudyRun
from studies.records import (
    CANVASES_FILE,
    POINTS_FILE,
    RUNS,
    SAMPLES_FILE,
    read_about,
    remove_tables,
    write_table,
)

FORMAT = 1
"""The version of the tables: raised when columns change, so that tables are made again."""
SCOPE = "code_only"
TENTHS = 10
PLACEMENT_STRIDE = {"mdm": 4, "flexmdm": 4}
"""Steps between measured canvases, for models that write tokens; for the others, one."""
QUANTITIES = (
    *("masked", "top_mass", "top_loc", "top_k_loc", "even_loc", "even_k_loc"),
    *("committed_mass", "committed_localisation", "committed_k_loc", "gap_loc", "gap_k_loc"),
    *("top_spread", "committed_spread"),
)
WORDY = ("top_k_loc_words", "gap_loc_words", "gap_k_loc_words", "committed_spread_words")
"""The same for words and numbers alone, without tokens of every line, such as its newline."""
PLACEMENT_FORMAT = 2
"""The version of the canvases of networks, raised like FORMAT."""
WANTED_MASS, LOW_LOC = 1.0, 0.5
"""A spread token has at least this mass, and at most this share of it in one slot."""
MOST_POINTS = 300
"""The largest number of points of each kind; they are evenly spaced."""
GRADING = GradeJob(workers=1)


@dataclass(frozen=True)
class RunJob:
    """One run, to be done in any process."""

    run: StudyRun
    model: str
    """The name or path of the model; empty if posteriors are counted."""
    digest: str
    """The digest of its weights."""
    family: str
    folder: Path
    """The folder of the study."""
    traces: Path
    """Where traces go."""
    weight: float = 1.0

    @property
    def key(self) -> str:
        """A digest of everything that the records depend on."""
        free = None if self.run.free is None else asdict(self.run.free)
        own = [self.digest, dict(self.run.options), self.run.samples, self.run.problems, free]
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def about(self) -> dict[str, Any]:
        """The description that is stored with the records."""
        placed = PLACEMENT in self.run.measures and self.run.free is None
        return {
            "run": self.run.name,
            "key": self.key,
            "measures": list(self.run.measures),
            **({"placement": PLACEMENT_FORMAT} if placed else {}),
            "format": FORMAT,
        }

    @property
    def target(self) -> Path:
        """Where the records go."""
        return self.folder / RUNS / self.run.name

    @property
    def traced(self) -> Path:
        """Where the run folder itself is."""
        return self.traces / f"{self.run.name}-{self.key}"

    @property
    def done(self) -> bool:
        """Whether the records of exactly this run are there."""
        return read_about(self.target / SAMPLES_FILE) == self.about

    def do(self) -> None:
        """Do the run, or the rest of it."""
        run = self.sampled()
        verdicts = self.verdicts(run)
        self.target.mkdir(parents=True, exist_ok=True)
        remove_tables(self.target)
        if PLACEMENT in self.run.measures:
            self._keep_placement(run)
        rows = list(_rows(run, self.run.measures, verdicts))
        with replacing(self.target / CARD_FILE) as file:
            file.write((run.folder / CARD_FILE).read_bytes())
        write_table(self.target / SAMPLES_FILE, rows, self.about)

    def sampled(self) -> Run:
        """Sample its traces, or the rest of them."""
        if self.run.free is not None:
            return sample_free(self.run.free, self.traced)
        from anyorder.apps.sample import sample_to_run

        job = SampleJob(
            model=self.model,
            task="stories",
            limit=self.run.problems,
            samples=self.run.samples,
            out=self.traced,
        )
        options = dict(self.run.options)
        return sample_to_run(job, options, command=command("sample", job, options), progress=False)

    def verdicts(self, run: Run) -> dict[tuple[str, int], str]:
        """Verdicts by task and sample; grades what is not graded yet."""
        from anyorder.apps.grade import grade_run

        graded = grade_run(run.folder, GRADING, progress=False)
        return {row.key: row.verdict for row in graded.reports[0].rows}

    def _keep_placement(self, run: Run) -> None:
        from anyorder import load
        from anyorder.measure import placement

        free = self.run.free
        model = load(self.model) if free is None else free_model(free)
        table = placement(
            run,
            model,
            progress=False,
            stride=PLACEMENT_STRIDE.get(self.family),
            any_model=free is not None,
        )
        words = None if free else words_of(model.vocab)
        write_table(self.target / CANVASES_FILE, list(_canvases(table, words)), self.about)
        write_table(self.target / POINTS_FILE, list(_points(table)), self.about)


def _rows(
    run: Run, measures: tuple[str, ...], verdicts: Mapping[tuple[str, int], str]
) -> Iterator[dict[str, Any]]:
    """A row per sample, in the order of the run."""
    columns = ("task_id", "sample", "forwards", "seconds")
    table = run.table(columns).to_pylist()
    lines = {(each.task_id, each.sample): each for each in arness(run).samples}
    trees = {}
    if ORDER in measures:
        trees = {(each.task_id, each.sample): each for each in order(run, scopes=(SCOPE,)).samples}
    for row in table:
        key = row["task_id"], row["sample"]
        verdict = verdicts.get(key)
        found = {
            **row,
            "verdict": verdict,
            "passed": None if verdict is None else verdict == "passed",
            "valid": None if verdict is None else verdict not in ("syntax", "no_code"),
            "tokens": lines[key].items,
            "ties": lines[key].ties,
        }
        if ARNESS in measures:
            found |= _arness_columns(lines[key])
        if key in trees:
            found |= _order_columns(trees[key])
        yield found


def _arness_columns(sample: Any) -> dict[str, float | None]:
    if sample.status != SCORED:
        return {}
    return {
        f"arness.{name}" + ("" if column == "value" else f".{column}"): getattr(score, column)
        for name, score in sample.scores.items()
        for column in COLUMNS
    }


def _order_columns(sample: SampleOrder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    scope = sample.scopes.get(SCOPE)
    if scope is not None:
        tables = {"": scope.means, **{f".{name}": each for name, each in scope.controls.items()}}
        for ending, values in tables.items():
            for number, part in enumerate(PARTS):
                for column, metric in enumerate(METRICS):
                    found[f"order.{part}.{metric}{ending}"] = float(values[number, column])
    if sample.segments is not None:
        found["segments.tau"] = sample.segments.tau
        found["segments.tau.chance"] = sample.segments.chance
        found["segments.count"] = sample.segments.count
    return found


def words_of(vocab: Vocab) -> frozenset[int]:
    """Tokens with a letter or a digit."""
    special = set(vocab.special_ids)
    return frozenset(
        token
        for token in range(vocab.size)
        if token not in special and any(map(str.isalnum, vocab.decode([token])))
    )


def _canvases(
    table: PlacementTable, words: frozenset[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Means over the canvases of each tenth of a sample's decoding."""
    names = QUANTITIES if words is None else QUANTITIES + WORDY
    groups: dict[tuple[str, int, int], list[dict[str, float]]] = {}
    for row in table.rows():
        if row["masked"]:
            tenth = min(TENTHS - 1, TENTHS * row["step"] // max(1, row["steps"]))
            key = row["task_id"], row["sample"], tenth
            found = numbers_of(row) | _spread(row)
            if words is not None:
                found |= wordy(row, words)
            groups.setdefault(key, []).append(found)
    for (task, sample, tenth), canvases in groups.items():
        means = {name: known_mean(each[name] for each in canvases) for name in names}
        yield {"task_id": task, "sample": sample, "tenth": tenth, **means}


def wordy(row: dict[str, Any], words: frozenset[int]) -> dict[str, float]:
    """The numbers of a canvas, for words and numbers alone."""
    top, committed = (
        np.array([token in words for token in row[name]], dtype=bool)
        for name in ("token_ids", "committed_token")
    )
    kept = {
        name: np.asarray(values)[committed if name.startswith("committed_") else top]
        for name, values in row.items()
        if name in ("mass", "loc", "entropy", "k_loc", "token_ids") or name.startswith("committed_")
    }
    found = numbers_of(row | kept) | _spread(row | kept)
    return {name: found[name.removesuffix("_words")] for name in WORDY}


def _spread(row: dict[str, Any]) -> dict[str, float]:
    """The share of wanted tokens, and of committed tokens, whose mass is spread over many slots."""
    pairs = {
        "top_spread": (row["mass"][:TOP], row["loc"][:TOP]),
        "committed_spread": (row["committed_mass"], row["committed_localisation"]),
    }
    return {
        name: known_mean(
            float(mass >= WANTED_MASS and loc <= LOW_LOC)
            for mass, loc in zip(*both, strict=True)
            if loc == loc
        )
        for name, both in pairs.items()
    }


def _points(table: PlacementTable) -> Iterator[dict[str, Any]]:
    names = {"top": "loc", "committed": "localisation"}
    found = table.points()
    for kind, name in names.items():
        pairs = [
            (float(mass), float(loc))
            for mass, loc in zip(found[kind]["mass"], found[kind][name], strict=True)
            if mass > 0 and loc == loc
        ]
        step = max(1, -(-len(pairs) // MOST_POINTS))
        for mass, loc in pairs[::step]:
            yield {"kind": kind, "mass": mass, "loc": loc}
