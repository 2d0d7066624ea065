"""Positional uncertainty: how much of a token a canvas wants, and how well it knows where.

Paper, Section 3.2 and appendix C. With f_i(v) the untempered posterior of position i, and sums over
the masked positions of the region (those of the code), a token v has

    mass                  m(v)    = sum_i f_i(v)
    localisation          LOC(v)  = max_i f_i(v) / m(v)
    positional entropy    H(v)    = log m(v) - sum_i f_i(v) log f_i(v) / m(v)
                                  = -sum_i q_i log q_i,  q_i = f_i(v) / m(v)
    k-LOC(v)              the share of m(v) in its k best positions, k = max(1, round m(v))

and a token v that is committed at position i has the committed-position localisation f_i(v) / m(v).
LOC punishes repeated tokens: one that is certain in five places has LOC 0.2 and k-LOC 1. Halves are
rounded up; entropies are in nats. A canvas keeps the tokens of largest mass and the committed ones,
each with its measures and the largest entries of its profile f(v).

A source of posteriors has positions, masses and profiles: the network's view of a canvas
(families/replay.py), an array (`Dense`), or candidates of segments (families/replay_segments.py),
which number their (segment, place) pairs.

The region: appendix C computes everything on the positions of the extracted program. A position of
an unfinished canvas belongs to it if its *final* text does, which the trace knows.

    code    the sample's program, where it is found in the text:
              exact   verbatim; or, where it begins as the prompt does, the rest of it
              lines   from the first to the last line that the two have in common, in order
                      (extraction may leave lines out, or put some before)
              none    not found, or the sample has none: then nothing of the sample counts
              text    no program was looked for: all tokens before the first end of sequence
    all     every token, those after the end of sequence too

A token belongs to a span if they share a character. A token without characters (a later byte of a
character, a special token) does if it lies inside the span or closes its last character, but never
from the end of sequence on. An open segment counts, with every place of its tentative text, if any
of its final tokens is inside.

Not here: extraction, networks, traces, tables (placement_table.py). Letters: N positions or tokens,
V vocabulary, K chosen tokens, C committed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyorder.checks import one_of
from anyorder.trace import Run, Trace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TOKENS, PLACES, COVERED = 200, 16, 0.99
LEAST_MASS = 1e-4
"""Tokens of less mass are not kept, unless they are committed."""
TOP = 2
"""The number of tokens of largest mass that are the paper's green points."""


class PosteriorSource(Protocol):
    """The posterior of one canvas, in two views that never need all of it (N V) in memory."""

    @property
    def positions(self) -> IntArray:
        """Numbers that name the positions, each once.  # N"""
        ...

    def mass(self) -> FloatArray:
        """m(v) of every token.  # V"""
        ...

    def profile(self, tokens: IntArray) -> FloatArray:
        """f_i(v) of chosen tokens.  # N K"""
        ...


@dataclass(frozen=True, eq=False)
class Dense:
    """A source that is an array."""

    positions: IntArray  # N
    probabilities: FloatArray  # N V

    @classmethod
    def of(cls, positions: ArrayLike, probabilities: ArrayLike) -> Dense:
        """From lists, checked."""
        places = np.asarray(positions, dtype=np.int64)
        table = np.asarray(probabilities, dtype=np.float64)
        if table.ndim != 2 or places.shape != table.shape[:1]:
            raise ValueError(
                f"{places.shape} positions and probabilities of shape {table.shape}: give one row "
                "of probabilities for each position"
            )
        if not (table >= 0).all():  # NaN is not
            raise ValueError("probabilities are not negative: give a posterior, not logits")
        return cls(places, table)

    def mass(self) -> FloatArray:
        return np.asarray(self.probabilities.sum(axis=0))

    def profile(self, tokens: IntArray) -> FloatArray:
        return self.probabilities[:, tokens]


class Commit(NamedTuple):
    """A token that the sampler committed next, and its position in the source."""

    position: int
    token: int


@dataclass(frozen=True)
class Keep:
    """How much of a canvas is kept."""

    tokens: int = TOKENS
    """Tokens of largest mass, at least LEAST_MASS each; committed tokens come on top."""
    places: int = PLACES
    """Positions of a token's profile, the largest first, until they hold 99 % of its mass."""

    def __post_init__(self) -> None:
        if self.tokens < TOP:
            raise ValueError(f"tokens={self.tokens}: keep at least the {TOP} of largest mass")
        if self.places < 0:
            raise ValueError(f"places={self.places}: keep 0 or more positions of each profile")


