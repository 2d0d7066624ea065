"""Masked language models of `transformers`, wrapped in one call with their tokenizers.

Small networks with random weights, and tokenizers that the tests make: BERT, RoBERTa, XLM-R and
ModernBERT, and tokenizers without marks around a text. Oracle: a loop that calls the network with
the tokenizer's own ids and picks one slot after another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import permutations
from typing import Any

import made_tokenizers as made
import pytest
import torch
from torch import Tensor

import anyorder
from anyorder.apps.jobs import SampleJob
from anyorder.apps.lm_eval import Bridge
from anyorder.apps.lm_eval.likelihood import TextScorer
from anyorder.apps.sample import plan_run, subject_of
from anyorder.model import Card, Model, build
from anyorder.nets.shapes import TransformerConfig
from anyorder.vocab import Vocab

transformers = pytest.importorskip("transformers")

SPARE_ROWS = 5  # rows of the table beyond the tokenizer, as published models have them
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE |= {"intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.5}


def network(kind: str, tokenizer: Any) -> Any:
    """A small masked language model; its large random weights make no two scores alike."""
    eos = tokenizer.eos_token_id
    pad = eos if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer) + SPARE_ROWS,
        pad_token_id=pad,
        eos_token_id=eos,
        bos_token_id=tokenizer.bos_token_id,
        **SHAPE,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    return getattr(transformers, f"{kind}ForMaskedLM")(config)


PAIRS: dict[str, tuple[str, Callable[[], Any]]] = {
    "BERT, WordPiece": ("Bert", made.wordpiece),
    "RoBERTa, byte-level BPE": ("Roberta", made.byte_level),
    "XLM-R, Unigram": ("XLMRoberta", made.unigram),
    "ModernBERT, byte-level BPE": ("ModernBert", made.byte_level),
    "BERT, byte-fallback BPE": ("Bert", made.byte_fallback),
    "BERT, byte-level BPE that lacks bytes": ("Bert", made.few_bytes),
}


@pytest.fixture(scope="module", params=list(PAIRS))
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any, Model]:
    kind, make = PAIRS[request.param]
    tokenizer = make()
    module = network(kind, tokenizer)
    return tokenizer, module, anyorder.wrap(module, tokenizer, max_new_tokens=6)


def log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits.double(), dim=-1)


SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "confidence": lambda log_p, place: log_p.max(dim=-1).values,
    "margin": lambda log_p, place: (lambda top: top[:, 0] - top[:, 1])(log_p.exp().topk(2).values),
    "entropy": lambda log_p, place: (log_p.exp() * log_p.clamp(min=-1e30)).sum(dim=-1),
    "left_to_right": lambda log_p, place: -place.double(),
    "right_to_left": lambda log_p, place: place.double(),
}


@torch.no_grad()
def plain_loop(module: Any, tokenizer: Any, parts: list[str | int], policy: str) -> dict[int, Any]:
    """Place -> (token, step) of every slot: one slot a step, the most likely token."""
    ids: list[int] = []
    for number, part in enumerate(parts):
        if isinstance(part, int):
            ids += [tokenizer.mask_token_id] * part
        elif number == 0:
            ids += tokenizer(part, add_special_tokens=False)["input_ids"]
        else:  # behind text: cut it with a word before it, and leave the word out
            before = tokenizer("fox", add_special_tokens=False)["input_ids"]
            ids += tokenizer(f"fox{part}", add_special_tokens=False)["input_ids"][len(before) :]
    around = tokenizer("", add_special_tokens=True)["input_ids"]
    first = around[:1] if around else []
    row = [*first, *ids, *around[1:]]
    never = {*tokenizer.all_special_ids} - ({tokenizer.eos_token_id} if len(around) < 2 else set())
    never |= set(range(len(tokenizer), module.config.vocab_size))
    found: dict[int, Any] = {}
    while places := [at for at, id in enumerate(row) if id == tokenizer.mask_token_id]:
        input_ids = torch.tensor([row])
        logits = module(input_ids=input_ids, attention_mask=torch.ones_like(input_ids)).logits[0]
        logits[:, sorted(never)] = -torch.inf
        log_p = log_softmax(logits[places])
        scores = SCORES[policy](log_p, torch.tensor(places))
        best = int(scores.argmax())
        row[places[best]] = int(log_p[best].argmax())
        found[places[best]] = (row[places[best]], len(found) + 1)
    return found


TEXTS: list[list[str | int]] = [["the fox", 6], ["re", 4, " fox"], ["the quick fox jumps", 6]]


def marked(parts: list[str | int]) -> str:
    return "".join(f"<fill:{part}>" if isinstance(part, int) else part for part in parts)


@pytest.mark.parametrize("policy", SCORES)
def test_the_decoder_equals_a_plain_loop(pair: tuple[Any, Any, Model], policy: str) -> None:
    tokenizer, module, model = pair
    together = model.sample([marked(parts) for parts in TEXTS], policy=policy, temperature=0)
    for parts, trace in zip(TEXTS, together, strict=True):
        (alone,) = model.sample(marked(parts), policy=policy, temperature=0)
        assert trace.prompt_ids is not None and trace.reveal_step is not None
        start = len(trace.prompt_ids)
        expected = plain_loop(module, tokenizer, parts, policy)
        for each in (trace, alone):
            shown = zip(each.token_ids.tolist(), each.reveal_step.tolist(), strict=True)
            drawn = {start + at: (id, step) for at, (id, step) in enumerate(shown) if step > 0}
            assert drawn == expected


def test_marks_stand_around_every_text_and_none_is_drawn(pair: tuple[Any, Any, Model]) -> None:
    tokenizer, module, model = pair
    vocab = model.vocab
    traces = model.sample("the fox", samples=24, temperature=1000.0, policy="random")
    drawn = set()
    for trace in traces:
        whole = [*trace.prompt_ids.tolist(), *trace.token_ids.tolist()]
        framed = tokenizer("the fox")["input_ids"]
        last = framed[len(framed) - len(vocab.suffix_ids) :]
        assert whole[: len(framed) - len(last)] == framed[: len(framed) - len(last)]
        assert whole[len(whole) - len(last) :] == last
        drawn |= {id for id, step in zip(trace.token_ids, trace.reveal_step, strict=True) if step}
    assert len(drawn) > 40
    assert max(drawn) < len(tokenizer) <= module.config.vocab_size - SPARE_ROWS
    may = set() if vocab.suffix_ids else {*vocab.end_ids}
    assert drawn & {*tokenizer.all_special_ids} <= may


def test_texts_and_spans_are_those_of_the_vocabulary(pair: tuple[Any, Any, Model]) -> None:
    _, _, model = pair
    for trace in model.sample(["the fox<fill:4> re", "the<fill:3>"], policy="random", eos="forbid"):
        ids = [*trace.prompt_ids.tolist(), *trace.token_ids.tolist()]
        assert trace.prompt + trace.text == model.vocab.decode(ids)
        assert trace.char_end.tolist() == sorted(trace.char_end.tolist())
        assert trace.char_end[-1] == len(trace.text)


def test_the_longest_text_is_that_of_the_network(pair: tuple[Any, Any, Model]) -> None:
    tokenizer, module, model = pair
    roberta = "Roberta" in type(module).__name__
    limit = 64 - (tokenizer.pad_token_id + 1 if roberta else 0)
    assert model.card.max_length == limit
    room = limit - len(tokenizer("the fox")["input_ids"])
    (trace,) = model.sample(f"the fox<fill:{room}>", steps=1)
    assert (trace.reveal_step > 0).sum() == room
    with pytest.raises(ValueError, match="do not fit on a canvas"):
        model.sample(f"the fox<fill:{room + 1}>", steps=1)


def test_a_vocabulary_and_its_tokenizer_are_one_call(pair: tuple[Any, Any, Model]) -> None:
    tokenizer, module, model = pair
    vocab = Vocab.from_transformers(tokenizer)
    other = anyorder.wrap(module, vocab, max_new_tokens=6)
    # So hot that every token is as likely, special ones too where they may be drawn.
    for options in ({"policy": "entropy"}, {"temperature": 1000.0, "samples": 20}):
        pairs = zip(*(each.sample("the fox", **options) for each in (model, other)), strict=True)
        assert all(one.token_ids.tolist() == same.token_ids.tolist() for one, same in pairs)
    free = anyorder.wrap(module, vocab, draw_specials=True, max_new_tokens=40)
    specials = {
        id
        for trace in free.sample("the fox", samples=30, temperature=1000.0, steps=1)
        for id in trace.token_ids[trace.reveal_step > 0].tolist()
        if id in vocab.special_ids
    }
    assert specials - {vocab.eos_id}
    assert vocab.mask_id not in specials


def test_a_run_says_that_its_tokenizer_changes_texts(pair: tuple[Any, Any, Model]) -> None:
    vocab = pair[2].vocab
    shape = asdict(TransformerConfig(vocab.size, 16, 1, 2, 2, 8, 32))
    model = build(Card("mdm", shape, 6, 32, {}), vocab, name="tiny", seed=1)
    job = SampleJob(model="tiny", prompt="the fox", samples=1)
    card = plan_run(job, {}, model, subject_of(job, {}), command="here").card
    assert card.lossy is (model.vocab.lossy or None)
    assert ("lossy" in card._record()) == model.vocab.lossy
    assert replace(card, lossy=None).identity() == card.identity()


def likelihood_by_hand(module: Any, vocab: Vocab, before: list[int], answer: list[int]) -> float:
    """The mean over all orders of filling `answer`, between the marks of the tokenizer."""
    total = 0.0
    orders = list(permutations(range(len(answer))))
    for order in orders:
        shown = [vocab.mask_id] * len(answer)
        for place in order:
            ids = [*vocab.prefix_ids, *before, *shown, *vocab.suffix_ids]
            logits = module(torch.tensor([ids])).logits[0].detach()
            row = logits[len(vocab.prefix_ids) + len(before) + place]
            never = vocab.special_ids.difference(() if vocab.suffix_ids else vocab.end_ids)
            row[sorted(never)] = -torch.inf
            total += float(log_softmax(row)[answer[place]])
            shown[place] = answer[place]
    return total / len(orders)


def test_likelihoods_see_the_marks_around_a_text(pair: tuple[Any, Any, Model]) -> None:
    _, module, model = pair
    scorer = TextScorer.of(model, {"policy": "left_to_right"}, draws=8, batch=4)
    asked = [("the fox", " the"), ("the fox", " fox the"), ("the", " the")]
    for (context, more), found in zip(asked, scorer.pairs(asked), strict=True):
        ids, before = model.vocab.encode(context + more), model.vocab.encode(context)
        answer = ids[len(before) :]
        if len(answer) > 3:  # not enumerated
            continue
        expected = likelihood_by_hand(module, model.vocab, before, answer)
        assert -found.estimate.nats == pytest.approx(expected, abs=1e-3)
        (written,) = model.sample(context, max_new_tokens=len(answer), policy="left_to_right")
        drawn = [id for id, at in zip(written.token_ids, written.reveal_step, strict=True) if at]
        assert found.greedy == (drawn == answer)
    if model.vocab.suffix_ids:
        with pytest.raises(ValueError, match="leave ending out"):
            Bridge(model, ending="eos")


def test_a_network_of_another_tokenizer_is_refused() -> None:
    small = made.wordpiece()
    module = network("Bert", small)
    with pytest.raises(ValueError, match=r"gives \d+ logits for a vocabulary of \d+"):
        anyorder.wrap(module, Vocab.from_transformers(small, size=len(small) + SPARE_ROWS + 1))
    with pytest.raises(ValueError, match="as a Vocab, or its tokenizer"):
        anyorder.wrap(module, "tokenizer.json")
