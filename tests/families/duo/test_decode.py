"""Which ids are states: what texts hold, nothing else; and logits of these only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from uniform_chain import posterior

import anyorder
from anyorder.data import StoriesConfig, StoriesSource, stories_vocab
from anyorder.decode.canvas import Canvas, Decoded
from anyorder.families.duo import decode as duo
from anyorder.families.duo.config import DuoOptions
from anyorder.families.family import find_family
from anyorder.nets.denoiser import States
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process import uniform
from anyorder.process.noise import key_of
from anyorder.trace import Trace
from anyorder.trace.events import spelled
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


# duo's loop: calls, frozen tokens, one step's law, endings, traces, and batched equals alone.


VOCAB = Vocab.words(["a", "b", "c", "d"])
STATES = States.of(VOCAB)


class Constant:
    """A network that predicts the same everywhere and remembers what it was shown."""

    def __init__(self, logits: Sequence[float]) -> None:
        self.logits = torch.tensor(logits, dtype=torch.float64)
        self.canvases: list[Tensor] = []
        self.times: list[list[float]] = []

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        assert time is not None
        self.canvases.append(ids.clone())
        self.times.append(time.tolist())
        return torch.zeros(*ids.shape, 1)

    def head(self, hidden: Tensor) -> Tensor:
        return self.logits.expand(len(hidden), -1)


def constant(**prob: float) -> Constant:
    """Predictions by word; everything else has none, but the mask and BOS have the most."""
    table = {
        VOCAB.encode(word)[0] if word != "eos" else VOCAB.eos_id: p for word, p in prob.items()
    }
    logits = [math.log(table[id]) if id in table else -math.inf for id in range(VOCAB.size)]
    logits[VOCAB.mask_id] = 50.0
    assert VOCAB.bos_id is not None
    logits[VOCAB.bos_id] = 60.0
    return Constant(logits)


def small_net(seed: int = 1) -> Transformer:
    config = TransformerConfig(VOCAB.size, 16, 2, 2, 2, 8, 32, time_modulated=True)
    net = Transformer(config, seed=seed).eval()
    for name, value in net.named_parameters():
        if "modulation" in name:  # starts at zero, where time would say nothing
            torch.nn.init.normal_(value, std=0.3, generator=torch.Generator().manual_seed(seed))
    return net


def canvas_of(pattern: str) -> Canvas:
    """'ab__' freezes a and b, and leaves two slots free."""
    parts: list[list[int] | int] = [1 if c == "_" else VOCAB.encode(c) for c in pattern]
    return Canvas.of(parts, VOCAB)


def decode(net: object, patterns: Sequence[str], seed: int = 0, **options: object) -> list[Decoded]:
    chosen = find_family("duo").choose(options)
    keys = [key_of(seed, number) for number in range(len(patterns))]
    return duo.decode(net, VOCAB, [canvas_of(each) for each in patterns], keys, chosen)  # type: ignore[arg-type]


def test_as_many_calls_as_steps_at_the_published_times() -> None:
    net = constant(a=0.5, b=0.5)
    (row,) = decode(net, ["a___"], steps=5)
    assert len(net.canvases) == row.forwards == row.steps == 5
    alphas = 1 - (1 - 1e-3) * np.linspace(1, 1e-5, 6)[:-1]
    assert [each[0] for each in net.times] == pytest.approx(alphas.tolist(), abs=1e-6)


def test_unset_steps_are_one_for_each_free_slot_of_the_row() -> None:
    rows = decode(constant(a=0.5, b=0.5), ["a___", "c_", "_b_____"])
    assert [row.steps for row in rows] == [3, 1, 6]


def test_frozen_tokens_are_in_every_canvas_and_free_ones_begin_as_noise() -> None:
    net = constant(a=1.0)
    rows = decode(net, ["b_d__c"] * 400, steps=4)
    for canvas in net.canvases:
        assert bool((canvas[:, [0, 2, 5]] == torch.tensor([1, 3, 2])).all())
    first = torch.bincount(net.canvases[0][:, 1], minlength=VOCAB.size)
    assert set(first.nonzero()[:, 0].tolist()) == set(STATES.ids.tolist())
    assert all(row.token_ids == [0, 3, 0, 0, 2] for row in rows)
    assert all(row.reveal_step[1] == row.reveal_step[4] == 0 for row in rows)
    assert all(math.isnan(row.log_prob[1]) for row in rows)


def test_a_step_has_the_closed_forms_law() -> None:
    """Golden prediction, one step between two inner times: chi-square against the posterior."""
    samples, steps, step = 20_000, 5, 4
    net = constant(a=0.1, b=0.2, c=0.3, d=0.4)
    canvases, keys = [canvas_of("_")] * samples, [key_of(1, i) for i in range(samples)]
    options = DuoOptions(steps=steps)
    stepper = duo._Stepper(net, VOCAB, options, canvases, keys, torch.device("cpu"))
    rows = stepper.rows
    rows.ids[:] = 0
    stepper.advance(step)
    alphas = 1 - (1 - 1e-3) * torch.linspace(1, 1e-5, steps + 1, dtype=torch.float64)
    prob = torch.zeros(1, STATES.count, dtype=torch.float64)
    prob[0, :4] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    law = posterior(prob, torch.tensor([0]), alphas[step - 1 : step], alphas[step : step + 1])
    observed = torch.bincount(STATES.number[rows.ids[:, 0]], minlength=STATES.count)
    assert stats.chisquare(observed, samples * law[0]).pvalue > 1e-4


def test_neither_mask_nor_bos_is_ever_shown() -> None:
    net = constant(a=0.4, b=0.3, eos=0.3)
    decode(net, ["____"] * 50, steps=20)
    shown = set(torch.cat(net.canvases).flatten().tolist())
    assert shown <= set(STATES.ids.tolist())
    assert VOCAB.mask_id not in shown and VOCAB.bos_id not in shown


def test_a_greedy_tail_changes_the_last_step_alone() -> None:
    """Until then the canvases are those of ancestral sampling, which do move."""
    seen = {}
    for tail in ("greedy", "ancestral"):
        net = constant(a=0.5, b=0.3, c=0.2)
        decode(net, ["______"] * 4, steps=6, tail=tail)
        seen[tail] = torch.stack(net.canvases)
    assert torch.equal(seen["greedy"], seen["ancestral"])
    assert (seen["greedy"][1:] != seen["greedy"][:-1]).any(dim=-1).any(dim=-1).sum() >= 3


def test_the_last_step_ends_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """alpha_s is 1 there, so that nothing is drawn evenly; before it, something may be."""
    calls = []

    def spied(prob: Tensor, alpha_t: Tensor, alpha_s: Tensor, states: int) -> uniform.Mixture:
        parts = uniform.mixture(prob, alpha_t, alpha_s, states)
        calls.append((alpha_s.tolist(), parts.uniform.tolist()))
        return parts

    monkeypatch.setattr(duo, "mixture", spied)
    decode(constant(a=0.5, b=0.5), ["____"], steps=4)
    *earlier, (last, noise) = calls
    assert set(last) == {1.0} and set(noise) == {0.0}
    assert len(earlier) == 3
    assert all(max(alpha) < 1 and min(even) > 0 for alpha, even in earlier)


def test_greedy_tail_takes_the_likeliest_clean_token() -> None:
    net = constant(a=0.2, b=0.5, c=0.3)
    assert all(row.token_ids == [1, 1] for row in decode(net, ["__"] * 20, steps=3, tail="greedy"))
    drawn = {token for row in decode(net, ["__"] * 20, steps=3) for token in row.token_ids}
    assert drawn == {0, 1, 2}


def test_temperature_and_filters_act_on_the_prediction() -> None:
    net = constant(a=0.2, b=0.5, c=0.3)
    for options in ({"temperature": 0.0}, {"top_p": 0.4}, {"top_k": 1}):
        rows = decode(net, ["__"] * 50, steps=3, **options)
        assert all(row.token_ids == [1, 1] for row in rows)
    two = decode(net, ["__"] * 50, steps=3, top_p=0.6)
    assert {token for row in two for token in row.token_ids} == {1, 2}
    # A filter moves the draws, not the log-probabilities that are told.
    told = {round(value, 6) for row in two for value in row.log_prob}
    assert told <= {round(math.log(p), 6) for p in (0.5, 0.3, 1 / STATES.count)}


def test_endings() -> None:
    net = constant(a=0.4, eos=0.6)
    eos = VOCAB.eos_id
    plain = decode(net, ["______"] * 40, steps=4)
    assert any(eos in row.token_ids and row.token_ids[-1] != eos for row in plain)
    filled = decode(net, ["______"] * 40, steps=4, eos="fill")
    for before, after in zip(plain, filled, strict=True):
        cut = before.token_ids.index(eos) if eos in before.token_ids else 6
        assert after.token_ids == before.token_ids[:cut] + [eos] * (6 - cut)
        for slot, token in enumerate(before.token_ids):
            assert math.isnan(after.log_prob[slot]) == (after.token_ids[slot] != token)
    net = constant(a=0.4, eos=0.6)
    decode(net, ["______"] * 40, steps=4, eos="forbid")
    assert not any(bool((canvas == eos).any()) for canvas in net.canvases)


def test_batched_equals_alone() -> None:
    net, patterns = small_net(), ["a____", "b__c_d", "_" * 9, "cd_"]
    for options in ({}, {"steps": 4, "temperature": 0.7, "top_p": 0.9, "tail": "greedy"}):
        together = decode(net, patterns, **options)
        for number, pattern in enumerate(patterns):
            chosen = find_family("duo").choose(options)
            key = key_of(0, number)
            (alone,) = duo.decode(net, VOCAB, [canvas_of(pattern)], [key], chosen)
            same = replace(together[number], log_prob=alone.log_prob)
            assert same == alone
            assert together[number].log_prob == pytest.approx(alone.log_prob, abs=1e-4, nan_ok=True)


def test_time_is_told() -> None:
    """The same canvas at other times has other predictions, so the steps' alphas matter."""
    net = small_net()
    ids = torch.tensor([[0, 1, 2]])
    early, late = (net.hidden(ids, time=torch.tensor([alpha])) for alpha in (0.1, 0.9))
    assert not torch.allclose(early, late, atol=1e-3)


