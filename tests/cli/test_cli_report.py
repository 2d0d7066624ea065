"""`anyorder report`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyorder.cli import main

TOKENS = ["def f(a):", "\n", "    b = a", "\n", "    return b", "\n"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [
        json.dumps(
            {
                "task_id": f"t{task}",
                "sample": 0,
                "prompt": "",
                "tokens": TOKENS,
                "insert_step": [0] * 6,
                "reveal_step": [1, 4, 2, 5, 3, 6],
                "policy": "confidence",
            }
        )
        for task in range(3)
    ]
    (tmp_path / "theirs.jsonl").write_text("\n".join(lines))
    assert main(["import", str(tmp_path / "theirs.jsonl"), "--out", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def test_a_report_of_an_imported_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    out = run.parent / "pages" / "mine.html"
    assert main(["report", str(run), "--out", str(out), "--title", "Theirs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == str(out) and found["samples"] == 3
    assert "<h1>Theirs</h1>" in out.read_text(encoding="utf-8")
    files = {Path(name) for name in found["figures"]}
    assert files == set((out.parent / "mine_figures").iterdir())
    assert {path.suffix for path in files} == {".png", ".pdf"}
    assert any("--placement" in c for each in found["absent"] for c in each["commands"])


def test_figures_can_be_left_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run.parent / "plain.html"
    assert main(["report", str(run), "--out", str(out), "--no-figures"]) == 0
    assert not (run.parent / "plain_figures").exists()
    told = capsys.readouterr().out
    assert str(out) in told and "not in it: How often is the program right?" in told


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["nothing"], 1, "not a folder"),
        (["RUN", "RUN"], 1, "named twice"),
        (["RUN", "--out", "page.txt"], 2, ".html"),
        ([], 2, ""),
    ],
)
def test_mistakes(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    filled = [str(run) if word == "RUN" else word for word in words]
    assert main(["report", *filled]) in (code, 1)
    assert says in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    told = capsys.readouterr().out
    assert "anyorder report runs/" in told and "--no-figures" in told
