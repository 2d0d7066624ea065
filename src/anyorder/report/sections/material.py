"""What every section is made from, and choices that several sections share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anyorder.report.charts import PALETTE, Series
from anyorder.report.likeness import Comparison
from anyorder.report.runs import LEFT_TO_RIGHT, RANDOM, Gathered, RunFacts
from anyorder.report.sections.section import Table

CONFIDENT = (
    *("confidence", "sampled", "margin", "entropy", "average", "minimum", "first"),
    "planner",
)
"""Policies by which the model chooses for itself, the usual one of each family first."""
OTHER_COLOR = "ar"


@dataclass(frozen=True)
class Material:
    """The runs, and how they compare."""

    gathered: Gathered
    comparisons: tuple[Comparison, ...]


def color_of(run: RunFacts) -> str:
    """The colour of a run's family, the same in every chart."""
    return run.family if run.family in PALETTE else OTHER_COLOR


def series_of(runs: Sequence[RunFacts]) -> tuple[Series, ...]:
    """A series for each run: the first of a family has its colour, others that of their policy."""
    firsts = {run.family: run.label for run in reversed(runs)}
    taken = {(color_of(run), False) for run in runs}
    found = []
    for run in runs:
        choice = (color_of(run), False)
        if firsts[run.family] != run.label:
            own = [(run.policy, False)] if run.policy in PALETTE else []
            own += [(color_of(run), True), *((color, True) for color in PALETTE)]
            choice = next(each for each in own if each not in taken)
            taken.add(choice)
        found.append(Series(run.label, *choice))
    return tuple(found)


def family_mains(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """The run by which each family is known.

    It decides by confidence where there is a choice; among equals it is the plainest: fewest
    samples a problem, lowest temperature, insertion as the model says, one line a step.
    """
    families = dict.fromkeys(run.family for run in runs)
    return [_main([run for run in runs if run.family == family]) for family in families]


def main_runs(runs: Sequence[RunFacts], most: int = 6) -> list[RunFacts]:
    """The main run of each family, then the first free model from left to right and at random."""
    main = family_mains(runs)
    free = [run for run in main if run.family != "ar"]
    beside = [
        run
        for policy in (LEFT_TO_RIGHT, RANDOM)
        for run in runs
        if run.policy == policy and free and run.alike() == free[0].alike() and run not in main
    ]
    chosen = [*main, *beside][:most]
    return [run for run in runs if run in chosen]


MOST_BARS = 10
"""A figure with a bar for each run shows them all up to here."""


def drawn_runs(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """The runs of a figure with a bar for each: all of them, or the main ones of many."""
    return list(runs) if len(runs) <= MOST_BARS else main_runs(runs, MOST_BARS)


def split_tables(
    make: Callable[[Sequence[RunFacts]], Table],
    chosen: Sequence[RunFacts],
    runs: Sequence[RunFacts],
) -> tuple[Table, ...]:
    """A table of the runs that are drawn, and, folded, one of the others."""
    others = [run for run in runs if run not in chosen]
    if not others:
        return (make(chosen),)
    return make(chosen), replace(make(others), caption="The other runs", folded=True)


def _main(runs: Sequence[RunFacts]) -> RunFacts:
    ranks = {policy: number for number, policy in enumerate(CONFIDENT)}

    def rank(run: RunFacts) -> tuple[float, ...]:
        policy = ranks.get(run.policy, len(CONFIDENT))
        free = abs((run.options.get("insertion_temperature") or 1.0) - 1)
        return (
            policy,
            run.samples,
            run.options.get("temperature") or 0,
            free,
            run.options.get("k") or 1,
        )

    return min(runs, key=rank)


def sampling(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """The commands that made the samples, from the run cards."""
    return tuple(dict.fromkeys(run.run.card.command for run in runs))


def again(run: RunFacts, *flags: str) -> str:
    """The command that made a run, changed by some flags, into another folder."""
    words = shlex.split(run.run.card.command)
    if words[:2] != ["anyorder", "sample"]:  # imported, or made in Python
        words = ["anyorder", "sample", "MODEL", "--task", "TASK"]
    for flag in ("--out", *(word for word in flags if word.startswith("--"))):
        if flag in words:
            at = words.index(flag)
            has_value = at + 1 < len(words) and not words[at + 1].startswith("--")
            words[at : at + 1 + has_value] = []
    return shlex.join([*words, *flags, "--out", "RUN"])


def grading(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """The commands that graded them."""
    return tuple(run.command("grade") for run in runs if run.verdicts)
