"""Masked diffusion block by block: corruption and weights (Arriola et al., arXiv 2503.09573).

The law is a product over blocks, each an any-order model of its items given all earlier blocks:

    -log p(x) <= sum over blocks b of  E_t[ (1/t) * sum over masked i of b of -log f_i(x_i | z) ]

where an item of the block is masked with probability t. With t integrated out, a set of m of the n
items of a block has the weight (`set_weight`)

    w(m) = integral of t^(m-1) (1-t)^(n-m) dt = (m-1)! (n-m)! / n! = 1 / (m C(n, m))

and with t uniform in [a, c] only, 1/(c-a) times the integral from a to c: another objective, for
training only. The bound is the same for every block size if f is exact.

Sets (`corrupt_sets`): all of them, one after the other, where blocks are short.

Counts (`corrupt_counts`): n_b uniform in {1, ..., L_b} items of each block, at random, each with
the weight L_b / n_b. The same value with less variance, as in masking.py.

Times (`corrupt_times`): one t for each block, or one for the whole sequence. The weight of a masked
item is 1/t, or 1 where the objective is the plain mean over masked items.

Levels. A row has one stratified level u (process/noise.py). Block k of the row has the level
u + r_k mod 1, r_0 = 0, with the same r_k in all rows: uniform in every block, and stratified over
the rows in each. A fixed level, of a validation grid, is that of all blocks.

One block for the whole answer gives exactly the corruption of masking.py.
Letters: B rows, N items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.process.masking import LossParts, item_noise
from anyorder.process.noise import Noise, Stream


@dataclass(frozen=True)
class Corruption:
    """Which items are masked, and the weight of each in the bound of its row."""

    masked: Tensor  # B N
    weight: Tensor  # B N, defined where masked


def block_sizes(free: Tensor, block: Tensor) -> Tensor:
    """For every item the number of free items in its block.  # B N"""
    return _per_block(free, block).gather(1, block)


def _per_block(free: Tensor, block: Tensor) -> Tensor:
    """Free items by block number.  # B N -> B K"""
    count = int(block.max()) + 1
    counts = torch.zeros(len(block), count, dtype=torch.int64, device=block.device)
    return counts.scatter_add(1, block, free.long())


def block_levels(free: Tensor, block: Tensor, noise: Noise) -> Tensor:
    """The level of each item's block.  # B N"""
    levels = noise.levels(len(free), free.device)[:, None]  # B 1
    if isinstance(noise.level, float):
        return levels.expand(free.shape)
    first = block.masked_fill(~free, int(block.max())).amin(dim=1, keepdim=True)
    number = (block - first).clamp(min=0)
    shift = noise.uniform(Stream.TIME, -1, number).masked_fill(number == 0, 0.0)
    return (levels + shift) % 1.0


def corrupt_counts(free: Tensor, block: Tensor, index: Tensor, noise: Noise) -> Corruption:
    """A uniform number of items of each block. `block` (B N) rises from left to right."""
    sizes = block_sizes(free, block)
    counts = (block_levels(free, block, noise) * sizes).floor().long() + 1
    counts = counts.minimum(sizes)
    # Places are below 1, so sorting by block + place ranks items inside their blocks.
    places = item_noise(free, index, noise) + block
    rank = places.masked_fill(~free, torch.inf).argsort(dim=1).argsort(dim=1)
    before = _per_block(free, block).cumsum(dim=1).gather(1, block) - sizes
    masked = free & (rank - before < counts)
    return Corruption(masked, sizes.double() / counts.clamp(min=1))


def corrupt_sets(free: Tensor, block: Tensor, number: Tensor) -> Corruption:
    """Set `number` (B, from 0 on) of every block: item j is masked if bit j of number + 1 is set.

    Weights are w(m), and a block that has fewer sets has none: added up over all numbers, rows give
    the bound itself.
    """
    sizes = block_sizes(free, block)
    before = _per_block(free, block).cumsum(dim=1).gather(1, block) - sizes
    place = (free.long().cumsum(dim=1) - 1 - before).clamp(min=0)
    chosen = number[:, None] + 1
    masked = free & (chosen >> place).bitwise_and(1).bool() & (chosen < 2**sizes)
    counts = _per_block(masked, block).gather(1, block)
    most = int(sizes.max())
    table = torch.zeros(most + 1, most + 1, dtype=torch.float64)
    for items in range(1, most + 1):
        for count in range(1, items + 1):
            table[items, count] = 1 / (count * math.comb(items, count))
    return Corruption(masked, table.to(block.device)[sizes, counts])


def corrupt_times(
    free: Tensor,
    index: Tensor,
    noise: Noise,
    block: Tensor | None = None,
    times: tuple[float, float] = (0.0, 1.0),
) -> Corruption:
    """Each item with probability t, uniform in `times`; t per block, or per row without `block`."""
    if block is None:
        levels = noise.levels(len(free), free.device)[:, None].expand(free.shape)
    else:
        levels = block_levels(free, block, noise)
    low, high = times
    time = low + (high - low) * levels
    masked = free & (item_noise(free, index, noise) >= 1 - time)
    return Corruption(masked, 1 / time)


def complement(free: Tensor, one: Corruption) -> Corruption:
    """The other items masked, at the time 1 - t: together each item is predicted once."""
    return Corruption(free & ~one.masked, 1 / (1 - 1 / one.weight))


def set_weight(masked: int, items: int, times: tuple[float, float] = (0.0, 1.0)) -> float:
    """w(m): the weight of one set of `masked` of a block's `items`, with t integrated out."""
    low, high = times
    rest = items - masked
    # The binomial of (1-t)^rest, term by term; exact integers but for the powers.
    terms = (
        math.comb(rest, j) * (-1) ** j * (high ** (masked + j) - low ** (masked + j)) / (masked + j)
        for j in range(rest + 1)
    )
    return math.fsum(terms) / (high - low)


def weighted_mean(nats: Tensor, drawn: Corruption, items: Tensor) -> LossParts:
    """The bound per item, averaged over rows; nats in row-major order of the masked items.

    `items` (B) is what each row's sum is divided by.
    """
    row = drawn.masked.nonzero()[:, 0]
    share = drawn.weight[drawn.masked] / items.clamp(min=1)[row]
    return LossParts(
        loss=(nats * share.to(nats.dtype)).sum() / len(items),
        nats=nats.detach().sum(),
        tokens=torch.tensor(len(nats), device=nats.device),
    )
