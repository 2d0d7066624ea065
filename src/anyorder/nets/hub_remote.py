"""Hub ids: fetching a published checkpoint into the local cache, and pushing a folder.

An id is `owner/name`, with `@revision` behind it if need be. Only weights, JSON and tokenizer files
of its top folder are fetched: no code. What is in the cache is used where there is no network or
HF_HUB_OFFLINE is set.

Not here: what the files mean.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
OURS = ("tiny", "paper", "runs")
"""First parts of names that are never of the hub: recipes and the usual folder of results."""
WANTED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocabulary.json",
    "flexmdm_extras.pt",
)


def is_hub_id(name: str) -> bool:
    """Whether a name can be a hub id: `owner/name`, where no such owner is a folder here."""
    found = ID.fullmatch(name)
    if found is None or ".." in name:
        return False
    owner = found["repo"].split("/")[0]
    return owner not in (*OURS, ".", "..") and not Path(owner).exists()


def fetch(name: str) -> Path:
    """The local folder of a hub id, downloaded unless it is there."""
    found = ID.fullmatch(name)
    assert found is not None, name
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            found["repo"],
            revision=found["revision"],
            allow_patterns=list(WANTED),
            ignore_patterns=["*/*"],  # copies in other formats, and whatever else lies below
        )
    except LocalEntryNotFoundError as error:
        raise ValueError(
            f"no model {name!r}: no folder here has that name, and the hub's copy is neither in "
            f"the cache nor within reach ({_first_line(error)}): train it with `anyorder train`, "
            "or fetch it where there is a network (unset HF_HUB_OFFLINE, or copy the folder)"
        ) from None
    except Exception as error:  # noqa: BLE001  (the library raises many kinds, some its own)
        raise ValueError(
            f"no model {name!r}: the hub does not give it ({_first_line(error)}): check the name, "
            "and log in with `hf auth login` if it is private or gated"
        ) from None
    return Path(str(folder))


class HubApi(Protocol):
    """What pushing asks of huggingface_hub.HfApi."""

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> Any: ...

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> Any: ...


def push(folder: Path, repo: str, *, private: bool, message: str, api: HubApi | None = None) -> str:
    """Upload a folder as one commit; where it went."""
    if ID.fullmatch(repo) is None or "@" in repo:
        raise ValueError(f"{repo!r} is no hub id: give owner/name")
    from huggingface_hub import HfApi

    chosen: Any = HfApi() if api is None else api
    try:
        chosen.create_repo(repo, private=private, exist_ok=True)
        done = chosen.upload_folder(repo_id=repo, folder_path=str(folder), commit_message=message)
    except Exception as error:  # noqa: BLE001  (as above)
        raise ValueError(
            f"the hub does not take {repo} ({_first_line(error)}): log in with `hf auth login` "
            "with a token that may write there, and check the name"
        ) from None
    return str(getattr(done, "commit_url", done))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
