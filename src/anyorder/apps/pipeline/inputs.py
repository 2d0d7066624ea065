"""The inputs of `anyorder data`: its flags, opened into a plan of sources and benchmarks.

**Sources** are local files (.jsonl, .jsonl.gz, .parquet) or datasets of the hub, read row by row. A
position is (file, row of that file), so resumption skips rows without parsing them. A dataset of
the hub is streamed at one revision, which is recorded; no code of a dataset is run.

**Benchmarks** that must not be in the training data, and the parts that are searched for:

    HumanEval   statement: the docstring of the function; solution: the canonical one; tests
    MBPP        statement: the sentence; solution: the reference; tests: the assertions
    GSM8K       statement: the question; tests: the worked answer

The columns of a file tell which benchmark it is. All rows count: some of MBPP's 974 are training
rows, but MBPP+ uses some of those. How parts are compared is data/filters.py.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from anyorder.apps.jobs import Count, Name, NumberFlag
from anyorder.bench.tasks import gsm8k, humaneval, mbpp
from anyorder.bench.tasks.problem import BenchmarkRows, Columns, Row, kind_of, read_file, read_rows
from anyorder.checks import at_least
from anyorder.data.filters import BenchmarkProblem, parsed
from anyorder.data.published import (
    CorpusMode,
    CorpusRecipe,
    CorpusSource,
    SourceLimits,
    find_corpus,
)
from anyorder.files import sha256_of
from anyorder.vocab import Vocab

SourceRecord = dict[str, Any]

PARQUET_ROWS = 256
"""Rows that are decoded together."""


def read_records(path: Path, start: int, columns: Sequence[str]) -> Iterator[SourceRecord]:
    """The rows of a file from `start` on; of Parquet only those of these columns that exist."""
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind not in READERS or (kind == ".parquet" and path.suffix == ".gz"):
        raise ValueError(f"{path}: give .jsonl, .jsonl.gz or .parquet")
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    return READERS[kind](path, start, columns)


def _json_lines(path: Path, start: int, columns: Sequence[str]) -> Iterator[SourceRecord]:
    number = 0
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate((line for line in file if line.strip()), start=1):
                if number > start:
                    yield _parsed(line, f"{path}: row {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read after row {number}: {error}") from error


def _parsed(line: bytes, where: str) -> SourceRecord:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not a JSON object ({error}): repair the file") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where} is a {type(record).__name__}, not an object with columns")
    return record


def _parquet(path: Path, start: int, columns: Sequence[str]) -> Iterator[SourceRecord]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path, memory_map=True)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: not a Parquet file ({error}): download it again") from None
    with file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if start >= rows:
                start -= rows
                continue
            for batch in file.iter_batches(PARQUET_ROWS, row_groups=[group], columns=there):
                if start < batch.num_rows:
                    yield from batch.slice(start).to_pylist()
                start = max(0, start - batch.num_rows)


READERS: dict[str, Callable[[Path, int, Sequence[str]], Iterator[SourceRecord]]] = {
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}


HUB = "hub"


@dataclass(frozen=True)
class OpenedSource:
    """A source and where its rows are."""

    spec: CorpusSource
    files: tuple[Path, ...]
    """Empty: the source is on the hub."""
    content: tuple[dict[str, str], ...]
    """For the manifest: each file's name and digest, or the dataset and its revision."""

    def records(self, file: int, row: int) -> Iterator[tuple[int, int, SourceRecord]]:
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

    def check(self, record: SourceRecord) -> None:
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
    """The commit to read, so that the whole corpus comes from one state of the dataset."""
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


NOTHING = "none"
_ANNOTATION = re.compile(r"<<[^<>]*>>|####")


@dataclass(frozen=True)
class OpenedBenchmark:
    """A benchmark's items."""

    name: str
    digest: str
    items: tuple[BenchmarkProblem, ...]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "digest": self.digest, "items": len(self.items)}


