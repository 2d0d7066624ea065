"""S6: accuracy against wall-clock, all families under equal conditions.

Paper, Section 4.2, answer A2. The numbers are those of one race (`anyorder race`, docs/race.md),
whose record the study keeps: lanes are run problem by problem in one process, in shuffled order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anyorder.measure.intervals import Interval
from anyorder.report.charts import Drawing
from anyorder.report.charts.kinds import FrontChart, FrontPanel, FrontPoint, FrontSeries, front
from anyorder.report.tables import interval_of
from studies.cells import NO, UNDECIDED, UNKNOWN, YES, Claim, proportion
from studies.plan import Plan
from studies.questions.section import Question, Section, Table, number, percent
from studies.study_job import study_command
from studies.view import Study

ONE = "one"
FAMILIES = ("ar", "mdm", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm")
MISSING = f"No race is stored yet: `{study_command('s6')}` runs one."


def _runs(plan: Plan) -> list[str]:
    return []


def _section(study: Study) -> Section:
    title = "S6. Accuracy against wall-clock"
    asks = "How much does each family solve, and in how much time, one sample at a time?"
    how = (
        "All shipped models. They have equal parameters, data and training texts. Every model runs "
        "at several settings, once greedy and several times at temperature 1, problem by problem "
        "in shuffled order ([race.md](race.md))."
    )
    race = study.race
    if race is None:
        return Section(title, asks, how, claims=_claims(None), notes=(MISSING,))
    told = race["conditions"]
    busy = " Other processes were using the machine, so read the ratios." if told["busy"] else ""
    how += (
        f" {told['problems']} problems, {told['samples']} attempts at temperature "
        f"{told['temperature']:g}, {told['threads']} thread of a CPU.{busy}"
    )
    ways = dict.fromkeys(lane["way"] for lane in race["lanes"])
    return Section(
        title,
        asks,
        how,
        tables=tuple(_lanes(race, way) for way in ways),
        figures=(_figure(race, list(ways)),),
        claims=_claims(race),
        checks=_checks(race),
    )


def _rate(lane: dict[str, Any]) -> tuple[int, Interval]:
    """The largest k and its rate."""
    record = dict(lane["rates"][-1])
    rate = interval_of({**record, "n": record["tasks"]})
    return record["k"], proportion(rate) if lane["way"] == ONE else rate


def _lanes(race: dict[str, Any], way: str) -> Table:
    rows = []
    for lane in race["lanes"]:
        if lane["way"] == way:
            k, rate = _rate(lane)
            seconds = interval_of(lane["seconds"])
            rows.append(
                (
                    lane["entrant"],
                    lane["setting"] or "defaults",
                    percent(rate),
                    number(seconds.times(1000), 1),
                    number(interval_of(lane["forwards"]), 1),
                    number(interval_of(lane["against"])),
                    "yes" if lane["front"] else "",
                )
            )
    k = next(_rate(lane)[0] for lane in race["lanes"] if lane["way"] == way)
    first = race["conditions"]["reference"]
    heads = ("model", "setting", f"pass@{k} %", "ms a sample", "network calls", f"time / {first}")
    title = "One attempt, greedy" if k == 1 else f"{k} attempts at temperature 1"
    return Table(title, (*heads, "on the front"), tuple(rows))


def _first(race: dict[str, Any], family: str) -> dict[str, Any] | None:
    """The family's first point, one attempt: latentmdm at k = 1, ar as it is."""
    own = (each for each in race["lanes"] if each["family"] == family and each["way"] == ONE)
    return next(own, None)


def _claims(race: dict[str, Any] | None) -> tuple[Claim, ...]:
    says = (
        "one latentmdm sample takes less time than one of ar with its cache",
        "in no more time than ar needs, latentmdm at its best k solves more than every other model "
        "at its best setting",
    )
    paper = (
        '"roughly half the latency of an autoregressive model, even with KV caching"',
        '"outperforms all other models by a gap of 5.5 %" at matched wall-clock',
    )
    if race is None:
        return tuple(
            Claim(what, source, MISSING, UNKNOWN) for what, source in zip(says, paper, strict=True)
        )
    latent = _first(race, "latentmdm")
    if latent is None or _first(race, "ar") is None:
        absent = "the race was run without ar or latentmdm"
        return tuple(
            Claim(what, source, absent, UNKNOWN) for what, source in zip(says, paper, strict=True)
        )
    ratio = interval_of(latent["against"])
    faster = YES if ratio.high < 1 else NO if ratio.low > 1 else UNDECIDED
    here, holds = _matched(race)
    return (
        Claim(says[0], paper[0], f"time at k = 1 / time of ar: {number(ratio)}", faster),
        Claim(says[1], paper[1], here, holds),
    )


