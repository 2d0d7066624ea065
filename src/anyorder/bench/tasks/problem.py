"""What tasks share: problems, prompt templates, rows of a benchmark, and whose a name is.

A task gives problems in a fixed order, a digest of its data for the run card, and the published
limits and extraction. It does not sample, run or judge programs.

Templates: `{prompt}` is a field of the problem, `{{` and `}}` are single braces; other braces stay,
so that a template may hold code.

Rows: the digest is over the rows, so that neither compression nor the spelling of the JSON changes
it. No code of a dataset runs.

Names: read from the syntax tree, nothing is run. A test that calls `poly` where the prompt defines
`poly` must use the prompt's; else a sample could define its own and make the test pass.

    remote   the entry point, and names that the program alone can define (a class it was shown)
    setup    imports and definitions of the task's own text that the tests need, and what these need
"""

from __future__ import annotations

import ast
import builtins
import gzip
import hashlib
import json
import os
import re
import socket
import symtable
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from anyorder.bench.checks import Check
from anyorder.measure.extract import extract


@dataclass(frozen=True)
class Problem:
    """One problem of a task."""

    task_id: str
    prompt: str
    """The model's input, after the template."""
    entry_point: str | None = None
    """The function to write; None: the whole program counts."""
    checks: tuple[Check, ...] = field(default=(), repr=False)
    """All must pass; without any, the problem cannot be graded and `note` says why."""
    prologue: str = ""
    """Trusted text before the program when it is graded: the published imports."""
    solution: str | None = field(default=None, repr=False)
    """The canonical complete program, where the data has one."""
    prefix: str = ""
    """The text that makes a completion a program."""
    suffix: str = ""
    """The text behind a gap, which ends the program."""
    middle: str | None = field(default=None, repr=False)
    """The canonical text of the prompt's gap; None: the prompt has none."""
    group: str = ""
    """What problems have in common that are not independent; unset: nothing."""
    system: str = ""
    """The published system message, if the prompt is a turn of a chat."""
    prefill: str = ""
    """How a chat's answer begins, by the published protocol: part of the prompt."""
    note: str = ""
    """Why the problem cannot be graded, or how its published test was repaired."""
    facts: Mapping[str, str | int] = field(default_factory=dict, hash=False)
    """What measures may know of the problem. `sample` stores it in the run card (docs/tasks.md)."""

    def program(self, text: str, mode: str) -> str | None:
        """The program of a sample by one extraction, None for none.

        `text` is the sample's; where the prompt has a gap, only what was filled in.
        """
        entry_point = self.entry_point
        return extract(
            text, mode=mode, entry_point=entry_point, prefix=self.prefix, suffix=self.suffix
        )


class Task(Protocol):
    """A source of problems."""

    @property
    def name(self) -> str:
        """As on the command line, with the variant: `mbpp:test`."""

    @property
    def digest(self) -> str:
        """Of the data, whatever file or compression it came in."""

    @property
    def extraction(self) -> str:
        """The default mode of measure/extract.py."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The published limits for one run of a program, as fields of the sandbox's Limits."""

    @property
    def template(self) -> str:
        """The text that prompts are made from."""

    def problems(self, limit: int | None) -> list[Problem]:
        """The first `limit` problems, or all."""


@dataclass(frozen=True)
class Benchmark:
    """A task with a finite list of problems."""

    name: str
    digest: str
    extraction: str
    limits: Mapping[str, float]
    template: str
    found: tuple[Problem, ...] = field(repr=False)

    def problems(self, limit: int | None) -> list[Problem]:
        return list(self.found[:limit])


@dataclass(frozen=True)
class Wish:
    """The options of `find_task` beside the name."""

    data: str | None = None
    """A file or a dataset of the hub; None: the published dataset."""
    template: str | None = None
    """The name of a template or a file with one; None: the task's first."""
    variant: tuple[str, ...] = ()
    """The parts of the variant: ("sanitized",), ("378", "compat")."""

    def variant_in(self, task: str, known: Sequence[str]) -> set[str]:
        """The parts, all of them among those that `task` knows."""
        for part in self.variant:
            if part not in known:
                choices = f"choose one of {', '.join(known)}" if known else "it has none"
                raise ValueError(f"{task} has no variant {part!r}: {choices}")
        return set(self.variant)

    def name(self, task: str) -> str:
        """The task's name with the variant."""
        return f"{task}:{','.join(self.variant)}" if self.variant else task


PROLOGUE = """\
import math
import re
import sys
import time
import itertools
import functools
import collections
from typing import *
"""
"""The imports that the paper's release puts before every HumanEval and MBPP program."""

CODE_LIMITS = {"cpu_seconds": 30.0}
"""30 seconds for a sample and all tests of its problem (paper, appendix D): wall-clock time there,
processor time here, which a busy machine does not change."""


_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")


