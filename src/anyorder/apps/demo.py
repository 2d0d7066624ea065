"""`anyorder demo`: train a tiny masked diffusion model, and watch the order in which it writes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from anyorder.apps.jobs import SampleJob
from anyorder.apps.sampling import sample_to_run
from anyorder.apps.show import film, legend, shaded
from anyorder.apps.training import train_recipe
from anyorder.recipes import find_recipe, override

POLICIES = ("confidence", "left_to_right", "random")
STEPS = 700


def demo(out: Path, *, minutes: float, quiet: bool = False) -> dict[str, Any]:
    """Train for a while, sample one held-out problem under three policies, show the traces.

    Returns where everything is.
    """
    console = Console(highlight=False, quiet=quiet)
    console.print("1. Training a tiny masked diffusion model on word problems (tiny/mdm).")
    model = out / "mdm"
    recipe = override(find_recipe("tiny/mdm"), {"steps": STEPS, "minutes": minutes})
    result = train_recipe(recipe, model)
    if result.reason == "interrupted":
        raise KeyboardInterrupt
    console.print(f"   {result.step} steps done; running this again goes on from here.\n")
    console.print(
        "2. One held-out problem, three orders. Masks are blocks; early tokens are bright.\n"
    )
    folders = {policy: out / f"{policy}-step{result.step}" for policy in POLICIES}
    for number, (policy, folder) in enumerate(folders.items()):
        job = SampleJob(model=str(model), task="stories", limit=1, out=folder)
        run = sample_to_run(job, {"policy": policy}, command="anyorder demo", progress=False)
        trace = next(run.traces())
        if number == 0:
            console.print(Text(trace.prompt.rstrip("\n"), style="bold"))
            console.print("\nAs confidence chooses:", style="bold")
            for step, canvas in film(trace):
                console.print(Text(f"--- after step {step}", style="dim"))
                console.print(canvas)
            console.print()
        else:
            console.print(Text(f"As {policy.replace('_', ' ')} writes it:", style="bold"))
            console.print(shaded(trace))
            console.print()
    console.print(legend())
    console.print(f"\nThe traces are tables: {out}/*/traces.parquet. Go on with")
    program = os.path.relpath(sys.argv[0]) if Path(sys.argv[0]).is_file() else "anyorder"
    console.print(f"  {program} sample {model} --task stories --limit 20", markup=False)
    runs = {policy: str(folder) for policy, folder in folders.items()}
    return {"model": str(model), "steps": result.step, "runs": runs}
