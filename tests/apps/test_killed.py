"""SIGKILL at random moments of training and sampling, then the same command: nothing is lost."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
CODE = "import sys; from anyorder.cli import main; sys.exit(main())"


def start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def finish(words: list[str]) -> float:
    """Run to the end; how long it took."""
    started = time.perf_counter()
    process = start(words)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()
    return time.perf_counter() - started


def kill_a_few_times(words: list[str], whole: float, seed: int) -> int:
    """How many of the attempts were killed before they ended."""
    chance, killed = random.Random(seed), 0
    for _ in range(4):
        process = start(words)
        try:
            process.wait(timeout=whole * chance.uniform(0.4, 1.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
    return killed


def metrics(folder: Path) -> list[dict[str, object]]:
    timed = {"seconds", "tokens_per_second"}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in timed} for row in rows]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    folder = tmp_path_factory.mktemp("undisturbed") / "mdm"
    return folder, finish([*TRAIN, "--out", str(folder)])


@pytest.mark.long
def test_killed_training_equals_undisturbed(model: tuple[Path, float], tmp_path: Path) -> None:
    undisturbed, whole = model
    words = [*TRAIN, "--out", str(tmp_path / "mdm")]
    assert kill_a_few_times(words, whole, seed=1) >= 1
    finish(words)
    for name in ("model.safetensors", "config.json", "vocabulary.json"):
        assert (tmp_path / "mdm" / name).read_bytes() == (undisturbed / name).read_bytes()
    assert metrics(tmp_path / "mdm") == metrics(undisturbed)


@pytest.mark.long
def test_killed_sampling_equals_undisturbed(model: tuple[Path, float], tmp_path: Path) -> None:
    def words(out: str) -> list[str]:
        return [
            "sample",
            str(model[0]),
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

    whole = finish(words("undisturbed"))
    assert kill_a_few_times(words("killed"), whole, seed=2) >= 1
    finish(words("killed"))
    columns = [
        name for name in Run.open(tmp_path / "killed").table().column_names if name != "seconds"
    ]
    left = Run.open(tmp_path / "undisturbed").table(columns)
    assert left.equals(Run.open(tmp_path / "killed").table(columns))
    assert left.num_rows == 60
