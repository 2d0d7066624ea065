"""The head in parts is the head at once: values, gradients, and how much exists at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from anyorder.families.latentmdm import loss as head_nats
from anyorder.families.latentmdm.loss import linear_nats


def drawn(targets: int, words: int, width: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(targets, width, generator=generator, dtype=torch.float64)
    table = 3 * torch.randn(words, width, generator=generator, dtype=torch.float64)
    wanted = torch.randint(words, (targets,), generator=generator)
    return [states.requires_grad_(), table.requires_grad_(), wanted]


@given(
    st.integers(1, 9), st.integers(1, 7), st.integers(1, 5), st.integers(1, 80), st.integers(0, 99)
)
def test_parts_are_the_whole(targets: int, words: int, width: int, most: int, seed: int) -> None:
    states, table, wanted = drawn(targets, words, width, seed)
    logits = functional.linear(states, table)
    expected = functional.cross_entropy(logits, wanted, reduction="none")
    found = linear_nats(states, table, wanted, most)
    torch.testing.assert_close(found, expected)
    weight = torch.linspace(-1, 2, targets, dtype=torch.float64)
    for ours, theirs in zip(
        torch.autograd.grad((weight * found).sum(), [states, table]),
        torch.autograd.grad((weight * expected).sum(), [states, table]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_logits_far_from_zero_do_not_overflow() -> None:
    states, table, wanted = drawn(6, 5, 3, 1)
    far = linear_nats(1e4 * states, table, wanted, 5)
    expected = functional.cross_entropy(1e4 * states @ table.T, wanted, reduction="none")
    torch.testing.assert_close(far, expected)
    assert bool(torch.autograd.grad(far.sum(), table)[0].isfinite().all())


@pytest.mark.parametrize(("most", "sizes"), [(10**6, []), (35, [3, 3, 3, 1]), (1, [1] * 10)])
def test_no_more_logits_than_allowed(
    most: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    states, table, wanted = drawn(10, 11, 4, 0)
    made: list[int] = []
    real = head_nats._parts

    def seen(*given: object) -> object:
        for here, logits in real(*given):  # type: ignore[arg-type]
            made.append(len(logits))
            yield here, logits

    monkeypatch.setattr(head_nats, "_parts", seen)
    linear_nats(states, table, wanted, most).sum().backward()
    assert made == sizes * 2  # forwards and backwards
