"""The player's files: small, complete, on their own, and without a word to the network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anyorder.report import player
from anyorder.report.traces import TraceGroup
from anyorder.trace import Run, RunCard

FOLDER = Path(player.__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.js"))
MOST_LINES = 400

# An address in a namespace is a name and asks for nothing.
NAMESPACE = "http://www.w3.org/2000/svg"


def test_every_file_is_used() -> None:
    assert {path.name for path in SCRIPTS} == set(player.SCRIPTS)
    assert {path.name for path in FOLDER.glob("*.css")} == set(player.STYLES)
    for path in SCRIPTS:
        assert path.read_text(encoding="utf-8") in player.script()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_what_it_is_and_is_small(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("// ")
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 110


def test_nothing_is_fetched_and_nothing_can_end_the_element() -> None:
    script, style = player.script().replace(NAMESPACE, ""), player.style()
    for text in (script, style):
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttp|import\(", text)
        assert "</" not in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|document\.write", script)


def test_only_one_name_is_defined() -> None:
    assert player.script().startswith("(() => {")
    assert re.findall(r"window\.(\w+) = ", player.script()) == ["AnyorderPlayer"]


def test_the_page_of_the_docs_can_be_made(
    groups: list[TraceGroup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "player.md"
    (snippet,) = re.findall(r"```python\n(.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    run = Run.create(tmp_path / "runs" / "stories", RunCard(command="", config={}))
    run.append(0, groups[0].traces)
    run.finish()
    monkeypatch.chdir(tmp_path)
    made: dict[str, str] = {}
    exec(snippet, made)
    assert "AnyorderPlayer.create(" in made["page"]
    assert '"my run"' in made["page"]
