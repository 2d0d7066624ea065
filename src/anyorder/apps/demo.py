"""`anyorder demo`: the whole story on the shipped tiny models, ending with a page to open.

The demo samples every model under several orders, executes the programs, takes measures with
controls, prints a short story and writes a report. With `train` it first trains a tiny model.

`DemoPlan` turns the runs of recipes/demo.py into plain jobs; each is a command that a user can
repeat, written to commands.sh. Jobs run in a few processes of one thread each, because tiny nets
gain nothing from a second thread. Every job resumes, so an interrupted demo continues where it
stopped. The story's numbers are read from the run folders (report/runs.py), with intervals and
controls.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from anyorder.apps.jobs import GradeJob, MeasureJob, ReportJob, SampleJob, progress_bar
from anyorder.apps.report import Reported, command, report
from anyorder.apps.sample import sample_to_run
from anyorder.apps.show import frames_of, legend
from anyorder.apps.train import train_recipe
from anyorder.checks import refuse_unknown
from anyorder.files import replacing
from anyorder.measure.intervals import Interval, difference_interval, known_mean, mean_interval
from anyorder.measure.order_anchors import ANCHORS, by_anchor
from anyorder.recipes import find_recipe, override
from anyorder.recipes.demo import (
    DEMOS,
    MODELS,
    TRAILS,
    TRAINED,
    Demo,
    DemoComparison,
    DemoRun,
)
from anyorder.report.runs import Comparison, RunFacts
from anyorder.report.tables import (
    Table,
    bounds,
    interval_of,
    percent,
    percent_bounds,
    print_table,
    shown,
)
from anyorder.trace import Run

PROBLEMS = 60
SAMPLES = 4
"""Samples of each problem for random decoding: enough for pass@1 to pass@4."""
GRADING = GradeJob(workers=1)


@dataclass(frozen=True)
class Sampling:
    """Sample a run, and execute its programs."""

    job: SampleJob
    options: Mapping[str, Any]
    weight: float = 1.0
    """The rough duration, for the progress bar and the order of jobs."""

    @property
    def folder(self) -> Path:
        assert self.job.out is not None
        return self.job.out

    def commands(self) -> list[str]:
        """Commands that do the same."""
        return [
            command("sample", self.job, self.options),
            command("grade", GRADING, named=[str(self.folder)]),
        ]

    def do(self) -> None:
        """Sample and grade, or do what is left of both."""
        from anyorder.apps.grade import grade_run
        from anyorder.apps.sample import sample_to_run

        line = command("sample", self.job, self.options)
        sample_to_run(self.job, dict(self.options), command=line, progress=False)
        grade_run(self.folder, GRADING, progress=False)


@dataclass(frozen=True)
class Measuring:
    """Measure finished runs."""

    job: MeasureJob
    weight: float = 1.0

    def commands(self) -> list[str]:
        """Commands that do the same."""
        return [command("measure", self.job)]

    def do(self) -> None:
        """Take the measures; existing ones are replaced."""
        from anyorder.apps.measure import measure_runs

        measure_runs(self.job, progress=False)


@dataclass(frozen=True)
class DemoPlan:
    """All jobs of a demo in one folder."""

    out: Path
    story: Demo = TRAILS
    problems: int = PROBLEMS
    models: Mapping[str, str] = field(default_factory=dict)
    """Models to use in place of the shipped ones, by their names."""

    def samplings(self) -> list[Sampling]:
        """All runs, longest first."""
        return [self._sampling(run) for run in self.story.runs]

    def measurings(self) -> list[Measuring]:
        """The measures of the runs: comparisons with left to right, and orders."""
        return [*map(self._compared, self.story.comparisons), *map(self._order, self.story.orders)]

    def commands(self) -> list[str]:
        """Commands that do the same, in order."""
        jobs: list[Sampling | Measuring] = [*self.samplings(), *self.measurings()]
        return [line for job in jobs for line in job.commands()]

    def _sampling(self, run: DemoRun) -> Sampling:
        job = SampleJob(
            self._model(run.name),
            task=self.story.task + f":{run.variant}" * bool(run.variant),
            limit=self.problems,
            samples=SAMPLES if run.several else None,
            out=self.out / run.name,
        )
        return Sampling(job, run.options, run.weight)

    def _model(self, run: str) -> str:
        """The model of a run: what its name begins with, or the model to use in its place."""
        name = run.partition("-")[0]
        return self.models.get(name, self.story.models + name)

    def _compared(self, comparison: DemoComparison) -> Measuring:
        job = MeasureJob(
            runs=tuple(self.out / name for name in comparison.runs),
            reference=self.out / comparison.reference,
            placement=self._model(comparison.runs[0]),
            stride=comparison.stride,
        )
        return Measuring(job, weight=3)

    def _order(self, runs: tuple[str, ...]) -> Measuring:
        job = MeasureJob(runs=tuple(self.out / name for name in runs), only="order,arness")
        return Measuring(job)


ORDER, LIKENESS = "tau", "ASTD"


def print_story(console: Console, reported: Reported, story: Demo) -> None:
    """Print the story of a report's runs, and its sentences."""
    material = reported.material
    runs = list(material.gathered)
    if story.conditions:
        _print_anchors(console, runs, story)
    else:
        console.print("\nWho is right, and in which order was it written?", style="bold")
        print_table(_runs_table(runs), console, SIMPLE_HEAD)
        console.print(
            "right: programs that pass all tests in the sandbox, with a 95 % interval.\n"
            "order: Kendall's tau of place and time; 1 is left to right, 0 is random.\n",
            style="dim",
        )
    if material.comparisons:
        console.print("Does the order change the program?", style="bold")
        print_table(_likeness_table(material.comparisons), console, SIMPLE_HEAD)
        console.print(
            "likeness: of syntax trees with those the same model writes from left to right.\n",
            style="dim",
        )
    for finding in reported.findings:
        head = in_terminal(f"**{finding.topic}.** {finding.says}")
        console.print(Text("* ").append_text(head))
        for detail in finding.details:
            console.print(Padding(in_terminal(detail), (0, 0, 0, 2)), style="dim")


