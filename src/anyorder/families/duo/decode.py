"""Uniform-state decoding (DUO): every slot shows a token from the start, and may change each step.

The canvas begins as uniform noise on its free slots. With N steps the times are 1 = t_0 > ... >
t_N, evenly spaced down to 1e-5. Step k is one network call at alpha(t_{k-1}), and one ancestral
step to alpha(t_k), or to alpha = 1 in the last step (process/uniform.py). A slot draws which of
three branches it takes: a uniform token, its present token, or a token of the network's prediction
(`mixture`); no posterior over the vocabulary is made. Temperature and filters act on the
prediction. Frozen tokens are part of every canvas, at any place, and never change.

A slot's `reveal_step` is the step since which it has shown its last token; earlier tokens are
`changes`. A token of the initial noise that was kept to the end counts as revealed by the first
step, because before it the network had not been called. A log-probability is that of the token as
a clean one, untempered, in the step that put it there: -ln K for the initial noise.

Not here: the reverse process itself (process/uniform.py).
Letters: B rows, L positions, M free slots of all rows, K states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anyorder.checks import at_least, one_of
from anyorder.decode.canvas import Canvas, Decoded, Watcher, stack
from anyorder.decode.draw import (
    Draw,
    Posterior,
    behind,
    ends_text,
    filtered,
    find_stopping,
    pick_from,
    refuse_nan,
)
from anyorder.decode.loop import keep_rows, pieces, run
from anyorder.families.duo.config import DuoOptions
from anyorder.nets.denoiser import Barred, Denoiser, LogitsDenoiser, Shifted, States
from anyorder.process.noise import Stream, uniform
from anyorder.process.schedule import LAST_TIME
from anyorder.process.uniform import BRANCH, STATE, LogLinear, any_state, mixture
from anyorder.trace.events import Change, changes_of
from anyorder.vocab import Vocab

SCHEDULE = LogLinear()


@dataclass
class _Rows:
    """The rows still being decoded; every tensor has one entry (or one line) per row."""

    row: Tensor  # B, the row's number in the request
    key: Tensor  # B
    steps: Tensor  # B, planned
    ids: Tensor  # B L
    free: Tensor  # B L
    real: Tensor  # B L
    since: Tensor  # B L, the step that put this token there
    log_prob: Tensor  # B L

    def keep(self, rows: Tensor) -> None:
        """Drop the other rows, and the columns that only they needed."""
        keep_rows(self, rows, "real")


def check_network(net: object, options: DuoOptions) -> None:
    """Refuse networks that take no time: this one must know how much is noise."""
    if isinstance(net.inner if isinstance(net, Barred) else net, LogitsDenoiser | Shifted):
        raise ValueError(
            "duo needs a network that takes a time: wrap an object with hidden(ids, mask, time) "
            "and head(states), or wrap masked models, as mdm"
        )


@torch.inference_mode()
def decode(
    net: Denoiser,
    vocab: Vocab,
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    options: DuoOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = resolve(options)
    return run(_Stepper(net, vocab, options, canvases, keys, torch.device(device)), watch)


class _Stepper:
    """One ancestral step of all rows."""

    def __init__(
        self,
        net: Denoiser,
        vocab: Vocab,
        options: DuoOptions,
        canvases: Sequence[Canvas],
        keys: Sequence[int],
        device: torch.device,
    ) -> None:
        self.net, self.vocab, self.options, self.canvases = net, vocab, options, canvases
        self.draw, self.stopping = Draw.of(options), find_stopping(options.eos)
        # Leave ends out of the states themselves: otherwise the noise could still hold them.
        without = frozenset(vocab.end_ids if self.stopping.forbids else ())
        self.states = States.of(vocab, without=without).to(device)
        self.rows = self._noise_rows(keys, device)
        # What every slot showed after each step: a slot may change until the end.
        most = int(self.rows.steps.max())
        self.shown = np.zeros((most + 1, *self.rows.ids.shape), dtype=np.int32)  # N+1 B L
        self._record(0)

    def _noise_rows(self, keys: Sequence[int], device: torch.device) -> _Rows:
        """Uniform noise on every free slot."""
        canvases = self.canvases
        ids, free, real = stack(canvases, self.vocab, device)
        steps = [self.options.steps or sum(canvas.free) for canvas in canvases]
        rows = _Rows(
            row=torch.arange(len(canvases), device=device),
            key=torch.tensor(keys, dtype=torch.int64, device=device),
            steps=torch.tensor(steps, device=device),
            ids=ids,
            free=free,
            real=real,
            since=free.long(),
            log_prob=torch.full(ids.shape, torch.nan, dtype=torch.float64, device=device),
        )
        row, slot = free.nonzero(as_tuple=True)
        noise = _noise(rows, row, slot, 0, STATE)
        rows.ids[row, slot] = self.states.ids[any_state(noise, self.states.count)]
        rows.log_prob[free] = -float(np.log(self.states.count))
        return rows

    @property
    def row(self) -> Tensor:
        return self.rows.row

    def done(self, step: int) -> Tensor:
        return self.rows.steps == step

    def keep(self, rows: Tensor) -> None:
        self.rows.keep(rows)

    def _record(self, step: int) -> None:
        ids = self.rows.ids.cpu().numpy()
        self.shown[step, self.rows.row.cpu().numpy(), : ids.shape[1]] = ids

    def collect(self, index: int, step: int) -> Decoded:
        """A row after its frozen prefix; once it is finished, with all its earlier tokens."""
        rows, number = self.rows, int(self.rows.row[index])
        canvas = self.canvases[number]
        span = slice(canvas.prompt_length, len(canvas.ids))
        token_ids = rows.ids[index, span].tolist()
        reveal_step = rows.since[index, span].tolist()
        changes: list[Change] = []
        if step == int(rows.steps[index]):
            # `since` is not enough: `fill` may put back an EOS that the same step had replaced.
            shown = self.shown[: step + 1, number, span].astype(np.int64)
            reveal, changes = changes_of(shown, self.vocab.mask_id)
            # Noise that was kept to the end counts as revealed by the first step.
            kept = np.flatnonzero(np.array(canvas.free[span]) & (reveal == 0))
            reveal[kept] = 1
            changes += [Change(0, int(slot), int(shown[0, slot])) for slot in kept]
            reveal_step = reveal.tolist()
        return Decoded(
            token_ids=token_ids,
            insert_step=[0] * len(token_ids),
            reveal_step=reveal_step,
            log_prob=rows.log_prob[index, span].tolist(),
            steps=step,
            forwards=step,
            ties=0,
            changes=sorted(changes),
        )

    def advance(self, step: int) -> None:
        rows = self.rows
        last = rows.steps == step
        alpha_t, alpha_s = (_alpha(rows.steps, at) for at in (step - 1, step))
        alpha_s = alpha_s.masked_fill(last, 1.0)
        hidden = self.net.hidden(rows.ids, mask=rows.real, time=alpha_t.float())  # B L D
        ids = rows.ids.clone()  # every slot is drawn given the canvas before the step
        for row, slot in pieces(rows.free, self.vocab):
            logits = self.states.logits(self.net.head(hidden[row, slot]))  # M K
            here = self.states.number[rows.ids[row, slot]]
            clean, prob_here = self._predict(logits, here, step)
            parts = mixture(prob_here, alpha_t[row], alpha_s[row], self.states.count)
            # Two uniforms for each slot: which of the three branches, and which token.
            branch = _noise(rows, row, slot, step, BRANCH)
            noise = _noise(rows, row, slot, step, STATE)
            new = here.clone()
            fresh = branch < parts.uniform
            new[fresh] = any_state(noise[fresh], self.states.count)
            drawn = branch >= parts.uniform + parts.keep
            new[drawn] = pick_from(clean[drawn], noise[drawn])
            if self.options.tail == "greedy":
                new = torch.where(last[row], logits.argmax(dim=-1), new)
            changed = new != here
            where = row[changed], slot[changed]
            ids[where] = self.states.ids[new[changed]]
            rows.since[where] = step
            rows.log_prob[where] = Posterior(logits[changed]).log_prob(new[changed])
        rows.ids = ids
        if self.stopping.fills:
            self._fill_after_eos(rows, last, step)
        self._record(step)

    def _predict(self, logits: Tensor, here: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The logits to draw clean tokens from (M K), and the probability of the present ones."""
        if self.draw.temperature == 0:
            # A one-hot prediction, not a greedy slot: noise and keeping still follow the mixture.
            best = logits.argmax(dim=-1, keepdim=True)
            clean = torch.full_like(logits, -torch.inf).scatter(-1, best, 0.0)
        else:
            clean = filtered(logits, self.draw)
        prob_here = Posterior(clean).log_prob(here).exp()
        refuse_nan(prob_here, step)
        refuse_nan(logits, step)
        return clean, prob_here

    def _fill_after_eos(self, rows: _Rows, last: Tensor, step: int) -> None:
        """In finished rows, put EOS on every free slot to the right of an end."""
        eos = self.vocab.eos_id
        ends = rows.free & ends_text(rows.ids, self.vocab)
        filled = behind(ends, rows.free & (rows.ids != eos))
        filled &= last[:, None]
        rows.ids = rows.ids.masked_fill(filled, eos)
        rows.since = rows.since.masked_fill(filled, step)
        rows.log_prob = rows.log_prob.masked_fill(filled, torch.nan)


def _alpha(steps: Tensor, done: int) -> Tensor:
    """alpha at t_done of each row's own grid.  # B, float64"""
    return SCHEDULE.value(1 - (1 - LAST_TIME) * done / steps.double())


def _noise(rows: _Rows, row: Tensor, slot: Tensor, step: int, use: int) -> Tensor:
    return uniform(0, int(Stream.UNIFORM), rows.key[row], slot, step, use)


def resolve(options: DuoOptions) -> DuoOptions:
    """The same options, checked."""
    at_least("steps", options.steps)
    one_of("tail", options.tail, ("ancestral", "greedy"))
    if find_stopping(options.eos).waits:
        raise ValueError(
            "eos='last' ranks the slots of masked models, and duo ranks nothing: choose plain, "
            "fill or forbid"
        )
    Draw.of(options).refuse_idle_filters()
    once = options.tail == "greedy" and options.steps == 1
    if once and Draw.of(options) != Draw.of(DuoOptions()):
        raise ValueError(
            "temperature, top_p and top_k have no effect on a single greedy step: leave them "
            "out, or give more steps"
        )
    return options
