"""From the logits of a slot to a token: posterior, filters, the draw, and the treatment of EOS.

Draw. The order is fixed, because it matters: logits / T, then the smallest set of best tokens
whose probability exceeds top_p (the token that crosses the line is kept), then the top_k best of
those. Temperature 0 takes the best token, which the filters always keep.

A draw inverts the cumulative distribution at one keyed uniform per slot: exact, and a vocabulary
times cheaper in noise than Gumbel-max.

Posterior. It is computed so that near-certain slots can still be ranked. A softmax in float32
rounds every probability above 1 - 6e-8 to exactly 1, and confident slots then tie by the dozen.
Here all values are relative to the best entry: with s_v = l_v - max l and

    rest = sum over v != best of exp(s_v)          (small when the slot is nearly certain)

    log p_best   = -log1p(rest)
    p_1 - p_2 - 1 = -(rest + exp(s_2)) / (1 + rest)
    sum p log p  = sum over v of exp(s_v) * s_v / (1 + rest) - log1p(rest)

each of which keeps its relative precision down to the smallest float. Slots tie only when their
logits do.

Stopping. A fixed canvas is longer than the text, so masked models are trained to fill the rest with
EOS. How the sampler treats these EOS changes length, order and accuracy. The choices are:

    plain    EOS is a token like any other
    last     a slot that proposes EOS comes after every open slot of the window that does not
    fill     once EOS is revealed, every open slot to its right becomes EOS at that same step
    forbid   EOS is never produced (infilling of a given length)

Not here: which slots are revealed (policy.py), and calls of the network (loop.py).
Letters: N slots, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from anyorder.checks import check_rows
from anyorder.vocab import Vocab

BLOCK = 512
"""Tokens that a draw sums as one block before it looks at them one by one."""
FIRST_SEARCH = 256
"""How many of the best tokens top-p looks at before it looks at more."""


@dataclass(frozen=True)
class Draw:
    """How a token is drawn from a slot's distribution."""

    temperature: float = 0.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    """Keep the smallest set of best tokens with more than this mass; 1 keeps all."""
    top_k: int = 0
    """Keep this many best tokens; 0 keeps all."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or positive, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or positive, not {self.top_k}")

    @classmethod
    def of(cls, options: Any) -> Draw:
        """The drawing part of a family's options (`DrawOptions` of families/config.py)."""
        return cls(options.temperature, options.top_p, options.top_k)

    def refuse_idle_filters(self, posterior: str | None = None) -> None:
        """Refuse options without effect: at temperature 0 filters never remove the best token.

        `posterior`: the one that scores read, if they read any.
        """
        if self.temperature > 0:
            return
        filters = self.top_p < 1 or self.top_k > 0
        if posterior == "filtered" and not filters:
            raise ValueError(
                "posterior='filtered' is the untempered one at temperature 0 without top_p or "
                "top_k: leave it out, or set one of them"
            )
        if posterior != "filtered" and filters:
            raise ValueError(
                "at temperature 0 top_p and top_k change nothing: set a temperature or drop them"
            )


def filtered(logits: Tensor, draw: Draw) -> Tensor:
    """The logits that tokens are drawn from; removed tokens are -inf.  # N V"""
    if draw.temperature > 0:
        logits = logits / draw.temperature
    if draw.top_p < 1:
        logits = logits.masked_fill(~_nucleus(logits, draw.top_p), -torch.inf)
    if 0 < draw.top_k < logits.shape[-1]:
        kept = logits.topk(draw.top_k, dim=-1).indices
        logits = torch.full_like(logits, -torch.inf).scatter(-1, kept, logits.gather(-1, kept))
    return logits


def _nucleus(logits: Tensor, top_p: float) -> Tensor:
    """True for the tokens kept by top-p.  # N V"""
    # The few best tokens almost always hold the mass. So the search starts with them and widens
    # only if it must: sorting a whole vocabulary costs fifty times as much.
    total = logits.logsumexp(dim=-1, keepdim=True)  # N 1
    width, size = min(FIRST_SEARCH, logits.shape[-1]), logits.shape[-1]
    while True:
        best, order = logits.topk(width, dim=-1)  # N K, best first
        # float64, because a float32 cumulative sum drifts across the threshold.
        probability = (best - total).double().exp()
        mass_before = probability.cumsum(dim=-1) - probability
        if width == size or bool((mass_before[:, -1] > top_p).all()):
            break
        width = min(width * 16, size)
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, mass_before <= top_p)


def pick(logits: Tensor, draw: Draw, noise: Tensor) -> Tensor:
    """One token per slot from softmax(filtered(logits)); `noise` (N) is uniform in (0, 1).  # N"""
    if draw.temperature == 0:
        return logits.argmax(dim=-1)
    return pick_from(filtered(logits, draw), noise)


def pick_from(logits: Tensor, noise: Tensor) -> Tensor:
    """From softmax(logits): the first token whose cumulative mass passes the noise.  # N"""
    # First a block by the blocks' masses, then a token in it: cumulative sums in float64 over a
    # whole vocabulary cost more than the network's head.
    weights = (logits - logits.amax(dim=-1, keepdim=True)).exp()  # N V
    short = -weights.shape[1] % BLOCK
    if short:
        weights = torch.nn.functional.pad(weights, (0, short))
    blocks = weights.unflatten(1, (-1, BLOCK))  # N K BLOCK
    masses = blocks.sum(dim=2).double()  # N K
    block, rest = _cross(masses, noise * masses.sum(dim=1))
    inside = blocks[torch.arange(len(block), device=block.device), block].double()  # N BLOCK
    # NaN logits must not index outside the vocabulary; callers check for NaN afterwards.
    return (block * BLOCK + _cross(inside, rest)[0]).clamp(max=logits.shape[1] - 1)


