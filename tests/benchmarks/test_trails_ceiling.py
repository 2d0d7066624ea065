"""The ceiling of similarity on trails: one program without freedom, and it falls with the dials."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from anyorder.data.corpora.trails import TrailsConfig

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("trails_ceiling")


def test_the_ceiling_falls_with_shape_and_lines(script: ModuleType) -> None:
    strict = TrailsConfig()

    def nearest(**dials: float) -> dict[str, float]:
        row = script.ceiling(replace(strict, **dials), problems=12, draws=9, threads=1)
        assert (row.prompts, row.samples) == (12, 12 * 9)
        return {metric: score.estimate for metric, score in row.nearest.items()}

    alone = nearest()
    lines, shape, both = nearest(lines=0.4), nearest(shape=1.0), nearest(lines=0.4, shape=1.0)
    for metric in script.METRICS:
        assert alone[metric] == 1
        assert lines[metric] < 0.97 and shape[metric] < 0.97
        assert both[metric] < min(lines[metric], shape[metric]) - 0.02
    assert nearest(wording=1.0) == alone  # words are no part of these programs
