"""Models that insert slots or write segments: what their settings do, and how a canvas fills.

Paper: the sweep of insertion temperatures and the schedule (appendix D), the policies of LatentMDM
at different k (ablation table), and one generation in full (appendix E).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from anyorder.bench.checks import PASSED
from anyorder.families.config import Description
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.report import charts
from anyorder.report.runs import (
    Material,
    RunFacts,
    again,
    color_of,
    grading,
    main_runs,
    sampling,
    share_bars,
    shares_of,
)
from anyorder.report.sections.accuracy import differences_table, passk_table
from anyorder.report.tables import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    missing,
    plain,
    policy_title,
    rate,
)
from anyorder.trace import Trace

SWEEP_TITLE = "How freely should new slots be placed?"
SCHEDULE_TITLE = "How does the canvas grow?"
SHOWN_ROWS = 9


def sweeps(material: Material) -> list[list[RunFacts]]:
    """Groups of graded runs that differ only in their insertion temperature, sorted by it."""
    groups: dict[tuple[object, ...], dict[float, RunFacts]] = {}
    for run in material.gathered.graded():
        if run.description.inserts and run.options.get("insertion_temperature") is not None:
            key = (run.policy, *run.alike("insertion_temperature"))
            groups.setdefault(key, {}).setdefault(run.options["insertion_temperature"], run)
    return [
        [group[value] for value in sorted(group)] for group in groups.values() if len(group) > 1
    ]


def sweep_section(material: Material) -> Section | Absent | None:
    """Right programs over the insertion temperature; None if no model inserts."""
    found = sweeps(material)
    if not found:
        models = [run for run in material.gathered.gradable() if run.description.inserts]
        if not models:
            return None
        commands = again(models[0], "--insertion-temperature", "0.6")
        why = "It needs graded runs of one model at two insertion temperatures."
        return Absent(SWEEP_TITLE, why, commands)
    runs = [run for group in found for run in group]
    series = []
    for group in found:
        at = [run.options["insertion_temperature"] for run in group]
        for number, dashed in ((0, False), (-1, True)):
            k = group[0].rates[number].k
            if number == 0 or k > 1:
                values = [run.rates[number].interval for run in group]
                name = f"{group[0].title}, {'one' if k == 1 else f'best of {k}'}"
                series.append(charts.LineSeries(name, color_of(group[0]), at, values, dashed))
    drawing = charts.lines(
        charts.LineChart(
            name="insertion-temperature",
            alt="Share of right programs over the insertion temperature.",
            x_label="insertion temperature",
            y_label="right programs",
            panels=(charts.LinePanel(tuple(series)),),
            x_ticks=tuple(sorted({run.options["insertion_temperature"] for run in runs})),
            percent=True,
        )
    )
    figure = Figure(
        title="Right programs at each insertion temperature",
        drawing=drawing,
        commands=(*sampling(runs), *grading(runs)),
        caption="Bands are [[interval|95 % intervals]] over problems.",
        tables=(
            passk_table(runs),
            *(table for group in found for table in differences_table(group)),
        ),
    )
    text = (
        "A model that inserts decides in every step where new [[slot|slots]] go. The "
        "[[insertion temperature]] says how freely: at 1 as often as the model expects something "
        "to be missing there, below 1 rather where most is missing.",
    )
    return Section("insertion", SWEEP_TITLE, "Insertion temperature", text, (figure,))


def schedule_section(material: Material) -> Section | Absent | None:
    """Shares inserted, masked and written after each step; None if no model inserts."""
    inserting = material.gathered.of(lambda family: family.inserts)
    runs = main_runs([run for run in inserting if run.options.get("clock", "steps") == "steps"])
    if not inserting:
        return None
    if not runs:
        commands = again(main_runs(inserting)[0], "--clock", "steps")
        return Absent(SCHEDULE_TITLE, "It needs a run of fixed steps.", commands)
    panels, tables = [], []
    for run in runs:
        found = shares_of(run.traces)
        curves = {name: found[name] for name in ("inserted", "masked", "clean")}
        panels.append(charts.SchedulePanel(run.label, "steps done", found["step"], curves))
        tables.append(_schedule_table(run, found))
    text = (
        "A model that inserts begins with an empty [[canvas]]. The [[schedule]] says how much of "
        "the final text is there after each step; slots stay [[mask|masked]] for a while, so that "
        "the layout can settle before words are chosen.",
    )
    figure = Figure(
        title="Inserted, masked and written, as shares of the final text",
        drawing=charts.schedule(
            charts.ScheduleChart(
                "schedule", "Shares of slots inserted, masked and written by step.", tuple(panels)
            )
        ),
        commands=sampling(runs),
        caption="Means over the samples, counted in their [[trace|traces]].",
        tables=tuple(tables),
    )
    return Section("schedule", SCHEDULE_TITLE, "How the canvas grows", text, (figure,))


def _schedule_table(run: RunFacts, found: dict[str, list[float]]) -> Table:
    # Evenly spaced steps, with the first and the last.
    last = len(found["step"]) - 1
    shown = min(last, SHOWN_ROWS - 1)
    places = sorted({round(number * last / max(1, shown)) for number in range(shown + 1)})
    rows = tuple(
        (
            Cell(f"after {found['step'][at]:g}"),
            *(plain(found[name][at], 2) for name in ("inserted", "masked", "clean")),
        )
        for at in places
    )
    return Table(("steps", "inserted", "masked", "written"), rows, run.label, folded=True)


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
    # Each number of lines has a (colour, pale), from the families with segments.
    known = [each.name for each in DESCRIPTIONS.values() if each.has_segments and each.color]
    colors = [(name, pale) for pale in (False, True) for name in known]
    ks = sorted({k for _, k in found})[: len(colors)]
    if not found:
        models = [run for run in material.gathered.gradable() if _fixed_segments(run.description)]
        if not models:
            return None
        commands = again(models[0], "--k", "2")
        return Absent(POLICIES_TITLE, "It needs graded runs at several settings.", commands)
    policies = list(dict.fromkeys(policy for policy, _ in found))
    names = {k: f"{k} line{'s' if k > 1 else ''} a step" for k in ks}
    groups = tuple(
        charts.BarGroup(
            policy_title(policy),
            tuple(
                charts.Bar(names[k], found[policy, k].rates[0].interval)
                for k in ks
                if (policy, k) in found
            ),
        )
        for policy in policies
    )
    runs = list(found.values())
    drawing = share_bars(
        "segment-policies",
        "Right programs by policy and by the number of lines a step.",
        "programs that pass all tests",
        groups,
        tuple(charts.Series(names[k], *color) for k, color in zip(ks, colors, strict=False)),
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
                Cell(policy_title(policy)),
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
    chosen = _most_telling(models)
    if chosen is None:
        if not models:
            return None
        commands = again(models[0], "--candidates")
        return Absent(TRACE_TITLE, "The candidates of the steps were not recorded.", commands)
    run, trace = chosen
    chart = charts.segment_trace_chart(trace, score_label=SCORES.get(run.policy, "score"))
    assert trace.candidates is not None
    drawn, steps = len(chart.steps), len({each.step for each in trace.candidates})
    shown = f"{drawn} of {steps} steps; those left out commit no line with text."
    shown = f"All {steps} steps." if drawn == steps else shown
    # A prompt on one line, without characters that would act as marks.
    prompt = " ".join(trace.prompt.replace("`", "'").replace("[[", "[ [").split())
    surer = ", a [[log-probability]]: the closer to 0, the surer" if run.policy in SCORES else ""
    text = (
        "One program as it came to be. In each step the model drafts a candidate for every open "
        "line, ranks them, and [[commit|commits]] the best; the next drafts already read it. "
        f"Stronger colour is a better score{surer}. This sample was picked: among the right "
        "programs of few steps, it is the one written most out of order.",
    )
    figure = Figure(
        title=f"{run.label}: `{trace.task_id}`, sample {trace.sample}",
        drawing=charts.segment_trace(chart),
        commands=sampling([run]),
        caption=f"{shown} The problem: {prompt}",
        tables=(_lines_table(trace),),
    )
    return Section("generation", TRACE_TITLE, "One generation", text, (figure,))


def _most_telling(runs: Sequence[RunFacts]) -> tuple[RunFacts, Trace] | None:
    """The sample to show: right, in few steps, and with its lines most out of order."""
    best: tuple[tuple[bool, bool, bool, int], RunFacts, Trace] | None = None
    for run in runs:
        for trace in run.traces:
            if trace.candidates is None or trace.segment is None:
                continue
            passed = run.verdicts.get((trace.task_id, trace.sample)) == PASSED
            few = len({each.step for each in trace.candidates}) <= MOST_STEPS
            fixed = not run.description.inserts  # so every open line has a candidate in every step
            # Crossings: pairs of lines in which the later line came first.
            crossings = sum(one > two for one, two in combinations(_line_steps(trace).values(), 2))
            rank = (passed or not run.verdicts, fixed, few, crossings)
            if best is None or rank > best[0]:
                best = rank, run, trace
    return best and best[1:]


def _line_steps(trace: Trace) -> dict[int, int]:
    """Segment -> the step that revealed it, in reading order, for segments with text."""
    assert trace.segment is not None
    reveal = trace.timing()[1]
    pairs = zip(trace.segment.tolist(), reveal.tolist(), trace.pieces, strict=True)
    return {segment: step for segment, step, piece in pairs if segment >= 0 and piece}


def _lines_table(trace: Trace) -> Table:
    assert trace.segment is not None
    texts: dict[int, str] = {}
    for segment, piece in zip(trace.segment.tolist(), trace.pieces, strict=True):
        texts[segment] = texts.get(segment, "") + piece
    rows = tuple(
        (Cell(f"line {number}"), Cell(str(step), number=True), Cell(_code(texts[segment])))
        for number, (segment, step) in enumerate(_line_steps(trace).items(), 1)
    )
    return Table(("in the text", "step", "line"), rows, "When each line was committed", folded=True)


def _code(text: str) -> str:
    """A line in marks for code, with spaces that HTML does not collapse."""
    plain = text.rstrip("\n").replace("`", "'").replace(" ", "\N{NO-BREAK SPACE}")
    return f"`{plain}`" if plain.strip() else "(empty)"
