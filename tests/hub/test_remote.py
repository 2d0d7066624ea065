"""Hub ids: what is one, what is fetched of it, and what is said where there is no network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest

from anyorder.hub import files as hub_remote
from anyorder.hub.files import fetch, is_hub_id, push


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
    offered += ["original/model.safetensors", "sub/config.json"]
    settings = {name: asked[name] for name in ("allow_patterns", "ignore_patterns")}
    kept = set(filter_repo_objects(offered, **settings))
    assert kept == {
        "config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
        "flexmdm_extras.pt", "vocab.json",
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
