"""The run folder and its card: `run.json` and `traces.parquet`, written in parts and safe to kill.

    create      run.json with status "running"
    append      parts/00000.parquet, parts/00001.parquet, ... each whole or absent
    finish      traces.parquet from the parts, then run.json with "complete", then parts/ is removed

Each step is one rename, so after a kill the same calls resume: `done_parts` lists what need not be
computed again, and `finish` may be repeated.

Locking is left to the caller, except in `save_run`. A single writer holds `files.alone_in` from
before `create` until after `finish`. Several processes use `files.together_in`: each calls
`create(..., together=True)` and appends parts that no other has, and the last one finishes. This is
safe on disks without locks too: the first card stays, parts do not collide, two that finish at once
write the same bytes, and `finish_if_whole` never merges fewer than all parts.

The card (`RunCard`) says where a run's numbers come from: the resolved configuration, digests of
model, data, vocabulary and files, versions, device and seeds. Two cards describe the same run when
they agree in `IDENTITY`; the rest (versions, time) may differ on resumption. Versions are read from
package metadata, so nothing is imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anyorder.files import (
    LOCK_FILE,
    TEMPORARY_SUFFIX,
    alone_in,
    creating,
    replacing,
    sha256_of,
    sweep,
)
from anyorder.trace import checks
from anyorder.trace import table as parquet
from anyorder.trace.trace import Trace

if TYPE_CHECKING:
    from anyorder.trace.blocks import BlockRule

VERSION = 1
RUNNING, COMPLETE = "running", "complete"
PACKAGES = (
    *("anyorder", "torch", "numpy", "pyarrow", "safetensors", "tokenizers", "transformers"),
    *("numba", "rapidfuzz"),
)
SHOWN_DIGEST, SHOWN_VALUE = 8, 60
OPTIONAL = ("agreement", "facts", "lossy")
"""Fields that are left out of the file where they are None."""
IDENTITY = ("config", "model_digest", "data_digest", "vocab_digest", "device", "dtype", "seeds")


def installed_versions() -> dict[str, str]:
    """The versions of the installed packages that shape a run."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@dataclass(frozen=True)
