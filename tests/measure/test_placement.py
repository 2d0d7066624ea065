"""Mass, localisation, entropy and k-LOC: by hand, by their laws, and computed directly."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from anyorder.measure.placement_scores import (
    LEAST_MASS,
    NOTHING,
    Commit,
    Dense,
    FloatArray,
    IntArray,
    Keep,
    largest,
    measures,
    place,
)

DOCS = Path(__file__).resolve().parents[2] / "docs" / "placement.md"

# The worked example of docs/placement.md: four masked positions, three tokens.
RETURN, EQUALS, X = range(3)
EXAMPLE = Dense.of(
    [4, 5, 7, 9],
    [[0.1, 0.9, 0.0], [0.6, 0.0, 0.4], [0.1, 0.9, 0.0], [0.3, 0.2, 0.5]],
)


def entropy(shares: list[float]) -> float:
    return -sum(share * math.log(share) for share in shares if share)


def test_the_worked_example() -> None:
    placed = place(EXAMPLE, [Commit(4, EQUALS)])
    assert placed.tokens.tolist() == [EQUALS, RETURN, X]
    found = placed.measures
    assert found.mass == pytest.approx([2.0, 1.1, 0.9])
    assert found.loc == pytest.approx([0.45, 0.6 / 1.1, 0.5 / 0.9])
    assert found.k_loc == pytest.approx([0.9, 0.6 / 1.1, 0.5 / 0.9])
    by_hand = [[0.45, 0.45, 0.1], [1 / 11, 6 / 11, 1 / 11, 3 / 11], [4 / 9, 5 / 9]]
    assert found.entropy == pytest.approx([entropy(shares) for shares in by_hand])
    assert placed.localisation == pytest.approx([0.45])
    assert placed.committed == pytest.approx([0.9])
    # Where `=` goes is nearly certain, and only k-LOC says so.
    assert found.loc[0] < found.loc[1] and found.k_loc[0] > found.k_loc[1]


def markdown_tables(text: str) -> list[list[list[str]]]:
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        for block in blocks
    ]


def test_the_page_shows_the_worked_example() -> None:
    tables = {table[0][0]: table[2:] for table in markdown_tables(DOCS.read_text("utf-8"))}
    rows = tables["position"]
    assert [int(row[0]) for row in rows] == EXAMPLE.positions.tolist()
    shown = [[float(cell) for cell in row[1:]] for row in rows]
    assert np.allclose(shown, EXAMPLE.probabilities)
    found = measures(EXAMPLE.probabilities)
    for token, row in enumerate(tables["token"]):
        wanted = [getattr(found, name)[token] for name in ("mass", "loc", "entropy", "k_loc")]
        assert [float(cell) for cell in row[1:]] == pytest.approx(wanted, abs=6e-4)


def posteriors(most: int = 6) -> st.SearchStrategy[FloatArray]:
    shape = st.tuples(st.integers(1, most), st.integers(2, most))
    weights = shape.flatmap(lambda s: hnp.arrays(np.float64, s, elements=st.floats(0, 1)))
    return weights.map(lambda w: (w + 1e-12) / (w + 1e-12).sum(axis=1, keepdims=True))


def direct(profile: FloatArray) -> tuple[float, float, float, float]:
    """One token's numbers as the page defines them, without any of the code's detours."""
    mass = math.fsum(profile)
    count = max(1, math.floor(mass + 0.5))
    plogp = math.fsum(p * math.log(p) for p in profile if p > 0)
    best = sorted(profile, reverse=True)
    return (
        mass,
        max(profile) / mass,
        math.log(mass) - plogp / mass,
        min(1.0, math.fsum(best[:count]) / mass),
    )


@given(posteriors())
def test_measures_are_the_definitions(table: FloatArray) -> None:
    found = measures(table)
    for token in range(table.shape[1]):
        got = [getattr(found, name)[token] for name in ("mass", "loc", "entropy", "k_loc")]
        assert got == pytest.approx(direct(table[:, token]), abs=1e-9)


@given(posteriors())
def test_laws_of_the_measures(table: FloatArray) -> None:
    found, positions = measures(table), len(table)
    assert found.mass.sum() == pytest.approx(positions)
    assert (found.loc <= found.k_loc + 1e-12).all() and (found.k_loc <= 1).all()
    assert (found.loc >= 1 / positions - 1e-12).all()
    assert (found.entropy >= 0).all() and (found.entropy <= math.log(positions) + 1e-9).all()
    assert (found.entropy >= -np.log(found.loc) - 1e-9).all()  # min-entropy is the smaller one
    turned = measures(table[::-1])
    for name in ("mass", "loc", "entropy", "k_loc"):
        assert np.allclose(getattr(found, name), getattr(turned, name))


@given(st.integers(1, 8), st.integers(0, 5))
def test_certain_copies_have_k_loc_one(copies: int, elsewhere: int) -> None:
    profile = np.asarray([1.0] * copies + [0.0] * elsewhere)[:, None]
    found = measures(profile)
    assert found.loc[0] == pytest.approx(1 / copies) and found.k_loc[0] == 1.0
    assert found.entropy[0] == pytest.approx(math.log(copies))


def test_halves_are_rounded_up() -> None:
    profile = np.asarray([[0.5], [0.5], [0.5]])  # m = 1.5: two best positions
    assert measures(profile).k_loc[0] == pytest.approx(2 / 3)
    assert measures(profile * 5 / 3 - 1e-9).k_loc[0] == pytest.approx(2 / 3)  # m < 2.5
    assert measures(profile * 5 / 3).k_loc[0] == pytest.approx(1.0)


def test_a_token_without_mass_has_no_place() -> None:
    found = measures(np.asarray([[0.0, 1.0], [0.0, 1.0]]))
    assert found.mass.tolist() == [0.0, 2.0]
    assert np.isnan([found.loc[0], found.entropy[0], found.k_loc[0]]).all()
    placed = place(Dense.of([0], [[0.0, 1.0]]), [Commit(0, 0)])
    assert placed.tokens.tolist() == [1, 0] and np.isnan(placed.localisation).all()


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([0, 0.1, 0.2, 1.5])),
       st.integers(2, 12))  # fmt: skip
def test_the_largest_masses_with_ties_by_id(mass: FloatArray, count: int) -> None:
    kept = [token for token in range(len(mass)) if mass[token] >= LEAST_MASS]
    wanted = sorted(sorted(kept, key=lambda token: (-mass[token], token))[:count])
    assert largest(mass, count).tolist() == wanted


def test_little_mass_is_not_kept_beyond_the_first_two() -> None:
    assert largest(np.asarray([1.0, 1e-5, 1e-6, 0.0]), 4).tolist() == [0, 1]
    assert largest(np.asarray([0.0, 0.0]), 4).tolist() == []


@given(posteriors(8), st.data())
def test_place_keeps_the_top_and_every_commit(table: FloatArray, data: st.DataObject) -> None:
    positions = np.arange(len(table)) * 3 + 1
    pairs = st.tuples(st.sampled_from(positions.tolist()), st.integers(0, table.shape[1] - 1))
    commits = [Commit(*pair) for pair in data.draw(st.lists(pairs, max_size=5))]
    placed = place(Dense(positions, table), commits, Keep(tokens=2, places=3))
    mass = table.sum(axis=0)
    best = sorted(range(len(mass)), key=lambda token: (-mass[token], token))[:2]
    assert set(placed.tokens.tolist()) == {*best, *(commit.token for commit in commits)}
    assert (np.diff(placed.measures.mass) <= 1e-12).all()
    for commit, probability, share in zip(
        commits, placed.committed, placed.localisation, strict=True
    ):
        value = table[(commit.position - 1) // 3, commit.token]
        assert probability == value
        assert share == pytest.approx(value / mass[commit.token])
    for token, (where, values) in zip(placed.tokens, placed.profiles, strict=True):
        assert len(where) <= 3 and (np.diff(values) <= 0).all()
        assert values.tolist() == table[(where - 1) // 3, token].tolist()
        assert values[0] == table[:, token].max()
        held = values.sum() / mass[token]
        assert len(where) == min(3, len(table)) or held >= 0.99
        assert (values[:-1].sum() / mass[token]) < 0.99


@dataclass(frozen=True)
class Candidates:
    """Tokens along the candidates of open segments, as a family that writes segments has them."""

    segments: dict[int, FloatArray]
    """Segment -> conditionals along its candidate (places, vocabulary)."""

    @property
    def positions(self) -> IntArray:
        numbers = [100 * s + i for s, table in self.segments.items() for i in range(len(table))]
        return np.asarray(numbers)

    def mass(self) -> FloatArray:
        return np.sum([table.sum(axis=0) for table in self.segments.values()], axis=0)

    def profile(self, tokens: IntArray) -> FloatArray:
        return np.concatenate([table[:, tokens] for table in self.segments.values()])


def test_another_source_plugs_in() -> None:
    """(segment, token) candidates: a committed segment commits all of its tokens."""
    source = Candidates(
        {0: np.asarray([[0.8, 0.2], [0.3, 0.7]]), 2: np.asarray([[0.5, 0.5], [0.4, 0.6]])}
    )
    placed = place(source, [Commit(200, 0), Commit(201, 1)])
    assert placed.tokens.tolist() == [0, 1]
    assert placed.measures.mass == pytest.approx([2.0, 2.0])
    assert placed.measures.k_loc == pytest.approx([1.3 / 2, 1.3 / 2])
    assert placed.localisation == pytest.approx([0.25, 0.3])
    same = place(Dense(source.positions, source.profile(np.arange(2))), placed.commits)
    assert same.localisation.tolist() == placed.localisation.tolist()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="position 3"):
        place(EXAMPLE, [Commit(3, 0)])
    with pytest.raises(ValueError, match="one row"):
        Dense.of([1, 2], [[1.0, 0.0]])
    with pytest.raises(ValueError, match="not logits"):
        Dense.of([1], [[1.0, -2.0]])
    with pytest.raises(ValueError, match="at least the 2"):
        Keep(tokens=1)
    with pytest.raises(ValueError, match="places=-1"):
        Keep(places=-1)


def test_nothing_masked_is_nothing() -> None:
    assert not len(NOTHING.tokens) and not len(NOTHING.localisation) and NOTHING.profiles == ()
