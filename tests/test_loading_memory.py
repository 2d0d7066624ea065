"""Loading takes the weights and little more: measured in a process that does nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import made_checkpoints as made
import pytest
import torch

import anyorder

MEASURE = """
import sys
import torch
import anyorder

def peak():
    lines = open("/proc/self/status").read().splitlines()
    table = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(table["VmHWM"]) * 1024, int(table["VmRSS"]) * 1024

warm, *folders = sys.argv[1:]
anyorder.load(warm)  # what any load brings in once: code, the tokenizer's library
before = peak()[1]
model = anyorder.load(folders[0], dtype=sys.stdin.read() or None)
size = sum(p.numel() * p.element_size() for p in model.net.parameters())
print(size, peak()[0] - before)
"""


def measure(warm: Path, folder: Path, dtype: str = "") -> tuple[int, int]:
    """Bytes of the weights in memory, and how far the process grew at most."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(warm), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        input=dtype,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    size, grown = map(int, done.stdout.split())
    return size, grown


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small Dream folder, and one with 152,064 rows, stored in bfloat16 in two shards."""
    root = tmp_path_factory.mktemp("memory")
    made.dream(root / "small")
    rows, width = 152_064, 256
    shapes = made.qwen_shapes(rows=rows, width=width)
    tensors = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    config = made.dream_config(vocab_size=rows, hidden_size=width)
    made.write_folder(root / "large", config, tensors, shards=2)
    made.write_tokenizer(root / "large", merges=True)
    return root / "small", root / "large"


@pytest.mark.skipif(sys.platform != "linux", reason="the measure reads /proc")
@pytest.mark.parametrize("dtype", ["", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_the_peak_is_below_one_fifth_more_than_the_weights(
    folders: tuple[Path, Path], dtype: str
) -> None:
    """Of these weights half are one tensor: to read it whole would take half as much more."""
    size, grown = measure(*folders, dtype)
    assert size > (150 if dtype else 300) * 10**6
    assert size * 0.9 < grown < size * 1.2, f"{grown / size:.2f} of the weights"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the measure reads /proc")
def test_our_own_folders_take_no_more(folders: tuple[Path, Path], tmp_path: Path) -> None:
    anyorder.load(folders[0]).save(tmp_path / "small")
    anyorder.load(folders[1]).save(tmp_path / "large")
    size, grown = measure(tmp_path / "small", tmp_path / "large")
    assert size * 0.9 < grown < size * 1.2, f"{grown / size:.2f} of the weights"
