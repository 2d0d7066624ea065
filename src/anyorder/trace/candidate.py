"""What was proposed for a segment in one step, and whether it was taken.

A decoder of segments proposes content for every open segment, ranks the proposals by a score and
commits the best. A trace that holds all of them (`Trace.candidates`) is the paper's generation
trace: per step, each open segment with its tentative text and its score.

Not here: how segments are proposed or scored (decode/), or shown (apps/show_segments.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from anyorder.trace import checks

if TYPE_CHECKING:
    from anyorder.vocab import Vocab


class Candidate(NamedTuple):
    """In step `step`, `segment` was proposed to hold `piece`."""

    step: int
    segment: int
    """As in the trace's column `segment`."""
    token_ids: tuple[int, ...] | None
    """Without the end that closes a segment, so none for an empty one; None for imported
    strings."""
    piece: str
    """The text proposed."""
    score: float | None
    """What it was ranked by; None where nothing was ranked."""
    taken: bool
    """Whether the step committed it."""


class Proposed(Protocol):
    """What a decoder records: a candidate without its text, NaN where nothing was ranked."""

    @property
    def step(self) -> int: ...
    @property
    def segment(self) -> int: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def score(self) -> float: ...
    @property
    def taken(self) -> bool: ...


def spelled(vocab: Vocab | None, proposed: Iterable[Proposed]) -> tuple[Candidate, ...]:
    """Recorded proposals with their text; without a vocabulary that of token 17 is `<17>`."""
    found = []
    for each in proposed:
        ids = tuple(map(int, each.token_ids))
        text = vocab.decode(ids) if vocab else "".join(f"<{number}>" for number in ids)
        found.append(Candidate(each.step, each.segment, ids, text, each.score, each.taken))
    return tuple(found)


def checked(name: str, values: Any) -> tuple[Candidate, ...] | None:
    """Values from outside in their stored types; None where there are none."""
    found = []
    for number, (step, segment, token_ids, piece, score, taken) in enumerate(values):
        entry = f"{name}[{number}]"
        if not isinstance(taken, bool | np.bool_):
            raise ValueError(f"{entry}.taken: true or false is needed, got {taken!r}")
        ids = None
        if token_ids is not None:
            ids = tuple(checks.integers(f"{entry}.token_ids", token_ids).tolist())
        found.append(
            Candidate(
                checks.count(f"{entry}.step", step, lowest=1),
                checks.count(f"{entry}.segment", segment),
                ids,
                checks.text(f"{entry}.piece", piece),
                _score(f"{entry}.score", score),
                bool(taken),
            )
        )
    return tuple(found) or None


def _score(name: str, value: Any) -> float | None:
    """As the file will hold it: float32, and none instead of NaN."""
    if value is None:
        return None
    score = float(checks.scores(name, [value])[0])
    return None if math.isnan(score) else score
