"""Which rows of a corpus hold a benchmark's problems: n-gram overlap, with what was found.

A benchmark item has parts; each part is compared in one view (ngrams.py), by containment:

    overlap = n-grams of the part that the row has too / n-grams of the part

    part       view    n    a row holds the part if
    statement  words   8    overlap >= 0.3 and 8 n-grams or more are shared, or overlap = 1
    solution   shape  12    overlap >= 0.7 and 10 or more are shared
    tests      words   8    overlap >= 0.7 and 10 or more are shared

Sentences are compared with the row's prompt and answer, solutions with its answer. Of a part with
fewer tokens than n only a statement is compared: a row holds it if it is the row's whole prompt.

docs/data.md has the measurements behind n and the thresholds: what planted copies reach, and what
clean corpora do. Which texts an item is made of is apps/data_against.py's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from anyorder.data.ngrams import VIEWS, Array, RowViews, grams, numbers


@dataclass(frozen=True)
class Rule:
    """When a row is said to hold a part."""

    view: str
    size: int
    overlap: float
    shared: int
    whole: bool = False
    """Whether a part that is there completely counts however short it is."""

    def holds(self, shared: int, total: int) -> bool:
        return (shared >= self.shared and shared >= self.overlap * total) or (
            self.whole and shared == total
        )


RULES = {
    "statement": Rule("words", 8, 0.3, 8, whole=True),
    "solution": Rule("shape", 12, 0.7, 10),
    "tests": Rule("words", 8, 0.7, 10),
}


@dataclass(frozen=True)
class Item:
    """One problem of a benchmark."""

    name: str
    """The benchmark's id of it, such as HumanEval/12."""
    parts: dict[str, str]
    """Kind of part -> its text; the kinds are those of RULES."""


@dataclass(frozen=True)
class Match:
    """What was found in a row."""

    item: str
    part: str
    overlap: float
    shared: int


class Contamination:
    """An index of benchmark items that rows are looked up in."""

    def __init__(self, items: Iterable[Item]) -> None:
        entries: list[tuple[str, str, int]] = []
        found: dict[tuple[str, int], list[tuple[Array, int]]] = {}
        self._short: dict[int, str] = {}
        for item in items:
            for part, text in item.parts.items():
                rule = RULES[part]
                tokens = numbers(VIEWS[rule.view](text))
                known = np.unique(grams(tokens, rule.size))
                if len(known):
                    found.setdefault((rule.view, rule.size), []).append((known, len(entries)))
                    entries.append((item.name, part, len(known)))
                elif rule.whole and len(tokens):
                    self._short.setdefault(_whole(tokens), item.name)
        self._entries = entries
        self._tables = {key: _sorted(parts) for key, parts in found.items()}

    def find(self, row: RowViews) -> Match | None:
        """The part of which the row holds the largest share, if it holds one."""
        best: Match | None = None
        if len(row.prompt_words) and (name := self._short.get(_whole(row.prompt_words))):
            best = Match(name, "statement", 1.0, 1)
        for (view, size), (known, owners) in self._tables.items():
            held = np.unique(grams(getattr(row, view), size))
            first = np.searchsorted(known, held, "left")
            last = np.searchsorted(known, held, "right")
            hit = np.flatnonzero(first < last)
            if not len(hit):
                continue
            shares = np.concatenate([owners[first[at] : last[at]] for at in hit])
            for owner, shared in zip(*np.unique(shares, return_counts=True), strict=True):
                name, part, total = self._entries[int(owner)]
                overlap = int(shared) / total
                if RULES[part].holds(int(shared), total) and (
                    best is None or overlap > best.overlap
                ):
                    best = Match(name, part, round(overlap, 4), int(shared))
        return best


def _whole(tokens: Array) -> int:
    """One number of a whole text."""
    return int(grams(tokens, len(tokens))[0])


def _sorted(parts: list[tuple[Array, int]]) -> tuple[Array, Array]:
    """All n-grams of a view in order, and beside each the entry that it belongs to."""
    known = np.concatenate([own for own, _ in parts])
    owners = np.concatenate([np.full(len(own), entry, np.int64) for own, entry in parts])
    order = np.argsort(known, kind="stable")
    return known[order], owners[order]
