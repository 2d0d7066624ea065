"""Masked diffusion decoding: reveal the slots of a fixed canvas in the order a policy chooses.

Paper, Section 2, "MDM inference". Each step: one network call on the canvas; the policy scores the
open slots of its window and takes some; their tokens are drawn from the posterior and committed for
good. The vocabulary head runs only on slots that a score must read, or on the taken ones when the
score reads nothing (left_to_right, random). Rows that are complete leave the batch.
Letters: B rows, L positions, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from anyorder.decode.canvas import Canvas, Decoded, Watcher, stack
from anyorder.decode.mdm_options import MdmOptions
from anyorder.decode.policy import Ranking, take
from anyorder.decode.proposals import Proposer, Sight
from anyorder.decode.quota import Progress, block_of_slots, steps_per_block
from anyorder.decode.watching import seen
from anyorder.nets.denoiser import Denoiser
from anyorder.vocab import Vocab


@dataclass
class _Rows:
    """The rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    key: Tensor  # B
    ids: Tensor  # B L
    open: Tensor  # B L
    real: Tensor  # B L
    block: Tensor  # B L
    reveal: Tensor  # B L
    log_prob: Tensor  # B L
    window: Tensor  # B, the block being closed
    window_step: Tensor  # B, steps begun in it
    window_initial: Tensor  # B, slots open when it began
    window_steps: Tensor  # B, steps planned for each; 0: one a slot
    forwards: Tensor  # B
    ties: Tensor  # B

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows, and the columns that only they needed."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name)[rows])
        if len(self.row):
            longest = int(self.real.sum(dim=1).max())
            for name in ("ids", "open", "real", "block", "reveal", "log_prob"):
                setattr(self, name, getattr(self, name)[:, :longest])


def check(canvases: Sequence[Canvas], options: MdmOptions) -> None:
    """Refuse what cannot be decoded, before anything is written."""
    for canvas in canvases:
        steps_per_block(options.steps, sum(canvas.free), options.block)
    most = max(sum(canvas.free) for canvas in canvases)
    if options.steps is not None and options.quota == "even" and options.steps > most:
        raise ValueError(f"{options.steps} steps for {most} slots: give at most one for each")


