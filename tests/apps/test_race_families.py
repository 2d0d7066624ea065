"""The settings of a race: the table, and the grids that override it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.apps.race.plan import ONE, SEVERAL, RacePoint, parse_grids, points_of, ways
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.families.family import FAMILIES, find_family

KNOWN = ["mine", "mdm", "latentmdm"]


def test_every_default_setting_is_one_that_its_family_takes() -> None:
    for name in set(DESCRIPTIONS) & set(FAMILIES):
        family = find_family(name)
        for point in points_of(name, family, {}):
            for options in ways(family, 1.0, 4).values():
                assert family.choose({**options, **point.options}) is not None


def test_one_attempt_is_greedy_and_several_have_the_races_temperature() -> None:
    found = ways(find_family("mdm"), 0.7, 4)
    assert found == {ONE: {"temperature": 0.0}, SEVERAL: {"temperature": 0.7}}
    assert list(ways(find_family("mdm"), 0.7, 1)) == [ONE]


def test_a_planner_head_is_used() -> None:
    mdm, planned = find_family("mdm"), SimpleNamespace(plan=None)
    assert points_of("planner", mdm, {}, planned) == [RacePoint({"policy": "planner"})]
    grids = parse_grids(["mdm:steps=4"], KNOWN)
    assert points_of("planner", mdm, grids, planned) == [RacePoint({"policy": "planner"})]
    own = {"planner": [RacePoint({"steps": 4})]}
    assert points_of("planner", mdm, own, planned) == [RacePoint({"steps": 4})]  # as told
    assert RacePoint({"clock": "events"}) in points_of("flexmdm", find_family("flexmdm"), {})


def test_grids_multiply_within_and_add_between() -> None:
    grids = parse_grids(
        ["mdm:steps=8,16;policy=random", "mdm:quota=threshold:0.9", "latentmdm:k=1"], KNOWN
    )
    assert [point.options for point in grids["mdm"]] == [
        {"steps": 8, "policy": "random"},
        {"steps": 16, "policy": "random"},
        {"quota": "threshold:0.9"},
    ]
    assert grids["latentmdm"] == [RacePoint({"k": 1})]


def test_an_entrants_own_grid_comes_before_its_familys() -> None:
    grids = parse_grids(["mine:steps=4", "mdm:steps=8", "mdm:steps=8"], KNOWN)
    mdm = find_family("mdm")
    assert points_of("mine", mdm, grids) == [RacePoint({"steps": 4})]
    assert points_of("other", mdm, grids) == [RacePoint({"steps": 8})]  # once, though told twice
    assert points_of("ar", find_family("ar"), grids) == [RacePoint({})]


def test_points_have_words_and_folder_names() -> None:
    point = RacePoint({"steps": 16, "quota": "threshold:0.9"})
    assert point.label == "steps 16, quota threshold:0.9"
    assert point.slug == "steps-16-quota-threshold_0.9"
    assert (RacePoint({}).label, RacePoint({}).slug) == ("", "plain")


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("steps=8", "write NAME:OPTION=V,V"),
        ("mdm:", "write NAME:OPTION=V,V"),
        ("duo2:steps=8", "no 'duo2' races: choose from mine, mdm, latentmdm"),
        ("mdm:steps", "is no OPTION=V,V"),
        ("mdm:steps=8,,16", "is no OPTION=V,V"),
        ("mdm:temperature=0.5", "set --temperature"),
        ("mdm:steps=8;steps=16", "steps is given twice"),
    ],
)
def test_bad_grids_are_refused(word: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_grids([word], KNOWN)


NAMES = st.sampled_from(["steps", "k", "policy", "top_p"])
VALUES = st.one_of(st.integers(0, 99), st.sampled_from([0.5, 0.25]), st.sampled_from(["a", "b:1"]))


@given(st.dictionaries(NAMES, st.lists(VALUES, min_size=1, max_size=3, unique=True), min_size=1))
def test_what_is_written_is_what_is_read(options: dict[str, list[object]]) -> None:
    word = ";".join(f"{name}={','.join(map(str, values))}" for name, values in options.items())
    [points] = parse_grids([f"mdm:{word}"], KNOWN).values()
    product = 1
    for name, values in options.items():
        product *= len(values)
        assert {point.options[name] for point in points} == set(values)
    assert len(points) == product
