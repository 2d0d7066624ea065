"""The findings of the summary, one per topic, made from the numbers.

Every finding begins with one plain sentence for a reader who has read nothing else here; the
numbers with their intervals follow. There is no claim without an interval: if the interval of a
difference holds zero, the sentence says that no difference could be seen. A finding without numbers
is left out. The page around the findings is page.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyorder.measure.intervals import Interval
from anyorder.measure.passk import pass_differences
from anyorder.report.runs import Material, RunFacts, family_mains
from anyorder.report.sections.accuracy import repeated
from anyorder.report.sections.canvas import sweeps
from anyorder.report.sections.order import (
    METRICS,
    blocks_of,
    ends_of,
    leftmost,
    line_order,
    place,
    tau_of,
    writes_lines,
)
from anyorder.report.sections.similarity import METRIC, differences
from anyorder.report.tables import (
    difference,
    digits_of,
    interval_of,
    is_different,
    percent,
    percent_bounds,
    points,
    shown,
    with_bounds,
)
from anyorder.trace.blocks import GIVEN_ORDER

UNSEEN = "no difference could be seen"
DIRECTIONS = {"strictly": 1.0, "mostly": 0.5, "partly": 0.2, "hardly": 0.0}
"""The least Kendall's tau for each of these words, as in "mostly from left to right"."""
NO_DIRECTION, AGAINST = "in no direction", "rather from right to left"


@dataclass(frozen=True)
class Finding:
    """A topic of the summary, in marked text (tables.py)."""

    topic: str
    says: str
    """One sentence in plain words."""
    details: tuple[str, ...]
    """The numbers behind it, a sentence each."""

    @property
    def text(self) -> str:
        """The finding as one paragraph."""
        return " ".join([f"**{self.topic}.**", self.says, *self.details])


def findings(material: Material) -> list[Finding]:
    """The findings of these runs, in the order of `TOPICS`."""
    made = (make(material) for make in TOPICS)
    return [finding for finding in made if finding is not None]


def _accuracy(material: Material) -> Finding | None:
    runs = family_mains(material.gathered.graded())
    if not runs:
        return None
    rates = [f"{_name(run)} {_rate(run.rates[0].interval)}" for run in runs]
    return Finding(
        "Right programs",
        f"{'Depending on the model, ' if len(runs) > 1 else ''}"
        f"{_span([run.rates[0].interval for run in runs])} of the programs pass all their tests.",
        (f"[[passed|Passed]]: {listed(rates)}.",),
    )


def _order(material: Material) -> Finding | None:
    runs = family_mains([run for run in material.gathered if leftmost(run)])
    if not runs:
        return None
    ways: dict[str, list[str]] = {}
    taus, shares = [], []
    for run in runs:
        # Blocks of one slot, or that come at once, have no order inside.
        if not math.isnan((tau := tau_of(run)).estimate):
            ways.setdefault(_direction(tau), []).append(_inside(run))
            taus.append(f"{_name(run)} {with_bounds(tau)}")
        share, ends = ends_of(run)
        straight, random = map(percent, ends.values())
        shares.append(
            f"{run.title} {percent(share.estimate)} ({percent_bounds(share)}; random order "
            f"{random}, left to right {straight})"
        )
    says = "The blocks leave no order to be found."
    details = [f"How often the next [[token]] is the leftmost one missing: {listed(shares)}."]
    if taus:
        says = _in_directions(ways)
        scale = "[[tau|Kendall's tau]], 1 from left to right and 0 at random"
        details.insert(0, f"{scale}: {listed(taus)}.")
    for run in runs:
        if (found := blocks_of(run)) is not None:
            given = GIVEN_ORDER.format(found["slots"])
            details.append(f"{run.title}: {given}; tau and both controls are within blocks.")
    return Finding("Order", says, tuple(details))


