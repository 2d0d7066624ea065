"""The JSONL interchange: one object per sample, for traces made or read by other software.

`task_id, sample, prompt, tokens` (token strings), `insert_step, reveal_step` (per token), optional
`log_prob, steps, entry_point, policy`. Steps count from 1; 0 means given from the start. `text`
alone, without tokens and steps, is accepted too. Further optional fields:

    segment, score    per token: its segment (-1 for none), and the score that chose the segment
    block             per token: its block, numbered from left to right (-1 for given tokens of
                      none), where blocks are filled one after the other
    events            where slots change before their last reveal: a list of [step, slot, text],
                      with null for a mask
    candidates        the proposals for segments: a list of {"step", "segment", "text", "score" (or
                      null), "taken"}
    ghosts            slots that were deleted, left to right: a list of {"after" (the number of the
                      token behind which it stood, -1: before all), "insert_step", "reveal_step" (or
                      null), "delete_step", "text" (or null)}, both null for a deleted mask. In
                      `events`, ghost g is slot N + g, with N tokens
    times             per step: the network's time when it decided that step, or null

The text of a sample is its tokens joined, so leave special tokens out or write them as "". A file
may be gzipped; its first bytes tell. Not here: ids and timings, which only traces.parquet holds.
"""

from __future__ import annotations

import difflib
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anyorder.files import replacing
from anyorder.trace.checks import INT32_MAX
from anyorder.trace.events import Event, Ghost
from anyorder.trace.trace import Candidate, Trace

FIELDS = (
    *("task_id", "sample", "prompt", "tokens", "text", "insert_step", "reveal_step"),
    *("log_prob", "segment", "score", "steps", "entry_point", "policy", "events", "candidates"),
    *("ghosts", "times", "block"),
)
GZIP_SIGN = b"\x1f\x8b"
PER_TOKEN_FIELDS = (
    *("insert_step", "reveal_step", "log_prob", "segment", "score", "events", "candidates"),
    *("ghosts", "times", "block"),
)


def format_line(trace: Trace) -> str:
    """One line, in ASCII, because some readers split lines at characters such as U+2028 too."""
    names = ("task_id", "sample", "prompt")
    record: dict[str, Any] = {name: getattr(trace, name) for name in names}
    if trace.char_end is None or trace.insert_step is None:
        record["text"] = trace.text
    else:
        insert, reveal = trace.timing()
        record["tokens"] = trace.pieces
        record["insert_step"] = insert.tolist()
        record["reveal_step"] = reveal.tolist()
        for name in ("segment", "block"):
            if (column := getattr(trace, name)) is not None:
                record[name] = column.tolist()
        for name in ("log_prob", "score"):
            if (column := getattr(trace, name)) is not None:
                record[name] = _nulls(column)
        record["steps"] = trace.steps
        if trace.events is not None:
            record["events"] = [[event.step, event.slot, event.piece] for event in trace.events]
        if trace.candidates is not None:
            record["candidates"] = [
                {"step": step, "segment": segment, "text": piece, "score": score, "taken": taken}
                for step, segment, _, piece, score, taken in trace.candidates
            ]
        if trace.ghosts is not None:
            record["ghosts"] = [
                {
                    "after": after,
                    "insert_step": insert_step,
                    "reveal_step": reveal_step,
                    "delete_step": delete_step,
                    "text": piece,
                }
                for after, insert_step, reveal_step, delete_step, _, piece in trace.ghosts
            ]
        if trace.times is not None:
            record["times"] = _nulls(trace.times)
    for name in ("entry_point", "policy"):
        if getattr(trace, name) is not None:
            record[name] = getattr(trace, name)
    return json.dumps(record, ensure_ascii=True, allow_nan=False)


def _nulls(column: NDArray[Any]) -> list[float | None]:
    """Numbers, None in place of NaN, which JSON does not have."""
    return [None if math.isnan(value) else value for value in column.tolist()]


def write_jsonl(path: Path, traces: Iterable[Trace]) -> None:
    """Write all traces, or leave `path` as it was."""
    with replacing(path) as file:
        for trace in traces:
            file.write(format_line(trace).encode("ascii") + b"\n")


