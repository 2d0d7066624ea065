"""docs/scale.md: its tables are those of the script, and its commands are commands."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

from anyorder.apps.dry_run import find_gpu
from anyorder.cli.models import TrainFlags
from anyorder.cli.parsing import parse
from anyorder.cli.runs import GradeFlags
from anyorder.cli.sample import sample_flags
from anyorder.recipes import find_recipe

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
BASH = re.findall(r"```bash\n(.*?)```", PAGE, re.S)


def commands() -> list[list[str]]:
    """The words after `anyorder` of every command on the page."""
    found = []
    for block in BASH:
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "anyorder" in words:
                found.append(words[words.index("anyorder") + 1 :])
    return found


def test_there_are_commands_for_one_eight_and_sixteen() -> None:
    verbs = {words[0] for words in commands()}
    assert verbs == {"train", "sample", "grade"}
    assert "--nnodes 2 --nproc-per-node 8" in PAGE and "#SBATCH --job-name=sample --array" in PAGE


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_understood(words: list[str]) -> None:
    verb, *rest = words
    flags: dict[str, Any] = {"sample": sample_flags(), "grade": GradeFlags}
    if verb == "train":
        recipe, *rest = rest
        assert parse(TrainFlags, verb, rest, default=TrainFlags(find_recipe(recipe)))
    else:
        assert parse(flags[verb], verb, rest)


def test_the_numbers_are_those_of_the_script() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "dry_runs.py"))
    assert script["sizes"](find_gpu("h100")) in PAGE
    assert script["refusals"](find_gpu("h100")) in PAGE
