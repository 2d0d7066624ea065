"""The study in a few rows: the table at the head of the page, which the README repeats.

Every answer is decided by rule from an interval, like the claims of the sections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anyorder.apps.study.cells import NO, UNDECIDED, UNKNOWN, YES, Claim, above_zero, all_of
from anyorder.apps.study.questions.dial_counted import TAU, counted_group
from anyorder.apps.study.questions.section import Table, number, percent
from anyorder.apps.study.view import Group, Reading, Study, beyond_chance, column
from anyorder.measure.intervals import Interval

PASSED, RUB = column("passed"), column("order.split_only.rub")

Row = tuple[str, str, str]


def brief(study: Study, claims: Sequence[Claim]) -> Table:
    """Question, answer, and the numbers that decide; of all claims of the study, how many hold."""
    rows = (
        _collapse(study),
        _ties(study),
        _counted(study),
        _dial(study),
        _insertion(study),
        _segments(study),
        _several(study),
        _scores(study),
        _both(study),
    )
    low, high = (
        _shown(study.group("flexmdm", "greedy"), column(f"order.split_only.rub.{control}"))
        for control in ("left_to_right", "random")
    )
    note = (
        "Tau is Kendall's, of place and time: 1 is left to right, 0 no order, -1 right to left. "
        f"RUB counts returns to unfinished blocks: the same programs have {low} from left to right "
        f"and {high} in random order. {_tally(claims)}"
    )
    return Table("In short", ("question", "answer", "here"), rows, note)


def _tally(claims: Sequence[Claim]) -> str:
    count = Counter(claim.holds for claim in claims)
    parts = ((YES, "hold"), (NO, "do not"), (UNDECIDED, "are undecided"), (UNKNOWN, "not measured"))
    told = [f"{count[verdict]} {words}" for verdict, words in parts if count[verdict]]
    return f"Of all {len(claims)} claims of the study {', '.join(told)}."


def _mean(group: Group, read: Reading = TAU, *, rate: bool = False) -> Interval | None:
    return group.mean(read, rate=rate) if group.stored else None


def _shown(group: Group, read: Reading = TAU) -> str:
    return number(_mean(group, read))


def _solved(group: Group) -> str:
    return f"{percent(_mean(group, PASSED, rate=True))} %"


def _collapse(study: Study) -> Row:
    own = _mean(study.group("mdm", "ties-untempered-random"))
    planner = study.of_models([study.plan.models["planner-layout1"]], "similarity-planner", "")
    free, strict = (
        study.group("mdm", f"similarity-{policy}") for policy in ("random", "left_to_right")
    )
    return (
        "Does mdm by confidence write from left to right?",
        above_zero(own),
        f"tau {number(own)}, of a learned planner {_shown(planner)}; in random order it solves "
        f"{_solved(free)}, from left to right {_solved(strict)}",
    )


def _ties(study: Study) -> Row:
    left, free = (study.group("mdm", f"ties-filtered-{rule}") for rule in ("leftmost", "random"))
    return (
        "Can a sampler's tie rule decide that?",
        above_zero(left.minus(free, TAU)),
        f"with scores read after temperature and top-p tau is {_shown(left)} if ties go to the "
        f"left and {_shown(free)} if they are broken at random",
    )


def _counted(study: Study) -> Row:
    free = _mean(counted_group(study, 1.0, 0.0, "left", "random"))
    fixed, words, right = (
        _shown(counted_group(study, *setting, "random"))
        for setting in ((0.0, 0.0, "left"), (0.0, 1.0, "left"), (1.0, 0.0, "right"))
    )
    return (
        "Does it happen without a network?",
        above_zero(free),
        f"with posteriors counted from data tau is {number(free)} where positions are free, "
        f"{fixed} where nothing is, {words} where words are, and {right} where positions are and "
        "the canvas is right-aligned",
    )


def _dial(study: Study) -> Row:
    fixed, free, words = (
        study.dialled("mdm", "greedy", dial, "") for dial in ("layout0", "layout1", "wording1")
    )
    right = study.dialled("mdm", "greedy", "right", "")
    up, control = free.minus(fixed, TAU), words.minus(fixed, TAU)
    return (
        "Does uncertainty about positions cause it?",
        all_of(above_zero(up), above_zero(free.minus(words, TAU))),
        f"from fixed to free positions tau of trained mdm rises by {number(up)}, from fixed to "
        f"free words by {number(control)}; on a right-aligned canvas it is {_shown(right)}",
    )


def _insertion(study: Study) -> Row:
    flexmdm, mdm = (study.group(family, "greedy") for family in ("flexmdm", "mdm"))
    return (
        "Does flexmdm return to unfinished blocks more than mdm?",
        above_zero(flexmdm.minus(mdm, RUB)),
        f"RUB {_shown(flexmdm, RUB)}, of mdm {_shown(mdm, RUB)}; it solves {_solved(flexmdm)}, "
        f"mdm {_solved(mdm)}",
    )


def _segments(study: Study) -> Row:
    rises = {
        family: study.dialled(family, "greedy", "layout1", "").minus(
            study.dialled(family, "greedy", "layout0", ""), beyond_chance
        )
        for family in ("latentmdm", "flexmdm")
    }
    return (
        "Do latentmdm's lines drift to left to right where positions are free?",
        above_zero(rises["latentmdm"]),
        f"their tau rises by {number(rises['latentmdm'])}, that of flexmdm's by "
        f"{number(rises['flexmdm'])}; it solves {_solved(study.group('latentmdm', 'greedy'))}",
    )


def _drawn(study: Study, policy: str, k: int) -> Group:
    return study.group("latentmdm", f"segments-{policy}-k{k}-drawn")


def _several(study: Study) -> Row:
    one, two, four = (_drawn(study, "average", k) for k in (1, 2, 4))
    costs = [one.minus(more, PASSED, rate=True) for more in (two, four)]
    return (
        "Does revealing several lines at once cost accuracy?",
        all_of(*map(above_zero, costs)),
        f"points at temperature 1: {percent(costs[0])} with two, {percent(costs[1])} with four",
    )


def _scores(study: Study) -> Row:
    leads = [
        _drawn(study, "average", k).minus(_drawn(study, "minimum", k), PASSED, rate=True)
        for k in (2, 4)
    ]
    return (
        "Are lines then best chosen by their average score, and not by their minimum?",
        all_of(*map(above_zero, leads)),
        f"average less minimum, points at temperature 1: {percent(leads[0])} with two, "
        f"{percent(leads[1])} with four",
    )


def _both(study: Study) -> Row:
    child, *parents = (
        study.group(family, "greedy").only(0) for family in ("flexlatent", "flexmdm", "latentmdm")
    )
    gains = [child.minus(parent, PASSED, rate=True) for parent in parents]
    return (
        "Does insertion of whole lines (flexlatent) solve more than both of its parents?",
        all_of(*map(above_zero, gains)),
        f"flexlatent less flexmdm {percent(gains[0])} points, less latentmdm {percent(gains[1])}",
    )
