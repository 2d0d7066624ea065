"""`anyorder data`: sources -> shards with a manifest, in one pass that survives a kill.

**Rows.** A record becomes a tokenised row, or a reason to leave it out, in this order: the source's
filters, contamination, tokens and their limits (`RowMaker`, a pure function of the record), then
duplicates (`admit`). Contamination comes before duplicates, so that every copy of a benchmark
problem is reported as one. Limits come before duplicates, so that no row is dropped for a row that
was not kept. The split depends on the prompt's text only: all rows with one prompt are on one side.
Several processes make the same shards as one.

**Resumption.** After a chunk of `shard_rows` rows its shards are written, two files are appended to
(dropped rows, known rows), and then `work/progress.json` is replaced: it has the position, the
shards, and the lengths of the two files. Resumption cuts the files to these lengths and removes
other shards, so the same command ends with the same bytes.

Memory: one chunk of tokens, and the tables of data/near.py. inputs.py turns the flags into a plan.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from anyorder import __version__
from anyorder.apps.pipeline.inputs import DataPlan, OpenedSource, SourceRecord
from anyorder.data.filters import Array, Contamination, RowViews
from anyorder.data.keyed import key
from anyorder.data.near import BYTES_IN_MEMORY, HASHES, KnownRows, exact_key, signature
from anyorder.data.published import LeftOut
from anyorder.data.segments import DoesNotFit, cut, limit
from anyorder.data.sources import FORMAT, MANIFEST, ShardBuilder, ShardRow, Split, read_manifest
from anyorder.files import alone_in, replacing, sha256_of, sweep, write_json

SHOWN = 100
"""Characters of a contaminated row's prompt in the report."""

CONTAMINATED, DUPLICATE, NEAR_DUPLICATE = "contaminated", "duplicate", "near duplicate"


@dataclass(frozen=True)
class Dropped:
    """A row that is left out: the reason, and details for the report."""

    reason: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MadeRow:
    """A row for the shards, unless it turns out to be a duplicate."""

    row: ShardRow
    split: Split
    exact: int
    signature: Array


class RowMaker:
    """Makes a row of each record, independently of the other records."""

    def __init__(self, plan: DataPlan) -> None:
        self._plan = plan
        items = list(chain.from_iterable(found.items for found in plan.benchmarks))
        self._contamination = Contamination(items) if items else None
        self._no_signature: Array = np.zeros(HASHES, dtype=np.uint32)

    def __call__(self, source: int, number: int, record: SourceRecord) -> MadeRow | Dropped:
        """The row of record `number` of a source."""
        opened = self._plan.sources[source]
        opened.check(record)
        try:
            prompt, answer = opened.spec.render(record, self._plan.job.mode)
            views = RowViews(prompt, answer)
            if (found := self._contaminated(views)) is not None:
                return found
            row = self._tokenised(number, prompt, answer)
        except LeftOut as reason:
            return Dropped(str(reason))
        ways = self._plan.job.ways
        return MadeRow(
            row,
            self._split(prompt),
            exact_key(views) if ways != "none" else 0,
            signature(views) if ways == "near" else self._no_signature,
        )

    def _contaminated(self, views: RowViews) -> Dropped | None:
        found = self._contamination and self._contamination.find(views)
        if not found:
            return None
        details = {"item": found.item, "part": found.part, "overlap": found.overlap}
        shown = {"shared": found.shared, "prompt": views.prompt[:SHOWN]}
        return Dropped(CONTAMINATED, details | shown)

    def _tokenised(self, number: int, prompt: str, answer: str) -> ShardRow:
        plan, vocab = self._plan, self._plan.vocab
        if not answer.strip():
            raise LeftOut("no code")
        lengths: list[int] = []
        try:
            prompt_ids = vocab.encode(prompt)
            if plan.recipe.by_line:
                segments = cut(answer, vocab, "line", plan.limits.total)
                if plan.limits.segments is not None:
                    limit(segments, plan.limits.segments)
                answer_ids = list(chain.from_iterable(segments))
                lengths = list(map(len, segments))
            else:
                answer_ids = vocab.encode(answer, begun=True)
        except DoesNotFit:
            raise LeftOut("segments do not fit") from None
        except ValueError:
            raise LeftOut("not in the vocabulary") from None
        if len(prompt_ids) + len(answer_ids) + plan.limits.around > plan.limits.total:
            raise LeftOut("too long")
        return ShardRow(number, prompt_ids, answer_ids, lengths)

    def _split(self, prompt: str) -> Split:
        # White space is normalised, so that copies of a prompt never fall on both sides.
        drawn = key("validation", self._plan.job.seed, " ".join(prompt.split()))
        return "validation" if drawn < self._plan.validation * 2**64 else "train"


