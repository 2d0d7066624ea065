"""Does the model know where? Mass and localisation, and their series over steps.

Paper: section 3.2 and the positional-uncertainty figures; docs/placement.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from math import isnan

import numpy as np

from anyorder.measure.placement_table import BLOCK_SLOTS
from anyorder.report import charts
from anyorder.report.runs import Material, RunFacts, main_runs, sampling
from anyorder.report.tables import (
    Absent,
    Cell,
    Figure,
    Section,
    Table,
    count,
    interval_of,
    missing,
    score,
)

TITLE = "Does the model know where its words belong?"
TOP, COMMITTED, EVEN = "wanted most", "written next", "spread evenly"
PANELS = 3
DEFAULT_REGION = "code"


def section(material: Material) -> Section | Absent | None:
    """Mass and localisation, as points and over steps; None if no model has masked slots."""
    runs = [run for run in material.gathered if run.placement is not None]
    # A network reads ids: it cannot be asked about traces of strings.
    possible = [
        run
        for run in material.gathered.of(lambda family: family.masks)
        if all(trace.token_ids is not None for trace in run.traces)
    ]
    if not possible and not runs:
        return None
    if not runs:
        return Absent(
            TITLE,
            "The model has to be asked again about the canvases of its runs.",
            tuple(_command(run) for run in main_runs(possible)),
        )
    shown = main_runs(runs, PANELS)
    return Section(
        slug="placement",
        title=TITLE,
        short="What but not where",
        text=(
            "A model may be sure what it wants to write and not know at which [[slot]] it belongs. "
            "Its probability for the [[token]] is then spread over many slots: the [[mass]], added "
            "up over the slots, is large, and the [[localisation]], the share of it at the best "
            "slot, is small. No single slot looks sure, so a [[policy]] that goes by confidence "
            "passes it over for whatever comes next on the left.",
            "Here every model was asked again about the canvases that it went through. Points are "
            "the two tokens that it wanted most on each canvas, and the tokens that it wrote next. "
            "Wanted tokens at the lower right that are not written are the sign of a model that "
            "knows what but not where; or of words that belong in many places, which the column "
            "[[k-localisation|allowing for copies]] tells apart.",
            *_within_blocks(runs),
        ),
        figures=(_scatter_figure(shown, runs), _series_figure(shown)),
    )


def block_slots(run: RunFacts) -> int | None:
    """The slots of the largest block, if a run was measured within blocks."""
    found = run.measures["placement"]["about"].get(BLOCK_SLOTS)
    return None if found is None else int(found)


def _within_blocks(runs: Sequence[RunFacts]) -> Iterator[str]:
    """The paragraph about runs with blocks, if there are such."""
    sizes = sorted({slots for run in runs if (slots := block_slots(run)) is not None})
    if sizes:
        yield (
            "Runs that fill [[slot block|blocks]] of slots one after another (here of at most "
            f"{' or '.join(map(str, sizes))}) are measured within the block that is being filled, "
            "over its open slots: what belongs in later blocks does not count. With few open "
            "slots no token can be spread far, so a high localisation in small blocks is no sign "
            "of certainty. Compare such runs by the column above even, which is 0 where the mass "
            "is spread evenly over the open slots and 1 where it is at one of them."
        )


LEAST_MASS = 0.01
"""Tokens with less are not drawn: a few of them would stretch the axis."""


def _scatter_figure(shown: Sequence[RunFacts], runs: Sequence[RunFacts]) -> Figure:
    panels = []
    for run in shown:
        clouds = {
            TOP: _cloud(run, "top", "loc"),
            COMMITTED: _cloud(run, "committed", "localisation"),
        }
        panels.append(charts.PointPanel(run.label, clouds))
    drawing = charts.points(
        charts.PointChart(
            name="mass-localisation",
            alt="Mass against localisation of the tokens wanted most and of those written next.",
            x_label="mass: how often the token is expected",
            y_label="localisation: share at one slot",
            classes=(charts.Series(TOP, "top"), charts.Series(COMMITTED, "committed")),
            panels=tuple(panels),
            log_x=True,
            y_limits=(0, 1.04),
        )
    )
    heads: tuple[str, ...] = (
        "run",
        f"[[mass]], {TOP}",
        f"[[localisation]], {TOP}",
        f"[[localisation]], {COMMITTED}",
        f"{COMMITTED} minus {TOP}",
        f"[[k-localisation|allowing for copies]], {TOP}",
        "if spread evenly",
        "canvases",
    )
    names: tuple[str, ...] = (
        "top_mass",
        "top_loc",
        "committed_localisation",
        "gap_loc",
        "top_k_loc",
        "even_loc",
    )
    if any(block_slots(run) is not None for run in runs):
        heads = (*heads[:-1], "open slots", f"[[localisation]], {TOP}, above even", heads[-1])
        names = (*names, "open", "top_loc_above_even")
    rows = []
    for run in runs:
        record = run.measures["placement"]["all"]
        values = (score(interval_of(record[n])) if n in record else missing() for n in names)
        rows.append((Cell(run.label), *values, count(record["canvases"])))
    return Figure(
        title="Wanted most, and written next: how often, and how surely where",
        drawing=drawing,
        commands=(*sampling(runs), *map(_command, runs)),
        caption="Each point is a token on one canvas; the large marks are the means. "
        f"Tokens with a mass below {LEAST_MASS:g} are left out of the picture. Means are "
        "over canvases, samples, then problems; [[interval|95 % intervals]] over problems.",
        tables=(Table(heads, tuple(rows)),),
    )


def _cloud(run: RunFacts, kind: str, name: str) -> charts.PointSet:
    assert run.placement is not None
    found = run.placement.points()[kind]
    known = np.isfinite(found[name]) & (found["mass"] >= LEAST_MASS)
    # The means of the table, so that figure and table agree.
    means = run.measures["placement"]["all"]
    mean = interval_of(means[f"{kind}_mass"]), interval_of(means[f"{kind}_{name}"])
    return charts.PointSet(found["mass"][known], found[name][known], mean)


def _series_figure(runs: Sequence[RunFacts]) -> Figure:
    curves = {
        TOP: ("top_loc", "top", False),
        COMMITTED: ("committed_localisation", "committed", False),
        EVEN: ("even_loc", "masked", True),
    }
    panels, tables = [], []
    for run in runs:
        steps = run.measures["placement"]["steps"]
        last = max(trace.steps or 1 for trace in run.traces)
        series = []
        for name, (column, color, dashed) in curves.items():
            found = [(step["step"], interval_of(step[column])) for step in steps if column in step]
            known = [(100 * at / last, value) for at, value in found if not isnan(value.estimate)]
            x, y = [at for at, _ in known], [value for _, value in known]
            series.append(charts.LineSeries(name, color, x, y, dashed))
        panels.append(charts.LinePanel(tuple(series), title=run.label))
        rows = tuple(
            (
                Cell(f"after {step['step']}"),
                *(score(interval_of(step[column])) for column, _, _ in curves.values()),
                count(step["canvases"]),
            )
            for step in steps
            if all(column in step for column, _, _ in curves.values())
        )
        heads = ("steps", *curves, "canvases")
        tables.append(
            Table(heads, rows, title=f"[[localisation|Localisation]], {run.label}", folded=True)
        )
    return Figure(
        title="The same as the text fills up",
        drawing=charts.lines(
            charts.LineChart(
                name="localisation-over-steps",
                alt="Mean localisation of tokens wanted most and written next, over the steps.",
                x_label="steps done, in per cent",
                y_label="localisation",
                panels=tuple(panels),
                y_limits=(0, 1),
            )
        ),
        commands=(*sampling(runs), *map(_command, runs)),
        caption="Bands are [[interval|95 % intervals]] over problems. The dashed line is what the "
        "same masses would give if they were spread evenly over the masked slots: as fewer are "
        "left, everything is better placed.",
        tables=tuple(tables),
    )


def _command(run: RunFacts) -> str:
    about = (run.measures.get("placement") or {}).get("about") or {}
    chosen = {name: about[name] for name in ("region", "stride") if about.get(name) is not None}
    if chosen.get("region") == DEFAULT_REGION:
        del chosen["region"]
    if not run.sampled_here:
        # A wrapped model, or one of another library, has no name by which we could load it.
        settings = "".join(f", {name}={value!r}" for name, value in chosen.items())
        folder = str(run.run.folder)
        return f"anyorder.measure.placement({folder!r}, model, any_model=True{settings})"
    flags = [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    named = shlex.quote(run.model)
    return run.command("measure", "--placement", named, "--only", "placement", *flags)
