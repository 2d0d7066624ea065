"""Masked diffusion decoding: reveal the slots of a fixed canvas in the order a policy chooses.

Paper, Section 2, "MDM inference". Each step: one network call on the canvas; the policy scores the
open slots of its window and takes some; their tokens are drawn from the posterior and committed for
good. The vocabulary head runs only on slots that a score must read, or on the taken ones when the
score reads nothing (left_to_right, random). Rows that are complete leave the batch.
Letters: B rows, L positions, N open slots, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from torch import Tensor

from anyorder.decode.canvas import Canvas, Decoded, stack
from anyorder.decode.draw import Draw, filtered, pick
from anyorder.decode.policy import Items, Policy, find_score, take, tie_noise
from anyorder.decode.posterior import Posterior
from anyorder.decode.quota import Progress, block_of_slots, parse_quota, steps_per_block
from anyorder.decode.stopping import STOPPING, Stopping
from anyorder.nets.denoiser import Denoiser
from anyorder.process.noise import Stream, uniform
from anyorder.vocab import Vocab

HEAD_BUDGET = 1 << 25
"""Logits held at once, in numbers: larger canvases pass through the head in pieces."""


@dataclass(frozen=True)
class MdmOptions:
    """How to decode with mdm. Unset choices follow `mode`."""

    policy: str = "confidence"
    """confidence, sampled, margin, entropy, left_to_right or random."""
    quota: str | None = None
    """even, dream[:eps] or threshold[:p]. Exact: even; compat: dream."""
    posterior: Literal["untempered", "filtered"] | None = None
    """What scores read. Exact: untempered; compat: filtered."""
    ties: Literal["random", "leftmost"] | None = None
    """Who wins among equal scores. Exact: random; compat: leftmost."""
    block: int | None = None
    """Semi-autoregressive blocks of so many slots; unset: the whole canvas."""
    steps: int | None = None
    """Network steps; unset: one for each free slot."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    eos: str = "plain"
    """plain, last, fill or forbid (see Stopping)."""
    mode: Literal["exact", "compat"] = "exact"
    """compat: the choices of the published Dream sampler."""

    def resolved(self) -> MdmOptions:
        """The same options with every unset choice filled in, checked as a whole."""
        if self.mode not in ("exact", "compat"):
            raise ValueError(f"mode must be 'exact' or 'compat', not {self.mode!r}")
        compat = self.mode == "compat"
        full = replace(
            self,
            quota=self.quota or ("dream" if compat else "even"),
            posterior=self.posterior or ("filtered" if compat else "untempered"),
            ties=self.ties or ("leftmost" if compat else "random"),
        )
        full.check()
        return full

    def check(self) -> None:
        """Refuse what is wrong and what would be ignored."""
        stopping, policy, quota = self.stopping(), self.build_policy(), self.quota or "even"
        self.draw()
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")
        if self.steps is not None and policy.quota.reads_scores:
            raise ValueError(
                f"the {quota} quota decides its own number of steps: leave --steps out"
            )
        if stopping.penalty and policy.score.reads == "nothing":
            raise ValueError(
                f"eos={self.eos!r} lowers scores that the policy {self.policy!r} does not read: "
                "use eos plain, fill or forbid with it"
            )
        if (
            self.posterior == "filtered"
            and policy.score.reads == "nothing"
            and self.mode == "exact"
        ):
            raise ValueError(
                f"posterior='filtered' has no effect on the policy {self.policy!r}: leave it out"
            )

    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_p, self.top_k)

    def stopping(self) -> Stopping:
        if self.eos not in STOPPING:
            raise ValueError(
                f"unknown eos choice {self.eos!r}: choose one of {', '.join(STOPPING)}"
            )
        return STOPPING[self.eos]

    def build_policy(self) -> Policy:
        return Policy(
            score=find_score(self.policy),
            quota=parse_quota(self.quota or "even"),
            posterior=self.posterior or "untempered",
            ties=self.ties or "random",
            block=self.block,
        )