def admit(made: MadeRow, seen: KnownRows, source: int, aliases: list[str]) -> Dropped | None:
    """Remember a row, or return why it is a duplicate."""
    found = seen.find(made.exact, made.signature)
    if found is None:
        seen.add(made.exact, made.signature, source, made.row.row)
        return None
    of = {"of": {"source": aliases[found.source], "row": found.row}}
    if found.similarity is None:
        return Dropped(DUPLICATE, of)
    return Dropped(NEAR_DUPLICATE, of | {"similarity": found.similarity})


Records = Iterator[tuple[int, int, SourceRecord]]
Made = Iterator[tuple[int, int, MadeRow | Dropped]]
Makes = Callable[[int, int, Records], Made]
"""(source, number of the first record, records with positions) -> rows with their positions."""
Block = tuple[int, int, list[SourceRecord]]

BLOCK = 128
"""Records in one message to a worker."""

_MAKER: list[RowMaker] = []
"""The row maker of a worker process, made once at its start."""


@contextmanager
def making(plan: DataPlan) -> Iterator[Makes]:
    """A function that makes rows, in one process or in the plan's number of workers."""
    if plan.job.workers == 1:
        maker = RowMaker(plan)

        def alone(source: int, first: int, records: Records) -> Made:
            for number, (file, row, record) in enumerate(records, start=first):
                yield file, row, maker(source, number, record)

        yield alone
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy threads that hold locks
    with context.Pool(plan.job.workers, _start, (plan,)) as pool:

        def together(source: int, first: int, records: Records) -> Made:
            places: list[tuple[int, int]] = []
            wanted = plan.sources[source].spec
            columns = (*wanted.columns, *wanted.optional)
            blocks = _blocks(source, first, records, places, columns)
            number = 0
            for rows in pool.imap(_make, blocks):
                for made in rows:
                    yield *places[number], made
                    number += 1

        yield together


def _blocks(
    source: int,
    first: int,
    records: Records,
    places: list[tuple[int, int]],
    columns: tuple[str, ...],
) -> Iterator[Block]:
    while taken := list(islice(records, BLOCK)):
        start = first + len(places)
        places += [(file, row) for file, row, _ in taken]
        needed = [{c: record[c] for c in columns if c in record} for _, _, record in taken]
        yield source, start, needed


def _start(plan: DataPlan) -> None:
    _MAKER.append(RowMaker(plan))


def _make(block: Block) -> list[MadeRow | Dropped]:
    source, first, records = block
    made = _MAKER[0]
    return [made(source, number, record) for number, record in enumerate(records, start=first)]


WORK, PROGRESS, SEEN, DROPPED = "work", "progress.json", "seen.bin", "dropped.jsonl"
SPLITS = ("train", "validation")
LEFT_OUT = "left out: "
"""The prefix of a reason among the counts."""


@dataclass
class PipelineProgress:
    """The state that resumption needs (work/progress.json)."""

    identity: str
    source: int = 0
    file: int = 0
    row: int = 0
    """The next row of that file."""
    number: int = 0
    """The next row of that source."""
    seen_bytes: int = 0
    dropped_bytes: int = 0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """By source: rows read, kept on each side, and left out for each reason."""
    shards: list[dict[str, Any]] = field(default_factory=list)


