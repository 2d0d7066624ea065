"""Recordings of other libraries to traces. The content is already loaded as plain values.

    snapshots   canvases of ids from before step 1 on: dllm's `histories`, LLaDA loops that keep
                every canvas, arrays (steps + 1, length) or (steps + 1, batch, length). Canvases of
                block samplers may grow on the right
    dream       Dream's `output_history`: the same without the first canvas, which is rebuilt as
                the prompt and masks
    flexmdm     the traces of the FlexMDM release: a dict with `sequences`, `attention_masks`,
                `insertion_masks` (steps + 1, length), `prompt`, `prompt_len`, `mask_id`, `meta`
    latentmdm   the traces of the LatentMDM release on GSM8K: a list of dicts with `index`, `prompt`
                and `steps`, each with `chosen_slot` and the candidates of the open slots in
                `segments` (`slot, text, tokens, score`)
    step_map    records with a step for each token id; dllm_rl: likewise with texts (step_maps.py)
    edits       records of what every step wrote, deleted and inserted (edits.py)

The first two come bare, or in a dict under `histories` or `history`. The dict may also hold
`mask_id`, `block_length`, `prompt_length` (a number, or one per row), `task_id`, `sample`, `prompt`
and `entry_point` (each one value, or one per row). A batch gives one trace per row. Rows without a
`task_id` are samples of one task if their prompts are equal, else tasks named by file and row.

Not here: opening files (apps/imports.py), because some need torch; following slots through canvases
(history.py). Letters: B rows of a batch, L positions, S snapshots (steps + 1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyorder.checks import did_you_mean
from anyorder.trace import checks
from anyorder.trace.blocks import canvas_blocks
from anyorder.trace.history import padded_right
from anyorder.trace.recorders.edits import read_edits
from anyorder.trace.recorders.reading import Reading, numbered
from anyorder.trace.recorders.step_maps import read_outputs, read_step_maps
from anyorder.trace.trace import About, Candidate, Trace
from anyorder.vocab import Vocab

LENGTH_NAMES = ("prompt_length", "prompt_len")
CANVAS_FIELDS = (
    *("mask_id", *LENGTH_NAMES, "block_length", "task_id", "sample", "prompt", "entry_point"),
    "sequences",  # what the samplers return beside their history; it is the last canvas
)
RELEASE_FIELDS = ("sequences", "attention_masks", "insertion_masks", "prompt_len", "mask_id")
SEGMENT_FIELDS = ("index", "prompt", "steps")


def recognise(content: Any) -> str:
    """The format of loaded content; ValueError if none fits."""
    if isinstance(content, Mapping):
        for name, fields in _SIGNS.items():
            if all(field in content for field in fields):
                return name
        if holds_ids(content):
            return _records_format(content)
        raise _no_format(content)
    if isinstance(content, Sequence | np.ndarray) and not isinstance(content, str | bytes):
        if len(content) > 0 and holds_ids(content[0]):
            return _records_format(content[0])
        if len(content) == 0 or not all(isinstance(each, Mapping) for each in content):
            return "snapshots"
        if not any(name in content[0] for name in SEGMENT_FIELDS):
            raise _no_format(content[0])
        return "latentmdm"
    raise ValueError(f"a list of canvases or a dict is needed, not {type(content).__name__}")


def _no_format(record: Mapping[str, Any]) -> ValueError:
    found = ", ".join(map(str, list(record)[:8])) or "none"
    return ValueError(
        "no format fits these fields: give `histories` (canvases from before step 1 on), "
        "`history` (from after step 1 on), `token_ids` and `step_map`, `writes`, or those of a "
        f"FlexMDM trace (it has: {found})"
    )


def holds_ids(record: Any) -> bool:
    """Whether a line of JSON is of a format of token ids, not one of our own."""
    return isinstance(record, Mapping) and any(name in record for name in _RECORD_SIGNS)


def _records_format(record: Mapping[str, Any]) -> str:
    """The format of records of ids, by the fields of the first; any of its own will do."""
    return next(name for sign, name in _RECORD_SIGNS.items() if sign in record)


def resolve_mask_id(content: Any, given: int | None) -> int | None:
    """The mask id from the content or the user; ValueError if they disagree."""
    records = content if isinstance(content, list) else [content]
    named = [_scalar(each.get("mask_id")) for each in records if isinstance(each, Mapping)]
    found = {checks.count("mask_id", mask_id) for mask_id in named if mask_id is not None}
    if not found:
        return given
    if len(found) > 1:
        raise ValueError(
            f"the records name the masks {', '.join(map(str, sorted(found)[:3]))}: import the "
            "records of one model"
        )
    (known,) = found
    if given is not None and given != known:
        raise ValueError(f"the file says mask_id {known}, not {given}: leave --mask-id out")
    return known


def read_content(content: Any, format: str, reading: Reading) -> Iterator[Trace]:
    """The traces of loaded content."""
    if reading.prompt_length is not None and format in _KNOW_PROMPTS:
        raise ValueError(f"format {format} says where its prompts end: leave --prompt-length out")
    return ADAPTERS[format](content, reading)


def _snapshots(content: Any, reading: Reading) -> Iterator[Trace]:
    fields = _fields(content, "histories")
    recorded = _canvases(fields["canvases"])
    canvases = padded_right(recorded, reading.mask_id)
    lengths = _prompt_lengths(fields, reading, len(canvases[0]))
    found: list[tuple[list[NDArray[Any]], int]] = []
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
        if len(lengths) > 1:
            rows = _without_fill(rows, length, reading)
        found.append((rows, length))
    return _traces(found, recorded, fields, reading)


def _without_fill(rows: list[NDArray[Any]], length: int, reading: Reading) -> list[NDArray[Any]]:
    """Without the ends and pads that a batch put behind the masks of a short row."""
    masked = np.flatnonzero(rows[0][length:] == reading.mask_id)
    after = length + int(masked[-1]) + 1 if masked.size else length
    fill = [reading.vocab.pad_id, *reading.vocab.end_ids]
    only_fill = masked.size > 0 and np.isin(rows[0][after:], fill).all()
    return [row[:after] for row in rows] if only_fill else rows


def _dream(content: Any, reading: Reading) -> Iterator[Trace]:
    fields = _fields(content, "history")
    recorded = _canvases(fields["canvases"])
    canvases = padded_right(recorded, reading.mask_id)
    found: list[tuple[list[NDArray[Any]], int]] = []
    for row, length in enumerate(_prompt_lengths(fields, reading, len(canvases[0]))):
        if length is None:
            raise ValueError(
                "Dream's history begins after step 1, so where the prompt ends cannot be seen: "
                "give --prompt-length, or `prompt_length` in the file"
            )
        first = canvases[0][row].copy()
        first[length:] = reading.mask_id
        found.append(([first, *(canvas[row] for canvas in canvases)], length))
    return _traces(found, recorded, fields, reading)


def _traces(
    found: Sequence[tuple[list[NDArray[Any]], int]],
    recorded: Sequence[NDArray[Any]],
    fields: Mapping[str, Any],
    reading: Reading,
) -> Iterator[Trace]:
    """One trace for the canvases of each row, with the length of its prompt."""
    count = len(found)
    prompts = _texts(fields, "prompt", count)
    entry_points = _texts(fields, "entry_point", count)
    keys: Sequence[Hashable] = prompts or [
        tuple(rows[-1][:length].tolist()) for rows, length in found
    ]
    task_ids = _texts(fields, "task_id", count) or _tasks_of(keys, reading.task_id)
    samples = _samples(fields, task_ids, reading.sample)
    widths = [canvas.shape[1] for canvas in recorded]
    block_length = _scalar(fields.get("block_length"))
    for row, (rows, length) in enumerate(found):
        about: About = {"task_id": task_ids[row], "sample": samples[row]}
        about["entry_point"] = entry_points[row] if entry_points else None
        blocks = canvas_blocks(widths, length, block_length)
        about["block"] = None if blocks is None else blocks[: len(rows[-1]) - length]
        if prompts:
            about["prompt"] = prompts[row]
        yield Trace.from_snapshots(
            rows, reading.mask_id, vocab=reading.vocab, prompt_length=length, **about
        )


def _tasks_of(prompts: Sequence[Hashable], name: str) -> list[str]:
    """Names for the rows of a batch: one for all if they share the prompt, else by row."""
    first: dict[Hashable, int] = {}
    for row, prompt in enumerate(prompts):
        first.setdefault(prompt, row)
    return [name if len(first) == 1 else f"{name}/{first[prompt]}" for prompt in prompts]


def _samples(fields: Mapping[str, Any], task_ids: Sequence[str], lowest: int) -> list[int]:
    given = fields.get("sample")
    if given is None:
        return numbered(task_ids, lowest)
    found = np.atleast_1d(np.asarray(given))
    if found.ndim != 1 or len(found) not in (1, len(task_ids)) or found.dtype.kind not in "iu":
        raise ValueError(
            f"sample: a number, or one for each of the {len(task_ids)} rows, is needed"
        )
    if len(found) == 1:  # of the first row; the others count on
        return numbered(task_ids, int(found[0]))
    return found.tolist()


def _flexmdm(content: Any, reading: Reading) -> Iterator[Trace]:
    missing = [name for name in RELEASE_FIELDS if name not in content]
    if missing:
        raise ValueError(f"a FlexMDM trace has the field {missing[0]!r}, and this has not")
    length = checks.count("prompt_len", _scalar(content["prompt_len"]))
    if reading.prompt_length not in (None, length):
        raise ValueError(f"the file says prompt_len {length}: leave --prompt-length out")
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
        ids, reading.mask_id, vocab=reading.vocab, prompt_length=length, **masks, **about
    )


def _latentmdm(content: Any, reading: Reading) -> Iterator[Trace]:
    """One trace per record; records of one index are samples of one problem."""
    seen: dict[int, int] = {}
    for number, record in enumerate([content] if isinstance(content, Mapping) else content):
        missing = [name for name in SEGMENT_FIELDS if name not in record]
        if missing:
            raise ValueError(f"record {number} of a LatentMDM trace has no field {missing[0]!r}")
        index = checks.count("index", record["index"])
        try:
            columns = _segments(record["steps"], reading.vocab)
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(
                f"record {number}: steps with `chosen_slot` and `segments` (slot, text, tokens, "
                f"score) are needed ({type(error).__name__}: {error})"
            ) from None
        sample = seen[index] = seen.get(index, reading.sample - 1) + 1
        yield Trace(
            task_id=f"GSM8K/{index}",
            sample=sample,
            prompt=checks.text("prompt", record["prompt"]),
            family="latentmdm",
            **columns,
        )


def _segments(steps: Any, vocab: Vocab) -> dict[str, Any]:
    """The columns of a trace: content in the order of the slots, then the empty segments.

    The release's boundary rule: once an empty segment is chosen, all slots after the first such one
    are empty. Text that the rule erases stays in the candidates only.
    """
    first = min(each["slot"] for each in steps[0]["segments"])  # all are open in the first step
    shown: dict[int, tuple[int, float, tuple[str, ...]]] = {}
    candidates: list[Candidate] = []
    for step, entry in enumerate(steps, start=1):
        chosen = {int(slot) - first for slot in np.atleast_1d(entry["chosen_slot"])}
        found = {each["slot"] - first: each for each in entry["segments"]}
        for slot, each in sorted(found.items()):
            pieces, score = _pieces(each["tokens"], each["text"], vocab), float(each["score"])
            text, taken = "".join(pieces), slot in chosen
            candidates.append(Candidate(step, slot, None, text, score, taken))
            if taken:
                shown[slot] = (step, score, pieces)
        ends = [slot for slot in chosen if not shown[slot][2]]
        for slot in {*shown, *found} if ends else ():
            # NaN, because the boundary rule and not a score chose these.
            if slot > min(ends) and not (slot in shown and not shown[slot][2]):
                shown[slot] = (step, np.nan, ())
    if len(shown) < len({each.segment for each in candidates}):
        raise ValueError("steps end while segments are open: give the steps of whole generations")
    rows = [(*shown[slot][:2], slot, piece) for slot in sorted(shown) for piece in shown[slot][2]]
    rows += [(*shown[slot][:2], slot, "") for slot in sorted(shown) if not shown[slot][2]]
    texts = [piece for *_, piece in rows]
    return {
        "text": "".join(texts),
        "char_end": list(accumulate(map(len, texts))),
        "insert_step": [0] * len(rows),
        "reveal_step": [step for step, *_ in rows],
        "score": [score for _, score, *_ in rows],
        "segment": [slot for _, _, slot, _ in rows],
        "steps": len(steps),
        "candidates": tuple(candidates),
    }


def _pieces(tokens: Any, text: str, vocab: Vocab) -> tuple[str, ...]:
    """A segment's tokens as strings, from strings or ids, up to its end of sequence."""
    if all(isinstance(token, str) for token in tokens):
        # Tokens that do not join to the text have no places in it: then the text is one piece.
        return tuple(tokens) if "".join(tokens) == text else (text,) if text else ()
    ids = checks.integers("tokens", tokens).tolist()
    found, spans = vocab.spans(ids[: vocab.end_of(ids)], begun=True)
    ends = [end for _, end in spans]
    return tuple(found[a:b] for a, b in zip([0, *ends], ends, strict=False))


