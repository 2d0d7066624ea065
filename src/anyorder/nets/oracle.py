"""The perfect network: exact posteriors of a small data distribution, by enumeration.

Given every sequence of the data with its probability, the posterior of slot i on a canvas z is

    p(x_i = v | z) = sum of p(x) over sequences x that agree with z and have x_i = v, normalised.

A decoder that is right must reproduce the data distribution when it is given this network; a loss
that is right must reach the data's entropy. Not for real vocabularies: the work is
(sequences x positions) per canvas.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Oracle:
    """A `Denoiser` whose hidden states are exact log-posteriors, and whose head passes them on."""

    def __init__(
        self, data: Mapping[tuple[int, ...], float], mask_id: int, vocab_size: int
    ) -> None:
        if len({len(sequence) for sequence in data}) != 1:
            raise ValueError("the oracle's sequences must all have one length")
        total = sum(data.values())
        self.sequences = torch.tensor(list(data))  # S L
        self.weights = torch.tensor([p / total for p in data.values()], dtype=torch.float64)  # S
        self.mask_id, self.vocab_size = mask_id, vocab_size

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """Log-posteriors of every slot.  # B L V"""
        if ids.shape[1] != self.sequences.shape[1]:
            raise ValueError(
                f"the oracle knows rows of {self.sequences.shape[1]} tokens, not {ids.shape[1]}"
            )
        agrees = (ids[:, None, :] == self.sequences) | (ids[:, None, :] == self.mask_id)  # B S L
        weight = agrees.all(dim=2) * self.weights  # B S
        one_hot = torch.nn.functional.one_hot(self.sequences, self.vocab_size).double()  # S L V
        mass = torch.einsum("bs,slv->blv", weight, one_hot)
        return (mass / weight.sum(dim=1)[:, None, None]).log()

    def head(self, hidden: Tensor) -> Tensor:
        return hidden

    def entropy(self) -> float:
        """-sum p log p of the data, in nats."""
        return float(-(self.weights * self.weights.log()).sum())
