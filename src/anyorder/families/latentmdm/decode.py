"""LatentMDM decoding: reveal whole segments in the order a policy chooses.

Paper, Section 4.2 and appendix E. A row has a fixed number of slots, each of them open (the mask
vector), revealed (its segment's latent) or empty. In each step one call of the latent network gives
every open slot a condition; the selector (candidates.py) takes k of the slots' candidates, which
are encoded and never change again. The tail rule (config.py) says what an empty segment means for
the slots after it, and whether an almost certain end is taken first. Complete rows leave the batch,
and their last segments are never encoded.

`SegmentRows` is the state of a batch. One table (`Candidates`) holds the tokens of revealed
segments and of the candidates for open slots.

mode="compat" redraws all candidates with fresh noise in every step, and its tail rule erases.

Not here: how segments are written and chosen (candidates.py), and slots that are inserted
(families/flexlatent). Letters: B rows, S slots, N segments, T positions of a segment, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan

import torch
from torch import Tensor

from anyorder.checks import at_least, one_of
from anyorder.decode.canvas import Decoded, SegmentCanvas, Watcher, padded
from anyorder.decode.draw import Draw
from anyorder.decode.loop import StepView, run
from anyorder.decode.policy import Policy, find_segment_score
from anyorder.families.latentmdm.candidates import (
    Candidates,
    SegmentChoice,
    SegmentSelector,
    check_frozen,
    decided_by,
)
from anyorder.families.latentmdm.config import TAIL_THRESHOLD, TAILS, LatentOptions, Tail
from anyorder.nets.denoiser import ReadPrompt, SegmentNet
from anyorder.trace.trace import Proposal
from anyorder.vocab import Vocab


@dataclass
class SegmentRows:
    """The rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    latents: Tensor  # B S D
    free: Tensor  # B S, not frozen
    open: Tensor  # B S
    reveal: Tensor  # B S, the step of the reveal; 0 before it, and where nothing is revealed
    score: Tensor  # B S, the score that the segment was chosen by
    forwards: Tensor  # B
    ties: Tensor  # B
    prompt: ReadPrompt
    segments: Candidates

    @classmethod
    def start(
        cls, net: SegmentNet, canvases: Sequence[SegmentCanvas], segments: Candidates
    ) -> SegmentRows:
        """Begin with canvases that fit the network; slots that a canvas lacks are empty."""
        vocab, device, shape = segments.vocab, segments.key.device, (len(canvases), net.slots)
        # Filled on the CPU and moved as a whole: single writes to a device would cost a call each.
        free = torch.zeros(shape, dtype=torch.bool)
        length = torch.zeros(shape, dtype=torch.int64)
        ids = torch.full((*shape, net.segment_length), vocab.pad_id)
        for row, canvas in enumerate(canvases):
            for slot, segment in enumerate(canvas.segments):
                free[row, slot] = segment is None
                length[row, slot] = len(segment or ())
                ids[row, slot, : len(segment or ())] = torch.tensor(segment or (), dtype=ids.dtype)
        frozen = (~free).nonzero(as_tuple=True)
        at = (frozen[0].to(device), frozen[1].to(device))
        segments.put(*at, ids[frozen].to(device), length[frozen].to(device))
        zeros = torch.zeros(shape, dtype=torch.int64, device=device)
        prompts, prompt_length = padded([canvas.prompt for canvas in canvases], vocab.pad_id)
        rows = cls(
            row=torch.arange(len(canvases), device=device),
            latents=net.mask_vector.detach().repeat(*shape, 1),
            free=free.to(device),
            open=free.to(device, copy=True),
            reveal=zeros,
            score=torch.full(shape, nan, dtype=torch.float64, device=device),
            forwards=zeros[:, 0].clone(),
            ties=zeros[:, 0].clone(),
            prompt=net.read(prompts.to(device), prompt_length.to(device)),
            segments=segments,
        )
        rows.encode(net, ~rows.free)
        return rows

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows."""
        self.prompt = self.prompt.keep(rows)
        self.segments.keep(rows)
        for name in ("row", "latents", "free", "open", "reveal", "score", "forwards", "ties"):
            setattr(self, name, getattr(self, name)[rows])

    def commit(self, choice: SegmentChoice, emptied: Tensor, step: int) -> None:
        """Reveal what was chosen, and empty other slots (B S)."""
        row, slot = emptied.nonzero(as_tuple=True)
        self.segments.put(row, slot, row.new_empty(len(row), 0), torch.zeros_like(row))
        self.score = self.score.where(~choice.taken, choice.scores).masked_fill(emptied, nan)
        changed = choice.taken | emptied
        self.reveal = self.reveal.masked_fill(changed, step)
        self.open = self.open & ~changed

    def encode(self, net: SegmentNet, chosen: Tensor) -> None:
        """Set the latents of chosen slots (B S) from their segments."""
        row, slot = chosen.nonzero(as_tuple=True)
        ids, length = self.segments.content(row, slot)
        self.latents[row, slot] = net.empty_vector
        longest = max(length.tolist(), default=0)
        if longest:
            full = length.nonzero()[:, 0]
            self.latents[row[full], slot[full]] = net.encode(ids[full, :longest], length[full])

    def collect(
        self, index: int, canvas: SegmentCanvas, step: int, proposed: list[Proposal] | None
    ) -> Decoded:
        """One row's result: its content in slot order, then an EOS for each empty slot.

        A slot that is still open shows as one mask, a frozen empty one not at all.
        """
        vocab, count = self.segments.vocab, len(canvas.segments)
        slots = torch.arange(count, device=self.row.device)
        ids, length = self.segments.content(torch.full_like(slots, index), slots)
        log_prob = self.segments.log_prob[index].tolist()
        state = (self.free, self.open, self.reveal, self.score)
        free, is_open, reveal, score = (each[index].tolist() for each in state)
        content, ends = [], []
        for slot, (tokens, size) in enumerate(zip(ids.tolist(), length.tolist(), strict=True)):
            about = (slot, reveal[slot], score[slot])
            if is_open[slot]:
                content.append((vocab.mask_id, nan, *about))
            elif size:
                pairs = zip(tokens[:size], log_prob[slot][:size], strict=True)
                content += [(*pair, *about) for pair in pairs]
            elif free[slot]:
                ends.append((vocab.eos_id, log_prob[slot][0], *about))
        before = canvas.prompt_length - len(canvas.prompt)
        columns = zip(*content[before:], *ends, strict=True)
        token_ids, log_probs, segment, reveals, scores = (list(column) for column in columns)
        return Decoded(
            token_ids=token_ids,
            insert_step=[0] * len(token_ids),
            reveal_step=reveals,
            log_prob=log_probs,
            steps=step,
            forwards=int(self.forwards[index]),
            ties=int(self.ties[index]),
            segment=segment,
            score=scores,
            candidates=proposed,
        )


def check(canvases: Sequence[SegmentCanvas], options: LatentOptions) -> None:
    """Refuse what cannot be decoded, before anything is written."""
    for canvas in canvases:
        if None not in canvas.segments:
            raise ValueError("nothing to fill: the canvas has no free slot")
        if options.slots is not None and len(canvas.segments) > options.slots:
            raise ValueError(
                f"the canvas has {len(canvas.segments)} segments, and slots={options.slots} allows "
                "fewer: raise slots, or fill and freeze fewer"
            )


def _check_fit(net: SegmentNet, vocab: Vocab, canvases: Sequence[SegmentCanvas]) -> None:
    for canvas in canvases:
        if len(canvas.segments) > net.slots:
            raise ValueError(
                f"the canvas has {len(canvas.segments)} segments, and the network was trained with "
                f"{net.slots} slots: use no more"
            )
        check_frozen([segment or () for segment in canvas.segments], net.segment_length)
        for ids in (canvas.prompt, *canvas.segments):
            vocab.check_prompt(ids or ())


@torch.inference_mode()
def decode(
    net: SegmentNet,
    vocab: Vocab,
    canvases: Sequence[SegmentCanvas],
    keys: Sequence[int],
    options: LatentOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = resolve(options)
    check(canvases, options)
    _check_fit(net, vocab, canvases)
    key = torch.tensor(keys, dtype=torch.int64, device=device)
    reuse = options.mode == "exact"
    segments = Candidates(net, vocab, Draw.of(options), key, net.slots, reuse=reuse)
    rows = SegmentRows.start(net, canvases, segments)
    return run(_Stepper(net, options, canvases, rows), watch)


class _Stepper:
    """One decoding step: conditions, the choice, the tail rule, latents."""

    def __init__(
        self,
        net: SegmentNet,
        options: LatentOptions,
        canvases: Sequence[SegmentCanvas],
        rows: SegmentRows,
    ) -> None:
        self.net, self.canvases, self.rows = net, canvases, rows
        self.k, self.tail = options.k, build_tail(options)
        self.selector = SegmentSelector(
            candidates=rows.segments,
            policy=build_policy(options),
            slot_temperature=options.slot_temperature,
            complete=options.candidates,
            fresh_noise=options.mode == "compat",
            leads_above=options.tail_threshold if self.tail.leads else None,
        )
        self.proposed: dict[int, list[Proposal]] = {row: [] for row in rows.row.tolist()}
        self.records = options.candidates

    def advance(self, step: int) -> None:
        rows = self.rows
        conditions = self.net.conditions(rows.prompt, rows.latents)  # B S D
        rows.forwards += 1
        slot = torch.arange(rows.open.shape[1], device=rows.open.device).expand_as(rows.open)
        view = StepView(conditions, rows.segments.key, slot, step)
        count, goes_on = torch.full_like(rows.row, self.k), ~rows.free & ~rows.segments.empty
        choice = self.selector.choose(view, rows.open, count, goes_on)
        if self.records:  # before the commit, which closes the taken slots
            row, place = rows.open.nonzero(as_tuple=True)
            about = (rows.row[row], choice.scores[row, place], choice.taken[row, place])
            for number, proposal in rows.segments.proposals(row, place, about, step):
                self.proposed[number].append(proposal)
        rows.ties += choice.ties
        emptied = self._emptied(choice.taken, goes_on)
        rows.commit(choice, emptied, step)
        # A complete row leaves after this step, so its last latents would never be read.
        unfinished = rows.open.any(dim=1, keepdim=True)
        rows.encode(self.net, (choice.taken | emptied) & unfinished)

    def _emptied(self, taken: Tensor, goes_on: Tensor) -> Tensor:
        """The slots that become empty because an empty segment before them is taken.  # B S"""
        rows, tail = self.rows, self.tail
        if not tail.closes:
            return torch.zeros_like(taken)
        after = decided_by(taken & rows.segments.empty, goes_on)
        waiting = rows.open & ~taken
        if not tail.erases:
            return after & waiting
        return after & (waiting | ~rows.segments.empty)

    @property
    def row(self) -> Tensor:
        return self.rows.row

    def done(self, step: int) -> Tensor:
        return ~self.rows.open.any(dim=1)

    def collect(self, index: int, step: int) -> Decoded:
        number = int(self.rows.row[index])
        # A copy: a watcher may keep the row, and later steps propose more.
        proposed = list(self.proposed[number]) if self.records else None
        return self.rows.collect(index, self.canvases[number], step, proposed)

    def keep(self, rows: Tensor) -> None:
        self.rows.keep(rows)