def _humaneval(row: Row, number: int) -> BenchmarkProblem:
    program = row["prompt"] + row["canonical_solution"]
    parts = {
        "statement": _docstring(program, row["entry_point"]) or row["prompt"],
        "solution": row["canonical_solution"],
        "tests": row.get("test", ""),
    }
    return BenchmarkProblem(row["task_id"], parts)


def _docstring(program: str, function: str) -> str | None:
    tree = parsed(program)
    for node in [] if tree is None else tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node)
    return None


def _mbpp(row: Row, number: int) -> BenchmarkProblem:
    digits = str(row["task_id"]).removeprefix("Mbpp/")
    tests = row.get("test_list") or [row.get("assertion", "")]
    parts = {
        "statement": row.get("text") or row.get("prompt") or "",
        "solution": row.get("code") or row.get("canonical_solution") or "",
        "tests": "\n".join(tests),
    }
    return BenchmarkProblem(f"Mbpp/{digits}", parts)


def _gsm8k(row: Row, number: int) -> BenchmarkProblem:
    worked = _ANNOTATION.sub(" ", row["answer"])
    return BenchmarkProblem(f"GSM8K/{number}", {"statement": row["question"], "tests": worked})


_KINDS: tuple[tuple[str, dict[str, Columns], Callable[[Row, int], BenchmarkProblem]], ...] = (
    # HumanEval's and MBPP's native files share columns but for the assertion: MBPP goes first.
    ("MBPP", {"native": mbpp.KINDS["native"]}, _mbpp),
    ("HumanEval", humaneval.KINDS, _humaneval),
    ("MBPP", mbpp.KINDS, _mbpp),
    ("GSM8K", gsm8k.KINDS, _gsm8k),
)
_HUBS = (humaneval.HUBS["humaneval"], mbpp.FULL_HUB, gsm8k.HUB)


def open_benchmarks(given: Sequence[str]) -> tuple[OpenedBenchmark, ...]:
    """The benchmarks in these files; without files, those of the hub."""
    if NOTHING in given:
        if len(given) > 1:
            raise ValueError("give --against none alone, or files: not both")
        return ()
    try:
        found = [read_file(Path(name)) for name in given] or [read_rows(None, hub) for hub in _HUBS]
    except ValueError as error:
        if given:
            raise ValueError(str(error).replace("--data", "--against")) from None
        raise ValueError(
            f"no benchmarks to decontaminate against ({error}): give --against FILE.. with those "
            "of HumanEval, MBPP and GSM8K, or --against none"
        ) from None
    return tuple(map(_opened_benchmark, found))


def _opened_benchmark(rows: BenchmarkRows) -> OpenedBenchmark:
    for name, kinds, read in _KINDS:
        if any(set(columns) <= set(rows.records[0]) for columns in kinds.values()):
            kind_of(rows, kinds, name)
            items = tuple(read(row, number) for number, row in enumerate(rows.records))
            return OpenedBenchmark(name, rows.digest, items)
    raise ValueError(
        f"{rows.where} is not a file of {', '.join(name for name, *_ in _KINDS[1:])}: "
        f"its columns are {', '.join(rows.records[0])}"
    )


Dedup = Literal["near", "exact", "none"]
Files = Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE..", help_behavior_hint="")]
AliasesFlag = Annotated[tuple[str, ...], tyro.conf.arg(metavar="ALIAS..", help_behavior_hint="")]
Place = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")]
Way = Annotated[Dedup | None, tyro.conf.arg(metavar="near|exact|none", help_behavior_hint="")]

RESULTS = 1
"""Increase this number when the same flags give other shards than before."""


