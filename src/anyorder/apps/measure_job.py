"""What to measure of which runs: the plain description of a measuring job, quick to import."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import Count, Folder, Name
from anyorder.measure.syntax_ast import TreeOptions

MEASURES = ("order", "arness", "diversity", "similarity", "placement")
MODES = ("exact", "compat")

_ONLY_FOR = {
    "mode": ("order",),
    "seeds": ("order",),
    "extraction": ("diversity", "similarity"),
    "tree": ("diversity", "similarity"),
    "stride": ("placement",),
    "region": ("placement",),
    "any_model": ("placement",),
}
"""Settings that other measures would ignore."""

Names = Annotated[str | None, tyro.conf.arg(metavar="NAME,NAME", help_behavior_hint="")]


@dataclass(frozen=True)
class MeasureJob:
    """What to measure."""

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """Run folders; several are compared with one another."""
    reference: Folder = None
    """A run that was decoded from left to right: the others' programs are compared with its own."""
    placement: Name = None
    """The model that made the runs: asks it again where it would have put its tokens."""
    only: Names = None
    """Only these measures: order, arness, diversity, similarity, placement. Unset: all that the
    runs and the two flags above allow."""
    mode: str = "exact"
    """exact: the paper's definitions of order; compat: the choices of its published code."""
    seeds: int = 8
    """Random orders for the controls."""
    extraction: Name = None
    """Of which grading, where a run has several, by its extraction, task or name: the correct
    programs are those it passed."""
    tree: TreeOptions = field(default_factory=TreeOptions)
    """How programs become trees."""
    stride: Count = None
    """placement: every so many steps; unset: 16, or 1 for models that write segments."""
    region: str = "code"
    """placement: code, or all positions of the canvas."""
    any_model: bool = False
    """placement: also with a model that is not known to have made the runs."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("name at least one run folder")
        if self.mode not in MODES:
            raise ValueError(f"--mode {self.mode!r}: choose exact or compat")
        for name in ("seeds", "stride"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be at least 1, not {value}")
        for name, needs in (("similarity", "reference"), ("placement", "placement")):
            if name in (self.chosen() if self.only else ()) and getattr(self, needs) is None:
                raise ValueError(f"--only {name} needs --{needs}")
            if getattr(self, needs) is not None and name not in self.chosen():
                raise ValueError(f"--{needs} has no effect without {name}: add it to --only")
        defaults = {each.name: each.default for each in fields(self)} | {"tree": TreeOptions()}
        for name, measures in _ONLY_FOR.items():
            if getattr(self, name) == defaults[name] or {*measures} & {*self.chosen()}:
                continue
            raise ValueError(
                f"--{name.replace('_', '-')} has no effect here: it is for "
                f"{' and '.join(measures)}; leave it out, or have that measured too"
            )

    def chosen(self) -> tuple[str, ...]:
        """The measures to take."""
        if self.only is None:
            given = {"similarity": self.reference, "placement": self.placement}
            return tuple(name for name in MEASURES if given.get(name, True) is not None)
        names = [name.strip() for name in self.only.split(",")]
        for name in names:
            if name not in MEASURES:
                raise ValueError(f"--only {name!r}: choose from {', '.join(MEASURES)}")
        return tuple(name for name in MEASURES if name in names)
