"""Published checkpoints: the same numbers as their own networks, and nothing but whole ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_checkpoints as made
import plain_published as plain
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import anyorder
from anyorder.apps.jobs import SampleJob
from anyorder.apps.reproduce import Changes, recorded_job
from anyorder.apps.sample import sample_to_run
from anyorder.families.family import FAMILIES, find_family
from anyorder.loading import (
    _check_computes,
    find_folder,
    find_vocab,
    open_shape,
    open_weights,
)
from anyorder.model import build
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer

IDS = torch.tensor([5, 40, made.MASK, 97, made.MASK, made.MASK, 200, 3])
QWEN = plain.Shape(made.HEADS, made.KV_HEADS, 1e6, 1e-6)
LLAMA = plain.Shape(made.HEADS, made.HEADS, 500000.0, 1e-5)
CLOSE: dict[str, Any] = {"atol": 2e-4, "rtol": 2e-4}


def predictions(net: Any, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return net.head(net.hidden(ids[None]))[0]


@pytest.mark.parametrize("shards", [1, 3])
def test_dream_predicts_one_place_to_the_left(tmp_path: Path, shards: int) -> None:
    tensors = made.dream(tmp_path, shards=shards)
    model = anyorder.load(tmp_path)
    assert (model.family.name, model.card.max_length) == ("mdm", 128)
    expected = plain.dream(tensors, IDS, QWEN, made.LAYERS)
    torch.testing.assert_close(predictions(model.net, IDS), expected, **CLOSE)
    assert not torch.allclose(predictions(model.net.backbone, IDS), expected, atol=0.1)


def test_llada_has_two_maps_of_one_name_and_no_shift(tmp_path: Path) -> None:
    tensors = made.llada(tmp_path)
    model = anyorder.load(tmp_path)
    expected = plain.llada(tensors, IDS, LLAMA, made.LAYERS)
    torch.testing.assert_close(predictions(model.net, IDS), expected, **CLOSE)
    at = "model.transformer.blocks.0"
    one, other = f"{at}.ff_proj.weight", f"{at}.up_proj.weight"
    tensors[one], tensors[other] = tensors[other], tensors[one]
    save_file(tensors, tmp_path / "model.safetensors")
    swapped = predictions(anyorder.load(tmp_path).net, IDS)
    assert not torch.allclose(swapped, expected, atol=0.1)


@pytest.mark.parametrize("time", [0.0, 0.37, 1.0])
def test_the_flexmdm_release_is_told_raw_time(tmp_path: Path, time: float) -> None:
    tensors, extras = made.flexmdm(tmp_path)
    model = anyorder.load(tmp_path)
    config = model.config
    assert config is not None and (config.convention, config.coordinate) == ("release", "raw")
    logits, gaps = plain.flexmdm(tensors, extras, IDS, time, QWEN, made.LAYERS)
    with torch.no_grad():
        look = model.net.look(IDS[None], time=torch.tensor([time]))
    torch.testing.assert_close(model.net.head(look.states)[0], logits, **CLOSE)
    torch.testing.assert_close(look.gaps[0], gaps, **CLOSE)
    assert config.frame(model.vocab) == ((made.BEGIN,), (made.END,))


def test_the_planner_of_dultra(tmp_path: Path) -> None:
    tensors = made.dultra(tmp_path)
    net = anyorder.load(tmp_path).net
    masked = made.MASK == IDS
    eligible = masked & (torch.arange(len(IDS)) < 5)
    states = plain.llada_states(tensors, IDS, LLAMA, made.LAYERS)
    expected = plain.planner(tensors, states, masked, eligible, LLAMA)
    with torch.no_grad():
        hidden = net.hidden(IDS[None])
        found = net.plan(hidden, masked=masked[None], eligible=eligible[None])[0]
    torch.testing.assert_close(hidden[0], states, **CLOSE)
    torch.testing.assert_close(found, expected, **CLOSE)


CAUSAL: dict[str, Callable[[Path], Any]] = {
    "qwen2": made.qwen2,
    "qwen2 tied": lambda folder: made.qwen2(folder, tied=True),
    "qwen3": made.qwen3,
    "qwen3 tied": lambda folder: made.qwen3(folder, tied=True),
    "qwen3 with biases": lambda folder: made.qwen3(folder, attention_bias=True),
    "llama": made.llama,
    "llama with biases": lambda folder: made.llama(folder, attention_bias=True),
    "llama with wide heads": lambda folder: made.llama(folder, head_dim=16),
    "llama with theta": lambda folder: made.llama(folder, rope_parameters={"rope_theta": 5e5}),
}


@pytest.mark.parametrize("write", CAUSAL.values(), ids=CAUSAL)
def test_parity_with_transformers(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    pytest.importorskip("transformers")
    theirs = write(tmp_path)
    with torch.no_grad():
        expected = theirs(IDS[None]).logits[0]
    model = anyorder.load(tmp_path)
    assert model.family.name == "ar"
    torch.testing.assert_close(predictions(model.net, IDS), expected, **CLOSE)


@pytest.mark.parametrize("kind", ["sdar", "fast_dllm"])
def test_block_models_equal_transformers_under_their_mask(tmp_path: Path, kind: str) -> None:
    """SDAR predicts token i at i; Fast-dLLM v2 at i - 1, and blocks begin with the row in both."""
    transformers = pytest.importorskip("transformers")
    tensors = made.FORMATS[kind](tmp_path)
    family = "Qwen3" if kind == "sdar" else "Qwen2"
    record = json.loads((tmp_path / "config.json").read_text())
    names = ("model_type", "architectures", "auto_map", "attn_implementation", "rope_scaling")
    known = {name: value for name, value in record.items() if name not in names}
    config = getattr(transformers, f"{family}Config")(**known, attn_implementation="eager")
    theirs = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    theirs.load_state_dict(tensors)
    block = torch.arange(len(IDS)) // 4
    hidden = torch.where(block[:, None] >= block, 0.0, -torch.inf)[None, None]
    with torch.no_grad():
        expected = theirs(IDS[None], attention_mask=hidden).logits[0]
    model = anyorder.load(tmp_path)
    config = model.config
    assert model.family.name == "block" and config is not None
    assert (config.block_size, config.origin) == (4, "absolute")
    if kind == "fast_dllm":
        expected = plain.shifted(expected)
    with torch.no_grad():
        found = model.net.head(model.net.hidden(IDS[None], block=block[None]))[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_settings_that_a_block_folder_leaves_out(tmp_path: Path) -> None:
    made.sdar(tmp_path / "sdar", block_size=None)
    made.fast_dllm(tmp_path / "fast", bd_size=None)
    sizes = [open_shape(str(tmp_path / name)).config.block_size for name in ("sdar", "fast")]
    assert sizes == [4, 32]


def test_a_model_that_is_not_loaded_can_be_recorded(tmp_path: Path) -> None:
    for kind in ("sdar_moe", "llada2_moe"):
        made.sdar(tmp_path, model_type=kind)
        with pytest.raises(ValueError, match=rf"'{kind}'.*qwen3.*sdar.*docs/recording\.md"):
            anyorder.load(tmp_path)


def test_a_causal_model_as_mdm_sees_both_sides_and_predicts_the_next_place(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    made.qwen2(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    net = anyorder.load(tmp_path, family="mdm").net
    shape = plain.Shape(made.HEADS, made.KV_HEADS, 10000.0, 1e-6)
    expected = plain.dream(tensors, IDS, shape, made.LAYERS)
    torch.testing.assert_close(predictions(net, IDS), expected, **CLOSE)


def test_a_tied_head_may_be_stored_if_it_is_the_table(tmp_path: Path) -> None:
    tensors = made.dream(tmp_path, tie_word_embeddings=True)
    with pytest.raises(ValueError, match=r"lm_head\.weight differs from model\.embed_tokens"):
        anyorder.load(tmp_path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    twice = anyorder.load(tmp_path).net
    del tensors["lm_head.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    once = anyorder.load(tmp_path).net
    assert torch.equal(predictions(twice, IDS), predictions(once, IDS))


def test_missing_unexpected_and_misshapen_tensors_are_listed(tmp_path: Path) -> None:
    tensors = made.dream(tmp_path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.q_norm.weight"] = torch.ones(8)
    tensors["model.norm.weight"] = torch.ones(31)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="another model") as caught:
        anyorder.load(tmp_path)
    said = str(caught.value)
    assert "1 missing: model.layers.1.mlp.up_proj.weight;" in said
    assert "1 unexpected: model.layers.0.self_attn.q_norm.weight;" in said
    assert "model.norm.weight (file [31], module [32])" in said


def test_constants_of_old_checkpoints_are_no_surprise(tmp_path: Path) -> None:
    tensors = made.dream(tmp_path)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, tmp_path / "model.safetensors")
    anyorder.load(tmp_path)


def test_the_extras_of_flexmdm_must_be_those(tmp_path: Path) -> None:
    _, extras = made.flexmdm(tmp_path)
    path = tmp_path / "flexmdm_extras.pt"
    torch.save(extras | {"insertion_head.more": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"1 unexpected: insertion_head\.more"):
        anyorder.load(tmp_path)
    del extras["temb_mods.1.bias"]
    torch.save(extras, path)
    with pytest.raises(ValueError, match=r"flexmdm_extras\.pt.*1 missing: temb_mods\.1\.bias"):
        anyorder.load(tmp_path)
    torch.save({"a": Path("x")}, path)
    with pytest.raises(ValueError, match="more than tensors"):
        anyorder.load(tmp_path)
    path.write_bytes(b"no pickle")
    with pytest.raises(ValueError, match=r"flexmdm_extras\.pt is damaged"):
        anyorder.load(tmp_path)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "scaled positions": ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn' is not"),
    "llama 3": ({"rope_scaling": {"type": "llama3"}}, "'llama3' is not"),
    "in the new place": ({"rope_parameters": {"rope_type": "linear"}}, "'linear' is not"),
    "windows": ({"use_sliding_window": True}, "use_sliding_window is True"),
    "some windows": ({"layer_types": ["sliding_attention"] * 2}, "layer_types"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantization_config"),
    "no width": ({"hidden_size": None}, "hidden_size is missing"),
    "of the wrong kind": ({"num_hidden_layers": "two"}, "config.json"),
    "unknown": ({"model_type": "mamba"}, "model_type 'mamba'"),
    "mask": ({"mask_token_id": 999}, "the tokenizer has id 999, the network 272 rows"),
    "eos": ({"eos_token_id": made.CLOSE}, "eos is 262 in config.json and 260 in the tokenizer"),
    "few rows": ({"vocab_size": 100}, "rows: is it the tokenizer of another model"),
}


@pytest.mark.parametrize(("change", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_computed_here_is_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    made.dream(tmp_path, **change)
    with pytest.raises(ValueError, match=says):
        anyorder.load(tmp_path)


@pytest.mark.parametrize("key", ["include_bias", "input_emb_norm", "scale_logits", "alibi"])
def test_variants_of_llada_are_refused(tmp_path: Path, key: str) -> None:
    made.llada(tmp_path, **{key: True})
    with pytest.raises(ValueError, match=f"{key} is True"):
        anyorder.load(tmp_path)


def test_shards_must_fit_their_index(tmp_path: Path) -> None:
    made.dream(tmp_path, shards=2)
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    whole = dict(index["weight_map"])
    index["weight_map"] = whole | {"model.norm.weight": "../elsewhere.safetensors"}
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must be beside its index"):
        anyorder.load(tmp_path)
    index["weight_map"] = {name: whole[name] for name in whole if name != "model.norm.weight"}
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"does not fit its shards: model\.norm\.weight"):
        anyorder.load(tmp_path)
    index["weight_map"] = whole
    path.write_text(json.dumps(index))
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match=r"missing: model-00002-of-00002\.safetensors"):
        anyorder.load(tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match="no index of shards"):
        anyorder.load(tmp_path)
    path.unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="pickled code"):
        anyorder.load(tmp_path)


def test_families_of_a_checkpoint(tmp_path: Path) -> None:
    made.dream(tmp_path)
    with pytest.raises(ValueError, match=r"family 'mdm', not 'flexmdm'.*--start"):
        anyorder.load(tmp_path, family="flexmdm")
    assert anyorder.load(tmp_path, family="mdm").family.name == "mdm"


def test_precision_is_the_wanted_one(tmp_path: Path) -> None:
    tensors = made.dream(tmp_path)
    half = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_file(half, tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    ours = "backbone.blocks.1.mlp.up.weight"
    found = dict(anyorder.load(tmp_path).net.named_parameters())
    assert found[ours].dtype == torch.float32
    assert torch.equal(found[ours], half[name].float())
    for dtype in ("bfloat16", torch.bfloat16):
        found = dict(anyorder.load(tmp_path, dtype=dtype).net.named_parameters())
        assert torch.equal(found[ours], half[name]) and found[ours].dtype == torch.bfloat16
    with pytest.raises(ValueError, match="dtype='int4'"):
        anyorder.load(tmp_path, dtype="int4")
    with pytest.raises(ValueError, match=r"dtype=torch\.int8: choose float32"):
        anyorder.load(tmp_path, dtype=torch.int8)


@pytest.mark.parametrize("kind", ["dream", "flexmdm", "llada", "dultra"])
def test_an_opened_model_holds_nothing_and_knows_all(tmp_path: Path, kind: str) -> None:
    made.FORMATS[kind](tmp_path)
    opened = open_weights(tmp_path)
    assert all(parameter.is_meta for parameter in opened.net.parameters())
    model = anyorder.load(tmp_path)
    assert opened.digest == model.digest and len(model.digest) == 64
    for name, parameter in model.net.named_parameters():
        assert torch.equal(opened.tensor(name), parameter)
    again = opened.model()
    assert again.net is not opened.model().net
    assert all(parameter.is_meta for parameter in opened.net.parameters())
    assert same_weights(again.net, model.net)


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("kind", sorted(made.FORMATS))
def test_a_shape_is_that_of_the_opened_model(tmp_path: Path, kind: str) -> None:
    if kind in made.BY_TRANSFORMERS:
        pytest.importorskip("transformers")
    made.FORMATS[kind](tmp_path / kind)
    opened, shape = open_weights(tmp_path / kind), open_shape(str(tmp_path / kind))
    assert (shape.config, shape.name) == (opened.config, opened.name)
    assert shape.vocab.digest() == opened.vocab.digest()


def test_the_digest_covers_weights_and_settings(tmp_path: Path) -> None:
    tensors = made.dream(tmp_path)
    first = anyorder.load(tmp_path).digest
    save_file(tensors | {"model.norm.weight": torch.ones(32)}, tmp_path / "model.safetensors")
    second = anyorder.load(tmp_path).digest
    (tmp_path / "config.json").write_text(json.dumps(made.dream_config(rope_theta=10.0)))
    assert len({first, second, anyorder.load(tmp_path).digest}) == 3


@pytest.mark.parametrize("kind", list(made.FORMATS))
def test_models_of_every_format_sample_and_save(tmp_path: Path, kind: str) -> None:
    if kind in made.BY_TRANSFORMERS:
        pytest.importorskip("transformers")
    made.FORMATS[kind](tmp_path / "theirs")
    model = anyorder.load(tmp_path / "theirs")
    (trace,) = model.sample("abcd ef", max_new_tokens=6, temperature=1.0, seed=1)
    assert (trace.token_ids < model.vocab.size).all() and len(trace.token_ids) <= 6
    model.save(tmp_path / "ours")
    again = anyorder.load(tmp_path / "ours")
    (same,) = again.sample("abcd ef", max_new_tokens=6, temperature=1.0, seed=1)
    assert same.token_ids.tolist() == trace.token_ids.tolist()


def test_the_release_sampler_draws_no_id_beyond_the_tokenizer(tmp_path: Path) -> None:
    made.flexmdm(tmp_path)
    model = anyorder.load(tmp_path)
    model.net.backbone.unembed.weight.data[model.vocab.size :] = 50.0  # rows of no token
    traces = model.sample("ab", mode="compat", steps=8, max_length=24, temperature=1.0, samples=4)
    assert sum(len(trace.token_ids) for trace in traces)
    assert all((trace.token_ids < model.vocab.size).all() for trace in traces)


def test_names_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 3}))
    with pytest.raises(ValueError, match=r"neither a model of format 1.*model_type is missing"):
        anyorder.load(tmp_path)
    for name in ("tiny/none", "paper/none", "runs/none", "nobody", "a/b/c", "../x"):
        with pytest.raises(ValueError, match="no model"):
            find_folder(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ValueError, match="no model 'mine/none': name a shipped"):
        find_folder("mine/none")  # a path that was mistyped, and no hub id


def test_vocabularies_by_name(tmp_path: Path) -> None:
    made.dream(tmp_path)
    assert find_vocab(str(tmp_path)).digest() == anyorder.load(tmp_path).vocab.digest()
    assert find_vocab("mdm").digest() == anyorder.load("mdm").vocab.digest()
    with pytest.raises(ValueError, match="unknown special tokens 'gpt'"):
        find_vocab(f"gpt:{tmp_path}")
    with pytest.raises(ValueError, match="is said to be 151643"):
        find_vocab(f"qwen2:{tmp_path}")


class WithConstant(Transformer):
    """A network of somebody else: what it computes for itself is neither parameter nor buffer."""

    def __init__(self, config: TransformerConfig, *, seed: int = 0) -> None:
        super().__init__(config, seed=seed)
        self.scale = torch.full((1,), 2.0)


def test_networks_with_constants_of_their_own_load_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdm = find_family("mdm")
    family = replace(mdm, name="own", network=replace(mdm.network, build=WithConstant))
    monkeypatch.setitem(FAMILIES, "own", family)
    model = anyorder.load("mdm")
    card = replace(model.card, family="own")
    made_here = build(card, model.vocab, name="own", seed=4)
    made_here.save(tmp_path)
    again = anyorder.load(tmp_path)
    assert same_weights(again.net, made_here.net) and again.net.scale.item() == 2.0


# Damaged or odd checkpoints, and precisions: each is refused by a sentence that names the file.


ODD_SETTINGS: dict[str, Any] = {
    "num_attention_heads": 0,
    "hidden_size": "32",
    "rope_scaling": "yarn",
    "rope_theta": "many",
    "rms_norm_eps": -1.0,
    "max_position_embeddings": "128",
    "eos_token_id": "end",
    "anyorder": "x",
}
ODD_FILES = {
    "tokenizer_config.json": ["[]", '{"added_tokens_decoder": {"x": "y"}}'],
    "added_tokens.json": ["[]"],
    "model.safetensors.index.json": [
        '{"weight_map": {"a": ["b"]}}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "b"}, "metadata": "x"}',
    ],
}


@pytest.mark.parametrize("key", ODD_SETTINGS)
def test_an_odd_setting_is_refused_by_its_file(tmp_path: Path, key: str) -> None:
    made.dream(tmp_path, **{key: ODD_SETTINGS[key]})
    with pytest.raises(ValueError, match=r"config\.json: "):
        open_weights(tmp_path)


def test_an_unknown_model_is_named_whatever_its_architectures_are(tmp_path: Path) -> None:
    made.dream(tmp_path, model_type="other", architectures=3)
    with pytest.raises(ValueError, match=r"config.json: model_type 'other' \(3\) is none of dream"):
        open_weights(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"), [(name, each) for name, several in ODD_FILES.items() for each in several]
)
def test_an_odd_file_is_refused_by_its_name(tmp_path: Path, name: str, content: str) -> None:
    made.dream(tmp_path, shards=2)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=name):
        open_weights(tmp_path)


def test_what_export_noted_is_checked(tmp_path: Path) -> None:
    made.dream(tmp_path, anyorder={"family": "mdm", "max_length": "long"})
    with pytest.raises(ValueError, match="anyorder is not what export wrote"):
        open_weights(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_pickled_weights_are_pointed_out(tmp_path: Path, name: str) -> None:
    made.dream(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} is pickled code"):
        open_weights(tmp_path)


@pytest.mark.parametrize("dtype", ["bf16", "int8", torch.int8, torch.float8_e4m3fn, 3])
def test_other_precisions_are_refused(tmp_path: Path, dtype: Any) -> None:
    made.dream(tmp_path)
    with pytest.raises(ValueError, match="choose float32 or bfloat16 or float16 or float64"):
        anyorder.load(tmp_path, dtype=dtype)


def test_every_name_of_the_cpu_has_its_default(tmp_path: Path) -> None:
    tensors = made.drawn(made.qwen_shapes(), 0)
    halves = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    made.write_folder(tmp_path, made.dream_config(), halves)
    made.write_tokenizer(tmp_path)
    assert next(anyorder.load(tmp_path, device="cpu:0").net.parameters()).dtype == torch.float32


def test_a_precision_without_products_is_refused() -> None:
    with pytest.raises(ValueError, match="'bool' is not computed on cpu"):
        _check_computes(torch.empty(1, 1, dtype=torch.bool))


def test_the_precision_of_a_run_is_on_its_card_and_taken_up_again(tmp_path: Path) -> None:
    made.dream(tmp_path / "model")
    model, runs = str(tmp_path / "model"), {}
    for dtype in (None, "bfloat16"):
        job = SampleJob(
            model, prompt="ab", max_new_tokens=4, dtype=dtype, out=tmp_path / str(dtype)
        )
        runs[dtype] = sample_to_run(job, {}, command="test", progress=False)
    card = json.loads((tmp_path / "bfloat16" / "run.json").read_text())
    assert card["dtype"] == "bfloat16"
    assert runs[None].card.dtype == "float32"
    # Runs from before there was a choice keep their identity.
    assert "dtype" not in card["config"]
    assert runs[None].card.identity() != runs["bfloat16"].card.identity()
    assert recorded_job(runs["bfloat16"], Changes())[0].dtype == "bfloat16"


# Loading takes the weights and little more: measured in a process that does nothing else.


MEASURE = """
import sys
import torch
import anyorder

