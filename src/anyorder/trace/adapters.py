"""Recordings of other libraries to traces. The content is already loaded as plain values.

    snapshots   canvases of ids from before step 1 on: dllm's `histories`, LLaDA loops that keep
                every canvas, arrays (steps + 1, length) or (steps + 1, batch, length)
    dream       Dream's `output_history`: the same without the first canvas, which is rebuilt as
                the prompt and masks
    flexmdm     the traces of the FlexMDM release: a dict with `sequences`, `attention_masks`,
                `insertion_masks` (steps + 1, length), `prompt`, `prompt_len`, `mask_id`, `meta`
    latentmdm   the traces of the LatentMDM release on GSM8K: a list of dicts with `index`, `prompt`
                and `steps`, each with `chosen_slot` and the candidates of the open slots in
                `segments` (`slot, text, tokens, score`)

The first two come bare, or in a dict under `histories` or `history`. The dict may also hold
`mask_id`, `prompt_length` (a number, or one per row), `task_id`, `prompt` and `entry_point`.
A batch gives one trace per row.

`History` follows slots through canvases, forwards: the positions of snapshot s that step s did not
create are, in order, the positions in use of snapshot s-1. With insertion masks this is exact;
without them the canvas must keep its length. Otherwise it is an error: adjacent masks look alike,
and a guess would invent an order.

Not here: opening files (apps/imports.py), because some need torch. Letters: B rows of a batch,
L positions, S snapshots (steps + 1), N final slots with those of the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyorder.trace import checks
from anyorder.trace.events import changes_of, spelled
from anyorder.trace.trace import About, Candidate, Trace

if TYPE_CHECKING:
    from anyorder.vocab import Vocab

CanvasRows = Sequence[ArrayLike] | NDArray[Any]

ABSENT = -1
LENGTH_NAMES = ("prompt_length", "prompt_len")
RELEASE_FIELDS = ("sequences", "attention_masks", "insertion_masks", "prompt_len", "mask_id")
SEGMENT_FIELDS = ("index", "prompt", "steps")


@dataclass(frozen=True)
class Reading:
    """Facts that a file may lack."""

    vocab: Vocab
    """Spells the ids."""
    mask_id: int
    prompt_length: int | None = None
    """Ids before the answer; None: from the file, else up to the first mask."""
    task_id: str = ""
    """Used where the file names no task."""
    sample: int = 0
    """The number of the first row."""
    entry_points: Mapping[str, str] | None = None
    """Per task; used where the file names none."""


def recognise(content: Any) -> str:
    """The format of loaded content; ValueError if none fits."""
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
        records = len(content) > 0 and all(isinstance(each, Mapping) for each in content)
        return "latentmdm" if records else "snapshots"
    raise ValueError(f"a list of canvases or a dict is needed, not {type(content).__name__}")


def resolve_mask_id(content: Any, given: int | None) -> int | None:
    """The mask id from the content or the user; ValueError if they disagree."""
    found = content.get("mask_id") if isinstance(content, Mapping) else None
    if found is None:
        return given
    known = checks.count("mask_id", _scalar(found))
    if given is not None and given != known:
        raise ValueError(f"the file says mask_id {known}, not {given}: leave --mask-id out")
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
    ids = ids[: ids.index(vocab.eos_id)] if vocab.eos_id in ids else ids
    found, spans = vocab.spans(ids)
    ends = [end for _, end in spans]
    return tuple(found[a:b] for a, b in zip([0, *ends], ends, strict=False))


ADAPTERS: dict[str, Callable[[Any, Reading], Iterator[Trace]]] = {
    "snapshots": _snapshots,
    "dream": _dream,
    "flexmdm": _flexmdm,
    "latentmdm": _latentmdm,
}
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
    """A number or string, which loaders may wrap in an array without dimensions."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 else value


