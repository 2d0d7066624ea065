"""The lm-eval bridge: its answers by themselves and, with the extra, whole evaluations."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import anyorder
from anyorder.apps import lm_eval as lm_eval_bridge
from anyorder.apps.lm_eval import Bridge, Generation, bridge_class, register
from anyorder.bench.tasks import find_task
from anyorder.model import Card, Model, build
from anyorder.nets.shapes import TransformerConfig
from anyorder.vocab import Vocab

needs_lm_eval = pytest.mark.skipif(
    find_spec("lm_eval") is None, reason="lm-eval is not installed: pip install 'anyorder[lm-eval]'"
)
WORDS = Vocab.words(["a", "b", "c", " "])


@dataclass
class Request:
    """What the bridge sees of an lm-eval Instance."""

    args: tuple[str, dict[str, Any]]


def tiny(family: str = "mdm") -> Model:
    config = TransformerConfig(
        vocab_size=WORDS.size,
        width=16,
        layers=1,
        heads=2,
        kv_heads=2,
        head_width=8,
        mlp_width=32,
        causal=family == "ar",
    )
    return build(Card(family, asdict(config), 6, 16, {}), WORDS, name="tiny")


def ask(bridge: Bridge, *requests: tuple[str, dict[str, Any]]) -> list[str]:
    heard: list[tuple[str, str]] = []
    asked = [Request(each) for each in requests]
    texts = bridge.answer(asked, lambda request, text: heard.append((request.args[0], text)))
    assert sorted(heard) == sorted(
        (each.args[0], text) for each, text in zip(asked, texts, strict=True)
    )
    return texts


HOT = {"do_sample": True, "temperature": 2.0}


@pytest.mark.parametrize("family", ["mdm", "ar"])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_answers_are_the_models_own_samples(family: str, batch: int) -> None:
    """In the order of the requests, whatever the batch; a repeated request is the next sample."""
    model = tiny(family)
    bridge = Bridge(model, batch_size=batch, seed=5)
    texts = ask(bridge, ("a", HOT), ("b c", {}), ("a", HOT), ("c", HOT), ("a", HOT))
    hot = [trace.text for trace in model.sample("a", temperature=2.0, seed=5, samples=3)]
    assert [texts[0], texts[2], texts[4]] == hot and len(set(hot)) > 1
    assert texts[1] == model.sample("b c", seed=5)[0].text
    assert texts[3] == model.sample("c", temperature=2.0, seed=5)[0].text


def test_decoding_options_and_sizes_reach_the_model() -> None:
    model = tiny()
    bridge = Bridge(model, policy="random", steps=2, eos="forbid", max_length=8)
    (text,) = ask(bridge, ("a", {"max_gen_toks": 4}))
    (expected,) = model.sample(
        "a", policy="random", steps=2, eos="forbid", max_new_tokens=4, max_length=8
    )
    assert text == expected.text and len(expected.token_ids) == 4
    with pytest.raises(ValueError, match="do not fit on a canvas of 8"):
        ask(bridge, ("a", {}), ("a b a b a b a", {"max_gen_toks": 4}))


def test_a_bad_request_is_refused_before_anything_is_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bridge = Bridge(tiny())
    monkeypatch.setattr(bridge.model, "sample", lambda *_, **__: pytest.fail("sampled"))
    for bad in (("a " * 9, {}), ("a", {"seed": 3}), ("a <fill> b", {}), ("<Answer>", {})):
        with pytest.raises(ValueError, match=r"do not fit|choose from|reads as a mark"):
            ask(bridge, ("a", {}), bad)


@pytest.mark.parametrize(
    ("given", "drawing"),
    [
        ({}, {}),
        ({"do_sample": False, "temperature": 0.0}, {}),
        ({"do_sample": False, "temperature": 1, "top_p": 0.95}, {}),
        ({"temperature": 0.0, "top_k": 5}, {}),
        ({"temperature": 0.7}, {"temperature": 0.7}),
        ({"do_sample": True}, {"temperature": 1.0}),
        (
            {"do_sample": True, "temperature": 0.2, "top_p": 0.95, "top_k": 4, "num_beams": 1},
            {"temperature": 0.2, "top_p": 0.95, "top_k": 4},
        ),
    ],
)
def test_how_tokens_are_drawn(given: dict[str, Any], drawing: dict[str, float]) -> None:
    assert dict(Generation.of(given).drawing) == drawing


@pytest.mark.parametrize(
    ("until", "text", "kept"),
    [
        (None, "a b", "a b"),
        ([], "a b", "a b"),
        ("b", "a b a", "a "),
        (["x", "a b", "b"], "c a b", "c "),
        (["", "b"], "ab", "a"),
        (["\n\n"], "a\n\nb", "a"),
    ],
)
def test_stops_cut_at_the_first(until: Any, text: str, kept: str) -> None:
    assert Generation.of({"until": until}).cut(text) == kept


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"repetition_penalty": 1.1}, "repetition_penalty: choose from do_sample, "),
        ({"policy": "random"}, "policy and steps are model_args"),
        ({"num_beams": 4}, "no beam search"),
        ({"max_gen_toks": 0}, "max_gen_toks=0: give a whole number"),
        ({"max_gen_toks": "many"}, "whole number"),
        ({"max_tokens": 4, "max_gen_toks": 5}, "contradict each other"),
        ({"until": [1]}, "a text or a list of texts"),
        ({"do_sample": "no"}, "true or false"),
        ({"do_sample": True, "temperature": 0.0}, "needs a temperature above 0"),
    ],
)
def test_keywords_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Generation.of(given)


def test_other_names_of_the_length() -> None:
    for name in ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"):
        assert Generation.of({name: 7}).max_new_tokens == 7
    assert Generation.of({}).max_new_tokens is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": "auto"}, "auto is not supported"),
        ({"batch_size": 0}, "give a number"),
        ({"max_batch_size": 8}, "batch_size alone"),
        ({"temperature": 0.2}, "temperature in model_args: .* --gen_kwargs do_sample=True"),
        ({"max_gen_toks": 5}, "max_gen_toks in model_args"),
        ({"insertion_temperature": 0.6}, "mdm does not use insertion_temperature"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bridge(tiny(), **settings)


@pytest.mark.skipif(find_spec("lm_eval") is not None, reason="lm-eval is installed")
def test_without_the_extra_the_remedy_is_told() -> None:
    with pytest.raises(ValueError, match=r"pip install 'anyorder\[lm-eval\]'"):
        register()
    result = subprocess.run(
        [sys.executable, "-m", "anyorder.apps.lm_eval"], capture_output=True, text=True
    )
    assert result.returncode == 1 and "anyorder[lm-eval]" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "mdm"
    anyorder.train("tiny/mdm", steps=4, warmup=1, out=folder, **{"net.width": 16, "net.layers": 1})
    return folder


def local_task(folder: Path, name: str = "local_stories", **changes: Any) -> dict[str, Any]:
    """A task from a file: no network."""
    data = folder / f"{name}.jsonl"
    problems = find_task("stories", {}).problems(5)
    lines = [json.dumps({"prompt": each.prompt, "answer": "def"}) for each in problems]
    data.write_text("\n".join(lines) + "\n")
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(folder / "cache")},
        "output_type": "generate_until",
        "test_split": "test",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n\n"], "do_sample": False, "max_gen_toks": 24},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean"}],
        **changes,
    }


def evaluate(**settings: Any) -> Any:
    """Without the hundreds of tasks that the harness would look up first."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    return simple_evaluate(task_manager=TaskManager(include_defaults=False), **settings)


