"""The one backbone over tokens: a table, the layers of stack.py, and a vocabulary head.

    x = E[ids],    hidden = stack(x),    logits = E hidden      (or a separate head)

`hidden` and `head` are separate so that callers pay for the vocabulary only where they need it.
`shift_states` is for networks that predict token i at i - 1.

A `CachedStates` calls the net on some columns of a canvas and keeps keys and values of the others:

    read      every column of a row: the states of the net, bit for bit; keys and values are kept
    reread    the columns of a span: they see themselves as they are now, all others as kept

In a causal net, the kept columns to the left of a span stay exact. In a bidirectional one every
column depends on every other, and rereading is an approximation (Fast-dLLM, arXiv 2505.22618): the
kept columns are those of the last `read`. It is exact where they could not have changed, as in a
net of one layer, whose keys and values depend on their own token only.

Not here: the layers, losses, sampling, other heads than the vocabulary's, and the choice of columns
to reread (families/mdm/cache.py).
Letters: B rows of a call, L positions (columns of the canvas), A columns of a span, G key/value
heads, W head width, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyorder.nets.init import draw_weights
from anyorder.nets.prompts import ReadColumns, pool_sentences
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import AttentionContext, Cache, Join, Stack


@dataclass(frozen=True)
class Span:
    """Neighbouring columns, `count` of each row; a call pads them to a rectangle."""

    first: Tensor  # B
    count: Tensor  # B, at least 1
    width: int
    """A: the largest count, known to the host."""

    def columns(self) -> tuple[Tensor, Tensor]:
        """Column numbers, and which are in the span; padding repeats its last.  # B A each"""
        ahead = torch.arange(self.width, device=self.first.device)
        inside = ahead < self.count[:, None]
        return self.first[:, None] + ahead.minimum(self.count[:, None] - 1), inside


