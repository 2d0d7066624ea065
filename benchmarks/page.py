"""Runs the benchmarks and writes docs/performance.md: a section for each script.

    python benchmarks/page.py                     every script, about twenty minutes
    python benchmarks/page.py flexmdm grading     these again; the other sections stay as they are
    python benchmarks/page.py --compose           no runs: the page from what is stored

Each script runs alone in its own process, with the arguments in SCRIPTS. Its output goes to
benchmarks/results/<script>.md with its command, the machine, and how busy the machine was. The page
combines these results with the first line of each script's docstring and with its DOMINATES: what
takes the time, and how far that is from the floor. If a script fails, its old result stays, the
other scripts run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import ast
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "performance.md"

SCRIPTS = {
    "hot_paths": "",
    "flexmdm": "--timed-steps 4",
    "latentmdm": "--vocab 1024 --repeats 1",
    "decode": "",
    "block": "--repeats 2",
    "cached_decode": "--rounds 1 --problems 40 --blocks 16",
    "flexmdm_laws": "--longest 3",
    "flexmdm_stories": "--problems 60",
    "latentmdm_policies": "--problems 60",
    "latentmdm_tail": "--problems 60",
    "planner": "--problems 60",
    "correct": "flexmdm flexlatent --first 3000 --problems 24",
    "grading": "--programs 164",
    "measures": "",
    "order_metrics": "",
    "data_pipeline": "--rows 6000",
    "dry_runs": "",
    "trails_ceiling": "",
    "trails_curves": "",
    "trails_policies": "studies/trails/models/mdm-s0 --problems 60",
}
"""Every benchmark in the order of the page, with arguments that make it run in minutes."""
LIBRARIES = {"page", "tables", "walk", "latentmdm_published", "latentmdm_scripted"}
"""Files in this folder that are not benchmarks."""

BUSY = 0.1
"""If other programs use more than this share of the cores, the page says so."""
INTRODUCTION = """\
# Performance

This page has the results of all benchmarks, with the reasons for the times. `make bench`
(`benchmarks/page.py`) writes it; do not edit it here. There is one section for each script in
`benchmarks/`, with the command that made its table. If a table compares two sides, both ran in
that one command. `make bench SCRIPTS="flexmdm grading"` runs some scripts again and leaves the
others. Times are CPU time of one thread in float32 unless a table says otherwise. They are much
steadier than wall-clock time on a busy machine, but caches and memory are still shared, so ignore
small differences.
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one script."""

    name: str
    error: str | None = None
    """The end of its output; None: it succeeded."""


@dataclass(frozen=True)
class Clock:
    """Seconds since some moment: wall-clock, CPU time of all cores, CPU time of our children."""

    wall: float
    cores: float | None
    own: float

    @classmethod
    def now(cls) -> Clock:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.perf_counter(), _busy_seconds(), used.ru_utime + used.ru_stime)

    def share_of_others(self, since: Clock) -> float | None:
        """The share of all cores that other programs used; None if the kernel does not say."""
        if self.cores is None or since.cores is None:
            return None
        others = self.cores - since.cores - (self.own - since.own)
        return max(0.0, others / ((self.wall - since.wall) * (os.cpu_count() or 1)))


def _busy_seconds() -> float | None:
    """CPU seconds of everything on this machine."""
    path = Path("/proc/stat")
    if not path.exists():
        return None
    user, nice, system, _idle, _wait, irq, soft, *_ = map(
        int, path.read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def machine() -> str:
    """The kind of machine, without its name."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    model = found[1].strip() if found else platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python, torch = platform.python_version(), version("torch").partition("+")[0]
    parts = f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB; {platform.system()}"
    return f"{parts}, Python {python}, torch {torch} in one thread"


def command(name: str, arguments: str) -> str:
    return f"python benchmarks/{name}.py {arguments}".rstrip()


def run(name: str, arguments: str, folder: Path, results: Path) -> Outcome:
    """Run one script and store what it printed."""
    load, begun = os.getloadavg()[0], Clock.now()
    done = subprocess.run(
        [sys.executable, str(folder / f"{name}.py"), *arguments.split()],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"},
    )
    ended = Clock.now()
    if done.returncode:
        return Outcome(name, (done.stderr or done.stdout).strip()[-2000:])
    minutes = (ended.wall - begun.wall) / 60
    lines = [
        f"`{command(name, arguments)}`, {minutes:.1f} minutes on: {machine()}.",
        _load(load, ended.share_of_others(begun)),
        "",
        tidy(done.stdout),
    ]
    results.mkdir(exist_ok=True)
    (results / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Outcome(name)


def tidy(printed: str) -> str:
    """Remove spaces at the ends of lines, and all but one of several empty lines."""
    lines = "\n".join(line.rstrip() for line in printed.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


def _load(load: float, others: float | None) -> str:
    told = f"Load average at the start: {load:.1f}"
    if others is None:
        return f"{told}."
    told += f"; other programs used {others:.0%} of the cores meanwhile"
    return f"**The machine was busy.** {told}." if others > BUSY else f"{told}."


def words_of(path: Path) -> tuple[str, str]:
    """A script's first line and its DOMINATES, without running it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    heading = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
    for node in tree.body:
        names = [ast.unparse(each) for each in getattr(node, "targets", [])]
        if isinstance(node, ast.Assign) and names == ["DOMINATES"]:
            return heading, str(ast.literal_eval(node.value)).strip()
    raise ValueError(f"{path.name} does not say what dominates its time: give it a DOMINATES")


def compose(names: Sequence[str], folder: Path, results: Path) -> str:
    """The page; a script that has not run yet says so."""
    parts = [INTRODUCTION]
    for name in names:
        heading, dominates = words_of(folder / f"{name}.py")
        stored = results / f"{name}.md"
        found = stored.read_text(encoding="utf-8") if stored.exists() else "Not run yet.\n"
        parts.append(f"## {name}\n\n{heading}\n\n{found}\n{dominates}\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scripts", nargs="*", metavar="script", help=", ".join(SCRIPTS))
    parser.add_argument("--compose", action="store_true", help="write the page, run nothing")
    given = parser.parse_args()
    unknown = sorted(set(given.scripts) - SCRIPTS.keys())
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}: choose from {', '.join(SCRIPTS)}")
    outcomes = []
    for name in [] if given.compose else given.scripts or SCRIPTS:
        print(f"== {command(name, SCRIPTS[name])}", flush=True)
        outcomes.append(run(name, SCRIPTS[name], HERE, RESULTS))
    PAGE.write_text(compose(list(SCRIPTS), HERE, RESULTS), encoding="utf-8")
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    for outcome in failed:
        print(f"\n{outcome.name} failed, its section is the old one:\n{outcome.error}")
    print(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} scripts ran")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
