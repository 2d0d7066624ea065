"""Order within blocks: chance by enumeration, the chance levels, controls, what is given."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anyorder.measure.arness_scores import (
    arness,
    block_ends,
    control_keys,
    order_scores,
    ordered_share,
    sample_arness,
    tau_b,
    tau_in_blocks,
)
from anyorder.measure.order_blocks import (
    LEFT_TO_RIGHT_IN_BLOCKS,
    RANDOM_IN_BLOCKS,
    chances_in_blocks,
    one_after_another,
    permuted_in_blocks,
    sorted_in_blocks,
)
from anyorder.measure.order_scores import order
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.blocks import BlockRule

KS = (1, 2, 3)
KEYS = tuple((seed, 0, 0) for seed in range(8))

Sizes = list[list[int]]
"""Per block, how many items each of its steps reveals."""


def laid_out(sizes: Sizes) -> tuple[list[int], list[int]]:
    """The steps and blocks of the items, each block's steps sorted."""
    times, blocks, step = [], [], 0
    for number, block in enumerate(sizes):
        for count in block:
            step += 1
            times += [step] * count
            blocks += [number] * count
    return times, blocks


def orders(sizes: Sizes) -> Iterator[list[int]]:
    """All orders that keep every block's steps in the block; each is as likely as the others."""
    times, blocks = laid_out(sizes)
    own = [[t for t, b in zip(times, blocks, strict=True) if b == n] for n in range(len(sizes))]
    for parts in product(*(sorted(set(permutations(part))) for part in own)):
        yield [time for part in parts for time in part]


def chances(sizes: Sizes) -> dict[str, float]:
    times, blocks = map(np.array, laid_out(sizes))
    return chances_in_blocks(times, blocks, KS)


def one_a_step(lengths: list[int]) -> Sizes:
    return [[1] * length for length in lengths]


ENUMERATED = [
    *(one_a_step(each) for each in ([3, 3], [4, 2], [2, 2, 2], [5], [1, 1, 3], [2, 1, 1, 2])),
    [[2, 1], [1, 2]],
    [[2, 2], [1, 1, 1]],
    [[3, 1], [2, 2]],
    [[1, 1], [2], [1, 2]],
    [[1, 2], [1], [1, 1], [1]],
    [[3], [2], [1, 1]],
]


