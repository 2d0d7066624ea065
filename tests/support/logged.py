"""What loggers hold, read from their files: TensorBoard's events and wandb's offline records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anyorder.training.loggers import numbers

TIMED = ("seconds", "tokens_per_second")
Curves = dict[str, dict[int, float]]
"""Name -> step -> value."""


def curves(rows: list[dict[str, Any]]) -> Curves:
    """What a logger should hold after these rows, without times."""
    found: Curves = {}
    for row in rows:
        for name, value in numbers(row).items():
            if not name.endswith(TIMED):
                assert row["step"] not in found.setdefault(name, {}), "a row occurs twice"
                found[name][row["step"]] = value
    return found


def metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def from_tensorboard(folder: Path) -> Curves:
    """As TensorBoard itself reads the folder. A step that occurs twice is an error."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    found: Curves = {}
    for name in events.Tags()["scalars"]:
        if not name.endswith(TIMED):
            scalars = events.Scalars(name)
            found[name] = {each.step: each.value for each in scalars}
            assert len(found[name]) == len(scalars), f"{name} has a step twice"
    return found


def from_wandb(path: Path) -> Curves:
    """The history in one offline file, `run-ID.wandb`."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: Curves = {}
    for data in records(path.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") != "history":
            continue
        items = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        step = items.pop("_step", record.history.step.num)
        for name, value in items.items():
            if not name.startswith("_") and not name.endswith(TIMED):
                assert step not in found.setdefault(name, {}), f"{name} has step {step} twice"
                found[name][step] = value
    return found


BLOCK, HEAD = 32768, 7


def records(data: bytes) -> Iterator[bytes]:
    """The records of LevelDB's log format; a torn last one is left out."""
    at, whole = HEAD, b""  # the file begins with a head of the same size
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:  # too little room for a head: the next block goes on
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0 or at + HEAD + size > len(data):
            return
        part = data[at + HEAD : at + HEAD + size]
        at += HEAD + size
        whole = part if kind in (1, 2) else whole + part
        if kind in (1, 4):
            yield whole