def _matched(race: dict[str, Any]) -> tuple[str, str]:
    """Latentmdm against the others, of the lanes that are no slower than ar.

    Rates are of the same problems but not paired here: intervals that do not meet are a cautious
    rule.
    """
    quick = [
        lane
        for lane in race["lanes"]
        if lane["way"] == ONE and (lane["family"] == "ar" or interval_of(lane["against"]).high < 1)
    ]
    ours = [lane for lane in quick if lane["family"] == "latentmdm"]
    others = [lane for lane in quick if lane["family"] != "latentmdm"]
    if not ours:
        return "no setting of latentmdm is as quick as ar", NO
    own, best = max(ours, key=_solved_quickly), max(others, key=_solved_quickly)
    mine, theirs = _rate(own)[1], _rate(best)[1]
    holds = YES if mine.low > theirs.high else NO if mine.high < theirs.low else UNDECIDED
    return f"{_told(own)}; of the others {_told(best)}", holds


def _solved_quickly(lane: dict[str, Any]) -> tuple[float, float]:
    """For the best lane: who solves most, and of those the quickest."""
    return _rate(lane)[1].estimate, -lane["seconds"]["estimate"]


def _told(lane: dict[str, Any]) -> str:
    seconds = interval_of(lane["seconds"]).times(1000)
    return f"{_called(lane)} {percent(_rate(lane)[1])} % in {number(seconds, 1)} ms"


def _called(lane: dict[str, Any]) -> str:
    return f"{lane['entrant']} {lane['setting']}".rstrip()


def _checks(race: dict[str, Any]) -> tuple[str, ...]:
    lanes = [lane for family in ("ar", "latentmdm") if (lane := _first(race, family)) is not None]
    told = [
        f"{lane['family']} {number(interval_of(lane['forwards']), 1)} calls of "
        f"{number(_each_call(lane), 1)} ms"
        for lane in lanes
    ]
    return (
        "For tiny networks on a CPU the number of calls decides the time, so fewer calls should "
        f"be faster. Per sample: {', '.join(told)}. latentmdm saves calls, but each call costs "
        "more: in each step the segment decoder also writes a proposal for every open segment, "
        "token by token, and this is not counted as a call. At the size of the paper the large "
        "network would outweigh this cost. On an easy corpus several families solve nearly "
        "everything, and accuracy cannot separate them.",
    )


def _each_call(lane: dict[str, Any]) -> Interval:
    """Milliseconds of a call: bounds from both intervals' ends, so wider than they need be."""
    seconds, calls = interval_of(lane["seconds"]).times(1000), interval_of(lane["forwards"])
    return replace(
        seconds,
        estimate=seconds.estimate / calls.estimate,
        low=seconds.low / calls.high,
        high=seconds.high / calls.low,
    )


def _figure(race: dict[str, Any], ways: list[str]) -> Drawing:
    panels = []
    for way in ways:
        series = []
        for family in FAMILIES:
            points = tuple(
                FrontPoint(
                    interval_of(lane["seconds"]).times(_rate(lane)[0]),
                    _rate(lane)[1],
                    label=lane["setting"] if lane["front"] else "",
                    front=lane["front"],
                )
                for lane in sorted(race["lanes"], key=lambda lane: lane["seconds"]["estimate"])
                if lane["family"] == family and lane["way"] == way
            )
            if points:
                series.append(FrontSeries(family, family, points))
        k = next(_rate(lane)[0] for lane in race["lanes"] if lane["way"] == way)
        title = "One attempt, greedy" if k == 1 else f"At least one of {k} drawn"
        axis = "seconds for one attempt" if k == 1 else f"seconds for {k} attempts"
        panels.append(FrontPanel(title, axis, tuple(series)))
    return front(
        FrontChart(
            "s6-speed",
            "Problems solved against seconds, every family and setting.",
            "problems solved",
            tuple(panels),
        )
    )


QUESTION = Question("s6", _runs, _section)
