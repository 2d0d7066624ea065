"""What other libraries record, already loaded as plain values, to traces.

    snapshots   canvases of ids from before step 1 on: dllm's `histories`, LLaDA loops that keep
                every canvas, arrays (steps + 1, length) or (steps + 1, batch, length)
    dream       Dream's `output_history`: the same without the first canvas, which is put back as
                the prompt and masks
    flexmdm     the traces of the FlexMDM release: a dict with `sequences`, `attention_masks`,
                `insertion_masks` (steps + 1, length), `prompt`, `prompt_len`, `mask_id`, `meta`

The first two come bare or in a dict, under `histories` or `history`, which may also tell `mask_id`,
`prompt_length` (a number, or one per row), `task_id`, `prompt` and `entry_point`. A batch gives one
trace per row.

Files are opened in apps/, because some need torch; nothing here reads one. Letters: S snapshots,
B rows of a batch, L positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anyorder.trace import checks
from anyorder.trace.trace import About, Trace

if TYPE_CHECKING:
    from anyorder.vocab import Vocab

LENGTH_NAMES = ("prompt_length", "prompt_len")
RELEASE_FIELDS = ("sequences", "attention_masks", "insertion_masks", "prompt_len", "mask_id")


@dataclass(frozen=True)
class Reading:
    """What the file itself may not tell."""

    vocab: Vocab
    """Spells the ids."""
    mask_id: int
    prompt_length: int | None = None
    """Ids in front of the answer; None: as the file says, else up to the first mask."""
    task_id: str = ""
    """For files that name no task."""
    sample: int = 0
    """The number of the first row."""
    entry_points: Mapping[str, str] | None = None
    """Per task, where the file names none."""


def recognise(content: Any) -> str:
    """The format of loaded content; ValueError where it is none of them."""
    if isinstance(content, Mapping):
        for name, fields in _SIGNS.items():
            if all(field in content for field in fields):
                return name
        found = ", ".join(map(str, list(content)[:8])) or "none"
        raise ValueError(
            "no format fits these fields: give `histories` (canvases from before step 1 on), "
            f"`history` (from after step 1 on) or those of a FlexMDM trace (it has: {found})"
        )
    if isinstance(content, Sequence | np.ndarray) and not isinstance(content, str | bytes):
        return "snapshots"
    raise ValueError(f"a list of canvases or a dict is needed, not {type(content).__name__}")


def told_mask_id(content: Any, told: int | None) -> int | None:
    """The mask id that the content or the user gives; ValueError where they disagree."""
    found = content.get("mask_id") if isinstance(content, Mapping) else None
    if found is None:
        return told
    known = checks.count("mask_id", _scalar(found))
    if told is not None and told != known:
        raise ValueError(f"the file says mask_id {known}, not {told}: leave --mask-id out")
    return known


def read_content(content: Any, format: str, reading: Reading) -> Iterator[Trace]:
    """The traces of loaded content."""
    return ADAPTERS[format](content, reading)


def _snapshots(content: Any, reading: Reading) -> Iterator[Trace]:
    fields = _fields(content, "histories")
    canvases = _canvases(fields["canvases"])
    lengths = _prompt_lengths(fields, reading, len(canvases[0]))
    for row, length in enumerate(lengths):
        rows = [canvas[row] for canvas in canvases]
        if length is None:
            masked = np.flatnonzero(rows[0] == reading.mask_id)
            if not masked.size:
                raise ValueError(
                    f"the first canvas of row {row} has no mask {reading.mask_id}: give "
                    "--prompt-length, and --format dream if the canvas before step 1 is missing"
                )
            length = int(masked[0])
        yield _trace(rows, length, row, fields, reading)


def _dream(content: Any, reading: Reading) -> Iterator[Trace]:
    fields = _fields(content, "history")
    canvases = _canvases(fields["canvases"])
    for row, length in enumerate(_prompt_lengths(fields, reading, len(canvases[0]))):
        if length is None:
            raise ValueError(
                "Dream's history begins after step 1, so where the prompt ends cannot be seen: "
                "give --prompt-length, or `prompt_length` in the file"
            )
        first = canvases[0][row].copy()
        first[length:] = reading.mask_id
        yield _trace([first, *(canvas[row] for canvas in canvases)], length, row, fields, reading)


def _trace(
    rows: list[NDArray[Any]], length: int, row: int, fields: Mapping[str, Any], reading: Reading
) -> Trace:
    about: About = {
        "task_id": _text(fields, "task_id") or reading.task_id,
        "sample": reading.sample + row,
        "entry_point": _text(fields, "entry_point"),
    }
    if (prompt := _text(fields, "prompt")) is not None:
        about["prompt"] = prompt
    return Trace.from_snapshots(
        rows, reading.mask_id, vocab=reading.vocab, prompt_length=length, **about
    )


def _flexmdm(content: Any, reading: Reading) -> Iterator[Trace]:
    missing = [name for name in RELEASE_FIELDS if name not in content]
    if missing:
        raise ValueError(f"a FlexMDM trace has the field {missing[0]!r}, and this has not")
    told = checks.count("prompt_len", _scalar(content["prompt_len"]))
    if reading.prompt_length not in (None, told):
        raise ValueError(f"the file says prompt_len {told}: leave --prompt-length out")
    masks = {name: np.asarray(content[name]) for name in ("attention_masks", "insertion_masks")}
    ids = np.asarray(content["sequences"])
    if ids.ndim != 2 or any(mask.shape != ids.shape for mask in masks.values()):
        shapes = ", ".join(f"{name} {mask.shape}" for name, mask in masks.items())
        raise ValueError(
            f"sequences has shape {ids.shape}, {shapes}: all three are (steps + 1, length)"
        )
    meta = content.get("meta") or {}
    task_id = _text(meta, "task_id") or reading.task_id
    about: About = {
        "task_id": task_id,
        "sample": reading.sample,
        "entry_point": _text(meta, "entry_point") or (reading.entry_points or {}).get(task_id),
        "policy": _text(meta, "alg"),
    }
    if (prompt := _text(content, "prompt")) is not None:
        about["prompt"] = prompt
    yield Trace.from_snapshots(
        ids, reading.mask_id, vocab=reading.vocab, prompt_length=told, **masks, **about
    )


ADAPTERS: dict[str, Callable[[Any, Reading], Iterator[Trace]]] = {
    "snapshots": _snapshots,
    "dream": _dream,
    "flexmdm": _flexmdm,
}
_SIGNS = {
    "flexmdm": ("sequences", "insertion_masks", "attention_masks"),
    "snapshots": ("histories",),
    "dream": ("history",),
}


def _fields(content: Any, name: str) -> dict[str, Any]:
    """A dict with `canvases`, whatever the content is."""
    if not isinstance(content, Mapping):
        return {"canvases": content}
    if name not in content:
        raise ValueError(f"the field {name!r} is missing: it holds one canvas per step")
    return {**content, "canvases": content[name]}


def _canvases(values: Any) -> list[NDArray[Any]]:
    """One array (B, L) per snapshot."""
    if values is None or len(values) == 0:
        raise ValueError("there are no canvases in it: ask the sampler to keep its history")
    canvases = [np.atleast_2d(np.asarray(canvas)) for canvas in values]
    for step, canvas in enumerate(canvases):
        if canvas.ndim != 2 or canvas.shape != canvases[0].shape:
            raise ValueError(
                f"canvas {step} has shape {canvas.shape}, canvas 0 {canvases[0].shape}: all must "
                "be (length) or (batch, length) of one size; canvases that grow need "
                "insertion_masks (Trace.from_snapshots)"
            )
        if canvas.dtype.kind not in "iu":
            raise ValueError(f"canvas {step} holds {canvas.dtype} values, token ids are needed")
    return canvases


def _prompt_lengths(fields: Mapping[str, Any], reading: Reading, rows: int) -> list[int | None]:
    if reading.prompt_length is not None:
        return [reading.prompt_length] * rows
    found = next((fields[name] for name in LENGTH_NAMES if fields.get(name) is not None), None)
    if found is None:
        return [None] * rows
    lengths = np.atleast_1d(np.asarray(found))
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or len(lengths) not in (1, rows):
        raise ValueError(f"prompt_length: a number, or one for each of the {rows} rows, is needed")
    return [int(length) for length in np.broadcast_to(lengths, rows)]


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else checks.text(name, _scalar(value))


def _scalar(value: Any) -> Any:
    """A number or string that may have come as an array without dimensions."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 else value
