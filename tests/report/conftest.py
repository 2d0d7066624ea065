"""Traces of every kind to show, and a real browser to show them in, with the network off."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from made_traces import ODD, ar, flexmdm, latentmdm, mdm, spaced, trace_of

from anyorder.report import player
from anyorder.report.traces import TraceGroup, embed, pack
from anyorder.trace import Event, Ghost, Trace

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Player</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ margin: 12px }}</style><style>{style}</style></head>
<body><div id="here"></div><script type="application/json" id="payload">{payload}</script>
<script>{script}</script>
<script>
  const payload = JSON.parse(document.getElementById("payload").textContent);
  window.player = AnyorderPlayer.create(document.getElementById("here"), payload, {options});
</script></body></html>
"""


def zoo() -> list[TraceGroup]:
    """Every kind of sample, a few of each."""
    events = [
        Event(1, 0, None, "wrong"),
        Event(2, 0, None, None),
        Event(2, 3, None, "<i>"),
        Event(4, 0, None, ""),
    ]
    given = [0, 0, 3, 0, 1, 0, 0, 2, 0, 0]
    odd = [
        trace_of(ODD, spaced(len(ODD), 6, 3), task_id="odd/0", sample=1, family="mdm"),
        trace_of(ODD, given, task_id="odd/1", family="mdm", policy="random"),
        trace_of(ODD[:4], [5, 1, 2, 3], events=events, task_id="odd/2", prompt="P\U0001f600"),
        trace_of([], [], task_id="odd/3", prompt="", steps=2),
        Trace(task_id="odd/4", sample=0, prompt="only text", text="x = 1\ny = 2"),
    ]
    runs = {
        "mdm run": [mdm(f"t/{i}", i) for i in range(3)],
        "flex run": [flexmdm(f"t/{i}", i) for i in range(3)],
        "ar run": [ar(f"t/{i}") for i in range(2)],
        "segments": [latentmdm()],
        "odd": odd,
    }
    verdicts = {("t/0", 0): "passed", ("t/1", 0): "no_code", ("t/2", 0): "wrong"}
    return [TraceGroup(name, traces, verdicts) for name, traces in runs.items()]


@st.composite
def any_trace(draw: st.DrawFn) -> Trace:
    """A trace with steps, with or without log-probabilities, segments, scores and events."""
    pieces = draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=9))
    count = len(pieces)
    steps = draw(st.integers(0, 7))
    spans = [sorted(draw(st.tuples(*[st.integers(0, steps)] * 2))) for _ in pieces]
    numbers = st.lists(
        st.one_of(st.just(np.nan), st.floats(-99, 0, width=32)), min_size=count, max_size=count
    )
    events = []
    for slot, (insert, reveal) in enumerate(spans):
        when = draw(st.sets(st.integers(insert, max(insert, reveal - 1)), max_size=2))
        pieces_then = st.none() | st.text(max_size=2)
        events += [Event(step, slot, None, draw(pieces_then)) for step in when if step < reveal]
    ghosts = []
    for after in sorted(draw(st.lists(st.integers(-1, count - 1), max_size=3)) if steps else ()):
        insert, delete = sorted(draw(st.sets(st.integers(0, steps), min_size=2, max_size=2)))
        reveal = draw(st.none() | st.integers(insert, delete - 1))
        last = None if reveal is None else draw(st.text(max_size=2))
        if reveal is not None and insert < reveal:
            events.append(Event(insert, count + len(ghosts), None, draw(st.text(max_size=2))))
        ghosts.append(Ghost(after, insert, reveal, delete, None, last))
    segment = draw(st.none() | st.lists(st.integers(-1, 3), min_size=count, max_size=count))
    return trace_of(
        pieces,
        [reveal for _, reveal in spans],
        insert_step=[insert for insert, _ in spans],
        steps=steps,
        task_id=draw(st.sampled_from(["a", "b"])),
        prompt=draw(st.text(max_size=3)),
        log_prob=draw(st.none() | numbers),
        segment=None if segment is None else sorted(segment),
        score=draw(st.none() | numbers),
        events=tuple(sorted(events, key=lambda event: event[:2])) or None,
        ghosts=tuple(ghosts) or None,
        policy=draw(st.sampled_from([None, "confidence"])),
    )


@pytest.fixture(scope="session")
def trace_strategy() -> st.SearchStrategy[Trace]:
    return any_trace()


@pytest.fixture(scope="session")
def groups() -> list[TraceGroup]:
    return zoo()


@pytest.fixture(scope="session")
def samples(groups: list[TraceGroup]) -> list[Trace]:
    """In the order in which the player numbers them."""
    return [trace for group in groups for trace in group.traces]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install anyorder[dev]"
    )
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium")
    with api.sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def open_file(browser: Any) -> Iterator[Callable[..., Any]]:
    """`open_file(file, **context)` is a page from a file with the network off.

    At the end of the test nothing may have gone wrong in the page, and nothing been asked for.
    """
    troubles: list[str] = []
    contexts = []

    def opened(file: Path, **context: Any) -> Any:
        contexts.append(browser.new_context(offline=True, **context))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request",
            lambda request: request.url == file.as_uri() or troubles.append(request.url),
        )
        page.goto(file.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles


@pytest.fixture
def open_player(open_file: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """`open_player(groups, options, **context)` is a page with a player alone, offline."""

    def opened(groups: list[TraceGroup], options: str = "{}", **context: Any) -> Any:
        file = tmp_path / "page.html"
        text = PAGE.format(
            style=player.style(),
            script=player.script(),
            payload=embed(pack(groups)),
            options=options,
        )
        file.write_text(text, encoding="utf-8")
        return open_file(file, **context)

    return opened


@pytest.fixture(scope="session")
def report_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Run folders that have data for every section of a report."""
    from made_runs import all_runs

    return all_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def gathered(report_runs: list[Path]) -> Any:
    from anyorder.report.runs import gather

    return gather(report_runs)


@pytest.fixture(scope="session")
def material(gathered: Any) -> Any:
    from anyorder.report.runs import Material, comparisons

    return Material(gathered, tuple(comparisons(gathered)))