def resolve(options: LatentOptions) -> LatentOptions:
    """The same options with every unset choice filled in that has an effect; checked."""
    one_of("mode", options.mode, ("exact", "compat"))
    compat = options.mode == "compat"
    full = replace(options, tail=options.tail or ("erase" if compat else "stop"))
    if full.tail == "first" and options.tail_threshold is None:
        full = replace(full, tail_threshold=TAIL_THRESHOLD)
    if build_policy(options).score.reads != "nothing" and options.slot_temperature == 0:
        full = replace(full, ties=options.ties or ("leftmost" if compat else "random"))
    _refuse(full)
    return full


def _refuse(options: LatentOptions) -> None:
    """Refuse values that make no sense or have no effect."""
    policy = build_policy(options)
    at_least("k", options.k)
    at_least("slots", options.slots)
    if not 0 <= options.slot_temperature < float("inf"):
        raise ValueError(f"slot_temperature must be 0 or positive, not {options.slot_temperature}")
    one_of("tail", options.tail, TAILS)
    if options.tail == "erase" and options.mode == "exact":
        raise ValueError(
            "tail='erase' throws revealed segments away, as the published sampler does: "
            "choose first, stop or keep, or mode='compat'"
        )
    if options.tail_threshold is not None:
        if options.tail != "first":
            raise ValueError(
                f"tail_threshold has no effect on the tail {options.tail!r}: leave it out, or "
                "choose tail='first'"
            )
        if not 0 < options.tail_threshold < 1:
            raise ValueError(
                f"tail_threshold={options.tail_threshold}: give a probability between 0 and 1, "
                "such as 0.98"
            )
    if policy.score.reads == "nothing":
        for name in ("slot_temperature", "ties"):
            if getattr(options, name):
                raise ValueError(
                    f"{name} has no effect on the policy {options.policy!r}: leave it out"
                )
    elif options.slot_temperature > 0 and options.ties is not None:
        raise ValueError("with a slot_temperature there are no ties: leave ties out")
    Draw.of(options).refuse_idle_filters()


def build_policy(options: LatentOptions) -> Policy:
    return Policy(score=find_segment_score(options.policy), ties=options.ties or "random")


def build_tail(options: LatentOptions) -> Tail:
    return TAILS[options.tail or "stop"]
