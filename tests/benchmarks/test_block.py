"""The benchmark of block decoding: its counts are those of the decoders."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("block")


def test_calls_and_columns_of_every_side(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """16 tokens behind a prompt of 16, on a canvas of 96: columns by hand."""
    script.measure(replace(script.SMALL, repeats=1), few=4)
    rows = re.findall(r"^\| (\S.*?) +\| +([\d.]+) \| +([\d.]+) \|", capsys.readouterr().out, re.M)
    found = {name: (float(calls), float(columns)) for name, calls, columns in rows}
    uncached = sum(4 * (16 + 4 * number) for number in range(1, 5))
    assert found == {
        "block of 4, cached": (pytest.approx(20 / 16), pytest.approx((16 + 76) / 16, abs=0.06)),
        "the same, 2 tokens a step": (pytest.approx(12 / 16), pytest.approx(60 / 16, abs=0.06)),
        "block of 4, uncached": (1, uncached / 16),
        "block of 16, cached": (pytest.approx(17 / 16, abs=0.006), (16 + 16 * 16) / 16),
        "mdm": (1, 96),
        "ar": (1, pytest.approx(31 / 16, abs=0.06)),
    }
