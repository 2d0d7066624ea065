"""What to change in a recipe that does not fit: the cheapest changes that make it fit.

Changes are tried in the order of what they cost: types and reductions first, then computing layers
twice, smaller micro batches, more GPUs, and at last adapters, which train another model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from anyorder.apps.dry_run import Machine, dry_run, meta_network
from anyorder.recipes import Recipe, override

GIB = 2**30
MORE = (2, 4, 8, 16, 32, 64)
RANK = 64


def refusal(recipe: Recipe, machine: Machine, found: dict[str, Any]) -> str:
    """Why a recipe cannot be trained on a machine, and what to do about it."""
    assert machine.gpu is not None
    largest = max(found["memory_per_rank"], key=found["memory_per_rank"].get)
    share = found["memory_per_rank"][largest] / GIB
    name = largest.removesuffix("_bytes").replace("_", " ")
    return (
        f"it does not fit: a rank needs {found['rank_bytes'] / GIB:.1f} GiB and one "
        f"{machine.gpu.name} has {machine.gpu.usable / GIB:.1f} to use (most of it: {name}, "
        f"{share:.1f} GiB). {_advice(recipe, machine)}"
    )


def _advice(recipe: Recipe, machine: Machine) -> str:
    net = meta_network(recipe)
    ways = [
        found
        for candidates in (_changes(recipe, machine), _adapters(recipe, machine))
        for found in [_first_that_fits(recipe, machine, candidates, net)]
        if found
    ]
    if ways:
        return f"It fits with {', or with '.join(ways)}"
    return "No GPUs of this kind are enough: choose larger ones, or a smaller network"


def _first_that_fits(
    recipe: Recipe,
    machine: Machine,
    candidates: Iterator[tuple[dict[str, Any], int]],
    net: nn.Module,
) -> str:
    """The first changes that fit, as flags; none of them changes the network."""
    for changes, gpus in candidates:
        try:
            tried = override(recipe, changes)
            fits = dry_run(tried, replace(machine, gpus=gpus, nodes=None), net)["fits"]
        except ValueError:
            continue  # these changes contradict the recipe
        if fits:
            words = [f"--gpus {gpus}"] if gpus != machine.gpus else []
            return " ".join([*words, *(_flag(name, value) for name, value in changes.items())])
    return ""


def _changes(recipe: Recipe, machine: Machine) -> Iterator[tuple[dict[str, Any], int]]:
    """What trains the same model, the cheapest first."""
    train = recipe.train
    cheap = _cheap(recipe, machine.gpus)
    smaller = _smaller(recipe)
    for gpus in (machine.gpus, *(n for n in MORE if n > machine.gpus)):
        for recompute in ({}, {} if train.recompute else {"recompute": True}):
            for accumulate in (n for n in smaller if not n % gpus):
                less = {} if accumulate == train.accumulate else {"accumulate": accumulate}
                yield cheap | recompute | less, gpus
        cheap = _cheap(recipe, 2)


def _adapters(recipe: Recipe, machine: Machine) -> Iterator[tuple[dict[str, Any], int]]:
    """Few weights learn: another model, on the same machine."""
    if recipe.train.lora or recipe.frozen:
        return
    for accumulate in (n for n in _smaller(recipe) if not n % machine.gpus):
        less = {} if accumulate == recipe.train.accumulate else {"accumulate": accumulate}
        cheap = _cheap(recipe, machine.gpus) | {"recompute": True}
        yield cheap | less | {"lora": RANK}, machine.gpus


def _cheap(recipe: Recipe, gpus: int) -> dict[str, Any]:
    """Changes that cost little time or none."""
    wanted: dict[str, Any] = {"dtype": "bfloat16"}
    if gpus > 1:
        wanted |= {"reduce": "micro", "shard": "full"}
    return {name: value for name, value in wanted.items() if getattr(recipe.train, name) != value}


def _smaller(recipe: Recipe) -> list[int]:
    """Numbers of micro batches, from the recipe's up to one for each example."""
    train = recipe.train
    return [n for n in range(train.accumulate, train.batch + 1) if not train.batch % n]


def _flag(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {value}"