@pytest.mark.parametrize("sizes", ENUMERATED, ids=str)
def test_chance_is_the_mean_over_all_orders_inside_blocks(sizes: Sizes) -> None:
    found = [order_scores(order, KS) for order in orders(sizes)]
    for name, chance in chances(sizes).items():
        mean = float(np.mean([order[name].value for order in found]))
        assert mean == pytest.approx(chance, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("sizes", ENUMERATED, ids=str)
def test_one_block_has_the_chance_of_the_whole(sizes: Sizes) -> None:
    whole = [[count for block in sizes for count in block]]
    times = laid_out(whole)[0]
    for name, score in order_scores(times, KS).items():
        assert chances(whole)[name] == pytest.approx(score.chance, nan_ok=True), name


def test_two_blocks_by_hand() -> None:
    """Steps 0, 2, 1 and 5, 3, 4."""
    times, blocks = [0, 2, 1, 5, 3, 4], [0, 0, 0, 1, 1, 1]
    scores, ends = order_scores(times, KS), block_ends(times, blocks, KS, KEYS)
    known = {
        "global@1": (0.5, 0.611111),
        "global@2": (1.0, 0.888889),
        "local@1": (0.2, 0.288889),
        "adjacent": (0.4, 0.555556),
        "tau": (0.6, 0.6),
    }
    for name, (value, chance) in known.items():
        assert scores[name].value == pytest.approx(value), name
        assert ends[name].random_in_blocks == pytest.approx(chance, abs=1e-6), name
        assert ends[name].left_to_right_in_blocks == 1
    assert scores["global@1"].chance == pytest.approx(0.408333, abs=1e-6)
    assert [tau_b(times[:3]), tau_b(times[3:])] == pytest.approx([1 / 3, -1 / 3])
    assert tau_in_blocks(times, blocks).value == pytest.approx(0)
    assert ordered_share(times, blocks) == 1


def test_several_items_a_step_by_hand() -> None:
    known = {"global@1": 0.476190, "global@2": 0.809524, "local@1": 0.366667, "tau": 0.600751}
    found = chances([[2, 2], [1, 1, 1]])
    assert {name: found[name] for name in known} == pytest.approx(known, abs=1e-6)


LEVELS = [
    (1, 1.0, 1.0, 1.0),
    (4, 0.5208, 0.9882, 0.9971),
    (8, 0.3397, 0.9725, 0.9932),
    (16, 0.2113, 0.9412, 0.9853),
    (32, 0.1268, 0.8784, 0.9697),
    (256, 0.0239, 0.0, 0.7507),
]
"""Slots of a block; chance of global@1; of tau over 256 and 1024 tokens, one a step."""


@pytest.mark.parametrize(("slots", "leftmost", "short", "long"), LEVELS)
def test_chance_levels(slots: int, leftmost: float, short: float, long: float) -> None:
    found = [chances(one_a_step([slots] * (count // slots))) for count in (256, 1024)]
    assert [each["global@1"] for each in found] == pytest.approx([leftmost] * 2, abs=5e-5)
    assert [each["tau"] for each in found] == pytest.approx([short, long], abs=5e-5)
    harmonic = sum(1 / n for n in range(1, slots + 1))
    assert found[0]["global@1"] == pytest.approx(harmonic / slots)
    assert found[0]["tau"] == pytest.approx(1 - (slots - 1) / 255)


@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(0, 99))
def test_with_one_item_a_step_tau_in_blocks_is_the_adjusted_tau(
    lengths: list[int], seed: int
) -> None:
    times, blocks = map(np.array, laid_out(one_a_step(lengths)))
    times = permuted_in_blocks(times, blocks, (seed, 0, 0))
    own, chance = tau_in_blocks(times, blocks).value, chances_in_blocks(times, blocks, KS)["tau"]
    if max(lengths) == 1:
        assert math.isnan(own) and chance == 1
        return
    assert own == pytest.approx((tau_b(times) - chance) / (1 - chance))


@pytest.mark.parametrize("sizes", ENUMERATED, ids=str)
def test_tau_in_blocks_is_0_by_chance(sizes: Sizes) -> None:
    blocks = laid_out(sizes)[1]
    found = [tau_in_blocks(order, blocks) for order in orders(sizes)]
    if math.isnan(found[0].value):
        assert all(math.isnan(each.chance) for each in found)
        return
    assert np.mean([each.value for each in found]) == pytest.approx(0, abs=1e-12)
    assert {each.chance for each in found} == {0.0}
    assert found[0].left_to_right == pytest.approx(max(each.value for each in found))


def test_a_block_that_comes_at_once_has_no_order() -> None:
    """Its pairs count as pairs without an order, and not in tau."""
    times, blocks = [1, 1, 1, 2, 4, 3], [0, 0, 0, 1, 1, 1]
    assert tau_in_blocks(times, blocks).value == pytest.approx(1 / 3)
    assert ordered_share(times, blocks) == pytest.approx(0.5)
    assert math.isnan(tau_in_blocks([1, 1, 2, 2], [0, 0, 1, 1]).value)
    assert ordered_share([1, 1, 2, 2], [0, 0, 1, 1]) == 0
    assert math.isnan(ordered_share([1, 2], [0, 1]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=2, max_size=20))
def test_controls_keep_each_blocks_steps(items: list[tuple[int, int]]) -> None:
    """Also where steps of different blocks overlap."""
    blocks = np.array(sorted(block for block, _ in items))
    steps = np.array([step for _, step in items])
    dealt, best = permuted_in_blocks(steps, blocks, (0, 0, 0)), sorted_in_blocks(steps, blocks)
    for block in set(blocks.tolist()):
        inside = blocks == block
        assert sorted(dealt[inside]) == best[inside].tolist() == sorted(steps[inside])


def test_blocks_whose_steps_overlap_have_the_chance_of_seeds() -> None:
    times, blocks = np.array([1, 4, 2, 3]), np.array([0, 0, 1, 1])
    assert not one_after_another(times, blocks)
    ends = block_ends(times, blocks, KS, KEYS)
    dealt = [order_scores(permuted_in_blocks(times, blocks, key), KS) for key in KEYS]
    for name, end in ends.items():
        expected = np.mean([each[name].value for each in dealt])
        assert end.random_in_blocks == pytest.approx(expected, nan_ok=True)
        inside = order_scores([1, 4, 2, 3], KS)[name].value
        assert end.left_to_right_in_blocks == pytest.approx(inside, nan_ok=True)
    assert one_after_another(np.array([2, 1, 3, 4]), blocks)
    assert not one_after_another(np.array([1, 2, 2, 3]), blocks)


def trace(text: str, steps: list[int], **changes: Any) -> Trace:
    columns: dict[str, Any] = {
        "task_id": "t",
        "sample": 0,
        "prompt": "",
        "text": text,
        "char_end": [min(n, len(text)) for n in range(1, len(steps) + 1)],
        "insert_step": [0] * len(steps),
        "reveal_step": steps,
        "steps": max(steps),
    }
    return Trace(**columns | changes)


def test_a_sample_counts_its_items_in_blocks() -> None:
    """Block 1 has one item and two tokens without text; the last block has none."""
    own = trace("abcde", [2, 1, 4, 3, 7, 5, 6, 8, 9, 10, 11, 12])
    found = sample_arness(own, KS, blocks=BlockRule(4))
    assert found.in_blocks is not None
    assert (found.in_blocks.slots, found.items) == (4, 5)
    expected = chances_in_blocks(np.array([2, 1, 4, 3, 7]), np.array([0, 0, 0, 0, 1]), KS)
    for name, chance in expected.items():
        end = found.in_blocks.ends[name]
        assert end.random_in_blocks == pytest.approx(chance, nan_ok=True)
    assert found.scores["tau_in_blocks"].value == pytest.approx((4 - 2) / 6)
    assert found.to_record()["in_blocks"]["ordered"] == 1


def test_a_table_has_blocks_only_where_the_run_has(tmp_path: Path) -> None:
    traces = [trace("abcd", [2, 1, 3, 4]), trace("ab", [2, 1], sample=1)]

    def run(name: str, options: dict[str, Any]) -> Run:
        made = Run.create(tmp_path / name, RunCard(command="test", config={"options": options}))
        made.append(0, traces)
        made.finish()
        return made

    plain, table = arness(traces).to_record(), arness(run("blocks", {"block": 2}))
    assert arness(run("whole", {"block": 4})).to_record() == plain
    assert "blocks" not in plain and "tau_in_blocks" not in plain["aggregate"]
    assert table.blocks == (2, 1.0)
    record = table.to_record()
    assert record["blocks"] == {"slots": 2, "ordered": 1.0, "order_between": "given"}
    for name, cell in record["aggregate"].items():
        if name in plain["aggregate"]:
            assert {key: cell[key] for key in plain["aggregate"][name]} == plain["aggregate"][name]
    leftmost = record["aggregate"]["global@1"]
    # Two blocks of two, and one of two: each block is right with 3/4 of its items by chance.
    assert leftmost["random_in_blocks"] == 0.75 and leftmost["left_to_right_in_blocks"] == 1
    assert leftmost["position_in_blocks"] == pytest.approx((0.625 - 0.75) / 0.25)
    # The first sample has a block each way, the second a block the wrong way.
    assert record["aggregate"]["tau_in_blocks"]["mean"] == pytest.approx((0 - 1) / 2)


PROGRAM = """\
def f(x):
    a = 1
    b = 2
    return a + b
"""


def program_trace(steps: Any, **changes: Any) -> Trace:
    return trace(PROGRAM, np.asarray(steps).tolist(), **changes)


def dealt(slots: int, seed: int = 0) -> Any:
    """One character a step, blocks of `slots` from left to right, any order inside."""
    places = np.arange(len(PROGRAM))
    return permuted_in_blocks(places + 1, places // slots, (seed, 0, 0))


@pytest.mark.parametrize("mode", ["exact", "compat"])
def test_the_controls_of_node_scores_stay_inside_blocks(mode: str) -> None:
    slots = 8
    block = (np.arange(len(PROGRAM)) // slots).tolist()
    table = order([program_trace(dealt(slots), block=block)], mode=mode, seeds=range(3))
    sample = table.samples[0].scopes["full_output"]
    assert sample is not None
    # All that is dealt out ends before the last newline, which is outside the program.
    inside = len(PROGRAM.rstrip())
    kept = np.arange(inside)
    best = dealt(slots).copy()
    best[:inside] = sorted_in_blocks(dealt(slots)[:inside], kept // slots)
    rows = []
    for seed in range(3):
        (key,) = control_keys(program_trace(dealt(slots)), [seed])
        row = dealt(slots).copy()
        row[:inside] = permuted_in_blocks(dealt(slots)[:inside], kept // slots, key)
        rows.append(row)

    def means(steps: Any) -> Any:
        found = order([program_trace(steps)], mode=mode, controls=())
        scope = found.samples[0].scopes["full_output"]
        assert scope is not None
        return scope.means

    assert sample.controls[LEFT_TO_RIGHT_IN_BLOCKS] == pytest.approx(means(best))
    expected = np.mean([means(row) for row in rows], axis=0)
    assert sample.controls[RANDOM_IN_BLOCKS] == pytest.approx(expected)
    assert not np.allclose(sample.controls["random"], expected)


def test_blocks_of_one_slot_leave_nothing_to_the_order() -> None:
    """Both controls are the sample, and no two nodes lie inside one block."""
    block = np.arange(len(PROGRAM)).tolist()
    table = order([program_trace(np.arange(1, len(PROGRAM) + 1), block=block)])
    cell = table.cells["full_output", "split_only", "cbc"]
    assert cell.controls[LEFT_TO_RIGHT_IN_BLOCKS] == cell.controls[RANDOM_IN_BLOCKS] == cell.mean
    assert cell.position_in_blocks is not None
    assert cell.position_in_blocks.method == "controls too close"
    assert table.blocks == (1, 0.0)


def test_pairs_of_nodes_inside_one_block() -> None:
    """The statements of f begin at 14, 24 and 34; a pair counts if both are in one block."""
    text = len(PROGRAM)

    def share(border: int, steps: Any = None) -> Any:
        block = [int(place >= border) for place in range(text)]
        chosen = np.arange(1, text + 1) if steps is None else steps
        return order([program_trace(chosen, block=block)]).samples[0].blocks

    assert share(5)[1:] == (3, 3)  # the border lies in the header
    assert share(16)[1:] == (1, 3)  # through a = 1: the other two remain
    assert share(30)[1:] == (1, 3)  # before the return: a and b remain
    assert share(26)[1:] == (0, 3)  # through b = 2
    given = np.arange(1, text + 1)
    given[:30] = 0  # only the return is generated
    assert share(40, given)[1:] == (0, 0)


def test_the_chance_of_lines_is_that_within_blocks() -> None:
    """In one line a block, the order of the lines is given: chance is 1, as the tau."""
    lines = np.cumsum([0] + [sign == "\n" for sign in PROGRAM])[: len(PROGRAM)]
    steps = permuted_in_blocks(np.arange(1, len(PROGRAM) + 1), lines, (1, 0, 0))
    facts = {"t": {"anchor": "start", "anchor_name": "a"}}
    told = order([program_trace(steps, block=lines.tolist())], facts=facts)
    bare = order([program_trace(steps)], facts=facts)
    assert told.segments["line"].tau.estimate == told.segments["line"].chance == 1
    assert bare.segments["line"].chance < 0.9
    for cell in told.anchors["line"]["start"]:
        assert cell.chance == pytest.approx(cell.tau.estimate)


def test_without_blocks_nothing_is_added() -> None:
    steps = dealt(len(PROGRAM))
    bare = order([program_trace(steps)])
    one = order([program_trace(steps, block=[3] * len(PROGRAM))])
    assert bare.to_record() == one.to_record()
    assert "in_blocks" not in json.dumps(bare.to_record()) and bare.blocks is None
    kept = order([program_trace(steps)], controls=("left_to_right", "random"))
    for key, cell in kept.cells.items():
        for name, value in cell.controls.items():
            assert bare.cells[key].controls[name] == pytest.approx(value)


def test_samples_of_one_block_count_in_a_run_with_blocks() -> None:
    """Their orders inside blocks are all orders."""
    count = len(PROGRAM)
    several = program_trace(dealt(6), block=(np.arange(count) // 6).tolist())
    single = program_trace(dealt(count), block=[0] * count, sample=1, task_id="u")
    table = order([several, single])
    cell = table.cells["full_output", "split_only", "obw"]
    assert cell.samples == 2
    assert cell.position_in_blocks is not None
    low, high = (cell.controls[name] for name in (LEFT_TO_RIGHT_IN_BLOCKS, RANDOM_IN_BLOCKS))
    assert cell.position_in_blocks.estimate == pytest.approx((cell.mean - low) / (high - low))
    assert cell.to_record()["position_in_blocks"] is not None
    assert table.to_record()["blocks"]["slots"] == count
