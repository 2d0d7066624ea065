"""The demo: its commands do by hand what it does, and its story is told from run folders."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from anyorder.apps.demo import DemoPlan, Measuring, Sampling, demo, do_all, in_terminal
from anyorder.apps.jobs import MeasureJob, SampleJob
from anyorder.cli import VERBS
from anyorder.cli import main as anyorder
from anyorder.recipes.demo import DEMOS, TRAILS, Demo
from anyorder.trace import Run


@pytest.mark.parametrize("story", DEMOS.values(), ids=DEMOS)
def test_all_that_is_measured_is_sampled(story: Demo, tmp_path: Path) -> None:
    plan = DemoPlan(tmp_path, story, problems=5)
    sampled = {each.folder for each in plan.samplings()}
    assert len(sampled) == len(plan.samplings())
    for each in plan.measurings():
        assert {*each.job.runs} <= sampled
        assert each.job.reference is None or each.job.reference in sampled
    assert {tmp_path / name for pair in story.conditions for name in pair} <= sampled
    assert tmp_path / story.example in sampled


@pytest.mark.parametrize("story", DEMOS.values(), ids=DEMOS)
def test_every_command_is_one_of_ours(story: Demo, tmp_path: Path) -> None:
    for line in DemoPlan(tmp_path, story, problems=5).commands():
        program, verb, *_ = shlex.split(line)
        assert (program, verb in VERBS) == ("anyorder", True)


def test_sentences_lose_their_marks() -> None:
    told = in_terminal("**Right.** [[MDM]] solves 5 of `stories`, [[tau|Kendall's tau]] 1.")
    assert told.plain == "Right. MDM solves 5 of stories, Kendall's tau 1."
    assert [(span.start, span.end) for span in told.spans if span.style == "bold"] == [(0, 6)]


@pytest.mark.timeout(300)
def test_an_error_in_a_process_is_told(tmp_path: Path) -> None:
    good = Sampling(SampleJob(model="ar", task="stories", limit=2, out=tmp_path / "ar"), {})
    bad = Measuring(MeasureJob(runs=(tmp_path / "nothing",)))
    with pytest.raises(ValueError, match="nothing"):
        do_all([good, bad], "testing", shown=False)


def test_an_unknown_story_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no demo on 'trial': choose one of trails, stories"):
        demo(tmp_path, task="trial", problems=2, quiet=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_story_of_trails_is_by_anchor_and_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = demo(tmp_path / "demo", problems=4)
    said = capsys.readouterr().out
    for heading in ("by the place", "In which order", "What does free layout cost?"):
        assert heading in said
    assert "…" not in said, "every table fits into a terminal of 80 columns"
    names = {run.name for run in TRAILS.runs}
    assert set(found["runs"]) == names
    strict = Run.open(tmp_path / "demo" / "mdm-confidence-strict")
    assert strict.card.config["task"] == "trails:strict"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demo_and_one_of_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("runs/demo")
    found = demo(out, task="stories", problems=3, quiet=True)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert found["report"] == str(out / "report.html")
    assert found["summary"]
    assert all(name in page for name in ("FlexMDM", "LatentMDM", "anyorder sample mdm"))
    lines = (out / "commands.sh").read_text(encoding="utf-8").splitlines()
    line = next(each for each in lines if "flexmdm-insertion-0.6" in each and "sample" in each)
    words = shlex.split(line)[1:]
    words[words.index("--out") + 1] = "runs/again"
    assert anyorder(words) == 0
    mine, theirs = Run.open("runs/again"), Run.open(out / "flexmdm-insertion-0.6")
    # All but how long it took.
    assert [(each.text, list(each.order())) for each in mine.traces()] == [
        (each.text, list(each.order())) for each in theirs.traces()
    ]