@torch.inference_mode()
def decode(
    net: Denoiser,
    vocab: Vocab,
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    options: MdmOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = options.resolved()
    stepper = _Stepper(net, vocab, options)
    rows = _start(canvases, keys, vocab, options, torch.device(device))
    results: dict[int, Decoded] = {}
    step = 0
    while len(rows.row):
        step += 1
        stepper.advance(rows, step)
        if watch is not None:
            numbers = enumerate(rows.row.tolist())
            watch([seen(row, _collect(rows, at, canvases[row], step)) for at, row in numbers])
        finished = ~rows.open.any(dim=1)
        if bool(finished.any()):
            for index in finished.nonzero()[:, 0].tolist():
                number = int(rows.row[index])
                results[number] = _collect(rows, index, canvases[number], step)
            rows.keep((~finished).nonzero()[:, 0])
    return [results[number] for number in range(len(canvases))]


def _start(
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    vocab: Vocab,
    options: MdmOptions,
    device: torch.device,
) -> _Rows:
    ids, free, real = stack(canvases, vocab, device)
    plan = [steps_per_block(options.steps, sum(canvas.free), options.block) for canvas in canvases]
    zeros = torch.zeros(len(canvases), dtype=torch.int64, device=device)
    return _Rows(
        row=torch.arange(len(canvases), device=device),
        key=torch.tensor(keys, dtype=torch.int64, device=device),
        ids=ids,
        open=free.clone(),
        real=real,
        block=block_of_slots(free, options.block),
        reveal=torch.zeros_like(ids),
        log_prob=torch.full(ids.shape, torch.nan, dtype=torch.float64, device=device),
        window=zeros - 1,
        window_step=zeros.clone(),
        window_initial=zeros.clone(),
        window_steps=torch.tensor(plan, device=device),
        forwards=zeros.clone(),
        ties=zeros.clone(),
    )


def _collect(rows: _Rows, index: int, canvas: Canvas, step: int) -> Decoded:
    span = slice(canvas.prompt_length, len(canvas.ids))
    token_ids = rows.ids[index, span].tolist()
    return Decoded(
        token_ids=token_ids,
        insert_step=[0] * len(token_ids),
        reveal_step=rows.reveal[index, span].tolist(),
        log_prob=rows.log_prob[index, span].tolist(),
        steps=step,
        forwards=int(rows.forwards[index]),
        ties=int(rows.ties[index]),
    )


class _Stepper:
    """One decoding step: window, proposals, choice, commitment."""

    def __init__(self, net: Denoiser, vocab: Vocab, options: MdmOptions) -> None:
        self.net, self.vocab = net, vocab
        self.policy = options.build_policy()
        self.stopping = options.stopping()
        self.proposer = Proposer(
            head=net.head,
            vocab=vocab,
            policy=self.policy,
            draw=options.draw(),
            forbidden=(vocab.mask_id, *([vocab.eos_id] if self.stopping.forbids else [])),
            waits_for=vocab.eos_id if self.stopping.waits else None,
        )

    def advance(self, rows: _Rows, step: int) -> None:
        eligible = self._enter_window(rows)
        progress = self._progress(rows, eligible)
        rows.window_step = rows.window_step + 1  # `progress` holds the old one
        counts = None
        if not self.policy.quota.reads_scores:
            counts = self.policy.quota.counts(progress, None)
            if not bool(counts.any()):
                return  # a step that reveals nothing leaves the canvas as it is: no call is needed
        slot = torch.arange(rows.ids.shape[1], device=rows.ids.device).expand_as(rows.ids)
        states = self.net.hidden(rows.ids, mask=rows.real)  # B L D
        sight = Sight(states, rows.key, slot, step)
        ranking, tokens = self.proposer.rank(sight, eligible)
        if counts is None:
            counts = self.policy.quota.counts(progress, _comparable(ranking))
        rows.forwards += counts > 0
        taken, ties = take(ranking, counts)
        if self.policy.score.reads != "nothing":
            rows.ties += ties
        self.proposer.reveal(sight, taken, tokens, rows.ids, rows.log_prob)
        self._commit(rows, taken, step)

    def _enter_window(self, rows: _Rows) -> Tensor:
        """Each row's window is its first block with an open slot; the slots open in it.  # B L"""
        beyond = rows.block.max() + 1
        window = torch.where(rows.open, rows.block, beyond).amin(dim=1)
        eligible = rows.open & (rows.block == window[:, None])
        entered = window != rows.window
        rows.window = window
        rows.window_step = rows.window_step.masked_fill(entered, 0)
        rows.window_initial = torch.where(entered, eligible.sum(dim=1), rows.window_initial)
        return eligible

    @staticmethod
    def _progress(rows: _Rows, eligible: Tensor) -> Progress:
        planned = torch.where(rows.window_steps > 0, rows.window_steps, rows.window_initial)
        return Progress(rows.window_step, planned, rows.window_initial, eligible.sum(dim=1))

    def _commit(self, rows: _Rows, taken: Tensor, step: int) -> None:
        rows.reveal = rows.reveal.masked_fill(taken, step)
        rows.open = rows.open & ~taken
        if self.stopping.fills:
            self._fill_after_eos(rows, taken, step)

    def _fill_after_eos(self, rows: _Rows, taken: Tensor, step: int) -> None:
        ended = (taken & (rows.ids == self.vocab.eos_id)).long().cumsum(dim=1) > 0
        filled = ended & rows.open
        rows.ids = rows.ids.masked_fill(filled, self.vocab.eos_id)
        rows.reveal = rows.reveal.masked_fill(filled, step)
        rows.open = rows.open & ~filled


def _comparable(ranking: Ranking) -> Tensor:
    """Scores that a threshold may look at: slots that wait count only once all open ones do."""
    others = (ranking.eligible & ~ranking.waits).any(dim=1, keepdim=True)
    return ranking.scores.masked_fill(ranking.waits & others, -torch.inf)
