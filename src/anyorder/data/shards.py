"""Shards: tokenised rows in memory-mapped files, read by index.

A folder of shards holds `manifest.json`, the vocabulary (`vocabulary.json`), `dropped.jsonl`, and
`train/` and `validation/` with files of the safetensors format, each with the rows of one source:

    ids             int32  T    prompts and answers, one row after another, without special ids
    start           int64  N+1  where each row begins in `ids`
    prompt_length   int32  N    tokens of a row that are its prompt
    row             int64  N    its place in the source
    segment_length  int32  S    tokens of each segment of the answers; S = 0: they are not cut
    segment_start   int64  N+1  where each row begins in `segment_length`

`ShardSource` puts the shards of one split behind one another, those of a source with repeat r each
r times: an epoch reads such a row r times, with other noise. Nothing is read into memory but the
rows asked for.

What this file does not do: make the rows, write files (apps/data_pipeline.py). No torch here.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anyorder.data.segments import DoesNotFit, SegmentConfig, limit
from anyorder.vocab import Vocab

if TYPE_CHECKING:
    from anyorder.data.batches import Example

Array = np.ndarray[Any, np.dtype[Any]]
Split = Literal["train", "validation"]

MANIFEST, FORMAT = "manifest.json", 1
_TYPES: dict[str, Any] = {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")}
_CODES = {
    "ids": "i",
    "start": "q",
    "prompt_length": "i",
    "row": "q",
    "segment_length": "i",
    "segment_start": "q",
}
FIELDS = tuple(_CODES)


@dataclass(frozen=True)
class ShardRow:
    """One row as a shard keeps it."""

    row: int
    prompt: Sequence[int]
    answer: Sequence[int]
    segments: Sequence[int] = ()
    """Tokens of each segment of the answer; empty: not cut."""


class ShardBuilder:
    """Rows on their way into a shard, as flat numbers: four bytes a token."""

    def __init__(self) -> None:
        self._held = {name: array(_CODES[name]) for name in FIELDS}
        self._held["start"].append(0)
        self._held["segment_start"].append(0)

    def __len__(self) -> int:
        return len(self._held["row"])

    @property
    def tokens(self) -> int:
        return len(self._held["ids"])

    def add(self, row: ShardRow) -> None:
        held = self._held
        held["ids"].extend(row.prompt)
        held["ids"].extend(row.answer)
        held["start"].append(self.tokens)
        held["prompt_length"].append(len(row.prompt))
        held["row"].append(row.row)
        held["segment_length"].extend(row.segments)
        held["segment_start"].append(len(held["segment_length"]))

    def parts(self) -> Iterator[bytes | memoryview]:
        """The file's content, piece by piece; the same rows are the same bytes."""
        header, offset, arrays = {}, 0, []
        # The wider numbers first, so that all of them lie at multiples of their size.
        for name in sorted(FIELDS, key=lambda name: (_CODES[name] == "i", name)):
            kind = "I32" if _CODES[name] == "i" else "I64"
            content = np.frombuffer(self._held[name], dtype=_CODES[name])
            content = content.astype(_TYPES[kind], copy=False)
            place = {"shape": [len(content)], "data_offsets": [offset, offset + content.nbytes]}
            header[name] = {"dtype": kind, **place}
            offset += content.nbytes
            arrays.append(content)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        yield len(text).to_bytes(8, "little") + text
        for content in arrays:
            yield content.data


def unpack(path: Path) -> dict[str, Array]:
    """The arrays of a shard, memory-mapped."""
    try:
        content = np.memmap(path, dtype=np.uint8, mode="r")
        size = int(content[:8].view("<u8")[0])
        header = json.loads(bytes(content[8 : 8 + size]))
        found = {}
        for name in FIELDS:
            first, last = header[name]["data_offsets"]
            kind = _TYPES[header[name]["dtype"]]
            found[name] = content[8 + size + first : 8 + size + last].view(kind)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ValueError(
            f"{path}: not a shard ({error}): make the folder again with anyorder data"
        ) from None
    return found


