"""The likelihoods of many texts, each with its standard error (families/likelihood.py).

A bound is a mean over draws. The N draws of a text have systematic levels: one uniform number u is
drawn, and draw i has the level (u + i) / N. On an any-order bound it masks

    n_i = 1 + floor((u + i) L / N)        of L items, at random places

Every level, so every number n in {1, ..., L}, has the same weight: the mean is unbiased. Even
levels take most of the variance out. Places stay independent: nested ones would share their luck.

If N draws could show all 2^L - 1 sets of masked items, all of them are taken instead. The bound is
then exact, without noise (one token: the network's own probability):

    sum over n of  mean over sets of n masked items of  (1/n) * sum over masked of -log f_i

In a model of blocks all of them show a set at a time: 2^L - 1 rows with L the largest block.

The standard error. Systematic draws are not independent, so their spread is too large a number for
it. Neighbours d_i, d_{i+1} have almost the same level, and differ by the luck of their places:

    error^2 = (1/N) * sum over i of (d_{i+1} - d_i)^2 / (2 (N - 1))

Noise is keyed by seed, prompt and `Example.index`, never by the place in a batch: a text has the
same number in any order and batch size, up to rounding. Answers of equal length to one prompt get
the same masks, so that their difference has less noise than each.

Not here: text, models, windows over long texts (apps/lm_eval). Letters: B rows, N items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.families.likelihood import Likelihood, drawn_nats
from anyorder.process.noise import Noise, Stream, key_of, uniform
from anyorder.vocab import Vocab

KEYS = 1 << 63
"""Keys of rows are below this, so that they fit into int64."""


@dataclass(frozen=True)
class Estimate:
    """-log p of one text, or a bound on it."""

    nats: float
    error: float
    """Its standard error; 0 where there is no noise."""


@dataclass(frozen=True)
class Scorer:
    """A network with its likelihood, and how many draws a text gets."""

    likelihood: Likelihood
    net: Any
    vocab: Vocab
    config: BatchConfig
    """How rows are framed, ended and cut."""
    device: torch.device
    draws: int = 128
    batch: int = 32
    """Rows in a call of the network: one for each draw."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws < 2:
            raise ValueError(f"draws={self.draws}: give at least 2, for a standard error")

    def estimates(
        self,
        examples: Sequence[Example],
        advance: Callable[[int], None] = lambda rows: None,
    ) -> list[Estimate]:
        """One for each example, in their order; `advance` hears of finished examples."""
        found = [Estimate(0.0, 0.0)] * len(examples)
        plans = [self._plan(example) for example in examples]
        by_length = sorted(range(len(examples)), key=lambda number: _length(examples[number]))
        for enumerated in (True, False):  # two kinds of rows, never in one batch
            chosen = [number for number in by_length if plans[number].enumerated == enumerated]
            rows = [(number, row) for number in chosen for row in range(plans[number].rows)]
            drawn: dict[int, list[float]] = {number: [] for number in chosen}
            for start in range(0, len(rows), self.batch):
                part = rows[start : start + self.batch]
                values = self._values([(examples[n], plans[n], row) for n, row in part])
                for (number, _), value in zip(part, values, strict=True):
                    drawn[number].append(value)
                    advance(len(drawn[number]) == plans[number].rows)
            for number, values in drawn.items():
                found[number] = plans[number].estimate(values)
        return found

    def _plan(self, example: Example) -> _Plan:
        """Which rows the example gets."""
        if self.likelihood.exact:
            return _Plan(1)
        if self.likelihood.any_order is not None:
            sets = self.likelihood.any_order.sets(self.net, self._collate([example]))
            if sets <= self.draws:
                return _Plan(sets, enumerated=True)
        key = key_of(self.seed, example.index, *example.prompt)
        return _Plan(self.draws, key=key, start=float(uniform(self.seed, int(Stream.TIME), key)))

    def _collate(self, examples: Sequence[Example]) -> Batch:
        return collate(examples, self.vocab, self.config)

    def _values(self, rows: Sequence[tuple[Example, _Plan, int]]) -> list[float]:
        """What each row's draw gives."""
        named = [
            replace(example, index=(plan.key + row) % KEYS if plan.key is not None else row)
            for example, plan, row in rows
        ]
        batch = self._collate(named).to(self.device)
        if rows[0][1].enumerated:
            assert self.likelihood.any_order is not None
            draw = partial(self.likelihood.any_order.enumerated, self.net, self.vocab, batch)
        else:
            levels = tuple(plan.level(row) for _, plan, row in rows)
            noise = Noise(self.seed, 0, levels)
            draw = partial(self.likelihood.nats, self.net, self.vocab, batch, noise)
        return drawn_nats(self.likelihood, self.net, batch, draw).tolist()

    def greedy(self, examples: Sequence[Example]) -> list[bool]:
        """Whether each answer is made of the likeliest tokens, if the network tells it at once."""
        check = self.likelihood.greedy
        assert check is not None, "only decoding tells it"
        found: list[bool] = []
        for start in range(0, len(examples), self.batch):
            batch = self._collate(examples[start : start + self.batch]).to(self.device)
            with torch.no_grad():
                found += check(self.net, batch).tolist()
        return found


@dataclass(frozen=True)
class _Plan:
    """The rows of one example."""

    rows: int
    enumerated: bool = False
    """Whether rows are the sets of masks; else they are drawn."""
    key: int | None = None
    start: float = 0.5
    """u."""

    def level(self, row: int) -> float:
        return (self.start + row) / self.rows

    def estimate(self, values: Sequence[float]) -> Estimate:
        """The number of an example from those of its rows, in their order."""
        if self.enumerated:
            return Estimate(math.fsum(values), 0.0)
        return Estimate(math.fsum(values) / self.rows, standard_error(values))


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of systematic draws, in the order of their levels; 0 for a single number."""
    if len(values) < 2:
        return 0.0
    steps = zip(values[1:], values[:-1], strict=True)
    squares = math.fsum((after - before) ** 2 for after, before in steps)
    return math.sqrt(squares / (2 * (len(values) - 1) * len(values)))


def _length(example: Example) -> int:
    return len(example.prompt) + len(example.answer)
