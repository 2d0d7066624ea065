"""Checks of a trace: the values of single columns, then what must hold between columns.

A check of a column takes its name and a value from outside, and returns the value in its stored
type. The `check_*` functions compare the columns of a whole trace, once, when it is made. Every
ValueError begins with the name of the column at fault.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from anyorder.trace.events import Event, Ghost
    from anyorder.trace.trace import Trace

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]
DoubleArray = NDArray[np.float64]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# Rounding in float32 may lift a log-probability above 0 by a little; a probability given by mistake
# exceeds it by much more.
LOG_PROB_SLACK = 1e-3


def integers(name: str, values: Any, *, lowest: int = 0) -> Int32Array:
    """A read-only int32 copy of a flat list of whole numbers."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name}: a flat list of whole numbers is needed, got shape {array.shape}")
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name}: whole numbers are needed, got {array.dtype} values")
    outside = np.flatnonzero((array < lowest) | (array > INT32_MAX))
    if outside.size:
        first = int(outside[0])
        raise ValueError(f"{name}[{first}] = {array[first]} is outside {lowest}..{INT32_MAX}")
    return _frozen(array.astype(np.int32))


def log_probs(name: str, values: Any) -> Float32Array:
    """A read-only float32 copy; NaN where a token was given, not drawn."""
    return _floats(
        name, values, LOG_PROB_SLACK, "log-probability: give finite numbers of at most 0"
    )


def scores(name: str, values: Any) -> Float32Array:
    """A read-only float32 copy; NaN where nothing was ranked."""
    return _floats(name, values, math.inf, "score: give finite numbers")


def times(name: str, values: Any) -> DoubleArray:
    """A read-only float64 copy, so that a network is asked again at the very same times."""
    return _floats(name, values, math.inf, "time: give finite numbers", np.float64)


def count(name: str, value: Any, *, lowest: int = 0, highest: int = INT32_MAX) -> int:
    """One whole number; booleans, floats and strings are refused."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name}: a whole number is needed, got {value!r}")
    if not lowest <= value <= highest:
        raise ValueError(f"{name} = {value} is outside {lowest}..{highest}")
    return int(value)


def seconds(name: str, value: Any) -> float:
    """A duration: finite and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{name}: a number of seconds is needed, got {value!r}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} = {value} is no duration: it must be finite and not negative")
    return float(value)


def text(name: str, value: Any) -> str:
    """A string that UTF-8 can hold. JSON may hold half a surrogate pair, which Parquet cannot."""
    if not isinstance(value, str):
        raise ValueError(f"{name}: a string is needed, got {value!r}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}: character {error.start} is half a surrogate pair; join the pieces of a split "
            "character, or write U+FFFD for it"
        ) from None
    return str(value)


def _floats(
    name: str, values: Any, most: float, wanted: str, kind: type[np.floating[Any]] = np.float32
) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name}: a flat list of numbers is needed, got shape {array.shape}")
    if array.size and array.dtype.kind not in "fiu":
        raise ValueError(f"{name}: numbers are needed, got {array.dtype} values")
    with np.errstate(over="ignore"):  # becomes infinite, which is refused below
        floats = array.astype(kind)
    wrong = np.flatnonzero(np.isinf(floats) | (floats > most))
    if wrong.size:
        first = int(wrong[0])
        raise ValueError(
            f"{name}[{first}] = {array[first]:g} is no {wanted}, NaN (null in JSON) where there is "
            "none"
        )
    return _frozen(floats)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


PER_TOKEN = ("token_ids", "insert_step", "reveal_step", "log_prob", "segment", "score", "block")


def check_blocks(trace: Trace) -> None:
    """Blocks are numbered from left to right, and every generated token has one."""
    if trace.block is None:
        return
    blocks, generated = trace.block, trace.timing()[1] > 0
    lacking = np.flatnonzero(generated & (blocks < 0))
    if lacking.size:
        raise ValueError(
            f"block[{lacking[0]}] = -1, and this token was generated: give the block of every "
            "generated token, or leave block out"
        )
    if (np.diff(blocks[blocks >= 0]) < 0).any():
        raise ValueError("block: the numbers fall somewhere: number blocks from left to right")


