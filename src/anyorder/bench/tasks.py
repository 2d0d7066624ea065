"""Tasks by name: where prompts come from.

A task gives problems (a task id, a prompt, the entry point of the program to write) and a digest of
the data behind them for the run card. It does not run or judge programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from anyorder.data.stories import StoriesConfig, problem, stories_digest

DIALS = ("layout", "wording", "state_layout", "seed")


@dataclass(frozen=True)
class Problem:
    """One prompt of a task."""

    task_id: str
    prompt: str
    entry_point: str | None = None


class Task(Protocol):
    """A source of problems."""

    @property
    def digest(self) -> str: ...

    def problems(self, limit: int | None) -> list[Problem]: ...


@dataclass(frozen=True)
class Stories:
    """Held-out compositions of the built-in corpus, with the dials of the model's training."""

    config: StoriesConfig
    size: int = 200
    """Problems when no limit is given; the corpus itself has no end."""

    @property
    def digest(self) -> str:
        return stories_digest(self.config)

    def problems(self, limit: int | None) -> list[Problem]:
        chosen = (problem(self.config, index) for index in range(limit or self.size))
        return [Problem(f"stories/{p.index}", p.prompt, p.entry_point) for p in chosen]


def _stories(trained_on: Mapping[str, Any]) -> Task:
    dials = {}
    if trained_on.get("source") == "stories":
        dials = {name: trained_on[name] for name in DIALS if name in trained_on}
    return Stories(replace(StoriesConfig.from_fields(dials), split="heldout"))


TASKS: dict[str, Callable[[Mapping[str, Any]], Task]] = {"stories": _stories}


def find_task(name: str, trained_on: Mapping[str, Any]) -> Task:
    """The task of that name; `trained_on` is the data part of the model's recipe."""
    if name not in TASKS:
        raise ValueError(f"no task {name!r}: choose one of {', '.join(TASKS)}")
    return TASKS[name](trained_on)
