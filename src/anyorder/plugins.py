"""What installed packages add to anyorder: entry points, found by name and loaded when needed.

    anyorder.families    a package of the shape of families/mdm/: `config.py`, `family.py` and,
                         for `anyorder train`, `recipes.py` with `RECIPES`
    anyorder.policies    a `Score` (decode/policy.py)
    anyorder.tasks       a function that loads a task (bench/tasks/)
    anyorder.measures    a function of a run, then `anyorder.measure.NAME(run)`
    anyorder.loggers     what makes a `Logger` from settings that are strings (training/loggers.py)

docs/extend.md shows one of each. Imports nothing of ours, and never torch.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name. One process sees one state of the environment."""
    return {entry.name: entry for entry in entry_points(group=f"anyorder.{group}")}


def load_entry(group: str, name: str) -> Any:
    """The object that an installed package gives for this name."""
    entry = entries(group)[name]
    try:
        return entry.load()
    except Exception as error:
        raise _broken(group, name, error) from error


def family_part(name: str, part: str) -> Any:
    """A module of the package that adds the family of this name: `config`, `family`, `recipes`."""
    module = f"{entries('families')[name].value}.{part}"
    try:
        return import_module(module)
    except Exception as error:
        raise _broken("families", name, error) from error


def _broken(group: str, name: str, error: Exception) -> ValueError:
    entry = entries(group)[name]
    package = entry.dist.name if entry.dist is not None else entry.value
    return ValueError(
        f"the package {package} adds {name!r} to anyorder.{group} and cannot be loaded "
        f"({type(error).__name__}: {error}): repair it or uninstall it"
    )
