"""What the player shows when a report opens: two models writing the same program, side by side.

MDM against FlexMDM where both are there, as in the paper's argument; else the first family against
another that may write in any order; else one sample. A problem that both solved is preferred.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.bench.verdicts import PASSED
from anyorder.report.page import Opening
from anyorder.report.runs import RunFacts
from anyorder.report.sections.material import main_runs
from anyorder.trace import Trace

LEFT = ("mdm", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm", "ar")
RIGHT = ("flexmdm", "latentmdm", "flexlatent", "duo", "sflm", "mdm", "ar")
PROGRESS = 0.4
"""How far along the common clock is: masks are seen, and so is what was written first."""


def opening(runs: Sequence[RunFacts]) -> Opening:
    """The samples to begin with, by their numbers in the payload."""
    main = {run.family: run for run in reversed(main_runs(list(runs), len(runs)))}
    main |= {family: main_runs([r for r in runs if r.family == family], 1)[0] for family in main}
    left = next((main[name] for name in LEFT if name in main), runs[0])
    right = next((main[name] for name in RIGHT if name in main and main[name] is not left), None)
    first = {run.name: sum(len(r.traces) for r in runs[:at]) for at, run in enumerate(runs)}
    if right is None:
        return Opening(first[left.name], None, _step(left.traces[0]))
    one, two = _pair(left, right)
    return Opening(
        first[left.name] + one,
        first[right.name] + two,
        max(_step(left.traces[one]) or 0, _step(right.traces[two]) or 0),
    )


def _pair(left: RunFacts, right: RunFacts) -> tuple[int, int]:
    """Places of two samples of one problem, solved by both if there is such a one."""
    places = {trace.task_id: at for at, trace in reversed(list(enumerate(right.traces)))}
    pairs = [
        (at, places[trace.task_id])
        for at, trace in enumerate(left.traces)
        if trace.task_id in places and right.traces[places[trace.task_id]].prompt == trace.prompt
    ]
    solved = [
        (one, two)
        for one, two in pairs
        if _passed(left, left.traces[one]) and _passed(right, right.traces[two])
    ]
    # The longest of the solved ones has most to show.
    if solved:
        return max(solved, key=lambda pair: len(left.traces[pair[0]].text))
    return pairs[0] if pairs else (0, 0)


def _passed(run: RunFacts, trace: Trace) -> bool:
    return run.verdicts.get((trace.task_id, trace.sample)) == PASSED


def _step(trace: Trace) -> int | None:
    return None if trace.steps is None else round(PROGRESS * trace.steps)