ADAPTERS: dict[str, Callable[[Any, Reading], Iterator[Trace]]] = {
    "snapshots": _snapshots,
    "dream": _dream,
    "flexmdm": _flexmdm,
    "latentmdm": _latentmdm,
    "step_map": read_step_maps,
    "dllm_rl": read_outputs,
    "edits": read_edits,
}
_KNOW_PROMPTS = ("dllm_rl", "edits")
_RECORD_SIGNS = {
    "token_ids": "step_map",
    "full_output": "dllm_rl",
    "step_map": "step_map",
    "writes": "edits",
}
"""Field -> the format of records that have it."""
_SIGNS = {
    "flexmdm": ("sequences", "insertion_masks", "attention_masks"),
    "snapshots": ("histories",),
    "dream": ("history",),
    "latentmdm": SEGMENT_FIELDS,
}


def _fields(content: Any, name: str) -> dict[str, Any]:
    """The content as a dict, its canvases under `canvases`."""
    if not isinstance(content, Mapping):
        return {"canvases": content}
    if name not in content:
        raise ValueError(f"the field {name!r} is missing: it holds one canvas per step")
    known = (name, *CANVAS_FIELDS)
    for field in content:
        if field not in known:
            raise ValueError(
                f"the field {field!r} is not known beside {name}: leave it out, or take one of "
                f"{', '.join(known[1:])}{did_you_mean(str(field), known)}"
            )
    return {**content, "canvases": content[name]}


