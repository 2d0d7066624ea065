"""`anyorder import`: traces of other libraries -> a run folder.

Our JSON lines (trace/interchange.py) are read twice, first to check them; other files are converted
in memory first. So the run folder is written only if everything is right. The first bytes of a file
tell what it is. No code of a file runs: a pickle that needs code is refused. The meaning of values
is in trace/recorders/adapters.py. A folder may also have the layout of the FlexMDM release:
`raw/<task>__<model>__<policy>/sample_03.pt`, with `tasks.json` beside `raw`.

The special tokens of a tokenizer follow from the mask id of a published model (vocab.SPECIALS); for
other mask ids the user must give the end of sequence.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anyorder.apps.jobs import ImportOptions, progress_bar
from anyorder.families.descriptions import describe
from anyorder.files import sha256_of
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.interchange import GZIP_SIGN, read_jsonl
from anyorder.trace.recorders.adapters import (
    holds_ids,
    read_content,
    recognise,
    resolve_mask_id,
)
from anyorder.trace.recorders.reading import Reading
from anyorder.trace.run import save_run
from anyorder.vocab import SPECIALS, VOCABULARY_FILE, SpecialTokens, Vocab

ENDINGS = (".pt", ".pth", ".npy", ".npz", ".json", ".json.gz")
TASKS_FILE = "tasks.json"
JSON_LINES = "jsonl"

_SAMPLE = re.compile(r"sample_(\d+)")
_SEPARATOR = "__"
_HEAD = 1 << 16


@dataclass(frozen=True)
class ForeignFile:
    """A file, and what its path says about the sample."""

    path: Path
    task_id: str
    sample: int
    variant: str = ""
    """Model and policy from the folder's name, such as `flexmdm__top_k`."""


def find_files(path: Path) -> list[ForeignFile]:
    """The file itself, or all files below a folder, sorted by name."""
    if path.is_file():
        return [_named(path)]
    found = [
        item
        for item in sorted(path.rglob("*"))
        if item.is_file() and item.name.endswith(ENDINGS) and item.name != TASKS_FILE
    ]
    if not found:
        raise ValueError(f"{path} has no files to import: they end with {', '.join(ENDINGS)}")
    return [_named(item) for item in found]


def _named(path: Path) -> ForeignFile:
    match = _SAMPLE.fullmatch(path.name.split(".")[0])
    if match is None:
        return ForeignFile(path, path.name.split(".")[0], 0)
    task, _, variant = path.parent.name.partition(_SEPARATOR)
    return ForeignFile(path, task, int(match[1]), variant)


def of_one_variant(files: list[ForeignFile], variant: str | None) -> list[ForeignFile]:
    """The files of one model and policy; a run has only one."""
    variants = sorted({file.variant for file in files})
    if variant is None and len(variants) > 1:
        raise ValueError(
            f"these traces are of {len(variants)} models and policies: choose one with --variant, "
            f"from {', '.join(map(repr, variants))}"
        )
    if variant is not None and variant not in variants:
        raise ValueError(f"no variant {variant!r} here: there is {', '.join(map(repr, variants))}")
    return [file for file in files if variant in (None, file.variant)]


def entry_points(path: Path) -> dict[str, str]:
    """Entry points by task, from every tasks.json below the path or just above it."""
    folder = path if path.is_dir() else path.parent
    lists = [*folder.rglob(TASKS_FILE)] if path.is_dir() else []
    lists += [above / TASKS_FILE for above in (folder, *folder.parents[:2])]
    found = {}
    for file in dict.fromkeys(lists):
        if not file.is_file():
            continue
        tasks = _json(file)
        if not isinstance(tasks, list) or not all(isinstance(task, Mapping) for task in tasks):
            raise ValueError(f"{file} is not a list of tasks: restore it, or move it away")
        for task in tasks:
            if isinstance(task.get("task_id"), str) and isinstance(task.get("entry_point"), str):
                found[task["task_id"]] = task["entry_point"]
    return found


def digest_of(path: Path, files: list[ForeignFile]) -> str:
    """The digest of a file, or of the names and contents of a folder's files."""
    if path.is_file():
        return sha256_of(path)
    total = hashlib.sha256()
    for file in files:
        line = f"{sha256_of(file.path)} {file.path.relative_to(path).as_posix()}\n"
        total.update(line.encode())
    return total.hexdigest()