@dataclass
class _Rows:
    """The rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    key: Tensor  # B
    ids: Tensor  # B L
    open: Tensor  # B L
    real: Tensor  # B L
    slot: Tensor  # B L, rank among the row's free slots
    block: Tensor  # B L
    reveal: Tensor  # B L
    log_prob: Tensor  # B L
    window: Tensor  # B, the block being closed
    window_step: Tensor  # B
    window_initial: Tensor  # B
    window_steps: Tensor  # B
    steps: Tensor  # B
    forwards: Tensor  # B
    ties: Tensor  # B

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows, and the columns that only they needed."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name)[rows])
        if len(self.row):
            longest = int(self.real.sum(dim=1).max())
            for name in ("ids", "open", "real", "slot", "block", "reveal", "log_prob"):
                setattr(self, name, getattr(self, name)[:, :longest])


@torch.inference_mode()
def decode(
    net: Denoiser,
    vocab: Vocab,
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    options: MdmOptions,
    device: torch.device | str = "cpu",
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = options.resolved()
    stepper = _Stepper(net, vocab, options)
    rows = _start(canvases, keys, vocab, options, torch.device(device))
    results: list[Decoded | None] = [None] * len(canvases)
    step = 0
    while len(rows.row):
        step += 1
        stepper.advance(rows, step)
        finished = ~rows.open.any(dim=1)
        if bool(finished.any()):
            for index in finished.nonzero()[:, 0].tolist():
                number = int(rows.row[index])
                results[number] = _collect(rows, index, canvases[number])
            rows.keep((~finished).nonzero()[:, 0])
    return [result for result in results if result is not None]


def _start(
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    vocab: Vocab,
    options: MdmOptions,
    device: torch.device,
) -> _Rows:
    ids, free, real = stack(canvases, vocab, device)
    slots = [sum(canvas.free) for canvas in canvases]
    plan = [steps_per_block(options.steps or count, count, options.block) for count in slots]
    zeros = torch.zeros(len(canvases), dtype=torch.int64, device=device)
    return _Rows(
        row=torch.arange(len(canvases), device=device),
        key=torch.tensor(keys, dtype=torch.int64, device=device),
        ids=ids,
        open=free.clone(),
        real=real,
        slot=free.long().cumsum(dim=1) - 1,
        block=block_of_slots(free, options.block),
        reveal=torch.zeros_like(ids),
        log_prob=torch.full(ids.shape, torch.nan, dtype=torch.float64, device=device),
        window=zeros - 1,
        window_step=zeros.clone(),
        window_initial=zeros.clone(),
        window_steps=torch.tensor(plan, device=device),
        steps=zeros.clone(),
        forwards=zeros.clone(),
        ties=zeros.clone(),
    )


def _collect(rows: _Rows, index: int, canvas: Canvas) -> Decoded:
    span = slice(canvas.prompt_length, len(canvas.ids))
    token_ids = rows.ids[index, span].tolist()
    return Decoded(
        token_ids=token_ids,
        insert_step=[0] * len(token_ids),
        reveal_step=rows.reveal[index, span].tolist(),
        log_prob=rows.log_prob[index, span].tolist(),
        steps=int(rows.steps[index]),
        forwards=int(rows.forwards[index]),
        ties=int(rows.ties[index]),
    )


class _Stepper:
    """One decoding step: window, proposals, choice, commitment."""

    def __init__(self, net: Denoiser, vocab: Vocab, options: MdmOptions) -> None:
        self.net, self.vocab = net, vocab
        self.policy, self.draw, self.stopping = (
            options.build_policy(),
            options.draw(),
            options.stopping(),
        )
        # Tokens are drawn for all candidates only where the choice depends on them.
        self.draws_first = self.policy.score.reads == "token" or self.stopping.penalty > 0

    def advance(self, rows: _Rows, step: int) -> None:
        eligible = self._enter_window(rows)
        rows.steps += 1
        rows.window_step += 1
        counts = None
        if not self.policy.quota.reads_scores:
            counts = self.policy.quota.counts(self._progress(rows, eligible), None)
            if not bool(counts.any()):
                return  # a step that reveals nothing leaves the canvas as it is: no call is needed
        rows.forwards += 1
        hidden = self.net.hidden(rows.ids, mask=rows.real)  # B L D
        scores, tokens = self._score(rows, hidden, eligible, step)
        if counts is None:
            counts = self.policy.quota.counts(self._progress(rows, eligible), scores)
        taken, ties = take(scores, counts, tie_noise(self.policy, rows.key, step, scores.shape[1]))
        if self.policy.score.reads != "nothing":
            rows.ties += ties
        self._commit(rows, hidden, taken, tokens, step)

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

    def _progress(self, rows: _Rows, eligible: Tensor) -> Progress:
        return Progress(
            step=rows.window_step - 1,
            steps=rows.window_steps,
            initial=rows.window_initial,
            open=eligible.sum(dim=1),
        )

    def _logits(self, rows: _Rows, hidden: Tensor, row: Tensor, position: Tensor) -> Tensor:
        """Logits of chosen slots, without the ids that a slot must not hold.  # N V"""
        logits = self.net.head(hidden[row, position]).float()
        logits[:, self.vocab.mask_id] = -torch.inf
        logits[:, self.vocab.size :] = -torch.inf
        if self.stopping.forbid_first:
            barred = rows.slot[row, position] < self.stopping.forbid_first
            logits[barred, self.vocab.eos_id] = -torch.inf
        return logits

    def _score(
        self, rows: _Rows, hidden: Tensor, eligible: Tensor, step: int
    ) -> tuple[Tensor, Tensor | None]:
        """Scores of the eligible slots (B L, -inf elsewhere), and their tokens if drawn (B L)."""
        scores = torch.full(eligible.shape, -torch.inf, dtype=torch.float64, device=eligible.device)
        row, position = eligible.nonzero(as_tuple=True)
        if self.policy.score.reads == "nothing":
            scores[row, position] = self.policy.score.rank(Items(position, rows.key[row]))
            return scores, None
        tokens = torch.zeros_like(rows.ids) if self.draws_first else None
        piece = max(1, HEAD_BUDGET // self.vocab.size)
        for r, p in zip(row.split(piece), position.split(piece), strict=True):
            logits = self._logits(rows, hidden, r, p)
            drawn = None
            if tokens is not None:
                drawn = pick(logits, self.draw, self._token_noise(rows, r, p, step))
                tokens[r, p] = drawn
            read = filtered(logits, self.draw) if self.policy.posterior == "filtered" else logits
            score = self.policy.score.rank(Items(p, rows.key[r], Posterior(read), drawn))
            if self.stopping.penalty:
                assert drawn is not None
                score = score - self.stopping.penalty * (drawn == self.vocab.eos_id)
            scores[r, p] = score
        return scores, tokens

    def _commit(
        self, rows: _Rows, hidden: Tensor, taken: Tensor, tokens: Tensor | None, step: int
    ) -> None:
        row, position = taken.nonzero(as_tuple=True)
        piece = max(1, HEAD_BUDGET // self.vocab.size)
        for r, p in zip(row.split(piece), position.split(piece), strict=True):
            logits = self._logits(rows, hidden, r, p)
            if tokens is None:
                drawn = pick(logits, self.draw, self._token_noise(rows, r, p, step))
            else:
                drawn = tokens[r, p]
            rows.ids[r, p] = drawn
            rows.log_prob[r, p] = Posterior(logits).log_prob(drawn)
        rows.reveal[row, position] = step
        rows.open = rows.open & ~taken
        if self.stopping.after_eos == "fill":
            self._fill_after_eos(rows, taken, step)

    def _fill_after_eos(self, rows: _Rows, taken: Tensor, step: int) -> None:
        ended = (taken & (rows.ids == self.vocab.eos_id)).long().cumsum(dim=1) > 0
        filled = ended & rows.open
        rows.ids = rows.ids.masked_fill(filled, self.vocab.eos_id)
        rows.reveal = rows.reveal.masked_fill(filled, step)
        rows.open = rows.open & ~filled

    @staticmethod
    def _token_noise(rows: _Rows, row: Tensor, position: Tensor, step: int) -> Tensor:
        return uniform(0, int(Stream.TOKEN), rows.key[row], position, step)
