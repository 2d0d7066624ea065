"""The perfect uniform-state network: exact predictions of a small data law, by enumeration.

For a canvas z at alpha, with q(z_j | x_j) = alpha [z_j = x_j] + (1 - alpha) / K at free places and
[z_j = x_j] at frozen ones, the prediction that minimises the bound (process/uniform.py) is the
posterior of place i given all *other* places,

    p_i(v) is proportional to  sum over x with x_i = v of p(x) * product over j != i of q(z_j | x_j)

because the reverse step's formula adds what z_i says by itself. `joint` takes the product over all
j, the plain posterior p(x_i | z): a sampler then counts z_i twice, and is wrong for more than one
token. Frozen places are a property of the request, which a network is not told; the oracle is.

Not for real vocabularies: the work is (sequences x positions) per canvas.
Letters: B rows, L positions, S sequences, V rows of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor


class UniformOracle:
    """A `Denoiser` whose hidden states are log-predictions, and whose head passes them on.

    `states` is K, the number of states that noise is drawn from; `time` is alpha.
    """

    def __init__(
        self,
        data: Mapping[tuple[int, ...], float],
        states: int,
        vocab_size: int,
        *,
        frozen: Collection[int] = (),
        joint: bool = False,
    ) -> None:
        if len({len(sequence) for sequence in data}) != 1:
            raise ValueError("the oracle's sequences must all have one length")
        total = sum(data.values())
        self.sequences = torch.tensor(list(data))  # S L
        self.weights = torch.tensor([p / total for p in data.values()], dtype=torch.float64)  # S
        self.states, self.vocab_size, self.joint = states, vocab_size, joint
        self.frozen = torch.zeros(self.sequences.shape[1], dtype=torch.bool)
        self.frozen[list(frozen)] = True

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        """Log-predictions of every place.  # B L V"""
        if ids.shape[1] != self.sequences.shape[1] or time is None:
            raise ValueError(
                f"the oracle knows rows of {self.sequences.shape[1]} tokens, not {ids.shape[1]}, "
                "and needs a time"
            )
        alpha = time.double()[:, None, None]
        equal = ids[:, None, :] == self.sequences  # B S L
        fits = torch.where(self.frozen, equal.double(), alpha * equal + (1 - alpha) / self.states)
        if self.joint:
            weight = fits.prod(dim=2, keepdim=True).expand_as(fits)
        else:
            weight = _product_of_others(fits)
        one_hot = torch.nn.functional.one_hot(self.sequences, self.vocab_size).double()  # S L V
        mass = torch.einsum("s,bsl,slv->blv", self.weights, weight, one_hot)
        return (mass / mass.sum(dim=-1, keepdim=True)).log()

    def head(self, hidden: Tensor) -> Tensor:
        return hidden

    def entropy(self) -> float:
        """-sum p log p of the data, in nats."""
        return float(-(self.weights * self.weights.log()).sum())


def _product_of_others(factors: Tensor) -> Tensor:
    """For each place the product over all others; factors may be 0.  # B S L"""
    ones = torch.ones_like(factors[..., :1])
    before = torch.cat([ones, factors[..., :-1].cumprod(dim=-1)], dim=-1)
    after = torch.cat([ones, factors.flip(-1)[..., :-1].cumprod(dim=-1)], dim=-1).flip(-1)
    return before * after
