"""Weights survive the way to disk and back, and nothing else is accepted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from anyorder.hub import weights as hub
from anyorder.hub.weights import load_weights, save_weights
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer

CONFIG = TransformerConfig(11, 16, 2, 2, 2, 8, 24)


def names_in(path: Path) -> set[str]:
    with safe_open(path, framework="pt") as file:
        return set(file.keys())


def same(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "new" / "weights.safetensors"
    saved = Transformer(CONFIG, seed=1).to(dtype)
    save_weights(path, saved)
    loaded = Transformer(CONFIG, seed=2).to(dtype)
    assert not same(saved, loaded)
    load_weights(path, loaded)
    assert same(saved, loaded)
    assert os.listdir(path.parent) == ["weights.safetensors"]


def test_saving_again_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(path, Transformer(CONFIG, seed=1))
    save_weights(str(path), Transformer(CONFIG, seed=2))
    loaded = Transformer(CONFIG)
    load_weights(str(path), loaded)
    assert same(loaded, Transformer(CONFIG, seed=2))


class Shared(nn.Module):
    """Two nets around one table, and a head that is that table too."""

    def __init__(self, seed: int = 0, *, tied: bool = True) -> None:
        super().__init__()
        self.first = Transformer(CONFIG, seed=seed)
        self.second = Transformer(CONFIG, seed=seed + 1)
        self.second.embed = self.first.embed
        self.head = nn.Linear(16, 11, bias=False)
        if tied:
            self.head.weight = self.first.embed.weight
        self.register_buffer("steps", torch.tensor(7 + seed))


def test_shared_weights_are_stored_once_and_stay_shared(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(path, Shared(1))
    assert "first.embed.weight" in names_in(path)
    assert not {"second.embed.weight", "head.weight"} & names_in(path)
    loaded = Shared(5)
    load_weights(path, loaded)
    assert same(loaded, Shared(1))
    assert loaded.head.weight is loaded.second.embed.weight
    with pytest.raises(ValueError, match=r"1 missing: head\.weight"):
        load_weights(path, Shared(5, tied=False))


def test_a_shared_weight_is_found_under_any_of_its_names(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(path, Shared(1))
    tensors = load_file(path)
    tensors["head.weight"] = tensors.pop("first.embed.weight")
    save_file(tensors, path)
    loaded = Shared(5)
    load_weights(path, loaded)
    assert same(loaded, Shared(1))


def test_the_module_keeps_its_precision(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    net = Transformer(CONFIG, seed=1)
    save_weights(path, net)
    loaded = Transformer(CONFIG).bfloat16()
    load_weights(path, loaded)
    assert same(loaded, net.bfloat16())


def test_differences_are_listed_and_nothing_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(path, Transformer(CONFIG, seed=1))
    other = Transformer(replace(CONFIG, vocab_size=12, layers=3, qkv_bias=False, tied=False))
    before = {name: weight.clone() for name, weight in other.state_dict().items()}
    with pytest.raises(ValueError, match="another model") as caught:
        load_weights(path, other)
    message = str(caught.value)
    assert str(path) in message
    assert "10 missing: blocks.2.attention_norm.weight, " in message and "and 5 more" in message
    assert "6 unexpected: blocks.0.attention.key.bias, " in message and "and 1 more" in message
    assert "1 of another shape: embed.weight (file [11, 16], module [12, 16])" in message
    assert "configuration" in message
    assert all(torch.equal(before[name], weight) for name, weight in other.state_dict().items())


def test_integers_are_not_taken_for_weights(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"weight": torch.ones(2, 2, dtype=torch.long)}, path)
    with pytest.raises(ValueError, match=r"torch\.int64 where the module has torch\.float32"):
        load_weights(path, nn.Linear(2, 2, bias=False))


@pytest.mark.parametrize("kept", [0, 4, 100, -1, -500])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(path, Transformer(CONFIG))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"weights\.safetensors is damaged.*save or download"):
        load_weights(path, Transformer(CONFIG))


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(path, Transformer(CONFIG))
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    net = Transformer(CONFIG, seed=3)
    with pytest.raises(ValueError, match=r"damaged.*checksum"):
        load_weights(path, net)
    assert same(net, Transformer(CONFIG, seed=3))


@pytest.mark.parametrize("content", [b"not weights at all", b"\xff" * 64])
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged or no safetensors file"):
        load_weights(path, Transformer(CONFIG))


def test_missing_files_and_meta_modules_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    with pytest.raises(ValueError, match="there is no such file"):
        load_weights(path, Transformer(CONFIG))
    save_weights(path, Transformer(CONFIG))
    with torch.device("meta"):
        empty = Transformer(CONFIG)
    with pytest.raises(ValueError, match="to_empty"):
        load_weights(path, empty)
    with pytest.raises(ValueError, match="meta"):
        save_weights(tmp_path / "other.safetensors", empty)
    load_weights(path, empty.to_empty(device="cpu"))
    assert same(empty, Transformer(CONFIG))


def test_a_failed_write_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.safetensors"
    save_weights(path, Transformer(CONFIG, seed=1))

    def half_written(tensors: object, partial: Path, metadata: object) -> None:
        partial.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(hub, "save_file", half_written)
    with pytest.raises(OSError, match="no space"):
        save_weights(path, Transformer(CONFIG, seed=2))
    assert os.listdir(tmp_path) == ["weights.safetensors"]
    loaded = Transformer(CONFIG)
    load_weights(path, loaded)
    assert same(loaded, Transformer(CONFIG, seed=1))


def test_the_same_weights_give_the_same_file(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    for number in range(20):
        hub.save_weights(tmp_path / f"{number}.safetensors", module, about="a line")
    contents = {path.read_bytes() for path in tmp_path.iterdir()}
    assert len(contents) == 1


def test_weights_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    hub.save_weights(path, nn.Linear(3, 2), about="a line")
    hub.load_weights(path, nn.Linear(3, 2), about="a line")
    hub.load_weights(path, nn.Linear(3, 2))
    with pytest.raises(ValueError, match="the weights of a line, not of a curve"):
        hub.load_weights(path, nn.Linear(3, 2), about="a curve")
