"""Every family and every way of dividing a network: several processes train what one would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
"""The first test waits for all trainings, on machines that may be busy."""

CLOSE = 1e-9
FAMILIES = ("ar", "mdm", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm")
WAYS: dict[str, dict[str, Any]] = {
    "none": {"shard": "none"},
    "micro": {"reduce": "micro"},
    "recompute": {"recompute": True},
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "prefix_lm": ("latentmdm", {"net__attention": "prefix_lm", "recompute": True}),
    "dit": ("sflm", {"net__architecture": "dit", "recompute": True}),
    "on-mdm": ("flexmdm", {"start": "mdm"}),
    "planner": ("planner", {"start": "mdm"}),
    "lora": ("flexmdm", {"start": "mdm", "lora": 2, "recompute": True}),
}
"""Networks that call their layers otherwise, and such as begin with a trained one."""


def other_jobs(ranks: ModuleType, alone: Path, root: Path) -> list[dict[str, Any]]:
    return [
        ranks.job(f"tiny/{recipe}", root / name, **changes | (
            {"start": str(alone / changes["start"])} if "start" in changes else {}
        ))
        for name, (recipe, changes) in OTHERS.items()
    ]  # fmt: skip


@pytest.fixture(scope="module")
def alone(ranks: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything in one process."""
    root = tmp_path_factory.mktemp("alone")
    for family in FAMILIES:
        ranks.train(ranks.job(f"tiny/{family}", root / family))
    for work in other_jobs(ranks, root, root):
        ranks.train(work)
    return root


