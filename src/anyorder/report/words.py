"""The summary in plain words, made from the numbers.

No claim without an interval: where that of a difference holds zero, the sentence says that no
difference could be seen. A finding whose numbers are not there is not mentioned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from anyorder.measure.intervals import Interval
from anyorder.measure.passk import pass_differences
from anyorder.report.glossary import TERMS
from anyorder.report.records import (
    bounds,
    interval_of,
    is_different,
    number_of,
    percent,
    percent_bounds,
    shown,
)
from anyorder.report.runs import RunFacts
from anyorder.report.sections.insertion import sweeps
from anyorder.report.sections.material import Material, family_mains
from anyorder.report.sections.order import leftmost, line_order, place, writes_lines
from anyorder.report.sections.passk import repeated
from anyorder.report.sections.similarity import METRIC, differences

UNSEEN = "no difference could be seen"


def lead(material: Material) -> str:
    """What this page is about, in one paragraph."""
    gathered = material.gathered
    titles = dict.fromkeys(run.title for run in gathered)
    models = listed([f"[[{title}]]" if title in TERMS else title for title in titles])
    tasks = listed([f"`{task}`" for task in gathered.tasks]) or "imported samples"
    return (
        "Some language models may write a text in any order. Do they, and what does it change? "
        f"This page looks at {_many(gathered.samples, 'program')} by {models} for "
        f"{_many(gathered.problems, 'problem')} ({tasks}), recorded [[token]] by token as they "
        "were written."
    )


def summary(material: Material) -> list[str]:
    """The findings, a topic each."""
    topics = {
        "Right programs": _accuracy(material),
        "Order": _order(material),
        "Blocks": _blocks(material),
        "Same programs": _similarity(material),
        "What but not where": _placement(material),
        "Trying again": _again(material),
        "Insertion": _insertion(material),
    }
    told = {topic: list(sentences) for topic, sentences in topics.items()}
    return [f"**{topic}.** {' '.join(found)}" for topic, found in told.items() if found]


def player_text() -> list[str]:
    """What to do with the player."""
    return [
        "Every program of this report can be watched as it was written. A grey box is a [[slot]] "
        "that is still [[mask|masked]]; a token appears where and when it was "
        "[[reveal|revealed]]; the [[tree|statement tree]] beside it fills up. Press play, drag "
        "the slider, or use the arrow keys; press `?` for all keys. The list at the top of each "
        "side has every sample; what is shown first is the longest program that both sides got "
        "right, not a typical one."
    ]


def _accuracy(material: Material) -> Iterator[str]:
    parts = [
        f"{_name(run)} {_rate(run.rates[0].interval)}"
        for run in family_mains(material.gathered.graded())
    ]
    if parts:
        yield f"Share of programs that [[passed]] all tests: {listed(parts)}."


def _order(material: Material) -> Iterator[str]:
    parts = []
    for run in family_mains([run for run in material.gathered if leftmost(run)]):
        record = leftmost(run)
        assert record is not None
        strict, chance = number_of(record["left_to_right"]), number_of(record["chance"])
        parts.append(
            f"{_name(run)} {_rate(interval_of(record['interval']))}, between {percent(chance)} in "
            f"random order and {percent(strict)} from left to right"
        )
    if parts:
        yield f"How often the next [[token]] is the leftmost one missing: {listed(parts)}."


def _blocks(material: Material) -> Iterator[str]:
    told: dict[str, list[str]] = {"more": [], "less": [], "": []}
    mains = family_mains([run for run in material.gathered if run.family != "ar"])
    for run in (run for run in mains if not writes_lines(run)):
        found = place(run, "cbc")
        if found is not None:
            way = ("more" if found.estimate > 0 else "less") if is_different(found) else ""
            told[way].append(f"{_name(run)} {shown(found.estimate)} ({bounds(found)})")
    scale = "from 0, strict left to right, to 1, random order"
    for way in ("more", "less"):
        if told[way]:
            yield (
                "Parts of a function or loop are begun before the first one is finished, "
                f"{way} than in strict left-to-right writing, on a scale {scale}: "
                f"{listed(told[way])}."
            )
    if told[""]:
        yield (
            "In how early the parts of a function or loop are begun, no difference from strict "
            f"left-to-right writing could be seen, on a scale {scale}: {listed(told[''])}."
        )
    for run in (run for run in mains if writes_lines(run)):
        _, tau, chance = line_order(run)
        assert tau is not None
        yield (
            f"{_name(run)} orders its lines with a [[tau|Kendall's tau]] of {shown(tau.estimate)} "
            f"({bounds(tau)}): 1 is top to bottom, chance is {shown(chance)}."
        )


def _similarity(material: Material) -> Iterator[str]:
    for row, other, apart in differences(material.comparisons):
        if row.filter != "valid" or row.run not in family_mains(list(material.gathered)):
            continue
        means = [shown(each.scores[METRIC].estimate) for each in (row, other)]
        numbers = (
            f"[[ASTD|tree similarity]] {means[0]} against {means[1]}; difference "
            f"{shown(apart.estimate)}, {bounds(apart)}"
        )
        if is_different(apart):
            closer = "more" if apart.estimate > 0 else "less"
            yield (
                f"{_name(row.run)}: its programs are {closer} like those written from left to "
                f"right than programs written in random order are ({numbers})."
            )
        else:
            yield (
                f"{_name(row.run)}: in how much its programs are like those written from left to "
                f"right, {UNSEEN} from random order ({numbers})."
            )


def _placement(material: Material) -> Iterator[str]:
    for run in family_mains([run for run in material.gathered if run.placement is not None]):
        gap = interval_of(run.measures["placement"]["all"]["gap_loc"])
        if is_different(gap):
            more = "better" if gap.estimate > 0 else "worse"
            says = (
                f"the tokens written next are {more} placed than those wanted most (difference "
                f"of [[localisation]] {shown(gap.estimate)}, {bounds(gap)})"
            )
        else:
            says = (
                "in how well placed they are, between the tokens wanted most and those written "
                f"next, {UNSEEN} ({shown(gap.estimate)}, {bounds(gap)})"
            )
        yield f"{_name(run)}: {says}."
        known = interval_of(run.measures["placement"]["all"]["top_k_loc"])
        if not math.isnan(known.estimate):
            yield (
                "A token that belongs in several places lowers that. "
                f"[[k-localisation|Allowing for copies]], {shown(known.estimate)} "
                f"({bounds(known)}) of what is wanted most stands in its best places."
            )


def _again(material: Material) -> Iterator[str]:
    for run in repeated(material):
        first, last = run.rates[0], run.rates[-1]
        yield (
            f"{run.label}: one program is right in {_rate(first.interval)}, at least one of "
            f"{last.k} in {_rate(last.interval)}."
        )


def _insertion(material: Material) -> Iterator[str]:
    for group in sweeps(material):
        low, high = group[0], group[-1]
        if not low.correct.keys() & high.correct.keys():
            continue
        [apart] = pass_differences(low.correct, high.correct, [1])
        found = apart.interval
        at = [f"{run.options['insertion_temperature']:g}" for run in (low, high)]
        begin = f"{low.title}, [[insertion temperature]] {at[0]} less {at[1]}"
        if is_different(found):
            yield f"{begin}: the share of right programs changes by {_rate(found)}."
        else:
            yield f"{begin}: in the share of right programs {UNSEEN}, {_rate(found)}."


def _name(run: RunFacts) -> str:
    """The family and its order, without settings."""
    return run.title if run.family == "ar" else f"{run.title} ({run.way})"


def _rate(interval: Interval) -> str:
    """A share with its interval."""
    return f"{percent(interval.estimate)} ({percent_bounds(interval)})"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def listed(parts: Sequence[str]) -> str:
    """Words with commas, or with semicolons where they hold commas, and "and" before the last."""
    if len(parts) < 2:
        return "".join(parts)
    sign = ";" if any("," in part for part in parts) else ","
    comma = sign if sign == ";" or len(parts) > 2 else ""
    return f"{f'{sign} '.join(parts[:-1])}{comma} and {parts[-1]}"
