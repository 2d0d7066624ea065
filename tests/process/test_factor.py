"""The factor rule: its golden numbers, and a plain loop that says the same."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder.process.masking import factor_choice, factor_counts


def plain(confidence: list[float], factor: float) -> int:
    """The published loop: stop at the first that is not sure enough; at the last, take all."""
    ordered = sorted(confidence, reverse=True)
    for number, sure in enumerate(ordered[1:], start=2):
        if sure < 1 - factor / (number + 1):
            return number if number == len(ordered) else number - 1
    return len(ordered)


def count(confidence: list[float], factor: float = 1.0) -> int:
    return int(factor_counts(torch.tensor([confidence], dtype=torch.float64).log(), factor))


def test_golden_numbers() -> None:
    assert count([0.99, 0.9, 0.8, 0.5, 0.3]) == 3
    assert count([0.9, 0.2, 0.1]) == 1
    assert count([0.99, 0.3]) == 2
    assert count([0.4]) == 1


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12),
    st.floats(0.0, 4.0),
    st.integers(0, 5),
)
def test_counts_are_those_of_the_published_loop(
    confidence: list[float], factor: float, closed: int
) -> None:
    log = torch.tensor([[*confidence, *[0.0] * closed]], dtype=torch.float64).log()
    # The rule compares probabilities; exp(log p) may differ from p in the last bit.
    back = log.exp()[0, : len(confidence)].tolist()
    assert int(factor_counts(log, factor)) == plain(back, factor)


def test_a_larger_factor_reveals_more_and_the_choice_is_the_surest() -> None:
    confidence = torch.tensor([[0.5, 0.99, 0.8, 0.9, 0.0, 0.7]], dtype=torch.float64).log()
    chosen = [factor_choice(confidence, factor)[0].tolist() for factor in (0.0, 1.0, 2.0)]
    assert [sum(each) for each in chosen] == [1, 3, 5]
    assert chosen[0] == [False, True, False, False, False, False]
    assert chosen[1] == [False, True, True, True, False, False]
    assert not chosen[2][4]  # closed


def test_rows_are_judged_alone() -> None:
    both = torch.tensor([[0.9, 0.2, 0.1], [0.99, 0.3, 0.0]], dtype=torch.float64).log()
    assert factor_counts(both).tolist() == [1, 2]
    assert factor_counts(torch.full((1, 3), -torch.inf)).tolist() == [0]
