"""Programs in, verdicts out, and the table of verdicts of a run.

    verdicts = grade(items, workers=2)       a stream: items are taken as workers become free

Equal programs with equal checks run once. A program that ran out of time, or whose worker died,
runs once more, alone, so that a busy machine fails no program. A verdict comes as soon as it is
certain, hence not in the order of the items; `key` says whose it is.

`VerdictTable` stores a row per sample and grading, and is safe to kill:

    append      verdict-parts/<grading>/00000.parquet, 00001.parquet, ... each whole or absent
    finish      merge the parts into verdicts.parquet, then remove them

A grading is one way to grade a run: its task, data, extraction and limits; `grading` is their
digest. A file may hold several. Each step is one rename, so after a kill the same calls continue:
`done` reads table and parts, and rows of parts replace rows of the table, so a sample never has two
verdicts of one grading. The folder has one writer at a time (`files.alone_in`), or several that
append `together` (`files.together_in`), of which the last one finishes. Not here: extracting
programs from texts (apps/grade).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anyorder.bench.checks import ERROR, NO_CODE, TIMEOUT, Check, to_record
from anyorder.bench.pool import JobOutcome, Pool, PoolJob
from anyorder.bench.sandbox import Limits
from anyorder.files import replacing, sweep
from anyorder.trace.run import VERDICTS_FILE
from anyorder.trace.table import read_parquet

RUNS = 2
"""The most runs of a program."""

MOST_WAITING = 64
"""Second runs begin at this number of waiting programs, whose verdicts a kill would lose."""

REMEMBERED = 4096
"""Finished programs whose verdict a later equal one gets; equal programs come close together."""


@dataclass(frozen=True)
class Item:
    """A program to judge."""

    key: Hashable
    """The caller's name for it; comes back with the verdict."""
    program: str | None
    """The candidate; None where the text held no program."""
    checks: tuple[Check, ...]
    """All must pass."""
    prologue: str = ""
    """Trusted text before the program: published imports."""


@dataclass(frozen=True)
class Verdict:
    """What became of a program."""

    key: Any
    """The item's."""
    verdict: str
    """One of VERDICTS in checks.py."""
    detail: str = ""
    """Why, in one line."""
    program_digest: str | None = None
    """SHA-256 of what was run, prologue included; None where there was no program."""
    level: int | None = None
    """The isolation in which it ran, proved by canaries; None where nothing ran."""
    cpu_seconds: float = 0.0
    """Processor time of the program, without that of the tests."""
    wall_seconds: float = 0.0
    attempts: int = 0
    """Runs: 2 after a time-out or a worker's death."""


def grade(
    items: Iterable[Item],
    *,
    workers: int | None = None,
    limits: Limits | None = None,
    minimum_level: int = 2,
) -> Generator[Verdict, None, None]:
    """The verdict of every item; `workers` processes at most (unset: one for each processor)."""
    if os.name != "posix":
        raise ValueError("programs cannot be confined on this system: grade on Linux (or in WSL2)")
    with Pool(workers or _processors(), minimum_level) as pool:
        yield from _Grading(pool, asdict(limits or Limits())).run(iter(items))


@dataclass
class _Program:
    """A distinct program that is being judged, and the keys that wait for its verdict."""

    job: PoolJob
    digest: str
    identity: tuple[str, str]
    keys: list[Hashable]
    attempts: int = 1


