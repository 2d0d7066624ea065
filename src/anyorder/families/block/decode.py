"""Block decoding: the blocks of a grid from left to right, the slots of each as a policy chooses.

Each step reveals slots of the first block that has open ones, as mdm does inside its window
(families/mdm/decode.py). But an mdm sees all later slots as masks, and this network sees none:
text behind a gap counts only inside the gap's own block.

Finished blocks never change, so their keys and values are exact to keep, if they come from a call
on the finished block (the commit). `CachedBlocks` reads, for each row,

    once             the blocks before the first open slot, in one call
    in every step    the columns of the active block
    once a block     the finished block; `stale` leaves this call out, and keeps what the last
                     step saw, where the last tokens were still masks: an approximation

A shifted network predicts the first slot of a block at the last column before it. It is always
revealed first, alone, and needs no call.

Not here: scores, quotas, drawing (decode/), and the masks of attention (nets/blocks.py).
Letters: B rows, L positions, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from anyorder.checks import at_least, one_of
from anyorder.decode.canvas import Canvas, Decoded, Watcher
from anyorder.decode.draw import STOPPING, ends_text
from anyorder.decode.loop import run
from anyorder.decode.policy import Policy, find_unplanned_score
from anyorder.decode.quota import parse_quota
from anyorder.families.block.config import BlockConfig, BlockOptions
from anyorder.families.block.net import BlockCache
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.cache import RowReader, RowStates, StepRows, places_of
from anyorder.families.mdm.config import MdmOptions
from anyorder.families.mdm.decode import MaskRows, MaskStepper
from anyorder.nets.blocks import ORIGINS, block_numbers, first_of_block
from anyorder.nets.shapes import ends_of
from anyorder.nets.transformer import Span, refuse_uncached, shift_states
from anyorder.vocab import Vocab

FINISH = "finish"
"""The EOS rule of blocks, besides those of decode/draw.py."""


class BlockDenoiser(Protocol):
    """A block network as the decoder sees it; a cache needs its `rereader` as well."""

    @property
    def config(self) -> BlockConfig: ...

    def hidden(self, ids: Tensor, *, block: Tensor, mask: Tensor | None = None) -> Tensor:
        """B L -> B L D. block: B L, the grid; mask: B L bool, True = a real token."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of chosen hidden states: N D -> N V."""
        ...


def grid_of(net: BlockDenoiser, given: Mapping[str, Any]) -> dict[str, Any]:
    """The model's own grid, where the options name none."""
    own = {"block": "block_size", "origin": "origin"}
    config = getattr(net, "config", None)
    return {
        name: getattr(config, field)
        for name, field in own.items()
        if given.get(name) is None and hasattr(config, field)
    }


def resolve(options: BlockOptions) -> BlockOptions:
    """The same options with every unset choice filled in that has an effect; checked."""
    find_unplanned_score(options.policy)
    if options.cache == "exact":
        return resolve(replace(options, cache=None))
    one_of("cache", options.cache or "exact", ("exact", "stale", "none"))
    one_of("eos", options.eos, (FINISH, *STOPPING))
    if options.origin is not None:
        one_of("origin", options.origin, ORIGINS)
    at_least("block", options.block)
    at_least("block_steps", options.block_steps)
    if options.block_steps is not None:
        if parse_quota(options.quota).reads_scores:
            raise ValueError(
                f"the quota {options.quota} decides its own steps: leave --block-steps out, or "
                "choose another --quota"
            )
        if options.block is not None and options.block_steps > options.block:
            raise ValueError(
                f"{options.block_steps} steps for a block of {options.block} slots: give at most "
                "one for each"
            )
    inside = mdm.resolve(_inside(options))
    return replace(options, posterior=inside.posterior, ties=inside.ties)


def policy_of(options: BlockOptions) -> Policy:
    """What decides on the order inside a block."""
    return mdm.build_policy(_inside(options))


