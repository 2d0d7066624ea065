"""Nats per answer: -log p(answer | prompt), exactly or as a bound, in one unit for all families.

Every function here gives one number for each row of a batch: one draw, whose expectation is the
number. Rows may be copies of one text or of several. Draws differ in their levels, which the noise
spreads over the rows, and in their places, which are keyed by the rows' `index`. A mean over the
copies of a text is an estimate (`nats_per_answer`; families/estimate.py does many texts, with
standard errors). With L free items of an answer:

    causal        exact: sum over tokens of -log p(x_i | x_<i), with the EOS that ends the answer,
                  if the batch has one
    masked        L * E[(1/n) * sum over masked of -log f_i]: the any-order bound (process/masking)
    segments      the same with L_s slots, empty ones included, and whole segments for tokens
    blocks        the sum over blocks of the same bound, each given the clean blocks before it
                  (process/blocks.py), for the model's usual block size; exact for blocks of one
    uniform       the integral of process/uniform.py's l_t and its prior term, summed over tokens
    insertion     the bound below, of flexmdm and flexlatent (process/insertion.py)

Bounds hold for -log p of the canvas or the segments, of which the answer is a function. Other
canvases with the same answer only add to its probability, so they hold for the answer too. A bound
is tight if the network's predictions are the exact posteriors of one law. Training losses differ
from these numbers by weights, normalisations and added terms: never read one as the other.

The insertion bound. The sampler is a jump process: in z at time t it opens a slot in gap i at the
rate w_alpha(t) e^g_i, and turns masked slot i into v at the rate w_beta(t) f_i(v). Given the clean
answer x, corruption run backwards is another one, with rates w_alpha m_i and w_beta q_i(v): m_i is
the expected number of items missing in gap i given z and x, and q_i the posterior of the hidden
token of slot i (z does not say which item a slot is; `align` integrates over it). The divergence
of the second process from the first bounds -log p(x):

    integral over t of   w_beta * sum over masked i of sum_v q_i(v) log(q_i(v) / f_i(v))
                       + w_alpha * sum over gaps i of ( m_i log(m_i / e^g_i) - m_i + e^g_i )

With f and g exact, both processes are the same given x, and the bound is -log p(x) for every x.
Both weights grow like 1 / (1 - t), and an error of e^g near t = 1 may make the integral infinite.
So the bounded sampler stops at t = 1 - LEFT with one last step, whose cost is exact: a Poisson
number of slots in every gap, then all masks at once,

    sum over gaps of ( e^g - m g + log m! )  +  sum over masked of -log f_i(x_i).

Half of the times are drawn uniformly, half by 1 / (1 - t), and weighed: then every draw is bounded.

Not here: texts, models, intervals (apps/race/beside.py).
Letters: B rows, N items, S slots, M masked slots, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.families.block.loss import BlockRows
from anyorder.families.descriptions import describe
from anyorder.families.duo import loss as uniform_loss
from anyorder.families.duo.loss import SCHEDULE
from anyorder.families.flexlatent.loss import (
    TARGETS,
    same_items,
    segment_items,
    visible_segments,
)
from anyorder.families.flexmdm.loss import clocks_of
from anyorder.families.latentmdm.loss import (
    Segments,
    latents,
    masked_conditions,
    read_prompts,
    segment_nats,
    slot_table,
)
from anyorder.nets.denoiser import States
from anyorder.nets.prompts import check_prompts
from anyorder.nets.shapes import ends_of
from anyorder.process import insertion, masking, uniform
from anyorder.process.blocks import Corruption, block_sizes, corrupt_counts, corrupt_sets
from anyorder.process.insertion import Clocks, InsertionItems, Interpolant, align, could_be
from anyorder.process.noise import Noise, Stream
from anyorder.vocab import Vocab

LEFT = 1e-3
"""The time that is left at the last step."""
HALVINGS = 60
"""Bisections that invert the law of the times; beyond the precision of float64."""


@dataclass(frozen=True)
class Prediction:
    """A network's predictions for a visible canvas, and the truth."""

    nats: Tensor
    """-log f of the content of each masked slot, expected under the posterior.  # M"""
    surprise: Tensor
    """The part of it that no network can avoid: the entropy of that posterior.  # M"""
    log_mean: Tensor
    """g of every gap.  # B S"""
    missing: Tensor
    """m of every gap.  # B S"""


Ask = Callable[[Interpolant], Prediction]


