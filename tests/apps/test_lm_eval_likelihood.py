"""Log-likelihoods for lm-eval: how texts become rows, what is greedy, and whole evaluations."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

import anyorder
from anyorder.apps.lm_eval import Bridge, bridge_class
from anyorder.apps.lm_eval.likelihood import Noisiness, TextReader, TextScorer
from anyorder.bench.tasks import find_task
from anyorder.families.estimate import Estimate
from anyorder.model import Card, Model, build
from anyorder.nets.shapes import TransformerConfig
from anyorder.vocab import Vocab

needs_lm_eval = pytest.mark.skipif(
    find_spec("lm_eval") is None, reason="lm-eval is not installed: pip install 'anyorder[lm-eval]'"
)
WORDS = Vocab.words(["a", "b", "c", " ", " a", " b", "\n"])


@dataclass
class Request:
    """What the bridge sees of an lm-eval Instance."""

    args: tuple[str, ...]


def tiny(family: str = "mdm", longest: int = 16) -> Model:
    shape = TransformerConfig(WORDS.size, 16, 1, 2, 2, 8, 32, causal=family == "ar")
    return build(Card(family, asdict(shape), 6, longest, {}), WORDS, name="tiny", seed=5)


def score(model: Model, *pairs: tuple[str, str], **settings: Any) -> list[tuple[float, bool]]:
    heard: list[Any] = []
    bridge = Bridge(model, **settings)
    asked = [Request(pair) for pair in pairs]
    found = bridge.score(asked, lambda request, each: heard.append((request.args, each)))
    assert heard == list(zip(pairs, found, strict=True))
    return found


def by_hand(model: Model, prompt: list[int], answer: list[int]) -> tuple[float, bool]:
    """Of a left-to-right model, one token after another."""
    log_prob, greedy, ids = 0.0, True, list(prompt)
    for token in answer:
        states = model.net.hidden(torch.tensor([ids]))[:, -1]
        law = model.net.head(states).log_softmax(dim=-1)[0].detach()
        log_prob += float(law[token])
        greedy = greedy and int(law.argmax()) == token
        ids.append(token)
    return log_prob, greedy


def test_ar_is_exact_and_has_no_end() -> None:
    model = tiny("ar")
    pairs = [("a b", " a"), ("a", " b a c"), ("c", "b"), ("a b", " b")]
    found = score(model, *pairs, batch_size=3)
    for (context, continuation), (log_prob, greedy) in zip(pairs, found, strict=True):
        prompt = WORDS.encode(context)
        expected = by_hand(model, prompt, WORDS.encode(context + continuation)[len(prompt) :])
        assert (log_prob, greedy) == (pytest.approx(expected[0], abs=1e-4), expected[1])


@pytest.mark.parametrize("family", ["ar", "mdm"])
def test_only_the_likeliest_token_is_greedy(family: str) -> None:
    model = tiny(family)
    words = ["a", "b", "c", " ", " a", " b", "\n"]
    with torch.no_grad():  # so that no special token is the likeliest of ar
        model.net.embed.weight[sorted(WORDS.special_ids)] *= 0.01
    options = {} if family == "ar" else {"eos": "forbid"}
    found = score(model, *[("c", word) for word in words], **options)
    best = max(range(len(words)), key=lambda number: found[number][0])
    assert [greedy for _, greedy in found] == [number == best for number in range(len(words))]


def test_blanks_move_and_both_are_one_text() -> None:
    """As in the harness: " a" is one token, whichever side the blank is on."""
    reader = TextReader(tiny())
    one, other = reader.pair("c ", "a"), reader.pair("c", " a")
    assert one == other and one.answer == WORDS.encode(" a") and one.prompt == WORDS.encode("c")
    assert reader.pair("c\n", "b").answer == WORDS.encode("\nb")


def test_an_empty_context_is_what_begins_a_text() -> None:
    (found,) = score(tiny("ar"), ("", "a b"))
    assert WORDS.bos_id is not None
    assert found[0] == pytest.approx(by_hand(tiny("ar"), [WORDS.bos_id], WORDS.encode("a b"))[0])
    for family in ("ar", "mdm"):
        model = tiny(family)
        assert TextReader(model).pair("", "a").prompt == [WORDS.bos_id]
        model.vocab = Vocab.words(["a"])
        model.vocab.bos_id = None
        first = [model.vocab.eos_id] if family == "ar" else []
        assert TextReader(model).pair("", "a").prompt == first


@cache
def shipped(name: str) -> Model:
    return anyorder.load(name)


PROBLEMS = find_task("stories", {}).problems(2)


@pytest.mark.parametrize("name", ["ar", "mdm", "flexmdm", "latentmdm", "flexlatent", "duo"])
def test_trained_models_find_the_right_program_likelier(name: str) -> None:
    """Of every family that has a likelihood, and whatever the batch and order are."""
    first, second = PROBLEMS
    right, wrong = first.solution or "", second.solution or ""
    model = shipped(name)
    draws: dict[str, Any] = {} if name == "ar" else {"draws": 6}
    pairs = ((first.prompt, right), (first.prompt, wrong))
    found = score(model, *pairs, batch_size=16, **draws)
    assert found[0][0] > found[1][0] + 10 and not found[1][1]
    again = score(model, *pairs[::-1], batch_size=3, **draws)[::-1]
    assert [each for each, _ in again] == pytest.approx([each for each, _ in found], abs=0.01)
    assert [greedy for _, greedy in again] == [greedy for _, greedy in found]


@pytest.mark.parametrize("name", ["flexmdm", "latentmdm", "flexlatent"])
def test_what_a_model_writes_is_greedy(name: str) -> None:
    """Families that find their own length: the text that generation gives."""
    model, prompt = shipped(name), PROBLEMS[0].prompt
    (trace,) = model.sample(prompt)
    scorer = TextScorer.of(model, {}, draws=2, batch=8)
    (own,) = scorer.pairs([(prompt, trace.text)])
    assert own.greedy
    (other,) = scorer.pairs([(prompt, trace.text.replace("return", "if"))])
    assert not other.greedy


@pytest.mark.parametrize("name", ["mdm", "duo"])
def test_a_fixed_canvas_has_the_continuations_length(name: str) -> None:
    model = shipped(name)
    prompt = PROBLEMS[0].prompt.rstrip()
    (trace,) = model.sample(prompt, max_new_tokens=5, eos="forbid")
    for steps in (None, 64):  # more steps than slots: one for each slot
        options = {"eos": "forbid"} | ({} if steps is None or name == "duo" else {"steps": steps})
        scorer = TextScorer.of(model, options, draws=2, batch=8)
        example = scorer.reader.example(
            model.vocab.encode(prompt), [[int(token)] for token in trace.token_ids]
        )
        assert scorer._greedy([prompt], [example]) == [True]
        example.answer[-1] = example.answer[-1] - 1 or 1
        assert scorer._greedy([prompt], [example]) == [False]


def test_with_its_end_a_continuation_is_a_whole_answer() -> None:
    """ar scores EOS too; a canvas is that of training, filled with EOS: what a race measures."""
    model, (problem, _) = shipped("ar"), PROBLEMS
    assert problem.solution is not None
    pair = (problem.prompt, problem.solution)
    (opened,), (ended,) = score(model, pair), score(model, pair, ending="eos")
    ids = [*model.vocab.encode(problem.prompt.rstrip())]
    answer = model.vocab.encode(problem.prompt + problem.solution)[len(ids) :]
    end = [model.vocab.eos_id]
    assert ended[0] - opened[0] == pytest.approx(by_hand(model, ids + answer, end)[0], abs=1e-3)
    reader = TextReader(shipped("mdm"), ending="eos")
    assert reader.rows.canvas == 64 and reader.rows.align == "left"
    whole = (problem.prompt, problem.solution.rstrip())
    half = (problem.prompt, problem.solution.partition("    if")[0])
    found, cut = score(shipped("mdm"), whole, half, ending="eos", draws=8)
    assert found[0] > cut[0] + 10
    found, cut = score(shipped("mdm"), whole, half, draws=8)
    assert found[0] < cut[0] + 10  # a shorter text that may go on is not less likely
    with pytest.raises(ValueError, match="and its end do not fit on a canvas of 64"):
        score(shipped("mdm"), (problem.prompt, problem.solution * 2), ending="eos")
    with pytest.raises(ValueError, match="flexmdm does not use ending, its answers are always"):
        Bridge(shipped("flexmdm"), ending="eos")
    with pytest.raises(ValueError, match="ending='stop': give eos or none"):
        Bridge(tiny(), ending="stop")  # type: ignore[arg-type]


def test_families_without_a_likelihood_say_why() -> None:
    bridge = Bridge(shipped("sflm"))  # it can still write
    for ask in (bridge.score, bridge.roll):
        with pytest.raises(ValueError, match="sflm gives no log-likelihood: its training loss"):
            ask([Request(("a", "b"))], lambda request, each: None)
    with pytest.raises(ValueError, match="sflm gives no log-likelihood"):
        Bridge(shipped("sflm"), draws=8)


@pytest.mark.parametrize(
    ("family", "draws", "message"),
    [
        ("ar", 8, "ar is exact and does not use draws: leave it out"),
        ("mdm", 1, "draws=1: give a whole number of at least 2"),
        ("mdm", "many", "draws='many'"),
    ],
)
def test_draws_that_are_refused(family: str, draws: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bridge(tiny(family), draws=draws)


def test_what_does_not_fit_is_refused_before_anything_is_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bridge = Bridge(tiny())
    monkeypatch.setattr(bridge.model.net, "hidden", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(ValueError, match=r"context of 13 tokens and a continuation of 4 does not"):
        bridge.score([Request(("a", "b")), Request(("a" * 13, "abab"))], lambda *_: None)
    lines = "    return total\n" * 40
    with pytest.raises(ValueError, match=r"a text of 40 segments does not fit: the model has"):
        TextReader(shipped("latentmdm")).pair(PROBLEMS[0].prompt, lines)


def tokens_of(windows: Any) -> list[int]:
    return list(chain.from_iterable(window.answer for window in windows))


def test_windows_score_every_token_once_given_what_fits_before_it() -> None:
    text = "abc" * 9
    for family, longest, size in (("ar", 8, 7), ("mdm", 8, 6), ("mdm", 5, 4)):
        windows = list(TextReader(tiny(family, longest)).windows(text))
        assert tokens_of(windows) == WORDS.encode(text)
        assert all(len(each.answer) == size for each in windows[:-1])
        assert len({each.index for each in windows}) == len(windows)
        for number, window in enumerate(windows[1:], start=1):
            before = tokens_of(windows[:number])
            assert window.prompt == before[-len(window.prompt) :]
            assert len(window.prompt) == min(longest - len(window.answer), len(before))
    (whole,) = TextReader(tiny("ar", 64)).windows(text)
    assert whole.prompt == [WORDS.bos_id]
    assert list(TextReader(tiny("ar")).windows("")) == []


def test_windows_of_segments_are_whole_lines() -> None:
    model = shipped("latentmdm")
    program = (PROBLEMS[0].solution or "") + "\n"
    windows = list(TextReader(model).windows(program * 4))
    assert tokens_of(windows) == model.vocab.encode(program) * 4
    lines = 4 * program.count("\n")
    slots = model.config.slots  # type: ignore[union-attr]
    assert len(windows) == math.ceil(lines / slots) > 1
    assert all(len(each.prompt) <= (model.card.max_length or 0) for each in windows)
    assert windows[1].prompt == tokens_of(windows[:1])[-len(windows[1].prompt) :]


@needs_lm_eval
def test_windows_of_ar_are_those_of_the_harness() -> None:
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

    ids = WORDS.encode("abc" * 9 + "ab")
    # Theirs leaves the last token out of what is read: one token less for the same row.
    theirs = map(make_disjoint_window, get_rolling_token_windows(ids, WORDS.bos_id, 7, 1))
    ours = TextReader(tiny("ar", 8)).windows("abc" * 9 + "ab")
    assert [(each.prompt, each.answer) for each in ours] == list(theirs)


def test_rolling_sums_the_windows() -> None:
    model = tiny("ar", 8)
    text = "abcab" * 4
    heard: list[Any] = []
    found = Bridge(model, batch_size=4).roll(
        [Request((text,)), Request(("",))], lambda request, each: heard.append(each)
    )
    windows = TextReader(model).windows(text)
    expected = sum(by_hand(model, window.prompt, window.answer)[0] for window in windows)
    assert found == [pytest.approx(expected, abs=1e-3), 0.0] and heard == found


def test_the_log_tells_the_standard_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lm_eval.anyorder"):
        bridge = Bridge(tiny(), draws=16, batch_size=16)
        pairs = [("c", "abcab"), ("c", "b"), ("c", "babab"), ("a", "ab")]
        bridge.score([Request(pair) for pair in pairs], lambda *_: None)
    (line, *more) = [record.message for record in caplog.records]
    errors = [each.estimate.error for each in bridge.scorer.pairs(pairs)]
    assert [error > 0 for error in errors] == [True, False, True, False]
    assert line.startswith(
        "4 log-likelihoods: any-order bound over tokens, 2 of them estimated with 16 draws; "
    )
    assert line.endswith(f"largest {max(errors):.3g} nats")
    record = bridge.about()["likelihood"]["loglikelihood"]
    assert record["standard_error"]["largest"] == max(errors)
    assert record["contexts"] == 1 and record["near"] == len(more)
    Bridge(tiny("ar")).score([Request(("c", "ab"))], lambda *_: None)
    exact = Noisiness("exact", 128, (0.0,))
    assert list(exact.lines()) == ["1 log-likelihoods: exact, without noise"]


def test_contexts_whose_best_two_are_level_are_counted() -> None:
    scorer = TextScorer.of(tiny(), {}, draws=16).scorer
    far = [Estimate(1.0, 0.5), Estimate(9.0, 0.5), Estimate(3.0, 0.5)]
    near = [Estimate(4.0, 0.5), Estimate(9.0, 0.5), Estimate(3.0, 0.5)]
    found = Noisiness.of(scorer, ["x"] * 3 + ["y"] * 3 + ["z"], [*far, *near, Estimate(1.0, 9.0)])
    assert (found.near, found.contexts) == (1, 2)
    assert "in 1 of 2 contexts" in list(found.lines())[1]
    same = [Estimate(1.0, 0.0), Estimate(1.0, 0.0)]  # without noise nothing would change
    assert Noisiness.of(scorer, ["x"] * 2, same).near == 0


def choices(folder: Path) -> dict[str, Any]:
    """A multiple-choice task from a file: which program belongs to a story."""
    problems = find_task("stories", {}).problems(4)
    rows = [
        {
            "story": problem.prompt,
            "choices": [problem.solution, other.solution][:: 1 - 2 * (number % 2)],
            "right": number % 2,
        }
        for number, (problem, other) in enumerate(
            zip(problems, problems[1:] + problems[:1], strict=True)
        )
    ]
    data = folder / "choices.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "task": "local_choices",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(folder / "cache")},
        "output_type": "multiple_choice",
        "test_split": "test",
        "doc_to_text": "{{story}}",
        "doc_to_target": "right",
        "doc_to_choice": "choices",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean"}],
    }


def rolling(folder: Path) -> dict[str, Any]:
    task = choices(folder)
    for name in ("doc_to_choice", "target_delimiter"):
        del task[name]
    perplexity = {"metric": "word_perplexity", "aggregation": "weighted_perplexity"}
    return task | {
        "task": "local_rolling",
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{choices[right]}}",
        "metric_list": [{**perplexity, "higher_is_better": False}],
    }


@needs_lm_eval
def test_a_whole_evaluation(tmp_path: Path) -> None:
    """Multiple choice and perplexity, offline; the second evaluation comes from the cache."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    bridge = bridge_class()(shipped("mdm"), batch_size=32, draws=8)
    results = simple_evaluate(
        model=bridge,
        tasks=[choices(tmp_path), rolling(tmp_path)],
        bootstrap_iters=0,
        task_manager=TaskManager(include_defaults=False),
        use_cache=str(tmp_path / "answers"),
    )
    assert results["results"]["local_choices"]["acc,none"] == 1.0
    rows = results["samples"]["local_choices"]
    story, program = rows[0]["arguments"][0]
    (alone,) = score(shipped("mdm"), (story, program), draws=8)
    assert rows[0]["filtered_resps"][0][0] == pytest.approx(alone[0], abs=0.01)
    told = results["config"]["likelihood"]
    assert told["loglikelihood"]["draws"] == 8 and told["loglikelihood"]["contexts"] == 4
    texts = [row["arguments"][0][0] for row in results["samples"]["local_rolling"]]
    nats = -sum(bridge.roll([Request((text,)) for text in texts], lambda *_: None))
    words = sum(len(text.split()) for text in texts)
    found = results["results"]["local_rolling"]["word_perplexity,none"]
    assert found == pytest.approx(math.exp(nats / words), rel=1e-3)