@dataclass
class _Grading:
    """The state of one stream."""

    pool: Pool
    limits: dict[str, Any]
    open: dict[int, _Program] = field(default_factory=dict)
    """By the number of the job."""
    by_identity: dict[tuple[str, str], _Program] = field(default_factory=dict)
    finished: OrderedDict[tuple[str, str], Verdict] = field(default_factory=OrderedDict)
    second_runs: deque[_Program] = field(default_factory=deque)
    """Programs that wait until they can run once more, alone."""
    draining: bool = False
    """Whether nothing new begins until all second runs are done."""
    waiting: PoolJob | None = None
    """Taken from the items, waiting for a worker with room."""
    ended: bool = False
    numbers: int = 0
    checks: tuple[tuple[Check, ...], str, str] = ((), "", "")
    """The last checks, in JSON, and their digest: the items of a problem share them."""

    def run(self, source: Iterator[Item]) -> Iterator[Verdict]:
        while True:
            if not self.draining:
                yield from self._fill(source)
            if self.pool.busy:
                for outcome in self.pool.wait():
                    yield from self._hear(outcome)
            elif self.second_runs:
                # Only when no worker is busy: a second time-out must be the program's own doing.
                self.draining = True
                self.pool.hand(self.second_runs.popleft().job)
            elif self.ended and self.waiting is None:
                return
            if not self.second_runs and not self.pool.busy:
                self.draining = False

    def _fill(self, source: Iterator[Item]) -> Iterator[Verdict]:
        """Take items while workers have room; yield verdicts that are known already."""
        while len(self.second_runs) < MOST_WAITING:
            if self.waiting is None:
                item = next(source, None)
                if item is None:
                    self.ended = True
                    return
                verdict = self._begin(item)
                if verdict is not None:
                    yield verdict
            if self.waiting is not None:
                if not self.pool.room(self.waiting):
                    return
                self.pool.hand(self.waiting)
                self.waiting = None
        self.draining = True

    def _begin(self, item: Item) -> Verdict | None:
        """Hold the item's program for a worker, unless an equal one is known or running."""
        if item.program is None:
            return Verdict(item.key, NO_CODE, "no program in the text")
        between = "" if item.prologue.endswith("\n") or not item.prologue else "\n"
        text = f"{item.prologue}{between}{item.program}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        checks, checks_key = self._checks(item.checks)
        identity = (digest, checks_key)
        if identity in self.finished:
            return replace(self.finished[identity], key=item.key)
        if identity in self.by_identity:
            self.by_identity[identity].keys.append(item.key)
            return None
        self.numbers += 1
        self.waiting = PoolJob(self.numbers, text, checks_key, checks, self.limits)
        program = _Program(self.waiting, digest, identity, [item.key])
        self.open[self.numbers] = self.by_identity[identity] = program
        return None

    def _checks(self, checks: tuple[Check, ...]) -> tuple[str, str]:
        # By identity: items of a problem share the tuple, and hashing megabytes of tests is slow.
        if checks is not self.checks[0] or not checks:
            if not checks:
                raise ValueError("a problem without checks cannot be graded: choose another task")
            text = json.dumps([to_record(check) for check in checks])
            self.checks = (checks, text, hashlib.sha256(text.encode()).hexdigest())
        return self.checks[1:]

    def _hear(self, outcome: JobOutcome) -> Iterator[Verdict]:
        program, reply = self.open[outcome.job.number], outcome.reply
        if "unfit" in reply:
            raise ValueError(f"{program.keys[0]} cannot be graded: {reply['unfit']}")
        if "lost" in reply:
            reply = {"verdict": TIMEOUT if outcome.stuck else ERROR, "detail": reply["lost"]}
        if (reply["verdict"] == TIMEOUT or "lost" in outcome.reply) and program.attempts < RUNS:
            program.attempts += 1
            self.second_runs.append(program)
            return
        del self.open[outcome.job.number], self.by_identity[program.identity]
        verdict = Verdict(
            program.keys[0],
            program_digest=program.digest,
            level=outcome.level,
            attempts=program.attempts,
            **reply,
        )
        self.finished[program.identity] = verdict
        if len(self.finished) > REMEMBERED:
            self.finished.popitem(last=False)
        for key in program.keys:
            yield replace(verdict, key=key)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


VERSION = 1
VERSION_KEY = b"anyorder.verdicts.schema"
GRADINGS_KEY = b"anyorder.verdicts.gradings"
PARTS_FOLDER = "verdict-parts"
DIGEST_LETTERS = 12

