"""`anyorder train RECIPE [--field value]`: the recipe's own fields are the flags."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import Folder
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
"""


@dataclass(frozen=True)
class Flags:
    """Where to train to, and every field of the recipe."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: Folder = None
    """The model folder; unset: runs/<recipe>."""
    dry_run: bool = False
    """Only tell the sizes: parameters by module, tensors, memory."""
    json: bool = False
    """Print one JSON document."""


def main(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(HELP.format(recipes=", ".join(RECIPES)))
        if not words:
            raise UsageError("name a recipe")
        return
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
    from anyorder.apps.training import measure_sizes, train_recipe

    if flags.dry_run:
        sizes = measure_sizes(flags.recipe)
        print(json.dumps(sizes) if flags.json else sizes_as_text(sizes))
        return
    out = flags.out or Path("runs") / name.replace("/", "-")
    result = train_recipe(flags.recipe, out)
    if result.reason == "interrupted":  # there is no model yet
        raise KeyboardInterrupt
    if flags.json:
        print(json.dumps({"model": str(out), **asdict(result)}, default=str))
    else:
        print(f"{out}: {result.step} steps ({result.reason}). Sample from it:")
        what = (
            "--task stories --limit 8" if flags.recipe.data.source == "stories" else "--prompt ..."
        )
        print(f"  anyorder sample {shlex.quote(str(out))} {what}")


def sizes_as_text(sizes: dict[str, object]) -> str:
    return "\n".join(f"{name:>22}  {_readable(name, value)}" for name, value in sizes.items())


def _readable(name: str, value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{part} {_readable(part, size)}" for part, size in value.items())
    if isinstance(value, int) and name.endswith("bytes"):
        return f"{value / 2**30:,.3g} GiB" if value >= 2**30 else f"{value / 2**20:,.3g} MiB"
    return f"{value:,}" if isinstance(value, int) else str(value)
