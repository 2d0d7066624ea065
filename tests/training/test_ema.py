"""The average against its recursion."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from anyorder.training.optimiser import Ema, warm_decay


@given(
    decay=st.floats(0.01, 0.9999),
    values=st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30),
)
@settings(deadline=None, max_examples=30)
def test_average_follows_the_recursion(decay: float, values: list[float]) -> None:
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(net.weight, 2.0)
    ema = Ema(net, decay)
    average = 2.0
    for n, value in enumerate(values, start=1):
        nn.init.constant_(net.weight, value)
        ema.update(net)
        d = min(decay, (1 + n) / (10 + n))
        average = d * average + (1 - d) * value
    assert next(ema.module.parameters()).item() == pytest.approx(average, rel=1e-9, abs=1e-12)


def test_warm_up_reaches_the_decay_and_stays() -> None:
    assert warm_decay(0.999, 1) == pytest.approx(2 / 11)
    assert warm_decay(0.999, 8000) < 0.999 <= warm_decay(0.999, 9000)
    assert warm_decay(0.5, 10_000) == 0.5


def test_copy_is_apart_tied_and_in_evaluation_mode(toy: ModuleType) -> None:
    net = toy.ToyNet()
    net.register_buffer("seen", torch.zeros(2))
    ema = Ema(net, 0.9)
    assert ema.module.out.weight is ema.module.embed.weight
    assert not ema.module.training
    assert net.training
    assert not any(parameter.requires_grad for parameter in ema.module.parameters())
    with torch.no_grad():
        net.embed.weight.add_(1.0)
        net.seen.fill_(3.0)
    before = ema.module.embed.weight.clone()
    ema.update(net)
    torch.testing.assert_close(ema.module.embed.weight, before + 9 / 11)
    assert ema.module.seen.tolist() == [3.0, 3.0], "buffers are copied, not averaged"
