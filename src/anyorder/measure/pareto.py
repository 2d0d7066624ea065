"""The Pareto front: what nothing else beats in both cost and value.

A point beats another if it costs no more and is worth no less, and is better in one of the two.
Points that are equal in both do not beat one another: they are on the front together, or not at
all. The front is a statement about estimates; how sure these are is for their intervals to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, float]
"""(cost, value): less of the first is better, more of the second."""


def beats(left: Point, right: Point) -> bool:
    """Whether left costs no more than right and is worth no less, and they are not equal."""
    return left != right and left[0] <= right[0] and left[1] >= right[1]


def on_front(points: Sequence[Point]) -> list[bool]:
    """Whether each point is beaten by none."""
    for point in points:
        if any(math.isnan(number) for number in point):
            raise ValueError("a point without cost or value cannot be compared: leave it out")
    best, found = -math.inf, [False] * len(points)
    # By rising cost, the best value of each cost first: a point is beaten iff something at least as
    # cheap is worth more, or something cheaper is worth as much.
    order = sorted(range(len(points)), key=lambda number: (points[number][0], -points[number][1]))
    last: Point | None = None
    for number in order:
        point = points[number]
        if point[1] > best or point == last:
            found[number], best, last = True, point[1], point
    return found
