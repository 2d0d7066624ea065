"""Reads stored traces of block again (families/replay.py): the posteriors of the active block.

What belongs behind the active block is not visible to the network, so the slots there have no
posterior: on every canvas, only open slots of the first block that has some are read and counted.
The grid is that of the options, and begins as in decoding: with the prompt of the trace.
Letters: B canvases (rows), L positions, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from anyorder.decode.draw import Draw
from anyorder.decode.loop import Proposer
from anyorder.decode.replay import Moment, Replay, moment_of
from anyorder.families.block.config import BlockOptions
from anyorder.families.block.decode import BlockDenoiser, grid_of, policy_of, resolve
from anyorder.families.replay import FamilyReader
from anyorder.nets.blocks import block_numbers
from anyorder.trace.blocks import BlockRule
from anyorder.vocab import Vocab


def block_reader(
    net: BlockDenoiser,
    vocab: Vocab,
    options: BlockOptions | None = None,
    device: torch.device | str = "cpu",
) -> FamilyReader:
    """The reader of block: of each canvas, only the slots of the active block are read."""
    options = options or BlockOptions()
    options = resolve(replace(options, **grid_of(net, vars(options))))
    size, origin = options.block, options.origin
    assert size is not None and origin is not None
    rule = BlockRule(size, origin)
    ends = vocab.end_ids if options.eos == "forbid" else ()

    def moment(replay: Replay, step: int, time: float | None, mask_id: int) -> Moment:
        return moment_of(replace(replay, blocks=rule.tokens(replay.trace)), step, time, mask_id)

    def states(ids: Tensor, real: Tensor, time: Tensor | None, moments: Sequence[Moment]) -> Tensor:
        prompts = torch.tensor([each.prompt for each in moments], device=ids.device)
        first = torch.tensor([[int(each.places[0])] for each in moments], device=ids.device)
        grid = block_numbers(prompts, ids.shape[1], size, origin)
        return net.hidden(ids, block=grid, mask=real & (grid <= grid.gather(1, first)))

    return FamilyReader(
        states=states,
        proposer=Proposer(
            net.head, vocab, policy_of(options), Draw.of(options), (vocab.mask_id, *ends)
        ),
        device=device,
        moment=moment,
    )
