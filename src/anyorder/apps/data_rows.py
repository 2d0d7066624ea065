"""One record of a source -> a tokenised row, or the reason why it is left out.

In this order: the source's filters, contamination, tokens and their limits (`RowMaker`, a pure
function of the record), and then duplicates (`admit`). Contamination goes before duplicates, so
that every copy of a benchmark problem is reported as one; limits go before them, so that no row is
dropped for one that was not kept.

The split is drawn by the prompt's text: rows with one prompt are on one side, however many answers
it has and whichever source they are of, and nothing of it depends on the order of rows or on how
often they are repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from anyorder.apps.data_job import DataPlan
from anyorder.data.corpora import LeftOut
from anyorder.data.decontaminate import Contamination
from anyorder.data.keyed import key
from anyorder.data.near import HASHES, Seen, exact_key, signature
from anyorder.data.ngrams import Array, RowViews
from anyorder.data.records import Record
from anyorder.data.segments import DoesNotFit, cut, limit
from anyorder.data.shards import ShardRow, Split

SHOWN = 100
"""Characters of a contaminated row's prompt in the report."""

CONTAMINATED, DUPLICATE, NEAR_DUPLICATE = "contaminated", "duplicate", "near duplicate"


@dataclass(frozen=True)
class Dropped:
    """A row that is left out, with what the report says beside the reason."""

    reason: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MadeRow:
    """A row for the shards, if no row before it is the same."""

    row: ShardRow
    split: Split
    exact: int
    signature: Array


class RowMaker:
    """Makes rows of records, each by itself."""

    def __init__(self, plan: DataPlan) -> None:
        self._plan = plan
        items = list(chain.from_iterable(found.items for found in plan.benchmarks))
        self._contamination = Contamination(items) if items else None
        self._no_signature: Array = np.zeros(HASHES, dtype=np.uint32)

    def __call__(self, source: int, number: int, record: Record) -> MadeRow | Dropped:
        """The row of record `number` of a source."""
        opened = self._plan.sources[source]
        opened.check(record)
        try:
            prompt, answer = opened.spec.render(record, self._plan.job.mode)
            views = RowViews(prompt, answer)
            if (found := self._contaminated(views)) is not None:
                return found
            row = self._tokenised(number, prompt, answer)
        except LeftOut as reason:
            return Dropped(str(reason))
        ways = self._plan.job.ways
        return MadeRow(
            row,
            self._split(prompt),
            exact_key(views) if ways != "none" else 0,
            signature(views) if ways == "near" else self._no_signature,
        )

    def _contaminated(self, views: RowViews) -> Dropped | None:
        found = self._contamination and self._contamination.find(views)
        if not found:
            return None
        details = {"item": found.item, "part": found.part, "overlap": found.overlap}
        shown = {"shared": found.shared, "prompt": views.prompt[:SHOWN]}
        return Dropped(CONTAMINATED, details | shown)

    def _tokenised(self, number: int, prompt: str, answer: str) -> ShardRow:
        plan, vocab = self._plan, self._plan.vocab
        if not answer.strip():
            raise LeftOut("no code")
        lengths: list[int] = []
        try:
            prompt_ids = vocab.encode(prompt)
            if plan.recipe.by_line:
                segments = cut(answer, vocab, "line", plan.limits.total)
                if plan.limits.segments is not None:
                    limit(segments, plan.limits.segments)
                answer_ids = list(chain.from_iterable(segments))
                lengths = list(map(len, segments))
            else:
                answer_ids = vocab.encode(answer)
        except DoesNotFit:
            raise LeftOut("segments do not fit") from None
        except ValueError:
            raise LeftOut("not in the vocabulary") from None
        if len(prompt_ids) + len(answer_ids) + plan.limits.around > plan.limits.total:
            raise LeftOut("too long")
        return ShardRow(number, prompt_ids, answer_ids, lengths)

    def _split(self, prompt: str) -> Split:
        drawn = key("validation", self._plan.job.seed, " ".join(prompt.split()))
        return "validation" if drawn < self._plan.validation * 2**64 else "train"


def admit(made: MadeRow, seen: Seen, source: int, aliases: list[str]) -> Dropped | None:
    """Remember a row, unless one before it is the same."""
    found = seen.find(made.exact, made.signature)
    if found is None:
        seen.add(made.exact, made.signature, source, made.row.row)
        return None
    of = {"of": {"source": aliases[found.source], "row": found.row}}
    if found.similarity is None:
        return Dropped(DUPLICATE, of)
    return Dropped(NEAR_DUPLICATE, of | {"similarity": found.similarity})