def find_template(
    wanted: str | None, named: Mapping[str, str], fields: Sequence[str], task: str
) -> str:
    """The template's text: a published one, or a file's. None: the first of the published ones."""
    if wanted is None:
        return next(iter(named.values()))
    text = named.get(wanted)
    if text is None:
        text = _read(Path(wanted), f"{task} has no template {wanted!r}", named)
    for match in _PIECE.finditer(text):
        if match[1] is not None and match[1] not in fields:
            raise ValueError(
                f"template {wanted}: no field {{{match[1]}}}: {task} has "
                f"{', '.join(f'{{{name}}}' for name in fields)}; write {{{{ for a plain brace"
            )
    return text


def fill(template: str, values: Mapping[str, str]) -> str:
    """The prompt of one problem."""

    def piece(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else values[match[1]]

    return _PIECE.sub(piece, template)


def _read(path: Path, problem: str, named: Mapping[str, str]) -> str:
    if not path.is_file():
        raise ValueError(f"{problem}: give a file, or one of {', '.join(named)}")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"template {path} cannot be read ({error}): give a text file") from None
    if not text.strip():
        raise ValueError(f"template {path} is empty: write at least {{prompt}}")
    return text


GZIP_MAGIC = b"\x1f\x8b"

Found = TypeVar("Found")
Row = dict[str, Any]
Columns = Mapping[str, type | tuple[type, ...]]
"""The columns that a kind of file must have, and their types."""


@dataclass(frozen=True)
class BenchmarkRows:
    """The content of a benchmark's file."""

    records: tuple[Row, ...]
    digest: str
    where: str
    """The file or dataset, for messages."""


@dataclass(frozen=True)
class Hub:
    """Where a benchmark is published."""

    dataset: str
    config: str | None = None
    split: str = "test"
    files: tuple[str, ...] = ()
    """Plain files of the repository to read instead of a split."""


def read_rows(data: str | None, hub: Hub) -> BenchmarkRows:
    """The rows of a local file, or of a dataset of the hub (None: of `hub`)."""
    if data is not None and (Path(data).is_file() or not _is_dataset(data)):
        return read_file(Path(data))
    if data is not None:
        hub = Hub(data, hub.config, hub.split, hub.files)
    if not _reachable():
        raise ValueError(
            f"the hub cannot be reached: give the file of {hub.dataset} with --data FILE "
            "(docs/tasks.md says which), or set HF_HUB_OFFLINE=1 to use what was downloaded before"
        )
    try:
        records = _from_hub(hub)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ValueError(
            f"cannot load {hub.dataset} from the hub ({reason}): give its file with --data FILE "
            "(.jsonl, .json, .gz; docs/tasks.md says which)"
        ) from None
    return _rows(records, hub.dataset)


def read_file(path: Path) -> BenchmarkRows:
    """The rows of a local file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"{path}: {reason}: give --data an existing file") from None
    if content.startswith(GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: damaged gzip ({error}): download it again") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file ({error}): give .jsonl, .json or .gz") from None
    return _rows(list(_parsed(text, str(path))), str(path))


def kind_of(rows: BenchmarkRows, kinds: Mapping[str, Columns], what: str) -> str:
    """The first of the kinds whose columns all rows have, with the right types."""
    first = rows.records[0]
    for kind, columns in kinds.items():
        if set(columns) <= set(first):
            for number, record in enumerate(rows.records):
                _check(record, columns, f"{rows.where}: row {number + 1}")
            return kind
    needed = " or ".join(", ".join(columns) for columns in kinds.values())
    raise ValueError(
        f"{rows.where} is not a file of {what}: its columns are {', '.join(first)}; needed are "
        f"{needed}"
    )


def read_each(rows: BenchmarkRows, read: Callable[[Row, str], Found]) -> list[Found]:
    """`read(row, where)` for each row; `where` is for messages."""
    found = []
    for number, record in enumerate(rows.records, start=1):
        where = f"{rows.where}: row {number}"
        try:
            found.append(read(record, where))
        except SyntaxError as error:
            raise ValueError(f"{where} is not Python ({error.msg}): remove or repair it") from None
    return found


def benchmark(
    name: str,
    rows: BenchmarkRows,
    problems: Sequence[Problem],
    template: str,
    extraction: str,
    limits: Mapping[str, float] = CODE_LIMITS,
) -> Benchmark:
    """A task of these problems, if there are any and no two have one id."""
    if not problems:
        raise ValueError(f"{rows.where}: no problem left: choose another variant or file")
    seen: set[str] = set()
    for problem in problems:
        if problem.task_id in seen:
            raise ValueError(f"{rows.where}: {problem.task_id} comes twice: remove one of the rows")
        seen.add(problem.task_id)
    return Benchmark(name, rows.digest, extraction, limits, template, tuple(problems))


def _is_dataset(name: str) -> bool:
    """Whether this is a hub id, owner/name, rather than a path to a file."""
    owner, slash, rest = name.partition("/")
    plain = all(part and part.strip(".") for part in (owner, rest))
    return (
        bool(slash) and plain and "/" not in rest and not rest.endswith((".gz", ".json", ".jsonl"))
    )


def _parsed(text: str, where: str) -> Iterator[Any]:
    if text.lstrip().startswith("["):
        try:
            yield from json.loads(text)
        except ValueError as error:
            raise ValueError(f"{where}: damaged JSON ({error}): download it again") from None
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{where}:{number}: not JSON ({error}): each line must be one object, or the "
                    "file one list"
                ) from None


def _rows(records: list[Any], where: str) -> BenchmarkRows:
    if not records:
        raise ValueError(f"{where} has no rows: download it again")
    digest = hashlib.sha256()
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            kind = type(record).__name__
            raise ValueError(f"{where}: row {number} is a {kind}, not an object with columns")
        digest.update(json.dumps(record, sort_keys=True, default=str).encode() + b"\n")
    return BenchmarkRows(tuple(records), digest.hexdigest(), where)


def _check(record: Row, columns: Columns, where: str) -> None:
    for name, kinds in columns.items():
        if name not in record:
            raise ValueError(f"{where} has no column {name!r}: remove or repair it")
        if not isinstance(record[name], kinds):
            found = type(record[name]).__name__
            raise ValueError(f"{where}: column {name!r} is a {found}: remove or repair it")


def _reachable() -> bool:
    """Whether the hub's name resolves: its library would retry for half a minute first."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") or getproxies():
        return True  # offline, the library uses its cache at once; a proxy resolves names itself
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def _from_hub(hub: Hub) -> list[Any]:
    if not hub.files:
        try:
            from datasets import load_dataset
        except ImportError:
            raise ValueError("its library is missing: pip install 'anyorder[hf]'") from None
        return [dict(row) for row in load_dataset(hub.dataset, hub.config, split=hub.split)]
    from huggingface_hub import hf_hub_download

    found: list[Any] = []
    for name in hub.files:
        path = hf_hub_download(hub.dataset, name, repo_type="dataset")
        found += read_file(Path(path)).records
    return found


