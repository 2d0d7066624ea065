"""Where examples come from: each source gives (prompt, answer) by index, in any order.

A source knows how many examples it has (None: without end) and keeps no position; keyed.py gives
the order. A dataset of the hub is loaded by the `datasets` library, on request.

Shards are tokenised rows in memory-mapped files. A folder of shards holds `manifest.json`, the
vocabulary (`vocabulary.json`), `dropped.jsonl`, and `train/` and `validation/` with files of the
safetensors format, each with rows of one source:

    ids             int32  T    prompts and answers, one row after another, without special ids
    start           int64  N+1  where each row begins in `ids`
    prompt_length   int32  N    tokens of a row that are its prompt
    row             int64  N    its place in the source
    segment_length  int32  S    tokens of each segment of the answers; S = 0: they are not cut
    segment_start   int64  N+1  where each row begins in `segment_length`

`ShardSource` joins the shards of one split, those of a source with repeat r each r times: an epoch
reads such a row r times, with other noise. Only the rows that are read come into memory.

Not here: filtering, shuffling, making the rows and writing shards (apps/pipeline/__init__.py). No
torch.
"""

from __future__ import annotations

import gzip
import json
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, runtime_checkable

import numpy as np

from anyorder.data.corpora.stories import StoriesConfig, problem
from anyorder.data.segments import DoesNotFit, SegmentConfig
from anyorder.vocab import Vocab

if TYPE_CHECKING:
    from anyorder.data.batches import Example


class Source(Protocol):
    """Examples by index."""

    @property
    def size(self) -> int | None:
        """The number of examples; None for a source without end."""

    def __getitem__(self, index: int) -> tuple[str, str]:
        """The prompt and the answer at `index`."""


@runtime_checkable
class TokenisedSource(Protocol):
    """A source that keeps its examples as tokens, such as `ShardSource`."""

    def example(
        self, index: int, vocab: Vocab, *, begun: bool, segments: SegmentConfig | None
    ) -> Example:
        """The example that tokenising the text at `index` would give."""


class StoriesSource:
    """The built-in corpus `stories`; it has no end."""

    size = None

    def __init__(self, config: StoriesConfig) -> None:
        self.config = config

    def __getitem__(self, index: int) -> tuple[str, str]:
        found = problem(self.config, index)
        return found.prompt, found.program


