"""Which ids are states: what texts hold, nothing else; and logits of these only."""

from __future__ import annotations

import pytest
import torch

from anyorder.data import StoriesConfig, StoriesSource, stories_vocab
from anyorder.nets.denoiser import States
from anyorder.vocab import SPECIALS, Vocab


def test_words_eos_and_pad_are_states_mask_and_bos_are_not() -> None:
    vocab = Vocab.words(["a", "b", "c"])
    states = States.of(vocab)
    assert states.ids.tolist() == [0, 1, 2, vocab.pad_id, vocab.eos_id]
    assert states.count == vocab.size - 2
    assert states.number[states.ids].tolist() == list(range(states.count))
    assert vocab.bos_id is not None
    assert states.number[[vocab.mask_id, vocab.bos_id]].tolist() == [-1, -1]


def test_every_token_of_the_corpus_is_a_state() -> None:
    vocab = stories_vocab()
    states, source = States.of(vocab), StoriesSource(StoriesConfig(layout=1.0, wording=1.0))
    for number in range(50):
        _, answer = source[number]
        assert bool((states.number[vocab.encode(answer)] >= 0).all())


def test_bytes_that_are_no_text_alone_are_states_too() -> None:
    vocab = Vocab.bytes()
    assert States.of(vocab).count == 256 + 2


def test_unused_rows_and_chat_tokens_are_no_states(data_file: object) -> None:
    path = data_file("tokenizer/vocab.json.gz")  # type: ignore[operator]
    merges = path.parent / "merges.txt.gz"
    vocab = Vocab.from_vocab_merges(path, merges, **SPECIALS["dream"])
    states = States.of(vocab)
    assert int(states.number[vocab.eos_id]) >= 0
    for id in (vocab.mask_id, vocab.bos_id, vocab.id_of("<|im_start|>"), vocab.size - 1):
        assert int(states.number[id]) == -1


def test_what_is_left_out_is_no_state() -> None:
    vocab = Vocab.words(["a", "b"])
    states = States.of(vocab, without=frozenset([vocab.eos_id]))
    assert states.ids.tolist() == [0, 1, vocab.pad_id]
    assert States.of(vocab).count == 4


def test_logits_are_those_of_the_states() -> None:
    vocab = Vocab.words(["a", "b"])
    states = States.of(vocab)
    logits = torch.arange(2 * (vocab.size + 3), dtype=torch.bfloat16).reshape(2, -1)
    chosen = states.logits(logits)  # a table may have more rows than the vocabulary has ids
    assert torch.equal(chosen, logits[:, states.ids].float()) and chosen.dtype == torch.float32
    with pytest.raises(ValueError, match="gives 3 logits for a vocabulary of 6"):
        states.logits(torch.zeros(2, 3))


def test_states_that_a_decoder_asked_for_first_can_be_trained_with() -> None:
    vocab = Vocab.words(["x", "y"])
    with torch.inference_mode():
        states = States.of(vocab)
    weight = torch.zeros(2, vocab.size, requires_grad=True)
    states.logits(weight * 1.0).sum().backward()
    assert weight.grad is not None and int(weight.grad.sum()) == 2 * states.count
