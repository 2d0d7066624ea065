"""The ask-again corrector over segments: on perfect networks, against a plain computation, in
traces, and through replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from insertion_space import generic_data
from replay_support import placed_by, whole

import anyorder
from anyorder.data.corpora.stories import StoriesConfig, problem
from anyorder.decode.canvas import Decoded, GrowingSegments
from anyorder.families.flexlatent import decode as flexlatent
from anyorder.families.flexlatent.config import FlexLatentOptions
from anyorder.families.flexlatent.correct import SegmentAsker, correct_segments
from anyorder.families.flexmdm.correct import END, TextItem, VisitedText
from anyorder.families.replay_segments import flex_latent_reader
from anyorder.model import Model
from anyorder.nets.oracles import Segment, SegmentInsertionOracle
from anyorder.report.traces import LiveSteps
from anyorder.trace import Trace
from anyorder.trace.table import read_traces, write_traces
from anyorder.vocab import Vocab

VOCAB = Vocab.words(["a", "b", "c"])
A, B, C = (0,), (0, 1), (2, 1, 0)
Words = tuple[Segment, ...]

APART = {(A, B, C, A): 0.5, (C, C, A, B): 0.3, (B, B, B, C): 0.2}
"""Texts that differ in more than one segment."""
FREE = {tuple((A, B, C)[letter] for letter in word): p for word, p in generic_data(3, 3).items()}


def finished(words: Words, steps: int = 9) -> Decoded:
    """A row as decoding leaves it."""
    tokens = [(number, token) for number, word in enumerate(words) for token in word]
    return Decoded(
        token_ids=[token for _, token in tokens],
        insert_step=[min(number + 1, steps) for number, _ in tokens],
        reveal_step=[steps] * len(tokens),
        log_prob=[-0.5] * len(tokens),
        steps=steps,
        forwards=steps,
        ties=0,
        segment=[number for number, _ in tokens],
        score=[-1.0] * len(tokens),
        times=[i / 10 for i in range(steps)],
    )


def words_of(row: Decoded) -> Words:
    assert row.segment is not None
    pairs = zip(row.segment, row.token_ids, strict=True)
    groups = groupby(pairs, key=lambda pair: pair[0])
    return tuple(tuple(token for _, token in group) for _, group in groups)


def corrected(law: dict[Words, float], texts: Sequence[Words]) -> list[Decoded]:
    net = SegmentInsertionOracle(law, VOCAB.eos_id, VOCAB.size)
    canvas = GrowingSegments((VOCAB.eos_id,), (), (True,), room=9)
    rows = [finished(words) for words in texts]
    return correct_segments(net, VOCAB, [canvas] * len(rows), rows, 30)


@pytest.mark.parametrize("law", [APART, FREE], ids=["apart", "free"])
def test_a_possible_text_never_becomes_impossible(law: dict[Words, float]) -> None:
    rows = corrected(law, list(law))
    assert {words_of(row) for row in rows} <= law.keys()


def test_a_text_below_every_threshold_stays() -> None:
    for words, row in zip(APART, corrected(APART, list(APART)), strict=True):
        assert (row.token_ids, row.steps) == (finished(words).token_ids, 9)
        assert not row.ghosts and row.times == finished(words).times


def test_a_missing_segment_comes_back() -> None:
    lacking = [w[:i] + w[i + 1 :] for w in APART for i in range(len(w))]
    rows = corrected(APART, lacking)
    assert {words_of(row) for row in rows} <= APART.keys()
    for row in rows:
        assert row.segment == [n for n, word in enumerate(words_of(row)) for _ in word]
        new = [step for step in row.insert_step if step > 9]
        assert new and set(new) == {10} and row.steps == 11


STORIES = [problem(StoriesConfig(0, "heldout", 1.0), index).prompt for index in (1, 7, 9, 16)]


@pytest.fixture(scope="module")
def model() -> Model:
    return anyorder.load("flexlatent")


@pytest.fixture(scope="module")
def stories(model: Model) -> list[Trace]:
    return model.sample(STORIES, correct=9, clock="events", temperature=1.0)


def test_answers_against_a_plain_computation(model: Model, stories: list[Trace]) -> None:
    """log p of what stood there, token by token, from the condition of a masked segment."""
    net, vocab = model.net, model.vocab
    trace, canvas = stories[0], model.canvas(STORIES[0])
    assert trace.segment is not None and trace.token_ids is not None
    owner, tokens = trace.segment.tolist(), trace.token_ids.tolist()
    words = tuple(
        tuple(token for number, token in zip(owner, tokens, strict=True) if number == each)
        for each in range(max(owner) + 1)
    )
    with torch.inference_mode():
        prompt = net.read(torch.tensor([canvas.prompt]), torch.tensor([len(canvas.prompt)]))
        asker = SegmentAsker(net, vocab, prompt, [()])
        text = VisitedText(0, tuple(TextItem(word) for word in words), 9)
        answers = asker.again([(text, place) for place in range(len(words))])
        latents = torch.cat([net.encode(torch.tensor([w]), torch.tensor([len(w)])) for w in words])
        for place, (word, answer) in enumerate(zip(words, answers, strict=True)):
            shown = latents.clone()
            shown[place] = net.mask_vector
            time = torch.tensor([1 - END], dtype=torch.float64)
            condition = net.look(prompt, shown[None], time=time).states[:, place]
            never = [vocab.mask_id, vocab.pad_id]
            total = _log_prob(net, condition, (*word, vocab.eos_id), never, vocab.eos_id)
            assert answer.own == pytest.approx(total, abs=1e-3)
            best = _log_prob(net, condition, (*answer.ids, vocab.eos_id), never, vocab.eos_id)
            assert answer.best == pytest.approx(best, abs=1e-3)
            assert answer.best >= answer.own - 1e-3 or answer.ids != word


def _log_prob(
    net: Any, condition: torch.Tensor, tokens: Sequence[int], never: list[int], eos: int
) -> float:
    writer, total = net.write(condition), 0.0
    state = writer.first()
    for place, token in enumerate(tokens):
        logits = net.head(state)[0].double()
        logits[never] = -math.inf
        if place == 0:
            logits[eos] = -math.inf
        total += float(logits.log_softmax(-1)[token])
        state = writer.read(torch.tensor([[token]]))[:, 0]
    return total


def test_corrections_follow_the_decoding(model: Model, stories: list[Trace]) -> None:
    plain = model.sample(STORIES, clock="events", temperature=1.0)
    deleted = 0
    for before, trace in zip(plain, stories, strict=True):
        steps = before.steps or 0
        assert trace.replay(steps).text() == before.text
        assert trace.times is not None and len(trace.times) == trace.steps
        assert trace.segment is not None and not trace.events
        assert sorted(set(trace.segment.tolist())) == list(range(max(trace.segment) + 1))
        deleted += len({ghost.delete_step for ghost in trace.ghosts or ()})
    assert deleted > 1


def test_each_step_is_seen_as_the_trace_replays_it(model: Model) -> None:
    seen = list[Decoded]()
    (trace,) = model.sample(
        STORIES[1], correct=9, clock="events", temperature=1.0, watch=seen.extend
    )
    assert [each.step for each in seen] == list(range(1, (trace.steps or 0) + 1))
    live = LiveSteps(model.vocab)
    for each in seen:
        live.messages(each)  # which refuses canvases that do not follow from each other
        # An open segment is one item for a watcher, and all its tokens in a trace.
        found = [token for token in each.token_ids if token != model.vocab.mask_id]
        now = trace.replay(each.step)
        assert now.token_ids is not None
        assert found == now.token_ids[now.revealed].tolist()


def test_traces_through_files(stories: list[Trace], tmp_path: Path) -> None:
    assert any(trace.ghosts for trace in stories)
    write_traces(tmp_path / "traces.parquet", stories)
    assert list(read_traces(tmp_path / "traces.parquet", remedy="")) == stories
    for trace in stories:
        again = Trace.from_jsonl(trace.to_jsonl())
        for step in range((trace.steps or 0) + 1):
            assert again.replay(step).text() == trace.replay(step).text()


def test_the_network_is_asked_again_where_it_decided(model: Model, stories: list[Trace]) -> None:
    """Canvases with deleted segments are rebuilt: committed tokens have the traces' log p."""
    options = FlexLatentOptions(clock="events", temperature=1.0, correct=9)
    reader = flex_latent_reader(model.net, model.vocab, options)
    written = 0
    for moment, found in placed_by(reader, [whole(trace) for trace in stories]):  # type: ignore[arg-type]
        assert np.log(found.committed) == pytest.approx(moment.log_prob, abs=1e-4)
        if moment.time == pytest.approx(1 - END, abs=1e-9):
            written += len(moment.committed)
    assert written > 5


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match="leave one of the two out"):
        flexlatent.resolve(FlexLatentOptions(correct=3, candidates=True))
    with pytest.raises(ValueError, match="correct=-2: give the most corrections"):
        flexlatent.resolve(FlexLatentOptions(correct=-2))
