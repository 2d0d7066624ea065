"""LatentMDM: its policies at different k (paper, ablation table), and one generation in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from anyorder.bench.checks import PASSED
from anyorder.families.config import Description
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.report.charts import (
    Bar,
    BarChart,
    BarGroup,
    BarPanel,
    Series,
    bars,
    segment_trace,
    segment_trace_chart,
)
from anyorder.report.runs import Material, RunFacts, again, grading, sampling
from anyorder.report.tables import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    label,
    missing,
    plain,
    policy_title,
    rate,
)
from anyorder.trace import Trace

POLICIES_TITLE = "Which line first, and how many at a time?"
TRACE_TITLE = "How are whole lines chosen?"
SCORES = {
    "average": "average log-probability of a line's tokens",
    "minimum": "log-probability of a line's weakest token",
    "first": "log-probability of a line's first token",
}
MOST_STEPS = 9


def _fixed_segments(family: Description) -> bool:
    return family.has_segments and not family.inserts


def _colors() -> list[tuple[str, bool]]:
    """(colour, pale) for each number of lines: the colours of families with segments."""
    known = [each for each in DESCRIPTIONS.values() if each.has_segments and each.color]
    return [(each.name, pale) for pale in (False, True) for each in known]


def grid(material: Material) -> dict[tuple[str, int], RunFacts]:
    """(policy, lines a step) -> run, of the model and task with the most such runs."""
    groups: dict[tuple[object, ...], dict[tuple[str, int], RunFacts]] = {}
    for run in material.gathered.graded():
        if _fixed_segments(run.description) and "k" in run.options:
            group = groups.setdefault(run.alike("k"), {})
            group.setdefault((run.policy, int(run.options["k"])), run)
    best = max(groups.values(), key=len, default={})
    return best if len(best) > 1 else {}


def policies_section(material: Material) -> Section | Absent | None:
    """Accuracy by policy and lines a step; None if no model fills fixed segments."""
    found = grid(material)
    colors = _colors()
    ks = sorted({k for _, k in found})[: len(colors)]
    if not found:
        models = material.gathered.of(_fixed_segments)
        if not models:
            return None
        command = again(models[0], "--k", "2")
        return Absent(POLICIES_TITLE, "It needs graded runs at several settings.", (command,))
    policies = list(dict.fromkeys(policy for policy, _ in found))
    names = {k: f"{k} line{'s' if k > 1 else ''} a step" for k in ks}
    groups = tuple(
        BarGroup(
            policy_title(policy),
            tuple(
                Bar(names[k], found[policy, k].rates[0].interval)
                for k in ks
                if (policy, k) in found
            ),
        )
        for policy in policies
    )
    runs = list(found.values())
    drawing = bars(
        BarChart(
            name="segment-policies",
            alt="Right programs by policy and by the number of lines a step.",
            series=tuple(Series(names[k], *color) for k, color in zip(ks, colors, strict=False)),
            panels=(BarPanel("programs that pass all tests", groups, limits=(0, 1), percent=True),),
        )
    )
    text = (
        "A model over [[segment|segments]] drafts every open line in each step and must decide "
        "which ones to [[commit]]. It can go by a line's average [[log-probability]] a token, by "
        "its weakest token, or by its first token; and it can take one line a step, or several at "
        "once, which costs fewer [[network call|network calls]].",
    )
    figure = Figure(
        title="Right programs by the rule for choosing lines",
        drawing=drawing,
        commands=(*sampling(runs), *grading(runs)),
        tables=(_grid_table(found),),
    )
    return Section("policies", POLICIES_TITLE, "Choosing lines", text, (figure,))


def _grid_table(found: dict[tuple[str, int], RunFacts]) -> Table:
    rows = []
    for (policy, k), run in found.items():
        calls = run.timing.forwards if run.timing else None
        cost = plain(calls.estimate, 1) if calls else missing()
        rows.append(
            (
                label(policy_title(policy)),
                Cell(str(k), number=True),
                rate(run.rates[0].interval),
                cost,
            )
        )
    heads = ("rule", "lines a step", "[[passed]]", "[[network call|network calls]] each")
    return Table(heads, tuple(rows))


def trace_section(material: Material) -> Section | Absent | None:
    """One generation, step by step; None if no model writes segments."""
    models = material.gathered.of(lambda family: family.has_segments)
    chosen = _telling(models)
    if chosen is None:
        if not models:
            return None
        command = again(models[0], "--candidates")
        return Absent(TRACE_TITLE, "The candidates of the steps were not recorded.", (command,))
    run, trace = chosen
    chart = replace(segment_trace_chart(trace), score_label=SCORES.get(run.policy, "score"))
    assert trace.candidates is not None
    steps = len({each.step for each in trace.candidates})
    surer = ", a [[log-probability]]: the closer to 0, the surer" if run.policy in SCORES else ""
    text = (
        "One program as it came to be. In each step the model drafts a candidate for every open "
        "line, ranks them, and [[commit|commits]] the best; the next drafts already read it. "
        f"Stronger colour is a better score{surer}. This sample was picked: among the right "
        "programs of few steps, it is the one written most out of order.",
    )
    figure = Figure(
        title=f"{run.label}: `{trace.task_id}`, sample {trace.sample}",
        drawing=segment_trace(chart),
        commands=sampling([run]),
        caption=f"{_shown_steps(len(chart.steps), steps)} The problem: {_one_line(trace.prompt)}",
        tables=(_lines_table(trace),),
    )
    return Section("generation", TRACE_TITLE, "One generation", text, (figure,))


def _shown_steps(shown: int, steps: int) -> str:
    if shown == steps:
        return f"All {steps} steps."
    return f"{shown} of {steps} steps; those left out commit no line with text."


def _telling(runs: Sequence[RunFacts]) -> tuple[RunFacts, Trace] | None:
    """The sample to show: right, in few steps, and with its lines most out of order."""
    best: tuple[tuple[bool, bool, bool, int], RunFacts, Trace] | None = None
    for run in runs:
        for trace in run.traces:
            if trace.candidates is None or trace.segment is None:
                continue
            passed = run.verdicts.get((trace.task_id, trace.sample)) == PASSED
            few = len({each.step for each in trace.candidates}) <= MOST_STEPS
            fixed = not run.description.inserts  # so every open line has a candidate in every step
            rank = (passed or not run.verdicts, fixed, few, _crossings(trace))
            if best is None or rank > best[0]:
                best = rank, run, trace
    return best and best[1:]


def _line_steps(trace: Trace) -> dict[int, int]:
    """Segment -> the step that revealed it, in reading order, for segments with text."""
    assert trace.segment is not None
    reveal = trace.timing()[1]
    pairs = zip(trace.segment.tolist(), reveal.tolist(), trace.pieces, strict=True)
    return {segment: step for segment, step, piece in pairs if segment >= 0 and piece}


def _crossings(trace: Trace) -> int:
    """The number of pairs of lines in which the later line came first."""
    return sum(one > two for one, two in combinations(_line_steps(trace).values(), 2))


def _lines_table(trace: Trace) -> Table:
    assert trace.segment is not None
    texts: dict[int, str] = {}
    for segment, piece in zip(trace.segment.tolist(), trace.pieces, strict=True):
        texts[segment] = texts.get(segment, "") + piece
    rows = tuple(
        (label(f"line {number}"), Cell(str(step), number=True), Cell(_code(texts[segment])))
        for number, (segment, step) in enumerate(_line_steps(trace).items(), 1)
    )
    return Table(("in the text", "step", "line"), rows, "When each line was committed", folded=True)


def _code(text: str) -> str:
    """A line in marks for code, with spaces that HTML does not collapse."""
    plain = text.rstrip("\n").replace("`", "'").replace(" ", "\N{NO-BREAK SPACE}")
    return f"`{plain}`" if plain.strip() else "(empty)"


def _one_line(text: str) -> str:
    """A prompt on one line for a caption, without characters that would act as marks."""
    return " ".join(text.replace("`", "'").replace("[[", "[ [").split())
