"""Prompts summed by sentence: by hand, in every family's network, and in every kind of cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from anyorder.data.corpora.trails import TrailsConfig, problem, trails_vocab
from anyorder.nets.prompts import sentence_ends, sum_sentences
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Span, Transformer
from anyorder.vocab import Vocab

ENDS = (1, 9)
"""1 ends a sentence, 9 the prompt."""
SMALL = TransformerConfig(
    vocab_size=12, width=16, layers=2, heads=2, kv_heads=2, head_width=8, mlp_width=24
)


def plain(x: Tensor, ids: Tensor, given: Tensor | None = None) -> Tensor:
    """The definition, one token after another; what is not given is passed over."""
    found, given = x.clone(), torch.ones_like(ids).bool() if given is None else given
    for row in range(len(ids)):
        total, inside = torch.zeros_like(x[0, 0]), True
        for place, token in enumerate(ids[row].tolist()):
            if not given[row, place]:
                continue
            if inside:
                total = total + x[row, place]
                found[row, place] = total
            if token in ENDS:
                total = torch.zeros_like(total)
            inside = inside and token != ENDS[-1]
    return found


def test_sums_are_those_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 10, (200, 15), generator=generator)
    x = torch.randn(200, 15, 4, generator=generator).double()
    torch.testing.assert_close(sum_sentences(x, ids, ENDS), plain(x, ids))


def test_noise_ends_nothing_and_counts_in_no_sum() -> None:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 10, (200, 15), generator=generator)
    x = torch.randn(200, 15, 4, generator=generator).double()
    given = torch.rand(200, 15, generator=generator) < 0.7
    found = sum_sentences(x, ids, ENDS, given)
    torch.testing.assert_close(found, plain(x, ids, given))
    assert torch.equal(found[~given], x[~given])
    other = ids.where(given, torch.randint(0, 10, ids.shape, generator=generator))
    moved = x.where(given[..., None], torch.randn(x.shape, generator=generator).double())
    assert torch.equal(sum_sentences(moved, other, ENDS, given)[given], found[given])
    every = torch.ones_like(given)
    assert torch.equal(sum_sentences(x, ids, ENDS, every), sum_sentences(x, ids, ENDS))


def test_what_follows_the_prompt_is_untouched_and_does_not_matter() -> None:
    ids = torch.tensor([[2, 3, 1, 4, 9, 2, 1, 9, 3]])
    x = torch.randn(1, 9, 4).double()
    found = sum_sentences(x, ids, ENDS)
    assert torch.equal(found[:, 5:], x[:, 5:])
    torch.testing.assert_close(found[0, 2], x[0, :3].sum(0))
    torch.testing.assert_close(found[0, 4], x[0, 3:5].sum(0))
    changed = torch.cat([ids[:, :5], torch.tensor([[7, 7, 7, 7]])], dim=1)
    assert torch.equal(sum_sentences(x, changed, ENDS)[:, :5], found[:, :5])


def test_ends_of_sentences_by_spelling() -> None:
    vocab = trails_vocab()
    ends = sentence_ends(vocab)
    assert ends[-1] == vocab.encode("\n")[0]
    prompt = problem(TrailsConfig(), 0).prompt
    texts = [vocab.decode([id]) for id in vocab.encode(prompt) if id in ends]
    assert len(texts) == 1 + 8 + 1 + 1  # the condition, eight facts, the question, the newline
    with pytest.raises(ValueError, match="newline"):
        sentence_ends(Vocab.words(["a", "b."]))


@pytest.mark.parametrize("causal", [False, True])
def test_a_network_reads_sums_and_a_partial_cache_reads_the_same(causal: bool) -> None:
    config = replace(SMALL, causal=causal, sentence_ends=ENDS)
    net = Transformer(config, seed=1).double()
    ids = torch.tensor([[2, 3, 1, 4, 5, 9, 6, 7], [8, 1, 2, 9, 3, 3, 1, 4]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    expected = net.hidden(vectors=plain(net.embed(ids), ids), mask=mask)
    torch.testing.assert_close(net.hidden(ids, mask=mask), expected)
    without = Transformer(replace(config, sentence_ends=()), seed=1).double()
    assert not torch.allclose(without.hidden(ids, mask=mask), expected)
    kept = net.rereader(2, 8)
    torch.testing.assert_close(kept.read(ids, mask), expected)
    # A span that begins inside of a sentence sums from the sentence's first token on.
    span = Span(torch.tensor([4, 2]), torch.tensor([4, 6]), 6)
    again = kept.reread(ids, mask, span)
    torch.testing.assert_close(again[0, :4], expected[0, 4:])
    torch.testing.assert_close(again[1], expected[1, 2:])


@torch.no_grad()
def test_a_cache_continues_after_the_prompt() -> None:
    net = Transformer(replace(SMALL, causal=True, sentence_ends=ENDS), seed=2).double()
    ids = torch.tensor([[2, 3, 1, 4, 9, 6, 7, 1, 5]])
    whole = net.hidden(ids)
    cache = net.new_cache(1, 9)
    parts = [net.hidden(ids[:, :5], cache=cache)]
    parts += [net.hidden(ids[:, place : place + 1], cache=cache) for place in range(5, 9)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
