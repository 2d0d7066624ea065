"""How to grade a run: the plain description of a grading job, quick to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from anyorder.apps.jobs import Count, Name, Number

Ids = Annotated[str | None, tyro.conf.arg(metavar="ID,ID", help_behavior_hint="")]
Ks = Annotated[str | None, tyro.conf.arg(metavar="K,K", help_behavior_hint="")]
Mode = Annotated[
    str | None, tyro.conf.arg(metavar="MODE|any_of_4|sensitivity", help_behavior_hint="")
]

SMALLEST_MEMORY = 64


@dataclass(frozen=True)
class GradeJob:
    """What to grade with, how, and what to report."""

    task: Name = None
    """The task whose checks decide; unset: the one that was sampled."""
    data: Name = None
    """The task's file (.jsonl, .json, .gz) or hub dataset; unset: the one that was sampled, if
    the task is the same."""
    extraction: Mode = None
    """How the program is found in a text (docs/tasks.md); unset: the task's mode. any_of_4: passed
    if any of the release's four modes passes; sensitivity: all of these, side by side."""
    only: Ids = None
    """Only these problems."""
    limit: Count = None
    """Only the first problems of the task."""
    workers: Count = None
    """Grading processes; unset: one for each processor."""
    timeout: Number = None
    """Processor seconds of one check; unset: the task's published limit."""
    memory: Count = None
    """Memory of a program in MiB; unset: 1024, or what the task needs."""
    k: Ks = None
    """The ks of pass@k; unset: 1, 2, 4, ... up to the samples that there are."""
    estimator: str = "unbiased"
    """unbiased, any_of_k (the first k samples) or fixed_n (missing samples are wrong)."""
    allow_weak_isolation: bool = False
    """Grade even where programs cannot be confined, with limits on time and memory alone."""
    again: bool = False
    """Grade anew what has a verdict already."""

    def __post_init__(self) -> None:
        for name in ("limit", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be at least 1, not {value}")
        if self.timeout is not None and not 0 < self.timeout < float("inf"):
            raise ValueError(f"--timeout must be a positive number of seconds, not {self.timeout}")
        if self.memory is not None and self.memory < SMALLEST_MEMORY:
            raise ValueError(
                f"--memory must be at least {SMALLEST_MEMORY} (MiB), or Python itself does not fit"
            )
        if self.only is not None and self.limit is not None:
            raise ValueError("give --only or --limit, not both")
        self.ks()

    def ks(self) -> list[int] | None:
        """The ks to report; None: what the samples allow."""
        if self.k is None:
            return None
        words = [word.strip() for word in self.k.split(",")]
        if not all(word.isdecimal() and int(word) for word in words):
            raise ValueError(f"--k {self.k!r}: write whole numbers from 1 on, such as 1,2,4")
        return sorted({int(word) for word in words})

    def ids(self) -> list[str] | None:
        """The problems to grade; None: all."""
        return None if self.only is None else [word.strip() for word in self.only.split(",")]