_DATA = re.compile(r"^[ \t]*(?:inputs|results) = \[.*$", re.MULTILINE)
_BUILTIN = frozenset(dir(builtins))
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=16)  # every problem parses the prologue; no caller changes a tree
def parsed(code: str) -> ast.Module:
    """The tree of a task's text, without warnings: the user cannot change the text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def _names(code: str) -> tuple[set[str], set[str]]:
    """Names that the code reads at its top level or from it, and names that it binds there."""
    read: set[str] = set()
    bound: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        top = symtable.symtable(code, "<task>", "exec")
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is top or symbol.is_global():
                if symbol.is_referenced():
                    read.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_imported():
                    bound.add(symbol.get_name())
    return read, bound


def free_names(code: str) -> set[str]:
    """Names that the code reads from its surroundings, builtins included."""
    read, bound = _names(code)
    return read - bound


def defined_names(code: str) -> list[str]:
    """Functions and classes at the top level, in order."""
    return [node.name for node in parsed(code).body if isinstance(node, _DEFINITIONS)]


def entry_point(reference: str, tests: str) -> str | None:
    """The first top-level function of the reference that the tests call."""
    calls = (node.func for node in ast.walk(parsed(tests)) if isinstance(node, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    functions = (node.name for node in parsed(reference).body if isinstance(node, ast.FunctionDef))
    return next((name for name in functions if name in called), None)


def needed_setup(tests: str, sources: Iterable[str], without: Iterable[str]) -> str:
    """The statements of the trusted sources that the tests need, directly or not, in their order.

    Of two that bind one name the later counts. `without`: names that come from the program.
    """
    remote = set(without)
    statements = [node for source in sources for node in parsed(source).body]
    owner = {name: node for node in statements for name in _binds(node) if name not in remote}
    # Tests may be megabytes of literals, and most need nothing: drop evalplus's lines of data, and
    # search for the words before building a symbol table.
    tests = _DATA.sub("", tests)
    if not re.search(rf"\b(?:{'|'.join(map(re.escape, owner))})\b", tests):
        return ""
    waiting = list(free_names(tests))
    kept: set[ast.stmt] = set()
    while waiting:
        node = owner.get(waiting.pop())
        if node is not None and node not in kept:
            kept.add(node)
            waiting += free_names(ast.unparse(node))
    return "".join(f"{ast.unparse(node)}\n" for node in statements if node in kept)


def missing_names(tests: str, setup: str, remote: Iterable[str]) -> set[str]:
    """Names that the tests read and neither setup nor program defines."""
    return free_names(tests) - _names(setup)[1] - set(remote) - _BUILTIN


def _binds(node: ast.stmt) -> set[str]:
    """Names that a top-level definition, import or plain assignment binds."""
    binding = (*_DEFINITIONS, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    return _names(ast.unparse(node))[1] if isinstance(node, binding) else set()