class Watched(Constant):
    """A real network that remembers what it was shown."""

    def __init__(self, net: Transformer) -> None:
        self.net, self.canvases = net, []

    def hidden(
        self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor | None = None
    ) -> Tensor:
        self.canvases.append(ids.clone())
        return self.net.hidden(ids, mask=mask, time=time)

    def head(self, hidden: Tensor) -> Tensor:
        return self.net.head(hidden)


@pytest.mark.parametrize("pattern", ["a______", "__b___c", "_"])
def test_the_trace_replays_every_canvas(pattern: str) -> None:
    net = Watched(small_net(2))
    seen: list[Decoded] = []
    canvas = canvas_of(pattern)
    options = DuoOptions(steps=9)
    (row,) = duo.decode(
        net, VOCAB, [canvas], [key_of(3)], options, watch=lambda rows: seen.extend(rows)
    )
    trace = Trace.from_tokens(
        VOCAB,
        row.token_ids,
        prompt_ids=canvas.ids[: canvas.prompt_length],
        insert_step=row.insert_step,
        reveal_step=row.reveal_step,
        steps=row.steps,
        events=spelled(VOCAB, row.changes),
        log_prob=row.log_prob,
    )
    shown = [each[0].tolist() for each in net.canvases]
    for step, ids in enumerate([*shown, [*canvas.ids[: canvas.prompt_length], *row.token_ids]]):
        assert trace.replay(step).ids(VOCAB.mask_id, prompt=True).tolist() == ids
    assert [each.step for each in seen] == list(range(1, 10))
    start = canvas.prompt_length
    assert [each.token_ids for each in seen[:-1]] == [ids[start:] for ids in shown[1:]]
    assert (seen[-1].token_ids, seen[-1].reveal_step) == (row.token_ids, row.reveal_step)
    free = np.array(canvas.free[start:])
    assert bool(((np.array(row.reveal_step) > 0) == free).all())  # 0 is for what was given


