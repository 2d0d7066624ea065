"""CBC, RUB, RUB+ and OBW on hand-drawn blocks, and against the definitions read step by step."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anyorder.measure.order_nodes import METRICS, RULES, UNSEEN, Blocks, NodeScores, score_nodes

EXACT, COMPAT = RULES["exact"], RULES["compat"]


def blocks_of(parents: list[list[list[int]]]) -> Blocks:
    """Parents as lists of children as lists of tokens."""
    parent, child, token = [], [], []
    for number, children in enumerate(parents):
        for tokens in children:
            child += [len(parent)] * len(tokens)
            token += tokens
            parent.append(number)
    as_array = lambda values: np.array(values, dtype=np.int64)  # noqa: E731
    return Blocks(as_array(parent), len(parents), as_array(child), as_array(token))


def siblings(*steps: list[int], compat: bool = False) -> dict[str, float]:
    """The scores of one parent whose children have tokens revealed at these steps."""
    flat = [step for child in steps for step in child]
    bounds = np.cumsum([0, *map(len, steps)]).tolist()
    tokens = [list(range(a, b)) for a, b in pairwise(bounds)]
    rules = COMPAT if compat else EXACT
    scores = score_nodes(np.array([flat]), blocks_of([tokens]), rules)
    return {name: float(getattr(scores, name)[0, 0]) for name in METRICS}


def four(cbc: float, rub: float, rub_plus: float, obw: float) -> object:
    return pytest.approx({"cbc": cbc, "rub": rub, "rub_plus": rub_plus, "obw": obw})


THIRD = 1 / 3


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Three children of two tokens each.
        (([1, 2], [3, 4], [5, 6]), (THIRD, 0, 0, THIRD)),
        (([6, 5], [4, 3], [2, 1]), (THIRD, 0, 0, THIRD)),
        # All opened, then closed in turn: each is left and returned to once.
        (([1, 4], [2, 5], [3, 6]), (1, 1, 0.5, 1)),
        # The first is opened, the second comes whole in between.
        (([1, 4], [2, 3], [5, 6]), (2 / 3, THIRD, 0.5 / 3, 2 / 3)),
        # The first child returned to three times counts as two returns.
        (([1, 3, 5, 7], [2, 4, 6], [8, 9]), (2 / 3, 2 / 3, (1 + 1) / 3, 2 / 3)),
        # Steps that reveal something elsewhere are no visits: gaps in the numbers change nothing.
        (([10, 40], [20, 50], [30, 60]), (1, 1, 0.5, 1)),
        # Two children advance together: RUB counts the shared steps between, RUB+ sees one visit.
        (([1, 2, 3], [1, 2, 3]), (1, 1, 0, 1)),
        # Only the opening and the closing step are shared: nothing lies strictly between.
        (([1, 2], [1, 2]), (1, 0, 0, 1)),
        # A sibling in the closing step is not before the end, one in the opening step not after.
        (([1, 3], [3, 4], [1, 5]), (1, THIRD, (0 + 0 + 0.5) / 3, 2 / 3)),
        # One child alone: 1 by convention, however it was written.
        (([3, 1, 2],), (1, 1, 1, 1)),
    ],
)
def test_drawn_by_hand(steps: tuple[list[int], ...], expected: tuple[float, ...]) -> None:
    assert siblings(*steps) == four(*expected)
    assert siblings(*steps, compat=True) == four(*expected)


def test_exact_and_compat_differ_in_width_when_blocks_come_whole() -> None:
    """Nothing is ever open between steps; the release counts one anyway."""
    assert siblings([1, 1], [2, 2]) == four(0.5, 0, 0, 0)
    assert siblings([1, 1], [2, 2], compat=True) == four(0.5, 0, 0, 0.5)
    assert siblings([1, 1], [1]) == four(1, 0, 0, 0)
    assert siblings([1, 1], [1], compat=True) == four(1, 0, 0, 0.5)


def test_exact_and_compat_differ_on_given_tokens() -> None:
    """Step 0 was there from the start: for exact not generated, for the release the first entry."""
    assert siblings([0, 3], [2, 4], [0, 0]) == four(1, 0.5, 0.25, 0.5)
    assert siblings([0, 3], [2, 4], [0, 0], compat=True) == four(2 / 3, 2 / 3, 1 / 3, 2 / 3)
    nothing = siblings([0], [0])
    assert all(np.isnan(value) for value in nothing.values())
    assert siblings([0], [1, 2], [0]) == four(1, 1, 1, 1)


def test_exact_and_compat_differ_on_tokens_that_no_position_covers() -> None:
    """The release waits for them for ever; for exact they were given with the prompt."""
    assert siblings([1, UNSEEN], [2, 3], compat=True) == four(1, 0, 0, 1)
    assert siblings([1, UNSEEN], [2, UNSEEN], compat=True) == four(0, 0, 0, 1)
    assert siblings([1, UNSEEN, 4], [2, 3]) == siblings([1, 4], [2, 3])
    assert siblings([UNSEEN], [UNSEEN], compat=True) == four(0, 0, 0, 0)


def test_a_child_without_tokens() -> None:
    """compat keeps it among the k."""
    assert siblings([1, 2], [], compat=True) == four(0.5, 0, 0, 0.5)
    assert siblings([1, 2], []) == four(1, 1, 1, 1)


def test_visits_are_counted_among_the_steps_of_the_parent() -> None:
    blocks = blocks_of([[[0, 1, 2], [3, 4]], [[1], [2]]])
    scores = score_nodes(np.array([[1, 5, 6, 2, 9]]), blocks, EXACT)
    assert scores.visits.tolist() == [[2, 2, 1, 1]]
    assert scores.children.tolist() == [[2, 2]]


def test_no_parents_and_no_tokens() -> None:
    empty = score_nodes(np.zeros((2, 0), dtype=np.int64), blocks_of([]), EXACT)
    assert empty.cbc.shape == (2, 0) and empty.visits.shape == (2, 0)
    scores = score_nodes(np.zeros((1, 0), dtype=np.int64), blocks_of([[[], []]]), COMPAT)
    assert scores.cbc.tolist() == [[0.0]] and scores.obw.tolist() == [[0.0]]


def by_definition(children: list[list[int]], compat: bool) -> dict[str, Fraction] | None:
    """The four scores, as appendix D words them, a step at a time."""
    first = 0 if compat else 1
    blocks = [[step for step in child if step >= first] for child in children]
    never = [compat and UNSEEN in child for child in children]
    if not compat:
        kept = [bool(block) for block in blocks]
        blocks = [block for block, keep in zip(blocks, kept, strict=True) if keep]
        never = [False] * len(blocks)
    k = len(blocks)
    if k == 0:
        return None
    if k == 1:
        return dict.fromkeys(METRICS, Fraction(1))
    steps = sorted({step for block in blocks for step in block})

    def new(block: list[int], step: int) -> bool:
        return step in block

    def started(c: int, step: int) -> bool:
        return any(s <= step for s in blocks[c])

    def finished(c: int, step: int) -> bool:
        return bool(blocks[c]) and not never[c] and all(s <= step for s in blocks[c])

    commit = next((s for s in steps if any(finished(c, s) for c in range(k))), None)
    cbc = 0 if commit is None else sum(started(c, commit) for c in range(k))
    rub, credit, widest = 0, Fraction(0), 0
    for c, block in enumerate(blocks):
        others = [b for d, b in enumerate(blocks) if d != c]
        if block and not never[c]:
            between = [s for s in steps if min(block) < s < max(block)]
            rub += any(new(other, s) for s in between for other in others)
        seen = [new(block, s) for s in steps]
        visits = sum(a and not b for a, b in zip(seen, [False, *seen], strict=False))
        credit += Fraction(min(max(visits - 1, 0), 2), 2)
    for s in steps:
        widest = max(widest, sum(started(c, s) and not finished(c, s) for c in range(k)))
    if compat and steps:
        widest = max(widest, 1)
    return {
        "cbc": Fraction(cbc, k),
        "rub": Fraction(rub, k),
        "rub_plus": credit / k,
        "obw": Fraction(widest, k),
    }


some_steps = st.lists(st.integers(UNSEEN, 9), max_size=6)
some_parents = st.lists(st.lists(some_steps, min_size=1, max_size=4), min_size=1, max_size=4)


@given(some_parents, st.booleans())
def test_many_parents_at_once_agree_with_the_definitions(
    parents: list[list[list[int]]], compat: bool
) -> None:
    flat = [step for children in parents for child in children for step in child]
    count = iter(range(len(flat)))
    tokens = [[[next(count) for _ in child] for child in children] for children in parents]
    scores = score_nodes(
        np.array([flat], dtype=np.int64).reshape(1, -1),
        blocks_of(tokens),
        COMPAT if compat else EXACT,
    )
    for number, children in enumerate(parents):
        expected = by_definition(children, compat)
        for name in METRICS:
            found = getattr(scores, name)[0, number]
            if expected is None:
                assert np.isnan(found)
            else:
                assert found == pytest.approx(float(expected[name]), abs=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_rows_are_independent_however_they_are_cut(seed: int) -> None:
    chance = np.random.default_rng(seed)
    blocks = blocks_of([[[0, 1, 2], [3, 4]], [[1], [2]], [[3], [4], [0, 5]]])
    steps = chance.integers(0, 7, size=(6, 6))
    together = score_nodes(steps, blocks, EXACT)
    for row in range(len(steps)):
        alone = score_nodes(steps[row : row + 1], blocks, EXACT)
        assert np.array_equal(together.stacked()[:, row], alone.stacked()[:, 0], equal_nan=True)
        assert np.array_equal(together.visits[row], alone.visits[0])


def test_a_large_table_is_cut_into_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of([[[0, 1, 2], [3, 4]], [[1], [2]]])
    steps = np.random.default_rng(0).integers(1, 9, size=(5, 5))
    whole = score_nodes(steps, blocks, EXACT)
    monkeypatch.setattr("anyorder.measure.order_nodes.PAIRS_AT_ONCE", 10)
    cut = score_nodes(steps, blocks, EXACT)
    assert isinstance(cut, NodeScores)
    assert np.array_equal(whole.stacked(), cut.stacked())
    assert np.array_equal(whole.visits, cut.visits)


@given(st.permutations(range(1, 9)))
def test_mirroring_time_keeps_what_is_symmetric(order: list[int]) -> None:
    """OBW, RUB and RUB+ do not know in which direction time runs, with one token a step."""
    children = [order[:3], order[3:5], order[5:]]
    mirrored = [[9 - step for step in child] for child in children]
    one, other = siblings(*children), siblings(*mirrored)
    assert {k: v for k, v in one.items() if k != "cbc"} == {
        k: v for k, v in other.items() if k != "cbc"
    }