def _cross(masses: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The first entry whose cumulative mass passes the target, and the target's rest in it.  # N"""
    cumulative = masses.cumsum(dim=1)
    # Rounding must not carry the target to the end, past the last entry that has mass.
    last = cumulative[:, -1]
    target = torch.minimum(target, last.nextafter(torch.zeros_like(last)))
    found = torch.searchsorted(cumulative, target[:, None], right=True)  # N 1
    found = found.clamp(max=masses.shape[1] - 1)
    before = (cumulative.gather(1, found) - masses.gather(1, found))[:, 0]
    return found[:, 0], (target - before).clamp(min=0)


def refuse_nan(numbers: Tensor, step: int | None = None) -> None:
    """Refuse logits, or values computed from them, if some are NaN."""
    if bool(numbers.isnan().any()):
        when = "" if step is None else f"at step {step} "
        raise ValueError(
            f"{when}the network's logits are not finite: check its weights, and that its "
            "vocabulary is the one given"
        )


@dataclass(frozen=True)
class Posterior:
    """The distribution softmax(logits) of N slots; entries may be -inf (impossible)."""

    logits: Tensor  # N V

    @cached_property
    def _largest(self) -> tuple[Tensor, Tensor]:
        """The largest logit and its token, the lowest id among equals; faster than argmax."""
        value, token = self.logits.max(dim=-1)
        return value, token  # N, N

    @property
    def best(self) -> Tensor:
        """The most likely token of each slot.  # N"""
        return self._largest[1]

    @cached_property
    def _shifted(self) -> Tensor:
        return self.logits - self._largest[0][:, None]  # N V

    @cached_property
    def _odds(self) -> Tensor:
        """exp(l_v - l_best), with the best entry taken out.  # N V"""
        return self._shifted.exp().scatter_(-1, self.best[:, None], 0.0)

    @cached_property
    def _rest(self) -> Tensor:
        # Positive terms: a pairwise float32 sum keeps seven digits, 25 times as fast as float64.
        return self._odds.sum(dim=-1).double()  # N

    def log_confidence(self) -> Tensor:
        """log of the largest probability.  # N"""
        return -torch.log1p(self._rest)

    def margin_below_one(self) -> Tensor:
        """p_1 - p_2 - 1: the margin, moved so that certainty is 0 and keeps its precision.  # N"""
        second = self._odds.amax(dim=-1).to(torch.float64)
        return -(self._rest + second) / (1 + self._rest)

    def negative_entropy(self) -> Tensor:
        """sum p log p.  # N"""
        # 0 * -inf is NaN, but a token that cannot occur must add nothing.
        terms = self._odds * self._shifted.masked_fill(self._odds == 0, 0.0)
        return terms.sum(dim=-1).double() / (1 + self._rest) - torch.log1p(self._rest)

    def log_prob(self, tokens: Tensor) -> Tensor:
        """log p of one given token per slot.  # N"""
        return self._shifted.gather(-1, tokens[:, None])[:, 0].double() - torch.log1p(self._rest)


@dataclass(frozen=True)
class Stopping:
    """What the sampler does about EOS."""

    waits: bool = False
    """A slot that proposes EOS comes after all others, whatever its score."""
    fills: bool = False
    """Open slots right of a revealed EOS become EOS at once."""
    forbids: bool = False
    """EOS has probability 0."""


STOPPING = {
    "plain": Stopping(),
    "last": Stopping(waits=True),
    "fill": Stopping(fills=True),
    "forbid": Stopping(forbids=True),
}


def role_ids(vocab: Vocab) -> tuple[int, ...]:
    """Mask, pad, EOS and BOS: the ids that no growing text holds."""
    roles = {vocab.mask_id, vocab.pad_id, vocab.eos_id, vocab.bos_id}
    return tuple(sorted(id for id in roles if id is not None))


def ends_text(tokens: Tensor, vocab: Vocab) -> Tensor:
    """Where a token is one of those that end a text."""
    found = tokens == vocab.eos_id
    for token in vocab.end_ids[1:]:
        found |= tokens == token
    return found


def behind(ends: Tensor, slots: Tensor) -> Tensor:
    """The slots to the right of an end in the same row.  # B L each"""
    return (ends.long().cumsum(dim=1) > ends.long()) & slots


def find_stopping(name: str) -> Stopping:
    if name not in STOPPING:
        raise ValueError(f"unknown eos choice {name!r}: choose one of {', '.join(STOPPING)}")
    return STOPPING[name]


def text_logits(logits: Tensor, vocab: Vocab, forbidden: Iterable[int] = ()) -> Tensor:
    """The logits (..., V) in float32, with -inf for ids that a text must not hold, in place."""
    check_rows(logits.shape[-1], vocab.size)
    logits = logits.float()
    for token in forbidden:
        logits[..., token] = -torch.inf
    logits[..., vocab.size :] = -torch.inf  # heads are padded beyond the tokenizer
    return logits
