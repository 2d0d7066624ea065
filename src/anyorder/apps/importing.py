"""`anyorder import`: another library's traces -> a run folder.

JSON lines are read twice, first to see that all is right; other files (foreign_files.py) are
converted first and written then. Either way nothing is written unless everything is right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.apps.foreign_files import (
    JSON_LINES,
    ForeignFile,
    digest_of,
    entry_points,
    find_files,
    kind_of,
    of_one_variant,
    open_content,
)
from anyorder.apps.progress_bar import progress_bar
from anyorder.apps.tokenizer_files import load_tokenizer
from anyorder.files import alone_in
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.adapters import ADAPTERS, Reading, read_content, recognise, told_mask_id
from anyorder.trace.interchange import read_jsonl
from anyorder.vocab import Vocab

PART = 512
FORMATS = (JSON_LINES, *ADAPTERS)
STEP_0_REMEDIES = {
    JSON_LINES: "add 1 to all steps if yours count from 0",
    "snapshots": "use --format dream if the canvas before step 1 was not recorded",
    "dream": "check --prompt-length",
    "flexmdm": "check prompt_len in the files",
    "latentmdm": "check the records' steps",
}


@dataclass(frozen=True)
class ImportOptions:
    """How files of ids are to be read; JSON lines need none of it."""

    format: str | None = None
    """One of FORMATS; None: seen from the content."""
    tokenizer: Path | None = None
    mask_id: int | None = None
    eos_id: int | None = None
    prompt_length: int | None = None
    variant: str | None = None


def import_traces(
    path: Path,
    out: Path,
    *,
    command: str,
    options: ImportOptions = ImportOptions(),  # noqa: B008 - frozen
) -> tuple[Run, int]:
    """The run and how many samples it has. Nothing is written unless all of it is right.

    Samples with tokens at step 0 may be right or a mistake; a note on standard error counts them.
    """
    if options.format not in (None, *FORMATS):
        raise ValueError(f"no format {options.format!r}: choose from {', '.join(FORMATS)}")
    if not path.exists():
        raise ValueError(
            f"{path} is not a file: name a .jsonl or .jsonl.gz file of traces, a .pt, .npy, .npz "
            "or .json file of canvases, or a folder of these"
        )
    if path.is_file() and (options.format or kind_of(path)) == JSON_LINES:
        source, card = _json_lines(path, command, options)
    else:
        source, card = _foreign(path, command, options)
    count, given = _count(source())
    with alone_in(out):
        run = Run.create(out, card)
        if not run.complete:
            traces = source()
            for part in range(-(-count // PART)):
                run.append(part, list(islice(traces, PART)))
        run.finish()
    if given:
        _note(given, card.config.get("format", [JSON_LINES]))
    return run, count


Source = Callable[[], Iterator[Trace]]


def _json_lines(path: Path, command: str, options: ImportOptions) -> tuple[Source, RunCard]:
    for field in fields(options):
        if field.name != "format" and getattr(options, field.name) is not None:
            flag = field.name.replace("_", "-")
            raise ValueError(f"JSON lines spell their tokens and say the rest: leave --{flag} out")
    digest = digest_of(path, [])
    return lambda: read_jsonl(path), RunCard(command, {"import": path.name}, data_digest=digest)


def _foreign(path: Path, command: str, options: ImportOptions) -> tuple[Source, RunCard]:
    if options.tokenizer is None:
        raise ValueError(
            f"{path} holds token ids, and order is measured on text: give --tokenizer, the "
            "model's tokenizer.json or its folder"
        )
    files = of_one_variant(find_files(path), options.variant)
    reader = _Reader(options, entry_points(path))
    traces: list[Trace] = []
    with progress_bar("importing", len(files)) as advance:
        for file in files:
            traces += reader.read(file)
            advance(1)
    _check_distinct(traces, path)
    assert reader.vocab is not None
    config: dict[str, Any] = {
        "import": path.name,
        "format": sorted(reader.formats),
        "mask_id": options.mask_id,
        "prompt_length": options.prompt_length,
        "variant": options.variant,
    }
    card = RunCard(
        command,
        config,
        data_digest=digest_of(path, files),
        vocab_digest=reader.vocab.digest(),
    )
    return lambda: iter(traces), card


class _Reader:
    """Reads file after file with one vocabulary, which the first file's mask id may decide."""

    def __init__(self, options: ImportOptions, entries: dict[str, str]) -> None:
        self.options, self.entries = options, entries
        self.vocab: Vocab | None = None
        self.formats: set[str] = set()

    def read(self, file: ForeignFile) -> list[Trace]:
        content = open_content(file.path)
        try:
            format = self.options.format or recognise(content)
            self.formats.add(format)
            mask_id = told_mask_id(content, self.options.mask_id)
            if self.vocab is None:
                assert self.options.tokenizer is not None
                self.vocab = load_tokenizer(self.options.tokenizer, mask_id, self.options.eos_id)
            reading = Reading(
                self.vocab,
                self.vocab.mask_id if mask_id is None else mask_id,
                prompt_length=self.options.prompt_length,
                task_id=file.task_id,
                sample=file.sample,
                entry_points=self.entries,
            )
            return list(read_content(content, format, reading))
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None


def _check_distinct(traces: Iterable[Trace], path: Path) -> None:
    seen: set[tuple[str, int]] = set()
    for trace in traces:
        key = (trace.task_id, trace.sample)
        if key in seen:
            raise ValueError(
                f"{path}: task {key[0]!r} sample {key[1]} comes twice: import the folders of "
                "different runs one by one"
            )
        seen.add(key)


def _count(traces: Iterable[Trace]) -> tuple[int, int]:
    """How many traces there are, and how many of them have text that was there at step 0."""
    count = given = 0
    for trace in traces:
        count += 1
        if trace.reveal_step is not None and trace.char_end is not None:
            width = np.diff(trace.char_end, prepend=0)
            given += bool(((trace.reveal_step == 0) & (width > 0)).any())
    return count, given


def _note(given: int, formats: Sequence[str]) -> None:
    have = "1 sample has" if given == 1 else f"{given} samples have"
    remedy = " and ".join(STEP_0_REMEDIES[name] for name in formats)
    print(f"{have} tokens at step 0, which means given, not generated: {remedy}", file=sys.stderr)