def read_jsonl(path: Path) -> Iterator[Trace]:
    """The traces of a file, in its order. Errors name the file, line and field."""
    seen: dict[tuple[str, int], int] = {}
    with _opened(path) as file:
        for number, raw in enumerate(file, start=1):
            where = f"{path}:{number}"
            try:
                # Some editors put a byte order mark at the start of the file.
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{where}: not UTF-8 ({error}): save the file as UTF-8") from None
            if not line.strip():
                continue
            trace = parse_line(line, where)
            key = (trace.task_id, trace.sample)
            if key in seen:
                raise ValueError(
                    f"{where}: field 'sample': task {key[0]!r} already has a sample {key[1]}, in "
                    f"line {seen[key]}: number the samples of a task 0, 1, 2, ..."
                )
            seen[key] = number
            yield trace
    if not seen:
        raise ValueError(f"{path}: no traces in it: one JSON object per line is needed")


@contextmanager
def _opened(path: Path) -> Iterator[Iterable[bytes]]:
    with open(path, "rb") as file:
        if file.peek(2)[:2] != GZIP_SIGN:
            yield file
            return
        try:
            with gzip.open(file) as inner:
                yield inner
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            reason = str(error).rstrip(".")
            raise ValueError(f"{path} is damaged ({reason}): compress it again") from None


def parse_line(line: str, where: str = "line") -> Trace:
    """The trace of one line; errors begin with `where`. A null field counts as absent."""
    record = _parse_object(line, where)
    fields = LineFields({name: value for name, value in record.items() if value is not None}, where)
    fields.check_names()
    _check_tokens(fields)
    if "tokens" in fields.record:
        columns = _with_tokens(fields)
    else:
        columns = {
            "text": fields.string("text"),
            "prompt": fields.optional("prompt", fields.string) or "",
            "steps": fields.optional("steps", fields.integer),
        }
    columns["task_id"] = fields.string("task_id")
    columns["sample"] = fields.integer("sample")
    columns["entry_point"] = fields.optional("entry_point", fields.string)
    columns["policy"] = fields.optional("policy", fields.string)
    try:
        return Trace(**columns)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _with_tokens(fields: LineFields) -> dict[str, Any]:
    tokens = fields.strings("tokens")
    text = "".join(tokens)
    if fields.record.get("text", text) != text:
        raise fields.error("text", "it is not the tokens joined", "leave it out, tokens suffice")
    reveal = fields.integers("reveal_step")
    steps = fields.optional("steps", fields.integer)
    return {
        "text": text,
        "prompt": fields.string("prompt"),
        "char_end": list(accumulate(map(len, tokens))),
        "insert_step": fields.integers("insert_step"),
        "reveal_step": reveal,
        "log_prob": fields.optional("log_prob", fields.numbers),
        "segment": fields.optional("segment", fields.segments),
        "block": fields.optional("block", fields.segments),
        "score": fields.optional("score", fields.numbers),
        "steps": max(reveal, default=0) if steps is None else steps,
        "events": fields.optional("events", fields.events),
        "candidates": fields.optional("candidates", fields.candidates),
        "ghosts": fields.optional("ghosts", fields.ghosts),
        "times": fields.optional("times", fields.numbers),
    }


def _check_tokens(fields: LineFields) -> None:
    if "tokens" in fields.record:
        return
    for name in PER_TOKEN_FIELDS:
        if name in fields.record:
            raise fields.error(name, "given without 'tokens'", "give the tokens as well")


