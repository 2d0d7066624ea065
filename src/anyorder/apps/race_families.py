"""At which settings a family races: the one table, and the `--grid` that overrides it.

A *point* is a set of decoding options whose cost differs: steps, or segments a step. Every point
is run in two ways,

    one        one attempt at temperature 0 (`Entry.one` where a family needs more words), which
               is greedy for ar, mdm and latentmdm; the others draw noise there too
    several    k attempts at the race's temperature, the same for every family

Everything else is the family's default: policy confidence (average for segments), exact mode. A
family without a row races at its defaults alone, a model with a planner head at policy planner.
Which likelihood a family has is train/likelihood.py's table, how it fills gaps race_infill.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from anyorder.families import Family

ONE, SEVERAL = "one", "several"


@dataclass(frozen=True)
class Entry:
    """How a family races unless told otherwise."""

    points: tuple[Mapping[str, Any], ...] = ({},)
    """Decoding options, one set for each point."""
    one: Mapping[str, Any] = field(default_factory=dict)
    """What a single attempt needs besides temperature 0."""
    several: Mapping[str, Any] = field(default_factory=dict)
    """What several need besides the race's temperature, so that it has an effect."""


def _over(option: str, *values: Any) -> tuple[dict[str, Any], ...]:
    return tuple({option: value} for value in values)


ENTRIES: dict[str, Entry] = {
    "ar": Entry(),
    "mdm": Entry(_over("steps", 8, 16, 32, 64)),
    "flexmdm": Entry((*_over("steps", 16, 32, 64), {"clock": "events"})),
    "latentmdm": Entry(_over("k", 1, 2, 4)),
    "flexlatent": Entry((*_over("steps", 8, 16, 32), {"clock": "events"})),
    "duo": Entry(_over("steps", 8, 16, 32)),
    "sflm": Entry(_over("steps", 8, 16, 32), several={"velocity": "exact"}),
}
"""By family. Few enough points that all shipped models race within minutes."""
PLANNED: dict[str, Any] = {"policy": "planner"}
"""The one point of a model that has a planner head, which decides its own steps."""


@dataclass(frozen=True)
class Point:
    """One setting of an entrant."""

    options: Mapping[str, Any]

    @property
    def label(self) -> str:
        """In words: `steps 16`; empty where there is nothing to set."""
        return ", ".join(f"{name} {value}" for name, value in self.options.items())

    @property
    def slug(self) -> str:
        """For a folder: `steps-16`."""
        words = "-".join(f"{name}-{value}" for name, value in self.options.items()) or "plain"
        return "".join(c if c.isalnum() or c in "-_." else "_" for c in words)


def ways(family: Family, temperature: float, samples: int) -> dict[str, dict[str, Any]]:
    """The options of both ways of running a point; `several` is absent for one sample."""
    tempered = "temperature" in family.option_names()
    entry = ENTRIES.get(family.name, Entry())
    found = {ONE: ({"temperature": 0.0} if tempered else {}) | dict(entry.one)}
    if samples > 1:
        found[SEVERAL] = ({"temperature": temperature} if tempered else {}) | dict(entry.several)
    return found


def own_options(net: Any) -> dict[str, Any]:
    """What a part that its family need not have asks for: a planner head, to be used."""
    return dict(PLANNED) if hasattr(net, "plan") else {}


def points_of(
    name: str, family: Family, grids: Mapping[str, Sequence[Point]], net: Any = None
) -> list[Point]:
    """The points of an entrant: those of its name, of its family, its head's or the table's."""
    own = own_options(net)
    # A head's own options replace the family's, which a grid for the family cannot know of.
    told = grids.get(name) or (None if own else grids.get(family.name))
    usual = (own,) if own else ENTRIES.get(family.name, Entry()).points
    return list(told or map(Point, usual))


def parse_grids(words: Sequence[str], known: Sequence[str]) -> dict[str, list[Point]]:
    """`mdm:steps=8,16;policy=random` and the like, by name; `known`: entrants and families."""
    found: dict[str, list[Point]] = {}
    for word in words:
        name, colon, settings = word.partition(":")
        if not colon or not settings:
            raise ValueError(f"--grid {word!r}: write NAME:OPTION=V,V, such as mdm:steps=8,16,32")
        if name not in known:
            raise ValueError(
                f"--grid {word!r}: nobody called {name!r} races: choose from {', '.join(known)}"
            )
        points = found.setdefault(name, [])
        for point in _points(word, settings):
            if point not in points:
                points.append(point)
    return found


def _points(word: str, settings: str) -> list[Point]:
    options: dict[str, list[Any]] = {}
    for part in settings.split(";"):
        option, equals, values = part.partition("=")
        option = option.strip().replace("-", "_")
        if not equals or not option or not all(value.strip() for value in values.split(",")):
            raise ValueError(f"--grid {word!r}: {part!r} is no OPTION=V,V such as steps=8,16,32")
        if option == "temperature":
            raise ValueError(
                f"--grid {word!r}: the temperature is the same for all: set --temperature"
            )
        if option in options:
            raise ValueError(f"--grid {word!r}: {option} is there twice: give its values at once")
        options[option] = [_value(value.strip()) for value in values.split(",")]
    return [Point(dict(zip(options, values, strict=True))) for values in product(*options.values())]


def _value(word: str) -> Any:
    """A number where it is one; else the word, True and False included."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(word, word)
