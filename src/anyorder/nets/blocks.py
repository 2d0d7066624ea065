"""Blocks of a sequence, and which columns see which: left to right between blocks, freely inside.

The grid gives every position its block. Its origin is a choice, and another origin is another
model (L' is the block size, p the prompt's length, i a position counted from 0):

    absolute       floor(i / L')         the prompt's end and the first slots may share a block
    after_prompt   0 in the prompt, then 1 + floor((i - p) / L'): the prompt is one block
    left_padded    floor((i - p) / L'), counted from the first: as if pads before the prompt filled
                   its first block

One stream (`block_causal`): a column sees its own block and all earlier ones.

Two streams (`two_streams`), for training: the noisy row and then the clean one, at the same
positions. With b_q and b_k the blocks of the query and of the key,

    noisy sees noisy   b_q = b_k        its own block, in both directions
    noisy sees clean   b_q > b_k        strictly: with >=, a block would read its own answer
    clean sees clean   b_q >= b_k       as in one stream
    clean sees noisy   never

so the noisy states of all blocks are, in one call, those of each block after its clean prefix. With
documents packed into one row, both ends must be of one document, and each has its own grid.

Not here: corruption (process/blocks.py) and the network (families/block/net.py).
Letters: B rows, L positions, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BlockGrid = Callable[[Tensor, Tensor, int], Tensor]
"""(positions L, prompts' lengths B 1, block size) -> block numbers, from 0 on.  # B L"""


def _absolute(position: Tensor, prompt: Tensor, size: int) -> Tensor:
    return (position // size).expand(len(prompt), -1)


def _after_prompt(position: Tensor, prompt: Tensor, size: int) -> Tensor:
    # Rounds down, so that every place of the prompt is at or below 0.
    return (1 + torch.div(position - prompt, size, rounding_mode="floor")).clamp(min=0)


def _left_padded(position: Tensor, prompt: Tensor, size: int) -> Tensor:
    return (position + (-prompt) % size) // size


ORIGINS: dict[str, BlockGrid] = {
    "absolute": _absolute,
    "after_prompt": _after_prompt,
    "left_padded": _left_padded,
}


def block_numbers(prompt_length: Tensor, columns: int, size: int, origin: str) -> Tensor:
    """The block of every position of rows with these prompts (B).  # B L"""
    position = torch.arange(columns, device=prompt_length.device)
    return ORIGINS[origin](position, prompt_length[:, None], size)


def block_causal(query: Tensor, key: Tensor) -> Tensor:
    """Which keys each query sees, by their blocks: B Q, B K -> B Q K."""
    return query[:, :, None] >= key[:, None, :]


def two_streams(block: Tensor, document: Tensor | None = None) -> Tensor:
    """Which columns of [noisy | clean] see which: block B L -> B 2L 2L.

    document: B L, the number of each position's document; None: a row is one.
    """
    query, key = block[:, :, None], block[:, None, :]
    noisy = torch.cat([query == key, query > key], dim=2)
    clean = torch.cat([torch.zeros_like(query == key), query >= key], dim=2)
    visible = torch.cat([noisy, clean], dim=1)
    if document is None:
        return visible
    same = document[:, :, None] == document[:, None, :]
    return visible & same.repeat(1, 2, 2)


def first_of_block(block: Tensor) -> Tensor:
    """Where a block begins, besides position 0.  # B L -> B L"""
    begins = torch.zeros_like(block, dtype=torch.bool)
    begins[:, 1:] = block[:, 1:] != block[:, :-1]
    return begins
