"""What two trainings must have in common to be the same run: checkpoints and metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def metrics(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "tokens_per_second")}
        for row in rows
    ]


def fingerprint(out: Path) -> dict[str, Any]:
    """The newest checkpoint's files, byte for byte, and the metrics without times."""
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    state = json.loads((newest / "state.json").read_text())
    files = {name: (newest / name).read_bytes() for name in state["files"]}
    return {"step": state["step"], "files": files, "metrics": metrics(out)}
