"""Flex-latent decoding: insert slots for segments and reveal them, until none is missing.

flexmdm's process (paper, Section 4.1) over latentmdm's segments (Section 4.2); the paper leaves it
to future work. A row starts with its frozen segments only. Each step is one call of the latent
network at the time of the clock (decode/growing.py), and then

    reveal   the clock says how many open segments each row reveals, the policy says which
             (families/latentmdm/candidates.py); they are encoded and never change again
    insert   open slots go into the gaps, by the missing numbers that the same call predicts

When time is over, one more call reveals all slots that are still open. Rows leave the batch when
their time is over, or when they are full and nothing is open.

Only insertions decide how many segments there are: none is padding, and EOS, which closes a
segment, is never its first token. The law is the data's, up to the error of a grid of steps, when
the policy does not look at drawn tokens (left_to_right, random) and temperature is 1; average,
minimum and first prefer likely segments.

`SegmentGrowth` is the state of a batch. Positions move with every insertion and are kept in
`Growth` (decode/growing.py), the anchor at position 0. All else is kept by slot number, which never
changes: 0 is the anchor, then come the frozen segments in order, then slots in order of insertion.

Letters: B rows, L positions, S = L - 1 slots, C slot numbers, N some slots, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.checks import at_least
from anyorder.decode.canvas import Decoded, GrowingSegments, Watcher, padded
from anyorder.decode.draw import Draw
from anyorder.decode.growing import CallTimes, FrozenRow, Growth, RunningClock, finished
from anyorder.decode.loop import StepView, run
from anyorder.decode.policy import Policy, find_segment_score
from anyorder.decode.quota import find_clocked_quota
from anyorder.families.flexlatent.config import FlexLatentOptions
from anyorder.families.flexlatent.correct import correct_segments
from anyorder.families.latentmdm.candidates import (
    Candidates,
    SegmentChoice,
    SegmentSelector,
    check_frozen,
)
from anyorder.nets.denoiser import ReadPrompt, SegmentInserter, SegmentLook
from anyorder.trace.trace import Proposal
from anyorder.vocab import Vocab


class ShownSegment(NamedTuple):
    """One segment of a text, or one open slot, which shows as a mask."""

    slot: int
    """Its number."""
    ids: list[int]
    log_prob: list[float]
    insert: int
    reveal: int
    score: float


@dataclass
class SegmentGrowth:
    """The rows still being decoded; every tensor has one entry (or one line) per row."""

    net: SegmentInserter
    rows: Growth
    prompt: ReadPrompt
    segments: Candidates
    """The segment of each slot, or its candidate."""
    latents: Tensor  # B C D
    score: Tensor  # B C, the score that the segment was chosen by; NaN where nothing was ranked
    proposed: dict[int, list[Proposal]] = field(default_factory=dict)
    """Recorded candidates of each row of the request, by slot number; empty: not recorded."""

    @classmethod
    def start(
        cls,
        net: SegmentInserter,
        vocab: Vocab,
        canvases: Sequence[GrowingSegments],
        keys: Sequence[int],
        draw: Draw,
        device: torch.device,
    ) -> SegmentGrowth:
        beginnings = [
            FrozenRow(canvas.grows, canvas.room, key)
            for canvas, key in zip(canvases, keys, strict=True)
        ]
        rows = Growth.begin(beginnings, device)
        # All numbers that a row may ever use: the tables then never grow.
        numbers = max(len(canvas.grows) + canvas.room for canvas in canvases)
        shape = (len(canvases), numbers)
        prompts, length = padded([canvas.prompt for canvas in canvases], vocab.pad_id)
        state = cls(
            net=net,
            rows=rows,
            prompt=net.read(prompts.to(device), length.to(device)),
            # Only insertions say how long a text is: there are no empty segments.
            segments=Candidates(net, vocab, draw, rows.key, numbers, may_be_empty=False),
            latents=net.mask_vector.detach().repeat(*shape, 1),
            score=torch.full(shape, nan, dtype=torch.float64, device=device),
        )
        state._freeze(canvases, vocab, device)
        return state

    def _freeze(
        self, canvases: Sequence[GrowingSegments], vocab: Vocab, device: torch.device
    ) -> None:
        frozen = [
            (row, number, segment)
            for row, canvas in enumerate(canvases)
            for number, segment in enumerate(canvas.segments, 1)
        ]
        if not frozen:
            return
        rows, numbers, segments = zip(*frozen, strict=True)
        row, number = torch.tensor(rows, device=device), torch.tensor(numbers, device=device)
        ids, length = padded(segments, vocab.pad_id)
        self.segments.put(row, number, ids.to(device), length.to(device))
        self.encode(row, number)

    def __len__(self) -> int:
        return len(self.rows)

    def look(self, time: Tensor) -> SegmentLook:
        """One call of the network on all rows, at their times (B)."""
        number = self.rows.slot[:, 1:].clamp(min=0)  # B S; padding gets any latent, unread
        line = torch.arange(len(self), device=number.device)[:, None]
        self.rows.forwards += 1
        real = self.rows.real[:, 1:]
        return self.net.look(self.prompt, self.latents[line, number], real, time=time)

    def commit(self, choice: SegmentChoice, step: int) -> tuple[Tensor, Tensor]:
        """Reveal what was chosen; its rows and slot numbers (N), for `encode`."""
        rows = self.rows
        row, position = choice.taken.nonzero(as_tuple=True)
        number = rows.slot[row, position]
        self.score[row, number] = choice.scores[row, position]
        rows.reveal = rows.reveal.masked_fill(choice.taken, step)
        rows.open = rows.open & ~choice.taken
        rows.ties += choice.ties
        return row, number

    def encode(self, row: Tensor, number: Tensor) -> None:
        """Set the latents of slots (N) from their segments."""
        if len(row):
            ids, length = self.segments.content(row, number)
            latents = self.net.encode(ids[:, : int(length.max())], length)
            self.latents[row, number] = latents.to(self.latents.dtype)

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows."""
        self.rows.keep(rows)
        self.prompt = self.prompt.keep(rows)
        self.segments.keep(rows)
        self.latents, self.score = self.latents[rows], self.score[rows]

    def record(self, choice: SegmentChoice, open: Tensor, step: int) -> None:
        """Record the candidates of the slots that were open (B L)."""
        row, position = open.nonzero(as_tuple=True)
        chosen = (choice.scores[row, position], choice.taken[row, position])
        about = (self.rows.row[row], *chosen)
        number = self.rows.slot[row, position]
        for owner, proposal in self.segments.proposals(row, number, about, step):
            self.proposed.setdefault(owner, []).append(proposal)

    def collect(self, index: int, prefix: int, step: int) -> Decoded:
        """One row's result after `step` steps, without its first `prefix` segments.

        Segments are numbered in the order of the text, the frozen ones too.
        """
        rows, text = self.rows, self._shown(index)
        numbered = list(enumerate(text))[prefix:]
        of_token = [(number, segment) for number, segment in numbered for _ in segment.ids]
        return Decoded(
            token_ids=[token for _, segment in numbered for token in segment.ids],
            insert_step=[segment.insert for _, segment in of_token],
            reveal_step=[segment.reveal for _, segment in of_token],
            log_prob=[chance for _, segment in numbered for chance in segment.log_prob],
            steps=step,
            forwards=int(rows.forwards[index]),
            ties=int(rows.ties[index]),
            segment=[number for number, _ in of_token],
            score=[segment.score for _, segment in of_token],
            candidates=_in_text_order(self.proposed.get(int(rows.row[index])), text),
        )

    def _shown(self, index: int) -> list[ShownSegment]:
        """All segments of one row, frozen ones too, in the order of the text."""
        rows = self.rows
        places = slice(1, int(rows.length[index]))  # position 0 is the anchor
        number, open = rows.slot[index, places], rows.open[index, places]  # N
        at = (torch.full_like(number, index), number)
        ids, length = self.segments.content(*at)
        log_prob = self.segments.log_prob[at].masked_fill(open[:, None], nan)
        ids[open, 0], length[open] = self.segments.vocab.mask_id, 1
        steps = (rows.insert[index, places], rows.reveal[index, places])
        columns = (number, ids, length, log_prob, *steps, self.score[at])
        return [
            ShownSegment(slot, tokens[:count], chances[:count], insert, reveal, score)
            for slot, tokens, count, chances, insert, reveal, score in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]


