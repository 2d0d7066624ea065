"""Prompts pooled by sentence: by hand, in every kind of cache, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from anyorder.data.corpora.trails import TrailsConfig, problem, trails_vocab
from anyorder.nets.prompts import check_prompt, check_prompts, pool_sentences, sentence_ends
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Span, Transformer
from anyorder.vocab import Vocab

ENDS = (1, 9)
"""1 ends a sentence, 9 the prompt."""
SMALL = TransformerConfig(
    vocab_size=12, width=16, layers=2, heads=2, kv_heads=2, head_width=8, mlp_width=24
)


def plain(x: Tensor, ids: list[int]) -> tuple[list[Tensor], list[int]]:
    """The definition, one token of a row after another: its columns, and that of each token."""
    columns: list[Tensor] = []
    of_token, inside, goes_on = [], True, False
    for vector, token in zip(x, ids, strict=True):
        if goes_on:
            columns[-1] = columns[-1] + vector
        else:
            columns.append(vector)
        of_token.append(len(columns) - 1)
        inside, goes_on = inside and token != ENDS[-1], inside and token not in ENDS
    return columns, of_token


def test_columns_are_those_of_the_definition() -> None:
    """Rows of any length, in one batch with padding, and alone."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 10, (200, 15), generator=generator)
    x = torch.randn(200, 15, 4, generator=generator).double()
    length = torch.randint(1, 16, (200,), generator=generator)
    mask = torch.arange(15) < length[:, None]
    found = pool_sentences(x, ids, ENDS, mask)
    assert found.of_token is not None
    for row, count in enumerate(length.tolist()):
        columns, of_token = plain(x[row, :count], ids[row, :count].tolist())
        assert found.real[row].tolist() == [at < len(columns) for at in range(found.x.shape[1])]
        torch.testing.assert_close(found.x[row, : len(columns)], torch.stack(columns))
        assert found.of_token[row, :count].tolist() == of_token
        alone = pool_sentences(x[row : row + 1, :count], ids[row : row + 1, :count], ENDS)
        assert alone.mask is None
        torch.testing.assert_close(alone.x[0], torch.stack(columns))


def test_without_ends_every_token_is_a_column() -> None:
    x, ids = torch.randn(2, 5, 4), torch.tensor([[1, 9, 2, 3, 1], [2, 2, 2, 2, 2]])
    found = pool_sentences(x, ids, ())
    assert found.x is x and found.mask is None and found.of_token is None
    assert found.states_of_tokens(x) is x


def test_ends_of_sentences_by_spelling() -> None:
    vocab = trails_vocab()
    ends = sentence_ends(vocab)
    assert ends[-1] == vocab.encode("\n")[0]
    prompt = problem(TrailsConfig(), 0).prompt
    texts = [vocab.decode([id]) for id in vocab.encode(prompt) if id in ends]
    assert len(texts) == 1 + 8 + 1 + 1  # the condition, eight facts, the question, the newline
    with pytest.raises(ValueError, match="newline"):
        sentence_ends(Vocab.words(["a", "b."]))


def test_a_prompt_without_an_end_is_refused() -> None:
    check_prompt([2, 9], ENDS)
    check_prompt([2, 3], ())
    with pytest.raises(ValueError, match="no newline at its end"):
        check_prompt([2, 3, 1], ENDS)
    rows = torch.tensor([[2, 9, 3, 3], [2, 2, 9, 3]])
    check_prompts(rows, torch.tensor([2, 3]), ENDS)
    with pytest.raises(ValueError, match=r"net\.prompt=tokens"):
        check_prompts(rows, torch.tensor([2, 2]), ENDS)


@pytest.mark.parametrize("causal", [False, True])
def test_states_are_those_of_the_columns_also_in_a_partial_cache(causal: bool) -> None:
    config = replace(SMALL, causal=causal, sentence_ends=ENDS)
    net = Transformer(config, seed=1).double()
    without = Transformer(replace(config, sentence_ends=()), seed=1).double()
    ids = torch.tensor([[2, 3, 1, 4, 5, 9, 6, 7], [8, 1, 2, 9, 3, 3, 1, 4]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    found = net.hidden(ids, mask=mask)
    for row in range(2):
        columns, of_token = plain(net.embed(ids[row]), ids[row].tolist())
        states = without.hidden(vectors=torch.stack(columns)[None])[0]
        torch.testing.assert_close(found[row], states[torch.tensor(of_token)])
    assert not torch.allclose(without.hidden(ids, mask=mask), found)
    kept = net.rereader(2, 8)
    torch.testing.assert_close(kept.read(ids, mask), found)
    # A span that begins inside of a sentence reads the whole sentence.
    span = Span(torch.tensor([4, 2]), torch.tensor([4, 6]), 6)
    again = kept.reread(ids, mask, span)
    torch.testing.assert_close(again[0, :4], found[0, 4:])
    torch.testing.assert_close(again[1], found[1, 2:])


def test_a_partial_cache_sees_what_changed() -> None:
    """One layer: keys of unchanged columns do not depend on what changed."""
    net = Transformer(replace(SMALL, layers=1, sentence_ends=ENDS), seed=1).double()
    ids = torch.tensor([[2, 3, 1, 4, 9, 6, 7, 5], [8, 2, 9, 3, 3, 1, 4, 4]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    kept = net.rereader(2, 8)
    kept.read(ids, mask)
    changed = torch.cat([ids[:, :5], torch.tensor([[3, 3, 9], [1, 6, 6]])], dim=1)
    span = Span(torch.tensor([5, 5]), torch.tensor([3, 3]), 3)
    expected = net.hidden(changed, mask=mask)[:, 5:]
    torch.testing.assert_close(kept.reread(changed, mask, span), expected)


@torch.no_grad()
def test_a_cache_continues_after_prompts_of_several_lengths() -> None:
    net = Transformer(replace(SMALL, causal=True, sentence_ends=ENDS), seed=2).double()
    rows = [[2, 3, 1, 4, 9, 6, 7, 1, 5], [2, 9, 6, 7, 1, 5]]
    prompts = torch.tensor([[2, 3, 1, 4, 9], [2, 9, 0, 0, 0]])
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    cache = net.new_cache(2, 9)
    first = net.hidden(prompts, mask=mask, cache=cache)
    rest = [net.hidden(torch.tensor([[token]] * 2), cache=cache) for token in (6, 7, 1, 5)]
    for row, (ids, length) in enumerate(zip(rows, (5, 2), strict=True)):
        whole = net.hidden(torch.tensor([ids]))[0]
        parts = torch.cat([first[row, :length], *(state[row] for state in rest)])
        torch.testing.assert_close(parts, whole)
