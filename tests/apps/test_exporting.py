"""Exported folders: read back as the same model, by us and by the library that owns the layout."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest
import torch
from safetensors.torch import load_file

import anyorder
from anyorder.apps import export as exporting
from anyorder.apps.export import ExportOptions, export, export_to, push_model
from anyorder.files import sha256_of
from anyorder.hub.formats import layout_of
from anyorder.model import Model

IDS = torch.tensor([[5, 40, 264, 97, 200, 3]])


def same(one: Model, other: Model) -> bool:
    ours, theirs = one.net.state_dict(), other.net.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.mark.parametrize("kind", list(made.FORMATS))
def test_every_format_comes_back(tmp_path: Path, kind: str) -> None:
    if kind in made.BY_TRANSFORMERS:
        pytest.importorskip("transformers")
    made.FORMATS[kind](tmp_path / "theirs")
    model = anyorder.load(tmp_path / "theirs")
    written = export(model, tmp_path / "out", ExportOptions(shard_gb=3e-5))
    again = anyorder.load(tmp_path / "out")
    assert written["layout"] == ("qwen2" if kind == "dream" else kind)
    assert same(model, again) and again.config == model.config
    assert again.vocab.digest() == model.vocab.digest()
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    before = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert record["model_type"] == before["model_type"]
    for name in ("hidden_size", "num_key_value_heads", "d_model", "mlp_hidden_size"):
        assert record.get(name) == before.get(name)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "model.safetensors.index.json" in names and "model.safetensors" not in names
    assert ("flexmdm_extras.pt" in names) == (kind == "flexmdm")


@pytest.mark.parametrize("kind", made.BY_TRANSFORMERS)
def test_transformers_reads_what_we_write(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = made.FORMATS[kind](tmp_path / "theirs")
    model = anyorder.load(tmp_path / "theirs")
    export(model, tmp_path / "out", ExportOptions(shard_gb=3e-5))
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(IDS).logits, theirs(IDS).logits)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.encode("abcd ef", add_special_tokens=False) == model.vocab.encode("abcd ef")
    assert tokenizer.eos_token_id == model.vocab.eos_id
    assert tokenizer.mask_token_id == model.vocab.mask_id


LAYOUTS = {"mdm": "llada", "ar": "qwen2", "latentmdm": "anyorder", "planner": "anyorder"}
LAYOUTS |= {"flexlatent": "anyorder"}


@pytest.mark.parametrize(("name", "layout"), LAYOUTS.items())
def test_our_own_models_come_back(tmp_path: Path, name: str, layout: str) -> None:
    model = anyorder.load(name)
    assert export(model, tmp_path / "out")["layout"] == layout
    again = anyorder.load(tmp_path / "out")
    assert same(model, again) and again.card == model.card
    assert again.vocab.digest() == model.vocab.digest()
    text = (tmp_path / "out" / "README.md").read_text()
    assert f"- {model.family.name}\n" in text and model.digest in text
    assert '"family": "' in text  # the recipe
    for path in (tmp_path / "out").iterdir():
        assert path.name == "README.md" or sha256_of(path) in text


def test_prompts_by_sentence_need_our_own_layout() -> None:
    """A published config.json could not say so, and the network would compute something else."""
    plain = anyorder.load("mdm").config
    assert layout_of(plain) == "llada"
    assert layout_of(replace(plain, sentence_ends=(3, 4))) is None


def test_our_own_layout_may_be_in_shards(tmp_path: Path) -> None:
    model = anyorder.load("latentmdm")
    export(model, tmp_path / "out", ExportOptions(shard_gb=2e-4))
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    assert same(model, anyorder.load(tmp_path / "out"))
    shard = sorted((tmp_path / "out").glob("model-*.safetensors"))[0]
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ValueError, match=r"index\.json is damaged.*checksum"):
        anyorder.load(tmp_path / "out")


def test_precision_and_layout_on_request(tmp_path: Path) -> None:
    model = anyorder.load("mdm")
    options = ExportOptions(layout="anyorder", dtype="bfloat16")
    assert export(model, tmp_path / "half", options)["layout"] == "anyorder"
    half = anyorder.load(tmp_path / "half", dtype="bfloat16")
    assert same(half, model.__class__(**vars_of(model, net=model.net.bfloat16())))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"layout": "flexmdm"}, r"cannot be written in the layout flexmdm.*\(llada fits\)"),
        ({"layout": "gguf"}, "unknown layout 'gguf'"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"shard_gb": 0.0}, "positive"),
    ]
    for settings, says in wrong:
        with pytest.raises(ValueError, match=says):
            export(model, tmp_path / "no", ExportOptions(**settings))
    assert sorted(os.listdir(tmp_path)) == ["half"]
    with pytest.raises(ValueError, match="exists already"):
        export(model, tmp_path / "half")


def test_by_name_the_stored_precision_is_kept(tmp_path: Path) -> None:
    export(anyorder.load("mdm"), tmp_path / "half", ExportOptions(dtype="bfloat16"))
    export_to(str(tmp_path / "half"), tmp_path / "again", ExportOptions())
    files = (load_file(tmp_path / name / "model.safetensors") for name in ("half", "again"))
    one, other = files
    assert all(other[name].dtype == torch.bfloat16 for name in one)
    assert one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def vars_of(model: Model, net: Any) -> dict[str, Any]:
    names = ("family", "vocab", "card", "name", "digest")
    return {name: getattr(model, name) for name in names} | {"net": net}


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(exporting, "save_parts", full)
    with pytest.raises(OSError, match="no space"):
        export(anyorder.load("mdm"), tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_a_wrapped_network_is_not_exported(tmp_path: Path) -> None:
    model = anyorder.wrap(lambda ids: ids, anyorder.load("mdm").vocab)
    with pytest.raises(ValueError, match="own library"):
        export(model, tmp_path / "out")


class FakeHub:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        self.private = private

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        self.files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        return "here"


def test_a_pushed_model_can_be_loaded(tmp_path: Path) -> None:
    hub = FakeHub()
    done = push_model("mdm", "me/mdm", private=True, api=hub)
    assert done == {"repo": "me/mdm", "commit": "here", "layout": "llada"} and hub.private
    (tmp_path / "down").mkdir()
    for name, content in hub.files.items():
        (tmp_path / "down" / name).write_bytes(content)
    assert same(anyorder.load("mdm"), anyorder.load(tmp_path / "down"))
    again = FakeHub()
    assert push_model(str(tmp_path / "down"), "me/mdm", api=again)["commit"] == "here"
    assert again.files == hub.files
    with pytest.raises(ValueError, match="give no options"):
        push_model(str(tmp_path / "down"), "me/x", options=ExportOptions(dtype="float16"), api=hub)
