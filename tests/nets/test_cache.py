"""Decoding with a cache equals decoding without one, row by row."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.stack import Cache, CacheShape
from anyorder.nets.transformer import Transformer

CONFIG = TransformerConfig(
    vocab_size=29, width=32, layers=3, heads=4, kv_heads=2, head_width=8, mlp_width=48, causal=True
)
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def shaken(config: TransformerConfig) -> Transformer:
    net = Transformer(config)
    generator = torch.Generator().manual_seed(0)
    for weight in net.parameters():
        nn.init.normal_(weight, mean=0.5 if weight.dim() == 1 else 0, std=0.2, generator=generator)
    return net


NET = shaken(CONFIG)


@pytest.fixture(autouse=True)
def decoding() -> Iterator[None]:
    with torch.no_grad():
        yield


def texts(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(29, (rows, length), generator=torch.Generator().manual_seed(seed))


def prefilled(ids: Tensor, lengths: list[int], capacity: int = 40) -> tuple[Cache, Tensor]:
    """A cache holding the first lengths[r] tokens of each row, and the logits of the prefill."""
    longest = max(lengths)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    padded = ids[:, :longest].masked_fill(~mask, 28)
    cache = NET.new_cache(len(ids), capacity)
    return cache, NET(padded, mask=mask, cache=cache)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_cached_logits_equal_uncached_ones(
    lengths: list[int], counts: list[int], seed: int
) -> None:
    ids = texts(len(lengths), 30, seed)
    whole = NET(ids)
    cache, logits = prefilled(ids, lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(logits[row, :length], whole[row, :length], **CLOSE)
    at = torch.tensor(lengths)
    for count in counts:
        columns = at[:, None] + torch.arange(count)
        logits = NET(ids.gather(1, columns), cache=cache)
        expected = whole.gather(1, columns[..., None].expand(-1, -1, 29))
        torch.testing.assert_close(logits, expected, **CLOSE)
        at = at + count
        assert torch.equal(cache.lengths, at)
        assert (cache.shortest, cache.longest) == (int(at.min()), int(at.max()))


def test_a_masked_call_adds_a_different_number_of_tokens_to_each_row() -> None:
    ids = texts(3, 20)
    whole = NET(ids)
    cache, _ = prefilled(ids, [4, 2, 6])
    added = torch.tensor([1, 3, 0])
    columns = cache.lengths[:, None] + torch.arange(3)
    mask = torch.arange(3) < added[:, None]
    logits = NET(ids.gather(1, columns).masked_fill(~mask, 28), mask=mask, cache=cache)
    for row in range(3):
        start, count = [4, 2, 6][row], int(added[row])
        torch.testing.assert_close(logits[row, :count], whole[row, start : start + count], **CLOSE)
    assert cache.lengths.tolist() == [5, 5, 6]
    following = NET(ids.gather(1, cache.lengths[:, None]), cache=cache)
    for row, at in enumerate([5, 5, 6]):
        torch.testing.assert_close(following[row, 0], whole[row, at], **CLOSE)


@pytest.mark.parametrize("rows", [[2, 0], [1], [0, 0, 1, 1]])
def test_selected_rows_go_on_as_if_nothing_happened(rows: list[int]) -> None:
    ids = texts(3, 20)
    whole = NET(ids)
    cache, _ = prefilled(ids, [4, 2, 9])
    NET(ids.gather(1, cache.lengths[:, None]), cache=cache)
    picked = cache.select(torch.tensor(rows))
    expected_lengths = [[5, 3, 10][row] for row in rows]
    assert picked.lengths.tolist() == expected_lengths
    assert (picked.shortest, picked.longest) == (min(expected_lengths), max(expected_lengths))
    for _ in range(3):
        at = picked.lengths
        logits = NET(ids[rows].gather(1, at[:, None]), cache=picked)[:, 0]
        torch.testing.assert_close(logits, whole[torch.tensor(rows), at], **CLOSE)
    assert cache.lengths.tolist() == [5, 3, 10]  # the old cache is left as it was


def test_a_boolean_selection_keeps_the_true_rows() -> None:
    cache, _ = prefilled(texts(3, 20), [4, 2, 9])
    assert cache.select(torch.tensor([True, False, True])).lengths.tolist() == [4, 9]


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    count=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_a_cut_cache_goes_on_as_if_the_rest_had_never_been(
    lengths: list[int], cuts: list[int], count: int, seed: int
) -> None:
    first, then = texts(len(lengths), 20, seed), texts(len(lengths), 20, seed + 1)
    cache, _ = prefilled(first, lengths)
    at = torch.tensor([min(pair) for pair in zip(lengths, cuts, strict=False)])
    cache.cut(at)
    assert torch.equal(cache.lengths, at)
    assert (cache.shortest, cache.longest) == (int(at.min()), int(at.max()))
    whole = NET(torch.where(torch.arange(20) < at[:, None], first, then))
    for _ in range(2):
        columns = at[:, None] + torch.arange(count)
        logits = NET(then.gather(1, columns), cache=cache)
        expected = whole.gather(1, columns[..., None].expand(-1, -1, 29))
        torch.testing.assert_close(logits, expected, **CLOSE)
        at = at + count


def test_a_cut_frees_room_and_can_only_shorten() -> None:
    ids = texts(2, 12)
    cache, _ = prefilled(ids, [7, 3], capacity=8)
    for wrong in ([8, 3], [7, 4], [-1, 2]):
        with pytest.raises(ValueError, match="only be cut to lengths from 0"):
            cache.cut(torch.tensor(wrong))
    with pytest.raises(ValueError, match="one for each row"):
        cache.cut(torch.tensor([1]))
    assert (cache.lengths.tolist(), cache.longest) == ([7, 3], 7)
    lengths = torch.tensor([2, 3])
    cache.cut(lengths)
    lengths += 9  # the caller's own
    NET(ids[:, :5], cache=cache)
    assert cache.lengths.tolist() == [7, 8]
    with torch.inference_mode():
        cache.cut(torch.zeros(2, dtype=torch.int32))
        torch.testing.assert_close(NET(ids[:, :4], cache=cache), NET(ids[:, :4]), **CLOSE)


def test_vectors_can_open_a_cached_sequence() -> None:
    ids = texts(2, 6)
    vectors = NET.embed(ids)
    vectors[:, 0] = 0.3
    whole = NET(vectors=vectors)
    cache = NET.new_cache(2, 6)
    first = NET(vectors=vectors[:, :1], cache=cache)
    rest = NET(ids[:, 1:], cache=cache)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole, **CLOSE)


def test_a_step_looks_only_at_the_filled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def watched(query: Tensor, key: Tensor, value: Tensor, **options: object) -> Tensor:
        seen.append((query.shape[2], key.shape[2], options["attn_mask"] is not None))
        return attention(query, key, value, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    ids = texts(2, 30)
    even, _ = prefilled(ids, [5, 5], capacity=1000)
    NET(ids[:, 5:6], cache=even)
    ragged, _ = prefilled(ids, [5, 3], capacity=1000)
    NET(ids[:, 5:6], cache=ragged)
    assert seen[::3] == [(5, 5, False), (1, 6, False), (5, 5, False), (1, 6, True)]


def test_unwritten_slots_cannot_spread_nonsense() -> None:
    ids = texts(2, 30)
    cache, _ = prefilled(ids, [9, 1])
    for storage in cache.keys + cache.values:
        storage[1, 9:] = 1e30
    for _ in range(5):
        assert NET(ids[:, :1], cache=cache).isfinite().all()


def test_a_cache_works_across_no_grad_and_inference_mode() -> None:
    ids = texts(1, 8)
    whole = NET(ids)
    with torch.inference_mode():
        cache = NET.new_cache(1, 8)
        NET(ids[:, :4], cache=cache)
    torch.testing.assert_close(NET(ids[:, 4:6], cache=cache), whole[:, 4:6], **CLOSE)
    with torch.inference_mode():
        torch.testing.assert_close(NET(ids[:, 6:], cache=cache), whole[:, 6:], **CLOSE)
        assert cache.select([0]).lengths.tolist() == [8]


def test_a_full_cache_says_so_and_stays_usable() -> None:
    ids = texts(2, 12)
    cache, _ = prefilled(ids, [7, 3], capacity=8)
    with pytest.raises(ValueError, match=r"holds 8 tokens a row.*has 7 and 2 more.*at least 9"):
        NET(ids[:, :2], cache=cache)
    assert cache.lengths.tolist() == [7, 3]
    NET(ids[:, 7:8], cache=cache)
    assert cache.lengths.tolist() == [8, 4]


def test_misuse_is_refused() -> None:
    ids = texts(2, 6)
    cache = NET.new_cache(2, 10)
    with pytest.raises(ValueError, match="3 rows were given to a cache of 2"):
        NET(texts(3, 4), cache=cache)
    with pytest.raises(ValueError, match="pad on the right"):
        NET(ids, mask=torch.arange(6).expand(2, 6) > 0, cache=cache)
    with pytest.raises(ValueError, match="no positions"):
        NET(ids, positions=torch.arange(6).expand(2, 6), cache=cache)
    with torch.enable_grad(), pytest.raises(ValueError, match="no_grad"):
        NET(ids, cache=cache)
    assert cache.lengths.tolist() == [0, 0]
    with pytest.raises(ValueError, match="causal"):
        Transformer(TransformerConfig(29, 32, 1, 4, 4, 8, 48)).new_cache(1, 4)
    with pytest.raises(ValueError, match="at least one row"):
        NET.new_cache(0, 10)
    with pytest.raises(ValueError, match="at least one row"):
        Cache(CacheShape(1, 1, 0, 1, 2), device=torch.device("cpu"), dtype=torch.float32)