class _Rows:
    """Examples held in memory."""

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self._rows = rows

    @property
    def size(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[str, str]:
        return self._rows[index]


class JsonlSource(_Rows):
    """A file with one JSON object a line, plain or .gz; `prompt` None: answers alone."""

    def __init__(self, path: Path | str, *, prompt: str | None, answer: str) -> None:
        super().__init__(
            [
                (_field(record, prompt, where), _field(record, answer, where))
                for where, record in jsonl_records(Path(path))
            ]
        )


def jsonl_records(path: Path) -> Iterator[tuple[str, Any]]:
    """The place and the content of each line that is not blank."""
    for where, line in _lines(path):
        if line.strip():
            try:
                yield where, json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{where}: not a JSON object: {error}") from error


class TextSource(_Rows):
    """Plain text files, plain or .gz: answers alone, without prompts.

    `split` "blank": documents end at blank lines; "line": each line is one; "whole": each file.
    """

    def __init__(
        self, paths: Sequence[Path | str], *, split: Literal["blank", "line", "whole"] = "blank"
    ) -> None:
        if isinstance(paths, str | Path):
            raise ValueError(f"give a list of files: [{str(paths)!r}]")
        if split not in ("blank", "line", "whole"):
            raise ValueError(f"split is {split!r}: give blank, line or whole")
        rows = []
        for path in paths:
            lines = (line for _, line in _lines(Path(path)))
            texts = _DOCUMENTS[split](lines)
            rows += [("", text) for text in texts if text.strip()]
        super().__init__(rows)


class DatasetSource:
    """A dataset of the `datasets` library, or anything with a length and records by index."""

    def __init__(self, dataset: Any, *, prompt: str | None, answer: str) -> None:
        self._dataset, self._prompt, self._answer = dataset, prompt, answer
        if len(dataset):
            self[0]  # find a wrong field now, not in the middle of training

    @classmethod
    def load(
        cls, name: str, *, split: str, prompt: str | None, answer: str, **options: Any
    ) -> DatasetSource:
        """`datasets.load_dataset(name, split=split, **options)`, with two of its columns."""
        return cls(hub_dataset(name, split=split, **options), prompt=prompt, answer=answer)

    @property
    def size(self) -> int:
        return len(self._dataset)

    @property
    def fingerprint(self) -> str:
        """The dataset's own digest of its content, for the run card."""
        return str(getattr(self._dataset, "_fingerprint", "unknown"))

    def __getitem__(self, index: int) -> tuple[str, str]:
        record, where = self._dataset[index], f"record {index}"
        return _field(record, self._prompt, where), _field(record, self._answer, where)


def hub_dataset(name: str, **options: Any) -> Any:
    """`datasets.load_dataset`, or how to get it."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ValueError(
            "reading a dataset needs the datasets library: pip install 'anyorder[hf]'"
        ) from error
    return load_dataset(name, **options)


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line with its place; line ends become "\\n", nothing else is changed."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                yield f"{path}:{number}", line.replace("\r\n", "\n")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ValueError(f"{path}:{number + 1}: cannot be read: {error}") from error


def _documents(lines: Iterator[str]) -> Iterator[str]:
    held: list[str] = []
    for line in lines:
        if line.strip():
            held.append(line)
        elif held:
            yield "".join(held).removesuffix("\n")
            held = []
    if held:
        yield "".join(held).removesuffix("\n")


_DOCUMENTS: dict[str, Callable[[Iterator[str]], Iterable[str]]] = {
    "blank": _documents,
    "line": lambda lines: (line.removesuffix("\n") for line in lines),
    "whole": lambda lines: ["".join(lines)],
}


def _field(record: Any, name: str | None, where: str) -> str:
    if name is None:
        return ""
    if not isinstance(record, dict):
        raise ValueError(
            f"{where}: a {type(record).__name__} where an object with fields should be"
        )
    if name not in record:
        raise ValueError(
            f"{where}: no field {name!r}: it has {', '.join(map(repr, record))}; name the fields "
            "with data.prompt_field and data.answer_field"
        )
    if not isinstance(record[name], str):
        raise ValueError(f"{where}: field {name!r} is a {type(record[name]).__name__}, not text")
    value: str = record[name]
    return value


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
    """One row of a shard."""

    row: int
    prompt: Sequence[int]
    answer: Sequence[int]
    segments: Sequence[int] = ()
    """Tokens of each segment of the answer; empty: not cut."""


class ShardBuilder:
    """Collects the rows of a shard as flat numbers: four bytes a token."""

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
        # The wider numbers first, so that all are aligned to their size for the memory map.
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
    """The manifest of a folder of shards."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}: make the folder with anyorder data") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: not a manifest of format {FORMAT}: make the folder again")
    return found


class ShardSource:
    """The rows of one split by index, as text or as the stored tokens."""

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
        """The source with only the rows at `indices`."""
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
        return self.vocab.decode(row.prompt), self.vocab.decode(row.answer, begun=True)

    def example(
        self, index: int, vocab: Vocab, *, begun: bool, segments: SegmentConfig | None
    ) -> Example:
        """The row as `tokenise` would make it of the text; `segments` must match the stored cut."""
        from anyorder.data.batches import example_of

        if segments is not None and segments.by != self.cut:
            raise ValueError(f"the shards are cut by {self.cut}, not by {segments.by}")
        row = self.at(index)
        answer = list(row.answer)
        ends = [0, len(answer)] if segments is None else [0, *accumulate(row.segments)]
        whole = [answer[first:last] for first, last in pairwise(ends)]
        try:
            return example_of(list(row.prompt), whole, index, vocab, begun=begun, segments=segments)
        except DoesNotFit as error:
            raise DoesNotFit(f"example {index} of the source: {error}") from error
