"""The sources of a data recipe, opened: local files or datasets of the hub, read row by row.

A position in a source is (file, row of that file), so that going on does not read what was read. A
dataset of the hub is streamed by the `datasets` library at one revision, which is looked up once
and recorded; no code of a dataset is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder.data.corpora import CorpusRecipe, CorpusSource
from anyorder.data.records import Record, read_records
from anyorder.files import sha256_of

HUB = "hub"


@dataclass(frozen=True)
class OpenedSource:
    """A source and where its rows are."""

    spec: CorpusSource
    files: tuple[Path, ...]
    """Empty: on the hub."""
    content: tuple[dict[str, str], ...]
    """For the manifest: each file's name and digest, or the dataset and its revision."""

    def records(self, file: int, row: int) -> Iterator[tuple[int, int, Record]]:
        """(file, row in the file, record) from a position on."""
        columns = (*self.spec.columns, *self.spec.optional)
        if not self.files:
            for number, record in enumerate(self._streamed(row), start=row):
                yield 0, number, record
            return
        for index in range(file, len(self.files)):
            first = row if index == file else 0
            found = read_records(self.files[index], first, columns)
            for number, record in enumerate(found, start=first):
                yield index, number, record

    def _streamed(self, row: int) -> Any:
        load_dataset = _datasets()
        try:
            dataset = load_dataset(
                self.spec.hub,
                self.spec.config,
                split="train",
                streaming=True,
                revision=self.content[0]["revision"],
            )
            yield from dataset.skip(row)
        except (OSError, RuntimeError) as error:
            raise ValueError(_unreachable(self.spec, error)) from None

    def check(self, record: Record) -> None:
        """Refuse rows of another dataset."""
        if missing := [name for name in self.spec.columns if name not in record]:
            raise ValueError(
                f"{self.spec.alias}: a row has no column {', '.join(missing)} (it has "
                f"{', '.join(record)}): is this a file of {self.spec.hub}?"
            )


def open_sources(
    recipe: CorpusRecipe, given: Sequence[str], without: Sequence[str]
) -> tuple[OpenedSource, ...]:
    """The sources of a recipe, each with the files named for it."""
    aliases = [spec.alias for spec in recipe.sources]
    if unknown := [name for name in without if name not in aliases]:
        raise ValueError(f"{recipe.name} has no source {unknown[0]!r}: it has {', '.join(aliases)}")
    if both := [name for name in without if any(word.startswith(f"{name}=") for word in given)]:
        raise ValueError(f"{both[0]} is given files and left out: do one of the two")
    kept = [spec for spec in recipe.sources if spec.alias not in without]
    if not kept:
        raise ValueError("all sources are left out: keep one")
    named = _by_alias([spec.alias for spec in kept], given)
    if missing := [alias for alias, files in named.items() if not files]:
        raise ValueError(
            f"no files for {', '.join(missing)}: give --source {missing[0]}=FILE (or =hub), or "
            f"leave it out with --without {missing[0]}"
        )
    return tuple(_opened(spec, named[spec.alias]) for spec in kept)


def _by_alias(aliases: list[str], given: Sequence[str]) -> dict[str, list[str]]:
    if not given or tuple(given) == (HUB,):
        return {alias: [HUB] for alias in aliases}
    named: dict[str, list[str]] = {alias: [] for alias in aliases}
    for word in given:
        alias, equals, file = word.partition("=")
        if equals and alias in named:
            named[alias].append(file)
        elif len(aliases) == 1:
            named[aliases[0]].append(word)
        else:
            raise ValueError(
                f"--source {word}: of a mixture name each file's source, ALIAS=FILE, with one of "
                f"{', '.join(aliases)}"
            )
    return named


def _opened(spec: CorpusSource, given: list[str]) -> OpenedSource:
    if HUB in given:
        if len(given) > 1:
            raise ValueError(f"{spec.alias}: give files or hub, not both")
        return OpenedSource(spec, (), ({"dataset": spec.hub, "revision": _revision(spec)},))
    files = tuple(map(Path, given))
    if absent := [str(path) for path in files if not path.is_file()]:
        raise ValueError(f"{absent[0]}: no such file: give --source an existing one, or hub")
    content = tuple({"file": path.name, "sha256": sha256_of(path)} for path in files)
    return OpenedSource(spec, files, content)


def _datasets() -> Any:
    try:
        from datasets import load_dataset
    except ImportError:
        raise ValueError(
            "reading a dataset of the hub needs the datasets library: pip install 'anyorder[hf]', "
            "or give local files with --source"
        ) from None
    return load_dataset


def _revision(spec: CorpusSource) -> str:
    """The commit that will be read; all of a corpus must come from one."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    _datasets()
    try:
        return str(HfApi().dataset_info(spec.hub, timeout=20).sha)
    except (OSError, RuntimeError, ValueError, HfHubHTTPError) as error:
        raise ValueError(_unreachable(spec, error)) from None


def _unreachable(spec: CorpusSource, error: Exception) -> str:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return (
        f"cannot read {spec.hub} from the hub ({reason}): give its files with --source FILE "
        "(.jsonl, .jsonl.gz, .parquet)"
    )
