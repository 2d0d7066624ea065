"""Nats per answer: -log p(answer | prompt), exactly or as a bound, in one unit for all families.

Every function here takes D copies of *one* text as a batch and gives one number, the mean over the
copies; what is drawn differs between them (levels are stratified, places are keyed by the copies'
`index`), so that D is the number of draws. What the numbers are, with L free items of an answer:

    causal        exact: sum over tokens of -log p(x_i | x_<i), the EOS that ends it included
    masked        L * E[(1/n) * sum over masked of -log f_i]: the any-order bound (process/masking)
    segments      the same with L_s slots, empty ones included, and whole segments for tokens
    uniform       the integral of process/uniform.py's l_t and its prior term, summed over tokens
    insertion     see insertion_likelihood.py

Bounds hold for -log p of the canvas or the segments, of which the answer is a function; other
canvases with the same answer can only add to its probability, so they hold for the answer too. A
bound is met where the network's predictions are the exact posteriors of one law. Losses differ
from these by weights, by normalisations, and by what training adds: never read one as the other.

Not here: texts, models, intervals (apps/race_likelihood.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.data.batches import Batch
from anyorder.nets.states import States
from anyorder.process import causal, masking, uniform
from anyorder.process.noise import Noise
from anyorder.train.insertion_likelihood import segment_insertion_nats, token_insertion_nats
from anyorder.train.segment_objective import segment_mean
from anyorder.train.uniform_config import UniformConfig
from anyorder.train.uniform_objective import SCHEDULE, uniform_bound
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class Likelihood:
    """How a family says how likely an answer is."""

    name: str
    """What the number is, in words."""
    nats: Callable[[Any, Vocab, Batch, Noise], Tensor]
    """(network, vocabulary, copies of one text, noise) -> nats, a scalar."""
    exact: bool = False
    """Else it is an upper bound on -log p, estimated with noise."""


def causal_nats(net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
    """ar: exact; one copy is enough."""
    states = net.hidden(batch.ids)[causal.predictors(batch.answer)]
    return _nats(net, states, batch.ids[batch.answer]).sum() / len(batch.ids)


def masked_nats(net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
    """mdm: the any-order bound over the canvas, the EOS that fill it included."""
    masked = masking.corrupt(batch.answer, batch.index, noise)
    canvas = batch.ids.masked_fill(masked, vocab.mask_id)
    states = net.hidden(canvas, mask=batch.real)[masked]  # M D
    mean = masking.mean_over_masked(_nats(net, states, batch.ids[masked]), masked).loss
    return mean * int(batch.answer[0].sum())


def slot_nats(net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
    """latentmdm: the any-order bound over slots; every slot, empty ones too, is an item."""
    assert batch.segment_length is not None
    return segment_mean(vocab)(net, batch, noise).loss * batch.segment_length.shape[1]


def uniform_nats(net: Any, vocab: Vocab, batch: Batch, noise: Noise) -> Tensor:
    """duo: the integral over time at stratified times, and the prior term of every token.

    From t = 0 on, unlike training's, which counts the first moments too low.
    """
    parts = uniform_bound(vocab, UniformConfig(), 0, first_time=0.0)(net, batch, noise)
    tokens = int(batch.answer[0].sum())
    assert int(parts.tokens) == tokens * len(batch.ids), "the whole answer is corrupted"
    prior = uniform.prior_nats(States.of(vocab).count, SCHEDULE)
    return parts.nats / len(batch.ids) + prior * tokens


def _nats(net: Any, states: Tensor, targets: Tensor) -> Tensor:
    """-log p of the targets.  # M"""
    return functional.cross_entropy(net.head(states).float(), targets, reduction="none")


LIKELIHOODS: dict[str, Likelihood] = {
    "ar": Likelihood("exact", causal_nats, exact=True),
    "mdm": Likelihood("any-order bound over tokens", masked_nats),
    "latentmdm": Likelihood("any-order bound over lines", slot_nats),
    "flexmdm": Likelihood("insertion bound over tokens", token_insertion_nats),
    "flexlatent": Likelihood("insertion bound over lines", segment_insertion_nats),
    "duo": Likelihood("uniform-state bound", uniform_nats),
}
"""By family; a family that is not here has no likelihood to speak of (sflm: its cross-entropy is
that of a denoiser at noised vectors, and bounds nothing)."""


@torch.no_grad()
def nats_per_answer(
    likelihood: Likelihood, net: Any, vocab: Vocab, batch: Batch, noise: Noise
) -> float:
    """The number, in nats; it must be finite."""
    value = float(likelihood.nats(net, vocab, batch, noise))
    if not abs(value) < float("inf"):
        raise ValueError(f"the {likelihood.name} of a text is {value}: is the model trained?")
    return value
