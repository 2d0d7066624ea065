"""The lead and the findings: every number is one that was measured, no claim across zero."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import make_run
from made_traces import mdm

from anyorder.measure.intervals import Interval
from anyorder.report.findings import Finding, findings, listed
from anyorder.report.glossary import TERMS
from anyorder.report.page import lead, player_text
from anyorder.report.runs import Material, again, family_mains, gather, main_runs, series_of
from anyorder.report.sections.order import METRICS
from anyorder.report.tables import (
    POLICIES_MEAN,
    difference,
    digits_of,
    interval_of,
    is_different,
    percent,
    points,
    shown,
)
from anyorder.trace import Event, Ghost, Trace


def topics(material: Material) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings(material)}


def interval(estimate: float, low: float, high: float) -> Interval:
    return Interval(estimate, low, high, 9, 0.95)


def test_every_topic_has_its_numbers(material: Material) -> None:
    told = {topic: finding.text for topic, finding in topics(material).items()}
    runs = {run.label: run for run in material.gathered}
    rate = runs["MDM, surest token first"].rates[0].interval
    assert f"MDM (surest token first) {percent(rate.estimate)} (" in told["Right programs"]
    record = runs["MDM, surest token first"].measures["arness"]["aggregate"]["global@1"]
    assert percent(record["mean"]) in told["Order"]
    assert percent(record["chance"]) in told["Order"]
    gap = interval_of(runs["MDM, surest token first"].measures["placement"]["all"]["gap_loc"])
    assert difference(gap) in told["What but not where"]
    assert set(told) >= {"Blocks", "Same programs", "Trying again", "Insertion"}


def test_a_finding_begins_with_one_plain_sentence(material: Material) -> None:
    """Short, without brackets and without a word that would have to be looked up."""
    for finding in findings(material):
        assert finding.details
        assert len(finding.says.split()) <= 45, finding.says
        assert not re.search(r"\[\[|\(|tau|localisation", finding.says), finding.says
        assert finding.says.endswith((".", "?"))
        assert finding.text.startswith(f"**{finding.topic}.** {finding.says} ")


def test_the_order_is_told_in_words(material: Material) -> None:
    says = topics(material)["Order"].says
    assert "AR writes strictly from left to right" in says
    # Written in a random permutation: no direction can be seen.
    assert "MDM in no direction" in says or "MDM and" in says


def test_blocks_go_by_all_scores(material: Material) -> None:
    """One score that does not differ says nothing about the others."""
    finding = topics(material)["Blocks"]
    [own] = [detail for detail in finding.details if detail.startswith("MDM (")]
    for name, says in METRICS.values():
        assert f"[[{name}|{says}]]" in own
    assert re.search(r"different from strict left to right in \d of 4 scores", own)
    assert "one after the other" in finding.says


def test_no_claim_where_the_interval_holds_zero(material: Material) -> None:
    # Both insertion temperatures have the same verdicts here: their difference is exactly zero.
    assert "no difference could be seen" in topics(material)["Insertion"].says
    assert is_different(interval(-0.1, -0.2, -0.01))
    assert not is_different(interval(0.1, -0.01, 0.2))
    assert not is_different(interval(0.1, 0.0, 0.2))
    assert not is_different(interval(0.1, float("nan"), float("nan")))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (interval(0.28, 0.25, 0.31), "0.28 (0.25 to 0.31)"),
        (interval(0.0054, 0.0, 0.0138), "0.005 (0 to 0.014)"),  # not 0.01 (0.00 to 0.01)
        (interval(0.006, -0.002, 0.014), "0.006 (\N{MINUS SIGN}0.002 to 0.014)"),
        (interval(0.0, 0.0, 0.0), "0 (0 to 0)"),
        (interval(1e-17, -1e-17, 0.5), "0 (0 to 0.50)"),
        (interval(0.00001, 0.000001, 0.0002), "0.0000 (0.0000 to 0.0002)"),
        (interval(0.5, float("nan"), float("nan")), "0.50 (\N{EN DASH})"),
    ],
)
def test_rounding_does_not_contradict_an_interval(found: Interval, says: str) -> None:
    assert difference(found) == says


def test_a_zero_has_no_sign_and_shares_differ_in_points() -> None:
    assert shown(-0.001) == "0.00" and shown(-0.1) == "\N{MINUS SIGN}0.10"
    assert digits_of(interval(0.5, 0.4, 0.6)) == 2
    assert points(interval(-0.03, -0.1, 0.031)) == (
        "\N{MINUS SIGN}3 (\N{MINUS SIGN}10 to 3) percentage points"
    )


def test_every_marked_term_is_explained(material: Material) -> None:
    texts = [lead(material), *player_text(material)]
    for text in [*texts, *(finding.text for finding in findings(material))]:
        for term in re.findall(r"\[\[([^|\]]+)", text):
            assert term in TERMS


def test_the_lead_says_what_the_task_asks(material: Material) -> None:
    assert "[[stories]], small word problems" in lead(material)


def traced(folder: Path, trace: Trace, **options: object) -> Material:
    settings = {"policy": "confidence", "temperature": 0.0, **options}
    return Material(gather([make_run(folder, [trace], family="mdm", options=settings)]), ())


def test_remasking_is_told_where_it_happens(tmp_path: Path) -> None:
    assert "remask" not in " ".join(player_text(traced(tmp_path / "plain", mdm())))
    trace = replace(mdm(), reveal_step=[20] * 27, events=(Event(1, 0, None, "x"),))
    changing = " ".join(player_text(traced(tmp_path / "changing", trace)))
    assert "change after they were written" in changing
    trace = replace(trace, events=(*(trace.events or ()), Event(2, 0, None, None)))
    assert "[[remask|remasked]]" in " ".join(player_text(traced(tmp_path / "again", trace)))
    trace = replace(mdm(), ghosts=(Ghost(3, 0, 2, 5, None, "x"),))
    deleting = " ".join(player_text(traced(tmp_path / "deleting", trace)))
    assert "Some slots are deleted" in deleting and "remask" not in deleting


def test_new_families_and_policies_have_names(tmp_path: Path) -> None:
    rows = (("duo", "DUO", "ancestral"), ("sflm", "S-FLM", "flow"))
    for family, title, policy in rows:
        options = {"policy": policy}
        folder = make_run(tmp_path / family, [mdm()], family=family, options=options)
        material = Material(gather([folder]), ())
        assert f"[[{title}]]" in lead(material) and title in TERMS
        assert policy in POLICIES_MEAN and policy not in material.gathered.runs[0].label
        assert series_of(material.gathered.runs)[0].color == family
    planned = traced(tmp_path / "planned", mdm(), policy="planner")
    assert planned.gathered.runs[0].label == "MDM, as its planner says"


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
