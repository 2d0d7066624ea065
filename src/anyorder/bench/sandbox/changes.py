"""What a call did to its arguments, done to the caller's objects.

`apply(before, after)` makes `before` equal to `after` in place as far as its types are mutable, and
keeps the identity of inner containers where both sides have one of the same type.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any


def apply(before: Any, after: Any) -> Any:
    """`before`, changed to `after` where it can be; else `after` itself."""
    if type(before) is not type(after):
        return after
    change = _CHANGES.get(type(before))
    if change is not None:
        return change(before, after)
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(before) is numpy.ndarray and before.shape == after.shape:
        before[...] = after
        return before
    return after


def _list(before: list[Any], after: list[Any]) -> list[Any]:
    common = min(len(before), len(after))
    before[:] = [*map(apply, before[:common], after[:common]), *after[common:]]
    return before


def _tuple(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(before) != len(after):
        return after
    return tuple(map(apply, before, after))


def _dict(before: dict[Any, Any], after: dict[Any, Any]) -> dict[Any, Any]:
    kind = OrderedDict if isinstance(before, OrderedDict) else dict  # a Counter's `update` adds
    merged = [
        (key, apply(before[key], item) if key in before else item) for key, item in after.items()
    ]
    before.clear()
    kind.update(before, merged)
    return before


def _set(before: set[Any], after: set[Any]) -> set[Any]:
    before.clear()
    before.update(after)
    return before


def _bytearray(before: bytearray, after: bytearray) -> bytearray:
    before[:] = after
    return before


def _deque(before: deque[Any], after: deque[Any]) -> deque[Any]:
    before.clear()
    before.extend(after)
    return before


_CHANGES: dict[type, Callable[[Any, Any], Any]] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
    Counter: _dict,
    defaultdict: _dict,
    OrderedDict: _dict,
    set: _set,
    bytearray: _bytearray,
    deque: _deque,
}
