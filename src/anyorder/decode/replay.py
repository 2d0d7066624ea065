"""The canvases of a stored trace, as a network saw them.

The canvas after step s is rebuilt from the trace (trace/trace.py), with the prompt in front.
Step s + 1 was decided on it, so the tokens *committed* from it are those that the sampler revealed
next: in step s + 1 if the network reads time. If it reads none, in the next step that changes
anything, since until then it sees the same canvas. Tokens that were not drawn (for example filled
in after an end of sequence) are no commitments.

Where a sampler fills blocks from left to right (trace/blocks.py), only the open slots of the block
that it is filling are read: it could commit nothing elsewhere.

Not here: the network (families/replay.py), and the choice of tokens to read.
Letters: L positions, N slots that are read, C committed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anyorder.trace import Snapshot, Trace

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Replay:
    """A trace, and the part of it to read."""

    trace: Trace
    steps: Sequence[int]
    """Read the canvases after these numbers of steps."""
    inside: BoolArray
    """Which of the trace's tokens to read, while they are masked; deleted slots never are."""
    canvas: Any = None
    key: int | None = None
    """The first canvas and the noise key. The event clock needs both; canvases of segments need the
    first if some segments were frozen in front."""
    blocks: IntArray | None = None
    """The block of each of the trace's tokens; None: there are no blocks."""


@dataclass(frozen=True, eq=False)
class CanvasFacts:
    """The facts about one canvas of a trace before the network is called on it."""

    step: int
    time: float | None
    """The network's time; None if it reads none."""
    open: int
    """Open slots on it, read or not: of tokens, or of segments; of the block that is being filled,
    where there are blocks."""
    committed: IntArray  # C
    """Positions of the tokens committed from it that are read, numbered as in its posterior."""
    tokens: IntArray  # C
    """The tokens committed there."""
    log_prob: FloatArray  # C
    """Their log-probabilities in the trace; NaN where it has none."""


class CanvasBelief(Protocol):
    """The posterior of one canvas: a source for measure/placement_scores.py."""

    @property
    def positions(self) -> IntArray: ...
    def mass(self) -> FloatArray: ...
    def profile(self, tokens: IntArray) -> FloatArray: ...


class TraceReader(Protocol):
    """A family's reader: it calls a network on the canvases of stored traces."""

    def moments(self, replays: Sequence[Replay]) -> Sequence[Sequence[CanvasFacts]]:
        """The canvases of each replay."""
        ...

    def posteriors(
        self, moments: Sequence[Any], batch: int = 32
    ) -> Iterator[tuple[int, CanvasBelief]]:
        """(number of the moment, its posterior), for moments with something to read."""
        ...


@dataclass(frozen=True, eq=False)
class Moment(CanvasFacts):
    """One canvas of a trace of tokens."""

    ids: IntArray  # L, with the prompt; the mask id where masked
    places: IntArray  # N
    """Positions of the slots that are read."""
    slots: IntArray  # N
    """Which of the trace's tokens they become."""
    prompt: int
    """Tokens of the prompt."""


def name_of(trace: Trace) -> str:
    return f"trace {trace.task_id!r} sample {trace.sample}"


def without_ids(trace: Trace) -> ValueError:
    """The error for a trace that no network can read."""
    return ValueError(
        f"{name_of(trace)} holds strings, not token ids, and a network reads ids: import it with "
        "its ids, or sample it again"
    )


def other_canvas(trace: Trace) -> ValueError:
    """The error for a trace that does not fit its run."""
    return ValueError(
        f"{name_of(trace)} did not begin with the canvas that its run describes: the run card and "
        "the traces do not belong together"
    )


def moment_of(replay: Replay, step: int, time: float | None, mask_id: int) -> Moment:
    """The canvas after `step` steps, on which the network is called at `time`."""
    trace = replay.trace
    now = trace.replay(step)
    if now.token_ids is None or now.prompt_ids is None:
        raise without_ids(trace)
    masked = ~now.revealed
    if replay.blocks is not None:
        masked &= _being_filled(replay.blocks, now)
    ghosts = np.zeros(len(trace.ghosts or ()), dtype=bool)  # no final token, so never read
    read = masked & np.concatenate([replay.inside, ghosts])[now.slots]
    slots = now.slots[read].astype(np.int64)
    committed, tokens, log_prob = _committed(trace, slots, _next(trace, step, time is not None))
    return Moment(
        step=step,
        time=time,
        ids=now.ids(mask_id, prompt=True).astype(np.int64),
        open=int(masked.sum()),
        places=len(now.prompt_ids) + np.flatnonzero(read),
        prompt=len(now.prompt_ids),
        slots=slots,
        committed=committed,
        tokens=tokens,
        log_prob=log_prob,
    )


def _being_filled(blocks: IntArray, now: Snapshot) -> BoolArray:
    """Which slots of a canvas are in the first block with an open slot."""
    final = now.slots < len(blocks)  # a ghost has no final token, and no block
    block = np.where(final, blocks[np.where(final, now.slots, 0)], -1)
    unfinished = block[~now.revealed & (block >= 0)]
    return block == unfinished.min() if len(unfinished) else np.zeros(len(block), dtype=bool)


def _next(trace: Trace, step: int, timed: bool) -> Snapshot | None:
    """The next canvas that differs, if it was decided by the call on this one."""
    insert, reveal = trace.timing()
    events = np.asarray([event.step for event in trace.events or ()], dtype=np.int64)
    lives = [ghost[1:4] for ghost in trace.ghosts or ()]  # insert, reveal, delete
    ghosts = np.asarray([at for life in lives for at in life if at is not None], dtype=np.int64)
    changes = np.concatenate([insert, reveal, events, ghosts])
    later = changes[(changes > step) & (changes <= (trace.steps or 0))]
    if not len(later) or (timed and later.min() != step + 1):
        return None
    return trace.replay(int(later.min()))


def _committed(
    trace: Trace, slots: IntArray, following: Snapshot | None
) -> tuple[IntArray, IntArray, FloatArray]:
    """Which of the masked slots show a token next, which one, and its log-probability."""
    nothing = np.zeros(0, dtype=np.int64)
    if following is None:
        return nothing, nothing, np.zeros(0)
    assert following.token_ids is not None
    # These slots are final, so none has left the canvas; ghosts may stand between them.
    final = np.flatnonzero(following.slots < len(trace.timing()[0]))
    at = final[np.searchsorted(following.slots[final], slots)]
    shown = following.revealed[at]
    slots, tokens = slots[shown], following.token_ids[at][shown].astype(np.int64)
    log_prob = np.full(len(slots), np.nan)
    if trace.log_prob is not None:
        # The trace keeps log-probabilities of last reveals only: tokens that were masked again
        # have none, and a missing one at a last reveal means that the token was not drawn.
        last = trace.timing()[1][slots] == following.step
        log_prob[last] = trace.log_prob[slots][last]
        drawn = ~last | ~np.isnan(log_prob)
        slots, tokens, log_prob = slots[drawn], tokens[drawn], log_prob[drawn]
    return slots, tokens, log_prob
