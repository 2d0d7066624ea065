"""What to study: questions, folders and sizes. Quick to import."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import Name
from studies.plan import SEEN, Plan, Sizes

STAGES = ("models", "runs", "page")
NAMES = ("s1", "s2", "s3", "s4", "s5", "s6", "dial", "ties", "flexlatent")
LEAST = dict.fromkeys(("problems", "compared", "attempted", "counted"), SEEN + 2) | {"race": 2}
"""The smallest sizes: at least two problems must remain."""

Questions = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="[QUESTION ...]", help_behavior_hint=""),
]


@dataclass(frozen=True)
class StudyJob:
    """Which questions, where, and how much."""

    questions: Questions = ()
    """s1 to s6, dial, ties or flexlatent; none: all of them."""
    folder: Path = Path("studies/tiny")
    """Where models and records are kept."""
    page: Path = Path("docs/results.md")
    """The page; its figures go to images/results beside it."""
    traces: Path = Path("runs/study")
    """Where trainings and traces go. The page does not need them."""
    only: Name = None
    """One stage: models (train missing models, up to 42 minutes on a core each), runs (sample and
    measure missing runs of the models that are there) or page. Unset: all of them."""
    processes: int = 2
    """How many trainings or runs to do at the same time, with one thread each."""
    sizes: Annotated[Sizes, tyro.conf.arg(name="")] = field(default_factory=Sizes)
    """How much is sampled."""

    def __post_init__(self) -> None:
        for name in self.questions:
            if name not in NAMES:
                raise ValueError(f"no question {name!r}: choose from {', '.join(NAMES)}")
        if self.only is not None and self.only not in STAGES:
            raise ValueError(f"--only {self.only!r}: choose from {', '.join(STAGES)}")
        if self.processes < 1:
            raise ValueError(f"--processes must be at least 1, not {self.processes}")
        for name, value in vars(self.sizes).items():
            least = LEAST.get(name, 1)
            if value < least:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be at least {least}, not {value}"
                )

    def stages(self) -> tuple[str, ...]:
        """What is done, in order."""
        return STAGES if self.only is None else (self.only,)

    def chosen(self) -> tuple[str, ...]:
        """The questions whose runs are done."""
        return self.questions or NAMES

    @property
    def plan(self) -> Plan:
        return Plan(self.sizes)


def study_command(*words: str) -> str:
    """The command for the study with these words, in the repository: `make study ARGS="s4"`."""
    return f'make study ARGS="{" ".join(words)}"' if words else "make study"