def make_shards(plan: DataPlan, *, progress: bool = True) -> dict[str, Any]:
    """Make the shards, or the rest of them; returns the manifest."""
    for warning in plan.warnings():
        print(f"warning: {warning}", file=sys.stderr)
    with alone_in(plan.out):
        if (plan.out / MANIFEST).exists():
            return _finished(plan)
        done = _resumed(plan)
        plan.vocab.save(plan.out)
        with ExitStack() as stack:
            dropped = stack.enter_context((plan.out / DROPPED).open("ab"))
            seen = None
            if plan.job.ways != "none":
                path = plan.out / WORK / SEEN
                seen = KnownRows(path, near=plan.job.ways == "near", threshold=plan.job.near)
                stack.callback(seen.close)
            make = stack.enter_context(making(plan))
            _PipelinePass(plan, done, make, seen, dropped).run(
                shown=progress and sys.stderr.isatty()
            )
        return _finish(plan, done)


def _finished(plan: DataPlan) -> dict[str, Any]:
    manifest = read_manifest(plan.out)
    if manifest["identity"] != plan.identity():
        raise ValueError(
            f"{plan.out} holds shards of other settings: choose another --out, or remove it"
        )
    # A kill between the manifest and the removal may have left the folder.
    shutil.rmtree(plan.out / WORK, ignore_errors=True)
    return manifest


def _resumed(plan: DataPlan) -> PipelineProgress:
    """The stored progress, with the folder put back to that state."""
    path = plan.out / WORK / PROGRESS
    done = PipelineProgress(plan.identity())
    if path.exists():
        done = PipelineProgress(**json.loads(path.read_text(encoding="utf-8")))
        if done.identity != plan.identity():
            raise ValueError(
                f"{plan.out} holds the work of another command: repeat that, or remove the folder"
            )
        print(f"continuing at row {done.number} of {_alias(plan, done.source)}", file=sys.stderr)
    for name, size in ((f"{WORK}/{SEEN}", done.seen_bytes), (DROPPED, done.dropped_bytes)):
        if (file := plan.out / name).exists():
            os.truncate(file, size)  # drop what was appended after the last commit
    (plan.out / WORK).mkdir(exist_ok=True)
    known = {shard["file"] for shard in done.shards}
    for split in SPLITS:
        (plan.out / split).mkdir(exist_ok=True)
        sweep(plan.out / split)
        for shard in (plan.out / split).glob("*.safetensors"):
            if f"{split}/{shard.name}" not in known:
                shard.unlink()
    return done


def _alias(plan: DataPlan, source: int) -> str:
    return plan.sources[source].spec.alias if source < len(plan.sources) else "the end"