def _in_text_order(
    proposed: Sequence[Proposal] | None, text: Sequence[ShownSegment]
) -> list[Proposal] | None:
    """Proposals, renumbered by the order of the text; None: not recorded."""
    if proposed is None:
        return None
    order = {segment.slot: number for number, segment in enumerate(text)}
    renumbered = [each._replace(segment=order[each.segment]) for each in proposed]
    return sorted(renumbered, key=lambda each: (each.step, each.segment))


def check(canvases: Sequence[GrowingSegments], options: FlexLatentOptions) -> None:
    """Refuse what cannot be decoded, before anything is written."""
    for canvas in canvases:
        if not any(canvas.grows):
            raise ValueError("nothing to fill: no gap of the canvas may grow")
        if canvas.room < 1:
            raise ValueError(f"room for {canvas.room} new segments: raise slots, or freeze fewer")
        most = len(canvas.segments) + canvas.room
        if options.slots is not None and most > options.slots:
            raise ValueError(
                f"the canvas may have {most} segments, and slots={options.slots} allows fewer: "
                "raise slots, or give less room"
            )


@torch.inference_mode()
def decode(
    net: SegmentInserter,
    vocab: Vocab,
    canvases: Sequence[GrowingSegments],
    keys: Sequence[int],
    options: FlexLatentOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = resolve(options)
    check(canvases, options)
    _check_fit(net, vocab, canvases)
    state = SegmentGrowth.start(net, vocab, canvases, keys, Draw.of(options), torch.device(device))
    decoded = run(_Stepper(state, options, canvases), watch)
    if not options.correct:
        return decoded
    return correct_segments(net, vocab, canvases, decoded, options.correct, device, watch)


def _check_fit(net: SegmentInserter, vocab: Vocab, canvases: Sequence[GrowingSegments]) -> None:
    for canvas in canvases:
        assert canvas.prompt and all(canvas.segments), "an anchor, and no empty segment"
        check_frozen(canvas.segments, net.segment_length)
        vocab.check_prompt(canvas.ids)


class _Stepper:
    """One decoding step: a look, a plan, reveals, insertions."""

    def __init__(
        self, state: SegmentGrowth, options: FlexLatentOptions, canvases: Sequence[GrowingSegments]
    ) -> None:
        self.state, self.canvases = state, canvases
        self.clock, self.times = RunningClock(options, state.net), CallTimes(len(state))
        self.selector = SegmentSelector(
            state.segments,
            build_policy(options),
            complete=options.candidates,
            reshuffles=True,
        )
        self.records = options.candidates
        if self.records:
            state.proposed = {row: [] for row in state.rows.row.tolist()}

    @property
    def row(self) -> Tensor:
        return self.state.rows.row

    def done(self, step: int) -> Tensor:
        return finished(self.state.rows)

    def collect(self, index: int, step: int) -> Decoded:
        number = int(self.state.rows.row[index])
        row = self.state.collect(index, self.canvases[number].prefix, step)
        return replace(row, times=self.times.of(number))

    def keep(self, rows: Tensor) -> None:
        self.state.keep(rows)

    def advance(self, step: int) -> None:
        state, rows = self.state, self.state.rows
        time = self.clock.time(rows)
        self.times.add(rows.row, time)
        look = state.look(time)
        plan = self.clock.plan(rows, look.gaps, step)
        states = F.pad(look.states, (0, 0, 1, 0))  # the anchor has no condition
        open = rows.open
        choice = self.selector.choose(
            StepView(states, rows.key, rows.slot, step), open, plan.reveals
        )
        if self.records:
            state.record(choice, open, step)  # before the commit, which closes the taken slots
        taken = state.commit(choice, step)
        # Reveal first: insertions move positions, and `choice` speaks of the old ones.
        rows.open_slots(plan.inserts, step)
        rows.left, rows.bound = plan.left, plan.bound
        # A finished row leaves after this step, so its last latents would never be read.
        going = ~finished(rows)[taken[0]]
        state.encode(*(each[going] for each in taken))


def resolve(options: FlexLatentOptions) -> FlexLatentOptions:
    """The same options with every unset choice filled in that has an effect; checked."""
    full = options.with_schedules("carried").with_exact_clock()
    at_least("slots", options.slots)
    options.check_corrections()
    if options.correct and options.candidates:
        raise ValueError(
            "candidates are recorded of segments that stay, and correct may delete some: leave one "
            "of the two out"
        )
    if build_policy(full).score.reads == "nothing":
        full.refuse_set(f"on the policy {full.policy!r}", "ties")
    else:
        full = replace(full, ties=options.ties or "random")
    Draw.of(full).refuse_idle_filters()
    return full


def build_policy(options: FlexLatentOptions) -> Policy:
    return Policy(
        score=find_segment_score(options.policy),
        quota=find_clocked_quota(options.quota or "thinned"),
        ties=options.ties or "random",
    )