class RunCard:
    """The provenance of a run: command, configuration, digests, versions, status."""

    command: str
    """The command line, or the function, that made the run."""
    config: dict[str, Any]
    """The resolved configuration: JSON values only."""
    model_digest: str | None = None
    data_digest: str | None = None
    vocab_digest: str | None = None
    device: str | None = None
    dtype: str | None = None
    seeds: tuple[int, ...] = ()
    versions: dict[str, str] = field(default_factory=installed_versions)
    python: str = field(default_factory=platform.python_version)
    platform: str = field(default_factory=platform.platform)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    status: str = RUNNING
    parts: tuple[int, ...] = ()
    """The parts merged into traces.parquet; empty while running."""
    files: dict[str, str] = field(default_factory=dict)
    """File name -> sha256, of the files of a finished run."""
    schema: int = VERSION
    agreement: dict[str, Any] | None = None
    """How the samples compare with those of the exact decoder, where one was approximated."""
    facts: dict[str, dict[str, Any]] | None = None
    """Task id -> what the task says of this problem, strings and whole numbers by name."""
    lossy: bool | None = None
    """True: the tokenizer may have changed texts that it encoded (case, spaces), so a prompt's
    text may differ from that of its ids."""

    def __post_init__(self) -> None:
        for name, fits in _CHECKS.items():
            if not fits(getattr(self, name)):
                raise ValueError(f"run card: field {name!r}: {getattr(self, name)!r} does not fit")
        try:
            # Through JSON and back, so that a card equals the one read from its file.
            config = json.loads(json.dumps(self.config, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"run card: field 'config': {error}: give strings, finite numbers, booleans, "
                "null, lists and dicts only"
            ) from None
        object.__setattr__(self, "config", config)
        object.__setattr__(self, "seeds", tuple(self.seeds))
        object.__setattr__(self, "parts", tuple(self.parts))

    @classmethod
    def read(cls, path: Path) -> RunCard:
        """The card in a file; a ValueError names the file and its fault."""
        try:
            record = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ValueError(
                f"{path} is missing: name a run folder, made by `anyorder sample` or "
                "`anyorder import`"
            ) from None
        except OSError as error:
            raise ValueError(
                f"{path} cannot be read ({error.strerror}): restore the file, or choose another "
                "folder"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} is truncated or not JSON ({error}): restore it, or make the run again"
            ) from None
        if not isinstance(record, dict) or type(record.get("schema")) is not int:
            raise ValueError(f"{path} is not a run card: name a run folder made by anyorder")
        if record["schema"] != VERSION:
            raise ValueError(
                f"{path} has card schema {record['schema']}, this anyorder reads {VERSION}: "
                "use the version of anyorder that wrote it"
            )
        names = {item.name for item in fields(cls)}
        lacking = names - set(record) - set(OPTIONAL)
        for kind, wrong in (("lacks", lacking), ("has unknown", set(record) - names)):
            if wrong:
                raise ValueError(
                    f"{path} {kind} {', '.join(sorted(wrong))}: restore the original file"
                )
        try:
            return cls(**record)
        except ValueError as error:
            raise ValueError(f"{path}: {error}: restore the original file") from None

    def write(self, path: Path, *, new: bool = False) -> None:
        """Write the card, whole or not at all; `new`: FileExistsError if there is one."""
        with (creating if new else replacing)(path) as file:
            file.write(json.dumps(self._record(), indent=2, ensure_ascii=False).encode() + b"\n")

    def _record(self) -> dict[str, Any]:
        record = asdict(self)
        return {k: v for k, v in record.items() if v is not None or k not in OPTIONAL}

    def completed(self, parts: list[int], files: dict[str, str]) -> RunCard:
        """The card of the run once its traces are merged."""
        return replace(self, status=COMPLETE, parts=tuple(parts), files={**self.files, **files})

    def differences(self, other: RunCard) -> list[str]:
        """The fields of IDENTITY that differ: "field (ours stored, theirs now)" each."""
        ours, theirs = _flat(self._identity()), _flat(other._identity())
        lines = []
        for name in sorted({*ours, *theirs}):
            left, right = ours.get(name, "nothing"), theirs.get(name, "nothing")
            if left != right:
                lines.append(f"{name} ({_short(name, left)} stored, {_short(name, right)} now)")
        return lines

    def identity(self) -> str:
        """A digest of IDENTITY, in hexadecimal."""
        text = json.dumps(_flat(self._identity()), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _identity(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in IDENTITY}


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Nested dicts as dotted names with JSON values, so 1, 1.0 and true stay apart."""
    if isinstance(value, dict) and value:
        flat = {}
        for key, inner in value.items():
            flat.update(_flat(inner, f"{name}.{key}" if name else str(key)))
        return flat
    return {name: json.dumps(value, sort_keys=True)}


def _short(name: str, value: str) -> str:
    """A JSON value for a message: the start of a digest, at most a line of other values."""
    if name.endswith("digest"):
        return value.strip('"')[:SHOWN_DIGEST]
    return value if len(value) <= SHOWN_VALUE else f"{value[: SHOWN_VALUE - 3]}..."


def _is_text_dict(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, str) for key, item in value.items()
    )


def _is_facts(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(task_id, str)
        and isinstance(own, dict)
        and all(isinstance(name, str) and type(fact) in (str, int) for name, fact in own.items())
        for task_id, own in value.items()
    )


_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("command", "python", "platform", "created"), lambda value: isinstance(value, str)
    ),
    **dict.fromkeys(
        ("model_digest", "data_digest", "vocab_digest", "device", "dtype"),
        lambda value: value is None or isinstance(value, str),
    ),
    **dict.fromkeys(
        ("seeds", "parts"),
        lambda value: isinstance(value, list | tuple) and all(type(item) is int for item in value),
    ),
    **dict.fromkeys(("versions", "files"), _is_text_dict),
    "config": lambda value: isinstance(value, dict),
    "agreement": lambda value: value is None or isinstance(value, dict),
    "facts": lambda value: value is None or _is_facts(value),
    "lossy": lambda value: value in (None, True),
    "status": lambda value: value in (RUNNING, COMPLETE),
    "schema": lambda value: value == VERSION,
}


CARD_FILE = "run.json"
TRACES_FILE = "traces.parquet"
VERDICTS_FILE = "verdicts.parquet"
MEASURES_FILE, MEASURES_SCHEMA = "measures.json", 1
"""It has a head (schema, digest of the measured traces, versions) and an entry for each measure."""
PARTS_FOLDER = "parts"

DIFFERENCES_SHOWN = 4
ROWS_AT_ONCE = 512
"""Samples in a part that `save_run` writes."""

_PART_NAME = re.compile(r"(\d{5,})\.parquet")


class Run:
    """A run folder, to write (`create`, `append`, `finish`) or to read (`open`, `traces`)."""

    def __init__(self, folder: Path, card: RunCard) -> None:
        self.folder = folder
        self.card = card
        self._verified = False

    @classmethod
    def create(cls, folder: str | Path, card: RunCard, *, together: bool = False) -> Run:
        """A new run, or the stored one, to resume it, if their cards agree.

        `together`: other processes write here too, so their temporary files stay.
        """
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file: choose another --out")
        folder.mkdir(parents=True, exist_ok=True)
        if not together:
            sweep(folder)  # temporary files of a killed writer
        path = folder / CARD_FILE
        if not path.exists():
            foreign = sorted(item.name for item in folder.iterdir() if _is_foreign(item.name))
            # Another process may have written its card, and more files, since the first check.
            if foreign and not path.exists():
                raise ValueError(
                    f"{folder} is not empty ({foreign[0]}) and not a run: choose another --out"
                )
            try:
                card.write(path, new=together)
                return cls(folder, card)
            except FileExistsError:
                pass  # another process was first: compare with its card
        stored = RunCard.read(path)
        different = stored.differences(card)
        if different:
            raise ValueError(
                f"{folder} holds another run, which differs in {_some(different)}: "
                "choose another --out, or repeat the command that made it"
            )
        return cls(folder, stored)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """An existing run."""
        folder = Path(folder)
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder: name a run folder made by anyorder")
        return cls(folder, RunCard.read(folder / CARD_FILE))

    @property
    def complete(self) -> bool:
        """Whether all parts are merged, with their digest in the card."""
        return self.card.status == COMPLETE

    def done_parts(self) -> list[int]:
        """The written parts, in order; of a complete run, those that were merged."""
        if self.complete:
            return list(self.card.parts)
        names = (_PART_NAME.fullmatch(item.name) for item in self._parts.glob("*.parquet"))
        return sorted(int(match[1]) for match in names if match)

    def append(self, part: int, traces: Sequence[Trace]) -> None:
        """Write part number `part` (from 0); writing a part again replaces it."""
        if self.complete:
            raise ValueError(f"{self.folder} is complete: choose another --out for more samples")
        self._parts.mkdir(exist_ok=True)
        parquet.write_traces(self._part(checks.count("part", part)), traces)

    def finish(self) -> None:
        """Merge the parts into traces.parquet and mark the run complete."""
        # Parts are removed last: until the card says "complete" they are the only safe copy.
        if not self.complete:
            parts = self.done_parts()
            missing = sorted(set(range(max(parts, default=0) + 1)) - set(parts))
            if missing:
                raise ValueError(
                    f"{self.folder} lacks part {missing[0]}: append parts 0, 1, 2, ... "
                    "before finish"
                )
            sources = [self._part(part) for part in parts]
            parquet.merge(sources, self._traces, remedy="delete it and repeat the command")
            self.card = self.card.completed(parts, {TRACES_FILE: sha256_of(self._traces)})
            self.card.write(self.folder / CARD_FILE)
        self._remove_parts()

    def finish_if_whole(self, parts: int) -> bool:
        """Finish if parts 0 to `parts` - 1 are written; returns whether the run is complete."""
        self.card = RunCard.read(self.folder / CARD_FILE)  # another process may have finished
        if not self.complete and set(range(parts)) - set(self.done_parts()):
            return False
        try:
            self.finish()
        except ValueError:
            # Without locks two may finish at once, and the first removes the parts of the second.
            self.card = RunCard.read(self.folder / CARD_FILE)
            if not self.complete:
                raise
        return True

    def discard_if_empty(self) -> None:
        """Remove the card of a run that has no part yet, as if it had never been created."""
        if self.complete or self.done_parts():
            return
        sweep(self.folder)
        if self._parts.is_dir():
            sweep(self._parts)
            with suppress(OSError):  # a foreign file is in it: the folder stays
                self._parts.rmdir()
        if not self._parts.exists():
            (self.folder / CARD_FILE).unlink(missing_ok=True)

    def traces(self, *, partial: bool = False) -> Iterator[Trace]:
        """The traces in the order of their parts; `partial` allows an unfinished run."""
        sources, remedy = self._sources(partial)
        return (trace for path in sources for trace in parquet.read_traces(path, remedy=remedy))

    def blocks(self) -> BlockRule | None:
        """How its tokens fall into blocks; None if no trace has two (trace/blocks.py)."""
        options = self.card.config.get("options") or {}
        column = self.table(["block"]).column("block")
        if options.get("block") is None and column.null_count == len(column):
            return None  # before any trace is read as a whole
        from anyorder.trace.blocks import BlockRule  # here, since few runs have blocks

        return BlockRule(options.get("block"), options.get("origin")).if_several(self.traces())

    def table(self, columns: Sequence[str] | None = None, *, partial: bool = False) -> pa.Table:
        """The traces as an Arrow table, all columns or some."""
        sources, remedy = self._sources(partial)
        unknown = sorted(set(columns or ()) - set(parquet.SCHEMA.names))
        if unknown:
            names = ", ".join(parquet.SCHEMA.names)
            raise ValueError(f"no column {unknown[0]!r} in a trace: choose from {names}")
        schema = parquet.SCHEMA
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
        batches = (
            batch.select(schema.names)
            for path in sources
            for batch in parquet.read_batches(path, columns, remedy=remedy)
        )
        return pa.Table.from_batches(batches, schema=schema)

    def verdicts(self) -> pa.Table:
        """The table of verdicts; ValueError if the run has none."""
        path = self.folder / VERDICTS_FILE
        if not path.is_file():
            raise ValueError(f"{self.folder} has no {VERDICTS_FILE}")
        return parquet.read_parquet(path, remedy="restore the file")

    @property
    def traces_digest(self) -> str | None:
        """The digest that ties measures to their traces."""
        return self.card.files.get(TRACES_FILE)

    def measures(self) -> dict[str, Any]:
        """The entries of measures.json; none if they are of other traces or of another format."""
        path = self.folder / MEASURES_FILE
        try:
            record = dict(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}): delete it, and measure again") from None
        if (record.get("schema"), record.get("traces")) != (MEASURES_SCHEMA, self.traces_digest):
            return {}
        head = ("schema", "traces", "versions")
        return {name: entry for name, entry in record.items() if name not in head}

    def __repr__(self) -> str:
        extent = f", parts={len(self.done_parts())}"
        if self.complete:
            samples = parquet.count_rows(self._traces)
            extent = "" if samples is None else f", samples={samples}"
        return f"Run({str(self.folder)!r}, status={self.card.status!r}{extent})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer in a sentence, and the main numbers."""
        from anyorder.report.notebook import run_html  # looking is not a run's business

        return run_html(self)

    @property
    def _parts(self) -> Path:
        return self.folder / PARTS_FOLDER

    @property
    def _traces(self) -> Path:
        return self.folder / TRACES_FILE

    def _part(self, part: int) -> Path:
        return self._parts / f"{part:05d}.parquet"

    def _sources(self, partial: bool) -> tuple[list[Path], str]:
        """The files that hold the traces, and the remedy if one is damaged."""
        if self.complete:
            remedy = "restore the file, or make the run again in another folder"
            self._verify(remedy)
            return [self._traces], remedy
        parts = self.done_parts()
        if not partial:
            raise ValueError(
                f"{self.folder} is unfinished ({len(parts)} parts are there): repeat the command "
                "that made it, or read what is there with partial=True"
            )
        return [self._part(part) for part in parts], "delete it and repeat the command"

    def _verify(self, remedy: str) -> None:
        if self._verified:  # hashing a large file takes seconds: once per object
            return
        if not self._traces.is_file():
            raise ValueError(f"{self._traces} is missing: {remedy}")
        if sha256_of(self._traces) != self.traces_digest:
            raise ValueError(
                f"{self._traces} does not have the digest in {CARD_FILE} (truncated, damaged or "
                f"of another run): {remedy}"
            )
        self._verified = True

    def _remove_parts(self) -> None:
        if not self._parts.is_dir():
            return
        sweep(self._parts)
        for part in self.card.parts:
            self._part(part).unlink(missing_ok=True)
        with suppress(OSError):  # foreign files are in it, or another process removed it
            self._parts.rmdir()


def _is_foreign(name: str) -> bool:
    """Whether a file in a folder without a card is not of a run that is being created."""
    return name not in (LOCK_FILE, CARD_FILE) and not name.endswith(TEMPORARY_SUFFIX)


def _some(differences: list[str]) -> str:
    """The first few of a list, and the number of the rest."""
    shown = "; ".join(differences[:DIFFERENCES_SHOWN])
    rest = len(differences) - DIFFERENCES_SHOWN
    return f"{shown}; and {rest} more" if rest > 0 else shown


def open_runs(folders: Sequence[Path]) -> dict[str, Run]:
    """Runs by the shortest endings of their paths that tell them apart."""
    runs = [Run.open(folder) for folder in folders]
    parts = [run.folder.resolve().parts for run in runs]
    if len(set(parts)) < len(parts):
        raise ValueError("a run is named twice: name each once")
    length = next(
        length
        for length in range(1, max(map(len, parts)) + 1)
        if len({path[-length:] for path in parts}) == len(parts)
    )
    return {"/".join(path[-length:]): run for path, run in zip(parts, runs, strict=True)}


def save_run(folder: str | Path, card: RunCard, traces: Iterable[Trace]) -> Run:
    """A whole run of traces that are there already; one that holds them already stays."""
    folder = Path(folder)
    with alone_in(folder):
        run = Run.create(folder, card)
        if not run.complete:
            rest = iter(traces)
            for part, rows in enumerate(iter(lambda: list(islice(rest, ROWS_AT_ONCE)), [])):
                run.append(part, rows)
        run.finish()
    return run
