"""The paper's tables: all rows are there, numbers are as printed, and look-ups are strict."""

from __future__ import annotations

import pytest

from anyorder.measure import KINDS, published


def test_every_table_has_all_its_rows() -> None:
    assert {kind: len(published(kind)) for kind in KINDS} == {
        "similarity": 33 + 33 + 4,  # seven models with four policies and one with five, twice; LCB
        "order": 2 * 2 * 2,
        "pass_at_k": 5 + 5 + 3 + 3,
        "segments": 5,
        "infilling": 6 + 2,
    }


def test_numbers_as_printed() -> None:
    (row,) = published("similarity", task="mbpp", model="dUltra-coding-b128", policy="random")
    assert row["valid"] == {"tsed": 0.5414, "astd": 0.2646, "coarse": 0.3054}
    assert row["correct"] == {"tsed": 0.8603, "astd": 0.8057, "coarse": 0.8356}
    (row,) = published("order", task="mbpp", model="FlexMDM", scope="code_only")
    assert row["split"] == {"cbc": 0.601, "rub": 0.464, "rub_plus": 0.306, "obw": 0.657}
    temperatures = [row["temperature"] for row in published("order", scope="full_output")]
    assert temperatures == [0.2, 0.1, 0.1, 0.1]
    (row,) = published("pass_at_k", task="mbpp+", insertion_temperature=0.6)
    assert row["pass_at_k"] == {"1": 54.98, "2": 66.11, "4": 73.06, "8": 77.38, "16": 80.69}
    (row,) = published("segments", policy="average")
    assert row["accuracy_by_k"] == {"1": 45.5, "2": 33.8, "4": 20.8}
    rows = published("infilling", model="Open-dCoder-0.5B")
    assert [row["pass_at_1"] for row in rows] == [32.5, 77.4]


def test_every_similarity_is_a_share_and_random_is_the_least_similar() -> None:
    for row in published("similarity"):
        for column in ("valid", "correct"):
            assert all(0 < value <= 1 for value in row[column].values())
    for row in published("similarity", policy="random"):
        others = published("similarity", task=row["task"], model=row["model"])
        assert row["valid"]["astd"] == min(other["valid"]["astd"] for other in others)


@pytest.mark.parametrize(
    ("kind", "where", "message"),
    [("similar", {}, "no published table"), ("order", {"planet": 1}, "no column 'planet'")],
)
def test_wrong_look_ups_are_refused(kind: str, where: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        published(kind, **where)
