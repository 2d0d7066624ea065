"""Programs graded per second and core: our sandboxed grader against a human-eval style harness.

    ours         bench/grade.py, one worker: every program in a child confined by the sandbox, tests
                 and answers in another process
    human-eval   for every program a manager process and a forked process that executes program and
                 tests together, with an alarm and disabled functions: no confinement, written here

Programs: trivial ones (one line, one assert), and the canonical solutions of HumanEval with their
tests if the file is there (argument, or ANYORDER_DATA), else the built-in corpus. Every program is
distinct, so neither side saves time on equal programs.

Each side runs in its own process. The sides take turns, for several rounds; the table shows
medians. CPU time is that of all processes, as the kernel adds it up (RUSAGE_CHILDREN of this
process). The start-up time is measured with a single program and subtracted. If the sides disagree
on a verdict, the benchmark stops.

    python benchmarks/grading.py                                 about two minutes
    python benchmarks/grading.py HumanEval.jsonl.gz --rounds 5
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tables import show

DOMINATES = """
Ours spends its time on a fork of a prepared, confined child for each program, and on messages
between it and the process that holds the answers; hardly any of it is the program. Forking a bare
Python process and waiting for it takes 0.6 ms of CPU time here, several times less than confining
and grading a program. The other harness starts a manager process and a second one for each program,
from a process that has numpy loaded.
"""
DATA = "benchmarks/HumanEval.jsonl.gz"


@dataclass(frozen=True)
class Cost:
    """The cost of grading some programs."""

    cpu: float
    wall: float


def trivial(count: int) -> list[dict[str, Any]]:
    """Samples of one problem: one line, one assert."""
    return [
        {
            "program": f"def f(x):\n    return x + 1  # {number}\n",
            "tests": "assert f(1) == 2\n",
            "setup": "",
            "remote": ["f"],
        }
        for number in range(count)
    ]


def canonical(count: int, data: Path | None) -> tuple[str, list[dict[str, Any]]]:
    """Solutions with their tests, each made distinct by a comment."""
    from anyorder.bench.checks import Script
    from anyorder.bench.tasks import find_task

    name = "humaneval" if data else "stories"
    task = find_task(name, {}, data=str(data) if data else None)
    programs = []
    for problem in task.problems(None):
        check = problem.checks[0]
        assert problem.solution is not None
        if isinstance(check, Script):
            tests, setup, remote = check.code, check.setup, list(check.remote)
        else:
            pairs = zip(check.inputs, check.expected or (), strict=True)
            lines = (
                f"assert {check.function}(*{given!r}) == {result!r}" for given, result in pairs
            )
            tests, setup, remote = "\n".join(lines), "", [check.function]
        text = problem.prologue + problem.solution
        programs.append({"program": text, "tests": tests, "setup": setup, "remote": remote})
    copies = -(-count // len(programs))
    distinct = [
        {**program, "program": f"{program['program']}\n# {copy}\n"}
        for program in programs
        for copy in range(copies)
    ]
    return f"{name}, canonical", distinct[:count]


# The two sides ---------------------------------------------------------------------------------


def ours(programs: list[dict[str, Any]]) -> list[bool]:
    from anyorder.bench.checks import Script
    from anyorder.bench.grade import Item, grade

    items = [
        Item(
            number, each["program"], (Script(each["tests"], each["setup"], tuple(each["remote"])),)
        )
        for number, each in enumerate(programs)
    ]
    passed = [False] * len(items)
    levels = set()
    for verdict in grade(items, workers=1):
        passed[verdict.key] = verdict.verdict == "passed"
        levels.add(verdict.level)
    print(f"level {min(levels)}", file=sys.stderr)
    return passed


def human_eval_style(programs: list[dict[str, Any]], timeout: float = 30.0) -> list[bool]:
    """The common harness: a manager process and a second process for each program."""
    import numpy  # noqa: F401  (the harness has it loaded, for its estimator)

    context = multiprocessing.get_context("fork")
    passed = []
    for each in programs:
        with context.Manager() as manager:
            result = manager.list()
            text = f"{each['program']}\n{each['tests']}\n"
            process = context.Process(target=execute, args=(text, result, timeout))
            process.start()
            process.join(timeout + 1)
            if process.is_alive():
                process.kill()
                process.join()
            passed.append(list(result) == ["passed"])
    return passed


def execute(text: str, result: Any, timeout: float) -> None:
    """In the forked process: run program and tests, with some functions taken away."""
    import builtins
    import shutil
    import tempfile

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError

    removed = [(os, name) for name in ("kill", "system", "fork", "remove", "rename", "chmod")]
    removed += [(shutil, "rmtree"), (subprocess, "Popen"), (builtins, "quit"), (builtins, "exit")]
    with tempfile.TemporaryDirectory() as folder:
        home = os.getcwd()
        kept = [(module, name, getattr(module, name, None)) for module, name in removed]
        os.chdir(folder)
        for module, name in removed:
            setattr(module, name, None)
        try:
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, timeout)
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            exec(text, {})  # noqa: S102
            verdict = "passed"
        except BaseException:  # noqa: BLE001
            verdict = "failed"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for module, name, function in kept:
                setattr(module, name, function)
            os.chdir(home)
        result.append(verdict)


SIDES: dict[str, Callable[[list[dict[str, Any]]], list[bool]]] = {
    "human-eval style": human_eval_style,
    "ours, confined": ours,
}


# Measuring -------------------------------------------------------------------------------------


def measure(side: str, programs: list[dict[str, Any]]) -> tuple[Cost, list[bool]]:
    """Run one side in its own process and measure it with all its children."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--side", side],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{side} failed:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall), json.loads(done.stdout)


def compare(title: str, programs: list[dict[str, Any]], rounds: int) -> None:
    costs: dict[str, list[Cost]] = {side: [] for side in SIDES}
    starts: dict[str, list[Cost]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            start, _ = measure(side, programs[:1])
            cost, passed = measure(side, programs)
            if not all(passed):
                sys.exit(f"{side}: {passed.count(False)} of {len(passed)} right programs failed")
            costs[side].append(cost)
            starts[side].append(start)
    count = len(programs) - 1
    rows, base = [], None
    for side in SIDES:
        pairs = list(zip(costs[side], starts[side], strict=True))
        cpu = statistics.median((cost.cpu - start.cpu) / count for cost, start in pairs)
        wall = statistics.median((cost.wall - start.wall) / count for cost, start in pairs)
        start_up = statistics.median(start.wall for start in starts[side])
        base = base or cpu
        times = (f"{1e3 * cpu:.2f}", f"{1e3 * wall:.2f}", f"{1 / cpu:.0f}", f"{base / cpu:.1f}")
        rows.append([side, *times, f"{start_up:.2f}"])
    head = ["", "CPU ms", "wall ms", "per s and core", "ratio", "start-up s"]
    show(f"{title}, {len(programs)} programs, {rounds} rounds, medians", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", nargs="?", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--programs", type=int, default=328)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        print(json.dumps(SIDES[chosen.side](json.load(sys.stdin))))
        return
    data = chosen.data
    if data is None and "ANYORDER_DATA" in os.environ:
        data = Path(os.environ["ANYORDER_DATA"]) / DATA
    from anyorder.bench.sandbox import probe

    print(f"Python {sys.version.split()[0]}, sandbox level {probe().level}; one worker")
    compare("trivial", trivial(chosen.programs), chosen.rounds)
    compare(*canonical(chosen.programs, data), chosen.rounds)


if __name__ == "__main__":
    main()
