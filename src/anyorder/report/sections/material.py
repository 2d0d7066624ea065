"""What every section is made from, and choices that several sections share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anyorder.report.charts import PALETTE, Series
from anyorder.report.likeness import Comparison
from anyorder.report.runs import LEFT_TO_RIGHT, RANDOM, Gathered, RunFacts

CONFIDENT = ("confidence", "sampled", "margin", "entropy", "average", "minimum", "first")
"""Policies that go by what the model is sure of, the usual one of each family first."""
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
    """A series for each run: its family's colour, then that of its policy, then paler."""
    taken: set[tuple[str, bool]] = set()
    found = []
    for run in runs:
        wanted = [color_of(run), *([run.policy] if run.policy in PALETTE else [])]
        choices = [(color, pale) for pale in (False, True) for color in [*wanted, *PALETTE]]
        color, pale = next(each for each in choices if each not in taken)
        taken.add((color, pale))
        found.append(Series(run.label, color, pale))
    return tuple(found)


def family_mains(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """The run by which each family is known.

    It decides by confidence where there is a choice; among equals it is the one with the fewest
    samples a problem, the first named.
    """
    families = dict.fromkeys(run.family for run in runs)
    return [_main([run for run in runs if run.family == family]) for family in families]


def main_runs(runs: Sequence[RunFacts], most: int = 6) -> list[RunFacts]:
    """The main run of each family, then the same models from left to right and at random."""
    main = family_mains(runs)
    beside = [
        run
        for policy in (LEFT_TO_RIGHT, RANDOM)
        for run in runs
        if run.policy == policy and run.kind in [each.kind for each in main] and run not in main
    ]
    chosen = [*main, *beside][:most]
    return [run for run in runs if run in chosen]


def _main(runs: Sequence[RunFacts]) -> RunFacts:
    def rank(run: RunFacts) -> tuple[int, int]:
        ranks = {policy: number for number, policy in enumerate(CONFIDENT)}
        return ranks.get(run.policy, len(CONFIDENT)), run.samples

    return min(runs, key=rank)


def sampling(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """The commands that made the samples, from the run cards."""
    return tuple(dict.fromkeys(run.run.card.command for run in runs))


def grading(runs: Sequence[RunFacts]) -> tuple[str, ...]:
    """The commands that graded them."""
    return tuple(run.command("grade") for run in runs if run.verdicts)
