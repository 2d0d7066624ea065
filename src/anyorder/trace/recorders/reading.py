"""What the readers of other libraries' recordings share: facts that a file may lack, and records.

A record is one JSON object for one sample, with fields that are all known. Not here: the formats
themselves (adapters.py, step_maps.py, edits.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyorder.trace.interchange import LineFields
from anyorder.trace.trace import About
from anyorder.vocab import Vocab


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


def numbered(task_ids: Sequence[str], lowest: int = 0) -> list[int]:
    """The number of each sample among those of its task."""
    seen: Counter[str] = Counter()
    found = []
    for task_id in task_ids:
        found.append(lowest + seen[task_id])
        seen[task_id] += 1
    return found


def as_records(content: Any) -> list[Any]:
    """The records of a file: a list, or a single one."""
    return [content] if isinstance(content, Mapping) else list(content)


def known_fields(record: Any, number: int, known: tuple[str, ...]) -> LineFields:
    """A record whose fields are all known; a null field counts as absent."""
    if not isinstance(record, Mapping):
        raise ValueError(f"record {number} is not a JSON object: write one object per line")
    there = {str(name): value for name, value in record.items() if value is not None}
    fields = LineFields(there, f"record {number}", known)
    fields.check_names()
    return fields


def about_record(fields: LineFields, sample: int, reading: Reading) -> About:
    """What a record says of its sample."""
    about: About = {"task_id": fields.string("task_id"), "prompt": fields.string("prompt")}
    given = fields.optional("sample", fields.integer)
    about["sample"] = sample if given is None else given
    entry_point = fields.optional("entry_point", fields.string)
    known = (reading.entry_points or {}).get(about["task_id"])
    about["entry_point"] = known if entry_point is None else entry_point
    about["policy"] = fields.optional("policy", fields.string)
    return about


def prompt_ids_of(fields: LineFields, reading: Reading) -> list[int]:
    """The ids of the prompt; where they are not given, those of its text."""
    if "prompt_ids" in fields.record:
        return fields.integers("prompt_ids")
    try:
        return reading.vocab.encode(fields.string("prompt"), specials=True)
    except ValueError as error:
        raise fields.error("prompt", str(error), "or give its ids as 'prompt_ids'") from None
