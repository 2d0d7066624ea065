"""Where text comes from: each source gives (prompt, answer) by index.

A source is read by index and in any order, knows how many examples it has (None: without end), and
keeps no place of its own; the order is order.py's business.

What this file does not do: tokenise, filter, shuffle or download by itself (a dataset of the hub is
loaded by the `datasets` library, on request).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, runtime_checkable

from anyorder.data.corpora.stories import StoriesConfig, problem

if TYPE_CHECKING:
    from anyorder.data.batches import Example
    from anyorder.data.segments import SegmentConfig
    from anyorder.vocab import Vocab


class Source(Protocol):
    """Examples by index."""

    @property
    def size(self) -> int | None:
        """How many examples there are; None where they never end."""

    def __getitem__(self, index: int) -> tuple[str, str]:
        """The prompt and the answer at `index`."""


@runtime_checkable
class TokenisedSource(Protocol):
    """A source that keeps its examples as tokens (shards.py)."""

    def example(
        self, index: int, vocab: Vocab, *, begun: bool, segments: SegmentConfig | None
    ) -> Example:
        """The example that tokenising the text at `index` would give."""


class StoriesSource:
    """The built-in corpus; it has no end."""

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
        rows = []
        for where, line in _lines(Path(path)):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{where}: not a JSON object: {error}") from error
            rows.append((_field(record, prompt, where), _field(record, answer, where)))
        super().__init__(rows)


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
            self[0]  # a wrong field is better found here than in the middle of training

    @classmethod
    def load(
        cls, name: str, *, split: str, prompt: str | None, answer: str, **options: Any
    ) -> DatasetSource:
        """`datasets.load_dataset(name, split=split, **options)`, with two of its columns."""
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise ValueError(
                "reading a dataset needs the datasets library: pip install 'anyorder[hf]'"
            ) from error
        return cls(load_dataset(name, split=split, **options), prompt=prompt, answer=answer)

    @property
    def size(self) -> int:
        return len(self._dataset)

    @property
    def fingerprint(self) -> str:
        """The dataset's own mark of its content, for the run card."""
        return str(getattr(self._dataset, "_fingerprint", "unknown"))

    def __getitem__(self, index: int) -> tuple[str, str]:
        record, where = self._dataset[index], f"record {index}"
        return _field(record, self._prompt, where), _field(record, self._answer, where)


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line with where it is; line ends are made "\\n", nothing else is changed."""
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
