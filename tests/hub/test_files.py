"""Tensors read in pieces are the tensors; what files lack or have too much is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from anyorder.hub import files as hub_files
from anyorder.hub.files import Difference, SafetensorFiles, copy_into, equal, open_folder, read
from anyorder.hub.weights import PublishedWeights, fill, is_real, match, save_parts

KINDS = [torch.float32, torch.bfloat16, torch.float64, torch.int64]


@given(
    shape=st.lists(st.integers(1, 7), max_size=3),
    kind=st.sampled_from(KINDS),
    piece=st.integers(1, 400),
)
def test_pieces_make_the_whole(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], kind: torch.dtype, piece: int
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "w.safetensors"
    count = torch.Size(shape).numel()
    tensor = torch.arange(count).reshape(shape).to(kind)
    save_file({"w": tensor, "same": tensor.clone(), "other": tensor + 1}, path)
    store = SafetensorFiles(path, [path], {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub_files, "PIECE_BYTES", piece)
        found = read(store, "w")
        into = torch.empty(shape, dtype=torch.float64)
        copy_into(store, "w", into)
        assert equal(store, "w", "same") and not equal(store, "w", "other")
        pieces = [rows for _, rows in store.pieces("w")]
    assert found.dtype == kind and torch.equal(found, tensor)
    assert torch.equal(into, tensor.double())
    largest = max(rows.nbytes for rows in pieces)
    row = tensor.nbytes // shape[0] if shape else tensor.nbytes
    assert largest <= max(piece, row)


def test_differences_are_all_told_at_once(tmp_path: Path) -> None:
    found = Difference.between(
        {"a": (1,), "b": (2, 2), "x": (1,), "y": (1,)}, {"b": (2, 3), "c": (1,)}, {"y"}
    )
    with pytest.raises(
        ValueError, match=r"1 missing: c; 2 unexpected: a, x; 1 of another shape: b"
    ):
        found.refuse(tmp_path, "Look again")
    Difference.between({"a": (1,)}, {"a": (1,)}).refuse(tmp_path, "Look again")


def test_kinds_and_copies_that_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.zeros(2, dtype=torch.float8_e4m3fn)}, path)
    with pytest.raises(ValueError, match="F8_E4M3, a kind that is not read here"):
        open_folder(tmp_path)
    path.unlink()
    table = {}
    for number in (1, 2):
        name = f"model-{number:05d}-of-00002.safetensors"
        save_file({"w": torch.zeros(1), f"v{number}": torch.zeros(1)}, tmp_path / name)
        table |= {"w": name, f"v{number}": name}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    with pytest.raises(ValueError, match="w is in model-00001-of-00002"):
        open_folder(tmp_path)


@pytest.mark.parametrize("limit", [10**9, 70, 1])
def test_shards_are_as_large_as_they_may_be(tmp_path: Path, limit: int) -> None:
    tensors = {f"t{number}": torch.full((8,), float(number)) for number in range(5)}  # 32 bytes
    parts = [(name, lambda t=tensor: t) for name, tensor in tensors.items()]
    save_parts(tmp_path, parts, limit, {"about": "five"})
    store = open_folder(tmp_path)
    assert len(store.paths) == {10**9: 1, 70: 3, 1: 5}[limit]
    assert store.note["about"] == "five" and len(store.note["crc32"]) == 8
    assert all(torch.equal(read(store, name), tensor) for name, tensor in tensors.items())
    index = tmp_path / "model.safetensors.index.json"
    assert index.is_file() == (limit < 10**9)
    if limit < 10**9:
        assert json.loads(index.read_text())["metadata"]["total_size"] == 160


class Odd(nn.Module):
    """A shared weight, a buffer, and a constant that is neither."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.two.weight = self.one.weight
        self.register_buffer("count", torch.tensor(4))
        self.one.bias.requires_grad_(False)


def test_filling_keeps_what_is_shared_and_what_is_frozen(tmp_path: Path) -> None:
    real = Odd()
    tensors = {name: value for name, value in real.state_dict().items() if name != "two.weight"}
    save_file(tensors, tmp_path / "model.safetensors")
    with torch.device("meta"):
        net = Odd()
    assert not is_real(net)
    weights = match(open_folder(tmp_path), net, "")
    assert isinstance(weights, PublishedWeights) and weights.stored_kind() == torch.float32
    fill(net, weights, device="cpu", dtype=torch.bfloat16)
    assert is_real(net) and net.two.weight is net.one.weight
    assert net.one.weight.dtype == torch.bfloat16 and net.count.dtype == torch.int64
    assert torch.equal(net.one.weight, real.one.weight.bfloat16()) and int(net.count) == 4
    assert net.one.weight.requires_grad and not net.one.bias.requires_grad
    assert [name for name, _ in net.named_parameters()] == [n for n, _ in real.named_parameters()]
    net.constant = torch.empty(2, device="meta")
    assert not is_real(net)