def _blocks(material: Material) -> Finding | None:
    mains = family_mains([run for run in material.gathered if not run.left_to_right])
    lies: list[str] = []
    details: list[str] = []
    # For models that commit whole lines, see tau below: their place between controls says little.
    for run in (run for run in mains if not writes_lines(run)):
        found = {metric: place(run, metric) for metric in METRICS}
        known = {metric: each for metric, each in found.items() if each is not None}
        if not known:
            continue
        ends = sorted(each.estimate for each in known.values())
        verb = "" if lies else " lies"
        lies.append(f"{_inside(run)}{verb} at {shown(ends[0])} to {shown(ends[-1])}")
        numbers = [
            f"[[{METRICS[metric][0]}|{METRICS[metric][1]}]] {difference(each)}"
            for metric, each in known.items()
        ]
        apart = sum(is_different(each) for each in known.values())
        details.append(
            f"{_name(run)}: {listed(numbers)}; different from strict left to right in {apart} of "
            f"{len(known)} scores."
        )
    ways: dict[str, list[str]] = {}
    taus = []
    for run in (run for run in mains if writes_lines(run)):
        _, tau, chance = line_order(run)
        assert tau is not None
        ways.setdefault(_direction(tau), []).append(run.title)
        taus.append(f"{_name(run)} {with_bounds(tau)}, chance {shown(chance)}")
    if taus:
        details.append(f"[[tau|Kendall's tau]] of lines, 1 from top to bottom: {listed(taus)}.")
    if lies:
        says = (
            "Are the parts of a function or loop written one after the other? On a scale from 0, "
            f"strictly so, to 1, in random order, {listed(lies)}, depending on the score."
        )
    elif taus:
        says = _in_directions(ways, "whole lines", "from top to bottom")
    else:
        return None
    return Finding("Blocks", says, tuple(details))


def _similarity(material: Material) -> Finding | None:
    ways: dict[str, list[str]] = {}
    details = []
    mains = family_mains(list(material.gathered))
    for row, other, apart in differences(material.comparisons):
        if row.filter != "valid" or row.run not in mains:
            continue
        way = ("more" if apart.estimate > 0 else "less") if is_different(apart) else ""
        ways.setdefault(way, []).append(row.run.title)
        digits = digits_of(apart)
        means = [shown(each.scores[METRIC].estimate, digits) for each in (row, other)]
        details.append(
            f"{_name(row.run)}: [[ASTD|tree similarity]] {means[0]} against {means[1]} in random "
            f"order, difference {difference(apart)}."
        )
    if not ways:
        return None
    ending = "like those written from left to right than programs in random order are"
    says = [
        f"{listed(titles)}: {'programs are ' + way + ' ' + ending if way else UNSEEN}"
        for way, titles in ways.items()
    ]
    if list(ways) == [""]:
        plain = (
            f"{listed(ways[''])}: whether the model chooses the order or chance does, {UNSEEN} "
            "in how much its programs are like those written from left to right."
        )
    else:
        plain = f"{'; '.join(says)}."
    return Finding("Same programs", plain, tuple(details))


def _placement(material: Material) -> Finding | None:
    runs = family_mains([run for run in material.gathered if run.placement is not None])
    if not runs:
        return None
    sure, copies, details = [], [], []
    for run in runs:
        record = run.measures["placement"]["all"]
        gap, known = (interval_of(record[name]) for name in ("gap_loc", "top_k_loc"))
        more = "better" if gap.estimate > 0 else "worse"
        says = (
            f"the tokens written next are {more} placed than those wanted most"
            if is_different(gap)
            else f"{UNSEEN} between the places of tokens written next and of those wanted most"
        )
        details.append(f"{_name(run)}: {says}, difference of [[localisation]] {difference(gap)}.")
        if not math.isnan(known.estimate):
            sure.append(f"{_inside(run)} {percent(known.estimate)}")
            copies.append(f"{_inside(run)} {difference(known)}")
    if copies:
        details.append(
            "How much of what is wanted most is in its best places, "
            f"[[k-localisation|as many of them as there should be copies]]: {listed(copies)}."
        )
    plain = (
        f"Of what a model wants most to write, how much does it know where to put? {listed(sure)}."
        if sure
        else "The tokens that a model wants most are compared with those that it writes next: "
        "how surely does it know their places?"
    )
    return Finding("What but not where", plain, tuple(details))


