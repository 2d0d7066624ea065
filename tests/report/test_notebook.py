"""What a notebook shows: the canvas and the player of a trace, the answer and numbers of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from made_traces import ar, flexmdm, mdm, trace_of

from anyorder.report import notebook
from anyorder.report.traces import TraceGroup, pack
from anyorder.trace import Run, RunCard, Trace

HOSTILE = trace_of(
    ["</script>", "<b>", '"&quot;', "]]>"], [4, 1, 3, 2], task_id="<i>", prompt="'", family="mdm"
)


def frame_of(html: str) -> str:
    (page,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"', html)
    return unescape(page)


def static_of(html: str) -> str:
    return html.partition("<iframe")[0]


@pytest.mark.parametrize("trace", [mdm(), flexmdm(), ar(), HOSTILE], ids=lambda each: each.family)
def test_a_trace_is_its_canvas_at_some_steps_and_its_player(trace: Trace) -> None:
    html = trace._repr_html_()
    page = frame_of(html)
    (payload,) = re.findall(r'id="traces">([^<]*)</script>', page)
    code = trace.entry_point is not None
    assert json.loads(payload) == pack([TraceGroup("mdm", [trace], code=code)], trees=code) | {
        "groups": [{"run": trace.family, "family": trace.family, "policy": trace.policy}]
    }
    rows = re.findall(r'<th scope="row">(\d+)</th><td><pre[^>]*>(.*?)</pre>', html, re.DOTALL)
    steps = [int(step) for step, _ in rows]
    assert steps[0] == 0 and steps[-1] == trace.steps and len(steps) <= 5
    for step, shown in rows:
        assert unescape(shown) == trace.replay(int(step)).text()


def test_texts_cannot_break_out() -> None:
    html = HOSTILE._repr_html_()
    assert "<b>" not in static_of(html) and "<i>" not in static_of(html)
    assert "</script>" not in static_of(html)
    assert html.count("<iframe") == html.count("</iframe>") == 1
    assert 'sandbox="allow-scripts"' in html, "a page in it cannot reach the notebook"
    assert frame_of(html).count("<script") == 3, "its own, and none of the text"


def test_a_player_is_small_and_a_huge_trace_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(mdm()._repr_html_()) < 150_000
    monkeypatch.setattr(notebook, "LARGEST", 1000)
    html = mdm()._repr_html_()
    assert "<iframe" not in html and "anyorder report" in html
    assert len(trace_of(["x" * 9000], [1])._repr_html_()) < 15_000


def test_a_text_without_steps_is_shown_as_it_is() -> None:
    html = Trace(task_id="a", sample=0, prompt="", text="x < y")._repr_html_()
    assert "x &lt; y" in html and "order was not recorded" in html and "<iframe" not in html


def test_two_players_work_in_one_page(open_file: Callable[..., Any], tmp_path: Path) -> None:
    traces = [HOSTILE, flexmdm()]
    body = "".join(trace._repr_html_() for trace in traces)
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{body}")
    page = open_file(tmp_path / "page.html")
    page.wait_for_function("window.frames.length === 2")
    shown = """(slots) => slots.filter((slot) => slot.classList.contains("is-shown"))
        .map((slot) => slot.textContent).join("")"""
    for number, trace in enumerate(traces):
        frame = page.frame_locator("iframe").nth(number)
        frame.locator(".ao-slot").first.wait_for()
        assert frame.locator(".ao-slot").evaluate_all(shown) == trace.text
        frame.locator(".ao-player").press("Home")
        frame.locator(".ao-counter", has_text=f"0 / {trace.steps}").wait_for()
        assert frame.locator(".ao-slot").evaluate_all(shown) == ""


def run_of(folder: Path, traces: list[Trace], family: str = "mdm", **about: Any) -> Run:
    return Run.open(make_run(folder, traces, family=family, options={"policy": "p"}, **about))


def test_a_run_is_the_answer_in_a_sentence_and_the_numbers(tmp_path: Path) -> None:
    traces = [ar(f"t/{number}") for number in range(6)]
    run = run_of(tmp_path / "ar", traces, "ar", right=lambda trace: trace.task_id != "t/0")
    html = run._repr_html_()
    assert html.startswith("<p><strong>AR writes strictly from left to right.</strong></p>")
    assert "<li>83\N{NO-BREAK SPACE}% of the programs pass all their tests.</li>" in html
    assert '<th scope="col">pass all tests</th>' in html
    assert "6 samples of 6 problems" in html
    assert "[[" not in html and "<script" not in html


def test_one_problem_is_too_few_for_an_answer(tmp_path: Path) -> None:
    html = run_of(tmp_path / "run", [mdm("t/0")])._repr_html_()
    assert "too few problems to tell the order: Kendall's tau is " in html
    assert "in no direction" not in html


def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [Trace(task_id="a", sample=0, prompt="", text="x = 1")])
    assert "The order was not recorded." in run._repr_html_()


def test_a_large_run_is_not_measured_to_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "MOST_MEASURED", 3)
    traces = [ar(f"t/{number}") for number in range(4)]
    html = run_of(tmp_path / "run", traces)._repr_html_()
    assert "4 samples, not measured yet: <code>anyorder measure " in html
    html = run_of(tmp_path / "small", traces[:3])._repr_html_()
    assert "not measured" not in html


def test_unfinished_and_damaged_runs_are_shown_too(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", RunCard("test", {}))
    assert "unfinished" in run._repr_html_()
    run.append(0, [replace(mdm("t/0"), family=None)])
    run.finish()
    (tmp_path / "run" / "traces.parquet").write_bytes(b"nothing")
    assert "does not have the digest" in Run.open(tmp_path / "run")._repr_html_()
