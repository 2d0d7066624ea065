"""Which clean item is each visible slot? The exact posterior, with the alignment integrated out.

Given a clean row x and what is visible of it, z, every order-preserving way to place the slots of z
on items of x that agree with them has the same probability: all of them delete the same number of
items. So the posterior of an alignment is uniform over these embeddings, and its marginals

    P(s_i = j | x, z),   E[s_{i+1} - s_i - 1 | x, z]   (missing in the gap after slot i)

come from counting embeddings, forward and backward. As targets they have the mean of the one
alignment that was drawn, and a smaller variance (Rao-Blackwell). Counts are kept as logarithms:
they grow like binomial coefficients. Letters: B rows, N clean items, S visible slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.process.insertion import Interpolant, Items


@dataclass(frozen=True)
class Alignment:
    """The posterior marginals."""

    origin: Tensor
    """P(slot i is item j); rows of padding are 0.  # B S N"""
    missing: Tensor
    """Expected number of items missing in the gap after each slot; 0 where none may be.  # B S"""


def could_be(seen: Interpolant, items: Items, shown: Tensor) -> Tensor:
    """Which item each slot could be.  # B S N

    `shown` (B S N) says whether a clean slot shows the content of an item. Frozen items are never
    deleted, so a frozen slot is itself and a free slot is a free item.
    """
    item = torch.arange(items.free.shape[1], device=seen.origin.device)
    itself = item == seen.origin[:, :, None]
    is_free = items.free.gather(1, seen.origin)[:, :, None]
    alike = items.free[:, None, :] & (shown | seen.masked[:, :, None])
    return torch.where(is_free, alike, itself) & seen.real[:, :, None]


def align(possible: Tensor, seen: Interpolant, items: Items) -> Alignment:
    """The posterior over embeddings of the slots into the items they could be (B S N)."""
    # Before the first gap nothing is missing: slots there are the items of the same number.
    certain = int(items.gaps.long().argmax(dim=1).min())
    origin = possible.to(torch.float64)
    open_part = (slice(None), slice(certain, None), slice(certain, None))
    origin[open_part] = _marginals(possible[open_part], seen.real[:, certain:])
    item = torch.arange(origin.shape[2], dtype=origin.dtype, device=origin.device)
    place = origin @ item  # B S, the expected item
    following = torch.cat([place[:, 1:], torch.zeros_like(place[:, :1])], dim=1)
    has_next = torch.cat([seen.real[:, 1:], torch.zeros_like(seen.real[:, :1])], dim=1)
    following = torch.where(has_next, following, items.length[:, None].to(place.dtype))
    missing = (following - place - 1).clamp(min=0)
    return Alignment(origin, missing.masked_fill(~seen.gaps, 0))


def _marginals(possible: Tensor, real: Tensor) -> Tensor:
    """P(slot i is item j) under the uniform law over embeddings; 0 at padding.  # B S N"""
    allowed = torch.where(possible, 0.0, -torch.inf).to(torch.float64)
    joint = _ways_before(allowed) + _ways_after(allowed, real)
    total = joint.logsumexp(dim=2, keepdim=True)  # the same for every slot of a row
    return torch.where(real[:, :, None], (joint - total).exp(), 0.0)


def _strictly_before(ways: Tensor) -> Tensor:
    """log of the sum over all items left of each one.  # B N"""
    return torch.nn.functional.pad(ways.logcumsumexp(dim=1)[:, :-1], (1, 0), value=-torch.inf)


def _ways_before(allowed: Tensor) -> Tensor:
    """log of the number of ways to place slots 0..i with slot i on item j.  # B S N"""
    ways = [allowed[:, 0]]
    for slot in range(1, allowed.shape[1]):
        ways.append(allowed[:, slot] + _strictly_before(ways[-1]))
    return torch.stack(ways, dim=1)


def _ways_after(allowed: Tensor, real: Tensor) -> Tensor:
    """log of the number of ways to place slots i+1.. of the row right of item j.  # B S N"""
    ways = [torch.zeros_like(allowed[:, 0])]
    for slot in range(allowed.shape[1] - 1, 0, -1):
        after = _strictly_before((allowed[:, slot] + ways[-1]).flip(1)).flip(1)
        ways.append(torch.where(real[:, slot, None], after, 0.0))
    return torch.stack(ways[::-1], dim=1)