def _again(material: Material) -> Finding | None:
    runs = repeated(material)
    if not runs:
        return None
    ks = sorted({run.rates[-1].k for run in runs})
    tries = f"{ks[0]}" if len(ks) == 1 else f"{ks[0]} to {ks[-1]}"
    return Finding(
        "Trying again",
        f"A single try is right in {_span([run.rates[0].interval for run in runs])} of cases; of "
        f"{tries} tries at least one is right for "
        f"{_span([run.rates[-1].interval for run in runs])} of the problems.",
        tuple(
            f"{run.label}: one program {_rate(run.rates[0].interval)}, at least one of "
            f"{run.rates[-1].k}: {_rate(run.rates[-1].interval)}."
            for run in runs
        ),
    )


def _insertion(material: Material) -> Finding | None:
    says, details = [], []
    for group in sweeps(material):
        low, high = group[0], group[-1]
        if not low.correct.keys() & high.correct.keys():
            continue
        [apart] = pass_differences(low.correct, high.correct, [1])
        found = apart.interval
        at = [f"{run.options['insertion_temperature']:g}" for run in (low, high)]
        result = f"gives {'more' if found.estimate > 0 else 'fewer'} right programs"
        seen = result if is_different(found) else f"{UNSEEN} in how many programs are right"
        says.append(f"{low.title}, new slots placed less freely: {seen}")
        details.append(
            f"[[insertion temperature|Insertion temperature]] {at[0]} minus {at[1]}: "
            f"{points(found)}."
        )
    return Finding("Insertion", f"{'; '.join(says)}.", tuple(details)) if says else None


TOPICS: tuple[Callable[[Material], Finding | None], ...] = (
    _accuracy,
    _order,
    _blocks,
    _similarity,
    _placement,
    _again,
    _insertion,
)
"""In the order of the page."""


def _direction(tau: Interval) -> str:
    """How strictly an order is left to right, in a word or two."""
    # A tau of 1 is strict even if its interval is unknown.
    if tau.estimate < 1 and not is_different(tau):
        return NO_DIRECTION
    found = (word for word, least in DIRECTIONS.items() if tau.estimate >= least)
    return next(found, AGAINST)


def _in_directions(
    ways: dict[str, list[str]], what: str = "", along: str = "from left to right"
) -> str:
    """One sentence: which models write in which direction. `ways`: direction -> models."""
    parts: list[str] = []
    for way in (*DIRECTIONS, NO_DIRECTION, AGAINST):
        if way not in ways:
            continue
        verb = "" if parts else " write" if len(ways[way]) > 1 else " writes"
        verb += f" {what}" if verb and what else ""
        so = "" if way not in DIRECTIONS else " so" if along in "".join(parts) else f" {along}"
        parts.append(f"{listed(ways[way])}{verb} {way}{so}")
    return f"{', '.join(parts)}."


def _span(intervals: Sequence[Interval]) -> str:
    """The range of some shares, in per cent."""
    shares = sorted(interval.estimate for interval in intervals)
    low, high = percent(shares[0]), percent(shares[-1])
    return high if low == high else f"{shown(100 * shares[0], 0)} to {high}"


def _name(run: RunFacts) -> str:
    """The family and its order, without settings."""
    way = "" if run.left_to_right else run.way
    return f"{run.title} ({way})" if way else run.title


def _inside(run: RunFacts) -> str:
    """The family, and its blocks if it has some."""
    found = blocks_of(run)
    return run.title if found is None else f"{run.title} (within blocks of {found['slots']})"


def _rate(interval: Interval) -> str:
    return f"{percent(interval.estimate)} ({percent_bounds(interval)})"


def listed(parts: Sequence[str]) -> str:
    """Join parts with commas (semicolons if a part holds a comma) and "and"."""
    if len(parts) < 2:
        return "".join(parts)
    sign = ";" if any("," in part for part in parts) else ","
    comma = sign if sign == ";" or len(parts) > 2 else ""
    return f"{f'{sign} '.join(parts[:-1])}{comma} and {parts[-1]}"
