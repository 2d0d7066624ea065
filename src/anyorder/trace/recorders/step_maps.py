"""Step maps: when each token of an answer was revealed, as servers and reinforcement-learning kits
return it.

A record of ids (`read_step_maps`), one JSON object for each sample:

    {"task_id": "HumanEval/0", "prompt": "...", "token_ids": [7, 8, 9], "step_map": [3, 1, 2]}

    steps_from      the number of the first step: 1 (the default) or 0
    block_length    ids in a block, where blocks are filled one after another: gives the trace's
                    column `block`
    scope           answer (the default): steps count on over the whole answer; block: they begin
                    again in each block. Then a block's steps follow those of the blocks before it;
                    steps of a block that revealed nothing are not known
    prompt_length   where the grid of blocks begins with the prompt (SDAR, LLaDA2): the ids of the
                    prompt. Unset: the first block begins with the answer
    sample, prompt_ids, steps, log_prob, entry_point, policy    as in a trace; all optional

A token with step 0, where steps count from 1, was given. A mask was never revealed, whatever its
step: kits write 0 or the last step for it.

A record of dLLM-RL (`read_outputs`): `full_output`, a text or one for each sample, and `step_map`
for each. Its steps index a history that begins after step 1, so they count from 0. It holds no ids:
the text is encoded again, and must have as many ids as there are steps.

A step map holds first reveals only: if the sampler edits tokens, record its canvases or its writes
(edits.py) instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyorder.trace import checks
from anyorder.trace.blocks import grid_blocks, several_or_none
from anyorder.trace.interchange import LineFields
from anyorder.trace.recorders.reading import (
    Reading,
    about_record,
    as_records,
    known_fields,
    numbered,
    prompt_ids_of,
)
from anyorder.trace.trace import About, Trace

STEP_MAP_FIELDS = (
    *("task_id", "sample", "prompt", "prompt_ids", "token_ids", "step_map", "steps_from"),
    *("scope", "block_length", "prompt_length", "steps", "log_prob", "entry_point", "policy"),
    "mask_id",
)
SCOPES = ("answer", "block")
OUTPUT_FIELDS = ("full_output", "step_map")


def read_step_maps(content: Any, reading: Reading) -> Iterator[Trace]:
    """The traces of records with token ids and their steps."""
    found = [
        known_fields(record, number, STEP_MAP_FIELDS)
        for number, record in enumerate(as_records(content), start=1)
    ]
    names = [fields.string("task_id") for fields in found]
    for fields, sample in zip(found, numbered(names, reading.sample), strict=True):
        yield _of_ids(fields, sample, reading)


def _of_ids(fields: LineFields, sample: int, reading: Reading) -> Trace:
    ids, steps = (np.array(fields.integers(name)) for name in ("token_ids", "step_map"))
    if len(ids) != len(steps):
        raise fields.error("step_map", f"{len(steps)} steps for {len(ids)} ids", "give one each")
    first = fields.optional("steps_from", fields.integer)
    if first not in (None, 0, 1):
        raise fields.error("steps_from", f"{first} is not 0 or 1", "give the first step's number")
    about = about_record(fields, sample, reading)
    reveal, blocks = _over_blocks(steps + (first == 0), ids != reading.mask_id, fields, reading)
    about["block"] = None if blocks is None else several_or_none(blocks)
    total = fields.optional("steps", fields.integer)
    log_prob = fields.optional("log_prob", fields.numbers)
    try:
        if log_prob is not None:
            about["log_prob"] = checks.log_probs("log_prob", log_prob)
        return _trace(ids, reveal, prompt_ids_of(fields, reading), total, about, reading)
    except ValueError as error:
        raise ValueError(f"{fields.where}: {error}") from None


def _over_blocks(
    steps: NDArray[np.int64], shown: NDArray[np.bool_], fields: LineFields, reading: Reading
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Steps that count on over the blocks of the answer, from 1, 0 for what was given; the blocks,
    if they are known."""
    scope = fields.optional("scope", fields.string) or SCOPES[0]
    if scope not in SCOPES:
        raise fields.error("scope", f"no scope {scope!r}", f"choose from {', '.join(SCOPES)}")
    before = fields.optional("prompt_length", fields.integer)
    before = reading.prompt_length if before is None else before
    if scope == SCOPES[0] and "block_length" not in fields.record:
        if before is not None:
            remedy = "leave it out, or add block_length"
            raise fields.error("prompt_length", "read only with block_length", remedy)
        return steps, None
    length = fields.integer("block_length")
    if length < 1:
        raise fields.error("block_length", "0 is no length", "give the number of ids in a block")
    block = grid_blocks(len(steps), length, before or 0)
    found, earlier = steps.copy(), 0
    for number in range(int(block.max(initial=-1)) + 1):
        own = (block == number) & shown & (steps > 0)
        if scope == SCOPES[1]:
            found[own] += earlier
            earlier += int(steps[own].max(initial=0))
        elif own.any():
            if steps[own].min() <= earlier:
                problem = f"block {number} begins in step {steps[own].min()}, and one before it "
                problem += f"goes on to step {earlier}"
                remedy = "check it and prompt_length, or leave both out if blocks overlap"
                raise fields.error("block_length", problem, remedy)
            earlier = int(steps[own].max())
    return found, block


