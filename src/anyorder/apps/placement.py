"""Placement of a run: its traces, replayed with the model that made them.

Every trace is replayed each `stride` steps, with one network call per canvas. The results go to
RUN/placement.parquet, by parts of fixed composition under RUN/placement-parts/, so a killed command
continues where it stopped. A table with the same settings, model and traces is not made again.

The digests of model and vocabulary must be those of the run. A network of another library
(`anyorder.wrap`) and an imported run have no digests. Then `any_model` asserts that they belong
together, and nothing from earlier calls is reused, because the network may have changed since.

Not here: the mathematics (measure/placement_scores.py), the network calls (families/replay.py,
families/replay_segments.py).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.apps.jobs import progress_bar
from anyorder.checks import one_of, refuse_unknown, whole
from anyorder.decode.canvas import Sizes
from anyorder.decode.replay import Replay, TraceReader
from anyorder.families.family import FAMILIES, Family
from anyorder.files import COPY_IT, alone_in, sweep
from anyorder.measure.placement_scores import (
    NOTHING,
    PLACES,
    REGIONS,
    TOKENS,
    Commit,
    Keep,
    place,
    programs_looked_for,
    tokens_inside,
)
from anyorder.measure.placement_table import (
    BLOCK_SLOTS,
    CanvasRow,
    PlacementTable,
    read_about,
    read_batches,
    to_table,
    write_file,
)
from anyorder.model import Model, load
from anyorder.process.noise import key_of
from anyorder.trace import Run, Trace
from anyorder.trace.blocks import BlockRule
from anyorder.trace.run import TRACES_FILE

PLACEMENT_FILE, PARTS_FOLDER = "placement.parquet", "placement-parts"
PART = 16
"""Samples per part."""
STRIDE, SEGMENT_STRIDE = 16, 1
"""Defaults: the paper's stride, and every step for models of segments, which take few."""
NO_DIGEST = ("wrapped", "untrained")
"""The digests of models that were not read from a folder."""


@dataclass(frozen=True)
class PlacementSettings:
    """Which canvases and slots to measure, and how much to store."""

    stride: int | None = None
    """Canvases after 0, stride, 2 stride, ... steps; None: 16, or 1 for models of segments."""
    region: str = "code"
    """code: slots that end up in the program; all: every slot."""
    tokens: int = TOKENS
    """Stored tokens of a canvas, by largest mass; committed tokens are added."""
    places: int = PLACES
    """Stored positions of each token's profile."""
    batch: int = 32
    """Canvases in one network call."""
    any_model: bool = False
    """Trust that the model made the run, and ignore the digests."""
    options: Mapping[str, Any] | None = None
    """How the traces were sampled, if the run does not say (flexmdm needs its schedules)."""

    def __post_init__(self) -> None:
        whole("stride", STRIDE if self.stride is None else self.stride)
        whole("batch", self.batch)
        one_of("region", self.region, REGIONS)
        self.keep()

    def keep(self) -> Keep:
        return Keep(self.tokens, self.places)

    def of_family(self, family: Family) -> PlacementSettings:
        """Fill in the family's default stride, unless one was chosen."""
        usual = SEGMENT_STRIDE if family.counts_segments else STRIDE
        return self if self.stride is not None else replace(self, stride=usual)


def placement(
    run: Run | str | Path, model: Model | str | Path, *, progress: bool = True, **settings: Any
) -> PlacementTable:
    """Measure the placement of a complete run, or read its stored table.

    `settings` are the fields of `PlacementSettings`: stride, region, tokens, places, batch,
    any_model, options.
    """
    for name in settings:
        refuse_unknown("setting", name, (field.name for field in fields(PlacementSettings)))
    chosen = PlacementSettings(**settings)
    run = run if isinstance(run, Run) else Run.open(run)
    model = model if isinstance(model, Model) else load(model)
    work = _RunAndModel.prepare(run, model, chosen)
    with alone_in(run.folder, COPY_IT):
        work.finish(progress)
    return PlacementTable.read(run.folder / PLACEMENT_FILE)


