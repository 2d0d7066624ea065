"""SIGKILL at random moments of training and sampling, then the same command: nothing is lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from waiting import kill_after

from anyorder.trace import Run

TRAIN = [
    "train",
    "tiny/mdm",
    "--steps",
    "60",
    "--warmup",
    "5",
    "--batch",
    "4",
    "--net.width",
    "16",
    "--net.layers",
    "2",
    "--net.heads",
    "2",
    "--net.mlp-width",
    "32",
    "--save-every",
    "7",
    "--validate-every",
    "20",
    "--validate-batches",
    "1",
    "--threads",
    "1",
]

# One that is to be killed never ends by itself, however late its killer comes: it stops before the
# last thing that it would do, which is to write the model or to merge the parts.
CODE = """
import sys, time
from anyorder.cli import main
from anyorder.model import Model
from anyorder.trace import Run
if {doomed}:
    Model.save = Run.finish = lambda *_: time.sleep(600)
sys.exit(main())
"""


def start(words: list[str], *, doomed: bool) -> subprocess.Popen[bytes]:
    code = CODE.format(doomed=doomed)
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def finish(words: list[str]) -> None:
    """Run to the end."""
    process = start(words, doomed=False)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()


def kill_at(
    words: list[str], reached: Callable[[int], bool], targets: list[int], seed: int
) -> None:
    """Kill the command a random moment after it has reached each target; start it again."""
    chance = random.Random(seed)
    for target in targets:
        kill_after(start(words, doomed=True), partial(reached, target), chance.uniform(0, 0.05))


def newest_step(folder: Path) -> int:
    steps = [int(path.name.removeprefix("step-")) for path in folder.glob("checkpoints/step-*")]
    return max(steps, default=0)


def metrics(folder: Path) -> list[dict[str, object]]:
    timed = {"seconds", "tokens_per_second"}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in timed} for row in rows]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "mdm"
    finish([*TRAIN, "--out", str(folder)])
    return folder


@pytest.mark.long
def test_killed_training_equals_undisturbed(model: Path, tmp_path: Path) -> None:
    undisturbed, out = model, tmp_path / "mdm"
    words = [*TRAIN, "--out", str(out)]
    kill_at(words, lambda step: newest_step(out) >= step, [7, 14, 28], seed=1)
    finish(words)
    for name in ("model.safetensors", "config.json", "vocabulary.json"):
        assert (tmp_path / "mdm" / name).read_bytes() == (undisturbed / name).read_bytes()
    assert metrics(tmp_path / "mdm") == metrics(undisturbed)


@pytest.mark.long
def test_killed_sampling_equals_undisturbed(model: Path, tmp_path: Path) -> None:
    def words(out: str) -> list[str]:
        return [
            "sample",
            str(model),
            "--task",
            "stories",
            "--limit",
            "30",
            "--samples",
            "2",
            "--temperature",
            "0.8",
            "--batch",
            "3",
            "--out",
            str(tmp_path / out),
        ]

    finish(words("undisturbed"))
    parts = tmp_path / "killed" / "parts"

    def has_parts(count: int) -> bool:
        return len(list(parts.glob("*.parquet"))) >= count

    kill_at(words("killed"), has_parts, [1, 4, 9], seed=2)
    finish(words("killed"))
    columns = [
        name for name in Run.open(tmp_path / "killed").table().column_names if name != "seconds"
    ]
    left = Run.open(tmp_path / "undisturbed").table(columns)
    assert left.equals(Run.open(tmp_path / "killed").table(columns))
    assert left.num_rows == 60
