"""Tensors read in pieces are the tensors; what files lack or have too much is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from anyorder.hub import files as hub_files
from anyorder.hub import files as hub_remote
from anyorder.hub.files import (
    Difference,
    SafetensorFiles,
    copy_into,
    equal,
    fetch,
    is_hub_id,
    open_folder,
    push,
    read,
)
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


# Hub ids: what is one, what is fetched of it, and what is said where there is no network.


def test_what_can_be_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("Dream-org/Dream-Coder-v0-Base-7B", "me/m.1@main", "me/m@refs/pr/3"):
        assert is_hub_id(name)
    for name in ("mdm", "a/b/c", "tiny/mdm", "paper/x", "runs/x", "./x", "../x", "a/..", "me/", ""):
        assert not is_hub_id(name)
    Path("me").mkdir()
    assert not is_hub_id("me/m.1")


def test_only_data_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def download(repo: str, **settings: Any) -> str:
        asked.update(settings, repo=repo)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert fetch("me/m@v2") == tmp_path
    assert (asked["repo"], asked["revision"]) == ("me/m", "v2")
    from huggingface_hub.utils import filter_repo_objects

    offered = ["config.json", "modeling.py", "model-00001-of-00002.safetensors", "x.bin", "a.sh"]
    offered += ["model.safetensors.index.json", "flexmdm_extras.pt", "rng.pt", "vocab.json"]
    offered += ["original/model.safetensors", "sub/config.json", "chat_template.jinja"]
    named = ["additional_chat_templates/rag.jinja", "additional_chat_templates/tool_use.jinja"]
    offered += [*named, "additional_chat_templates/x.safetensors", "sub/x.jinja", "x.jinja"]
    offered += ["additional_chat_templates/code.py", "sub/additional_chat_templates/rag.jinja"]
    settings = {name: asked[name] for name in ("allow_patterns", "ignore_patterns")}
    kept = set(filter_repo_objects(offered, **settings))
    assert kept == {
        "config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
        "flexmdm_extras.pt", "vocab.json", "chat_template.jinja", *named,
    }  # fmt: skip


def test_faults_of_the_hub_are_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise OSError("the network is unreachable\nmore")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ValueError, match=r"no model 'me/m': .*\(the network is unreachable\)"):
        fetch("me/m")


def cached(folder: Path, repo: str) -> Path:
    """A place in a hub cache for one snapshot."""
    home = folder / "hub" / f"models--{repo.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    return home / "snapshots" / commit


def test_the_cache_serves_without_a_network(tmp_path: Path) -> None:
    """In a process of its own: the hub's library reads its settings once."""
    made.dream(cached(tmp_path, "me/dream"))
    code = (
        "import anyorder\n"
        "model = anyorder.load('me/dream')\n"
        "print(model.name, model.family.name)\n"
        "try:\n    anyorder.load('me/other')\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "me/dream mdm"
    assert second.startswith("no model 'me/other'") and "HF_HUB_OFFLINE" in second


class FakeHub:
    """Takes what HfApi takes."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.repos: dict[str, bool] = {}
        self.files: dict[str, set[str]] = {}

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        if self.fault is not None:
            raise self.fault
        self.repos[repo_id] = private

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        assert commit_message
        self.files[repo_id] = {path.name for path in Path(folder_path).iterdir()}
        return f"commit of {repo_id}"


def test_pushing_is_one_commit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    hub = FakeHub()
    assert push(tmp_path, "me/m", private=True, message="x", api=hub) == "commit of me/m"
    assert hub.repos == {"me/m": True} and hub.files == {"me/m": {"a.txt"}}
    with pytest.raises(ValueError, match="no hub id"):
        push(tmp_path, "m", private=True, message="x", api=hub)
    with pytest.raises(ValueError, match=r"does not take me/m \(no room\): log in"):
        push(tmp_path, "me/m", private=True, message="x", api=FakeHub(OSError("no room.")))


def test_no_name_of_ours_is_asked_of_the_hub() -> None:
    from anyorder.recipes import RECIPES

    assert {name.split("/")[0] for name in RECIPES} <= {*hub_remote.OURS}
