"""Grids of blocks and the masks over them: by hand, and against the rule spelled out."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from anyorder.nets.blocks import block_causal, block_numbers, first_of_block, two_streams


def rows_of(visible: Tensor) -> list[str]:
    return ["".join(".1"[int(seen)] for seen in row) for row in visible[0]]


def test_two_blocks_of_two() -> None:
    noisy = ["11......", "11......", "..1111..", "..1111.."]
    clean = ["....11..", "....11..", "....1111", "....1111"]
    assert rows_of(two_streams(torch.tensor([[0, 0, 1, 1]]))) == [*noisy, *clean]


def test_the_rule_spelled_out() -> None:
    block, document = torch.tensor([[0, 0, 1, 0, 1, 1]]), torch.tensor([[0, 0, 0, 1, 1, 1]])
    visible = two_streams(block, document)[0]
    for q, k in itertools.product(range(12), repeat=2):
        b_q, b_k = int(block[0, q % 6]), int(block[0, k % 6])
        seen = {
            (0, 0): b_q == b_k, (0, 1): b_q > b_k, (1, 0): False, (1, 1): b_q >= b_k,
        }[q // 6, k // 6]  # fmt: skip
        assert bool(visible[q, k]) == (seen and document[0, q % 6] == document[0, k % 6])


def test_the_clean_stream_is_the_one_stream() -> None:
    block = torch.tensor([[0, 0, 1, 1, 1, 2]])
    assert torch.equal(two_streams(block)[:, 6:, 6:], block_causal(block, block))


@pytest.mark.parametrize(
    ("origin", "numbers"),
    [
        ("absolute", [0, 0, 1, 1, 2, 2, 3]),
        ("after_prompt", [0, 0, 0, 1, 1, 2, 2]),
        ("left_padded", [0, 1, 1, 2, 2, 3, 3]),
    ],
)
def test_three_origins_behind_a_prompt_of_three(origin: str, numbers: list[int]) -> None:
    assert block_numbers(torch.tensor([3]), 7, 2, origin).tolist() == [numbers]


@pytest.mark.parametrize("origin", ["absolute", "after_prompt", "left_padded"])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_grid_has_full_blocks_from_its_origin_on(origin: str, size: int) -> None:
    prompts = torch.arange(6)
    grid = block_numbers(prompts, 12, size, origin)
    steps = grid[:, 1:] - grid[:, :-1]
    assert bool(((steps == 0) | (steps == 1)).all()) and bool((grid >= 0).all())
    assert torch.equal(first_of_block(grid)[:, 1:], steps == 1)
    for prompt, row in zip(prompts.tolist(), grid.tolist(), strict=True):
        start = 0 if origin == "absolute" else prompt
        inside = [[n for n in range(start, 12) if row[n] == b] for b in set(row[start:])]
        assert all(len(each) == size for each in inside if max(each) < 11)
        if origin != "absolute" and prompt > 0:
            assert row[prompt] == row[prompt - 1] + 1


def test_blocks_of_one_are_left_to_right_and_one_block_is_all_to_all() -> None:
    prompt = torch.tensor([0])
    one = block_numbers(prompt, 5, 1, "absolute")
    assert torch.equal(block_causal(one, one)[0], torch.ones(5, 5).tril().bool())
    whole = block_numbers(prompt, 5, 5, "absolute")
    assert bool(two_streams(whole)[0, :5, :5].all()) and not bool(
        two_streams(whole)[0, :5, 5:].any()
    )
