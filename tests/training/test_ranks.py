"""Several processes train what one would: from the same weights, over any number of resumptions.

All families: test_ranks_long.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch

from anyorder.model import load
from anyorder.training.processes import Ranks, joined, launched

CLOSE = 1e-9
"""In float64, after 10 steps: only the order of sums differs."""


@pytest.fixture(scope="module")
def runs(ranks: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mdm in one process and in two, and runs that change between them half-way."""
    root = tmp_path_factory.mktemp("ranks")
    ranks.train(ranks.job("tiny/mdm", root / "mdm-1"))
    shutil.copytree(root / "mdm-1", root / "mdm-1-2")
    shutil.rmtree(ranks.newest(root / "mdm-1-2"))
    first_step = ranks.job("tiny/mdm", root / "mdm-2-2", minutes=1e-9)
    ranks.run(
        2,
        [
            ranks.job("tiny/mdm", root / "mdm-2"),
            ranks.job("tiny/mdm", root / "mdm-1-2"),
            first_step,
            ranks.job("tiny/mdm", root / "mdm-2-2"),
        ],
    )
    shutil.copytree(root / "mdm-2", root / "mdm-2-1")
    shutil.rmtree(ranks.newest(root / "mdm-2-1"))
    ranks.train(ranks.job("tiny/mdm", root / "mdm-2-1"))
    return root


def test_two_processes_equal_one(ranks: ModuleType, runs: Path) -> None:
    one, two = runs / "mdm-1", runs / "mdm-2"
    assert ranks.distance(one, two) < CLOSE
    ranks.assert_same_metrics(one, two)
    exported, beside = load(one).net.state_dict(), load(two).net.state_dict()
    for name, value in exported.items():
        torch.testing.assert_close(value, beside[name], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("change", ["1-2", "2-1", "2-2"])
def test_a_checkpoint_of_any_number_goes_on_in_any_other(
    ranks: ModuleType, runs: Path, change: str
) -> None:
    assert ranks.distance(runs / "mdm-1", runs / f"mdm-{change}") < CLOSE
    ranks.assert_same_metrics(runs / "mdm-1", runs / f"mdm-{change}")


def test_every_process_writes_its_rows(ranks: ModuleType, runs: Path) -> None:
    folder = ranks.newest(runs / "mdm-2")
    state = json.loads((folder / "state.json").read_text())
    assert (state["format"], state["parts"]) == (2, 2)
    assert set(state["files"]) == {path.name for path in folder.iterdir()} - {"state.json"}
    sizes = [(folder / f"model-0000{n}-of-00002.safetensors").stat().st_size for n in (0, 1)]
    assert max(sizes) < 1.2 * min(sizes), "half of the weights each"
    whole = json.loads((ranks.newest(runs / "mdm-2-1") / "state.json").read_text())
    assert whole["format"] == 1, "one process writes what it always wrote"


@pytest.mark.parametrize("name", ["model-00001", "ema-00000", "optimiser-00001"])
def test_a_damaged_part_is_refused_by_name(
    ranks: ModuleType, runs: Path, tmp_path: Path, name: str
) -> None:
    out = Path(shutil.copytree(runs / "mdm-2", tmp_path / "run"))
    part = ranks.newest(out) / f"{name}-of-00002.safetensors"
    content = bytearray(part.read_bytes())
    content[-3] ^= 1
    part.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}-of-00002.*recorded sha256.*go on from step-"):
        ranks.train(ranks.job("tiny/mdm", out))


def test_micro_batches_are_dealt_out() -> None:
    dealt = [Ranks(rank, 3).micro_batches(6) for rank in range(3)]
    assert sorted(number for part in dealt for number in part) == list(range(6))
    with pytest.raises(ValueError, match=r"multiple of 4, such as accumulate=8"):
        Ranks(1, 4).micro_batches(6)
    with pytest.raises(ValueError, match=r"one GPU for .* processes: give device=cuda"):
        Ranks(1, 4).device("cuda:1")


def test_half_an_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched() == Ranks()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(
        ValueError, match=r"not .*MASTER_ADDR.*: start several processes with torch"
    ):
        launched()


def test_gpus_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before processes wait for each other."""
    names = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    for name in (*names, "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "99")
    with pytest.raises(ValueError, match="device 'cuda:99' cannot be used here"), joined("cuda"):
        pass
