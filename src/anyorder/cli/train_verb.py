"""`anyorder train RECIPE [--field value]`: the recipe's own fields are the flags."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import Count, Folder, Name, Number
from anyorder.cli import UsageError
from anyorder.cli.parsing import parse
from anyorder.recipes import RECIPES, Recipe, find_recipe

HELP = """\
usage: anyorder train RECIPE [--field value ...]

Train a model by recipe. Repeating the command goes on from the last checkpoint.

recipes: {recipes}

  anyorder train tiny/mdm --out runs/mdm
  anyorder train tiny/mdm --steps 500 --lr 1e-3 --data.layout 0.5 --out runs/short
  anyorder train tiny/mdm --help        every field of that recipe, with its default
  anyorder train paper/flexmdm-dreamcoder-7b --dry-run --gpus 16 --gpu h100
"""

ONLY_DRY = ("gpus", "gpu", "nodes", "utilisation", "length")


@dataclass(frozen=True)
class Flags:
    """Where to train to, and every field of the recipe."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: Folder = None
    """The model folder; unset: runs/<recipe>."""
    dry_run: bool = False
    """Only tell what it costs: parameters by module, tensors, memory of a rank, time."""
    gpus: Count = None
    """--dry-run: how many GPUs, one rank each; unset: 1."""
    gpu: Name = None
    """--dry-run: b200, h200, h100, a100-80, a100-40, l40s, a6000 or rtx4090; what does not fit is
    refused. Unset: only what does not depend on it."""
    nodes: Count = None
    """--dry-run: on so many machines; unset: eight GPUs in each."""
    utilisation: Number = None
    """--dry-run: the share of the GPU's stated arithmetic that training reaches; unset: 0.4."""
    length: Number = None
    """--dry-run: the mean tokens of an example, for the time; unset: the longest."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(HELP.format(recipes=", ".join(RECIPES)))
        if not words:
            raise UsageError("name a recipe")
        return None
    name, *rest = words
    if name not in RECIPES:
        raise UsageError(f"no recipe {name!r}: choose one of {', '.join(RECIPES)}")
    flags = parse(
        Flags,
        f"train {name}",
        rest,
        default=Flags(find_recipe(name)),
        description=f"Train {name}. Repeating the command goes on from the last checkpoint.",
    )
    if flags.dry_run:
        return _dry_run(flags)
    unused = [each for each in ONLY_DRY if getattr(flags, each) is not None]
    if unused:
        raise UsageError(f"--{unused[0]} belongs to --dry-run: torchrun says what trains")
    from anyorder.apps.train import train_recipe

    out = flags.out or Path("runs") / name.replace("/", "-")
    result = train_recipe(flags.recipe, out)
    if result.reason == "interrupted":  # there is no model yet
        raise KeyboardInterrupt
    if os.environ.get("RANK", "0") != "0":  # the first of several processes tells
        return None
    if flags.json:
        print(json.dumps({"model": str(out), **asdict(result)}, default=str))
    else:
        print(f"{out}: {result.step} steps ({result.reason}). Sample from it:")
        what = (
            "--task stories --limit 8" if flags.recipe.data.source == "stories" else "--prompt ..."
        )
        print(f"  anyorder sample {shlex.quote(str(out))} {what}")
    return None


def _dry_run(flags: Flags) -> None:
    from anyorder.apps.dry_run import UTILISATION, Machine, as_text, dry_run, find_gpu, refusal

    machine = Machine(
        gpus=1 if flags.gpus is None else flags.gpus,
        gpu=None if flags.gpu is None else find_gpu(flags.gpu),
        nodes=flags.nodes,
        utilisation=UTILISATION if flags.utilisation is None else flags.utilisation,
        length=flags.length,
    )
    found = dry_run(flags.recipe, machine)
    print(json.dumps(found) if flags.json else as_text(found))
    if found["fits"] is False:
        raise ValueError(refusal(flags.recipe, machine, found))
