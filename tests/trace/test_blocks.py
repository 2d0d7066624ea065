"""The block of each token: by the trace's column, else by the run card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.blocks import BlockRule


def trace(steps: list[int], sample: int = 0, **changes: Any) -> Trace:
    ends = np.arange(1, len(steps) + 1)
    columns = {"char_end": ends, "insert_step": [0] * len(steps), "reveal_step": steps}
    text = "x" * len(steps)
    about = {"task_id": "t", "sample": sample, "prompt": "", "text": text, "steps": max(steps)}
    return Trace(**{**about, **columns, **changes})


def a_run(folder: Path, traces: list[Trace], config: dict[str, Any]) -> Run:
    run = Run.create(folder, RunCard(command="test", config=config))
    run.append(0, traces)
    run.finish()
    return run


def test_the_run_card_counts_free_slots(tmp_path: Path) -> None:
    """Given slots (step 0) are in no block, and do not count."""
    own = trace([2, 0, 1, 4, 0, 3, 5])
    rule = a_run(tmp_path / "run", [own], {"options": {"block": 2}}).blocks()
    assert rule is not None
    assert rule.tokens(own).tolist() == [0, -1, 0, 1, -1, 1, 2]
    assert rule.generated(own).tolist() == [0, 0, 1, 1, 2]
    assert rule.largest(own) == 2


@pytest.mark.parametrize(
    ("origin", "blocks"),
    [
        ("absolute", [0, 1, 1, 1, 2, 2, 2]),  # the prompt has two tokens
        ("after_prompt", [0, 0, 0, 1, 1, 1, 2]),
        ("left_padded", [0, 0, 0, 1, 1, 1, 2]),
    ],
)
def test_a_grid_counts_all_slots(tmp_path: Path, origin: str, blocks: list[int]) -> None:
    ids = {"prompt_ids": [7, 7], "token_ids": [1] * 7}
    own = trace([2, 0, 1, 4, 0, 3, 5], **ids)
    options = {"block": 3, "origin": origin}
    rule = a_run(tmp_path / "run", [own], {"options": options}).blocks()
    assert rule is not None
    assert rule.tokens(own).tolist() == blocks


def test_the_column_comes_first(tmp_path: Path) -> None:
    own = trace([1, 3, 2, 4], block=[0, 1, 1, 1])
    rule = a_run(tmp_path / "run", [own], {"options": {"block": 2}}).blocks()
    assert rule is not None
    assert rule.tokens(own).tolist() == [0, 1, 1, 1]
    assert BlockRule().if_several([own]) == BlockRule()


@pytest.mark.parametrize("options", [{}, {"block": None}, {"block": 4}, {"block": 9}])
def test_one_block_is_none(tmp_path: Path, options: dict[str, Any]) -> None:
    run = a_run(tmp_path / "run", [trace([1, 2, 4, 3])], {"options": options})
    assert run.blocks() is None
    assert BlockRule().if_several(run.traces()) is None


def test_one_sample_with_two_blocks_makes_a_run_with_blocks(tmp_path: Path) -> None:
    short, long = trace([1, 2]), trace([1, 2, 4, 3], sample=1)
    text_only = Trace(task_id="t", sample=2, prompt="", text="x")
    rule = a_run(tmp_path / "run", [text_only, short, long], {"options": {"block": 2}}).blocks()
    assert rule is not None
    assert rule.tokens(short).tolist() == [0, 0]
    assert rule.tokens(text_only).tolist() == rule.generated(text_only).tolist() == []


def test_a_run_without_options_has_the_blocks_of_its_column(tmp_path: Path) -> None:
    """Such as an imported one."""
    bare, told = trace([1, 2]), trace([1, 2, 3], sample=1, block=[0, 0, 1])
    rule = a_run(tmp_path / "run", [bare, told], {}).blocks()
    assert rule is not None
    assert rule.tokens(bare).tolist() == [0, 0]
    assert rule.tokens(told).tolist() == [0, 0, 1]
