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
        ema.update()
        d = min(decay, (1 + n) / (10 + n))
        average = d * average + (1 - d) * value
    with ema.shown() as averaged:
        assert averaged.weight.item() == pytest.approx(average, rel=1e-9, abs=1e-12)
    assert net.weight.item() == values[-1], "the weights themselves are back"


def test_warm_up_reaches_the_decay_and_stays() -> None:
    assert warm_decay(0.999, 1) == pytest.approx(2 / 11)
    assert warm_decay(0.999, 8000) < 0.999 <= warm_decay(0.999, 9000)
    assert warm_decay(0.5, 10_000) == 0.5


def test_only_trained_weights_are_averaged(toy: ModuleType) -> None:
    net = toy.ToyNet()
    net.register_buffer("seen", torch.zeros(2))
    frozen = next(weight for name, weight in net.named_parameters() if "embed" not in name)
    frozen.requires_grad_(False)
    ema = Ema(net, 0.9)
    before = net.embed.weight.detach().clone()
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(1.0)
        net.seen.fill_(3.0)
    moved = frozen.clone()
    ema.update()
    with ema.shown() as averaged:
        assert averaged.out.weight is averaged.embed.weight
        torch.testing.assert_close(averaged.embed.weight.detach(), before + 9 / 11)
        assert torch.equal(frozen, moved)
        assert averaged.seen.tolist() == [3.0, 3.0], "buffers are not averaged"
    assert torch.equal(net.embed.weight, before + 1.0)


def test_weights_come_back_after_an_error(toy: ModuleType) -> None:
    net = toy.ToyNet()
    ema = Ema(net, 0.9)
    before = net.embed.weight.detach().clone()
    with pytest.raises(KeyError), ema.shown():
        raise KeyError
    assert torch.equal(net.embed.weight, before)