class LineFields:
    """Typed access to one record; each error names line, field and remedy."""

    def __init__(self, record: dict[str, Any], where: str, known: tuple[str, ...] = FIELDS) -> None:
        self.record = record
        self.where = where
        self.known = known

    def error(self, name: str, problem: str, remedy: str) -> ValueError:
        return ValueError(f"{self.where}: field {name!r}: {problem}: {remedy}")

    def check_names(self) -> None:
        for name in self.record:
            if name not in self.known:
                close = difflib.get_close_matches(name, self.known, n=1)
                remedy = f"did you mean {close[0]!r}?" if close else "remove it"
                known = ", ".join(self.known)
                raise self.error(name, "not a field of a trace", f"{remedy} ({known})")

    def optional(self, name: str, read: Callable[[str], Any]) -> Any:
        return read(name) if name in self.record else None

    def required(self, name: str) -> Any:
        if name not in self.record:
            remedies = {
                "insert_step": "give one step per token, all 0 for a canvas of fixed length",
                "reveal_step": "give one step per token, or 'text' instead of 'tokens'",
                "sample": "number the samples of a task 0, 1, 2, ...",
                "text": "give 'tokens' with their steps, or 'text' alone",
            }
            raise self.error(name, "missing", remedies.get(name, "add it"))
        return self.record[name]

    def string(self, name: str) -> str:
        value = self.required(name)
        if not isinstance(value, str):
            raise self.error(name, f"{value!r} is not a string", "write it in quotes")
        return value

    def strings(self, name: str) -> list[str]:
        return self._list(name, lambda value: isinstance(value, str), "strings")

    def integer(self, name: str) -> int:
        value = self.required(name)
        if not _is_step(value):
            remedy = f"give a whole number from 0 to {INT32_MAX}"
            raise self.error(name, f"{value!r:.60} does not fit", remedy)
        return int(value)

    def integers(self, name: str) -> list[int]:
        return self._list(name, _is_step, f"whole numbers from 0 to {INT32_MAX}")

    def triples(self, name: str) -> list[list[int]]:
        return self._list(name, _is_triple, "[number, number, number] records")

    def segments(self, name: str) -> list[int]:
        wanted = f"whole numbers from 0 to {INT32_MAX}, -1 for none"
        return self._list(name, lambda value: _is_step(value, least=-1), wanted)

    def numbers(self, name: str) -> list[float]:
        values = self._list(name, _is_number, "numbers, null where there is none")
        return [math.nan if value is None else value for value in values]

    def events(self, name: str) -> tuple[Event, ...]:
        values = self._list(name, _is_event, "[step, slot, text or null] records")
        return tuple(Event(step, slot, None, piece) for step, slot, piece in values)

    def ghosts(self, name: str) -> tuple[Ghost, ...]:
        wanted = "{after, insert_step, reveal_step, delete_step, text} objects"
        values = self._list(name, _is_ghost, wanted)
        return tuple(
            Ghost(token_id=None, piece=each.pop("text"), **each) for each in map(dict, values)
        )

    def candidates(self, name: str) -> tuple[Candidate, ...]:
        values = self._list(name, _is_candidate, "{step, segment, text, score, taken} objects")
        return tuple(
            Candidate(token_ids=None, piece=each.pop("text"), **each) for each in map(dict, values)
        )

    def _list(self, name: str, fits: Callable[[Any], bool], wanted: str) -> list[Any]:
        values, remedy = self.required(name), f"give a list of {wanted}"
        if not isinstance(values, list):
            raise self.error(name, f"{values!r:.60} is not a list", remedy)
        for number, value in enumerate(values):
            if not fits(value):
                raise self.error(name, f"entry {number} is {value!r:.60}", remedy)
        return values


def _is_step(value: Any, least: int = 0) -> bool:
    # `type`, not isinstance, because True is an int.
    return type(value) is int and least <= value <= INT32_MAX


def _is_triple(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_step, value))


def _is_number(value: Any) -> bool:
    return value is None or type(value) in (int, float)


def _is_event(value: Any) -> bool:
    match value:
        case [step, slot, str() | None]:
            return _is_step(step) and _is_step(slot)
    return False


def _is_ghost(value: Any) -> bool:
    match value:
        case {
            "after": after,
            "insert_step": insert,
            "reveal_step": reveal,
            "delete_step": delete,
            "text": str() | None,
        }:
            steps = _is_step(insert) and _is_step(delete) and _is_step(after, least=-1)
            return len(value) == 5 and steps and (reveal is None or _is_step(reveal))
    return False


def _is_candidate(value: Any) -> bool:
    match value:
        case {"step": step, "segment": segment, "text": str(), "score": score, "taken": bool()}:
            steps = _is_step(step) and _is_step(segment)
            return len(value) == 5 and steps and _is_number(score)
    return False


def _parse_object(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error}): write one object per line") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: not a JSON object: write one object per line")
    return record


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # By default `json` keeps the last of two equal fields silently.
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice!r} occurs twice")
    return record


def _no_constant(name: str) -> float:
    # By default `json` reads NaN and Infinity, which JSON does not have.
    raise ValueError(f"{name} is no JSON number, write null")
