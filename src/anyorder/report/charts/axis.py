"""Round numbers for axes, and how numbers are written.

Not here: drawing.
"""

from __future__ import annotations

import math

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` round numbers from `low` to `high`."""
    assert high > low and most >= 2
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [power * step for step in (*STEPS, 20.0, 50.0)]
    for step in steps:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [number * step for number in range(first, last + 1)]
    raise AssertionError("the steps reach two powers of ten")


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten, or 1, 2 and 5 of each where there are few powers; at most about `most`.

    Within a decade, where that leaves fewer than three: round numbers at even distances.
    """
    assert 0 < low < high
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**decade for decade in decades for digit in digits]
        found = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(found) <= most:
            break
    if len(found) < 3 and high < 10 * low:
        return linear_ticks(low, high, most)
    return found[:: math.ceil(len(found) / most)] if found else [low, high]


def written(value: float, percent: bool = False) -> str:
    """A number of an axis, as short as it is exact."""
    if percent:
        return signed(f"{100 * value:.6g}%")
    if value and not 1e-4 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.0e}".split("e")
        return signed(f"{mantissa}e{int(exponent)}")
    return signed(f"{value:.6g}")


def shown(value: float, percent: bool = False) -> str:
    """A value beside its bar: three figures, the exact number being in a table."""
    if percent:
        return signed(f"{100 * value:.1f}%")
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return signed(f"{value:.{digits}f}")


def signed(number: str) -> str:
    """With a minus as wide as a plus, and none before a zero."""
    if not any(digit in number for digit in "123456789"):
        number = number.removeprefix("-")
    return number.replace("-", "\N{MINUS SIGN}")


def spread(low: float, high: float, log: bool = False) -> tuple[float, float]:
    """A little room on both sides, and some where all values are equal."""
    if log:
        room = 10 ** (0.05 * max(math.log10(high / low), 0.4))
        return low / room, high * room
    room = 0.06 * (high - low) or 0.5 * max(abs(high), 0.1)
    return low - room, high + room