@dataclass(frozen=True, eq=False)
class Measures:
    """The measures of K profiles."""

    mass: FloatArray  # K
    loc: FloatArray  # K
    entropy: FloatArray  # K
    k_loc: FloatArray  # K


@dataclass(frozen=True, eq=False)
class CanvasPlacement:
    """The numbers of one canvas."""

    tokens: IntArray  # K
    """The kept tokens by falling mass, equals by id."""
    measures: Measures
    profiles: tuple[tuple[IntArray, FloatArray], ...]  # K
    """The kept positions and f_i(v), by falling f."""
    commits: tuple[Commit, ...]  # C
    committed: FloatArray  # C
    """f_i(v) of the committed tokens."""
    committed_token: IntArray  # C
    """The index of each among the kept tokens."""

    @property
    def localisation(self) -> FloatArray:
        """f_i(v) / m(v) of the committed tokens; NaN where the model gives v no mass.  # C"""
        mass = self.measures.mass[self.committed_token]
        return np.divide(self.committed, mass, out=np.full_like(mass, np.nan), where=mass > 0)


def measures(profile: FloatArray) -> Measures:
    """Mass, LOC, entropy and k-LOC of each column; NaN where a token has no mass.  # N K"""
    mass = profile.sum(axis=0)
    some = mass > 0
    share = np.divide(profile, mass, out=np.zeros_like(profile), where=some)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    # Rounding may turn an entropy of 0 into -0.0 or -1e-17.
    entropy = np.where(some, np.maximum(-(share * logs).sum(axis=0), 0.0), np.nan)
    if not len(profile):
        return Measures(mass, entropy.copy(), entropy, entropy.copy())
    falling = -np.sort(-profile, axis=0)  # N K
    count = np.minimum(copies(mass), len(profile))
    best = np.take_along_axis(falling.cumsum(axis=0), count[None, :] - 1, axis=0)[0]
    nowhere = np.full_like(mass, np.nan)
    loc = np.divide(falling[0], mass, out=nowhere.copy(), where=some)
    k_loc = np.minimum(np.divide(best, mass, out=nowhere, where=some), 1.0)
    return Measures(mass, loc, entropy, k_loc)


def copies(mass: FloatArray) -> IntArray:
    """max(1, round m): how often a token of that mass occurs.  # K"""
    # Not `np.round`, which rounds halves to even.
    return np.maximum(np.floor(mass + 0.5), 1.0).astype(np.int64)


def place(
    source: PosteriorSource, commits: Sequence[Commit] = (), keep: Keep | None = None
) -> CanvasPlacement:
    """The numbers of the canvas behind `source`."""
    keep = keep or Keep()
    mass = source.mass()
    wanted = np.asarray([commit.token for commit in commits], dtype=np.int64)
    chosen = np.union1d(largest(mass, keep.tokens), wanted)
    profile = source.profile(chosen)  # N K
    found = measures(profile)
    order = np.lexsort((chosen, -found.mass))
    tokens, profile = chosen[order], profile[:, order]
    kept = Measures(*(getattr(found, name)[order] for name in Measures.__dataclass_fields__))
    column = order.argsort()[np.searchsorted(chosen, wanted)]  # C
    row = _rows(source.positions, [commit.position for commit in commits])
    return CanvasPlacement(
        tokens=tokens,
        measures=kept,
        profiles=_heads(source.positions, profile, keep.places),
        commits=tuple(commits),
        committed=profile[row, column],
        committed_token=column,
    )


def largest(mass: FloatArray, count: int) -> IntArray:
    """The ids of the `count` largest masses, sorted; among equals the lowest ids.

    Masses below LEAST_MASS are left out, except those of the first two.
    """
    count = min(count, max(int((mass >= LEAST_MASS).sum()), min(TOP, int((mass > 0).sum()))))
    if not count:
        return np.zeros(0, dtype=np.int64)
    # A partition is linear in V, where a sort is not; equals are cut by id to be deterministic.
    least = np.partition(mass, len(mass) - count)[len(mass) - count]
    above = np.flatnonzero(mass > least)
    equal = np.flatnonzero(mass == least)[: count - len(above)]
    return np.sort(np.concatenate([above, equal]))


def _heads(
    positions: IntArray, profile: FloatArray, places: int
) -> tuple[tuple[IntArray, FloatArray], ...]:
    """The largest entries of each column, until they hold COVERED of its mass.  # N K -> K"""
    order = np.argsort(-profile, axis=0, kind="stable")[:places]
    values = np.take_along_axis(profile, order, axis=0)
    before = values.cumsum(axis=0) - values
    counts = (before < COVERED * profile.sum(axis=0)).sum(axis=0).tolist()
    where = positions[order]
    return tuple((where[:n, k], values[:n, k]) for k, n in enumerate(counts))


