"""`anyorder demo`: train a tiny masked diffusion model, and watch the order in which it writes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from anyorder.apps.jobs import SampleJob
from anyorder.apps.sampling import sample_to_run
from anyorder.apps.show import film, legend, shaded
from anyorder.apps.training import train_recipe
from anyorder.recipes import find_recipe, override

POLICIES = ("confidence", "left_to_right", "random")
STEPS = 700


def demo(out: Path, *, minutes: float) -> None:
    """Train for a while, sample one held-out problem under three policies, show the traces."""
    console = Console(highlight=False)
    console.print("1. Training a tiny masked diffusion model on word problems (tiny/mdm).")
    model = out / "mdm"
    recipe = override(find_recipe("tiny/mdm"), {"steps": STEPS, "minutes": minutes})
    result = train_recipe(recipe, model)
    console.print(f"   {result.step} steps done; running this again goes on from here.\n")
    console.print(
        "2. One held-out problem, three orders. Masks are blocks; early tokens are bright.\n"
    )
    for number, policy in enumerate(POLICIES):
        folder = out / f"{policy}-step{result.step}"
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
    console.print(f"  .venv/bin/anyorder sample {model} --task stories --limit 20", markup=False)
