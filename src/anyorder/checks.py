"""Checks of settings that many files share. Each says what is wrong and what to give instead.

A check raises ValueError, or returns nothing (`whole` returns the number as an int). A value of
None is a setting that nobody gave, and passes where None is allowed by the type. Checks of several
settings together are not here: they belong to what uses the settings.

This file imports nothing of ours, and never torch: every room may use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral
from typing import Any

SEEDS = 1 << 63
"""A seed is below this."""


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, numpy's included; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def at_least(name: str, value: float | None, least: int = 1) -> None:
    """Refuse what is below a bound, and what is no number."""
    if value is not None and not value >= least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def whole(name: str, value: Any, least: int = 1) -> int:
    """Refuse what is not a whole number, or below a bound."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name}={value!r}: give a whole number of at least {least}")
    return int(value)


def positive(name: str, value: float) -> None:
    """Refuse zero, what is below it, infinity, and what is no number."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value}: give a positive number")


def check_seed(name: str, value: int) -> None:
    """Refuse what the keyed noise cannot start from."""
    if not 0 <= value < SEEDS:
        raise ValueError(f"{name} must be from 0 to 2^63 - 1, not {value}")


def one_of(name: str, value: Any, known: Iterable[str], where: str = "") -> None:
    """Refuse a value of a setting that is not one of the known ones (`where`: only then)."""
    known = tuple(known)
    if value not in known:
        place = f" {where}" if where else ""
        raise ValueError(f"{name}={value!r}{place}: choose {' or '.join(map(repr, known))}")


def refuse_unknown(kind: str, name: str, names: Iterable[str]) -> None:
    """Refuse the name of a thing of some kind that is not there."""
    names = tuple(names)
    if name not in names:
        raise ValueError(f"no {kind} {name!r}: choose one of {', '.join(names)}")
