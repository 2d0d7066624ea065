"""Traces of every kind to show, and a real browser to show them in, with the network off."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from anyorder.report import player
from anyorder.report.traces import TraceGroup, embed, pack
from anyorder.trace import Candidate, Event, Trace

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

PROGRAM = [
    "def f(",
    "plums",
    ", ",
    "bags",
    "):",
    "\n",
    "    if ",
    "plums",
    " > ",
    "bags",
    ":",
    "\n",
]
PROGRAM += ["        ", "plums", " = ", "bags", "\n", "    return ", "plums"]
ODD = ["<b>&amp;", "</script>", "\r\n", "\t\tx", "\r", "\U0001f600é", "", " " * 5, "א", "y" * 90]


def spaced(count: int, steps: int, seed: int) -> list[int]:
    """Steps 1..steps for `count` tokens, shuffled."""
    spread = 1 + np.arange(count) * steps // max(1, count)
    return [int(step) for step in np.random.default_rng(seed).permutation(spread)]


def trace_of(pieces: list[str], reveal: list[int], **columns: Any) -> Trace:
    steps = columns.pop("steps", max(reveal, default=0))
    insert = columns.pop("insert_step", [0] * len(pieces))
    about: dict[str, Any] = {"task_id": "t/0", "sample": 0, "prompt": "Do it:\n"}
    return Trace(
        **{**about, **columns},
        text="".join(pieces),
        char_end=list(accumulate(map(len, pieces))),
        insert_step=insert,
        reveal_step=reveal,
        steps=steps,
    )


def mdm(task: str = "t/0", seed: int = 1) -> Trace:
    pieces = [*PROGRAM, *[""] * 8]
    reveal = spaced(len(pieces), len(pieces), seed)
    log_prob = np.linspace(-3, 0, len(pieces))
    return trace_of(
        pieces, reveal, task_id=task, family="mdm", policy="confidence", log_prob=log_prob
    )


def flexmdm(task: str = "t/0", seed: int = 2) -> Trace:
    insert = spaced(len(PROGRAM), 30, seed)
    later = spaced(len(PROGRAM), 10, seed + 1)
    reveal = [first + more for first, more in zip(insert, later, strict=True)]
    log_prob = [-0.01 * step for step in reveal]
    about = {"task_id": task, "family": "flexmdm", "policy": "confidence"}
    return trace_of(PROGRAM, reveal, insert_step=insert, steps=44, log_prob=log_prob, **about)


def ar(task: str = "t/0") -> Trace:
    steps = list(range(1, len(PROGRAM) + 1))
    return trace_of(PROGRAM, steps, insert_step=steps, task_id=task, family="ar")


def latentmdm() -> Trace:
    lines = [PROGRAM[:6], PROGRAM[6:12], PROGRAM[12:17], PROGRAM[17:], [""]]
    order = [2, 3, 4, 1, 5]
    pieces = [piece for line in lines for piece in line]
    segment = [number for number, line in enumerate(lines) for _ in line]
    candidates = [
        Candidate(step, number, None, "".join(line), -0.1 * number - step, order[number] == step)
        for step in range(1, 6)
        for number, line in enumerate(lines)
        if order[number] >= step
    ]
    return trace_of(
        pieces,
        [order[number] for number in segment],
        segment=segment,
        score=[-0.25 * number for number in segment],
        candidates=candidates,
        task_id="t/segments",
        family="latentmdm",
        policy="average",
    )


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
        events=tuple(sorted(events)) or None,
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
def open_player(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`open_player(groups, options, **context)` is a page with a player, from a file, offline.

    At the end of the test nothing may have gone wrong in the page, and nothing been asked for.
    """
    troubles: list[str] = []
    contexts = []

    def opened(groups: list[TraceGroup], options: str = "{}", **context: Any) -> Any:
        file = tmp_path / "page.html"
        text = PAGE.format(
            style=player.style(),
            script=player.script(),
            payload=embed(pack(groups)),
            options=options,
        )
        file.write_text(text, encoding="utf-8")
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
