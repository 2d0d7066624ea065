"""Second thoughts about a step: rules that change what was chosen before it is committed.

A step of flexmdm chooses which open slots to reveal and draws their tokens. An extra is a function
from that choice to another one: it may take further open slots, put some back, or change tokens.
The release has two, which break up long runs of masks; both are off by default.

Not here: the rules themselves (runs.py), and insertions. Letters: B rows, L positions, N open slots
of one row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from anyorder.decode import runs
from anyorder.decode.flexmdm_options import FlexOptions
from anyorder.decode.runs import Choice
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class Chosen:
    """What a step is about to reveal. Make a changed one with `dataclasses.replace`."""

    step: int
    """The number of this step, from 1."""
    open: Tensor  # B L, bool
    """The slots that are masked now; others are never taken."""
    taken: Tensor  # B L, bool
    """The open slots that become text."""
    tokens: Tensor  # B L
    """The token drawn for every open slot, taken or not; anything elsewhere."""
    probabilities: Callable[[int], tuple[Tensor, Tensor]]
    """row -> positions of its open slots (N), and their untempered posteriors (N V). Costs a pass
    of the vocabulary head: ask for rows that need it, one at a time."""


Extra = Callable[[Chosen], Chosen]


@dataclass(frozen=True)
class _Rule:
    """A rule for the rows that have a run of masks of some length, from some step on."""

    run: int
    after: int
    change: Callable[[Choice], Choice]

    def concerns(self, chosen: Chosen, row: int) -> bool:
        return chosen.step > self.after and bool(runs.runs_of(chosen.open[row], self.run))


def extra_of(options: FlexOptions, vocab: Vocab) -> Extra | None:
    """The extras that are switched on, as one; None if there are none."""
    rules = []
    if options.force_unmask:
        rules.append(_Rule(runs.FORCE_RUN, 0, runs.force_unmask))
    if options.meaningful_replace:
        replacing = partial(runs.meaningful_replace, meaningful=runs.meaningful_ids(vocab))
        rules.append(_Rule(runs.REPLACE_RUN, runs.REPLACE_AFTER, replacing))
    return partial(_apply, rules) if rules else None


def _apply(rules: list[_Rule], chosen: Chosen) -> Chosen:
    taken, tokens = chosen.taken.clone(), chosen.tokens.clone()
    for row in range(len(taken)):
        concerned = [rule for rule in rules if rule.concerns(chosen, row)]
        if not concerned:
            continue
        _, probability = chosen.probabilities(row)
        choice = Choice(chosen.open[row], taken[row], tokens[row], probability)
        for rule in concerned:
            choice = rule.change(choice)
        taken[row], tokens[row] = choice.taken, choice.tokens
    return replace(chosen, taken=taken, tokens=tokens)