def test_noise_that_was_kept_is_revealed_by_the_first_step() -> None:
    rows = decode(constant(a=1.0), ["_"] * 60, steps=6)
    kept = [row for row in rows if row.reveal_step == [1] and row.log_prob[0] < -1]
    assert kept
    for row in kept:
        assert [tuple(change) for change in row.changes] == [(0, 0, 0)]
        assert row.log_prob == pytest.approx([-math.log(STATES.count)])


def test_log_probability_is_that_of_the_token_when_it_came() -> None:
    net = Watched(small_net(3))
    (row,) = decode(net, ["ab____"], steps=12)
    for slot, (token, step) in enumerate(zip(row.token_ids, row.reveal_step, strict=True)):
        canvas = net.canvases[step - 1]
        alpha = 1 - (1 - 1e-3) * np.linspace(1, 1e-5, 13)[step - 1]
        with torch.inference_mode():
            states = net.net.hidden(canvas, time=torch.tensor([alpha]).float())
            logits = STATES.logits(net.head(states[0, 2 + slot]))
        if int(net.canvases[0][0, 2 + slot]) == token and step == 1:
            continue  # noise that was kept
        expected = logits.log_softmax(dim=-1)[STATES.number[token]]
        assert row.log_prob[slot] == pytest.approx(float(expected), abs=1e-4)


def test_what_has_no_effect_is_refused() -> None:
    choose = find_family("duo").choose
    with pytest.raises(ValueError, match="duo ranks nothing"):
        choose({"eos": "last"})
    with pytest.raises(ValueError, match="does not use policy"):
        choose({"policy": "confidence"})
    with pytest.raises(ValueError, match="change nothing"):
        choose({"temperature": 0, "top_p": 0.5})
    for idle in ({"temperature": 0.5}, {"top_p": 0.5}, {"top_k": 3}):
        with pytest.raises(ValueError, match="single greedy step"):
            choose({"steps": 1, "tail": "greedy", **idle})
        choose({"steps": 2, "tail": "greedy", **idle})
    with pytest.raises(ValueError, match="at least 1"):
        choose({"steps": 0})
    with pytest.raises(ValueError, match="ancestral"):
        choose({"tail": "stop"})
    assert choose({}) == DuoOptions()


def test_a_network_without_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        decode(Constant([math.nan] * VOCAB.size), ["__"])
    with pytest.raises(ValueError, match="vocabulary that it was trained with"):
        decode(Constant([0.0] * 3), ["__"])


def test_a_wrapped_network_without_time_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(ValueError, match="duo needs a network that takes a time"):
        anyorder.wrap(lambda ids: torch.zeros(*ids.shape, VOCAB.size), VOCAB, family="duo")
    model = anyorder.wrap(constant(a=1.0), VOCAB, family="duo", max_new_tokens=3)
    (trace,) = model.sample("ab", steps=4)
    assert (trace.text, trace.policy, trace.forwards) == ("aaa", "ancestral", 4)
