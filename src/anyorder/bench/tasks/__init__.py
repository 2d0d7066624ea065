"""Tasks by name: where problems, their tests and the way to grade an answer come from.

A variant follows a colon, its parts separated by commas: `mbpp:test`, `mbpp:378,compat`,
`livecodebench:v6`. docs/tasks.md has the table. Nothing here runs or judges programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from anyorder.bench.tasks.problem import Benchmark, Problem, Task, Wish
from anyorder.bench.tasks.stories import Stories
from anyorder.checks import refuse_unknown
from anyorder.plugins import entries, load_entry

__all__ = [
    "TASKS",
    "Benchmark",
    "Problem",
    "Stories",
    "Task",
    "Wish",
    "corpus_task",
    "find_task",
    "register_task",
]

Loader = Callable[[Mapping[str, Any], Wish], Task]


def _from(module: str, function: str) -> Loader:
    """A function of a module that is imported when its task is wanted: one at a time is enough."""

    def load(trained_on: Mapping[str, Any], wish: Wish) -> Task:
        found: Loader = getattr(import_module(f"{__name__}.{module}"), function)
        return found(trained_on, wish)

    return load


TASKS: dict[str, Loader] = {
    "stories": _from("stories", "load_stories"),
    "trails": _from("trails", "load_trails"),
    "humaneval": _from("humaneval", "load_humaneval"),
    "humaneval+": _from("humaneval", "load_humaneval_plus"),
    "humaneval-infilling": _from("infilling", "load_infilling"),
    "mbpp": _from("mbpp", "load_mbpp"),
    "mbpp+": _from("mbpp", "load_mbpp_plus"),
    "livecodebench": _from("livecodebench", "load_livecodebench"),
    "gsm8k": _from("gsm8k", "load_gsm8k"),
}


CORPORA = ("stories", "trails")
"""The built-in corpora; each has a task of its name."""


def corpus_task(trained_on: Mapping[str, Any]) -> str | None:
    """The task of the built-in corpus that a model was trained on; None: of another corpus."""
    source = trained_on.get("source")
    return source if source in CORPORA else None


def register_task(name: str, load: Loader) -> None:
    """Add your own task; `load` gets the data part of the model's recipe and the wish."""
    if name in TASKS:
        raise ValueError(f"there is a task {name!r} already: choose another name")
    if not name or set(name) & set(":, "):
        raise ValueError(f"a task cannot be called {name!r}: use no colon, comma or space")
    TASKS[name] = load


def find_task(
    name: str,
    trained_on: Mapping[str, Any],
    *,
    data: Path | str | None = None,
    template: Path | str | None = None,
    variant: str | None = None,
) -> Task:
    """The task of that name; `trained_on` is the data part of the model's recipe.

    `data`: a file or a dataset of the hub, unset: the published dataset. `template`: the name of a
    published prompt or a file with one. `variant`: as after the colon of `name`.
    """
    base, colon, after = name.partition(":")
    if base not in TASKS:
        installed = entries("tasks")
        refuse_unknown("task", base, dict.fromkeys((*TASKS, *installed)))
        register_task(base, load_entry("tasks", base))
    if colon and not after:
        raise ValueError(f"{name!r} names no variant after the colon: write one, or leave it out")
    if after and variant is not None and after != variant:
        raise ValueError(f"you gave two variants, {after!r} and {variant!r}: give one")
    chosen = after or variant or ""
    wish = Wish(
        data=None if data is None else str(data),
        template=None if template is None else str(template),
        variant=tuple(chosen.split(",")) if chosen else (),
    )
    return TASKS[base](trained_on, wish)
