"""Models: saved and loaded, sampled from Python, wrapped around a network of another library."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import anyorder
from anyorder.apps.train import network_config
from anyorder.data.corpora.stories import StoriesConfig, problem, stories_vocab
from anyorder.decode.canvas import Decoded
from anyorder.families.family import FAMILIES
from anyorder.model import Card, Model, build
from anyorder.nets.shapes import TransformerConfig
from anyorder.recipes import find_recipe, override
from anyorder.vocab import Vocab

WORDS = Vocab.words(["a", "b", "c", " "])


def tiny(family: str, vocab: Vocab = WORDS) -> Model:
    config = TransformerConfig(
        vocab_size=vocab.size,
        width=16,
        layers=1,
        heads=2,
        kv_heads=2,
        head_width=8,
        mlp_width=32,
        causal=family == "ar",
    )
    card = Card(family, asdict(config), max_new_tokens=6, max_length=16, recipe={})
    return build(card, vocab, name="tiny")


@pytest.mark.parametrize("family", ["ar", "mdm"])
def test_saved_and_loaded_models_write_the_same(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    model.save(tmp_path / "m")
    again = anyorder.load(tmp_path / "m")
    prompts = ["a b", "c"]
    before = model.sample(prompts, temperature=0.9, seed=3, samples=2)
    after = again.sample(prompts, temperature=0.9, seed=3, samples=2)
    assert [t.token_ids.tolist() for t in before] == [t.token_ids.tolist() for t in after]
    assert [t.task_id for t in after] == ["prompt/0", "prompt/0", "prompt/1", "prompt/1"]
    assert before[0] != before[1]


def test_samples_do_not_depend_on_the_batch() -> None:
    model = tiny("mdm")
    prompts = ["a", "b c", "c c c", "a b"]
    wide = model.sample(prompts, temperature=0.9, batch=4)
    narrow = model.sample(prompts, temperature=0.9, batch=1)
    for left, right in zip(wide, narrow, strict=True):
        assert left.token_ids.tolist() == right.token_ids.tolist()
        assert left.reveal_step.tolist() == right.reveal_step.tolist()


def test_a_trace_replays_to_its_canvas() -> None:
    model = tiny("mdm")
    (trace,) = model.sample("a b", policy="random", eos="forbid")
    assert trace.replay(0).ids(WORDS.mask_id).tolist() == [WORDS.mask_id] * 6
    assert trace.replay(trace.steps).ids(WORDS.mask_id).tolist() == trace.token_ids.tolist()
    half = trace.replay(3).ids(WORDS.mask_id)
    assert (half == WORDS.mask_id).sum() == 3


def test_fill_marks_freeze_what_is_around_them() -> None:
    model = tiny("mdm")
    (trace,) = model.sample("a <fill:2>b<fill:3> c", eos="forbid")
    pieces = trace.pieces
    assert trace.prompt_ids.tolist() == WORDS.encode("a ")
    assert pieces[2] == "b" and "".join(pieces[6:]) == " c"
    assert trace.reveal_step.tolist()[2] == 0 and (trace.reveal_step[[0, 1, 3, 4, 5]] > 0).all()


def test_gaps_end_where_they_should() -> None:
    model = tiny("mdm")
    traces = model.sample("a <fill:4>b", temperature=2.0, samples=20)
    assert all(trace.text.endswith("b") and trace.prompt == "a " for trace in traces)
    with pytest.raises(ValueError, match="apart"):
        model.sample(["a", "a<fill:2>b"])
    assert len(model.sample(["a", "a<fill:2>b"], eos="plain")) == 2


def test_an_empty_prompt_starts_from_bos() -> None:
    (trace,) = tiny("ar").sample("")
    assert trace.prompt_ids.tolist() == [WORDS.bos_id]


@pytest.mark.parametrize(
    ("family", "options", "says"),
    [
        ("ar", {"policy": "confidence"}, "ar does not use policy"),
        ("ar", {"steps": 4}, "ar does not use steps"),
        ("mdm", {"k": 2}, "mdm does not use k"),
        ("mdm", {"max_new_tokens": 30}, "do not fit"),
        ("mdm", {"policy": "l2r"}, "left_to_right"),
        ("mdm", {"samples": 0}, "samples must be"),
        ("mdm", {"steps": 2.5}, "a whole number"),
        ("mdm", {"temperature": "3"}, "a number"),
        ("mdm", {"ties": "rightmost"}, "'random' or 'leftmost'"),
        ("mdm", {"max_new_tokens": "8"}, "max_new_tokens must be"),
        ("mdm", {"steps": 100, "max_new_tokens": 5}, "100 steps for 5 slots"),
        ("mdm", {"batch": 0}, "batch must be"),
        ("ar", {"top_p": 0.5}, "temperature"),
    ],
)
def test_unused_knobs_and_wrong_sizes_are_refused(
    family: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        tiny(family).sample("a", **options)  # type: ignore[arg-type]


def test_gaps_are_not_for_ar() -> None:
    with pytest.raises(ValueError, match="any-order"):
        tiny("ar").sample("a<fill:2>b")


def test_wrap_samples_a_foreign_masked_language_model() -> None:
    transformers = pytest.importorskip("transformers")
    vocab = stories_vocab()
    config = transformers.BertConfig(
        vocab_size=vocab.size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
        pad_token_id=vocab.pad_id,
    )
    torch.manual_seed(0)
    model = anyorder.wrap(transformers.BertForMaskedLM(config), vocab, max_new_tokens=12)
    prompts = ["\n", "\n\n\n"]
    together = model.sample(prompts, policy="entropy", steps=4, temperature=0.8)
    assert [trace.steps for trace in together] == [4, 4]
    for prompt, trace in zip(prompts, together, strict=True):
        (alone,) = model.sample(prompt, policy="entropy", steps=4, temperature=0.8)
        assert trace.token_ids.tolist() == alone.token_ids.tolist()
    assert next(model.to("cpu").module.parameters()).device == model.device
    with pytest.raises(ValueError, match="own library"):
        model.save("nowhere")


def test_wrap_takes_networks_without_a_mask_for_equal_lengths() -> None:
    table = torch.randn(WORDS.size, WORDS.size, generator=torch.Generator().manual_seed(0))
    model = anyorder.wrap(lambda ids: table[ids], WORDS, max_new_tokens=4)
    assert len(model.sample(["a", "b"], policy="random")) == 2
    with pytest.raises(ValueError, match="no attention_mask"):
        model.sample(["a", "b b"])
    with pytest.raises(ValueError, match="as a Vocab"):
        anyorder.wrap(lambda ids: table[ids], None)  # type: ignore[arg-type]


def test_numbers_of_numpy_and_empty_lists_are_welcome() -> None:
    import numpy as np

    model = tiny("mdm")
    (trace,) = model.sample("a", temperature=np.float64(0.5), steps=np.int64(3))
    assert trace.steps == 3
    assert model.sample([]) == []


def test_text_that_only_looks_like_a_mark_is_text() -> None:
    vocab = Vocab.bytes()
    model = tiny("mdm", vocab)
    for text in ("<filler>", "n <fill_size: p", "i <filled\n j > 3", "<fill"):
        assert model.canvas(text, model.sizes(2, 99)).prompt_length == len(text)
    assert len(model.sample(["x<fill>y", "x<fill:3>y"], max_new_tokens=2, max_length=99)) == 2


def test_mistyped_marks_and_prompts_are_refused() -> None:
    for wrong in ("a<FILL>b", "a<fill:x>b", "a< fill 3>b", "a<fill:>b"):
        with pytest.raises(ValueError, match="no fill mark"):
            tiny("mdm").sample(wrong)
    with pytest.raises(ValueError, match="prompts are texts"):
        tiny("mdm").sample([[0, 1]])  # type: ignore[list-item]


def test_weights_of_another_family_are_refused(tmp_path: Path) -> None:
    tiny("mdm").save(tmp_path / "mdm")
    tiny("ar").save(tmp_path / "ar")
    weights = (tmp_path / "ar" / "model.safetensors").read_bytes()
    (tmp_path / "mdm" / "model.safetensors").write_bytes(weights)
    with pytest.raises(ValueError, match="family ar, not of a model of family mdm"):
        anyorder.load(tmp_path / "mdm")


def test_wrap_refuses_causal_families() -> None:
    with pytest.raises(ValueError, match="masked models"):
        anyorder.wrap(torch.nn.Identity(), WORDS, family="ar")


def test_missing_and_damaged_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no model 'tiny/none'.*anyorder train"):
        anyorder.load("tiny/none")
    with pytest.raises(ValueError, match="not a model folder"):
        anyorder.load(tmp_path)
    folder = tmp_path / "m"
    tiny("mdm").save(folder)
    with pytest.raises(ValueError, match="family 'mdm', not 'ar'"):
        anyorder.load(folder, family="ar")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        anyorder.load(folder)
    weights.unlink()
    with pytest.raises(ValueError, match="is missing"):
        anyorder.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is truncated"):
        anyorder.load(folder)


def test_config_with_unknown_fields_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    tiny("mdm").save(folder)
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(record | {"surprise": 1}))
    with pytest.raises(ValueError, match="surprise"):
        anyorder.load(folder)


def test_damaged_configurations_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    tiny("mdm").save(folder)
    record = json.loads((folder / "config.json").read_text())
    shape = record["net"]
    for change in (
        {"net": {key: value for key, value in shape.items() if key != "width"}},
        {"net": shape | {"depth": 3}},
        {"net": shape | {"causal": True}},
        {"net": shape | {"width": "wide"}},
        {"recipe": []},
        {"family": "gpt"},
        {"max_new_tokens": None},
        {"max_length": "x"},
        {"recipe": {"data": None}},
    ):
        (folder / "config.json").write_text(json.dumps(record | change))
        with pytest.raises(ValueError, match=r"config\.json|causal|family"):
            anyorder.load(folder)


def test_the_digest_covers_the_shape(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    tiny("mdm").save(folder)
    before = anyorder.load(folder).digest
    record = json.loads((folder / "config.json").read_text())
    record["net"]["rope_theta"] = 500.0
    (folder / "config.json").write_text(json.dumps(record))
    assert anyorder.load(folder).digest != before


# `Model.sample(watch=...)`: every family shows its rows, numbered like the traces.


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
