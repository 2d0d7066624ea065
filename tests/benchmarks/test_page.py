"""The page of benchmarks: every script is on it, a failure costs nothing but is told."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = '''"""What it measures.

More about it.
"""

import sys

DOMINATES = """
Nothing does.
"""
print("| a | b |\\\\n|---|---:|\\\\n| x |", *sys.argv[1:], "|")
'''
BROKEN = SCRIPT + 'sys.exit("no such thing")\n'


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("page")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(SCRIPT)
    (tmp_path / "bad.py").write_text(BROKEN)
    return tmp_path


def test_every_script_is_on_the_page_or_a_library(page: ModuleType) -> None:
    found = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert found == page.SCRIPTS.keys() | page.LIBRARIES
    assert not page.SCRIPTS.keys() & page.LIBRARIES


def test_every_script_says_what_it_is_and_what_takes_its_time(page: ModuleType) -> None:
    for name in page.SCRIPTS:
        heading, dominates = page.words_of(ROOT / "benchmarks" / f"{name}.py")
        assert len(heading.split()) >= 4, name
        assert len(dominates.split()) >= 20, name


def test_the_stored_page_is_composed_of_the_stored_results(page: ModuleType) -> None:
    """Whoever changes a script's words, or a result, composes the page again."""
    written = page.PAGE.read_text(encoding="utf-8")
    composed = page.compose(list(page.SCRIPTS), page.HERE, page.RESULTS)
    assert written == composed, "python benchmarks/page.py --compose"


def test_a_section_has_its_command_machine_table_and_words(page: ModuleType, folder: Path) -> None:
    results = folder / "results"
    assert page.run("good", "--rows 3", folder, results) == page.Outcome("good")
    text = page.compose(["good"], folder, results)
    assert text.startswith(page.INTRODUCTION)
    section = text.removeprefix(page.INTRODUCTION)
    order = (
        "## good",
        "What it measures.",
        "`python benchmarks/good.py --rows 3`",
        page.machine(),
        "Load average at the start",
        "| x | --rows 3 |",
        "Nothing does.",
    )
    places = [section.index(part) for part in order]
    assert places == sorted(places)
    assert "More about it" not in section and str(folder) not in section


def test_a_script_that_fails_keeps_its_old_result(page: ModuleType, folder: Path) -> None:
    results = folder / "results"
    results.mkdir()
    (results / "bad.md").write_text("the old table\n")
    outcome = page.run("bad", "", folder, results)
    assert outcome.name == "bad" and "no such thing" in outcome.error
    assert "the old table" in page.compose(["bad"], folder, results)
    assert "Not run yet." in page.compose(["good"], folder, results)


def test_a_failure_is_told_and_the_others_run(
    page: ModuleType,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(page, "SCRIPTS", {"bad": "", "good": ""})
    monkeypatch.setattr(page, "HERE", folder)
    monkeypatch.setattr(page, "RESULTS", folder / "results")
    monkeypatch.setattr(page, "PAGE", folder / "page.md")
    monkeypatch.setattr(sys, "argv", ["page.py"])
    assert page.main() == 1
    shown = capsys.readouterr().out
    assert "bad failed" in shown and "no such thing" in shown and "1 of 2 scripts ran" in shown
    assert "| x |" in (folder / "page.md").read_text()
    monkeypatch.setattr(sys, "argv", ["page.py", "good"])
    assert page.main() == 0
    monkeypatch.setattr(sys, "argv", ["page.py", "unheard"])
    with pytest.raises(SystemExit, match="2"):
        page.main()


def test_a_busy_machine_is_said_aloud(page: ModuleType) -> None:
    before = page.Clock(wall=0.0, cores=100.0, own=5.0)
    cores = page.os.cpu_count() or 1
    after = page.Clock(wall=10.0, cores=100.0 + 10.0 + 5.0 * cores, own=15.0)
    assert after.share_of_others(before) == pytest.approx(0.5)
    assert "**The machine was busy.**" in page._load(3.0, 0.5)
    assert "busy" not in page._load(0.5, 0.02)
    assert page._load(0.5, None) == "Load average at the start: 0.5."


def test_a_table_is_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tables = importlib.import_module("tables")
    assert tables.table(["", "CPU s"], [["ours", "1.50"], ["a longer name", 12]]).splitlines() == [
        "|               | CPU s |",
        "| ------------- | ----: |",
        "| ours          |  1.50 |",
        "| a longer name |    12 |",
    ]
