"""The README keeps its word: marked blocks run and show what they promise, links lead somewhere.

A fence that opens with "```python run" or "```bash run" is executed, all of them in order, in one
folder, each in a process of its own: in the quick suite with commands forked from one process
(marked_blocks.py); in the long one by bash, with the environment's programs first on the path.
Python blocks without the mark must at least parse.

A tour whose commands succeed can still show nothing: empty samples, `nan` for a score. So
`check_tour` looks at what was printed and written.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from marked_blocks import SECONDS, Block, blocks, run_pages

from anyorder.trace import Run

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
FULL_SCORE = "0.5 {'left_to_right': 0.1, 'right_to_left': 0.1, 'random': 0.9}"
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


def check_tour(printed: list[str], folder: Path) -> None:
    """What the blocks printed, in order, and the folder they ran in: samples, verdicts, scores."""
    tour, _, python, _ = printed
    assert not re.search(r"\bnan\b", "\n".join(printed), re.IGNORECASE)
    check_samples(tour, folder / "runs")
    check_grades(tour, folder / "runs" / "stories")
    check_measures(tour, folder / "runs")
    assert "4 of 4 samples are identical" in tour and "4 of 4 verdicts are the same" in tour
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")[:1000]
    check_python(python)


def check_samples(tour: str, runs: Path) -> None:
    for pattern in ("stories", "random", "flexmdm-*", "latentmdm-*"):
        (folder,) = runs.glob(pattern)
        texts = [trace.text for trace in Run.open(folder).traces()]
        assert texts and all(text.strip() for text in texts), folder
    # The candidates of latentmdm show empty lines, but indented; an empty sample is a line.
    assert "def solve(" in tour and "\n(empty)\n" not in tour


def check_grades(tour: str, run: Path) -> None:
    verdicts = Run.open(run).verdicts()["verdict"].to_pylist()
    assert len(verdicts) == 4 and "passed" in verdicts
    rate = re.search(r"pass@1 +([\d.]+) %", tour)
    assert rate is not None and float(rate[1]) > 0


def check_measures(tour: str, runs: Path) -> None:
    """A number in every column of the order of both runs; tau tells them apart."""
    rows = re.findall(r"^full_output, overall \(4\)(?: +\d\.\d+){4} *$", tour, re.MULTILINE)
    assert len(rows) == 2
    surest, random = (
        float(value) for value in re.findall(r"^tau +(-?\d\.\d+) ", tour, re.MULTILINE)
    )
    assert surest > 0.5 and abs(random) < 0.3
    for name in ("stories", "random"):
        record = json.loads((runs / name / "measures.json").read_bytes())
        assert {"order", "arness"} <= record.keys()


def check_python(printed: str) -> None:
    """A program, moments of its making, and a finite score with its controls."""
    assert printed.startswith("def solve(")
    scores = [line for line in printed.splitlines() if re.match(r"-?\d+\.\d+ \{", line)]
    assert len(scores) == 1, printed
    mean, controls = scores[0].split(" ", 1)
    values = ast.literal_eval(controls)
    assert set(values) == {"left_to_right", "right_to_left", "random"}
    assert all(math.isfinite(value) for value in (float(mean), *values.values()))


@pytest.mark.timeout(SECONDS + 60)
def test_the_tour_shows_what_it_promises(tmp_path: Path) -> None:
    (outcome,) = run_pages([README], tmp_path).values()
    assert outcome.complaint is None, outcome.complaint
    check_tour(outcome.printed, tmp_path / README.stem)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_marked_blocks_run(tmp_path: Path) -> None:
    printed = []
    marked = [block for block in blocks(README.read_text(encoding="utf-8")) if block.run]
    assert {block.language for block in marked} == {"bash", "python"}
    for block in marked:
        done = execute(block, tmp_path)
        assert done.returncode == 0, (
            f"README.md, the block at line {block.line}:\n{block.code}\n{done.stdout}{done.stderr}"
        )
        printed.append(done.stdout)
    check_tour(printed, tmp_path)


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


@pytest.mark.parametrize("score", ["nan {}", "0.5 {}", "0.5 {'left_to_right': 0.1}"])
def test_a_score_without_controls_is_refused(score: str) -> None:
    check_python(f"def solve(x):\n    return x\n{FULL_SCORE}\n")
    with pytest.raises(AssertionError):
        check_python(f"def solve(x):\n    return x\n{score}\n")
    with pytest.raises(AssertionError):
        check_python(f"(empty)\n{FULL_SCORE}\n")


def test_the_paper_is_named_and_cited() -> None:
    text = README.read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (title,) = re.findall(r"^ *title += \{(.*)\},$", text, re.MULTILINE)
    assert " ".join(text.split()).count(title) == 2 and title in citation
    (authors,) = re.findall(r"author = \{(.*?)\},$", text, re.MULTILINE | re.DOTALL)
    for author in re.split(r"\s+and\s+", authors):
        family, given = author.split(", ")
        assert f"{given} {family}" in " ".join(text.split())
        assert f"{{given-names: {given}, family-names: {family}}}" in citation


def test_the_runner_can_fail(tmp_path: Path) -> None:
    text = "```bash run\nfalse\necho on\n```\n\n```python\nraise\n```\n```python run\n1 / 0\n```\n"
    failing, unmarked, python = blocks(text)
    assert (failing.run, unmarked.run, python.run) == (True, False, True)
    assert python.line == 9
    assert execute(failing, tmp_path).returncode != 0
    assert "ZeroDivisionError" in execute(python, tmp_path).stderr
