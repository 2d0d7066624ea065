"""`anyorder demo`: the whole story on the shipped tiny models, ending with a page to open.

Samples every model under several orders, executes the programs, measures with controls, prints a
short story and writes a report. With `train` it also trains a tiny model first, live.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from anyorder.apps.commands import command
from anyorder.apps.demo_plan import Plan
from anyorder.apps.demo_story import story_place, tell
from anyorder.apps.demo_work import do_all
from anyorder.apps.jobs import SampleJob
from anyorder.apps.report_job import ReportJob
from anyorder.apps.reporting import report
from anyorder.apps.sampling import sample_to_run
from anyorder.apps.show import film, legend
from anyorder.apps.training import train_recipe
from anyorder.files import replacing
from anyorder.recipes import find_recipe, override
from anyorder.trace import Run

TITLE = "In which order do language models write?"
TRAINING_STEPS = 700


def demo(
    out: Path, *, problems: int, models: Mapping[str, str] | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Run everything in `out`, or what is left of it; returns where it is."""
    console = Console(highlight=False, quiet=quiet)
    begun = time.monotonic()
    plan = Plan(out, problems, models or {})
    out.mkdir(parents=True, exist_ok=True)
    samplings = plan.samplings()
    folders = tuple(each.folder for each in samplings)
    reporting = ReportJob(
        runs=tuple(sorted(folders, key=story_place)), out=out / "report.html", title=TITLE
    )
    _write_script(out / "commands.sh", [*plan.commands(), command("report", reporting)])
    console.print(
        f"Eight tiny models write programs for {problems} problems, in {len(samplings)} ways; each"
        " program is executed.\n"
        "This takes a few minutes; interrupted, it goes on where it stopped.\n"
    )
    do_all(samplings, "writing and executing", shown=not quiet)
    _show_one(console, out / "mdm-confidence")
    do_all(plan.measurings(), "measuring", shown=not quiet)
    found = report(reporting, progress=not quiet)
    tell(console, found)
    minutes = (time.monotonic() - begun) / 60
    console.print(f"\nEvery number by hand: {out / 'commands.sh'} ({minutes:.1f} minutes here).")
    console.print("Figures, tables and a player for every sample, in a browser:")
    page = found.page.resolve()
    console.print(f"  {page.as_uri()}", style="bold", soft_wrap=True)
    console.print(f"Try them yourself: {_program()} play", markup=False)
    return {
        "report": str(found.page),
        "commands": str(out / "commands.sh"),
        "runs": {folder.name: str(folder) for folder in folders},
        "summary": list(found.summary),
        "minutes": minutes,
    }


def train_live(out: Path, *, minutes: float, quiet: bool = False) -> dict[str, Any]:
    """Train tiny/mdm for a while, and show a problem that it was not trained on."""
    console = Console(highlight=False, quiet=quiet)
    console.print("Training a tiny masked diffusion model on word problems (tiny/mdm).")
    model = out / "trained" / "mdm"
    recipe = override(find_recipe("tiny/mdm"), {"steps": TRAINING_STEPS, "minutes": minutes})
    result = train_recipe(recipe, model)
    if result.reason == "interrupted":
        raise KeyboardInterrupt
    console.print(f"{result.step} steps done; running this again goes on from here.\n")
    folder = out / "trained" / f"confidence-step{result.step}"
    job = SampleJob(model=str(model), task="stories", limit=1, out=folder)
    options = {"policy": "confidence"}
    sample_to_run(job, options, command=command("sample", job, options), progress=False)
    _show_one(console, folder)
    return {"model": str(model), "steps": result.step, "run": str(folder)}


def _show_one(console: Console, folder: Path) -> None:
    """The first sample of a run, as it was written."""
    trace = next(Run.open(folder).traces())
    console.print(Text(trace.prompt.rstrip("\n"), style="bold"))
    console.print("\nAs confidence chooses; masks are blocks, early tokens are bright:")
    for step, canvas in film(trace):
        console.print(Text(f"--- after step {step}", style="dim"))
        console.print(canvas)
    console.print(legend())
    console.print()


def _write_script(path: Path, commands: list[str]) -> None:
    head = [
        "#!/bin/sh",
        "# What `anyorder demo` does, one command a line. To do it again by hand: run this in an",
        "# empty folder, with the folder of the program `anyorder` (.venv/bin) on the PATH.",
        "set -e",
    ]
    with replacing(path) as file:
        file.write("\n".join([*head, *commands, ""]).encode())


def _program() -> str:
    """How this program was called."""
    if not Path(sys.argv[0]).is_file():
        return "anyorder"
    near = os.path.relpath(sys.argv[0])
    return sys.argv[0] if near.startswith("..") else near
