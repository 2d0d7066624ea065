"""Which rows of a vocabulary a text may hold: the states of a process that draws tokens anew.

A text holds ordinary tokens and its end, and PAD where an answer stands on the right side of its
canvas. It never holds the mask, BOS, other special tokens or unused rows of the table, so a
uniform draw must not give them, and a network's logits for them count for nothing.

State number k is id `ids[k]`, in the order of the ids. Letters: K states, V rows of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from anyorder.vocab import Vocab


@dataclass(frozen=True, eq=False)
class States:
    """The ids that are states, and which state each id is."""

    ids: Tensor  # K
    number: Tensor
    """-1 for an id that is none.  # V"""

    @classmethod
    def of(cls, vocab: Vocab, *, without: frozenset[int] = frozenset()) -> States:
        """All that a text of this vocabulary may hold, but not `without`."""
        return _states(vocab, without)

    @property
    def count(self) -> int:
        """K."""
        return len(self.ids)

    def to(self, device: torch.device | str) -> States:
        return States(self.ids.to(device), self.number.to(device))

    def logits(self, all_logits: Tensor) -> Tensor:
        """The logits of the states, in float32 at the least: (..., V) -> (..., K)."""
        if all_logits.shape[-1] < len(self.number):
            raise ValueError(
                f"the network gives {all_logits.shape[-1]} logits for a vocabulary of "
                f"{len(self.number)}: use the vocabulary that it was trained with"
            )
        chosen = all_logits.index_select(-1, self.ids)
        return chosen.to(torch.promote_types(chosen.dtype, torch.float32))


@lru_cache(maxsize=8)
def _states(vocab: Vocab, without: frozenset[int]) -> States:
    ends = {vocab.eos_id, vocab.pad_id}
    kept = [
        id
        for id in range(vocab.size)
        if id not in without
        and (id in ends or (id not in vocab.special_ids and vocab.decode([id])))
    ]
    # Made once for all uses: a decoder that asks first must not bar training from them.
    with torch.inference_mode(False):
        number = torch.full((vocab.size,), -1)
        number[kept] = torch.arange(len(kept))
        return States(torch.tensor(kept), number)