def kind_of(path: Path) -> str:
    """jsonl, json, torch, npy or npz, by the first bytes: names can be wrong."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(GZIP_SIGN):
        try:
            with gzip.open(path) as file:
                head = file.read(_HEAD)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is damaged ({error}): compress it again") from None
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(b"PK"):
        try:
            with zipfile.ZipFile(path) as archive:
                pickled = any(name.endswith("/data.pkl") for name in archive.namelist())
        except zipfile.BadZipFile:
            raise ValueError(f"{path} is truncated or damaged: copy it again") from None
        return "torch" if pickled else "npz"
    if head.startswith(b"\x80"):
        return "torch"
    return "json" if _is_one_document(head) else JSON_LINES


def _format_of(path: Path, options: ImportOptions) -> str | None:
    """JSON_LINES for lines of our own; None for a file to be recognised by its content."""
    if kind_of(path) != JSON_LINES:
        return None
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP_SIGN)) == GZIP_SIGN
        with (gzip.open if packed else open)(path, "rb") as file:
            first = next((line for line in file if line.strip()), b"")
        record = json.loads(first.decode("utf-8-sig"))
        foreign = isinstance(record, dict) and not {"tokens", "text"} & set(record)
        if holds_ids(record) or (foreign and options.tokenizer is not None):
            return None
        return JSON_LINES
    except (ValueError, RecursionError, EOFError, OSError, zlib.error):
        # Its reader says what is wrong with it.
        return JSON_LINES if options.tokenizer is None else None


def _is_one_document(head: bytes) -> bool:
    """Whether this is one JSON document (a list, or an object of canvases), not JSON lines."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        return True
    return (
        start.startswith(b"{")
        and re.search(rb'"(histories|history|sequences)"\s*:', head) is not None
    )


def _torch(path: Path) -> Any:
    import torch

    try:
        # weights_only: a pickle can run any code, and these files come from strangers.
        return _plain(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        needs = re.search(r"GLOBAL (\S+)", str(error))  # the rest advises to run the code
        what = needs[1] if needs else type(error).__name__
        raise ValueError(
            f"{path} holds objects that only code can make, and none is run ({what}): save plain "
            'tensors, as in torch.save({"history": output.history}, path)'
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise ValueError(f"{path} is truncated or no torch file ({first[:120]})") from None


def _plain(value: Any) -> Any:
    """Tensors as arrays, at any depth."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.numpy() if hasattr(value, "numpy") and not isinstance(value, np.ndarray) else value


def _numpy(path: Path) -> Any:
    """The array of a .npy file, or the arrays of a .npz file by name."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged, or has arrays of objects ({error})") from None


def _json(path: Path, *, lines: bool = False) -> Any:
    """A JSON document, or JSON lines in another format than our own."""
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if raw.startswith(GZIP_SIGN) else raw
        text = data.decode("utf-8-sig")
        return _records(text) if lines else json.loads(text)
    except (ValueError, RecursionError, EOFError, OSError, zlib.error) as error:
        kind = "JSON lines" if lines else "JSON"
        raise ValueError(f"{path} is truncated or not {kind} ({error})") from None


def _records(text: str) -> list[Any]:
    """The values of JSON lines."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            if line.strip():
                found.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if not found:
        raise ValueError("it is empty")
    return found


_OPENERS: dict[str, Callable[[Path], Any]] = {
    "torch": _torch,
    "npy": _numpy,
    "npz": _numpy,
    "json": _json,
    JSON_LINES: partial(_json, lines=True),
}


def load_tokenizer(path: Path, mask_id: int | None, eos_id: int | None) -> Vocab:
    """The vocabulary of a file or folder."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: name a tokenizer.json or its folder")
    if (path / VOCABULARY_FILE).is_file():
        vocab = Vocab.load(path)
        if eos_id is not None or mask_id not in (None, vocab.mask_id):
            raise ValueError(
                f"{path} says that the mask is {vocab.mask_id} and the end {vocab.eos_id}: leave "
                "--eos-id out, and give no other --mask-id"
            )
        return vocab
    tokens = _special_tokens(mask_id, eos_id)
    if path.is_file():
        return Vocab.from_tokenizer_json(path, **tokens)
    if found := _either(path, "tokenizer.json"):
        return Vocab.from_tokenizer_json(found, **tokens)
    pieces, merges = _either(path, "vocab.json"), _either(path, "merges.txt")
    if pieces and merges:
        return Vocab.from_vocab_merges(pieces, merges, **tokens)
    raise ValueError(
        f"{path} has no tokenizer.json, and not both vocab.json and merges.txt: name the folder "
        "with the model's tokenizer"
    )