@needs_lm_eval
def test_a_whole_evaluation(trained: Path, tmp_path: Path) -> None:
    register()
    register()  # once is enough, twice does no harm
    results = evaluate(
        model="anyorder",
        model_args=f"pretrained={trained},policy=entropy,steps=6",
        tasks=[local_task(tmp_path)],
        batch_size=2,
        bootstrap_iters=0,
    )
    model = anyorder.load(trained)
    samples = results["samples"]["local_stories"]
    assert len(samples) == 5
    for sample in samples:
        context = sample["arguments"][0][0]
        (trace,) = model.sample(context, policy="entropy", steps=6, max_new_tokens=24)
        assert sample["resps"][0][0] == trace.text.split("\n\n")[0]
    right = sum(sample["resps"][0][0] == "def" for sample in samples)
    assert results["results"]["local_stories"]["exact_match,none"] == right / 5
    assert results["config"]["model_digest"] == model.digest
    assert results["config"]["decoding"] == {"policy": "entropy", "steps": 6}


@needs_lm_eval
def test_repeats_are_different_samples(trained: Path, tmp_path: Path) -> None:
    drawn = {"until": [], "do_sample": True, "temperature": 1.5, "max_gen_toks": 12}
    task = local_task(
        tmp_path,
        "local_repeats",
        repeats=3,
        generation_kwargs=drawn,
        filter_list=[{"name": "all", "filter": [{"function": "take_first_k", "k": 3}]}],
    )
    results = evaluate(
        model=bridge_class()(anyorder.load(trained), batch_size=4),
        tasks=[task],
        limit=2,
        bootstrap_iters=0,
        predict_only=True,
    )
    for sample in results["samples"]["local_repeats"]:
        traces = anyorder.load(trained).sample(
            sample["arguments"][0][0], temperature=1.5, max_new_tokens=12, samples=3
        )
        assert sample["resps"][0] == [trace.text for trace in traces]
        assert len(set(sample["resps"][0])) == 3


