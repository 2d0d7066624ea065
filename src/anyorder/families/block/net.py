"""The network of block: the backbone, with columns that see their own block and earlier ones.

Three ways to call it give the same states, up to rounding (nets/blocks.py has the masks):

    hidden         one stream: the active block may hold masks, earlier ones are finished
    noisy          two streams, in training: every block noisy, after its clean prefix
    `BlockCache`   the active block alone, with keys and values of the finished ones

Shifted networks predict token i at i - 1, and the first token of a block at the last token of the
block before, when that block is finished. So that token is always predicted first, and with blocks
of one token the network is a left-to-right one: its weights are a possible start.

Not here: corruption, losses, decoding.
Letters: B rows, L tokens, M columns (fewer, if prompts are pooled), D width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyorder.families.block.config import BlockConfig
from anyorder.nets.blocks import block_causal, first_of_block, two_streams
from anyorder.nets.denoiser import unshifted
from anyorder.nets.init import take_weights
from anyorder.nets.prompts import ReadColumns
from anyorder.nets.stack import AttentionContext, Stack
from anyorder.nets.transformer import PartialCache, Transformer, shift_states


class BlockNet(nn.Module):
    """A backbone over blocks. All weights are the backbone's, a function of (config, seed)."""

    def __init__(self, config: BlockConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.backbone = Transformer(config.backbone, seed=seed)

    def hidden(self, ids: Tensor, *, block: Tensor, mask: Tensor | None = None) -> Tensor:
        """States of which the one at i predicts token i: B L -> B L D.

        block B L: the grid; mask B L bool, True = a real token (None: all are).
        """
        columns = self.backbone.columns_of(ids, mask)
        states = self.backbone.run(columns.x, one_stream(self.backbone, columns, block))
        states = columns.states_of_tokens(states)
        return shift_states(states) if self.config.shift else states

    def noisy(
        self,
        ids: Tensor,
        clean: Tensor,
        *,
        block: Tensor,
        mask: Tensor | None = None,
        document: Tensor | None = None,
    ) -> Tensor:
        """The same for every block of the noisy `ids`, after the `clean` ids of earlier ones.

        document B L: packed into one row; each document then has a grid of its own.
        """
        streams = [self.backbone.columns_of(each, mask) for each in (ids, clean)]
        columns, length = streams[0], streams[0].x.shape[1]
        visible = two_streams(blocks_of_columns(columns, block), document)
        cos, sin = self.backbone.rotary.prefix(length, ids.device)
        rotation = (cos.repeat(1, 2, 1, 1), sin.repeat(1, 2, 1, 1))  # the same positions twice
        context = AttentionContext(rotation, _keys(visible, columns.mask))
        states = self.backbone.run(torch.cat([each.x for each in streams], dim=1), context)
        noisy, finished = (
            columns.states_of_tokens(each) for each in states.split([length, length], dim=1)
        )
        if not self.config.shift:
            return noisy
        begins = first_of_block(block)[..., None]
        return torch.where(begins, shift_states(finished), shift_states(noisy))

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of chosen states: (..., D) -> (..., V)."""
        return self.backbone.head(hidden)

    def rereader(self, rows: int, columns: int) -> BlockCache:
        """This net, with keys and values of finished blocks; its states are not shifted."""
        return BlockCache(self.backbone, self.backbone.columns_of, rows, columns)

    def start_from(self, base: nn.Module) -> None:
        """Take the weights of a block model, of a left-to-right one, or of a masked one.

        A masked model must predict at the same positions.
        """
        shift = self.config.shift
        if isinstance(base, BlockNet):
            if base.config.shift != shift:
                raise ValueError(f"the model to begin with has net.shift={base.config.shift}")
            base = base.backbone
        elif shift and isinstance(base, Transformer) and not base.config.causal:
            raise ValueError(
                "the model to begin with predicts token i at i: leave net.shift out, or give a "
                "left-to-right model"
            )
        remedy = "give the recipe net.shift=True"
        take_weights(self.backbone, unshifted(base, wanted=shift, remedy=remedy))


class BlockCache(PartialCache):
    """Keys and values of finished blocks.

    `reread` a block with a mask that ends with it: it sees itself and what is kept of earlier ones.
    Its keys are then kept too, so read it once more when it is finished.
    """

    def read_blocks(self, ids: Tensor, mask: Tensor, block: Tensor) -> Tensor:
        """Read and keep finished blocks of all rows in one call: B L -> B L D."""
        columns = self.columns(ids, mask)
        context = one_stream(self.stack, columns, block)
        join = self.recorder(slice(None), columns.x.shape[1])
        context = AttentionContext(context.rotation, context.visible, join=join)
        return columns.states_of_tokens(self.stack.run(columns.x, context))


def one_stream(stack: Stack, columns: ReadColumns, block: Tensor) -> AttentionContext:
    """Columns that see their own block and earlier ones."""
    places = blocks_of_columns(columns, block)
    rotation = stack.rotary.prefix(columns.x.shape[1], columns.x.device)
    return AttentionContext(rotation, _keys(block_causal(places, places), columns.mask))


def blocks_of_columns(columns: ReadColumns, block: Tensor) -> Tensor:
    """The block of each column, from those of its tokens: B L -> B M."""
    if columns.of_token is None:
        return block
    # A pooled prompt is one block. Padding shares the last column, and has later blocks.
    found = torch.full(columns.x.shape[:2], int(block.max()), device=block.device)
    return found.scatter_reduce(1, columns.of_token, block, "amin")


def _keys(visible: Tensor, real: Tensor | None) -> Tensor:
    """Only real keys (B M), of one stream or of two; itself for a query that sees none."""
    if real is not None:
        visible = visible & real.repeat(1, visible.shape[2] // real.shape[1])[:, None, :]
    itself = torch.eye(visible.shape[1], dtype=torch.bool, device=visible.device)
    return (visible | itself)[:, None]  # B 1 M M