def _print_anchors(console: Console, runs: Sequence[RunFacts], story: Demo) -> None:
    console.print("\nWho is right, by the place that the prompt asks about?", style="bold")
    print_table(_right_table(runs), console, SIMPLE_HEAD)
    console.print(
        "right: programs that pass all tests in the sandbox, with a 95 % interval.\n"
        "start, middle, goal: the place of the chain that the prompt names. Beside it\n"
        "a line is one look-up; further away it takes several at once.\n",
        style="dim",
    )
    console.print("In which order were the lines written?", style="bold")
    print_table(_order_table(runs), console, SIMPLE_HEAD)
    console.print(
        "Kendall's tau of place and time: 1 is top to bottom, -1 is bottom to top.\n",
        style="dim",
    )
    console.print("What does free layout cost?", style="bold")
    print_table(_layout_table(runs, story), console, SIMPLE_HEAD)
    console.print(
        "Right with free layout minus right with strict layout, same problems, paired,\n"
        "with a 95 % interval.\n",
        style="dim",
    )


def _runs_table(runs: Sequence[RunFacts]) -> Table:
    rows = []
    for run in runs:
        order = run.measures.get("arness")
        if order is None or not _is_main(run):
            continue
        tau = interval_of(order["aggregate"][ORDER]["interval"])
        rate = run.rates[0].interval
        right = (percent(rate.estimate), percent_bounds(rate))
        rows.append((run.name, *right, shown(tau.estimate), bounds(tau)))
    return Table(("run", "right", "", "order", ""), tuple(rows), align="lr")