@needs_lm_eval
def test_without_a_chat_template_the_remedy_is_told(trained: Path, tmp_path: Path) -> None:
    bridge = bridge_class()(str(trained))
    with pytest.raises(ValueError, match="no chat template: leave --apply_chat_template"):
        evaluate(model=bridge, tasks=[local_task(tmp_path)], apply_chat_template=True)


@needs_lm_eval
def test_answers_are_cached(trained: Path, tmp_path: Path) -> None:
    """The harness keeps greedy answers; the second evaluation asks the model nothing."""
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import CachingLM

    bridge = bridge_class()(str(trained))
    cached = CachingLM(bridge, str(tmp_path / "answers.db"))
    prompt = find_task("stories", {}).problems(1)[0].prompt
    request = Instance("generate_until", {}, (prompt, {"until": ["x"], "max_gen_toks": 4}), 0)
    first = cached.generate_until([request])
    bridge.model = None
    assert cached.generate_until([request]) == first
    cached.dbdict.close()


@needs_lm_eval
def test_the_command_line_is_theirs_with_our_model_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval import __main__ as theirs
    from lm_eval.api.registry import get_model

    called = []
    monkeypatch.setattr(theirs, "cli_evaluate", lambda: called.append(get_model("anyorder")))
    lm_eval_bridge.main()
    assert called == [bridge_class()]


@pytest.mark.long
@needs_lm_eval
def test_their_command_line(trained: Path, tmp_path: Path) -> None:
    task = local_task(tmp_path)
    (tmp_path / "task.yaml").write_text(json.dumps(task))  # JSON is YAML
    flags = {
        "model": "anyorder",
        "model_args": f"pretrained={trained},policy=confidence,steps=6",
        "include_path": tmp_path,
        "tasks": "local_stories",
        "batch_size": 5,
        "device": "cpu",  # theirs is cuda:0
        "output_path": tmp_path / "out",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    result = subprocess.run(
        [sys.executable, "-m", "anyorder.apps.lm_eval", "run", *words],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "local_stories" in result.stdout
    (found,) = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(found.read_text())["config"]["family"] == "mdm"
