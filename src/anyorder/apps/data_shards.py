"""A folder of shards as what training reads: vocabulary, rows that fit, held-out rows.

Lengths are compared for a whole shard at a time, without reading tokens. Where answers are to be
cut otherwise than they are kept, or a vocabulary is not the shards' own, that is found here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anyorder.data.corpora import CORPORA
from anyorder.data.segments import SegmentConfig
from anyorder.data.shards import MANIFEST, Array, Shard, ShardSource, Split, read_manifest
from anyorder.vocab import Vocab


def is_shard_folder(source: str) -> bool:
    """Whether a data source names a folder of shards, made already or to be made."""
    return Path(source).is_dir() or Path(source).name in CORPORA


@dataclass(frozen=True)
class Room:
    """What a row must fit into, in tokens."""

    canvas: int
    max_length: int
    around: int
    segments: SegmentConfig | None


@dataclass(frozen=True)
class FittingRows:
    """The rows of one split that fit."""

    source: ShardSource
    left_out: int
    truncated: int


def manifest_digest(folder: Path) -> str:
    """What names the content of a folder of shards."""
    if not (folder / MANIFEST).is_file():
        name = folder.name
        advice = f"make it with: anyorder data {name if name in CORPORA else 'RECIPE'}"
        if (folder / "work").is_dir():
            advice = "it is not finished, repeat the command that makes it"
        raise ValueError(f"data.source={str(folder)!r} holds no shards: {advice} --out {folder}")
    manifest = read_manifest(folder)
    held = [manifest["identity"], *(shard["sha256"] for shard in manifest["shards"])]
    return hashlib.sha256("\n".join(held).encode()).hexdigest()


def fitting_rows(folder: Path, split: Split, vocab: Vocab, room: Room) -> FittingRows:
    """The rows of a split, without those that are too long."""
    source = ShardSource(folder, split, vocab)
    if room.segments is not None and room.segments.by != source.cut:
        raise ValueError(
            f"{folder} is cut by {source.cut}, not by {room.segments.by}: give --segments.by "
            f"{source.cut}"
            if source.cut
            else f"{folder} is not cut into segments: tinygsm and gsm8k-programs are, by line"
        )
    chosen, left_out, truncated, before = [], 0, 0, 0
    for shard in source.shards:
        fits, shortened = _fitting(shard, room)
        left_out += int((~fits).sum()) * shard.repeat
        truncated += int((fits & shortened).sum()) * shard.repeat
        rows = np.flatnonzero(np.tile(fits, shard.repeat)) + before
        chosen.append(rows)
        before += shard.rows * shard.repeat
    if left_out:
        source = source.chosen(np.concatenate(chosen))
    return FittingRows(source, left_out, truncated)


def _fitting(shard: Shard, room: Room) -> tuple[Array, Array]:
    """Which rows fit, and which of them lose tokens to their segments."""
    answer, prompt = shard.answer_length, shard.prompt_length
    shortened = np.zeros(shard.rows, dtype=bool)
    fits = np.ones(shard.rows, dtype=bool)
    if room.segments is not None:
        kept, count, longest = _segments(shard, room.segments)
        if room.segments.overflow == "drop":
            fits = (count <= room.segments.slots) & (longest < room.segments.segment_length)
        else:
            shortened = kept < answer
            answer = kept
    whole = prompt + answer + room.around
    return fits & (answer < room.canvas) & (whole <= room.max_length), shortened


def _segments(shard: Shard, config: SegmentConfig) -> tuple[Array, Array, Array]:
    """Of each row: the tokens left when it is truncated, its segments, its longest segment."""
    lengths, start = shard.arrays["segment_length"], shard.arrays["segment_start"]
    count = np.diff(start)
    place = np.arange(len(lengths)) - np.repeat(start[:-1], count)
    room = config.segment_length
    held = np.where(lengths <= room, lengths, room - 1) * (place < config.slots)
    row = np.repeat(np.arange(shard.rows), count)
    kept = np.bincount(row, weights=held, minlength=shard.rows).astype(np.int64)
    longest = np.zeros(shard.rows, dtype=np.int64)
    np.maximum.at(longest, row, lengths)
    return kept, count, longest