SCHEMA = pa.schema(
    [
        pa.field("grading", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("data_digest", pa.string(), nullable=False),
        pa.field("extraction", pa.string(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("sample", pa.int32(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("program_digest", pa.string()),
        pa.field("level", pa.int32()),
        pa.field("cpu_seconds", pa.float64(), nullable=False),
        pa.field("wall_seconds", pa.float64(), nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
    ]
)
REMEDY = "delete it and grade again"

SampleKey = tuple[str, int]
"""A sample: its task id and number."""


@dataclass(frozen=True)
class Grading:
    """One way to grade a run: what its verdicts depend on."""

    task: str
    data_digest: str
    extraction: str
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A short name, the same for the same settings."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]


class VerdictTable:
    """The verdicts of one grading of a run, to write and to read."""

    def __init__(self, folder: Path, grading: Grading, *, together: bool = False) -> None:
        self.folder = folder
        self.grading = grading
        self.together = together
        self._digest = grading.digest

    def done(self, minimum_level: int = 0) -> set[SampleKey]:
        """The samples that have a verdict, from isolation of at least that level."""
        return {
            _key(row)
            for row in self.rows()
            if row["level"] is None or row["level"] >= minimum_level
        }

    def rows(self) -> list[dict[str, Any]]:
        """The rows of this grading, from the table and from parts."""
        # Parts before the table: another writer may merge and remove parts between the two reads,
        # and then the table has their rows.
        parts = self._part_rows()
        merged = {_key(row): row for row in self._stored()[0] if row["grading"] == self._digest}
        merged.update((_key(row), row) for row in parts)
        return list(merged.values())

    def append(self, verdicts: Sequence[Verdict]) -> None:
        """Add verdicts, whose keys are samples: all of them, or none if killed."""
        self._parts.mkdir(parents=True, exist_ok=True)
        if not self.together:
            sweep(self._parts)
        number = max((_number(path) for path in self._part_files()), default=-1) + 1
        # Several writers may count the same parts: a random mark keeps their names apart.
        name = f"{number:05d}-{secrets.token_hex(6)}" if self.together else f"{number:05d}"
        rows = [self._row(verdict) for verdict in verdicts]
        _write(self._parts / f"{name}.parquet", rows, {self._digest: asdict(self.grading)})

    def finish(self, order: Mapping[SampleKey, int]) -> None:
        """Merge the parts into verdicts.parquet; `order` sorts the samples of a grading."""
        sweep(self.folder)
        if self._part_files():
            last = len(order)
            ours = sorted(self.rows(), key=lambda row: order.get(_key(row), last))
            rows, gradings = self._stored()
            others = [row for row in rows if row["grading"] != self._digest]
            _write(
                self.folder / VERDICTS_FILE,
                others + ours,
                {**gradings, self._digest: asdict(self.grading)},
            )
        self.discard_parts()  # after the rename: a kill in between merges them again, harmlessly

    def discard_parts(self) -> None:
        """Remove the parts: after merging them, or to grade again."""
        sweep(self._parts)
        for path in self._part_files():
            path.unlink(missing_ok=True)
        for folder in (self._parts, self._parts.parent):
            with suppress(OSError):  # missing, or not empty
                folder.rmdir()

    @property
    def _parts(self) -> Path:
        return self.folder / PARTS_FOLDER / self._digest

    def _part_files(self) -> list[Path]:
        return sorted(path for path in self._parts.glob("*.parquet") if _PART.fullmatch(path.stem))

    def _part_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for path in self._part_files():
            if path.exists():  # else another writer has just merged it
                rows += _read(path)[0]
        return rows

    def _stored(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        path = self.folder / VERDICTS_FILE
        return _read(path) if path.exists() else ([], {})

    def _row(self, verdict: Verdict) -> dict[str, Any]:
        row = asdict(verdict)
        task_id, sample = row.pop("key")
        settings = {name: getattr(self.grading, name) for name in _SETTINGS}
        return {"grading": self._digest, **settings, "task_id": task_id, "sample": sample, **row}


_PART = re.compile(r"(\d{5,})(-[0-9a-f]+)?")
_SETTINGS = ("task", "data_digest", "extraction")


def gradings_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The gradings in a run's verdicts.parquet: digest -> settings; none without the file."""
    path = folder / VERDICTS_FILE
    return _read(path)[1] if path.exists() else {}


def _number(part: Path) -> int:
    return int(part.stem.partition("-")[0])


def _key(row: Mapping[str, Any]) -> SampleKey:
    return row["task_id"], row["sample"]


def _write(path: Path, rows: Collection[dict[str, Any]], gradings: dict[str, Any]) -> None:
    metadata = {
        VERSION_KEY: str(VERSION).encode(),
        GRADINGS_KEY: json.dumps(gradings, sort_keys=True).encode(),
    }
    schema = SCHEMA.with_metadata(metadata)
    table = pa.Table.from_pylist(list(rows), schema=schema)
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def _read(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    table = read_parquet(path, remedy=REMEDY)
    metadata = table.schema.metadata or {}
    version = metadata.get(VERSION_KEY)
    if version is None or not table.schema.equals(SCHEMA):
        raise ValueError(f"{path} is not a table of verdicts that anyorder wrote: {REMEDY}")
    if version != str(VERSION).encode():
        raise ValueError(
            f"{path} has verdict schema {version.decode(errors='replace')}, this anyorder writes "
            f"{VERSION}: {REMEDY}, or use the version that wrote it"
        )
    return table.to_pylist(), json.loads(metadata[GRADINGS_KEY])
