"""How far an order is left to right: AR-ness, adjacent moves, Kendall's tau, from times alone.

Items 0..N-1 stand from left to right; `times[i]` is the step that reveals item i. Steps may reveal
several items; inside a step there is no order, so an item is judged by what was there *before* its
step. Let e = 0, 1, ... number the steps that reveal something, n_e items each, m_e items still
hidden before step e.

    global@k   share of items that are among the k leftmost hidden before their step (DiffuCoder)
    local@k    share of items i, of those revealed at e >= k, with item i-1 revealed at step e-1,
               i-2 at e-2, ..., i-k at e-k: k moves to the next place in a row
    adjacent   share of items, of those at e >= 1, with a neighbour on either side revealed at e-1
    tau        Kendall's tau-b of place and time; a pair of one step is tied and counts for neither
               side: (concordant - discordant) / sqrt(pairs * pairs not tied); NaN if all are tied

With one item a step, strict left to right has 1 in all of them. With more it cannot, so every value
comes with `left_to_right`, the same steps dealt out in that order, and with its `chance`, the
expectation when they are dealt out at random, here in closed form:

    global@k   sum_e n_e min(k, m_e) / m_e / N
    local@k    (N-k) sum_{e>=k} n_e n_{e-1} ... n_{e-k} / (N (N-1) ... (N-k)) / sum_{e>=k} n_e
    adjacent   sum_{e>=1} [2 a b / N - a b (a-1) / (N (N-1))] / sum_{e>=1} b,  a = n_{e-1}, b = n_e
    tau        0: mirroring an order changes its sign

Which tokens are items is decided in arness.py.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class OrderScore:
    """One score of one order, beside what the same steps give in other orders."""

    value: float
    chance: float
    left_to_right: float
    """What the same steps score when they are dealt out from left to right."""
    mirrored: float
    """The same score read from right to left."""


def order_scores(times: ArrayLike, ks: Sequence[int]) -> dict[str, OrderScore]:
    """`global@k` and `local@k` for each k, `adjacent` and `tau`; NaN where there is none."""
    own = np.asarray(times, dtype=np.int64)
    sizes = np.unique(own, return_counts=True)[1]
    chances = _chances(sizes, ks)
    here, best, back = (_values(each, ks) for each in (own, np.sort(own), own[::-1]))
    return {name: OrderScore(here[name], chances[name], best[name], back[name]) for name in here}


def tau_b(times: ArrayLike) -> float:
    """Kendall's tau-b of the times of items from left to right."""
    own = np.asarray(times, dtype=np.int64)
    return _tau(*_left_counts(own))


def _values(times: IntArray, ks: Sequence[int]) -> dict[str, float]:
    later, same = _left_counts(times)
    hidden_left = later + same
    entry = np.unique(times, return_inverse=True)[1]
    run = _runs(entry)
    values = {f"global@{k}": _share(hidden_left < k) for k in ks}
    values |= {f"local@{k}": _share(run[entry >= k] >= k) for k in ks}
    neighbour = np.zeros(len(entry), dtype=bool)
    neighbour[1:] |= entry[1:] == entry[:-1] + 1
    neighbour[:-1] |= entry[:-1] == entry[1:] + 1
    values["adjacent"] = _share(neighbour[entry >= 1])
    values["tau"] = _tau(later, same)
    return values


def _left_counts(times: IntArray) -> tuple[IntArray, IntArray]:
    """Per item: how many to its left are revealed later, and how many in the same step."""
    seen: list[int] = []
    later, same = [], []
    for time in times.tolist():
        first, after = bisect_left(seen, time), bisect_right(seen, time)
        later.append(len(seen) - after)
        same.append(after - first)
        seen.insert(after, time)
    return np.array(later, dtype=np.int64), np.array(same, dtype=np.int64)


def _tau(later: IntArray, same: IntArray) -> float:
    pairs = len(later) * (len(later) - 1) // 2
    untied = pairs - int(same.sum())
    discordant = int(later.sum())
    return (untied - 2 * discordant) / math.sqrt(pairs * untied) if untied else math.nan


def _runs(entry: IntArray) -> IntArray:
    """Per item: how many steps in a row went to the next place, up to this item."""
    moves = np.zeros(len(entry), dtype=bool)
    moves[1:] = entry[1:] == entry[:-1] + 1
    place = np.arange(len(entry))
    return place - np.maximum.accumulate(np.where(moves, 0, place))


def _share(hits: NDArray[np.bool_]) -> float:
    return float(hits.mean()) if hits.size else math.nan


def _chances(sizes: IntArray, ks: Sequence[int]) -> dict[str, float]:
    n = int(sizes.sum())
    left = (n - np.concatenate([[0], np.cumsum(sizes)]))[:-1]  # m_e
    chances = {f"global@{k}": _ratio((sizes * np.minimum(k, left) / left).sum(), n) for k in ks}
    for k in ks:
        products = np.ones(max(0, len(sizes) - k))
        for back in range(k + 1):
            # Divided as they come, so that nothing overflows: n (n-1) ... (n-k) is huge.
            products = products * sizes[k - back : len(sizes) - back] / (n - back)
        chances[f"local@{k}"] = _ratio((n - k) * products.sum(), sizes[k:].sum())
    before, now = sizes[:-1].astype(float), sizes[1:].astype(float)
    expected = (2 * before * now / n - before * now * (before - 1) / (n * max(1, n - 1))).sum()
    chances["adjacent"] = _ratio(expected, sizes[1:].sum())
    chances["tau"] = 0.0 if len(sizes) > 1 else math.nan
    return chances


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else math.nan
