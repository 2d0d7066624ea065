"""Reads stored traces of segments again: the posteriors along tentative segments.

As in the LatentMDM release's own analysis. The canvas after s steps is rebuilt, and the latent
network is called on it once, at the sampler's time (replay.py; latentmdm has none). Every open
segment that is read then has a tentative text. The *positions* of placement are the places along
these texts, each up to and including its closing EOS: at place j, the posterior of the token given
the tentative tokens before it. The tentative text is

    of a segment that is committed next     the committed text
    of any other                            the most likely token at every place (greedy)

so that the probability of a committed token is the `log_prob` of the trace. At temperature 0, the
sampler's candidates are these very texts. To find greedy texts, the segment's final text is
verified and continued from its first wrong token (latentmdm/candidates.py): most need one pass.

MASK, PAD and BOS are forbidden, and EOS at the first place if no segment may be empty (flexlatent).

Canvases. A trace says which segment each token belongs to, and when that was inserted and revealed;
an empty segment is one EOS. So after s steps the canvas holds the segments inserted by then, in
reading order, each revealed or open. Segments frozen in front of the first free place are in the
trace's prompt, and only its first canvas can separate them. A segment is read while it is open, if
any of its final tokens is to be read.

Place j of segment n has the number n * L_seg + j. The tokens *committed* from a canvas are those of
the segments revealed next (decode/replay.py says when). Segments that were not drawn (emptied by
the tail rule) are no commitments; nor are closing EOS, which a trace does not hold. A trace keeps
what the erasing tail rule of mode compat removed only if it keeps candidates. Segments that a
correction deleted are its ghosts: they are on the canvases of their time, but never read.

Not here: traces of tokens (replay.py), and measures of posteriors (measure/placement_scores.py).
Letters: B canvases (rows), S slots, L items (anchor and segments), N segments that are read,
T places of a segment, C committed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyorder.decode.canvas import padded
from anyorder.decode.draw import Draw
from anyorder.decode.growing import FrozenRow, Growth
from anyorder.decode.loop import Proposer
from anyorder.decode.policy import Policy
from anyorder.decode.replay import (
    CanvasFacts,
    FloatArray,
    IntArray,
    Replay,
    name_of,
    other_canvas,
    without_ids,
)
from anyorder.families.flexlatent import decode as flexlatent
from anyorder.families.flexlatent.config import FlexLatentOptions
from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.candidates import Candidates, never_written
from anyorder.families.latentmdm.config import LatentOptions
from anyorder.families.replay import (
    CanvasPosterior,
    Times,
    Walk,
    began,
    times_by_clock,
    times_of,
)
from anyorder.nets.denoiser import ReadPrompt, SegmentCoder, SegmentInserter, SegmentNet
from anyorder.trace import Trace
from anyorder.vocab import Vocab

SegmentTokens = tuple[int, ...]


class TraceSegment(NamedTuple):
    """One segment of a trace."""

    number: int
    ids: SegmentTokens
    """Its final tokens; (): it is empty."""
    insert: int
    reveal: int
    log_prob: FloatArray | None
    """Of its tokens, or of the EOS of an empty segment; None if the trace has none."""
    inside: bool
    """Whether to read it while it is open."""
    gone: int | None = None
    """The step that deleted it."""
    erased: tuple[int, SegmentTokens] | None = None
    """(step, text) that it showed from that step on, before the tail rule emptied it."""

    def there(self, step: int) -> bool:
        """Whether it is on the canvas after `step` steps."""
        return self.insert <= step and (self.gone is None or step < self.gone)

    def shown(self, step: int) -> SegmentTokens | None:
        """Its text after `step` steps; None: it is open."""
        if self.reveal <= step:
            return self.ids
        return self.erased[1] if self.erased is not None and self.erased[0] <= step else None

    def drawn(self, step: int) -> tuple[SegmentTokens, FloatArray] | None:
        """The text drawn in this step and its log-probabilities; None: nothing was drawn.

        An empty segment has no tokens, and the log-probability of its EOS.
        """
        if self.erased is not None and self.erased[0] == step:
            return self.erased[1], _unknown(self.erased[1])
        if self.reveal != step or (self.log_prob is not None and np.isnan(self.log_prob).any()):
            return None
        return self.ids, _unknown(self.ids) if self.log_prob is None else self.log_prob


class Slot(NamedTuple):
    """One segment on a canvas."""

    number: int
    ids: SegmentTokens
    """Its text: shown now, or committed next, or final; (): it is empty."""
    open: bool
    read: bool
    taken: bool
    """Whether it is committed next."""


@dataclass(frozen=True, eq=False)
class SegmentMoment(CanvasFacts):
    """One canvas of a trace of segments."""

    prompt: SegmentTokens
    slots: tuple[Slot, ...]
    """Left to right."""


@dataclass(frozen=True, eq=False)
class SegmentTrace:
    """A trace as segments."""

    trace: Trace
    prompt: SegmentTokens
    segments: tuple[TraceSegment, ...]
    """In reading order, those frozen in front included."""
    eos_id: int

    @classmethod
    def of(cls, replay: Replay, eos_id: int) -> SegmentTrace:
        """Refuses a trace that does not name the segment of each token."""
        trace = replay.trace
        if trace.token_ids is None or trace.prompt_ids is None:
            raise without_ids(trace)
        if trace.segment is None or (trace.segment < 0).any():
            raise ValueError(
                f"{name_of(trace)} does not name the segment of each token: sample it again"
            )
        if trace.events:
            raise ValueError(
                f"{name_of(trace)} has tokens that changed, and a segment is inserted, revealed "
                "and deleted as one: sample it again"
            )
        owner = trace.segment
        numbers = sorted(set(owner.tolist()))
        prompt, lead = _front(replay, numbers[0] if numbers else None)
        given = [TraceSegment(number, ids, 0, 0, None, False) for number, ids in enumerate(lead)]
        places = [np.flatnonzero(owner == number) for number in numbers]
        found, ends = [_segment(replay, at, eos_id) for at in places], [at[-1] for at in places]
        return cls(trace, prompt, (*given, *_with_ghosts(trace, found, ends)), eos_id)

    def moment(self, step: int, time: float | None, segment_length: int) -> SegmentMoment:
        """The canvas after `step` steps, on which the network is called at `time`."""
        following = self._next(step, timed=time is not None)
        slots: list[Slot] = []
        commits: list[tuple[int, int, float]] = []
        for each in self.segments:
            if not each.there(step):
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
            open=sum(slot.open for slot in slots),
            prompt=self.prompt,
            slots=tuple(slots),
            committed=np.asarray(committed, dtype=np.int64),
            tokens=np.asarray(tokens, dtype=np.int64),
            log_prob=np.asarray(log_prob, dtype=np.float64),
        )

    def check_erased(self, k: int) -> None:
        """Refuse a trace of `k` reveals per step that has lost some; candidates would have them."""
        if self.trace.candidates is not None:
            return
        for step in range(1, (self.trace.steps or 0) + 1):
            waiting = sum(each.shown(step - 1) is None for each in self.segments)
            found = sum(each.drawn(step) is not None for each in self.segments)
            if found < min(k, waiting):
                raise ValueError(
                    f"{name_of(self.trace)}: what step {step} revealed was erased later, so its "
                    "canvases cannot be rebuilt: sample it again with candidates=True, or with "
                    "another tail"
                )

    def _next(self, step: int, *, timed: bool) -> int | None:
        """The step decided on this canvas: the next change; if `timed`, only the next step."""
        changes = {each.insert for each in self.segments} | {each.reveal for each in self.segments}
        changes |= {each.erased[0] for each in self.segments if each.erased is not None}
        changes |= {each.gone for each in self.segments if each.gone is not None}
        later = min((change for change in changes if change > step), default=None)
        return None if timed and later != step + 1 else later


def _front(replay: Replay, first: int | None) -> tuple[SegmentTokens, tuple[SegmentTokens, ...]]:
    """The prompt, and the segments frozen between it and the trace's first segment."""
    trace, canvas = replay.trace, replay.canvas
    assert trace.prompt_ids is not None
    ids = tuple(trace.prompt_ids.tolist())
    if canvas is None:
        if first:
            raise ValueError(
                f"{name_of(trace)} begins with segment {first}, so some were given with its "
                "prompt: give the canvas that it began with"
            )
        return ids, ()
    lead = tuple(segment or () for segment in canvas.segments[:first])
    if canvas.prompt + tuple(token for segment in lead for token in segment) != ids:
        raise other_canvas(trace)
    return canvas.prompt, lead


