"""What a network believes about one slot, computed so that near-certain slots can still be ranked.

A softmax in float32 rounds every probability above 1 - 6e-8 to exactly 1, and confident slots then
tie by the dozen. Here everything is measured from the best entry down: with s_v = l_v - max l and

    rest = sum over v != best of exp(s_v)          (small when the slot is nearly certain)

    log p_best   = -log1p(rest)
    p_1 - p_2 - 1 = -(rest + exp(s_2)) / (1 + rest)
    sum p log p  = sum over v of exp(s_v) * s_v / (1 + rest) - log1p(rest)

each of which keeps its relative precision down to the smallest float. Slots tie only when their
logits say so. Letters: N slots, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


def refuse_nan(numbers: Tensor, step: int | None = None) -> None:
    """Refuse logits, or what was computed from them, where some are no numbers."""
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
        """The largest logit and its token, the lowest id among equals; quicker than argmax."""
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
        # 0 * -inf stands for a token that cannot occur: it adds nothing.
        terms = self._odds * self._shifted.masked_fill(self._odds == 0, 0.0)
        return terms.sum(dim=-1).double() / (1 + self._rest) - torch.log1p(self._rest)

    def log_prob(self, tokens: Tensor) -> Tensor:
        """log p of one given token per slot.  # N"""
        return self._shifted.gather(-1, tokens[:, None])[:, 0].double() - torch.log1p(self._rest)
