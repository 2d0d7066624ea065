"""Checks of settings that many files share. Each error says what is wrong and what to give instead.

A check raises ValueError or returns nothing (`whole` returns an int). None means that a setting was
not given, and passes where the type allows it. Checks of several settings together belong to the
file that uses the settings. This file imports no other file of the package, and never torch.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

SEEDS = 1 << 63
"""A seed is below this."""
MOST_SUGGESTED = 3


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, of numpy too; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def at_least(name: str, value: float | None, least: int = 1) -> None:
    """Refuse a value below a bound, and NaN."""
    if value is not None and not value >= least:  # NaN fails every comparison
        raise ValueError(f"{name} must be at least {least}, not {value}")


def whole(name: str, value: Any, least: int = 1) -> int:
    """The value as an int; refuse all but whole numbers from a bound on."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name}={value!r}: give a whole number of at least {least}")
    return int(value)


def positive(name: str, value: float) -> None:
    """Refuse zero, negative numbers, infinity and NaN."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value}: give a positive number")


def check_seed(name: str, value: int) -> None:
    """Refuse a seed that the keyed noise cannot use."""
    if not 0 <= value < SEEDS:
        raise ValueError(f"{name} must be from 0 to 2^63 - 1, not {value}")


def one_of(name: str, value: Any, known: Iterable[str], where: str = "") -> None:
    """Refuse a value that is not among the known ones; `where` says when the rule holds."""
    known = tuple(known)
    if value not in known:
        place = f" {where}" if where else ""
        raise ValueError(f"{name}={value!r}{place}: choose {' or '.join(map(repr, known))}")


def refuse_unknown(kind: str, name: str, names: Iterable[str]) -> None:
    """Refuse a name that is not among those of its kind."""
    names = tuple(names)
    if name not in names:
        close = did_you_mean(name, names)
        raise ValueError(f"no {kind} {name!r}: choose one of {', '.join(names)}{close}")


def check_rows(rows: int, size: int) -> None:
    """Refuse a network with fewer rows of logits than its vocabulary has tokens."""
    if rows < size:
        raise ValueError(
            f"the network gives {rows} logits for a vocabulary of {size}: use the vocabulary that "
            "it was trained with"
        )


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """ "; did you mean ...?" with the names most like a word; empty if none is like it."""
    close = nearest(word, names)
    return f"; did you mean {either(close)}?" if close else ""


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """The names most like a word, best first; the parts of tiny/mdm count as names too."""
    wanted = word.lower().strip("-")
    scores = {}
    for name in names:
        whole = name.lower().strip("-")
        parts = {whole, *whole.replace(".", "/").split("/")}
        ratios = [difflib.SequenceMatcher(None, wanted, part).ratio() for part in parts]
        # What begins alike is meant more often than what shares some letters.
        begins = 0.8 if len(wanted) > 2 and any(part.startswith(wanted) for part in parts) else 0.0
        scores[name] = max(*ratios, begins)
    best = max(scores.values(), default=0.0)
    close = [name for name, score in scores.items() if score >= max(0.7, best - 0.1)]
    return sorted(close, key=lambda name: -scores[name])[:MOST_SUGGESTED]


def either(names: Sequence[str]) -> str:
    """a, b or c."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