def _usual(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """The runs of the story on the usual problems of the task, no variant."""
    return [run for run in runs if ":" not in run.task and _is_main(run)]


def _right_table(runs: Sequence[RunFacts]) -> Table:
    rows = []
    for run in _usual(runs):
        rate = run.rates[0].interval
        parts = _right_by_anchor(run)
        right = [percent(known_mean(parts[anchor].values())) for anchor in ANCHORS]
        rows.append((run.name, percent(rate.estimate), percent_bounds(rate), *right))
    return Table(("run", "right", "", *ANCHORS), tuple(rows), align="lr")


def _order_table(runs: Sequence[RunFacts]) -> Table:
    """Of the lines; of the segments where a model writes these."""
    rows: list[tuple[str, ...]] = []
    for run in _usual(runs):
        units = run.measures.get("order", {}).get("anchors", {})
        cells: dict[str, Any] = next(iter(units.values()), {})
        taus = [
            interval_of(cells[each]["order"]["tau"]) if each in cells else mean_interval([])
            for each in ANCHORS
        ]
        if not all(math.isnan(each.estimate) for each in taus):
            rows.append((run.name, *(shown(tau.estimate) for tau in taus)))
            rows.append(("", *map(bounds, taus)))
    return Table(("run", *ANCHORS), tuple(rows), align="lr")


def _right_by_anchor(run: RunFacts) -> dict[str, dict[str, float]]:
    """Anchor -> the share of right samples of each of its problems; an absent anchor has none."""
    shares = {task: sum(each) / len(each) for task, each in run.correct.items()}
    found = by_anchor(shares, run.run.card.facts or {})
    return {anchor: found.get(anchor, {}) for anchor in ANCHORS}


def _layout_table(runs: Sequence[RunFacts], story: Demo) -> Table:
    by_name = {run.run.folder.name: run for run in runs}
    rows: list[tuple[str, ...]] = []
    for free, strict in story.conditions:
        if by_name[free].rates and by_name[strict].rates:
            costs = _differences(by_name[free], by_name[strict])
            rows.append((free, *(percent(each.estimate) for each in costs)))
            rows.append(("", *map(percent_bounds, costs)))
    return Table(("run", "all", *ANCHORS), tuple(rows), align="lr")


def _differences(free: RunFacts, strict: RunFacts) -> list[Interval]:
    """Over all problems, then by anchor; a problem has the same number in both conditions."""
    sides = [
        {
            anchor: {task.rpartition("/")[2]: share for task, share in part.items()}
            for anchor, part in _right_by_anchor(run).items()
        }
        for run in (free, strict)
    ]
    found = []
    for anchors in (ANCHORS, *((each,) for each in ANCHORS)):
        pairs = [
            (share, sides[1][anchor][number])
            for anchor in anchors
            for number, share in sides[0][anchor].items()
        ]
        found.append(difference_interval(*zip(*pairs, strict=True)) if pairs else mean_interval([]))
    return found


def story_place(folder: Path) -> tuple[int, bool]:
    """A sort key: by model in the order of the story; runs with temperature come last."""
    model, _, way = folder.name.partition("-")
    return MODELS.index(model), way == "drawn"


def _is_main(run: RunFacts) -> bool:
    """Whether the story has this run; several segments per step are left to the report."""
    return bool(run.rates) and run.options.get("k") in (None, 1)


def _likeness_table(found: Sequence[Comparison]) -> Table:
    rows = []
    for comparison in found:
        for row in comparison.rows:
            if row.filter == "valid" and _is_main(row.run) and LIKENESS in row.scores:
                score = row.scores[LIKENESS]
                rows.append((row.run.name, shown(score.estimate), bounds(score)))
    return Table(("run", "likeness", ""), tuple(rows), align="lr")


_MARKS = re.compile(
    r"\*\*(?P<bold>[^*]+)\*\*|\[\[(?:[^\]|]*\|)?(?P<term>[^\]]+)\]\]|`(?P<code>[^`]+)`"
)


def in_terminal(sentence: str) -> Text:
    """A sentence of the report for the terminal: terms plain, headings bold."""
    text, end = Text(), 0
    for mark in _MARKS.finditer(sentence):
        text.append(sentence[end : mark.start()])
        kind = mark.lastgroup
        assert kind is not None
        text.append(mark[kind], style="bold" if kind == "bold" else "")
        end = mark.end()
    return text.append(sentence[end:])


Job = Sampling | Measuring

PROCESSES = 2
UNITS = 10
"""Units of the progress bar for a job of weight 1."""


def do_all(
    jobs: Sequence[Job], doing: str, *, shown: bool = True, processes: int = PROCESSES
) -> None:
    """Do the jobs in any order; the first error ends the work and is raised."""
    processes = max(1, min(processes, os.cpu_count() or 1, len(jobs)))
    total = sum(_units(job) for job in jobs)
    with (
        working_pool(processes) as pool,
        progress_bar(doing, total, shown=shown) as advance,
    ):
        for units in pool.imap_unordered(_do, jobs):
            advance(units)


def working_pool(processes: int) -> Pool:
    """Processes of one thread each; leaving the block ends them, also after an interrupt.

    Ending them is safe: files get their names only when they are complete.
    """
    # Not fork: torch runs threads here, and a fork of a process with threads can deadlock.
    return get_context("spawn").Pool(processes, initializer=_begin)


def _begin() -> None:
    """Set up a process: one thread, and only the parent reacts to an interrupt."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _do(job: Job) -> int:
    job.do()
    return _units(job)


def _units(job: Job) -> int:
    return max(1, round(job.weight * UNITS))


TITLE = "In which order do language models write?"
TRAINING_STEPS = 700


def demo(
    out: Path,
    *,
    problems: int,
    task: str = TRAILS.task,
    models: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Do the demo in `out`, or what is left of it, and return its files and summary."""
    refuse_unknown("demo on", task, DEMOS)
    story = DEMOS[task]
    console = Console(highlight=False, quiet=quiet)
    begun = time.monotonic()
    plan = DemoPlan(out, story, problems, models or {})
    out.mkdir(parents=True, exist_ok=True)
    samplings = plan.samplings()
    folders = [each.folder for each in samplings]
    reporting = ReportJob(
        runs=tuple(sorted(folders, key=story_place)), out=out / "report.html", title=TITLE
    )
    _write_script(out / "commands.sh", [*plan.commands(), command("report", reporting)])
    console.print(
        f"Tiny models write programs for {problems} problems, in {len(samplings)} ways; each "
        "program is executed.\n"
        "This takes a few minutes; interrupted, it goes on where it stopped.\n"
    )
    do_all(samplings, "writing and executing", shown=not quiet)
    _show_one(console, out / story.example)
    do_all(plan.measurings(), "measuring", shown=not quiet)
    found = report(reporting, progress=not quiet)
    print_story(console, found, story)
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
    """Train `TRAINED` for a while, and show a problem that it was not trained on."""
    console = Console(highlight=False, quiet=quiet)
    console.print(f"Training a tiny masked diffusion model on word problems ({TRAINED}).")
    recipe = override(find_recipe(TRAINED), {"steps": TRAINING_STEPS, "minutes": minutes})
    model = out / "trained" / recipe.family
    result = train_recipe(recipe, model)
    if result.reason == "interrupted":
        raise KeyboardInterrupt
    console.print(f"{result.step} steps done; running this again goes on from here.\n")
    folder = out / "trained" / f"confidence-step{result.step}"
    job = SampleJob(model=str(model), task=recipe.data.source, limit=1, out=folder)
    options = {"policy": "confidence"}
    sample_to_run(job, options, command=command("sample", job, options), progress=False)
    _show_one(console, folder)
    return {"model": str(model), "steps": result.step, "run": str(folder)}


def _show_one(console: Console, folder: Path) -> None:
    """Print how the first sample of a run was written."""
    trace = next(Run.open(folder).traces())
    console.print(Text(trace.prompt.rstrip("\n"), style="bold"))
    console.print(
        "\nIn the order that the model chooses; masks are blocks, early tokens are bright:"
    )
    for step, canvas in frames_of(trace):
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
    """The name by which this program was called."""
    if not Path(sys.argv[0]).is_file():
        return "anyorder"
    near = os.path.relpath(sys.argv[0])
    return sys.argv[0] if near.startswith("..") else near