def token_insertion_nats(net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
    """flexmdm: items are tokens."""
    first, last, longest = batch.prompt_length, batch.length, batch.ids.shape[1]
    items = insertion.answer_items(first, last, longest, batch.index, noise, 0.0)

    def ask(seen: Interpolant) -> Prediction:
        shown = batch.ids.gather(1, seen.origin).masked_fill(~seen.real, vocab.pad_id)
        canvas = shown.masked_fill(seen.masked, vocab.mask_id)
        look = net.look(canvas, mask=seen.real, time=seen.time.float())
        log_prob = functional.log_softmax(net.head(look.states[seen.masked]).double(), dim=-1)
        alike = shown[:, :, None] == batch.ids[:, None, :]
        posterior = align(could_be(seen, items, alike), seen, items)
        row = seen.masked.nonzero()[:, 0]
        hidden = torch.zeros_like(log_prob).scatter_add(  # M V, the posterior of the token
            1, batch.ids[row], posterior.origin[seen.masked].to(log_prob)
        )
        # An impossible token must not make NaN from 0 * inf.
        nats = -(hidden * log_prob.masked_fill(hidden == 0, 0.0)).sum(dim=1)
        return Prediction(nats, _entropy(hidden), look.gaps.double(), posterior.missing)

    return insertion_nats(items, batch.index, noise, clocks_of(net), ask)


def segment_insertion_nats(net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
    """flexlatent: items are segments, after the anchor that ends the prompt."""
    segments = Segments.of(batch, vocab)
    items = segment_items(batch, noise, 0.0)
    prompt = read_prompts(net, batch, vocab)
    # For every item the first one with the same content; the anchor is item 0.
    content = same_items(segments).long().argmax(dim=2)  # B N

    def ask(seen: Interpolant) -> Prediction:
        real, hidden = seen.real[:, 1:], seen.masked[:, 1:]
        vectors = latents(net, visible_segments(segments, seen), hidden | ~real, net.mask_vector)
        look = net.look(prompt, vectors, real, time=seen.time.float())
        targets = TARGETS["integrated"](segments, seen, items)
        row = seen.masked.nonzero()[:, 0]
        chosen = segments[row[targets.slot], targets.item - 1]
        each = segment_nats(net, look.states[hidden], chosen, targets.slot).per_segment().double()
        nats = each.new_zeros(len(row)).index_add(0, targets.slot, each * targets.probability)
        # Equal segments are one outcome: the entropy is over contents, not over items.
        outcome = (targets.slot, content[row[targets.slot], targets.item])
        table = each.new_zeros(len(row), content.shape[1])
        table = table.index_put(outcome, targets.probability.to(each), accumulate=True)
        return Prediction(nats, _entropy(table), look.gaps.double(), targets.missing)

    return insertion_nats(items, batch.index, noise, clocks_of(net), ask)


def insertion_nats(
    items: InsertionItems, index: Tensor, noise: Noise, clocks: Clocks, ask: Ask
) -> Tensor:
    """One draw of the bound for each row.  # B"""
    time, weight = drawn_times(noise.levels(len(index), index.device))
    seen = _at(time, items, index, noise, clocks)
    guess = ask(seen)
    row = seen.masked.nonzero()[:, 0]
    # The divergence is the cross-entropy minus the entropy.
    reveals = guess.nats.new_zeros(len(index)).index_add(0, row, guess.nats - guess.surprise)
    # The terms without g, which the loss of training leaves out.
    extra = torch.xlogy(guess.missing, guess.missing) - guess.missing
    gaps = (insertion.poisson_loss(guess.missing, guess.log_mean) + extra) * seen.gaps
    inserts = gaps.sum(dim=1)
    rates = clocks.unmasking.hazard(time) * reveals + clocks.insertion.hazard(time) * inserts
    return weight * rates + _last_step(items, index, noise, clocks, ask)


def drawn_times(levels: Tensor) -> tuple[Tensor, Tensor]:
    """Times from 0 to 1 - LEFT, and one over their density, from uniform levels.  # B"""
    low = torch.zeros_like(levels, dtype=torch.float64)
    high = torch.full_like(low, 1 - LEFT)
    for _ in range(HALVINGS):  # the mixture has no closed inverse
        middle = (low + high) / 2
        below = _share_before(middle) < levels
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    density = 0.5 / (1 - LEFT) + 0.5 / ((1 - low) * -math.log(LEFT))
    return low, 1 / density


def _share_before(time: Tensor) -> Tensor:
    return 0.5 * time / (1 - LEFT) + 0.5 * torch.log1p(-time) / math.log(LEFT)


def _at(
    time: Tensor, items: InsertionItems, index: Tensor, noise: Noise, clocks: Clocks
) -> Interpolant:
    """The visible items at these times; keyed noise gives each item its two times."""
    item = torch.arange(items.free.shape[1], device=index.device)
    keys = (index[:, None], item[None, :])
    first, second = clocks.times(
        noise.uniform(Stream.PLACE, *keys), noise.uniform(Stream.REVEAL, *keys)
    )
    here, free = time[:, None], items.free
    return insertion.pack(
        items, deleted=free & (here < first), masked=free & (here < second), time=time
    )


def _last_step(
    items: InsertionItems, index: Tensor, noise: Noise, clocks: Clocks, ask: Ask
) -> Tensor:
    """The cost of the last step: insert all missing items, then reveal all masks.  # B"""
    time = torch.full((len(index),), 1 - LEFT, dtype=torch.float64, device=index.device)
    seen = _at(time, items, index, noise, clocks)
    guess = ask(seen)
    missing = seen.missing.to(guess.log_mean)  # drawn, not expected: log m! needs whole numbers
    poisson = insertion.poisson_loss(missing, guess.log_mean) + torch.lgamma(missing + 1)
    inserted = (poisson * seen.gaps).sum(dim=1)
    nothing = torch.zeros_like(items.free)
    # Deleted and masked items are masks now; padding writes to item 0, which is never free.
    clean = nothing.scatter(1, seen.origin, seen.real & ~seen.masked)
    full = insertion.pack(items, deleted=nothing, masked=items.free & ~clean, time=time)
    return inserted + _row_sums(ask(full).nats, full.masked).to(inserted)


def _entropy(probability: Tensor) -> Tensor:
    """-sum p log p of every row.  # M K -> M"""
    return -torch.xlogy(probability, probability).sum(dim=1)


def _row_sums(each: Tensor, chosen: Tensor) -> Tensor:
    """For each row the sum over its chosen places, given in row-major order.  # M -> B"""
    return each.new_zeros(len(chosen)).index_add(0, chosen.nonzero()[:, 0], each)


RowNats = Callable[[Any, Vocab, Batch, Noise], Tensor]
"""(network, vocabulary, batch, noise) -> one draw of the nats of each row.  # B"""


@dataclass(frozen=True)
class AnyOrder:
    """An any-order bound: its items, their blocks, and its cost for given masks."""

    items: Callable[[Batch], Tensor]
    """What is masked.  # B N, bool"""
    nats: Callable[[Any, Vocab, Batch, Tensor], Tensor]
    """(network, vocabulary, batch, masked B N) -> -log f of masked items, in row-major order.
    # M"""
    blocks: Callable[[Any, Batch], Tensor] | None = None
    """(network, batch) -> the block of each item, B N; None: all are one."""

    def draw(self, net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
        """The bound for random masks.  # B"""
        items, block = self._on_grid(net, batch)
        return self._cost(net, vocab, batch, corrupt_counts(items, block, batch.index, noise))

    def sets(self, net: Any, batch: Batch) -> int:
        """How many sets of masks the largest block of these rows has."""
        items, block = self._on_grid(net, batch)
        return 2 ** int((block_sizes(items, block) * items).max()) - 1

    def enumerated(self, net: Any, vocab: Vocab, batch: Batch) -> Tensor:
        """The cost of set `index` of each row, weighed: the bound is the sum over all sets.  # B"""
        items, block = self._on_grid(net, batch)
        return self._cost(net, vocab, batch, corrupt_sets(items, block, batch.index))

    def _on_grid(self, net: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        items = self.items(batch)
        return items, items.long() * 0 if self.blocks is None else self.blocks(net, batch)

    def _cost(self, net: Any, vocab: Vocab, batch: Batch, drawn: Corruption) -> Tensor:
        each = self.nats(net, vocab, batch, drawn.masked)
        return _row_sums(each * drawn.weight[drawn.masked], drawn.masked)


@dataclass(frozen=True)
class Likelihood:
    """How a family computes the likelihood of an answer."""

    name: str
    """The kind of number, in words."""
    nats: RowNats
    exact: bool = False
    """False: an upper bound on -log p, estimated with noise."""
    any_order: AnyOrder | None = None
    """For bounds whose masks can be enumerated."""
    greedy: Callable[[Any, Batch], Tensor] | None = None
    """(network, batch) -> whether every token of an answer is the likeliest: B, bool. None: only
    decoding tells it."""


def causal_nats(net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
    """ar: exact; one copy is enough."""
    states = net.hidden(batch.ids)[masking.predictors(batch.answer)]
    return _row_sums(_nats(net, states, batch.ids[batch.answer]), batch.answer)


def causal_greedy(net: Any, batch: Batch) -> Tensor:
    """ar: whether the answer is what greedy decoding writes."""
    states = net.hidden(batch.ids)[masking.predictors(batch.answer)]
    wrong = net.head(states).argmax(dim=-1) != batch.ids[batch.answer]
    return _row_sums(wrong.long(), batch.answer) == 0


def masked_nats(net: Any, vocab: Vocab, batch: Batch, masked: Tensor) -> Tensor:
    """mdm: over the tokens of the canvas, with the EOS that fill it."""
    canvas = batch.ids.masked_fill(masked, vocab.mask_id)
    states = net.hidden(canvas, mask=batch.real)[masked]  # M D
    return _nats(net, states, batch.ids[masked])


def slot_nats(net: Any, vocab: Vocab, batch: Batch, masked: Tensor) -> Tensor:
    """latentmdm: over slots; every slot, empty ones too, is an item."""
    segments = Segments.of(batch, vocab)
    conditions = masked_conditions(net, batch, segments, masked, vocab)
    return segment_nats(net, conditions[masked], segments[masked]).per_segment()


def block_nats(net: Any, vocab: Vocab, batch: Batch, masked: Tensor) -> Tensor:
    """block: as mdm, given the clean blocks before each."""
    return BlockRows.of(net, batch, net.config.block_size).nats(net, vocab, masked)


def uniform_nats(net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
    """duo: the integral over time, and the prior term of every token."""
    states, free = States.of(vocab).to(batch.ids.device), batch.answer
    # Ids that are no states occur only in prompts: any number serves there.
    clean = states.number[batch.ids].where(free, 0)
    assert bool((clean >= 0).all()), "an answer holds an id that is no state"
    # From t = 0: training raises early times to FIRST_TIME, which makes the number too low.
    seen = uniform.corrupt(clean, free, batch.index, noise, SCHEDULE, states.count, 0.0)
    vectors = net.embed(batch.ids.where(~free, states.ids[seen.states]))
    each, _ = uniform_loss.token_nats(net, batch, free, clean, seen, vectors, states)
    return _row_sums(each + uniform.prior_nats(states.count, SCHEDULE), free)


def _nats(net: Any, states: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(net.head(states).float(), targets, reduction="none")  # M


TOKENS = AnyOrder(lambda batch: batch.answer, masked_nats)
BLOCKS = AnyOrder(
    lambda batch: batch.answer,
    block_nats,
    lambda net, batch: BlockRows.of(net, batch, net.config.block_size).parts,
)
SLOTS = AnyOrder(lambda batch: torch.ones_like(slot_table(batch)[0], dtype=torch.bool), slot_nats)

LIKELIHOODS: dict[str, Likelihood] = {
    each.name: each
    for each in (
        Likelihood("exact", causal_nats, exact=True, greedy=causal_greedy),
        Likelihood("any-order bound over tokens", TOKENS.draw, any_order=TOKENS),
        Likelihood("block bound over tokens", BLOCKS.draw, any_order=BLOCKS),
        Likelihood("any-order bound over lines", SLOTS.draw, any_order=SLOTS),
        Likelihood("insertion bound over tokens", token_insertion_nats),
        Likelihood("insertion bound over lines", segment_insertion_nats),
        Likelihood("uniform-state bound", uniform_nats),
    )
}
"""By name; families' descriptions hold the names."""


def likelihood_of(family: str) -> Likelihood | None:
    """The likelihood of a family; None if it has none."""
    name = describe(family).likelihood
    return None if name is None else LIKELIHOODS[name]


def nats_per_answer(
    likelihood: Likelihood, net: Any, vocab: Vocab, batch: Batch, noise: Noise
) -> float:
    """The mean over the copies of one text, in nats; it must be finite."""
    draws = drawn_nats(likelihood, net, batch, partial(likelihood.nats, net, vocab, batch, noise))
    return float(draws.mean())


@torch.no_grad()
def drawn_nats(
    likelihood: Likelihood, net: Any, batch: Batch, draw: Callable[[], Tensor]
) -> Tensor:
    """The rows' numbers, checked: every one must be finite.  # B, float64"""
    check_prompts(batch.ids, batch.prompt_length, ends_of(getattr(net, "config", None)))
    found = draw().double()
    for value in found[~found.isfinite()].tolist():
        raise ValueError(f"the {likelihood.name} of a text is {value}: is the model trained?")
    return found
