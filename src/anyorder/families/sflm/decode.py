"""Hyperspherical flow decoding: noise moves towards tokens, and the last call reads them off.

S-FLM's sampler (process/sphere.py has its equations). N steps are N network calls, at the times
t_0 .. t_{N-1} of linspace(1, 1e-5, N + 1). Each call but the last moves every free slot along the
velocity of its posterior, from the signal a(t_k) to a(t_{k+1}); the last one takes tokens from its
posterior and moves nothing. Frozen slots, a prompt or the text around a gap, hold the clean vectors
of their tokens at every call. Free slots can become any state (`States` in nets/denoiser.py) but
PAD.

No slot has a token before the end, and no order is chosen. A step shows the most likely token of
each slot: `reveal_step` is the step from which it stayed the same, `changes` the earlier ones.

Points are float64 throughout; the network reads them in its own precision.
Letters: B rows, L positions, M free slots of all rows, K states, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from anyorder.decode.loop import run, slices
from anyorder.families.sflm.config import USUAL, SflmOptions, parse_velocity
from anyorder.nets.denoiser import SphereDenoiser, States
from anyorder.process import sphere
from anyorder.process.noise import Stream, uniform
from anyorder.trace.events import Change, changes_of
from anyorder.vocab import Vocab


@dataclass
class _Rows:
    """All rows; they take the same steps, so none leaves before the others."""

    ids: Tensor  # B L, what is shown: tokens, and the mask before the first step
    real: Tensor  # B L
    clean: Tensor  # B L D, the vectors of frozen slots
    since: Tensor  # B L, the step from which a slot has shown its token
    log_prob: Tensor  # B L, of what is shown
    row: Tensor  # M, the row of each free slot
    position: Tensor  # M
    key: Tensor  # M, its row's noise key
    points: Tensor  # M D


def check_network(net: Any, options: SflmOptions) -> None:
    """Refuse networks over tokens, such as wrapped ones."""
    if not hasattr(net, "unit_table"):
        raise ValueError(
            "sflm needs a network of our own, over vectors: wrap masked models, as mdm"
        )


@torch.inference_mode()
def decode(
    net: SphereDenoiser,
    vocab: Vocab,
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    options: SflmOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = resolve(options)
    return run(_Stepper(net, vocab, options, canvases, keys, torch.device(device)), watch)


class _Stepper:
    """One step of the flow: a network call, and the move of all points."""

    def __init__(
        self,
        net: SphereDenoiser,
        vocab: Vocab,
        options: SflmOptions,
        canvases: Sequence[Canvas],
        keys: Sequence[int],
        device: torch.device,
    ) -> None:
        self.net, self.vocab, self.options, self.canvases = net, vocab, options, canvases
        self.velocity = parse_velocity(options.velocity or USUAL)
        self.stopping = find_stopping(options.eos)
        table = net.unit_table()  # V D
        if len(table) < vocab.size:
            raise ValueError(
                f"the network has vectors of {len(table)} tokens for a vocabulary of {vocab.size}: "
                "use the vocabulary that it was trained with"
            )
        # Some vocabularies pad with EOS; then EOS must stay possible.
        without = {vocab.pad_id} - {vocab.eos_id}
        without |= set(vocab.end_ids if self.stopping.forbids else ())
        self.states = States.of(vocab, without=frozenset(without)).to(table.device)
        self.table = sphere.unit(table[self.states.ids].double())  # K D
        schedule = sphere.Truncated(net.most_signal, net.least_signal)
        self.signals = schedule.value(sphere.grid(options.steps)).to(table.device)  # N+1
        self.rows = self._noise_rows(keys, device)
        self.row = torch.arange(len(canvases), device=device)
        self.history = [self.rows.ids]
        """The shown tokens after each step."""

    def _noise_rows(self, keys: Sequence[int], device: torch.device) -> _Rows:
        ids, free, real = stack(self.canvases, self.vocab, device)
        row, position = free.nonzero(as_tuple=True)
        key = torch.tensor(keys, dtype=torch.int64, device=device)[row]
        return _Rows(
            ids=ids,
            real=real,
            # Free slots get the vector of the mask here; `advance` puts their points in its place.
            clean=self.net.unit_table()[ids],
            since=torch.zeros_like(ids),
            log_prob=torch.full(ids.shape, torch.nan, dtype=torch.float64, device=device),
            row=row,
            position=position,
            key=key,
            points=sphere.sampling_noise(key, position, self.table.shape[1]),
        )

    def done(self, step: int) -> Tensor:
        """All rows take the same number of steps.  # B"""
        return torch.full_like(self.row, step == self.options.steps, dtype=torch.bool)

    def keep(self, rows: Tensor) -> None:
        raise AssertionError("all rows end together")

    def collect(self, index: int, step: int) -> Decoded:
        """A row after its frozen prefix; once it is finished, with all its earlier tokens."""
        rows, canvas = self.rows, self.canvases[index]
        span = slice(canvas.prompt_length, len(canvas.ids))
        token_ids = rows.ids[index, span].tolist()
        reveal_step = rows.since[index, span].tolist()
        changes: list[Change] = []
        if step == self.options.steps:
            shown = torch.stack([ids[index, span] for ids in self.history])  # N+1 L
            settled, changes = changes_of(shown.cpu().numpy(), self.vocab.mask_id)
            # Kept step by step, and computed from the whole history: both must agree.
            assert settled.tolist() == reveal_step
        return Decoded(
            token_ids=token_ids,
            insert_step=[0] * len(token_ids),
            reveal_step=reveal_step,
            log_prob=rows.log_prob[index, span].tolist(),
            steps=step,
            forwards=step,
            ties=0,
            changes=changes,
        )

    def advance(self, step: int) -> None:
        rows = self.rows
        last, signal = step == self.options.steps, self.signals[step - 1]
        # The points stay in float64, so that rounding does not add up over the steps.
        vectors = torch.index_put(
            rows.clean, (rows.row, rows.position), rows.points.to(rows.clean.dtype)
        )
        signals = signal.expand(len(rows.ids))
        hidden = self.net.hidden(vectors, ids=rows.ids, mask=rows.real, signal=signals)
        states = hidden[rows.row, rows.position]  # M D
        tokens, log_prob, points = [], [], []
        # In pieces: the logits of all slots at once (M K) would need the most memory of a step.
        for piece in slices(len(states), self.vocab):
            logits = self._logits(states[piece], step)
            # Keyed by row, position and step: neither batch nor pieces change what is drawn.
            noise = uniform(0, int(Stream.TOKEN), rows.key[piece], rows.position[piece], step)
            if last:
                drawn = self.options.tail == "ancestral"
                found = pick_from(self._tempered(logits), noise) if drawn else logits.argmax(-1)
            else:
                found = logits.argmax(dim=-1)
                here = rows.points[piece]
                velocity = self._velocity(here, self._tempered(logits), noise)
                points.append(sphere.euler_step(here, velocity, signal, self.signals[step]))
            tokens.append(self.states.ids[found])
            # Before temperature: the trace stores the network's own probability.
            log_prob.append(Posterior(logits).log_prob(found))
        if points:
            rows.points = torch.cat(points)
        self._show(rows, torch.cat(tokens), torch.cat(log_prob), step)

    def _show(self, rows: _Rows, tokens: Tensor, log_prob: Tensor, step: int) -> None:
        places = rows.row, rows.position
        ids = torch.index_put(rows.ids, places, tokens)
        rows.log_prob = torch.index_put(rows.log_prob, places, log_prob.double())
        if step == self.options.steps and self.stopping.fills:
            ids = self._filled(rows, ids)
        rows.since = torch.where(ids != rows.ids, step, rows.since)
        rows.ids = ids
        self.history.append(ids)

    def _filled(self, rows: _Rows, ids: Tensor) -> Tensor:
        """Free slots behind the first free end become EOS; they have no log-probability."""
        free = torch.index_put(
            torch.zeros_like(rows.real), (rows.row, rows.position), torch.ones_like(rows.row).bool()
        )
        filled = behind(free & ends_text(ids, self.vocab), free & (ids != self.vocab.eos_id))
        rows.log_prob = rows.log_prob.masked_fill(filled, torch.nan)
        return ids.masked_fill(filled, self.vocab.eos_id)

    def _velocity(self, points: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        """Each point's tangent, by its posterior over the tokens it may move to.  # M D"""
        k = self.velocity.k
        if self.velocity.drawn:
            state = pick_from(filtered(logits, Draw(top_k=k)), noise)  # M
            return sphere.log_map(points, self.table[state])
        if k:
            best, states = logits.topk(min(k, self.states.count), dim=-1)  # M k
            return sphere.velocity_to(points, best.double().softmax(-1), self.table[states])
        return sphere.velocity(points, logits.double().softmax(-1), self.table)

    def _logits(self, states: Tensor, step: int) -> Tensor:
        """Logits of the states.  # M K"""
        logits = self.states.logits(self.net.head(states))
        refuse_nan(logits, step)
        return logits

    def _tempered(self, logits: Tensor) -> Tensor:
        # At temperature 0 only the most likely token is ever used (`_refuse_unused`).
        return logits / self.options.temperature if self.options.temperature > 0 else logits


def resolve(options: SflmOptions) -> SflmOptions:
    """The same options with every unset choice filled in; checked."""
    _refuse_unused(options)
    return options if options.steps == 1 else replace(options, velocity=options.velocity or USUAL)


def _refuse_unused(options: SflmOptions) -> None:
    """Refuse options that have no effect."""
    at_least("steps", options.steps)
    one_of("tail", options.tail, ("greedy", "ancestral"))
    velocity, draw = parse_velocity(options.velocity or USUAL), Draw(options.temperature)
    if find_stopping(options.eos).waits:
        raise ValueError(
            f"eos={options.eos!r} needs an order, and sflm settles all slots together: choose "
            "plain, fill or forbid"
        )
    if options.steps == 1 and options.velocity is not None:
        raise ValueError(
            "velocity has no effect on a single step, which moves nothing: leave it out, or "
            "give more steps"
        )
    settled = (options.steps == 1 or velocity.k == 1) and options.tail == "greedy"
    if draw.temperature == 0 and not settled:
        raise ValueError(
            "temperature 0 leaves the most likely token only: velocity top1, tail greedy. "
            "Leave these out, or set a temperature"
        )
    if draw.temperature not in (0, 1) and settled:
        raise ValueError(
            "the most likely token is the same at every temperature: leave it out, or choose "
            "another velocity or tail='ancestral'"
        )
