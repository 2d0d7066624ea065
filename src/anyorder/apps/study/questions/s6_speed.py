"""S6: accuracy against wall-clock, all families under equal conditions.

Paper, Section 4.2, answer A2. The numbers are those of one race (`anyorder race`, docs/race.md),
whose record the study keeps: lanes are run problem by problem in one process, in shuffled order.
"""

from __future__ import annotations

from typing import Any

from anyorder.apps.study.cells import NO, UNDECIDED, UNKNOWN, YES, Claim
from anyorder.apps.study.plan import Plan
from anyorder.apps.study.questions.section import Question, Section, Table, number, percent
from anyorder.apps.study.view import Study
from anyorder.measure.intervals import Interval
from anyorder.report.charts import Drawing
from anyorder.report.charts.front import FrontChart, FrontPanel, FrontPoint, FrontSeries, front
from anyorder.report.records import interval_of

ONE = "one"
FAMILIES = ("ar", "mdm", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm")
MISSING = "No race is stored yet: `anyorder study s6` runs one."


def _runs(plan: Plan) -> list[str]:
    return []


def _section(study: Study) -> Section:
    title = "S6. Accuracy against wall-clock"
    asks = "Which family solves how much in which time, one sample at a time?"
    how = (
        "All shipped models, equal in parameters, data and training texts; every model at several "
        "settings, once greedy and several times at temperature 1, problem by problem in shuffled "
        "order ([race.md](race.md))."
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
    return record["k"], interval_of({**record, "n": record["tasks"]})


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


def _best(race: dict[str, Any], family: str) -> dict[str, Any]:
    """The family's first point, one attempt: latentmdm at k = 1, ar as it is."""
    own = [each for each in race["lanes"] if each["family"] == family and each["way"] == ONE]
    return dict(own[0]) if own else {}


def _claims(race: dict[str, Any] | None) -> tuple[Claim, ...]:
    says = (
        "one latentmdm sample takes less time than one of ar with its cache",
        "at no more time than ar needs, latentmdm solves more than ar (some setting of k)",
    )
    paper = (
        '"roughly half the latency of an autoregressive model, even with KV caching"',
        '"outperforms all other models by a gap of 5.5 %" at matched wall-clock',
    )
    if race is None:
        return tuple(
            Claim(what, source, MISSING, UNKNOWN) for what, source in zip(says, paper, strict=True)
        )
    latent, ar = _best(race, "latentmdm"), _best(race, "ar")
    ratio = interval_of(latent["against"])
    faster = YES if ratio.high < 1 else NO if ratio.low > 1 else UNDECIDED
    quick = [
        lane
        for lane in race["lanes"]
        if lane["family"] == "latentmdm"
        and lane["way"] == ONE
        and interval_of(lane["against"]).high < 1
    ]
    theirs = _rate(ar)[1]
    better = UNKNOWN if not quick else NO
    best = max(quick, key=lambda lane: _rate(lane)[1].estimate, default=latent)
    ours = _rate(best)[1]
    if quick:
        # Rates of the same problems; intervals that do not meet are a cautious rule.
        better = YES if ours.low > theirs.high else NO if ours.high < theirs.low else UNDECIDED
    return (
        Claim(says[0], paper[0], f"time at k = 1 / time of ar: {number(ratio)}", faster),
        Claim(
            says[1],
            paper[1],
            f"latentmdm at {best['setting'] or 'its defaults'} {percent(ours)} %, ar "
            f"{percent(theirs)} %",
            better,
        ),
    )


def _checks(race: dict[str, Any]) -> tuple[str, ...]:
    calls = {
        family: interval_of(_best(race, family)["forwards"])
        for family in ("ar", "latentmdm")
        if _best(race, family)
    }
    told = ", ".join(f"{family} {number(each, 1)}" for family, each in calls.items())
    return (
        "A tiny network on a CPU is bound by the number of calls and not by their size, so the "
        f"number of network calls should tell: {told} a sample. On an easy corpus, where several "
        "families solve nearly everything, accuracy cannot separate them.",
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
        panels.append(FrontPanel(title, f"seconds for {k} attempts", tuple(series)))
    return front(
        FrontChart(
            "s6-speed",
            "Problems solved against seconds, every family and setting.",
            "problems solved",
            tuple(panels),
        )
    )


QUESTION = Question("s6", _runs, _section)