def _trace(
    ids: NDArray[np.int64],
    reveal: NDArray[np.int64],
    prompt_ids: Sequence[int],
    steps: int | None,
    about: About,
    reading: Reading,
) -> Trace:
    shown = ids != reading.mask_id
    total = int(reveal[shown].max(initial=0)) if steps is None else steps
    return Trace.from_tokens(
        reading.vocab,
        ids,
        prompt_ids=prompt_ids,
        insert_step=np.zeros(len(ids), dtype=np.int64),
        reveal_step=np.where(shown, reveal, total + 1),
        steps=total,
        mask_id=reading.mask_id,
        **about,
    )


def read_outputs(content: Any, reading: Reading) -> Iterator[Trace]:
    """The traces of dLLM-RL's records; one for each text of a record."""
    for number, record in enumerate(as_records(content), start=1):
        if not isinstance(record, Mapping):
            raise ValueError(f"record {number} is not a JSON object: each task is one")
        for name in OUTPUT_FIELDS:
            if name not in record:
                raise ValueError(f"record {number} has no field {name!r}, as dLLM-RL writes it")
        texts, maps = record["full_output"], record["step_map"]
        if isinstance(texts, str):
            texts, maps = [texts], [maps]
        if not isinstance(texts, list) or not isinstance(maps, list) or len(texts) != len(maps):
            raise ValueError(f"record {number}: full_output and step_map are not lists of one size")
        task_id = record.get("task_id", record.get("index"))
        prompt = record.get("prompt")
        prompt = record.get("question") if prompt is None else prompt
        about: About = {
            "task_id": f"{reading.task_id}/{number - 1}" if task_id is None else str(task_id),
            "prompt": checks.text(f"record {number}, prompt", "" if prompt is None else prompt),
        }
        about["entry_point"] = (reading.entry_points or {}).get(about["task_id"])
        for sample, (text, steps) in enumerate(zip(texts, maps, strict=True)):
            where = f"record {number}, output {sample}"
            about["sample"] = reading.sample + sample
            try:
                yield _of_text(checks.text("full_output", text), steps, about, reading)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None


def _of_text(text: str, steps: Any, about: About, reading: Reading) -> Trace:
    ids = np.array(reading.vocab.encode(text, specials=True), dtype=np.int64)
    given = checks.integers("step_map", steps).astype(np.int64)
    if len(ids) != len(given):
        raise ValueError(
            f"the text has {len(ids)} ids by this tokenizer and {len(given)} steps: is it the "
            "model's tokenizer? If so, its text does not give back the ids: record `token_ids`"
        )
    prompt = reading.vocab.encode(about["prompt"], specials=True)
    return _trace(ids, given + 1, prompt, None, about, reading)