@dataclass(frozen=True)
class Shard:
    """One file of the manifest."""

    path: Path
    rows: int
    repeat: int

    @cached_property
    def arrays(self) -> dict[str, Array]:
        return unpack(self.path)

    @property
    def prompt_length(self) -> Array:
        return self.arrays["prompt_length"]

    @property
    def answer_length(self) -> Array:
        return np.diff(self.arrays["start"]) - self.prompt_length

    def __getitem__(self, row: int) -> ShardRow:
        held = self.arrays
        first, last = held["start"][row : row + 2].tolist()
        split = first + int(held["prompt_length"][row])
        from_, to = held["segment_start"][row : row + 2].tolist()
        return ShardRow(
            row=int(held["row"][row]),
            prompt=held["ids"][first:split].tolist(),
            answer=held["ids"][split:last].tolist(),
            segments=held["segment_length"][from_:to].tolist(),
        )


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder of shards says of itself."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}: make the folder with anyorder data") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: not a manifest of format {FORMAT}: make the folder again")
    return found


class ShardSource:
    """The rows of one split by index: as text, or as the tokens that they are kept as."""

    def __init__(self, folder: Path | str, split: Split, vocab: Vocab) -> None:
        folder = Path(folder)
        manifest = read_manifest(folder)
        if manifest["vocab_digest"] != vocab.digest():
            raise ValueError(
                f"{folder} was tokenised with another vocabulary: give --data.vocab {folder}"
            )
        repeats = {source["alias"]: source["repeat"] for source in manifest["sources"]}
        self.shards = [
            Shard(
                folder / shard["file"],
                shard["rows"],
                repeats[shard["source"]] if split == "train" else 1,
            )
            for shard in manifest["shards"]
            if shard["split"] == split
        ]
        self.vocab = vocab
        self.cut: str | None = manifest["segments"]
        """How the answers are cut: `line`, or None."""
        self._ends = list(accumulate(shard.rows * shard.repeat for shard in self.shards))
        self._chosen: Array | None = None

    @property
    def size(self) -> int:
        if self._chosen is not None:
            return len(self._chosen)
        return self._ends[-1] if self._ends else 0

    def chosen(self, indices: Array) -> ShardSource:
        """The same with some of its rows."""
        assert self._chosen is None
        other = object.__new__(ShardSource)
        other.__dict__.update(self.__dict__, _chosen=indices)
        return other

    def at(self, index: int) -> ShardRow:
        """The row at `index`."""
        if not 0 <= index < self.size:
            raise IndexError(f"row {index} of {self.size}")
        if self._chosen is not None:
            index = int(self._chosen[index])
        number = bisect_right(self._ends, index)
        shard = self.shards[number]
        before = self._ends[number] - shard.rows * shard.repeat
        return shard[(index - before) % shard.rows]

    def __getitem__(self, index: int) -> tuple[str, str]:
        row = self.at(index)
        return self.vocab.decode(row.prompt), self.vocab.decode(row.answer)

    def example(
        self, index: int, vocab: Vocab, *, begun: bool, segments: SegmentConfig | None
    ) -> Example:
        """The row as `tokenise` would make it of the text; segments can only be the kept ones."""
        from anyorder.data.batches import Example

        if segments is not None and segments.by != self.cut:
            raise ValueError(f"the shards are cut by {self.cut}, not by {segments.by}")
        row = self.at(index)
        prompt, answer = list(row.prompt), list(row.answer)
        if not prompt and vocab.bos_id is not None and not begun:
            prompt = [vocab.bos_id]
        if segments is None:
            return Example(prompt, answer, index)
        ends = [0, *accumulate(row.segments)]
        whole = [answer[first:last] for first, last in pairwise(ends)]
        try:
            kept = limit(whole, segments)
        except DoesNotFit as error:
            raise DoesNotFit(f"example {index} of the source: {error}") from error
        flat = [id for segment in kept for id in segment]
        return Example(prompt, flat, index, tuple(map(len, kept)), kept != whole)


def licences(manifest: Mapping[str, Any]) -> list[str]:
    """A sentence for each source that may not be used commercially."""
    return [
        f"{source['alias']} is {source['licence']}: not for commercial use"
        for source in manifest["sources"]
        if not source["commercial"]
    ]
