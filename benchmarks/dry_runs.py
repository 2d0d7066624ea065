"""What the large recipes need on 1, 8 and 16 GPUs: the tables of docs/scale.md, in seconds.

    python benchmarks/dry_runs.py                 for an H100
    python benchmarks/dry_runs.py --gpu a100-80

Each row is `anyorder train RECIPE --dry-run --gpus N --gpu NAME` (formulas: apps/dry_run.py), with
examples of the largest length and 40 % utilisation. Nothing is trained.
"""

from __future__ import annotations

import argparse

from anyorder.apps.dry_run import GPUS, Gpu, Machine, dry_run, find_gpu, meta_network, refusal
from anyorder.recipes import RECIPES, find_recipe

DOMINATES = """
Only formulas are computed, on networks without memory; building them on the meta device takes all
the time. The floor for training is the assumed utilisation, 40 % of the GPU's rate.
"""
COUNTS = (1, 8, 16)
GIB = 2**30


def sizes(gpu: Gpu) -> str:
    """Parameters, and what a rank holds."""
    heads = [f"{count} GPUs" if count > 1 else "1 GPU" for count in COUNTS]
    lines = [
        f"| recipe | parameters | trained | {' | '.join(heads)} |",
        "|---|---|---|" + "---|" * len(COUNTS),
    ]
    for name in (each for each in RECIPES if each.startswith("paper/")):
        recipe = find_recipe(name)
        net = meta_network(recipe)
        rows = [dry_run(recipe, Machine(count, gpu), net) for count in COUNTS]
        counts = f"{rows[0]['parameters']:,} | {rows[0]['trained_parameters']:,}"
        cells = [_cell(row) for row in rows]
        lines.append(f"| `{name}` | {counts} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: dict[str, float]) -> str:
    need = f"{row['rank_bytes'] / GIB:.1f} GiB"
    return f"{need}, {row['days']:.3g} d" if row["fits"] else f"{need}: too large"


def refusals(gpu: Gpu) -> str:
    """The messages for recipes that do not fit on one GPU."""
    lines = []
    for name in (each for each in RECIPES if each.startswith("paper/")):
        recipe, machine = find_recipe(name), Machine(1, gpu)
        found = dry_run(recipe, machine)
        if not found["fits"]:
            lines.append(f"{name}: {refusal(recipe, machine, found)}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", default="h100", choices=list(GPUS))
    gpu = find_gpu(parser.parse_args().gpu)
    print(sizes(gpu))
    print()
    print("\n".join(f"- {line}" for line in refusals(gpu).splitlines()))


if __name__ == "__main__":
    main()
