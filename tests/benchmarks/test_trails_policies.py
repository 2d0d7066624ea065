"""Which cells the policies of trails are compared in: block sizes for models that have blocks."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import anyorder
from anyorder.cli import main

ROOT = Path(__file__).resolve().parents[2]
SMALL = "--steps 2 --warmup 1 --batch 4 --threads 1 --validate-every 0 --net.layers 1"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("trails_policies")


def test_block_sizes_of_a_model_with_blocks(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tmp_path / "tiny")
    assert main(f"train trails/block {SMALL} --out {model}".split()) == 0
    ways = script.ways_of(anyorder.load(model), script.BLOCKS)
    assert [way.block for way in ways] == ["1", *["4"] * 4, *["16"] * 4, *["canvas"] * 4]
    assert ways[-1].options(anyorder.load(model)) == {"policy": "random", "block": 39}
    given = argparse.Namespace(
        models=[model], blocks=["1", "canvas"], conditions=["free"], problems=4, batch=4
    )
    capsys.readouterr()
    script.print_cells(script.compare(given, tmp_path / "runs"))
    printed = capsys.readouterr().out
    first, second = printed.split("difference from the block 1, paired")
    assert first.count(model) == 1 + 4 and second.count(model) == 4


def test_others_have_policies_only(script: ModuleType) -> None:
    ways = script.ways_of(anyorder.load("trails/mdm"), script.BLOCKS)
    assert [way.policy for way in ways] == ["confidence", *script.FIXED]
    assert script.ways_of(anyorder.load("trails/ar"), script.BLOCKS) == [script.Way()]
    with pytest.raises(argparse.ArgumentTypeError, match="give a number from 1 on, or canvas"):
        script.block_size("0")