def _canvases(values: Any) -> list[NDArray[Any]]:
    """One array (B, L) per snapshot."""
    if values is None or len(values) == 0:
        raise ValueError("there are no canvases in it: ask the sampler to keep its history")
    canvases = [np.atleast_2d(np.asarray(canvas)) for canvas in values]
    for step, canvas in enumerate(canvases):
        if canvas.ndim != 2 or len(canvas) != len(canvases[0]):
            raise ValueError(
                f"canvas {step} has shape {canvas.shape}, canvas 0 {canvases[0].shape}: all must "
                "be (length) or (batch, length) with one number of rows"
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


def _texts(fields: Mapping[str, Any], name: str, rows: int) -> list[str] | None:
    """One text for each row: a single one is of all rows."""
    value = _scalar(fields.get(name))
    if value is None:
        return None
    if isinstance(value, str):
        return [checks.text(name, value)] * rows
    given = list(value) if isinstance(value, Sequence | np.ndarray) else []
    if len(given) != rows:
        raise ValueError(f"{name}: a text, or one for each of the {rows} rows, is needed")
    return [checks.text(f"{name}[{row}]", _scalar(text)) for row, text in enumerate(given)]


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else checks.text(name, _scalar(value))


def _scalar(value: Any) -> Any:
    """A number or string, which loaders may wrap in an array without dimensions."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 else value
