"""Descriptions of families: they agree with the families, and outside ones find their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from anyorder.families.descriptions import (
    BASELINE,
    DESCRIPTIONS,
    Description,
    describe,
    register_description,
)
from anyorder.families.family import FAMILIES
from anyorder.families.likelihood import LIKELIHOODS, likelihood_of
from anyorder.report.charts.svg import MEANINGS, chart_colors, names_by_light, spare_colors, style
from anyorder.report.tables import labels_of

OWN = Description("own", title="Our Own", color=("#123456", "#abcdef"))


@pytest.fixture
def own() -> Iterator[Description]:
    register_description(OWN)
    yield OWN
    del DESCRIPTIONS[OWN.name]


def test_there_is_one_for_each_family_in_the_same_order() -> None:
    assert list(DESCRIPTIONS) == list(FAMILIES)
    assert all(name == each.name for name, each in DESCRIPTIONS.items())


@pytest.mark.parametrize("name", FAMILIES)
def test_it_says_what_the_family_does(name: str) -> None:
    family, known = FAMILIES[name], describe(name)
    assert known.summary == family.summary
    assert known.left_to_right == family.causal
    assert known.has_segments == family.counts_segments
    assert known.inserts == (family.answers in ("bare", "segments"))
    assert known.masks == (family.reader is not None)
    assert known.has_choice == known.masks


def test_every_likelihood_is_that_of_a_family() -> None:
    named = [each.likelihood for each in DESCRIPTIONS.values() if each.likelihood is not None]
    assert sorted(named) == sorted(LIKELIHOODS)
    assert likelihood_of("unheard-of") is None


def test_a_name_that_nobody_registered_is_neutral() -> None:
    known = describe("theirs")
    assert (known.title, describe("").title) == ("theirs", "unknown model")
    assert known.has_choice and known.masks
    assert not known.inserts and not known.has_segments and not known.left_to_right
    assert known.color is None and BASELINE in chart_colors()
    assert known.race_points == ({},)


def test_families_come_first_in_the_palette_and_lend_their_colours_in_turn() -> None:
    assert list(chart_colors()) == [*DESCRIPTIONS, *MEANINGS]
    lent = ["latentmdm", "flexmdm", "flexlatent", "mdm", "ar", "duo", "sflm", "block"]
    assert spare_colors() == lent


def test_a_registered_family_has_its_title_and_its_colour(own: Description) -> None:
    assert labels_of([("own", "random", {}, "run")]) == ["Our Own, random order"]
    assert chart_colors()["own"] == own.color
    assert "--ao-own: light-dark(#123456, #abcdef);" in style()
    assert names_by_light()["#123456"] == "own"
    assert spare_colors()[-1] == "own"


def test_a_name_is_described_once(own: Description) -> None:
    with pytest.raises(ValueError, match="'own' is described already"):
        register_description(own)


def test_a_colour_is_one_and_belongs_to_one_name(own: Description) -> None:
    with pytest.raises(ValueError, match="give #rrggbb"):
        Description("other", title="Other", color=("red", "#abcdef"))
    register_description(replace(own, name="other", title="Other"))
    try:
        with pytest.raises(ValueError, match="own and other are both #123456"):
            names_by_light()
    finally:
        del DESCRIPTIONS["other"]