def _inside(options: BlockOptions) -> MdmOptions:
    """What decides inside a block, as for a canvas of mdm."""
    return MdmOptions(
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        policy=options.policy,
        quota=options.quota,
        posterior=options.posterior,
        ties=options.ties,
        eos="plain" if options.eos == FINISH else options.eos,
    )


def check_network(net: Any, options: BlockOptions) -> None:
    """Refuse a network that has no blocks, or whose prompts fit another grid only."""
    if not hasattr(getattr(net, "config", None), "block_size"):
        raise ValueError(
            f"block needs a network of our own, and a {type(net).__name__} does not hide later "
            "blocks: wrap masked models as mdm"
        )
    if ends_of(net.config) and options.origin not in (None, "after_prompt"):
        raise ValueError(
            "this network reads prompts sentence by sentence, as one block: leave --origin out"
        )
    if options.cache != "none":
        refuse_uncached(net)


@torch.inference_mode()
def decode(
    net: BlockDenoiser,
    vocab: Vocab,
    canvases: Sequence[Canvas],
    keys: Sequence[int],
    options: BlockOptions,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Fill every canvas. `keys` are the rows' noise keys: a row depends on its own key only."""
    options = resolve(replace(options, **grid_of(net, vars(options))))
    check_network(net, options)
    rows = mdm.start(canvases, keys, vocab, _inside(options), torch.device(device))
    prompts = torch.tensor([canvas.prompt_length for canvas in canvases], device=rows.ids.device)
    assert options.block is not None and options.origin is not None
    grid = block_numbers(prompts, rows.ids.shape[1], options.block, options.origin)
    rows.block = grid.masked_fill(~rows.free, -1)
    rows.window_steps.fill_(options.block_steps or 0)
    return run(_Stepper(net, vocab, options, canvases, rows, grid), watch)


class _Stepper(MaskStepper):
    """One decoding step inside a block."""

    def __init__(
        self,
        net: BlockDenoiser,
        vocab: Vocab,
        options: BlockOptions,
        canvases: Sequence[Canvas],
        rows: MaskRows,
        grid: Tensor,
    ) -> None:
        reader: RowReader = AllBlocks(net, grid)
        if options.cache != "none":
            reader = CachedBlocks(net, grid, vocab.mask_id, commits=options.cache is None)
        super().__init__(net, vocab, _inside(options), canvases, rows, reader)
        self.finishes = options.eos == FINISH
        # B L, the slots that a shifted network predicts by the block before
        self.leads = first_of_block(grid) & rows.free & net.config.shift

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self.leads = self.leads[rows, : self.rows.ids.shape[1]]

    def enter_window(self, rows: MaskRows) -> Tensor:
        eligible = super().enter_window(rows)
        lead = eligible & self.leads
        return torch.where(lead.any(dim=1, keepdim=True), lead, eligible)

    def commit(self, rows: MaskRows, taken: Tensor, step: int) -> None:
        super().commit(rows, taken, step)
        inside = rows.block == rows.window[:, None]
        if self.finishes:
            ended = (inside & ends_text(rows.ids, self.vocab)).any(dim=1)
            ended &= ~(inside & rows.open).any(dim=1)
            self.fill(rows, rows.open & ended[:, None], step)
        # The steps of a block are those of its other slots: they begin with the next one.
        rows.window = rows.window.masked_fill((taken & self.leads).any(dim=1), -1)


class AllBlocks:
    """The network on all columns up to the active block."""

    def __init__(self, net: BlockDenoiser, grid: Tensor) -> None:
        self.net, self.grid = net, grid

    def states(self, before: StepRows, needed: Tensor | None) -> RowStates:
        seen = before.real & (self.grid <= before.window[:, None])
        columns = seen.sum(dim=1)
        longest = int(columns.max())  # real tokens stand left, so what is behind this is not seen
        states = self.net.hidden(
            before.ids[:, :longest], block=self.grid[:, :longest], mask=seen[:, :longest]
        )
        unread = before.ids.shape[1] - longest
        return RowStates(pad(states, (0, 0, 0, unread)), columns, torch.ones_like(columns))

    def keep(self, rows: Tensor, columns: int) -> None:
        self.grid = self.grid[rows, :columns]


class CachedBlocks:
    """The network on the active block, with keys and values of the finished ones."""

    def __init__(self, net: Any, grid: Tensor, mask_id: int, *, commits: bool) -> None:
        refuse_uncached(net)
        self.cache: BlockCache = net.rereader(*grid.shape)
        self.grid, self.mask_id = grid, mask_id
        self.shift, self.commits = net.config.shift, commits
        self.kept: Tensor | None = None  # B, blocks before this one are read
        self.active = torch.full_like(grid[:, 0], -1)  # B, the block of the last step
        self.found: Tensor | None = None  # B L D, not shifted
        # What was computed for a row since its last step.
        self.columns, self.calls = torch.zeros_like(self.active), torch.zeros_like(self.active)

    def states(self, before: StepRows, needed: Tensor | None) -> RowStates:
        called = torch.ones_like(before.window, dtype=torch.bool) if needed is None else needed
        if self.kept is None:
            self._read_first(before)
        assert self.kept is not None and self.found is not None
        while bool((behind := called & (self.kept < before.window)).any()):
            # A block in which nothing was open has no step that could serve as its commit.
            read = behind if self.commits else behind & (self.kept != self.active)
            self._read(before, read, self.kept)
            self.kept = self.kept + behind
        self._read(before, called & ~self._leads(before), before.window)
        self.active = torch.where(called, before.window, self.active)
        states = shift_states(self.found) if self.shift else self.found
        columns, calls = self.columns * called, self.calls * called
        self.columns, self.calls = self.columns - columns, self.calls - calls
        return RowStates(states, columns, calls)

    def _read_first(self, before: StepRows) -> None:
        """Read all that stands before the first active block of each row."""
        seen = before.real & (self.grid < before.window[:, None])
        self.kept = before.window.clone()
        longest = int(seen.sum(dim=1).max())
        width = self.cache.stack.config.width
        self.found = self.cache.keys[0].new_zeros(*before.ids.shape, width)
        if longest:
            part = (before.ids[:, :longest], seen[:, :longest], self.grid[:, :longest])
            self.found[:, :longest] = self.cache.read_blocks(*part)
        self.columns = seen.sum(dim=1)
        self.calls = (self.columns > 0).long()

    def _leads(self, before: StepRows) -> Tensor:
        """Rows whose next slot is predicted by the block before.  # B"""
        if not self.shift:
            return torch.zeros_like(before.window, dtype=torch.bool)
        first = (self.grid == before.window[:, None]).long().argmax(dim=1, keepdim=True)
        open_ = (before.ids.gather(1, first) == self.mask_id) & (before.block.gather(1, first) >= 0)
        return (open_ & (first > 0))[:, 0]

    def _read(self, before: StepRows, which: Tensor, number: Tensor) -> None:
        """Read the blocks of these numbers (B) in some rows (B), as they are now."""
        if not bool(which.any()):
            return
        rows = places_of(which)
        chosen = slice(None) if rows is None else rows
        grid, real = self.grid[chosen], before.real[chosen]
        inside = real & (grid == number[chosen, None])
        count = inside.sum(dim=1)
        span = Span(inside.long().argmax(dim=1), count, int(count.max()))
        seen = real & (grid <= number[chosen, None])
        states = self.cache.reread(before.ids[chosen], seen, span, rows)
        columns, here = span.columns()
        at, place = here.nonzero(as_tuple=True)
        assert self.found is not None
        self.found[at if rows is None else rows[at], columns[at, place]] = states[at, place]
        self.columns[chosen] += count
        self.calls[chosen] += 1

    def keep(self, rows: Tensor, columns: int) -> None:
        self.cache.keep(rows)
        self.grid = self.grid[rows, :columns]
        for name in ("active", "columns", "calls"):
            setattr(self, name, getattr(self, name)[rows])
        if self.kept is not None and self.found is not None:
            self.kept, self.found = self.kept[rows], self.found[rows, :columns]
