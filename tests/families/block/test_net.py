"""The network of block: its three ways of being called agree, and no answer leaks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anyorder.families.block.config import BlockConfig
from anyorder.families.block.net import BlockNet
from anyorder.nets.blocks import block_numbers
from anyorder.nets.denoiser import ShiftedNet
from anyorder.nets.shapes import ShiftedConfig, TransformerConfig
from anyorder.nets.transformer import Span, Transformer
from anyorder.process.noise import bits

MASK, VOCAB, LENGTH = 8, 9, 6


def backbone(**changes: object) -> TransformerConfig:
    shape: dict[str, object] = {
        "vocab_size": VOCAB, "width": 16, "layers": 2, "heads": 2, "kv_heads": 1, "head_width": 8,
        "mlp_width": 24,
    }  # fmt: skip
    return TransformerConfig(**shape | changes)  # type: ignore[arg-type]


def small_net(*, shift: bool = False, **changes: object) -> BlockNet:
    return BlockNet(BlockConfig(backbone(**changes), 2, shift=shift), seed=3).double().eval()


def texts(rows: int = 3) -> Tensor:
    return bits(5, torch.arange(rows)[:, None], torch.arange(LENGTH)) % MASK


def grid(size: int = 2, prompt: int = 0, rows: int = 3, origin: str = "absolute") -> Tensor:
    return block_numbers(torch.full((rows,), prompt), LENGTH, size, origin)


NOISE = torch.tensor([[1, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 1]]).bool()


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_two_streams_are_each_block_after_its_clean_prefix(size: int, shift: bool) -> None:
    net, clean, block = small_net(shift=shift), texts(), grid(size)
    noisy = clean.masked_fill(NOISE, MASK)
    found = net.noisy(noisy, clean, block=block)
    for number in range(int(block.max()) + 1):
        here = block[0] == number
        row = torch.where(block < number, clean, noisy)[:, : int(here.nonzero().max()) + 1]
        alone = net.hidden(row, block=block[:, : row.shape[1]])
        assert torch.allclose(found[:, here], alone[:, here[: row.shape[1]]], rtol=0, atol=1e-12)


def test_a_clean_token_reaches_later_blocks_only() -> None:
    net, clean, block = small_net(), texts(), grid()
    noisy = clean.masked_fill(NOISE, MASK)
    before = net.noisy(noisy, clean, block=block)
    for place in range(LENGTH):
        changed = clean.clone()
        changed[:, place] = (changed[:, place] + 1) % MASK
        moved = (net.noisy(noisy, changed, block=block) - before).abs().amin(dim=2) > 1e-9
        assert torch.equal(moved, block > block[:, place, None])


def test_packed_documents_are_those_documents_alone() -> None:
    net, clean = small_net(), texts()
    noisy = clean.masked_fill(NOISE, MASK)
    document = torch.tensor([[0, 0, 1, 1, 1, 1]]).expand(3, -1)
    block = torch.tensor([[0, 0, 0, 0, 1, 1]]).expand(3, -1)
    packed = net.noisy(noisy, clean, block=block, document=document)
    for part in (slice(0, 2), slice(2, 6)):
        alone = net.noisy(noisy[:, part], clean[:, part], block=block[:, part])
        assert torch.allclose(packed[:, part], alone, rtol=0, atol=1e-6)  # positions in float32


def test_padding_changes_nothing() -> None:
    net, clean, block = small_net(), texts(), grid()
    noisy, real = clean.masked_fill(NOISE, MASK), torch.arange(LENGTH).expand(3, -1) < 5
    short = net.noisy(noisy[:, :5], clean[:, :5], block=block[:, :5])
    found = net.noisy(noisy, clean, block=block, mask=real)
    assert torch.allclose(found[:, :5], short, rtol=0, atol=1e-12) and bool(found.isfinite().all())


def test_one_block_is_the_masked_network_and_blocks_of_one_the_causal_one() -> None:
    clean = texts()
    noisy = clean.masked_fill(NOISE, MASK)
    plain = Transformer(backbone(), seed=3).double()
    whole = small_net().hidden(noisy, block=grid(6))
    assert torch.allclose(whole, plain.hidden(noisy), rtol=0, atol=1e-12)
    shifted = ShiftedNet(ShiftedConfig(backbone()), seed=3).double()
    assert torch.allclose(
        small_net(shift=True).hidden(noisy, block=grid(6)),
        shifted.hidden(noisy),
        rtol=0,
        atol=1e-12,
    )
    causal = Transformer(backbone(causal=True), seed=3).double().hidden(clean)
    # Whatever the noise: each token is predicted from the clean ones before it.
    found = small_net(shift=True).noisy(noisy, clean, block=grid(1))
    assert torch.allclose(found[:, 1:], causal[:, :-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("origin", ["absolute", "after_prompt", "left_padded"])
def test_the_cache_gives_the_states_of_one_stream(origin: str) -> None:
    net, ids = small_net(), texts()
    block = grid(2, prompt=3, origin=origin)
    ids = ids.masked_fill(block >= 3, MASK)
    active = 3 if origin == "left_padded" else 2
    cache = net.rereader(3, LENGTH)
    cache.read_blocks(ids, block < active, block)
    columns = (block[0] == active).nonzero()[:, 0]
    span = Span(torch.full((3,), int(columns[0])), torch.full((3,), len(columns)), len(columns))
    with torch.no_grad():
        found = cache.reread(ids, block <= active, span)
        whole = net.hidden(ids, block=block, mask=block <= active)
    assert torch.allclose(found, whole[:, columns], rtol=0, atol=1e-12)


def test_prompts_read_by_sentence_are_one_block() -> None:
    """Token 6 ends a sentence, token 7 a prompt."""
    net = BlockNet(BlockConfig(backbone(sentence_ends=(6, 7)), 2), seed=3).double()
    clean = torch.tensor([[1, 6, 2, 7, 3, 4, 5, 0], [2, 3, 4, 7, 1, 1, 0, 0]])
    real = torch.tensor([[True] * 8, [True] * 7 + [False]])
    block = block_numbers(torch.tensor([4, 4]), 8, 2, "after_prompt")
    noisy = clean.clone()
    noisy[:, 5:7] = MASK
    found = net.noisy(noisy, clean, block=block, mask=real)
    later = torch.where(block < 2, clean, noisy)
    alone = net.hidden(later, block=block, mask=real)
    assert torch.allclose(found[:, 6], alone[:, 6], rtol=0, atol=1e-12)
    first = net.hidden(noisy, block=block, mask=real)
    assert torch.allclose(found[:, 4:6], first[:, 4:6], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="origin=after_prompt"):
        BlockConfig(backbone(sentence_ends=(6, 7)), 2, origin="absolute")


def test_starts() -> None:
    causal = Transformer(backbone(causal=True), seed=8)
    masked, dream = Transformer(backbone(), seed=8), ShiftedNet(ShiftedConfig(backbone()), seed=8)
    for base, shift in ((causal, False), (causal, True), (masked, False), (dream, True)):
        net = BlockNet(BlockConfig(backbone(), 2, shift=shift))
        net.start_from(base)
        assert torch.equal(net.backbone.embed.weight, masked.embed.weight)
        again = BlockNet(BlockConfig(backbone(), 4, "absolute", shift=shift))
        again.start_from(net)
        assert torch.equal(again.backbone.embed.weight, masked.embed.weight)
    for base, shift in ((masked, True), (dream, False)):
        with pytest.raises(ValueError, match="predicts token i at i"):
            BlockNet(BlockConfig(backbone(), 2, shift=shift)).start_from(base)
