"""Small trainings, and a program that runs some of them in one of several processes.

`run(2, jobs)` starts two processes that train one job after another in one group, as torchrun would
start them: starting costs seconds, a job costs less. Each job is a recipe's name, changes of its
fields, and a folder.
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "net.width": 16,
    "net.layers": 2,
    "net.heads": 2,
    "net.mlp_width": 32,
    "steps": 10,
    "batch": 8,
    "accumulate": 4,
    "warmup": 2,
    "lr": 3e-3,
    "clip": 0.5,
    "ema": 0.9,
    "dtype": "float64",
    "validate_every": 5,
    "validate_batches": 2,
    "save_every": 5,
    "log_every": 2,
    "threads": 1,
}
"""Four micro batches a step, clipping, averaging, validation and two checkpoints."""

BACKEND = "ANYORDER_TEST_BACKEND"
"""What compiles layers in the processes: torch's own writes C++, which takes minutes."""


def job(recipe: str, out: Path, **changes: Any) -> dict[str, Any]:
    names = {name.replace("__", "."): value for name, value in changes.items()}
    return {"recipe": recipe, "changes": SMALL | names, "out": str(out)}


def train(work: dict[str, Any]) -> None:
    """Run a job in this process."""
    from anyorder.apps.train import train_recipe
    from anyorder.recipes import find_recipe, override

    recipe = override(find_recipe(work["recipe"]), work["changes"])
    train_recipe(recipe, Path(work["out"]), progress=False)


def free_port() -> int:
    """Below those that systems give away by themselves, so that nobody takes it in the meantime."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def start(count: int, program: list[str], **environment: str) -> list[subprocess.Popen[str]]:
    """As torchrun does, without its own second of imports."""
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment}
    return [
        subprocess.Popen(
            [sys.executable, *program],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def finish(processes: list[subprocess.Popen[str]], seconds: float = 600) -> list[tuple[int, str]]:
    """Exit code and standard error of each; what does not end by itself is ended."""
    try:
        said = [process.communicate(timeout=seconds)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def run(count: int, jobs: list[dict[str, Any]], **environment: str) -> None:
    """Train in several processes; all must end well."""
    for code, said in finish(start(count, [__file__, json.dumps(jobs)], **environment)):
        assert code == 0, said


def newest(out: Path) -> Path:
    return sorted((out / "checkpoints").glob("step-*"))[-1]


def distance(first: Path, second: Path) -> float:
    """The largest difference between two runs' weights, averages and moments."""
    from anyorder.training.processes import TensorReader

    worst = 0.0
    for stem in ("model", "ema", "optimiser"):
        files = [sorted(newest(out).glob(f"{stem}*.safetensors")) for out in (first, second)]
        with TensorReader(files[0]) as one, TensorReader(files[1]) as other:
            assert one.shapes == other.shapes
            for name in one.shapes:
                gap = (one.rows(name) - other.rows(name)).abs().max()
                worst = max(worst, float(gap))
    return worst


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def assert_same_metrics(first: Path, second: Path) -> None:
    for one, other in zip(rows(first), rows(second), strict=True):
        assert one.keys() == other.keys()
        for name in set(one) - {"kind", "seconds", "tokens_per_second", "levels"}:
            same = one[name] == other[name] or math.isclose(one[name], other[name], rel_tol=1e-6)
            assert same, name


def main(jobs: str) -> None:
    import torch

    from anyorder.training.processes import joined

    if BACKEND in os.environ:
        torch.compile = partial(torch.compile, backend=os.environ[BACKEND])
    with joined("cpu"):
        for work in json.loads(jobs):
            train(work)


if __name__ == "__main__":
    main(sys.argv[1])