@dataclass(frozen=True)
class DataJob:
    """The flags of `anyorder data`."""

    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")]
    """tinygsm, gsm8k-programs, code-mixture, or one of its sources."""
    source: Files = ()
    """Local files (.jsonl, .jsonl.gz, .parquet), or `hub`; of a mixture ALIAS=FILE. Unset: hub."""
    without: AliasesFlag = ()
    """Sources of a mixture to leave out."""
    limit: Count = None
    """Rows to read of each source; unset: all."""
    vocab: Name = None
    """The vocabulary: stories, bytes, a folder or a hub id; unset: the recipe's."""
    against: Files = ()
    """Files of HumanEval, MBPP or GSM8K to keep out, or `none`; unset: from the hub."""
    mode: CorpusMode = "exact"
    """exact: answers must parse; compat: the published filters."""
    dedup: Way = None
    """Which duplicates to drop; unset: near, and with compat none, as published."""
    near: float = 0.8
    """The similarity from which rows are near duplicates."""
    max_tokens: Count = None
    """The most tokens of a row, with those around prompt and answer; unset: the recipe's limit."""
    validation: NumberFlag = None
    """The share of rows that is never trained on; unset: the recipe's."""
    seed: int = 0
    """Chooses the validation rows."""
    shard_rows: int = 32_768
    """Rows that are read for one shard; work up to the last shard survives a kill."""
    workers: int = 1
    """Processes that make rows; the shards do not depend on it."""
    out: Place = None
    """The folder to make; unset: data/RECIPE."""

    def __post_init__(self) -> None:
        for name, least in (("limit", 1), ("max_tokens", 2), ("shard_rows", 1), ("workers", 1)):
            at_least(f"--{name.replace('_', '-')}", getattr(self, name), least)
        if not 0 < self.near <= 1:
            raise ValueError(f"--near is {self.near}: give a similarity above 0 and up to 1")
        if self.validation is not None and not 0 <= self.validation < 1:
            raise ValueError(f"--validation is {self.validation}: give a share from 0 to below 1")
        if self.near != DataJob.near and self.ways != "near":
            raise ValueError("--near has no effect without near duplicates: give --dedup near")

    @property
    def ways(self) -> Dedup:
        return self.dedup or ("none" if self.mode == "compat" else "near")


@dataclass(frozen=True)
class DataPlan:
    """Everything that determines the bytes of the shards."""

    recipe: CorpusRecipe
    job: DataJob
    sources: tuple[OpenedSource, ...]
    vocab: Vocab
    limits: SourceLimits
    benchmarks: tuple[OpenedBenchmark, ...]
    validation: float
    out: Path

    def settings(self) -> dict[str, Any]:
        """The settings in the manifest. Their digest identifies the work for resumption."""
        job = self.job
        return {
            "results": RESULTS,
            "recipe": self.recipe.name,
            "mode": job.mode,
            "limit": job.limit,
            "dedup": job.ways,
            "near": job.near if job.ways == "near" else None,
            "max_tokens": self.limits.total,
            "validation": self.validation,
            "seed": job.seed,
            "shard_rows": job.shard_rows,
            "vocab_digest": self.vocab.digest(),
            "sources": {source.spec.alias: source.content for source in self.sources},
            "against": [benchmark.as_json() for benchmark in self.benchmarks],
        }

    def identity(self) -> str:
        text = json.dumps(self.settings(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def warnings(self) -> list[str]:
        """Warnings to print before anything is read."""
        found = [
            f"{source.spec.alias} is {source.spec.licence}: a model trained on it is not for "
            f"commercial use (--without {source.spec.alias} leaves it out of a mixture)"
            for source in self.sources
            if not source.spec.commercial
        ]
        if not self.benchmarks:
            found.append("not decontaminated: benchmark problems in the data will be trained on")
        return found


def open_plan(job: DataJob) -> DataPlan:
    """Open what the flags name."""
    from anyorder.apps.corpus import open_vocab

    recipe = find_corpus(job.recipe)
    if job.mode not in recipe.limits:
        raise ValueError(f"{recipe.name} has no published filters: leave --mode out")
    limits = recipe.limits[job.mode]
    if job.max_tokens is not None:
        limits = replace(limits, total=job.max_tokens)
    against = job.against or ((NOTHING,) if job.mode == "compat" else ())
    return DataPlan(
        recipe=recipe,
        job=job,
        sources=open_sources(recipe, job.source, job.without),
        vocab=open_vocab(job.vocab or recipe.vocab),
        limits=limits,
        benchmarks=open_benchmarks(against),
        validation=recipe.validation if job.validation is None else job.validation,
        out=job.out or Path("data") / recipe.name,
    )
