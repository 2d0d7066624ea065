"""What every test may use: one thread per process, and the real data files where there are any."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """`data_file(name)` is a file of the data folder; the test is skipped where it is absent."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("ANYORDER_DATA", beside))

    def find(name: str) -> Path:
        if not (folder / name).is_file():
            pytest.skip(f"no {name} in the data folder: set ANYORDER_DATA to where it is")
        return folder / name

    return find
