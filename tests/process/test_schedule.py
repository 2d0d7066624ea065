"""Schedules against their definitions: finite differences, round trips, composed thinnings."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder.process.schedule import LINEAR, Power

exponents = st.floats(0.3, 6.0)
times = st.floats(0.0, 0.99)


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@given(exponents, times)
def test_inverse_undoes_value(exponent: float, t: float) -> None:
    schedule = Power(exponent)
    # The value is rounded near 1, which costs the inverse 1 / slope times as much.
    slack = 1e-9 + 1e-15 / float(schedule.derivative(scalar(t)))
    assert float(schedule.inverse(schedule.value(scalar(t)))) == pytest.approx(t, abs=slack)


@given(exponents, st.floats(0.01, 0.98))
def test_derivative_and_hazard(exponent: float, t: float) -> None:
    schedule, step = Power(exponent), 1e-6
    slope = (schedule.value(scalar(t + step)) - schedule.value(scalar(t - step))) / (2 * step)
    assert float(schedule.derivative(scalar(t))) == pytest.approx(float(slope), rel=1e-4, abs=1e-8)
    hazard = schedule.derivative(scalar(t)) / (1 - schedule.value(scalar(t)))
    assert float(schedule.hazard(scalar(t))) == pytest.approx(float(hazard), rel=1e-6)


@given(exponents, times, times, times)
def test_thinnings_compose(exponent: float, a: float, b: float, c: float) -> None:
    """Surviving t to s and then s to u is surviving t to u, whatever the step sizes."""
    t, s, u = (scalar(x) for x in sorted((a, b, c)))
    schedule = Power(exponent)
    twice = (1 - schedule.thinning(t, s)) * (1 - schedule.thinning(s, u))
    assert float(1 - schedule.thinning(t, u)) == pytest.approx(float(twice), abs=1e-9)
    assert float(schedule.thinning(scalar(0.0), u)) == pytest.approx(float(schedule.value(u)))


def test_thinning_ends_complete() -> None:
    one = scalar(1.0)
    assert float(LINEAR.thinning(scalar(0.5), one)) == 1.0
    assert float(LINEAR.thinning(one, one)) == 1.0


def test_linear_is_the_first_power() -> None:
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert torch.allclose(LINEAR.value(t), t)


def test_exponent_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        Power(0.0)
