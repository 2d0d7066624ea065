"""What to race: the plain description of a race, quick to import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import Count, Name
from anyorder.checks import at_least, check_seed

Models = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="MODEL [MODEL ...]", help_behavior_hint=""),
]
Grids = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME:OPTION=V,V", help_behavior_hint="")]


@dataclass(frozen=True)
class RaceJob:
    """Who races, on what, at which settings."""

    models: Models
    """Shipped models or folders written by `anyorder train`; two or more, or one by itself."""
    task: str = "stories"
    """The task whose problems are solved (docs/tasks.md)."""
    data: Name = None
    """The task's file (.jsonl, .json, .gz) or hub dataset; unset: the published dataset."""
    limit: int = 30
    """Only the first problems of the task."""
    samples: int = 4
    """Attempts for pass@k, beside the one at temperature 0; 1: that one alone."""
    temperature: float = 1.0
    """At which the attempts for pass@k are drawn, the same for all; 1 is each model's own law."""
    grid: Grids = ()
    """Other settings than the default ones: mdm:steps=8,16 or latentmdm:k=1;policy=average,random
    (semicolons multiply; a second one for the same model or family adds)."""
    unequal: bool = False
    """Race although parameters, data or training texts differ by more than 2 %; said everywhere."""
    texts: int = 50
    """Held-out texts for the likelihood; 0: no likelihood."""
    infill: int = 30
    """Held-out programs whose middle is blanked and filled; 0: none."""
    seed: int = 0
    """Names the noise of the samples and the order of each round."""
    threads: int = 1
    """Threads of the network; tiny ones gain nothing from more."""
    device: str = "cpu"
    """Where to decode: cpu, cuda or cuda:1."""
    workers: Count = None
    """Grading processes, after the timing; unset: one for each processor."""
    allow_weak_isolation: bool = False
    """Grade even where programs cannot be confined."""
    out: Path = Path("runs/race")
    """Where runs, race.json, race.md and the figure go."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("name at least one model to race")
        for name in ("limit", "samples", "threads"):
            at_least(f"--{name}", getattr(self, name))
        for name in ("texts", "infill"):
            at_least(f"--{name}", getattr(self, name), 0)
        if self.limit < 2:
            raise ValueError(f"--limit {self.limit}: give at least 2, for the intervals")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"--temperature {self.temperature}: attempts that differ need one above 0"
            )
        check_seed("--seed", self.seed)