def _special_tokens(mask_id: int | None, eos_id: int | None) -> SpecialTokens:
    if mask_id is None:
        raise ValueError("which id is the mask is not in the file: give --mask-id")
    if eos_id is not None:
        return {"mask": mask_id, "pad": eos_id, "eos": eos_id, "pad_is_eos": True}
    for tokens in SPECIALS.values():
        if tokens["mask"] == mask_id or tokens["named"].get(str(tokens["mask"])) == mask_id:
            return tokens
    known = ", ".join(
        f"{tokens['named'][str(tokens['mask'])]} ({name})" for name, tokens in SPECIALS.items()
    )
    raise ValueError(
        f"mask {mask_id} is of no model known here ({known}): give --eos-id, the end of sequence"
    )


def _either(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


STEP_0_REMEDIES = {
    JSON_LINES: "add 1 to all steps if yours count from 0",
    "snapshots": "use --format dream if the canvas before step 1 was not recorded",
    "dream": "check --prompt-length",
    "step_map": "write steps_from 0 if your steps count from 0",
}
"""By format. Formats of a family's published code have their hint in its description."""


def import_traces(
    path: Path,
    out: Path,
    *,
    command: str,
    options: ImportOptions = ImportOptions(),  # noqa: B008 - frozen
) -> tuple[Run, int]:
    """Import traces; return the run and its number of samples.

    Tokens at step 0 may be right or a mistake, so a note on standard error counts such samples.
    """
    if not path.exists():
        raise ValueError(
            f"{path} is not a file: name a .jsonl or .jsonl.gz file of traces, a .pt, .npy, .npz "
            "or .json file of canvases, or a folder of these"
        )
    if path.is_file() and (options.format or _format_of(path, options)) == JSON_LINES:
        source, card = _json_lines(path, command, options)
    else:
        source, card = _foreign(path, command, options)
    # A full pass before the first write: an error in the last trace must leave no run behind.
    count, given = _count(source())
    run = save_run(out, card, source())
    if given:
        _note(given, card.config.get("format", [JSON_LINES]))
    return run, count


TraceSource = Callable[[], Iterator[Trace]]


def _json_lines(path: Path, command: str, options: ImportOptions) -> tuple[TraceSource, RunCard]:
    for field in fields(options):
        if field.name != "format" and getattr(options, field.name) is not None:
            flag = field.name.replace("_", "-")
            raise ValueError(f"JSON lines spell their tokens and say the rest: leave --{flag} out")
    digest = digest_of(path, [])
    return lambda: read_jsonl(path), RunCard(command, {"import": path.name}, data_digest=digest)


def _foreign(path: Path, command: str, options: ImportOptions) -> tuple[TraceSource, RunCard]:
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
        lossy=reader.vocab.lossy or None,
    )
    return lambda: iter(traces), card


class _Reader:
    """Reads all files with one vocabulary; the first file may give its mask id."""

    def __init__(self, options: ImportOptions, entries: dict[str, str]) -> None:
        self.options, self.entries = options, entries
        self.vocab: Vocab | None = None
        self.formats: set[str] = set()

    def read(self, file: ForeignFile) -> list[Trace]:
        content = _OPENERS[kind_of(file.path)](file.path)
        try:
            format = self.options.format or recognise(content)
            self.formats.add(format)
            mask_id = resolve_mask_id(content, self.options.mask_id)
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
    """The number of traces, and of those with text at step 0."""
    count = given = 0
    for trace in traces:
        count += 1
        if trace.reveal_step is not None and trace.char_end is not None:
            width = np.diff(trace.char_end, prepend=0)
            given += bool(((trace.reveal_step == 0) & (width > 0)).any())
    return count, given


def _note(given: int, formats: Sequence[str]) -> None:
    have = "1 sample has" if given == 1 else f"{given} samples have"
    found = (STEP_0_REMEDIES.get(name) or describe(name).import_hint for name in formats)
    remedy = " and ".join(found)
    print(f"{have} tokens at step 0, which means given, not generated: {remedy}", file=sys.stderr)