@pytest.fixture(scope="module")
def two(ranks: ModuleType, alone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in two processes, one after the other in one group."""
    root = tmp_path_factory.mktemp("two")
    jobs = [ranks.job(f"tiny/{family}", root / family) for family in FAMILIES]
    jobs += [
        ranks.job(f"tiny/{family}", root / f"{family}-{way}", **changes)
        for family in ("flexmdm", "latentmdm")
        for way, changes in WAYS.items()
    ]
    ranks.run(2, jobs + other_jobs(ranks, alone, root))
    return root


@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS])
def test_two_processes_equal_one(ranks: ModuleType, alone: Path, two: Path, name: str) -> None:
    assert ranks.distance(alone / name, two / name) < CLOSE
    ranks.assert_same_metrics(alone / name, two / name)
    weights = [load_file(root / name / "model.safetensors") for root in (alone, two)]
    assert weights[0].keys() == weights[1].keys(), "adapters are merged"
    for key, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][key], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", ["flexmdm", "latentmdm"])
def test_every_way_of_dividing(
    ranks: ModuleType, alone: Path, two: Path, family: str, way: str
) -> None:
    assert ranks.distance(alone / family, two / f"{family}-{way}") < CLOSE


def test_hybrid_over_machines(ranks: ModuleType, alone: Path, tmp_path: Path) -> None:
    """Four processes that believe to be two on each of two machines; then one alone goes on."""
    ranks.run(
        4,
        [ranks.job(f"tiny/{family}", tmp_path / family, shard="hybrid", reduce=how)
         for family, how in (("mdm", "step"), ("latentmdm", "micro"))],
        LOCAL_WORLD_SIZE="2",
    )  # fmt: skip
    state = json.loads((ranks.newest(tmp_path / "mdm") / "state.json").read_text())
    assert state["parts"] == 2, "machines have the same: one of them writes"
    for family in ("mdm", "latentmdm"):
        assert ranks.distance(alone / family, tmp_path / family) < CLOSE
    shutil.rmtree(ranks.newest(tmp_path / "mdm"))
    ranks.train(ranks.job("tiny/mdm", tmp_path / "mdm"))
    assert ranks.distance(alone / "mdm", tmp_path / "mdm") < CLOSE


def test_muon_trains_whole_matrices_only(ranks: ModuleType, tmp_path: Path) -> None:
    """With whole weights two processes train what one does; divided ones are refused by name."""
    muon = {"optimiser": "muon", "shard": "none"}
    ranks.train(ranks.job("tiny/latentmdm", tmp_path / "one", **muon))
    ranks.run(2, [ranks.job("tiny/latentmdm", tmp_path / "two", **muon)])
    # Newton-Schulz multiplies errors of small singular values, so sums in another order show more.
    assert ranks.distance(tmp_path / "one", tmp_path / "two") < 1e3 * CLOSE
    refused = ranks.job("tiny/mdm", tmp_path / "full", optimiser="muon")
    ended = ranks.finish(ranks.start(2, [ranks.__file__, json.dumps([refused])]))
    assert any("optimiser=muon needs whole matrices" in said for _, said in ended)
    assert all(code != 0 for code, _ in ended)


HALF = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
"""Some machines say that they multiply bfloat16 in hardware, and cannot."""
TRACED = {"ANYORDER_TEST_BACKEND": "aot_eager"}


def test_bfloat16_and_compiled_layers(ranks: ModuleType, tmp_path: Path) -> None:
    """The weights stay float32, and what is learned is about the same."""
    small = {"steps": 4, "net__layers": 1}
    ways: dict[str, dict[str, Any]] = {
        "plain": {"dtype": "float32"},
        "sharded": {"dtype": "bfloat16"},
        "whole": {"dtype": "bfloat16", "shard": "none"},
        "compiled": {"dtype": "float32", "compile": True, "recompute": True},
    }
    jobs = [ranks.job("tiny/mdm", tmp_path / way, **small | ways[way]) for way in ways]
    ranks.run(2, jobs, **HALF | TRACED)
    gaps = {way: ranks.distance(tmp_path / "plain", tmp_path / way) for way in ways}
    assert gaps["compiled"] < 1e-5
    for way in ("sharded", "whole"):
        assert 0 < gaps[way] < 2e-2
        kinds = {value.dtype for value in load_file(tmp_path / way / "model.safetensors").values()}
        assert kinds == {torch.float32}


def torchrun(*words: str) -> list[str]:
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 -m anyorder train tiny/mdm"
    small = "--net.width 16 --net.layers 1 --net.heads 2 --batch 8 --warmup 2 --threads 1"
    return [sys.executable, *launcher.split(), *small.split(), *words]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def test_torchrun_from_the_command_line(tmp_path: Path) -> None:
    out = str(tmp_path / "model")
    done = subprocess.run(
        torchrun("--steps", "6", "--accumulate", "2", "--out", out, "--json"),
        env=environment(), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "in 2 processes" in done.stderr
    assert done.stderr.count("Training ") == 1, "rank 0 speaks for all"
    assert json.loads(done.stdout)["step"] == 6, "one document"


def test_accumulate_must_fit_the_processes(ranks: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "model"
    words = f"train tiny/mdm --steps 6 --warmup 2 --accumulate 1 --out {out}"
    ended = ranks.finish(ranks.start(2, ["-m", "anyorder", *words.split()]))
    assert [code for code, _ in ended] == [1, 1]
    said = "".join(text for _, text in ended)
    assert said.count("give a multiple of 2, such as accumulate=2") == 1, "one speaks for all"
    assert not out.exists(), "nothing is left behind"


def wait_for(found: Callable[[], bool], processes: list[subprocess.Popen[str]]) -> None:
    """Until something is there; processes that have ended will not bring it any more."""
    deadline = time.monotonic() + 240
    while not found() and all(process.poll() is None for process in processes):
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.05)


def test_all_end_together(ranks: ModuleType, tmp_path: Path) -> None:
    """Three trainings of one group, one after another: all are asked to stop, each twice, as a
    terminal and torchrun do together; one alone is asked; one dies."""
    names = ("all", "one", "dies")
    endless = {"steps": 100_000, "save_every": 1000, "log_every": 1}
    jobs = [ranks.job("tiny/mdm", tmp_path / name, **endless) for name in names]
    processes = ranks.start(2, [ranks.__file__, json.dumps(jobs)])
    for name in names:
        metrics = tmp_path / name / "metrics.jsonl"
        wait_for(lambda at=metrics: at.exists() and at.stat().st_size > 0, processes)
        if name == "dies":
            processes[1].kill()
            continue
        for process in processes if name == "all" else processes[1:]:
            process.send_signal(signal.SIGINT)
            if name == "all":
                process.send_signal(signal.SIGTERM)
    ended = ranks.finish(processes, 240)
    assert [code for code, _ in ended] == [1, -signal.SIGKILL], ended
    assert ended[0][1].count("Run the same command again") == 2, ended[0][1]
    assert "Stopped on a signal to another process" in ended[0][1]
    assert "a process of this training has ended without a message" in ended[0][1]
    for name in ("all", "one"):
        assert ranks.newest(tmp_path / name).is_dir()


def test_one_bad_process_speaks_for_all(ranks: ModuleType, alone: Path, tmp_path: Path) -> None:
    """Damage that only one of two processes reads: it says so, the other ends with it."""
    out = Path(shutil.copytree(alone / "mdm", tmp_path / "run"))
    path = ranks.newest(out) / "optimiser.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    ended = ranks.finish(ranks.start(2, [ranks.__file__, json.dumps([ranks.job("tiny/mdm", out)])]))
    assert [code for code, _ in ended] == [1, 1]
    said = "".join(text for _, text in ended)
    assert said.count("does not have its recorded sha256") >= 1
    assert "of 2: checkpoint" in said