@dataclass(frozen=True)
class _RunAndModel:
    """One run and one model that belong together."""

    run: Run
    model: Model
    settings: PlacementSettings
    options: Any
    """How the traces were sampled; None: unknown."""
    reader: TraceReader
    about: dict[str, Any]
    samples: int
    looked_for: bool
    """Whether sampling extracted programs: then a sample without one has no code."""
    blocks: BlockRule | None
    """Only the block that is being filled is looked at; None: the run has no blocks."""

    @classmethod
    def prepare(cls, run: Run, model: Model, settings: PlacementSettings) -> _RunAndModel:
        if model.family.reader is None:
            able = " or ".join(family.name for family in FAMILIES.values() if family.reader)
            raise ValueError(
                f"{model.family.name} has no masked positions at which tokens could be placed: "
                f"placement is measured on models of {able}"
            )
        check_model(run, model, settings.any_model)
        settings = settings.of_family(model.family)
        options = _options(run, model, settings)
        reader = model.family.reader(model.net, model.vocab, options, model.device)
        about = {
            "traces": run.card.files.get(TRACES_FILE),
            "model_digest": model.digest,
            "vocab_digest": model.vocab.digest(),
            "family": model.family.name,
            "options": None if options is None else dict(vars(options)),
            # Not the batch: it does not change the results.
            **{name: getattr(settings, name) for name in ("stride", "region", "tokens", "places")},
        }
        samples = run.table(["sample"]).num_rows
        looked_for = programs_looked_for(run)
        if (blocks := run.blocks()) is not None:
            about[BLOCK_SLOTS] = max(map(blocks.largest, run.traces()))
        return cls(run, model, settings, options, reader, about, samples, looked_for, blocks)

    @property
    def parts(self) -> Path:
        return self.run.folder / PARTS_FOLDER

    def finish(self, progress: bool) -> None:
        """Measure the parts that are missing, and write the table."""
        target = self.run.folder / PLACEMENT_FILE
        if target.exists() and self._same(target, self.about):
            return
        if target.exists() and progress:
            print(f"{target} is of other settings and will be replaced", file=sys.stderr)
        done = []
        with progress_bar("placement", self.samples, shown=progress) as advance:
            for number, traces in enumerate(_chunks(self.run.traces(), PART)):
                done.append(self._part(number, traces))
                advance(len(traces))
        # Parts go only after the table is written: a kill in between loses nothing.
        write_file(target, (batch for path in done for batch in read_batches(path)), self.about)
        self._remove_parts()

    def _part(self, number: int, traces: Sequence[Trace]) -> Path:
        """The file of one part, made unless it exists."""
        path, about = self.parts / f"{number:05d}.parquet", {**self.about, "part": [number, PART]}
        if not (path.exists() and self._same(path, about)):
            table = to_table(self.rows(traces), about)
            self.parts.mkdir(exist_ok=True)
            write_file(path, table.to_batches(), about)
        return path

    def _same(self, path: Path, about: dict[str, Any]) -> bool:
        """Whether a file has the results of these settings, model and traces."""
        # Models without a digest never match: their weights may have changed.
        return self.model.digest not in NO_DIGEST and read_about(path) == about

    def _remove_parts(self) -> None:
        if not self.parts.is_dir():
            return
        sweep(self.parts)
        for path in self.parts.glob("*.parquet"):
            path.unlink()
        if not any(self.parts.iterdir()):
            self.parts.rmdir()

    def rows(self, traces: Sequence[Trace]) -> list[CanvasRow]:
        """The rows of some traces, in their order."""
        assert self.settings.stride is not None
        spans, replays = [], []
        for trace in traces:
            _check_trace(trace, self.model)
            how, inside = tokens_inside(
                trace,
                self.settings.region,
                self.model.vocab.end_ids,
                looked_for=self.looked_for,
            )
            steps = range(0, trace.steps or 0, self.settings.stride)
            spans.append(how)
            blocks = None if self.blocks is None else self.blocks.tokens(trace)
            replays.append(Replay(trace, steps, inside, *self._began(trace), blocks))
        moments = self.reader.moments(replays)
        # Canvases of all traces together fill the batches of network calls.
        flat = [moment for each in moments for moment in each]
        found = [(0, NOTHING)] * len(flat)
        for number, posterior in self.reader.posteriors(flat, self.settings.batch):
            commits = map(Commit, flat[number].committed.tolist(), flat[number].tokens.tolist())
            numbers = place(posterior, list(commits), self.settings.keep())
            found[number] = (len(posterior.positions), numbers)
        looked_at = iter(found)
        return [
            CanvasRow(
                task_id=replay.trace.task_id,
                sample=replay.trace.sample,
                step=moment.step,
                steps=replay.trace.steps or 0,
                time=moment.time,
                span=how,
                open=moment.open,
                masked=masked,
                placed=placed,
                log_prob=moment.log_prob,
            )
            for how, replay, each in zip(spans, replays, moments, strict=True)
            for moment in each
            for masked, placed in [next(looked_at)]
        ]

    def _began(self, trace: Trace) -> tuple[Any, int | None]:
        """The first canvas and the noise key, if the replay of a trace depends on them."""
        # A trace with times needs neither for its clock.
        events = getattr(self.options, "clock", None) == "events" and trace.times is None
        if not events and not self.model.family.counts_segments:
            return None, None
        config = self.run.card.config
        sizes = ("max_new_tokens", "max_length", "only_length_told")
        missing = [name for name in ("task", *sizes) if name not in config]
        if not events and missing:
            return None, None  # imported: the reader refuses it if segments were frozen in front
        if missing or trace.seed is None:
            raise ValueError(
                "the times of the event clock follow from its noise, which this run does not have "
                f"({', '.join(missing) or 'seed'} is missing): sample again with `anyorder sample`"
            )
        text = _given_text(self.run) or trace.prompt
        noise = trace.task_id if config["task"] else text
        new_tokens, length, only_length_told = (config[name] for name in sizes)
        slots = getattr(self.options, "slots", None)
        canvas = self.model.canvas(text, Sizes(new_tokens, length, only_length_told, slots))
        return canvas, key_of(trace.seed, noise, trace.sample)