@dataclass
class _PipelinePass:
    plan: DataPlan
    done: PipelineProgress
    make: Makes
    seen: KnownRows | None
    dropped: BinaryIO

    def run(self, *, shown: bool) -> None:
        plan, done = self.plan, self.done
        while done.source < len(plan.sources):
            records = plan.sources[done.source].records(done.file, done.row)
            if plan.job.limit is not None:
                records = islice(records, max(0, plan.job.limit - done.number))
            while self._chunk(islice(records, plan.job.shard_rows)):
                self._commit()
                if shown:
                    print(self._state(), file=sys.stderr)
            done.source, done.file, done.row, done.number = done.source + 1, 0, 0, 0
            self._commit()

    def _state(self) -> str:
        alias = _alias(self.plan, self.done.source)
        counts = self.done.counts[alias]
        kept = counts["train"] + counts["validation"]
        return f"{alias}: {counts['read']:,} rows read, {kept:,} kept"

    def _chunk(self, records: Iterator[tuple[int, int, SourceRecord]]) -> bool:
        """Read some rows and write their shards; returns whether there were any."""
        done, first = self.done, self.done.number
        alias = _alias(self.plan, done.source)
        counts: Counter[str] = Counter({"read": 0, "train": 0, "validation": 0})
        counts.update(done.counts.get(alias, {}))
        builders = {split: ShardBuilder() for split in SPLITS}
        for file, row, made in self.make(done.source, first, records):
            kept = self._admitted(made, alias)
            if isinstance(kept, Dropped):
                counts[f"{LEFT_OUT}{kept.reason}"] += 1
                line = {"source": alias, "row": done.number, "reason": kept.reason}
                self.dropped.write(json.dumps(line | kept.details).encode() + b"\n")
            else:
                builders[kept.split].add(kept.row)
                counts[kept.split] += 1
            counts["read"] += 1
            done.file, done.row, done.number = file, row + 1, done.number + 1
        done.counts[alias] = dict(counts)
        for split, builder in builders.items():
            if len(builder):
                name = f"{split}/{alias}-{first:010d}.safetensors"
                done.shards.append(_written(self.plan.out, name, alias, split, builder))
        return done.number > first

    def _admitted(self, made: MadeRow | Dropped, alias: str) -> MadeRow | Dropped:
        if isinstance(made, Dropped) or self.seen is None:
            return made
        aliases = [source.spec.alias for source in self.plan.sources]
        return admit(made, self.seen, aliases.index(alias), aliases) or made

    def _commit(self) -> None:
        """Store the progress; a kill after this loses nothing before it."""
        # The files first: progress.json must never claim bytes that are not on the disk.
        self.dropped.flush()
        os.fsync(self.dropped.fileno())
        self.done.dropped_bytes = self.dropped.tell()
        if self.seen is not None:
            self.done.seen_bytes = self.seen.flush()
        write_json(self.plan.out / WORK / PROGRESS, asdict(self.done))


def _written(out: Path, name: str, alias: str, split: str, builder: ShardBuilder) -> dict[str, Any]:
    digest = hashlib.sha256()
    with replacing(out / name) as file:
        for part in builder.parts():
            file.write(part)
            digest.update(part)
    return {
        "file": name,
        "source": alias,
        "split": split,
        "rows": len(builder),
        "tokens": builder.tokens,
        "sha256": digest.hexdigest(),
    }


def _finish(plan: DataPlan, done: PipelineProgress) -> dict[str, Any]:
    sources = [_source_entry(each, done.counts[each.spec.alias]) for each in plan.sources]
    manifest = {
        "format": FORMAT,
        "made_by": f"anyorder {__version__}",
        "identity": plan.identity(),
        **plan.settings(),
        "segments": "line" if plan.recipe.by_line else None,
        "sources": sources,
        "rows": {split: sum(source[split] for source in sources) for split in SPLITS},
        "rows_an_epoch": sum(source["train"] * source["repeat"] for source in sources),
        "tokens": {
            split: sum(shard["tokens"] for shard in done.shards if shard["split"] == split)
            for split in SPLITS
        },
        "state_bytes_per_row": 0 if plan.job.ways == "none" else BYTES_IN_MEMORY,
        "warnings": plan.warnings(),
        "shards": done.shards,
        DROPPED: sha256_of(plan.out / DROPPED),
    }
    write_json(plan.out / MANIFEST, manifest)
    shutil.rmtree(plan.out / WORK)
    return manifest


def _source_entry(source: OpenedSource, counts: dict[str, int]) -> dict[str, Any]:
    spec = source.spec
    left_out = {
        name.removeprefix(LEFT_OUT): count
        for name, count in sorted(counts.items())
        if name.startswith(LEFT_OUT)
    }
    assert counts["read"] == counts["train"] + counts["validation"] + sum(left_out.values())
    return {
        **{name: getattr(spec, name) for name in ("alias", "hub", "config")},
        "content": list(source.content),
        **{name: getattr(spec, name) for name in ("licence", "commercial", "repeat")},
        "read": counts["read"],
        **{split: counts[split] for split in SPLITS},
        "left_out": left_out,
    }
