"""docs/lm_eval.md keeps its word: its commands run offline and give the numbers it shows."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from marked_blocks import SECONDS, run_pages

PAGE = Path(__file__).parents[2] / "docs" / "lm_eval.md"


@pytest.mark.long
@pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-eval is not installed")
@pytest.mark.timeout(SECONDS + 60)
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (outcome,) = run_pages([PAGE], tmp_path).values()
    assert outcome.complaint is None, outcome.complaint
