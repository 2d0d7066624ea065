"""How well colours can be told apart by their lightness, as WCAG defines it."""

from __future__ import annotations

READABLE = 4.5  # WCAG AA, text of ordinary size


def luminance(color: list[int]) -> float:
    parts = [value / 255 for value in color]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: list[int], two: list[int]) -> float:
    low, high = sorted([luminance(one), luminance(two)])
    return (high + 0.05) / (low + 0.05)
