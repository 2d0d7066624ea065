"""`Model.sample(watch=...)`: every family shows its rows, numbered like the traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from anyorder.apps.train import network_config
from anyorder.data.corpora.stories import StoriesConfig, problem, stories_vocab
from anyorder.decode.canvas import Decoded
from anyorder.families.family import FAMILIES
from anyorder.model import Card, Model, build
from anyorder.recipes import find_recipe, override

SMALL = {"net.width": 16, "net.layers": 1, "net.heads": 2, "net.mlp_width": 32}
STORIES = StoriesConfig(split="heldout")
PROMPTS = [problem(STORIES, index).prompt for index in range(3)]


def untrained(family: str) -> Model:
    recipe, vocab = override(find_recipe(f"tiny/{family}"), SMALL), stories_vocab()
    net = asdict(network_config(recipe, vocab.size))
    card = Card(family, net, max_new_tokens=24, max_length=112, recipe=recipe.as_json())
    return build(card, vocab, name=family)


@pytest.fixture(params=list(FAMILIES))
def model(request: pytest.FixtureRequest) -> Model:
    return untrained(request.param)


def test_the_revealed_tokens_of_every_row_are_those_of_its_trace(model: Model) -> None:
    seen: dict[int, list[Decoded]] = defaultdict(list)

    def watch(rows: Sequence[Decoded]) -> None:
        for row in rows:
            seen[row.row].append(row)

    options = {"samples": 2, "batch": 4, "temperature": 1.0}
    options |= {"steps": 12} if "steps" in model.family.option_names() else {}
    traces = model.sample(PROMPTS, watch=watch, **options)
    assert sorted(seen) == list(range(6))
    for number, trace in enumerate(traces):
        assert [row.step for row in seen[number]] == list(range(1, (trace.steps or 0) + 1))
        for row in seen[number]:
            snapshot = trace.replay(row.step)
            shown = [token for token in row.token_ids if token != model.vocab.mask_id]
            expected = snapshot.ids(model.vocab.mask_id)[snapshot.revealed].tolist()
            assert shown == [token for token in expected if token != model.vocab.mask_id]
        assert seen[number][-1].token_ids == trace.token_ids.tolist()
    unwatched = model.sample(PROMPTS, **options)
    assert [t.token_ids.tolist() for t in traces] == [t.token_ids.tolist() for t in unwatched]


def test_what_the_watcher_raises_reaches_the_caller(model: Model) -> None:
    calls = []

    def watch(rows: Sequence[Decoded]) -> None:
        calls.append(len(rows))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        model.sample(PROMPTS, watch=watch)
    assert calls == [3]


def test_the_time_of_watching_is_not_the_sample_s(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def watch(rows: Sequence[Decoded]) -> None:
        clock[0] += 100.0

    model = untrained("mdm")
    (trace,) = model.sample(PROMPTS[0], watch=watch)
    assert clock[0] >= 100 and trace.seconds == pytest.approx(0)


def test_prepare_checks_and_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = untrained("mdm")
    monkeypatch.setattr(model, "net", None)
    requests, chosen = model.prepare(PROMPTS, samples=2, policy="margin")
    assert [(request.task_id, request.sample) for request in requests][:3] == [
        ("prompt/0", 0),
        ("prompt/0", 1),
        ("prompt/1", 0),
    ]
    assert chosen.policy == "margin" and chosen.ties == "random"
    with pytest.raises(ValueError, match="max_new_tokens must be a whole number"):
        model.prepare(PROMPTS, max_new_tokens=0)
    with pytest.raises(ValueError, match="25 steps for 24 slots"):
        model.prepare(PROMPTS, steps=25)
    assert model.prepare([]) == ([], None)
