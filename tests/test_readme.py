"""The README keeps its word: blocks marked `run` are run, and its links lead somewhere.

A fence that opens with "```python run" or "```bash run" is executed: in the quick suite with the
pages of test_docs.py, whose commands are forked from one process; in the long one here, by bash,
with the environment's programs first on the path. All of them run in order in one folder of their
own, each in a process of its own. Python blocks without the mark must at least parse.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from marked_blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
BLOCK_SECONDS = 240  # each takes under 20 on an idle core


def execute(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one block in `folder`, with this interpreter's programs first on the path."""
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if block.language == "python":
        command = [sys.executable, "-c", block.code]
    else:
        assert block.language == "bash", f"line {block.line}: cannot run {block.language!r}"
        command = ["bash", "-euo", "pipefail", "-c", block.code]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BLOCK_SECONDS,
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_marked_blocks_run(tmp_path: Path) -> None:
    marked = [block for block in blocks(README.read_text(encoding="utf-8")) if block.run]
    assert {block.language for block in marked} == {"bash", "python"}
    for block in marked:
        done = execute(block, tmp_path)
        assert done.returncode == 0, (
            f"README.md, the block at line {block.line}:\n{block.code}\n{done.stdout}{done.stderr}"
        )


def test_python_blocks_parse() -> None:
    for block in blocks(README.read_text(encoding="utf-8")):
        if block.language == "python":
            compile(block.code, f"README.md line {block.line}", "exec")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    targets = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    dead = [name for name in targets if "://" not in name and not (ROOT / name).exists()]
    assert not dead


def test_the_map_names_every_room() -> None:
    text = README.read_text(encoding="utf-8")
    package = ROOT / "src" / "anyorder"
    rooms = [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    modules = [path.name for path in package.glob("*.py") if not path.name.startswith("_")]
    assert rooms
    assert [name for name in rooms + modules if name not in text] == []


def test_the_runner_can_fail(tmp_path: Path) -> None:
    text = "```bash run\nfalse\necho on\n```\n\n```python\nraise\n```\n```python run\n1 / 0\n```\n"
    failing, unmarked, python = blocks(text)
    assert (failing.run, unmarked.run, python.run) == (True, False, True)
    assert python.line == 9
    assert execute(failing, tmp_path).returncode != 0
    assert "ZeroDivisionError" in execute(python, tmp_path).stderr
