"""The shared checks: what passes, and what is said of the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anyorder.checks import at_least, check_seed, one_of, positive, refuse_unknown, whole

REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "below": (at_least, ("--limit", 0), "--limit must be at least 1, not 0"),
    "below another bound": (at_least, ("x", -1, 0), "x must be at least 0, not -1"),
    "no number": (at_least, ("x", float("nan")), "x must be at least 1, not nan"),
    "a part": (whole, ("batch", 2.5), "batch=2.5: give a whole number of at least 1"),
    "a truth": (whole, ("batch", True), "batch=True: give a whole number of at least 1"),
    "a text": (whole, ("batch", "3"), "batch='3': give a whole number of at least 1"),
    "too few": (whole, ("keep", 1, 2), "keep=1: give a whole number of at least 2"),
    "zero": (positive, ("lr", 0.0), "lr=0.0: give a positive number"),
    "infinite": (positive, ("lr", float("inf")), "lr=inf: give a positive number"),
    "undefined": (positive, ("lr", float("nan")), "lr=nan: give a positive number"),
    "negative seed": (check_seed, ("--seed", -1), "--seed must be from 0 to 2^63 - 1, not -1"),
    "large seed": (
        check_seed,
        ("s", 1 << 63),
        "s must be from 0 to 2^63 - 1, not 9223372036854775808",
    ),
    "another value": (one_of, ("mode", "x", ("a", "b")), "mode='x': choose 'a' or 'b'"),
    "another name": (
        refuse_unknown,
        ("task", "x", {"a": 1, "b": 2}),
        "no task 'x': choose one of a, b",
    ),
}


@pytest.mark.parametrize(("check", "given", "says"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_the_setting_and_the_remedy(
    check: Callable[..., Any], given: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        check(*given)


def test_what_is_right_passes() -> None:
    at_least("x", 1)
    at_least("x", None)
    positive("x", 1e-9)
    check_seed("x", (1 << 63) - 1)
    one_of("x", "a", ("a",))
    refuse_unknown("task", "a", {"a": 1})
    assert whole("x", np.int64(3)) == 3 and type(whole("x", np.int64(3))) is int