class CachedStates(Protocol):
    """A network that keeps the keys and values of a batch of canvases.

    `rows` (B) are the places of a call's rows in the batch, None: all of it. ids and mask are B L,
    of these rows; mask is True at real tokens.
    """

    lead: int
    """ReadColumns left of a span that are computed along with it."""

    def read(self, ids: Tensor, mask: Tensor, rows: Tensor | None = None) -> Tensor:
        """The states of every column, as `hidden` gives them.  # B L D"""
        ...

    def reread(self, ids: Tensor, mask: Tensor, span: Span, rows: Tensor | None = None) -> Tensor:
        """The states of a span; those of its padding mean nothing.  # B A D"""
        ...

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but these."""
        ...


ColumnReader = Callable[[Tensor, Tensor | None], ReadColumns]
"""(ids B L, mask B L) -> what the layers read of them."""


class PartialCache:
    """The `CachedStates` of a stack of layers over token vectors."""

    lead = 0

    def __init__(self, stack: Stack, read: ColumnReader, rows: int, columns: int) -> None:
        config, weight = stack.config, next(stack.parameters())
        self.stack, self.columns, self.spare = stack, read, columns
        # One spare column takes what the padding of a span writes; attention never reads it.
        size = (rows, columns + 1, config.kv_heads, config.head_width)
        self.keys = [
            torch.zeros(size, device=weight.device, dtype=weight.dtype)
            for _ in range(config.layers)
        ]
        self.values = [torch.zeros_like(keys) for keys in self.keys]

    def read(self, ids: Tensor, mask: Tensor, rows: Tensor | None = None) -> Tensor:
        columns = self.columns(ids, mask)
        plain = self.stack.plain_context(columns.x, columns.mask)
        join = self.recorder(slice(None) if rows is None else rows, columns.x.shape[1])
        context = AttentionContext(plain.rotation, plain.visible, plain.causal, join)
        return columns.states_of_tokens(self.stack.run(columns.x, context))

    def recorder(self, places: slice | Tensor, length: int) -> Join:
        """Keeps the keys and values of the first `length` columns of some rows."""

        def record(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            self.keys[layer][places, :length] = keys
            self.values[layer][places, :length] = values
            # Attention reads the fresh tensors, not the cache: a full read is the exact network.
            return keys, values

        return record

    def reread(self, ids: Tensor, mask: Tensor, span: Span, rows: Tensor | None = None) -> Tensor:
        every = self.columns(ids, mask)  # all, because a sentence may begin before the span
        length = every.x.shape[1]
        tokens, inside = span.columns()  # B A
        columns = every.places(tokens)  # B A
        slots = columns.masked_fill(~inside, self.spare)
        places = torch.arange(len(ids), device=ids.device) if rows is None else rows
        shown = slice(None) if rows is None else rows  # a slice copies nothing

        def replace(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            # Written before they are read, so that the span sees itself as it is now.
            self.keys[layer][places[:, None], slots] = keys
            self.values[layer][places[:, None], slots] = values
            return self.keys[layer][shown, :length], self.values[layer][shown, :length]

        visible = every.real[:, None, None, :]  # B 1 1 M
        # A span may begin anywhere, so the causal rule compares columns of the canvas.
        if self.stack.config.causal:
            ahead = torch.arange(length, device=ids.device)
            visible = visible & (ahead <= columns[:, None, :, None])  # B 1 A M
        rotation = self.stack.rotary.pick(columns, length)
        x = every.x.gather(1, columns[..., None].expand(-1, -1, every.x.shape[-1]))  # B A D
        return self.stack.run(x, AttentionContext(rotation, visible, join=replace))

    def keep(self, rows: Tensor) -> None:
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            self.keys[layer], self.values[layer] = keys[rows], values[rows]


def shift_states(states: Tensor) -> Tensor:
    """States of which the one at i predicts token i, from a network whose state at i - 1 does.

        shifted_0 = states_0,    shifted_i = states_{i-1}

    Masked models that were left-to-right ones at first still predict there (Dream and its
    relatives). Position 0 has nothing before it and keeps its own state.  # B L D -> B L D
    """
    return torch.cat([states[:, :1], states[:, :-1]], dim=1)


class ShiftedPartialCache:
    """The `CachedStates` of a network whose states are shifted (`shift_states`).

    A span needs the state before its first column too, which is computed with it.
    """

    lead = 1

    def __init__(self, inner: CachedStates) -> None:
        self.inner = inner

    def read(self, ids: Tensor, mask: Tensor, rows: Tensor | None = None) -> Tensor:
        return shift_states(self.inner.read(ids, mask, rows))

    def reread(self, ids: Tensor, mask: Tensor, span: Span, rows: Tensor | None = None) -> Tensor:
        led = (span.first > 0).long()  # B: column 0 has nothing before it
        wider = Span(span.first - led, span.count + led, span.width + 1)
        states = self.inner.reread(ids, mask, wider, rows)  # B A+1 D
        # In the wider span a column stands `led` further on, and the state before it predicts it;
        # column 0 has none before it and keeps its own (`shift_states`).
        before = torch.arange(span.width, device=ids.device) - 1 + led[:, None]  # B A
        return states.gather(1, before.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1]))

    def keep(self, rows: Tensor) -> None:
        self.inner.keep(rows)


def rereader_of(net: Any, rows: int, columns: int) -> CachedStates:
    """An empty rereader of a network, for a batch of this size."""
    refuse_uncached(net)
    found: CachedStates = net.rereader(rows, columns)
    return found


def refuse_uncached(net: Any) -> None:
    """Refuse a network, wrapped or not, that can only compute all columns at once."""
    if not hasattr(net, "rereader"):
        raise ValueError(
            f"a cache needs the keys and values of a network of our own, and a "
            f"{type(net).__name__} shows none: leave --cache out, or load its weights with "
            "anyorder.load"
        )
    # A wrapper hands calls on, so what it wraps needs a cache too.
    if hasattr(net, "inner"):
        refuse_uncached(net.inner)


class Transformer(Stack):
    """Token ids (or vectors) -> hidden states -> logits over the vocabulary.

    The weights are a function of (config, seed). On the meta device nothing is initialised: after
    `to_empty`, load weights or call `reset_parameters`.
    """

    norm: nn.RMSNorm

    def __init__(self, config: TransformerConfig, *, seed: int = 0) -> None:
        nn.Module.__init__(self)  # see Stack: the table comes first
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.add_layers(config, final_norm=True)
        self.unembed = (
            None if config.tied else nn.Linear(config.width, config.vocab_size, bias=False)
        )
        self.reset_parameters(seed)

    def hidden(
        self,
        ids: Tensor | None = None,
        *,
        vectors: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        time: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The states after the final norm: B L -> B L D. States at padding mean nothing.

        ids B L; vectors B L D: read in place of the embeddings of `ids`, which are then needed only
        to pool prompts (prompts.py); mask B L bool, True = a real key (None: all are);
        positions B L, by default 0 .. L - 1 (the causal rule follows the columns, not these);
        time B, needed exactly by time-modulated nets; cache: these are the next tokens of its rows.
        A causal net with padding on the right gives the same real states with or without a mask.
        """
        if cache is not None and positions is not None:
            raise ValueError("a cache counts positions by itself: give no positions with it")
        x = self._vectors(ids, vectors)  # B L D
        columns: ReadColumns | None = None
        # A cache that holds tokens holds the whole prompt: what comes next is none of it.
        if self.config.sentence_ends and ids is not None and not (cache and cache.longest):
            assert positions is None, "pooled columns count their own positions"
            columns = pool_sentences(x, ids, self.config.sentence_ends, mask)
            x, mask = columns.x, columns.mask
        if cache is not None:
            states = self.advance(x, cache, mask, time=time)
        else:
            states = self.run(x, self.plain_context(x, mask, positions), time=time)
        return states if columns is None else columns.states_of_tokens(states)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states at any chosen places: (..., D) -> (..., V)."""
        table = self.embed.weight if self.unembed is None else self.unembed.weight
        return F.linear(hidden, table)

    def forward(self, ids: Tensor | None = None, **given: Any) -> Tensor:
        """Logits everywhere: B L -> B L V. The arguments are those of `hidden`."""
        return self.head(self.hidden(ids, **given))

    def rereader(self, rows: int, columns: int) -> PartialCache:
        """This net, with keys and values kept between calls on some columns."""
        return PartialCache(self, self.columns_of, rows, columns)

    def reset_parameters(self, seed: int = 0) -> None:
        """Draw all weights afresh (init.py); on the meta device there are none to draw."""
        if not self.embed.weight.is_meta:
            draw_weights(self, seed)

    def columns_of(self, ids: Tensor, mask: Tensor | None) -> ReadColumns:
        """What the layers read of whole rows of ids, B L."""
        return pool_sentences(self.embed(ids), ids, self.config.sentence_ends, mask)

    def _vectors(self, ids: Tensor | None, vectors: Tensor | None) -> Tensor:
        if vectors is not None:
            return vectors
        if ids is None:
            raise ValueError("give ids or vectors")
        found: Tensor = self.embed(ids)
        return found
