"""The folder that a run trains in: whose it may be, and the names in it that are the loop's.

A folder with other things in it is refused, so that a training never mixes with a sampling run or
somebody's files. Hidden files do not count: a lock or a desktop's notes do not fill a folder.
Holding the folder is `files.alone_in`; what is written there is the business of checkpoint.py,
log.py and the caller's export.
"""

from __future__ import annotations

import json
from pathlib import Path

METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"


def check_folder(folder: Path) -> None:
    """Refuse a folder that is a file, or is filled with something else than a training."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file and training writes a folder: choose another --out")
    filled = any(not path.name.startswith(".") for path in folder.iterdir())
    if filled and not _holds_training(folder):
        raise ValueError(f"{folder} is not empty and holds no training: choose another --out")


def _holds_training(folder: Path) -> bool:
    if (folder / CHECKPOINTS).is_dir() or (folder / METRICS).is_file():
        return True
    if not (folder / "model.safetensors").is_file():
        return False
    try:
        card = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    # Models of other programs have files of these names too, but none says by what recipe.
    return isinstance(card, dict) and bool(card.get("recipe"))