def check_tokens(trace: Trace) -> None:
    """Each column has one entry per token, and the pieces add up to the text."""
    ends = trace.char_end
    if ends is None:
        for name in (*PER_TOKEN, "prompt_ids", "events", "candidates", "ghosts", "times"):
            if getattr(trace, name) is not None:
                raise ValueError(f"{name} is given but char_end is not: tokens need both")
        return
    for name in PER_TOKEN:
        column = getattr(trace, name)
        if column is not None and len(column) != len(ends):
            raise ValueError(
                f"{name} has {len(column)} entries for {len(ends)} tokens: one each is needed"
            )
    if (trace.prompt_ids is None) != (trace.token_ids is None):
        raise ValueError("prompt_ids and token_ids go together: give both or neither")
    back = np.flatnonzero(np.diff(ends) < 0)
    if back.size:
        at = int(back[0]) + 1
        raise ValueError(
            f"char_end[{at}] = {ends[at]} is before char_end[{at - 1}] = {ends[at - 1]}"
        )
    last = int(ends[-1]) if len(ends) else 0
    if last != len(trace.text):
        raise ValueError(f"char_end ends at {last} but the text has {len(trace.text)} characters")


def check_steps(trace: Trace) -> None:
    """0 <= insert_step <= reveal_step <= steps, for each token; one time for each step.

    A slot that was still a mask at the end was never revealed: it has no text, and steps + 1.
    """
    if trace.times is not None and len(trace.times) != (trace.steps or 0):
        raise ValueError(
            f"times has {len(trace.times)} entries for {trace.steps} steps: one each is needed, "
            "NaN (null in JSON) where there is none"
        )
    if (trace.insert_step is None) != (trace.reveal_step is None):
        raise ValueError("insert_step and reveal_step go together: give both or neither")
    if trace.insert_step is None or trace.reveal_step is None:
        return
    if trace.steps is None:
        raise ValueError("steps is needed where reveal_step is given: the last snapshot's number")
    early = np.flatnonzero(trace.reveal_step < trace.insert_step)
    if early.size:
        at = int(early[0])
        raise ValueError(
            f"reveal_step[{at}] = {trace.reveal_step[at]} is before insert_step[{at}] = "
            f"{trace.insert_step[at]}: a slot is inserted first, or revealed in the same step"
        )
    assert trace.char_end is not None  # check_tokens refuses steps without it
    masked = (np.diff(trace.char_end, prepend=0) == 0) & (trace.insert_step <= trace.steps)
    late = np.flatnonzero(trace.reveal_step > trace.steps + masked)
    if late.size:
        at = int(late[0])
        raise ValueError(
            f"reveal_step[{at}] = {trace.reveal_step[at]} is after the last step: "
            f"steps = {trace.steps} is too small"
        )


def check_ghosts(trace: Trace) -> None:
    """Ghosts are in order, lived within the steps, and showed a token if they were revealed."""
    if trace.ghosts is None:
        return
    count = len(trace.timing()[0])
    before = -1
    for number, ghost in enumerate(trace.ghosts):
        name = f"ghosts[{number}]"
        if ghost.after >= count:
            raise ValueError(f"{name}.after = {ghost.after}, but there are {count} tokens")
        if ghost.after < before:
            raise ValueError(f"{name}: sort ghosts from left to right, by `after`")
        before = ghost.after
        _check_life(name, ghost, trace.steps or 0)
        if (ghost.piece is None) != (ghost.reveal_step is None):
            raise ValueError(
                f"{name}.piece: give it where the slot was deleted with a token, thus with a "
                "reveal_step, and only there"
            )
        _check_id(name, ghost, trace)


