"""`anyorder data`: sources -> shards with a manifest, in one pass that can be killed anywhere.

The work is cut into chunks of `shard_rows` rows of one source. After each chunk its shards are
written, what was dropped and what was seen is appended to two files, and then `work/progress.json`
is replaced: it says how far the sources were read, which shards there are, and how long the two
files were. Whoever goes on cuts them to that length and removes other shards, so that the same
command ends with the same bytes however often it was killed. At the end `manifest.json` appears and
`work/` goes.

Memory: one chunk of tokens, and near.py's tables. What is done to a row is data_rows.py's.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from anyorder.apps.data_job import DataPlan, made_by
from anyorder.apps.data_rows import Dropped, MadeRow, admit
from anyorder.apps.data_sources import OpenedSource
from anyorder.apps.data_workers import Makes, making
from anyorder.data.near import BYTES_IN_MEMORY, Seen
from anyorder.data.records import Record
from anyorder.data.shards import FORMAT, MANIFEST, ShardBuilder, read_manifest
from anyorder.files import alone_in, replacing, sha256_of, sweep

WORK, PROGRESS, SEEN, DROPPED = "work", "progress.json", "seen.bin", "dropped.jsonl"
SPLITS = ("train", "validation")
LEFT_OUT = "left out: "
"""How the counts of reasons are told from the others."""


@dataclass
class Progress:
    """What is done: everything that going on needs."""

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
    """Do the work, or what is left of it; the manifest."""
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
                seen = Seen(path, near=plan.job.ways == "near", threshold=plan.job.near)
                stack.callback(seen.close)
            make = stack.enter_context(making(plan))
            _Work(plan, done, make, seen, dropped).run(shown=progress and sys.stderr.isatty())
        return _finish(plan, done)


def _finished(plan: DataPlan) -> dict[str, Any]:
    manifest = read_manifest(plan.out)
    if manifest["identity"] != plan.identity():
        raise ValueError(
            f"{plan.out} holds shards that were made otherwise: choose another --out, or remove it"
        )
    shutil.rmtree(plan.out / WORK, ignore_errors=True)
    return manifest


def _resumed(plan: DataPlan) -> Progress:
    """Where to begin, with the folder as it was at that point."""
    path = plan.out / WORK / PROGRESS
    done = Progress(plan.identity())
    if path.exists():
        done = Progress(**json.loads(path.read_text(encoding="utf-8")))
        if done.identity != plan.identity():
            raise ValueError(
                f"{plan.out} holds the work of another command: repeat that, or remove the folder"
            )
        print(f"going on at row {done.number} of {_alias(plan, done.source)}", file=sys.stderr)
    for name, size in ((f"{WORK}/{SEEN}", done.seen_bytes), (DROPPED, done.dropped_bytes)):
        if (file := plan.out / name).exists():
            os.truncate(file, size)
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
class _Work:
    """The pass over the sources."""

    plan: DataPlan
    done: Progress
    make: Makes
    seen: Seen | None
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
                    print(self._told(), file=sys.stderr)
            done.source, done.file, done.row, done.number = done.source + 1, 0, 0, 0
            self._commit()

    def _told(self) -> str:
        alias = _alias(self.plan, self.done.source)
        counts = self.done.counts[alias]
        kept = counts["train"] + counts["validation"]
        return f"{alias}: {counts['read']:,} rows read, {kept:,} kept"

    def _chunk(self, records: Iterator[tuple[int, int, Record]]) -> bool:
        """Read some rows and write their shards; whether there were any."""
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
        """Make what was done last: from here on a kill cannot take it away."""
        self.dropped.flush()
        os.fsync(self.dropped.fileno())
        self.done.dropped_bytes = self.dropped.tell()
        if self.seen is not None:
            self.done.seen_bytes = self.seen.flush()
        _write_json(self.plan.out / WORK / PROGRESS, asdict(self.done))


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


def _finish(plan: DataPlan, done: Progress) -> dict[str, Any]:
    sources = [_told_of(source, done.counts[source.spec.alias]) for source in plan.sources]
    manifest = {
        "format": FORMAT,
        "made_by": made_by(),
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
    _write_json(plan.out / MANIFEST, manifest)
    shutil.rmtree(plan.out / WORK)
    return manifest


def _told_of(source: OpenedSource, counts: dict[str, int]) -> dict[str, Any]:
    spec = source.spec
    left_out = {
        name.removeprefix(LEFT_OUT): count
        for name, count in sorted(counts.items())
        if name.startswith(LEFT_OUT)
    }
    assert counts["read"] == counts["train"] + counts["validation"] + sum(left_out.values())
    return {
        "alias": spec.alias,
        "hub": spec.hub,
        "config": spec.config,
        "content": list(source.content),
        "licence": spec.licence,
        "commercial": spec.commercial,
        "repeat": spec.repeat,
        "read": counts["read"],
        **{split: counts[split] for split in SPLITS},
        "left_out": left_out,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")
