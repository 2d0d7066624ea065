"""Rereading columns against a plain transcription: one column after another, softmax by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.nets.denoiser import Shifted
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Span, Transformer, rereader_of

CONFIG = {"vocab_size": 11, "width": 16, "layers": 3, "heads": 4, "kv_heads": 2, "head_width": 4}
LENGTHS = (9, 6, 8)


def net_of(*, causal: bool = False) -> Transformer:
    config = TransformerConfig(**CONFIG, mlp_width=24, causal=causal)
    return Transformer(config, seed=3).double().eval()


def rotated(x: Tensor, place: int) -> Tensor:
    """Heads W: the pair (j, j + W/2) is turned by place * 10000^(-2j/W)."""
    width = x.shape[-1]
    turned = x.clone()
    for j in range(width // 2):
        angle = place * 10000 ** (-2 * j / width)
        a, b = x[:, j], x[:, j + width // 2]
        turned[:, j] = a * math.cos(angle) - b * math.sin(angle)
        turned[:, j + width // 2] = b * math.cos(angle) + a * math.sin(angle)
    return turned


Book = list[dict[int, tuple[Tensor, Tensor]]]
"""For each layer, the keys and values of every column."""


def plain(net: Transformer, ids: Tensor, columns: range, book: Book) -> dict[int, Tensor]:
    """The states of some columns of one row; the book gives what the others hold, and is kept."""
    x = {i: net.embed.weight[ids[i]] for i in columns}
    for layer, block in enumerate(net.blocks):
        attention: Any = block.attention
        normed = {i: block.attention_norm(v) for i, v in x.items()}  # type: ignore[operator]
        for i, v in normed.items():
            key = rotated(attention.key(v).view(2, 4), i)
            book[layer][i] = (key, attention.value(v).view(2, 4))
        for i, v in normed.items():
            query = rotated(attention.query(v).view(4, 4), i)
            seen = [j for j in sorted(book[layer]) if not net.config.causal or j <= i]
            mixed = []
            for head in range(4):
                keys = torch.stack([book[layer][j][0][head // 2] for j in seen])
                values = torch.stack([book[layer][j][1][head // 2] for j in seen])
                mixed.append((keys @ query[head] / 2).softmax(0) @ values)
            x[i] = x[i] + attention.out(torch.cat(mixed))
        for i in columns:
            y = block.mlp_norm(x[i])  # type: ignore[operator]
            mlp: Any = block.mlp
            x[i] = x[i] + mlp.down(F.silu(mlp.gate(y)) * mlp.up(y))
    return {i: net.norm(v) for i, v in x.items()}


def canvases() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(11, (3, 9), generator=generator)
    mask = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
    return ids, mask


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_rereading_is_the_transcription(causal: bool) -> None:
    net = net_of(causal=causal)
    ids, mask = canvases()
    reader = rereader_of(net, 3, 9)
    books: list[Book] = [[{} for _ in range(3)] for _ in range(3)]
    states = reader.read(ids, mask)
    assert torch.equal(states, net.hidden(ids, mask=mask))
    for row, length in enumerate(LENGTHS):
        wanted = plain(net, ids[row], range(length), books[row])
        for i, state in wanted.items():
            assert torch.allclose(states[row, i], state, atol=1e-10)
    # Two more rounds: other tokens in other spans, some rows only, of unequal widths.
    for rows, first, count in (([0, 2], [2, 5], [4, 2]), ([0, 1, 2], [3, 0, 6], [2, 5, 2])):
        chosen = torch.tensor(rows)
        for row, start, width in zip(rows, first, count, strict=True):
            ids[row, start : start + width] = (ids[row, start : start + width] + 5) % 11
        span = Span(torch.tensor(first), torch.tensor(count), max(count))
        found = reader.reread(
            ids[chosen], mask[chosen], span, None if len(rows) == 3 else chosen
        )  # B A D
        for at, (row, start, width) in enumerate(zip(rows, first, count, strict=True)):
            wanted = plain(net, ids[row], range(start, start + width), books[row])
            for i, state in wanted.items():
                assert torch.allclose(found[at, i - start], state, atol=1e-10)


@torch.no_grad()
def test_kept_columns_are_stale_in_a_bidirectional_net() -> None:
    net = net_of()
    ids, mask = canvases()
    reader = rereader_of(net, 3, 9)
    reader.read(ids, mask)
    ids[:, 4] = (ids[:, 4] + 5) % 11
    span = Span(torch.full((3,), 4), torch.ones(3, dtype=torch.int64), 1)
    found = reader.reread(ids, mask, span)[:, 0]
    assert not torch.allclose(found, net.hidden(ids, mask=mask)[:, 4], atol=1e-6)


@torch.no_grad()
def test_a_shift_moves_what_is_reread() -> None:
    """A causal net loses nothing, so that its shifted states are those of a full call."""
    net = Shifted(net_of(causal=True))
    ids, mask = canvases()
    reader = rereader_of(net, 3, 9)
    reader.read(ids, mask)
    first, count = [0, 2, 5], [3, 4, 2]
    for row, (start, width) in enumerate(zip(first, count, strict=True)):
        ids[row, start : start + width] = (ids[row, start : start + width] + 3) % 11
    found = reader.reread(ids, mask, Span(torch.tensor(first), torch.tensor(count), 4))
    wanted = net.hidden(ids, mask=mask)
    for row, (start, width) in enumerate(zip(first, count, strict=True)):
        assert torch.allclose(found[row, :width], wanted[row, start : start + width], atol=1e-10)


@torch.no_grad()
def test_rows_that_stay_keep_their_columns() -> None:
    net = net_of()
    ids, mask = canvases()
    reader, alone = rereader_of(net, 3, 9), rereader_of(net, 1, 9)
    reader.read(ids, mask)
    alone.read(ids[2:], mask[2:])
    reader.keep(torch.tensor([0, 2]))
    changed = ids[[0, 2], :8].clone()  # the longest row that is left decides the width
    changed[:, 3:5] = 7
    span = Span(torch.tensor([3, 3]), torch.tensor([2, 2]), 2)
    found = reader.reread(changed, mask[[0, 2], :8], span)
    one = Span(torch.tensor([3]), torch.tensor([2]), 2)
    assert torch.allclose(found[1:], alone.reread(changed[1:], mask[2:, :8], one), atol=1e-10)