def _check_life(name: str, ghost: Ghost, steps: int) -> None:
    if not ghost.insert_step < ghost.delete_step <= steps:
        raise ValueError(
            f"{name} is inserted at {ghost.insert_step} and deleted at {ghost.delete_step}: a slot "
            f"is deleted after the step that inserts it, and by step {steps}, the last"
        )
    reveal = ghost.reveal_step
    if reveal is not None and not ghost.insert_step <= reveal < ghost.delete_step:
        raise ValueError(
            f"{name}.reveal_step = {reveal}, but the slot is inserted at {ghost.insert_step} and "
            f"deleted at {ghost.delete_step}: a reveal is not before the one and is before the "
            "other"
        )


def check_events(trace: Trace) -> None:
    """Events lie between a slot's insertion and its last reveal, sorted by step, then slot."""
    if trace.events is None:
        return
    lives, count = _lives(trace), len(trace.timing()[0])
    before = (-1, -1)
    latest: dict[int, Event] = {}
    for number, event in enumerate(trace.events):
        name = f"events[{number}]"
        if event.slot >= len(lives):
            ghosts = f" and {len(lives) - count} ghosts" if trace.ghosts else ""
            raise ValueError(f"{name}.slot = {event.slot}, but there are {count} tokens{ghosts}")
        begin, end, what = lives[event.slot]
        if not begin <= event.step < end:
            raise ValueError(
                f"{name}.step = {event.step}, but slot {event.slot} is inserted at {begin} and "
                f"{what} at {end}: an event is not before the one and is before the other"
            )
        if (event.step, event.slot) <= before:
            raise ValueError(f"{name}: sort events by step, then slot, each pair once")
        before, latest[event.slot] = (event.step, event.slot), event
        _check_id(name, event, trace)
    for number, ghost in enumerate(trace.ghosts or ()):
        event_of = latest.get(count + number)
        if ghost.reveal_step is None and event_of is not None and event_of.piece is not None:
            raise ValueError(
                f"ghosts[{number}] has no reveal_step, but its last event, of step "
                f"{event_of.step}, shows a token: give that step and token to the ghost instead"
            )


def _lives(trace: Trace) -> list[tuple[int, int, str]]:
    """Per slot: when it is inserted, when its last state begins, and what that state is."""
    insert, reveal = (column.tolist() for column in trace.timing())
    lives = [(*span, "last revealed") for span in zip(insert, reveal, strict=True)]
    for ghost in trace.ghosts or ():
        if ghost.reveal_step is None:
            lives.append((ghost.insert_step, ghost.delete_step, "deleted"))
        else:
            lives.append((ghost.insert_step, ghost.reveal_step, "last revealed"))
    return lives


def _check_id(name: str, shown: Event | Ghost, trace: Trace) -> None:
    has_id = shown.piece is not None and trace.token_ids is not None
    if has_id != (shown.token_id is not None):
        raise ValueError(
            f"{name}.token_id: give it where a token is shown and the trace has ids, only there"
        )


def check_candidates(trace: Trace) -> None:
    """Candidates are sorted by step, then segment, lie within the steps, and fit the segments."""
    if trace.candidates is None:
        return
    _, reveal = trace.timing()
    last = {}  # per segment, the step of its reveal
    if trace.segment is not None:
        last = dict(zip(trace.segment.tolist(), reveal.tolist(), strict=True))
    before = (0, -1)
    for number, each in enumerate(trace.candidates):
        name = f"candidates[{number}]"
        if each.step > (trace.steps or 0):
            raise ValueError(f"{name}.step = {each.step}, but there are {trace.steps} steps")
        if (each.step, each.segment) <= before:
            raise ValueError(f"{name}: sort candidates by step, then segment, each pair once")
        before = (each.step, each.segment)
        if (each.token_ids is None) != (trace.token_ids is None):
            raise ValueError(f"{name}.token_ids: give it where the trace has ids, and only there")
        if trace.segment is not None and each.segment not in last:
            raise ValueError(f"{name}.segment = {each.segment}, which no token belongs to")
        if each.taken and trace.segment is not None and last[each.segment] < each.step:
            raise ValueError(
                f"{name}: segment {each.segment} is taken in step {each.step}, but was revealed in "
                f"step {last[each.segment]}"
            )
