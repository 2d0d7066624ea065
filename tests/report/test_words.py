"""The summary: every number is one that was measured, and nothing is claimed across zero."""

from __future__ import annotations

import re

from anyorder.measure.intervals import Interval
from anyorder.report.glossary import TERMS
from anyorder.report.records import interval_of, is_different, percent, shown
from anyorder.report.sections.material import Material, again, family_mains, main_runs, series_of
from anyorder.report.words import lead, listed, summary


def topics(material: Material) -> dict[str, str]:
    found = (re.fullmatch(r"\*\*(.+?)\.\*\* (.*)", line, re.DOTALL) for line in summary(material))
    return {match[1]: match[2] for match in found if match}


def test_every_topic_has_its_numbers(material: Material) -> None:
    told = topics(material)
    runs = {run.label: run for run in material.gathered}
    rate = runs["MDM, surest token first"].rates[0].interval
    assert f"MDM (surest token first) {percent(rate.estimate)} (" in told["Right programs"]
    record = runs["MDM, surest token first"].measures["arness"]["aggregate"]["global@1"]
    assert percent(record["mean"]) in told["Order"]
    assert percent(record["chance"]) in told["Order"]
    gap = interval_of(runs["MDM, surest token first"].measures["placement"]["all"]["gap_loc"])
    assert shown(gap.estimate) in told["What but not where"]
    assert set(told) >= {"Blocks", "Same programs", "Trying again", "Insertion"}


def test_no_claim_where_the_interval_holds_zero(material: Material) -> None:
    # Both insertion temperatures have the same verdicts here: their difference is exactly zero.
    assert "no difference could be seen" in topics(material)["Insertion"]
    below = Interval(-0.1, -0.2, -0.01, 9, 0.95)
    assert is_different(below)
    assert not is_different(Interval(0.1, -0.01, 0.2, 9, 0.95))
    assert not is_different(Interval(0.1, 0.0, 0.2, 9, 0.95))
    assert not is_different(Interval(0.1, float("nan"), float("nan"), 1, 0.95))


def test_every_marked_term_is_explained(material: Material) -> None:
    for text in [lead(material), *summary(material)]:
        for term in re.findall(r"\[\[([^|\]]+)", text):
            assert term in TERMS


def test_families_are_known_by_their_plainest_run(material: Material) -> None:
    names = [run.label for run in family_mains(material.gathered.runs)]
    assert names == [
        "MDM, surest token first",
        "FlexMDM, surest token first, insertion temperature 1",
        "LatentMDM, best line first, 1 at a time",
        "AR",
    ]
    shown_runs = main_runs(material.gathered.runs)
    assert [run.label for run in shown_runs[:3]] == [
        "MDM, surest token first",
        "MDM, left to right",
        "MDM, random order",
    ]
    series = series_of(shown_runs)
    assert len({(each.color, each.pale) for each in series}) == len(series)
    assert (series[0].color, series[-1].color) == ("mdm", "ar")


def test_lists_of_words() -> None:
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"]) == "a, b, and c"
    assert listed(["a, 1", "b"]) == "a, 1; and b"


def test_commands_are_changed_not_repeated(material: Material) -> None:
    run = material.gathered.runs[0]
    assert run.run.card.command.endswith("--out mdm-confidence")
    assert again(run, "--task", "gsm8k", "--k", "2") == (
        "anyorder sample models/mdm --task gsm8k --k 2 --out RUN"
    )
