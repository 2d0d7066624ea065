"""The canvases of segments that a stored trace went through, as a network saw them.

A trace says of every token which segment it belongs to and when that was inserted and revealed; an
empty segment is one EOS. So after s steps the canvas holds the segments inserted by then, in
reading order, each revealed or open. Segments that were frozen in front of the first free place
stand in the trace's prompt, and only the canvas it began with can tell them apart.

Places of tokens are numbered through the segments: place j of segment n is n * L_seg + j. Step
s + 1 was decided on the canvas after s steps, and the tokens *committed* from it are those of the
segments revealed next, at their own places (moments.py says when that is). Segments that were not
drawn (emptied by the tail rule) are no commitments; nor are the ends that close segments with
content, which a trace does not hold.

What the erasing tail rule of mode compat threw away is in a trace only if its candidates are.

A segment is looked at while it is open, if any of its final tokens is: what stands at a place of
its tentative text has no final text of its own.

Not here: the network and tentative texts (segment_replayer.py). Letters: C committed tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from anyorder.decode.moments import FloatArray, IntArray, Replay
from anyorder.trace import Trace

Ids = tuple[int, ...]


class Segment(NamedTuple):
    """One segment of a trace."""

    number: int
    ids: Ids
    """Its final tokens; none: it is empty."""
    insert: int
    reveal: int
    log_prob: FloatArray | None
    """Of its tokens, or of the EOS that says that it is empty; None where the trace has none."""
    inside: bool
    """Whether to look at it while it is open."""
    erased: tuple[int, Ids] | None = None
    """What it showed from which step on, before its reveal emptied it."""

    def shown(self, step: int) -> Ids | None:
        """What it shows after `step` steps; None: it is open."""
        if self.reveal <= step:
            return self.ids
        return self.erased[1] if self.erased is not None and self.erased[0] <= step else None

    def drawn(self, step: int) -> tuple[Ids, FloatArray] | None:
        """What it was revealed to be in this very step, and the log-probabilities; None: nothing.

        Of an empty segment, no tokens and the log-probability of its EOS.
        """
        if self.erased is not None and self.erased[0] == step:
            return self.erased[1], _unknown(self.erased[1])
        if self.reveal != step or (self.log_prob is not None and np.isnan(self.log_prob).any()):
            return None
        return self.ids, _unknown(self.ids) if self.log_prob is None else self.log_prob


class Slot(NamedTuple):
    """One segment on a canvas."""

    number: int
    ids: Ids
    """What it shows, is committed to next, or is in the end; none: it is empty."""
    open: bool
    read: bool
    """Whether it is looked at."""
    taken: bool
    """Whether it is committed next."""


@dataclass(frozen=True, eq=False)
class SegmentMoment:
    """One canvas of a trace."""

    step: int
    time: float | None
    """What the network is told; None where it has no time."""
    prompt: Ids
    slots: tuple[Slot, ...]
    """Left to right."""
    committed: IntArray  # C
    """Places of the tokens that were committed from this canvas, and are looked at."""
    tokens: IntArray  # C
    log_prob: FloatArray  # C
    """What the trace says of them; NaN where it says nothing."""

    @property
    def open(self) -> int:
        """Open segments, whether looked at or not."""
        return sum(slot.open for slot in self.slots)


@dataclass(frozen=True, eq=False)
class SegmentTrace:
    """A trace as segments."""

    trace: Trace
    prompt: Ids
    segments: tuple[Segment, ...]
    """In reading order, those frozen in front included."""
    eos_id: int

    @classmethod
    def of(cls, replay: Replay, eos_id: int) -> SegmentTrace:
        """ValueError where the trace does not tell its segments."""
        trace = replay.trace
        if trace.token_ids is None or trace.prompt_ids is None:
            raise ValueError(
                f"{_name(trace)} holds strings, not token ids, and a network reads ids: import it "
                "with its ids, or sample it again"
            )
        if trace.segment is None or (trace.segment < 0).any():
            raise ValueError(
                f"{_name(trace)} does not tell the segment of each token: sample it again"
            )
        owner = trace.segment
        numbers = sorted(set(owner.tolist()))
        prompt, lead = _front(replay, numbers[0] if numbers else None)
        given = [Segment(number, ids, 0, 0, None, False) for number, ids in enumerate(lead)]
        found = [_segment(replay, np.flatnonzero(owner == number), eos_id) for number in numbers]
        return cls(trace, prompt, (*given, *found), eos_id)

    def moment(self, step: int, time: float | None, segment_length: int) -> SegmentMoment:
        """The canvas after `step` steps, on which the network is asked at `time`."""
        following = self._next(step, timed=time is not None)
        slots: list[Slot] = []
        commits: list[tuple[int, int, float]] = []
        for each in self.segments:
            if each.insert > step:
                continue
            shown = each.shown(step)
            drawn = each.drawn(following) if shown is None and following is not None else None
            ids = shown if shown is not None else each.ids if drawn is None else drawn[0]
            read = shown is None and each.inside
            slots.append(Slot(each.number, ids, shown is None, read, drawn is not None))
            if drawn is not None and each.inside:
                place = each.number * segment_length
                shows = drawn[0] or (self.eos_id,)
                places = range(place, place + len(shows))
                commits += zip(places, shows, drawn[1].tolist(), strict=True)
        committed, tokens, log_prob = zip(*commits, strict=True) if commits else ((), (), ())
        return SegmentMoment(
            step=step,
            time=time,
            prompt=self.prompt,
            slots=tuple(slots),
            committed=np.asarray(committed, dtype=np.int64),
            tokens=np.asarray(tokens, dtype=np.int64),
            log_prob=np.asarray(log_prob, dtype=np.float64),
        )

    def check_erased(self, k: int) -> None:
        """Refuse a trace of `k` reveals a step from which some are gone; candidates have them."""
        if self.trace.candidates is not None:
            return
        for step in range(1, (self.trace.steps or 0) + 1):
            waiting = sum(each.shown(step - 1) is None for each in self.segments)
            found = sum(each.drawn(step) is not None for each in self.segments)
            if found < min(k, waiting):
                raise ValueError(
                    f"{_name(self.trace)}: what step {step} revealed was erased later, so its "
                    "canvases cannot be rebuilt: sample it again with candidates=True, or with "
                    "another tail"
                )

    def _next(self, step: int, *, timed: bool) -> int | None:
        """The step that was decided on this canvas: the next change, or the next step only."""
        changes = {each.insert for each in self.segments} | {each.reveal for each in self.segments}
        changes |= {each.erased[0] for each in self.segments if each.erased is not None}
        later = min((change for change in changes if change > step), default=None)
        return None if timed and later != step + 1 else later


def _front(replay: Replay, first: int | None) -> tuple[Ids, tuple[Ids, ...]]:
    """The prompt, and the segments frozen between it and the first that the trace names, if any."""
    trace, canvas = replay.trace, replay.canvas
    assert trace.prompt_ids is not None
    ids = tuple(trace.prompt_ids.tolist())
    if canvas is None:
        if first:
            raise ValueError(
                f"{_name(trace)} begins with segment {first}, so some were given with its prompt: "
                "give the canvas that it began with"
            )
        return ids, ()
    lead = tuple(segment or () for segment in canvas.segments[:first])
    if canvas.prompt + tuple(token for segment in lead for token in segment) != ids:
        raise ValueError(
            f"{_name(trace)} did not begin with the canvas that its run describes: the run card "
            "and the traces do not belong together"
        )
    return canvas.prompt, lead


def _segment(replay: Replay, at: IntArray, eos_id: int) -> Segment:
    """The segment whose tokens stand at these places of the trace."""
    trace = replay.trace
    insert, reveal = trace.timing()
    assert trace.token_ids is not None and trace.segment is not None
    number, ids = int(trace.segment[at[0]]), tuple(trace.token_ids[at].tolist())
    if len(set(insert[at].tolist())) > 1 or len(set(reveal[at].tolist())) > 1:
        raise ValueError(
            f"{_name(trace)}: the tokens of segment {number} have different steps, and a segment "
            "is inserted and revealed as one"
        )
    return Segment(
        number=number,
        ids=() if ids == (eos_id,) else ids,
        insert=int(insert[at[0]]),
        reveal=int(reveal[at[0]]),
        log_prob=None if trace.log_prob is None else trace.log_prob[at].astype(np.float64),
        inside=bool(replay.inside[at].any()),
        erased=next(
            (
                (each.step, each.token_ids)
                for each in trace.candidates or ()
                if each.taken and each.segment == number and each.step < reveal[at[0]]
                if each.token_ids is not None
            ),
            None,
        ),
    )


def _unknown(ids: Ids) -> FloatArray:
    """No log-probability for each token, or for the EOS of an empty segment."""
    return np.full(max(1, len(ids)), np.nan)


def _name(trace: Trace) -> str:
    return f"trace {trace.task_id!r} sample {trace.sample}"
