"""Damaged or odd checkpoints, and precisions: each is refused by a sentence that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest
import torch

import anyorder
from anyorder.apps.jobs import SampleJob
from anyorder.apps.reproduce import Changes, recorded_job
from anyorder.apps.sample import sample_to_run
from anyorder.loading import _check_computes, open_weights

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
