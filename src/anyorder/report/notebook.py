"""What a notebook shows of a trace and of a run, as HTML that stands alone.

A trace: a table of its canvas at a few steps, and below it the player. The player needs scripts,
which some viewers take out (GitHub, notebooks that are not trusted); the table is there without
them. The player is in an `<iframe sandbox>` with all that it needs, so nothing in it can touch the
notebook, or clash with another output.

A run: the answer in a sentence, the findings of the report (findings.py), and the main numbers. A
large run without measures is not measured here, because showing a run must be quick.
"""

from __future__ import annotations

import math
from html import escape

from anyorder.report import player
from anyorder.report.findings import findings
from anyorder.report.page import plain_text
from anyorder.report.runs import Material, RunFacts, gather
from anyorder.report.sections.models import glance
from anyorder.report.sections.order import TAU
from anyorder.report.tables import Cell, Table, in_keyboard_signs, interval_of, shown, to_html
from anyorder.report.traces import TraceGroup, embed, pack
from anyorder.trace import Run, Trace

MOMENTS = 4
"""The canvas is shown at this many steps after the first."""
LONGEST = 2000
"""Characters of a canvas in the table."""
LARGEST = 400_000
"""Characters of a page with a player that a notebook should have to store."""
HEIGHT = 460
MOST_MEASURED = 300
"""Samples that are measured only to be shown."""
ORDER = "Order"

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Trace player</title>
<style>{style}</style></head><body><div id="player"></div>
<script type="application/json" id="traces">{payload}</script><script>{script}</script>
<script>AnyorderPlayer.create(document.getElementById("player"),
JSON.parse(document.getElementById("traces").textContent))</script></body></html>"""


def trace_html(trace: Trace) -> str:
    """The canvas at a few steps, and the player."""
    about = ", ".join(
        each
        for each in (trace.family, trace.policy, trace.task_id and f"task {trace.task_id}")
        if each
    )
    head = f"<p>{escape(about)}{', ' if about else ''}sample {trace.sample}</p>"
    if trace.steps is None or trace.reveal_step is None:
        return f"{head}{_pre(trace.text)}<p>Its order was not recorded.</p>"
    table = to_html(_moments(trace), lambda text: text, about="the canvas at some steps")
    code = trace.entry_point is not None or trace.program is not None
    group = TraceGroup(trace.family or "trace", [trace], code=code)
    page = PAGE.format(
        style=player.style(), script=player.script(), payload=embed(pack([group], trees=code))
    )
    if len(page) > LARGEST:
        return f"{head}{table}<p>Too long to play here: see <code>anyorder report</code>.</p>"
    frame = (
        f'<iframe title="Trace player" sandbox="allow-scripts" srcdoc="{escape(page)}" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )
    return f"{head}{table}{frame}"


def _moments(trace: Trace) -> Table:
    """The canvas at steps that divide the whole evenly; its cells are HTML already."""
    steps = trace.steps or 0
    chosen = sorted({round(steps * part / MOMENTS) for part in range(MOMENTS + 1)})
    rows = tuple((Cell(str(step)), Cell(_pre(trace.replay(step).text()))) for step in chosen)
    return Table(("step", "canvas"), rows)


def _pre(text: str) -> str:
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    style = "text-align: left; white-space: pre-wrap; margin: 0"
    return f'<pre style="{style}">{escape(cut, quote=False)}</pre>'


def run_html(run: Run) -> str:
    """The answer in a sentence, further findings, and the main numbers."""
    try:
        return _run(run)
    except ValueError as error:  # a damaged folder: the message says what to do
        return f"<p>{escape(str(error), quote=False)}</p>"


def _run(run: Run) -> str:
    if not run.complete:
        return f"<p>{escape(repr(run))}: unfinished.</p>"
    samples = run.table(["sample"]).num_rows
    if not samples:
        return f"<p>{escape(repr(run))}</p>"
    if samples > MOST_MEASURED and "arness" not in run.measures():
        command = f"anyorder measure {run.folder}"
        return (
            f"<p>{samples:,} samples, not measured yet: <code>{escape(command)}</code> "
            "answers in which order they were written.</p>"
        )
    material = Material(gather([run.folder]), ())
    (facts,) = material.gathered
    found = {finding.topic: finding.says for finding in findings(material)}
    order = found.pop(ORDER, None)
    answer = _without_answer(facts) if order is None or _unsure(facts) else order
    others = "".join(f"<li>{_text(says)}</li>" for says in found.values())
    return (
        f"<p><strong>{_text(answer)}</strong></p>{f'<ul>{others}</ul>' if others else ''}"
        f"{to_html(glance(material), _text, about='the main numbers')}"
        f"<p>{samples:,} samples of {len({trace.task_id for trace in facts.traces}):,} problems, "
        f"in <code>{escape(str(run.folder))}</code></p>"
    )


def _unsure(facts: RunFacts) -> bool:
    """Whether there are too few problems for an interval of the order."""
    record = facts.measures.get("arness")
    return record is None or math.isnan(interval_of(record["aggregate"][TAU]["interval"]).low)


def _without_answer(facts: RunFacts) -> str:
    record = facts.measures.get("arness")
    if record is None:
        return "The order was not recorded."
    tau = interval_of(record["aggregate"][TAU]["interval"]).estimate
    if math.isnan(tau):
        return "The texts are too short to have an order."
    return (
        "There are too few problems to tell the order: Kendall's tau is "
        f"{in_keyboard_signs(shown(tau))} here (1 is from left to right, 0 random)."
    )


def _text(marked: str) -> str:
    return escape(plain_text(marked), quote=False)
