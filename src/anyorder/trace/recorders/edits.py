"""What every step of an editing sampler wrote, deleted and inserted, followed slot by slot.

LLaDA2.1 overwrites tokens; LLaDA2.2 also deletes and inserts slots inside blocks of fixed length.
Canvases of ids do not show which slot became which, so the writes themselves are recorded, one JSON
object for each sample:

    {"task_id": "t", "prompt": "...", "prompt_ids": [5, 6], "block_length": 4, "mask_id": 9,
     "writes": [[1, 2, 7], [2, 3, 8]]}

    writes              [step, position, id]: in this step (from 1) the id was written at this
                        position of the canvas before the step. Positions count from 0, with the
                        prompt; so do blocks, and the prompt's tail shares the first
    block_length        ids in a block, gives the trace's column `block`; needed with delete_id or
                        split_id
    delete_id           this id deletes the slot
    split_id            this id puts a mask before the slot, which keeps its token
    length              positions in all; unset: up to the end of the last block written to
    sample, steps, entry_point, policy    as in a trace; optional

All writes of a step are taken from the old block and read from left to right. A block that lost
slots is padded with masks at its end, and what is pushed over its end is deleted. The
sampler did not choose that, but a trace must show it. Deleted slots become ghosts (events.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from anyorder.trace.blocks import grid_blocks, several_or_none
from anyorder.trace.history import trace_of_slots
from anyorder.trace.interchange import LineFields
from anyorder.trace.recorders.reading import (
    Reading,
    about_record,
    as_records,
    known_fields,
    numbered,
    prompt_ids_of,
)
from anyorder.trace.trace import Trace

EDIT_FIELDS = (
    *("task_id", "sample", "prompt", "prompt_ids", "block_length", "mask_id", "delete_id"),
    *("split_id", "length", "writes", "steps", "entry_point", "policy"),
)

MOST_SHOWN = 1 << 26
"""Positions of all canvases together: a wrong number must not fill the memory."""

SlotRow = list[tuple[int, int]]
"""Slots from left to right: (identity, id shown)."""
Writes = dict[int, dict[int, int]]
"""Step -> position -> id."""


@dataclass(frozen=True)
class EditRules:
    """The ids that do more than replace a token, and the blocks in which they act."""

    mask_id: int
    block_length: int
    delete_id: int | None = None
    split_id: int | None = None

    def apply(self, block: SlotRow, writes: dict[int, int], fresh: Iterator[int]) -> SlotRow:
        """One block after a step; `writes`: place in the block -> id, `fresh`: new identities."""
        found: SlotRow = []
        for place, (slot, shown) in enumerate(block):
            written = writes.get(place, shown)
            if place in writes and written == self.delete_id:
                continue
            if place in writes and written == self.split_id:
                found += [(next(fresh), self.mask_id), (slot, shown)]
            else:
                found.append((slot, written))
        found += [(next(fresh), self.mask_id) for _ in range(len(block) - len(found))]
        return found[: len(block)]


def read_edits(content: Any, reading: Reading) -> Iterator[Trace]:
    """The traces of records of writes."""
    found = [
        known_fields(record, number, EDIT_FIELDS)
        for number, record in enumerate(as_records(content), start=1)
    ]
    names = [fields.string("task_id") for fields in found]
    for fields, sample in zip(found, numbered(names, reading.sample), strict=True):
        yield _trace(fields, sample, reading)


def _trace(fields: LineFields, sample: int, reading: Reading) -> Trace:
    prompt = prompt_ids_of(fields, reading)
    writes = _writes(fields, len(prompt))
    rules = _rules(fields, reading)
    last = max((position for own in writes.values() for position in own), default=-1)
    length = fields.optional("length", fields.integer)
    if length is None:
        length = -(-max(last + 1, len(prompt)) // rules.block_length) * rules.block_length
    if length <= max(last, len(prompt) - 1):
        problem = f"{length} positions, but one at {max(last, len(prompt) - 1)} is used"
        raise fields.error("length", problem, "give the positions of the whole canvas")
    steps = fields.optional("steps", fields.integer)
    steps = max(writes, default=0) if steps is None else steps
    if steps < max(writes, default=0):
        raise fields.error("steps", f"{steps}, but a later step writes", "give the last step")
    if length * (steps + 1) > MOST_SHOWN:
        problem = f"{length:,} positions at {steps + 1:,} moments are too many to follow"
        raise fields.error("writes", problem, "check the steps and positions, and length and steps")
    about = about_record(fields, sample, reading)
    if "block_length" in fields.record:
        # A block keeps its length whatever is deleted or inserted, so the grid gives the final one.
        slots = length - len(prompt)
        about["block"] = several_or_none(grid_blocks(slots, rules.block_length, len(prompt)))
    try:
        return trace_of_slots(
            (canvas[len(prompt) :] for canvas in _canvases(prompt, length, writes, steps, rules)),
            reading.mask_id,
            vocab=reading.vocab,
            prompt_ids=prompt,
            **about,
        )
    except ValueError as error:
        raise ValueError(f"{fields.where}: {error}") from None


def _canvases(
    prompt: list[int], length: int, writes: Writes, steps: int, rules: EditRules
) -> Iterator[SlotRow]:
    """The canvas before step 1 and after every step, with the prompt."""
    fresh = count(length)
    masks = [rules.mask_id] * (length - len(prompt))
    canvas: SlotRow = list(enumerate([*prompt, *masks]))
    yield canvas
    for step in range(1, steps + 1):
        blocks: Writes = {}
        for position, token in writes.get(step, {}).items():
            block, place = divmod(position, rules.block_length)
            blocks.setdefault(block, {})[place] = token
        canvas = list(canvas)
        for block, own in blocks.items():
            span = slice(block * rules.block_length, (block + 1) * rules.block_length)
            canvas[span] = rules.apply(canvas[span], own, fresh)
        yield canvas


def _rules(fields: LineFields, reading: Reading) -> EditRules:
    special = {name: fields.optional(name, fields.integer) for name in ("delete_id", "split_id")}
    length = fields.optional("block_length", fields.integer)
    if length is None and set(special.values()) != {None}:
        remedy = "give it: deleting and inserting act inside a block"
        raise fields.error("block_length", "missing", remedy)
    if length == 0:
        raise fields.error("block_length", "0 is no length", "give the number of ids in a block")
    return EditRules(reading.mask_id, length or 1, **special)


def _writes(fields: LineFields, prompt: int) -> Writes:
    found: Writes = {}
    before = 0
    for number, write in enumerate(fields.triples("writes")):
        step, position, token = write
        own = found.setdefault(step, {})
        problem = None
        if step < max(before, 1):
            problem = f"step {step} comes after step {before}" if step else "steps count from 1"
        elif position < prompt:
            problem = f"position {position} is in the prompt, which has {prompt} ids"
        elif position in own:
            problem = f"position {position} is written twice in step {step}"
        if problem is not None:
            remedy = "list [step, position, id] by step, each position once in a step"
            raise fields.error("writes", f"entry {number}: {problem}", remedy)
        own[position], before = token, step
    return found
