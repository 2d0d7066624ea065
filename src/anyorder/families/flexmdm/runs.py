"""Two ways to break up long runs of masks, offered by the flexmdm release; both are off by default.

A run is a stretch of adjacent masks; its inner region leaves out two masks at either end. The
mass of a token in a window is the sum of its probabilities over the window's masks.

force_unmask        for each run of at least 9 in which this step takes at most the first and last
                    mask: among all windows of 4 in the inner region, and all tokens among the 10
                    best of some mask of the window, find the pair with the most mass. Take that
                    token too, at the window's mask where it is most likely.
meaningful_replace  from the 101st step on, in all runs of at least 20 whose inner region this step
                    leaves masked: find the window of 5 and the meaningful token with the most mass.
                    If that is more than the probability of the step's least likely choice, take it
                    instead of that choice, at the window's mask where it is most likely.

With both, force_unmask acts first. Among equals the leftmost wins, then the lowest id. A token is
meaningful if its text has more than white space and punctuation; special ids are not.

Neither keeps the law of the process: the first reveals more than the quota, the second decides by
the drawn tokens. Not here: strings that the release lets its user exclude.
Letters: L positions of one row, N masks of that row, R masks of a region, W windows, K tokens,
V vocabulary.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.vocab import Vocab

MARGIN = 2
FORCE_RUN, FORCE_WINDOW, FORCE_BEST = 9, 4, 10
REPLACE_RUN, REPLACE_WINDOW, REPLACE_AFTER = 20, 5, 100
EMPTY = frozenset("\u200b()[]{}.,:;'\"`@#$?\\")
"""Characters without meaning, beside white space; to Python, U+200B is no white space."""


class RevealChoice(NamedTuple):
    """The slots of one row that a step will reveal."""

    masked: Tensor
    """The masks before this step.  # L"""
    taken: Tensor
    """Those of them that are revealed now.  # L"""
    tokens: Tensor
    """Their tokens; valid where taken.  # L"""
    probability: Tensor
    """The network's posteriors, one line for each mask, left to right.  # N V"""


class RegionToken(NamedTuple):
    """A token for a place within a region."""

    mass: float
    place: int
    token: int


def runs_of(masked: Tensor, least: int) -> list[tuple[int, int]]:
    """The [start, stop) of the runs with at least `least` masks, left to right."""
    edges = torch.diff(masked.long(), prepend=masked.new_zeros(1).long(),
                       append=masked.new_zeros(1).long())  # fmt: skip
    starts, stops = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    pairs = torch.stack([starts, stops], dim=1).tolist()
    return [(start, stop) for start, stop in pairs if stop - start >= least]


def force_unmask(choice: RevealChoice) -> RevealChoice:
    """Take one more token in each long run that would get none."""
    taken, tokens = choice.taken.clone(), choice.tokens.clone()
    for start, stop in runs_of(choice.masked, FORCE_RUN):
        if bool(choice.taken[start + 1 : stop - 1].any()):
            continue
        found = _best_of_frequent(_inner(choice, start, stop))
        place = start + MARGIN + found.place
        taken[place], tokens[place] = True, found.token
    return choice._replace(taken=taken, tokens=tokens)


def meaningful_replace(choice: RevealChoice, meaningful: Tensor) -> RevealChoice:
    """Replace the least likely choice by a likelier token of `meaningful` (K) in a long run."""
    places = choice.taken.nonzero()[:, 0]
    if not len(places) or not len(meaningful):
        return choice
    best: RegionToken | None = None
    for start, stop in runs_of(choice.masked, REPLACE_RUN):
        first = start + MARGIN
        if bool(choice.taken[first : stop - MARGIN].any()):
            continue
        found = _best_among(_inner(choice, start, stop), meaningful)
        if best is None or found.mass > best.mass:
            best = found._replace(place=first + found.place)
    if best is None:
        return choice
    line = choice.masked.long().cumsum(dim=0) - 1  # L, each mask's line in `probability`
    chance = choice.probability[line[places], choice.tokens[places]]
    weakest = int(chance.argmin())
    if best.mass <= float(chance[weakest]):
        return choice
    taken, tokens = choice.taken.clone(), choice.tokens.clone()
    taken[places[weakest]] = False
    taken[best.place], tokens[best.place] = True, best.token
    return choice._replace(taken=taken, tokens=tokens)


@lru_cache(maxsize=1)  # decoding every id is slow, and a process uses one vocabulary
def meaningful_ids(vocab: Vocab) -> Tensor:
    """The ids whose text has more than white space and punctuation.  # K"""
    ids = [
        id
        for id in range(vocab.size)
        if id not in vocab.special_ids
        and any(not c.isspace() and c not in EMPTY for c in vocab.decode([id]))
    ]
    return torch.tensor(ids, dtype=torch.int64)


def _inner(choice: RevealChoice, start: int, stop: int) -> Tensor:
    """The probabilities of a run's inner region.  # R V"""
    first = int(choice.masked[:start].sum())
    return choice.probability[first + MARGIN : first + stop - start - MARGIN]


def _best_of_frequent(probability: Tensor) -> RegionToken:
    """The window and the token, among the best of each mask, with the most mass."""
    best = probability.topk(min(FORCE_BEST, probability.shape[1])).indices  # R K
    # Sorted, so that among equal masses the lowest id comes first.
    candidates = best.unfold(0, FORCE_WINDOW, 1).flatten(1).sort(dim=1).values  # W 4K
    starts = torch.arange(len(candidates), device=probability.device)
    mass = sum(
        probability[starts[:, None] + offset, candidates] for offset in range(FORCE_WINDOW)
    )  # W 4K
    assert isinstance(mass, Tensor)
    window, column = divmod(int(mass.argmax()), mass.shape[1])
    token = int(candidates[window, column])
    return _placed(probability, window, FORCE_WINDOW, token, float(mass[window, column]))


def _best_among(probability: Tensor, ids: Tensor) -> RegionToken:
    """The window and the token, among the given ones, with the most mass."""
    chosen = probability[:, ids.to(probability.device)]  # R K
    windows = len(chosen) - REPLACE_WINDOW + 1
    mass = sum(chosen[offset : offset + windows] for offset in range(REPLACE_WINDOW))  # W K
    assert isinstance(mass, Tensor)
    window, column = divmod(int(mass.argmax()), mass.shape[1])
    token = int(ids[column])
    return _placed(probability, window, REPLACE_WINDOW, token, float(mass[window, column]))


def _placed(probability: Tensor, window: int, width: int, token: int, mass: float) -> RegionToken:
    inside = probability[window : window + width, token]
    return RegionToken(mass, window + int(inside.argmax()), token)