def check_model(run: Run, model: Model, any_model: bool) -> None:
    """Refuse a model that did not make the run."""
    family = run.card.config.get("family")
    if family is not None and family != model.family.name:
        raise ValueError(
            f"{run.folder} was sampled with a model of family {family!r}, not "
            f"{model.family.name!r}: give the model that made it"
        )
    if any_model:
        return
    pairs = {
        "model": (run.card.model_digest, model.digest),
        "vocabulary": (run.card.vocab_digest, model.vocab.digest()),
    }
    for what, (stored, ours) in pairs.items():
        if stored is None or ours in NO_DIGEST:
            who = f"{run.folder} does not say" if stored is None else f"{model.name} cannot show"
            raise ValueError(
                f"{who} which {what} it is: set any_model (--any-model) if this made the traces"
            )
        if stored != ours:
            raise ValueError(
                f"{run.folder} was made with another {what} ({stored[:8]}, not {ours[:8]}): give "
                "the model that made it, or set any_model (--any-model) if they are the same"
            )


def _options(run: Run, model: Model, settings: PlacementSettings) -> Any:
    """The resolved decoding options of the traces; None if unknown."""
    stored = run.card.config.get("options")
    if stored is not None and settings.options is not None:
        raise ValueError(f"{run.folder} says how it was sampled: leave options out")
    record = stored if settings.options is None else settings.options
    return None if record is None else model.family.choose(record)


def _given_text(run: Run) -> str | None:
    """The prompt of a run, or the text with gaps that it filled."""
    config = run.card.config
    if config.get("fill") is None:
        return config.get("prompt")
    try:
        text = Path(config["fill"]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {config['fill']}, which the run filled: {error}") from None
    if hashlib.sha256(text.encode()).hexdigest() != run.card.data_digest:
        raise ValueError(f"{config['fill']} has changed since the run filled it: restore it")
    return text


def _check_trace(trace: Trace, model: Model) -> None:
    name = f"trace {trace.task_id!r} sample {trace.sample}"
    if trace.family is not None and trace.family != model.family.name:
        raise ValueError(f"{name} is of family {trace.family!r}, not {model.family.name!r}")
    if trace.token_ids is None or trace.prompt_ids is None:
        return  # refused where its tokens are needed
    highest = int(np.concatenate([trace.prompt_ids, trace.token_ids]).max(initial=-1))
    if highest >= model.vocab.size:
        raise ValueError(
            f"{name} has token id {highest}, beyond the model's vocabulary of {model.vocab.size}: "
            "give the model, and the vocabulary, that made it"
        )


def _chunks(traces: Iterator[Trace], size: int) -> Iterator[list[Trace]]:
    while chunk := list(islice(traces, size)):
        yield chunk