def _rows(positions: IntArray, wanted: Sequence[int]) -> IntArray:
    """The index of each wanted position in `positions`."""
    where = {int(position): row for row, position in enumerate(positions)}
    missing = [position for position in wanted if position not in where]
    if missing:
        raise ValueError(
            f"a token is committed at position {missing[0]}, which the source does not have: give "
            "commits at positions that are looked at"
        )
    return np.asarray([where[position] for position in wanted], dtype=np.int64)


NOTHING = place(Dense(np.zeros(0, dtype=np.int64), np.zeros((0, 0))))
"""For a canvas without a masked position in the region."""


BoolArray = NDArray[np.bool_]
Extent = tuple[int, int]
"""[first, after the last) character."""


def programs_looked_for(run: Run) -> bool:
    """Whether programs were extracted: then a sample without a program has no code."""
    programs = run.table(["program"]).column("program")
    return bool(programs.null_count < len(programs))


def find_program(trace: Trace, looked_for: bool = False) -> tuple[str, Extent]:
    """How the program was found in the text (exact, lines, text, none), and its extent."""
    if trace.program is None and not looked_for:
        return "text", (0, len(trace.text))
    program = (trace.program or "").strip("\r\n")
    if not program.strip():
        return "none", (0, 0)
    at = trace.text.find(program)
    if at >= 0:
        return "exact", (at, at + len(program))
    extent = _after_prompt(trace, program)
    if extent[1] > extent[0]:
        return "exact", extent
    extent = _common_lines(trace.text, program)
    return ("lines", extent) if extent[1] > extent[0] else ("none", (0, 0))


def _after_prompt(trace: Trace, program: str) -> Extent:
    """The extent of the program's rest in the text, if it begins as the prompt does."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(program, trace.prompt, strict=False))
    rest = program[sum(1 for _ in pairs) :].strip()
    at = trace.text.find(rest) if rest else -1
    if at < 0:
        return 0, 0
    line = trace.text[:at].rstrip(" \t")  # indentation counts as code
    return len(line), at + len(rest)


def _common_lines(text: str, program: str) -> Extent:
    """From the first to the last line that both have, in order; blank lines do not count."""
    lines, shown, at = [], [], 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            lines.append(line.rstrip())
            shown.append((at, at + len(line.rstrip())))
        at += len(line)
    wanted = [line.rstrip() for line in program.splitlines() if line.strip()]
    matcher = SequenceMatcher(None, wanted, lines, autojunk=False)
    common = [block for block in matcher.get_matching_blocks() if block.size]
    if not common:
        return 0, 0
    return shown[common[0].b][0], shown[common[-1].b + common[-1].size - 1][1]


def _code(trace: Trace, end_ids: Sequence[int], looked_for: bool) -> tuple[str, BoolArray]:
    how, (first, after) = find_program(trace, looked_for)
    if how == "text":
        return how, _before_end(trace, end_ids)
    assert trace.char_end is not None
    end = trace.char_end.astype(np.int64)
    start = np.concatenate([[0], end[:-1]]) if len(end) else end
    shares = (start < after) & (end > first) & (end > start)
    empty = (start == end) & (end > first) & (end <= after)
    return how, (shares | empty) & _before_end(trace, end_ids)


def _before_end(trace: Trace, end_ids: Sequence[int]) -> BoolArray:
    assert trace.token_ids is not None
    return np.cumsum(np.isin(trace.token_ids, end_ids)) == 0


REGIONS: dict[str, Callable[[Trace, Sequence[int], bool], tuple[str, BoolArray]]] = {
    "code": _code,
    "all": lambda trace, end_ids, looked_for: ("all", _before_end(trace, ())),
}


def tokens_inside(
    trace: Trace, region: str, end_ids: Sequence[int], *, looked_for: bool = False
) -> tuple[str, BoolArray]:
    """How the region was found, and whether each of the trace's tokens is inside.  # N

    `end_ids` end a text: code ends before the first of them.
    looked_for: extraction ran on every sample, so a sample without a program has no code.
    """
    one_of("region", region, REGIONS)
    if trace.token_ids is None or trace.char_end is None:
        raise ValueError(
            f"trace {trace.task_id!r} sample {trace.sample} holds strings, not token ids, and a "
            "network reads ids: import it with its ids (see docs/traces.md), or sample it again"
        )
    return REGIONS[region](trace, end_ids, looked_for)