@dataclass(frozen=True)
class History:
    """What each final slot showed in each snapshot."""

    shown: NDArray[np.int64]  # S N
    """Ids; ABSENT before the slot was inserted."""
    mask_id: int

    @classmethod
    def read(
        cls,
        snapshots: CanvasRows,
        mask_id: int,
        insertion_masks: CanvasRows | None = None,
        attention_masks: CanvasRows | None = None,
    ) -> History:
        """Follow the slots through the snapshots; ValueError if they cannot be followed."""
        if len(snapshots) == 0:
            raise ValueError("snapshots is empty: the first is the canvas before step 1")
        rows = [_ids(number, row) for number, row in enumerate(snapshots)]
        active = _masks("attention_masks", attention_masks, rows, default=True)
        created = _masks("insertion_masks", insertion_masks, rows, default=False)
        packed = [row[used] for row, used in zip(rows, active, strict=True)]
        new = [mark[used] for mark, used in zip(created, active, strict=True)]
        for step, (mark, used) in enumerate(zip(created, active, strict=True)):
            if (mark & ~used).any():
                raise ValueError(
                    f"insertion_masks[{step}] marks position {int(np.argmax(mark & ~used))}, which "
                    f"attention_masks[{step}] leaves out: only positions in use can be new"
                )
        changed = [step for step, row in enumerate(packed) if len(row) != len(packed[0])]
        if insertion_masks is None and changed:
            raise ValueError(
                f"snapshot {changed[0]} has {len(packed[changed[0]])} positions and snapshot 0 has "
                f"{len(packed[0])}: ids alone do not say which slots are new. "
                "Pass insertion_masks, where insertion_masks[s] marks what step s created"
            )
        return cls(_follow(packed, new), checks.count("mask_id", mask_id))

    def trace(self, vocab: Vocab | None, prompt_length: int = 0, **about: Unpack[About]) -> Trace:
        """The trace of all slots after the prompt."""
        prompt_length = self._check_prompt(prompt_length)
        shown = self.shown[:, prompt_length:]
        insert = (shown != ABSENT).argmax(axis=0)
        reveal, changes = changes_of(np.where(shown == ABSENT, self.mask_id, shown), self.mask_id)
        return Trace.from_tokens(
            vocab,
            shown[-1],
            prompt_ids=self.shown[-1, :prompt_length],
            insert_step=insert,
            reveal_step=reveal,
            steps=len(shown) - 1,
            events=spelled(vocab, changes),
            **about,
        )

    def _check_prompt(self, length: int) -> int:
        length = checks.count("prompt_length", length)
        if length > int((self.shown[0] != ABSENT).sum()):
            raise ValueError(
                f"prompt_length = {length} is more than the first snapshot holds: "
                "it counts the ids in front of the answer"
            )
        prompt = self.shown[:, :length]
        moved = np.argwhere((prompt != prompt[-1]) | (prompt == self.mask_id))
        if len(moved):
            step, position = moved[0].tolist()
            raise ValueError(
                f"snapshot {step} changes, masks or inserts at position {position} of the prompt: "
                f"prompt_length = {length} is too large, or these are snapshots of several samples"
            )
        return length


def active_masks(
    snapshots: CanvasRows, pad_id: int, prompt_length: int = 0
) -> list[NDArray[np.bool_]]:
    """Attention masks for snapshots padded on the right: all up to the last id that is not padding.

    The first `prompt_length` positions are always in use, so a prompt may end with the pad id.
    """
    masks = []
    for number, row in enumerate(snapshots):
        ids = _ids(number, row)
        used = np.flatnonzero(ids != pad_id)
        length = max(prompt_length, int(used[-1]) + 1 if used.size else 0)
        masks.append(np.arange(len(ids)) < length)
    return masks


def _follow(packed: list[NDArray[np.int32]], new: list[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Number the slots in the order of their insertion, then sort them by final position.  # S N"""
    numbers = [np.arange(len(packed[0]))]
    born = len(packed[0])
    for step in range(1, len(packed)):
        old, had = int((~new[step]).sum()), len(packed[step - 1])
        if old != had:
            raise ValueError(
                f"snapshot {step} keeps {old} positions of the {had} in snapshot {step - 1}: "
                "slots cannot vanish. insertion_masks[s] marks what step s created; pass "
                "attention_masks too when snapshots are padded"
            )
        row = np.empty(len(packed[step]), dtype=np.int64)
        row[~new[step]] = numbers[-1]
        row[new[step]] = np.arange(born, born + int(new[step].sum()))
        born += int(new[step].sum())
        numbers.append(row)
    place = np.argsort(numbers[-1])  # slot number -> final position
    shown = np.full((len(packed), born), ABSENT, dtype=np.int64)  # S N
    for step, row in enumerate(numbers):
        shown[step, place[row]] = packed[step]
    return shown


def _ids(number: int, row: ArrayLike) -> NDArray[np.int32]:
    array = np.asarray(row)
    if array.ndim != 1:
        raise ValueError(
            f"snapshot {number} has shape {array.shape}, a flat row of ids is needed: "
            "for a batch, make one trace per row with [snapshot[row] for snapshot in snapshots]"
        )
    return checks.integers(f"snapshot {number}", array)


def _masks(
    name: str, masks: CanvasRows | None, rows: list[NDArray[np.int32]], *, default: bool
) -> list[NDArray[np.bool_]]:
    if masks is None:
        return [np.full(len(row), default) for row in rows]
    if len(masks) != len(rows):
        raise ValueError(f"{name} has {len(masks)} rows for {len(rows)} snapshots: one each")
    result = []
    for step, row in enumerate(rows):
        mask = np.asarray(masks[step])
        if mask.shape != row.shape:
            raise ValueError(f"{name}[{step}] has shape {mask.shape}, its snapshot {row.shape}")
        if not np.isin(mask, (0, 1)).all():
            raise ValueError(f"{name}[{step}] holds values other than true and false")
        result.append(mask.astype(bool))
    return result
