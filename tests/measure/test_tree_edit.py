"""Exact distances against two oracles, bounds below them, and searches equal to full matrices."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_oracles import apted_distance, plain_distance, random_tree

from anyorder.measure import tree_edit as tree_forest
from anyorder.measure.tree_edit import (
    EditJob,
    Matches,
    best_matches,
    distance,
    distances,
    lower_bounds,
    similarities,
)
from anyorder.measure.trees import Tree


def best_match(samples: list[Tree], references: list[Tree], rename_cost: int = 1) -> Matches:
    [found] = best_matches([EditJob(samples, references)], rename_cost)
    return found


BOTH = pytest.mark.parametrize("rename_cost", [0, 1])


@st.composite
def trees(draw: st.DrawFn, most: int = 12) -> Tree:
    depths = [0]
    for _ in range(draw(st.integers(0, most - 1))):
        depths.append(draw(st.integers(1, depths[-1] + 1)))
    labels = [draw(st.sampled_from("abc")) for _ in depths]
    return Tree(tuple(labels), tuple(depths))


def compare(pairs: int, largest: int, seed: int, oracle: object) -> None:
    chance = random.Random(seed)
    for _ in range(pairs):
        labels = chance.choice(("ab", "abcdefgh"))
        left = random_tree(chance, chance.randint(1, largest), labels)
        right = random_tree(chance, chance.randint(1, largest), labels)
        for rename_cost in (0, 1):
            expected = oracle(left, right, rename_cost)  # type: ignore[operator]
            assert distance(left, right, rename_cost) == expected, (left, right, rename_cost)


def test_by_hand() -> None:
    left = Tree(("f", "d", "a", "c", "b", "e"), (0, 1, 2, 2, 3, 1))
    right = Tree(("f", "c", "d", "a", "b", "e"), (0, 1, 2, 3, 3, 1))
    assert distance(left, right, 1) == 2, "the example of Zhang and Shasha: c moves above d"
    assert distance(left, Tree(("x",), (0,)), 1) == 6
    assert distance(left, Tree(("x",), (0,)), 0) == 5
    chain, star = Tree(("a",) * 4, (0, 1, 2, 3)), Tree(("a",) * 4, (0, 1, 1, 1))
    assert distance(chain, star, 1) == distance(chain, star, 0) == 4
    assert similarities([chain], [star])[0, 0] == 0.0


def test_equals_the_definition_on_small_trees() -> None:
    compare(150, 7, seed=1, oracle=plain_distance)


@pytest.mark.long
def test_equals_the_definition_on_3000_small_trees() -> None:
    compare(3000, 8, seed=2, oracle=plain_distance)


def test_equals_apted() -> None:
    compare(30, 40, seed=3, oracle=apted_distance)


@pytest.mark.long
def test_equals_apted_on_2000_trees() -> None:
    compare(2000, 45, seed=4, oracle=apted_distance)


@BOTH
@given(data=st.data())
def test_it_is_a_distance(rename_cost: int, data: st.DataObject) -> None:
    a, b, c = (data.draw(trees()) for _ in range(3))
    table = distances([a, b, c], [a, b, c], rename_cost)
    assert (table == table.T).all() and (np.diag(table) == 0).all()
    assert table[0, 2] <= table[0, 1] + table[1, 2]
    assert (a == b) == (distance(a, b, 1) == 0)
    assert (a.depths == b.depths) == (distance(a, b, 0) == 0)
    assert distance(a, b, 0) <= distance(a, b, 1)


@BOTH
@given(left=st.lists(trees(20), min_size=1, max_size=5), right=st.lists(trees(20), min_size=1))
def test_bounds_are_below_and_not_below_size(
    rename_cost: int, left: list[Tree], right: list[Tree]
) -> None:
    bounds = lower_bounds(*tree_forest.rows_of(left, right, rename_cost), rename_cost)
    assert (bounds <= distances(left, right, rename_cost)).all()
    for s, a in enumerate(left):
        for r, b in enumerate(right):
            assert bounds[s, r] >= abs(a.size - b.size)
            common = sum(min(a.labels.count(x), b.labels.count(x)) for x in "abc")
            assert rename_cost == 0 or bounds[s, r] >= max(a.size, b.size) - common


def prompt(chance: random.Random, largest: int, most: int = 12) -> EditJob:
    """Samples and references that are variants of each other, with repetitions."""
    few = [random_tree(chance, chance.randint(1, largest), "abcd") for _ in range(3)]

    def variant() -> Tree:
        tree = chance.choice(few)
        labels = [chance.choice("abcd") if chance.random() < 0.1 else x for x in tree.labels]
        cut = chance.randint(1, tree.size) if chance.random() < 0.3 else tree.size
        return Tree(tuple(labels[:cut]), tree.depths[:cut])

    sides = [[variant() for _ in range(chance.randint(0, most))] for _ in range(2)]
    return EditJob(*sides)


def check_prompts(count: int, largest: int, most: int, seed: int) -> None:
    chance = random.Random(seed)
    jobs = [prompt(chance, largest, most) for _ in range(count)]
    for rename_cost in (0, 1):
        computed = total = 0
        for job, found in zip(jobs, best_matches(jobs, rename_cost), strict=True):
            assert job.references is not None
            total += len(job.samples) * len(job.references)
            computed += found.computed
            if not job.references:
                assert np.isnan(found.similarity).all() and (found.reference == -1).all()
            elif job.samples:
                table = similarities(job.samples, job.references, rename_cost)
                assert (found.similarity == table.max(axis=1)).all()
                assert (found.reference == table.argmax(axis=1)).all()
        assert computed < total / 4


@BOTH
def test_what_trees_share_changes_nothing(rename_cost: int) -> None:
    job = prompt(random.Random(10), 25)
    left, right = [*job.samples, *(job.references or [])], job.samples
    table = distances(left, right, rename_cost)
    assert len(set(left)) > 8
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            assert table[i, j] == distance(a, b, rename_cost)


def test_best_match_equals_the_full_matrix() -> None:
    check_prompts(25, 30, most=12, seed=5)


@pytest.mark.long
def test_best_match_equals_the_full_matrix_on_200_prompts() -> None:
    check_prompts(200, 120, most=32, seed=6)


@BOTH
def test_the_best_among_the_others(rename_cost: int) -> None:
    chance = random.Random(7)
    for count in [0, 1, 2, *range(2, 20)]:
        some = [random_tree(chance, chance.randint(1, 5), "ab") for _ in range(count)]
        found = best_matches([EditJob(some, None)], rename_cost)[0]
        if count < 2:
            assert np.isnan(found.similarity).all() and (found.reference == -1).all()
            continue
        table = similarities(some, some, rename_cost)
        np.fill_diagonal(table, -1)
        assert (found.similarity == table.max(axis=1)).all()
        assert (found.reference == table.argmax(axis=1)).all()


@BOTH
def test_cut_up_and_threaded_is_the_same(rename_cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prompt(random.Random(8), 40)
    samples, references = [*job.samples, *(job.references or [])], job.samples
    whole = best_match(samples, references, rename_cost)
    table = distances(samples, references, rename_cost)
    jobs = [EditJob([sample], references) for sample in samples]
    found = best_matches(jobs, rename_cost, threads=3)
    threaded = Matches(
        np.concatenate([each.similarity for each in found]),
        np.concatenate([each.reference for each in found]),
        0,
    )
    monkeypatch.setattr(tree_forest, "MEMO_CELLS", 3000)
    assert len(list(tree_forest.blocks(*tree_forest.rows_of(samples, references, 1)))) > 5
    cut = best_match(samples, references, rename_cost)
    for other in (threaded, cut):
        assert (other.similarity == whole.similarity).all()
        assert (other.reference == whole.reference).all()
    assert (distances(samples, references, rename_cost) == table).all()


def test_the_cheaper_decomposition_is_taken() -> None:
    left_deep = Tree(("a",) * 61, (*range(31), *range(30, 0, -1)))
    right_deep = Tree(("a",) * 61, (0, *(d for depth in range(1, 31) for d in (depth, depth))))
    good, bad = tree_forest.decomposition_cells(left_deep)
    assert good == 61 + 30 and bad > 5 * good
    assert tree_forest.decomposition_cells(right_deep) == (bad, good)
    assert distance(left_deep, right_deep, 1) == apted_distance(left_deep, right_deep, 1)


def test_only_what_is_needed_is_computed() -> None:
    chance = random.Random(9)
    one = random_tree(chance, 50)
    copies = best_match([one] * 10, [random_tree(chance, 50), one])
    assert copies.computed == 0 and (copies.reference == 1).all()
    far = random_tree(chance, 5)
    near = Tree(("z", *one.labels[1:]), one.depths)
    assert best_match([near] * 4, [far, one, far, one]).computed == 1
    relabelled = Tree(tuple("z" * one.size), one.depths)
    assert best_match([relabelled], [far, one], rename_cost=0).computed == 0


def test_bad_input_is_refused() -> None:
    one = Tree(("a",), (0,))
    with pytest.raises(ValueError, match="choose 0 or 1"):
        distance(one, one, 2)
    with pytest.raises(ValueError, match="too large"):
        distance(Tree(("a",) * 20_000, (0, *[1] * 19_999)), one)
    assert str(Tree(("a", "b"), (0, 1))) == "a\n  b"
    assert distances([], [one]).shape == (0, 1) and best_matches([]) == []
