"""The run folder: `run.json` and `traces.parquet`, grown part by part and safe to kill.

    create      run.json says "running"
    append      parts/00000.parquet, parts/00001.parquet, ... each whole or absent
    finish      traces.parquet from the parts, then run.json says "complete", then parts/ goes

Each arrow is one rename, so a process killed anywhere leaves a folder from which the same calls
go on: `done_parts` says what need not be computed again, and `finish` may be repeated. A folder
has one writer at a time: commands hold it from before `create` until after `finish` with
`files.alone_in`; nothing here locks it. Or several processes are there (`files.together_in`): each
calls `create(..., together=True)` and appends parts that no other has, then the last one finishes.
That is right on a disk without locks too: the first card stays, parts do not meet, two that finish
at once write the same bytes, and `finish_if_whole` never merges less than everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from anyorder.files import LOCK_FILE, TEMPORARY_SUFFIX, sha256_of, sweep
from anyorder.trace import checks
from anyorder.trace import table as parquet
from anyorder.trace.card import COMPLETE, RunCard
from anyorder.trace.trace import Trace

CARD_FILE = "run.json"
TRACES_FILE = "traces.parquet"
VERDICTS_FILE = "verdicts.parquet"
PARTS_FOLDER = "parts"

DIFFERENCES_SHOWN = 4

_PART_NAME = re.compile(r"(\d{5,})\.parquet")


class Run:
    """A run folder, to write (`create`, `append`, `finish`) or to read (`open`, `traces`)."""

    def __init__(self, folder: Path, card: RunCard) -> None:
        self.folder = folder
        self.card = card
        self._verified = False

    @classmethod
    def create(cls, folder: str | Path, card: RunCard, *, together: bool = False) -> Run:
        """A new run, or the one already there if it is the same (to go on with it).

        `together`: beside others, whose unfinished files are left alone.
        """
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file: choose another --out")
        folder.mkdir(parents=True, exist_ok=True)
        if not together:
            sweep(folder)
        path = folder / CARD_FILE
        if not path.exists():
            foreign = sorted(item.name for item in folder.iterdir() if _is_foreign(item.name))
            # Another's card may have come between the two looks, and more files after it.
            if foreign and not path.exists():
                raise ValueError(
                    f"{folder} is not empty ({foreign[0]}) and not a run: choose another --out"
                )
            try:
                card.write(path, new=together)
                return cls(folder, card)
            except FileExistsError:
                pass
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
        """Whether all parts are merged and sealed by their digest."""
        return self.card.status == COMPLETE

    def done_parts(self) -> list[int]:
        """The parts that are written, in order; of a complete run, those it was made of."""
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
        """Merge the parts into traces.parquet and seal the run."""
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
        """Finish if all of so many parts are there: whether the run is complete."""
        self.card = RunCard.read(self.folder / CARD_FILE)  # another may have finished it
        if not self.complete and set(range(parts)) - set(self.done_parts()):
            return False
        try:
            self.finish()
        except ValueError:
            # Without locks two may finish at once, and the first removes the parts.
            self.card = RunCard.read(self.folder / CARD_FILE)
            if not self.complete:
                raise
        return True

    def discard_if_empty(self) -> None:
        """Take back a run that has not a single part yet: as if it had never been created."""
        if self.complete or self.done_parts():
            return
        sweep(self.folder)
        if self._parts.is_dir():
            sweep(self._parts)
            with suppress(OSError):  # somebody else's file is in it: then the folder stays
                self._parts.rmdir()
        if not self._parts.exists():
            (self.folder / CARD_FILE).unlink(missing_ok=True)

    def traces(self, *, partial: bool = False) -> Iterator[Trace]:
        """The traces in the order of their parts; of an unfinished run only if `partial`."""
        sources, remedy = self._sources(partial)
        return (trace for path in sources for trace in parquet.read_traces(path, remedy=remedy))

    def table(self, columns: Sequence[str] | None = None, *, partial: bool = False) -> pa.Table:
        """The traces as an Arrow table, whole or some columns."""
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
        """The table of verdicts, where the run has one."""
        path = self.folder / VERDICTS_FILE
        if not path.is_file():
            raise ValueError(f"{self.folder} has no {VERDICTS_FILE}")
        return parquet.read_parquet(path, remedy="restore the file")

    def __repr__(self) -> str:
        extent = f", parts={len(self.done_parts())}"
        if self.complete:
            samples = parquet.count_rows(self._traces)
            extent = "" if samples is None else f", samples={samples}"
        return f"Run({str(self.folder)!r}, status={self.card.status!r}{extent})"

    @property
    def _parts(self) -> Path:
        return self.folder / PARTS_FOLDER

    @property
    def _traces(self) -> Path:
        return self.folder / TRACES_FILE

    def _part(self, part: int) -> Path:
        return self._parts / f"{part:05d}.parquet"

    def _sources(self, partial: bool) -> tuple[list[Path], str]:
        """The files that hold the traces, and what to do if one is damaged."""
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
        if self._verified:
            return
        if not self._traces.is_file():
            raise ValueError(f"{self._traces} is missing: {remedy}")
        if sha256_of(self._traces) != self.card.files.get(TRACES_FILE):
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
        with suppress(OSError):  # others' files are in it, or another has removed it
            self._parts.rmdir()


def _is_foreign(name: str) -> bool:
    """Whether a file of an empty run's folder is not ours."""
    return name not in (LOCK_FILE, CARD_FILE) and not name.endswith(TEMPORARY_SUFFIX)


def _some(differences: list[str]) -> str:
    """The first few of a list, and how many are not shown."""
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