def peak():
    lines = open("/proc/self/status").read().splitlines()
    table = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(table["VmHWM"]) * 1024, int(table["VmRSS"]) * 1024

warm, *folders = sys.argv[1:]
anyorder.load(warm)  # what any load brings in once: code, the tokenizer's library
before = peak()[1]
model = anyorder.load(folders[0], dtype=sys.stdin.read() or None)
size = sum(p.numel() * p.element_size() for p in model.net.parameters())
print(size, peak()[0] - before)
"""


def measure(warm: Path, folder: Path, dtype: str = "") -> tuple[int, int]:
    """Bytes of the weights in memory, and how far the process grew at most."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(warm), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        input=dtype,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    size, grown = map(int, done.stdout.split())
    return size, grown


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small Dream folder, and one with 152,064 rows, stored in bfloat16 in two shards."""
    root = tmp_path_factory.mktemp("memory")
    made.dream(root / "small")
    rows, width = 152_064, 256
    shapes = made.qwen_shapes(rows=rows, width=width)
    tensors = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    config = made.dream_config(vocab_size=rows, hidden_size=width)
    made.write_folder(root / "large", config, tensors, shards=2)
    made.write_tokenizer(root / "large", merges=True)
    return root / "small", root / "large"


@pytest.mark.skipif(sys.platform != "linux", reason="the measure reads /proc")
@pytest.mark.parametrize("dtype", ["", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_the_peak_is_below_one_fifth_more_than_the_weights(
    folders: tuple[Path, Path], dtype: str
) -> None:
    """Of these weights half are one tensor: to read it whole would take half as much more."""
    size, grown = measure(*folders, dtype)
    assert size > (150 if dtype else 300) * 10**6
    assert size * 0.9 < grown < size * 1.2, f"{grown / size:.2f} of the weights"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the measure reads /proc")
def test_our_own_folders_take_no_more(folders: tuple[Path, Path], tmp_path: Path) -> None:
    anyorder.load(folders[0]).save(tmp_path / "small")
    anyorder.load(folders[1]).save(tmp_path / "large")
    size, grown = measure(tmp_path / "small", tmp_path / "large")
    assert size * 0.9 < grown < size * 1.2, f"{grown / size:.2f} of the weights"