def _segment(replay: Replay, at: IntArray, eos_id: int) -> TraceSegment:
    trace = replay.trace
    insert, reveal = trace.timing()
    assert trace.token_ids is not None and trace.segment is not None
    number, ids = int(trace.segment[at[0]]), tuple(trace.token_ids[at].tolist())
    if len(set(insert[at].tolist())) > 1 or len(set(reveal[at].tolist())) > 1:
        raise ValueError(
            f"{name_of(trace)}: the tokens of segment {number} have different steps, and a segment "
            "is inserted and revealed as one"
        )
    return TraceSegment(
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


def _with_ghosts(
    trace: Trace, found: Sequence[TraceSegment], ends: Sequence[int]
) -> Iterator[TraceSegment]:
    """Final and deleted segments in order; `ends`: the last token of each final one."""
    ghosts = list(_ghosts(trace))
    for segment, end in zip([None, *found], [-1, *ends], strict=True):
        if segment is not None:
            yield segment
        while ghosts and ghosts[0][0] == end:
            yield ghosts.pop(0)[1]
    if ghosts:
        raise ValueError(f"{name_of(trace)} has deleted tokens inside a segment: sample it again")


def _ghosts(trace: Trace) -> Iterator[tuple[int, TraceSegment]]:
    """The deleted segments, each with the token behind which it stood.

    A step deletes one segment: neighbouring ghosts of one step are its tokens. They are never read.
    """
    for (after, gone), group in groupby(trace.ghosts or (), attrgetter("after", "delete_step")):
        tokens = list(group)
        ids = tuple(each.token_id for each in tokens if each.token_id is not None)
        lives = {(each.insert_step, each.reveal_step) for each in tokens}
        insert, reveal = lives.pop()
        if lives or reveal is None:
            raise ValueError(
                f"{name_of(trace)}: the tokens that step {gone} deleted were not revealed as one "
                "segment: sample it again"
            )
        yield after, TraceSegment(GONE, ids, insert, reveal, None, False, gone)


def _unknown(ids: SegmentTokens) -> FloatArray:
    """NaN for each token, or for the EOS of an empty segment."""
    return np.full(max(1, len(ids)), np.nan)


GONE = -1  # the number of every deleted segment, which is never read
OPEN, EMPTY, FIRST = 0, 1, 2
"""Rows of the table of latents: the mask vector, the empty vector, the first known segment."""


@dataclass(frozen=True)
class SegmentInputs:
    """Turns canvases into the inputs of one network."""

    net: SegmentCoder
    vocab: Vocab
    empty: Tensor | None = None  # D
    """The latent of an empty segment, if the network has one."""
    slots: int | None = None
    """Every canvas has this many slots, each at its number; those that a trace does not name are
    empty. None: the segments of a canvas are packed from the left."""
    device: torch.device | str = "cpu"

    def of(self, moments: Sequence[SegmentMoment]) -> tuple[ReadPrompt, Tensor, Tensor]:
        """Prompts, latents (B S D), and the real slots (B S)."""
        # Canvases of one trace share most prompts and segments: each is encoded once.
        prompts = sorted({moment.prompt for moment in moments})
        read = self.net.read(*self.padded(prompts))
        prompt = read.keep(self.numbers([prompts.index(moment.prompt) for moment in moments]))
        lengths = [len(moment.slots) if self.slots is None else self.slots for moment in moments]
        shown = [
            (row, place, slot)
            for row, moment in enumerate(moments)
            for place, slot in self.places(moment)
        ]
        known = sorted({slot.ids for _, _, slot in shown if slot.ids and not slot.open})
        number = {ids: FIRST + at for at, ids in enumerate(known)} | {(): EMPTY}
        which = torch.full((len(moments), max(lengths)), EMPTY)  # B S
        for row, place, slot in shown:
            which[row, place] = OPEN if slot.open else number[slot.ids]
        real = torch.arange(which.shape[1]) < torch.tensor(lengths)[:, None]
        return prompt, self._vectors(known)[which.to(self.device)], real.to(self.device)

    def places(self, moment: SegmentMoment) -> Iterator[tuple[int, Slot]]:
        """Each segment and its place on the canvas."""
        for place, slot in enumerate(moment.slots):
            if self.slots is not None and slot.number == GONE:
                raise ValueError(
                    "a trace has deleted segments, and the slots of this model stay: give the "
                    "model that made it"
                )
            if self.slots is not None and slot.number >= self.slots:
                raise ValueError(
                    f"a trace has a segment {slot.number} and this model {self.slots} slots: give "
                    "the model that made it"
                )
            yield place if self.slots is None else slot.number, slot

    def _vectors(self, known: Sequence[SegmentTokens]) -> Tensor:
        """The latents of an open slot, of an empty one and of known segments.  # N D"""
        mask = self.net.mask_vector.to(self.device)
        empty = torch.zeros_like(mask) if self.empty is None else self.empty.to(mask)
        fixed = torch.stack([mask, empty])
        if not known:
            return fixed
        return torch.cat([fixed, self.net.encode(*self.padded(known)).to(mask)])

    def padded(self, rows: Sequence[SegmentTokens]) -> tuple[Tensor, Tensor]:
        """SegmentTokens and lengths of ragged rows.  # N T, N"""
        ids, length = padded(rows, self.vocab.pad_id)
        return ids.to(self.device), length.to(self.device)

    def numbers(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


@dataclass(frozen=True)
class SegmentView:
    """Canvases of flexlatent."""

    net: SegmentInserter
    inputs: SegmentInputs

    def walk(self, replay: Replay) -> Walk:
        canvas, key = began(replay)
        read = SegmentTrace.of(replay, self.inputs.vocab.eos_id)
        insert = np.asarray([each.insert for each in read.segments], dtype=np.int64)
        reveal = np.asarray([each.reveal for each in read.segments], dtype=np.int64)
        frozen = tuple(each.ids for each in read.segments if each.insert == 0)
        if frozen != canvas.segments:
            raise other_canvas(replay.trace)
        last = max(replay.steps, default=-1)
        return Walk(replay.trace, key, last, insert, reveal, (read, canvas))

    def rows(self, walks: Sequence[Walk], step: int) -> Growth:
        beginnings, opens = [], []
        for walk in walks:
            _, canvas = walk.about
            after = np.ones(len(walk.insert), dtype=bool)
            after[walk.insert == 0] = canvas.grows[1:]
            there = walk.insert <= step
            grows = [canvas.grows[0], *after[there].tolist()]
            inserted = int((walk.insert[there] > 0).sum())
            beginnings.append(FrozenRow(grows, canvas.room - inserted, walk.key))
            opens.append(np.concatenate([[False], walk.reveal[there] > step]))
        rows = Growth.begin(beginnings, torch.device(self.inputs.device))
        for row, flags in enumerate(opens):
            rows.open[row, : len(flags)] = torch.from_numpy(flags).to(rows.open.device)
        return rows

    def gaps(self, walks: Sequence[Walk], step: int, rows: Growth, time: Tensor) -> Tensor:
        moments = [walk.about[0].moment(step, None, self.net.segment_length) for walk in walks]
        return self.net.look(*self.inputs.of(moments), time=time).gaps


ReadConditions = Callable[[ReadPrompt, Tensor, Tensor, Tensor | None], Tensor]
"""(prompts, latents B S D, real B S, time B or None) -> B S D."""


class SegmentPosterior(CanvasPosterior):
    """The posteriors along the tentative texts of one canvas."""

    def __init__(
        self, states: Tensor, positions: IntArray, proposer: Proposer, endless: Tensor
    ) -> None:
        super().__init__(states, positions, proposer)
        self._endless = endless  # N, where EOS is forbidden

    def _logits(self, piece: Tensor) -> Tensor:
        logits = super()._logits(piece)
        logits[self._endless[piece], self._proposer.vocab.eos_id] = -torch.inf
        return logits


@dataclass(frozen=True)
class SegmentReader:
    """A network over segments, and how it is called on a canvas."""

    net: SegmentCoder
    conditions: ReadConditions
    inputs: SegmentInputs
    may_be_empty: bool
    """Whether EOS may be a segment's first token."""
    times: Times | None = None
    """The network's time at each step of each replay; None: it reads none."""
    erased_of: int | None = None
    """Reveals per step, if the tail rule may have erased some later; None: it erases none."""

    def moments(self, replays: Sequence[Replay]) -> list[list[SegmentMoment]]:
        """The canvases of each replay."""
        eos_id, most = self.inputs.vocab.eos_id, self.net.segment_length
        traces = [SegmentTrace.of(replay, eos_id) for replay in replays]
        if self.erased_of is not None:
            for trace in traces:
                trace.check_erased(self.erased_of)
        times = times_of(replays, self.times)
        return [
            [trace.moment(step, time, most) for step, time in zip(each.steps, row, strict=True)]
            for each, trace, row in zip(replays, traces, times, strict=True)
        ]

    def posteriors(
        self, moments: Sequence[SegmentMoment], batch: int = 32
    ) -> Iterator[tuple[int, SegmentPosterior]]:
        """(number of the moment, its posterior), by length, if it has segments to read.

        Use each before the next: memory is meant for the probabilities of one canvas.
        """
        numbers = [
            number
            for number, moment in enumerate(moments)
            if any(slot.read for slot in moment.slots)
        ]
        numbers.sort(key=lambda number: len(moments[number].prompt))
        proposer = self._proposer()
        for start in range(0, len(numbers), batch):
            group = numbers[start : start + batch]
            found = self._look([moments[number] for number in group])
            for number, (states, positions) in zip(group, found, strict=True):
                first = positions % self.net.segment_length == 0
                endless = torch.as_tensor(first & (not self.may_be_empty), device=states.device)
                yield number, SegmentPosterior(states, positions, proposer, endless)

    def _proposer(self) -> Proposer:
        vocab = self.inputs.vocab
        return Proposer(self.net.head, vocab, Policy(), Draw(), never_written(vocab))

    @torch.inference_mode()
    def _look(self, moments: Sequence[SegmentMoment]) -> list[tuple[Tensor, IntArray]]:
        """For each canvas the states at its positions (N D), and their numbers (N)."""
        read = [
            (row, place, slot)
            for row, moment in enumerate(moments)
            for place, slot in self.inputs.places(moment)
            if slot.read
        ]
        row = self.inputs.numbers([row for row, _, _ in read])
        place = self.inputs.numbers([place for _, place, _ in read])
        conditions = self._call(moments)[row, place]  # N D
        texts = self._texts([slot for _, _, slot in read], conditions)
        states = self._read(texts, conditions)  # N T D
        found: list[tuple[list[Tensor], list[IntArray]]] = [([], []) for _ in moments]
        for number, ((owner, _, slot), text) in enumerate(zip(read, texts, strict=True)):
            found[owner][0].append(states[number, : len(text)])
            found[owner][1].append(slot.number * self.net.segment_length + np.arange(len(text)))
        return [(torch.cat(rows), np.concatenate(places)) for rows, places in found]

    def _call(self, moments: Sequence[SegmentMoment]) -> Tensor:
        """The conditions of all slots.  # B S D"""
        time = None
        if self.times is not None:
            times = [moment.time for moment in moments]
            time = torch.tensor(times, dtype=torch.float64, device=self.inputs.device)
        return self.conditions(*self.inputs.of(moments), time)

    def _texts(self, slots: Sequence[Slot], conditions: Tensor) -> list[SegmentTokens]:
        """The tentative text of each segment, its closing EOS included."""
        vocab, most = self.inputs.vocab, self.net.segment_length
        texts = [slot.ids if len(slot.ids) == most else (*slot.ids, vocab.eos_id) for slot in slots]
        free = [number for number, slot in enumerate(slots) if not slot.taken]
        if not free:
            return texts
        row = torch.arange(len(free), device=conditions.device)
        slot = torch.zeros_like(row)  # one row for each segment; greedy, so without noise
        store = Candidates(self.net, vocab, Draw(), slot, 1, may_be_empty=self.may_be_empty)
        # Start from the final text: most greedy texts are confirmed in one pass.
        guess, length = self.inputs.padded([texts[number] for number in free])
        store.tokens[:, 0, : guess.shape[1]] = guess
        store.length[:, 0] = length
        store.refresh(row, slot, conditions[self.inputs.numbers(free)])
        written = zip(free, store.tokens[:, 0].tolist(), store.length[:, 0].tolist(), strict=True)
        for number, ids, count in written:
            texts[number] = tuple(ids[:count])
        return texts

    def _read(self, texts: Sequence[SegmentTokens], conditions: Tensor) -> Tensor:
        """The states that predict the tokens of each text.  # N T D"""
        # `first` predicts the first token; the last token predicts nothing that is read.
        before = [text[:-1] for text in texts]
        writer = self.net.write(conditions)
        states = []
        if any(before):
            ids, length = self.inputs.padded(before)
            ahead = torch.arange(ids.shape[1], device=ids.device)
            states = [writer.read(ids, ahead < length[:, None])]
        return torch.cat([writer.first()[:, None], *states], dim=1)


def latent_reader(
    net: SegmentNet,
    vocab: Vocab,
    options: LatentOptions | None = None,
    device: torch.device | str = "cpu",
) -> SegmentReader:
    """The reader of latentmdm, for traces made with `options`, which say if they erased."""
    full = None if options is None else latentmdm.resolve(options)
    erased_of = full.k if full is not None and latentmdm.build_tail(full).erases else None

    def conditions(
        prompt: ReadPrompt, latents: Tensor, real: Tensor, time: Tensor | None
    ) -> Tensor:
        assert time is None
        return net.conditions(prompt, latents, real)

    inputs = SegmentInputs(net, vocab, net.empty_vector, net.slots, device)
    return SegmentReader(net, conditions, inputs, may_be_empty=True, erased_of=erased_of)


def flex_latent_reader(
    net: SegmentInserter,
    vocab: Vocab,
    options: FlexLatentOptions | None = None,
    device: torch.device | str = "cpu",
) -> SegmentReader:
    """The reader of flexlatent, for traces made with `options`, which give its times."""
    if options is None:
        raise ValueError(
            "flexlatent reads the sampler's time, and nothing says how these traces were "
            "sampled: give their options, such as steps=128"
        )
    full = flexlatent.resolve(options)
    inputs = SegmentInputs(net, vocab, device=device)
    times = times_by_clock(net, full, SegmentView(net, inputs), device)

    def conditions(
        prompt: ReadPrompt, latents: Tensor, real: Tensor, time: Tensor | None
    ) -> Tensor:
        assert time is not None
        return net.look(prompt, latents, real, time=time).states

    return SegmentReader(net, conditions, inputs, may_be_empty=False, times=times)
