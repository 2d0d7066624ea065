"""Thousands of programs in one go: memory stays flat, nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from anyorder.bench.checks import Calls, Script
from anyorder.bench.grade import Item, grade
from anyorder.bench.sandbox import Limits

PAGE = os.sysconf("SC_PAGE_SIZE")
BODIES = {
    "passed": "return x + 1",
    "wrong": "return [x] * 1000",
    "error": "raise ValueError(x)",
    "syntax": "return return",
    "memory": "return bytearray(1 << 40)",
}
CHECKS = [
    (Script("assert f(1) == 2\nassert f(5) == 6", remote=("f",)),),
    (Calls("f", ((1,), (5,)), expected=(2, 6)),),
]


def programs(count: int) -> Iterator[Item]:
    names = list(BODIES)
    for number in range(count):
        name = names[number % len(names)]
        text = f"def f(x):\n    {BODIES[name]}\n# {number}\n"
        yield Item((name, number), text, CHECKS[number // 64 % len(CHECKS)])


def processes() -> dict[int, tuple[str, int]]:
    """All below this process: state and resident bytes; zombies have none."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                after = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            stats[int(entry.name)] = (after[0], int(after[1]), int(after[21]) * PAGE)
    ours = {os.getpid()}
    while more := {pid for pid, stat in stats.items() if stat[1] in ours} - ours:
        ours |= more
    return {pid: (stats[pid][0], stats[pid][2]) for pid in ours}


def grade_many(count: int, measured_at: int, folder: Path) -> None:
    """To be called in a process of its own, which has no other memory, processes and files."""
    before_files = set(Path(tempfile.gettempdir()).iterdir())
    before = set(processes())
    seen: Counter[str] = Counter()
    sizes = []
    for number, verdict in enumerate(grade(programs(count), workers=2, limits=Limits()), 1):
        name, _ = verdict.key
        assert verdict.verdict == name, verdict
        seen[name] += 1
        if number in (measured_at, count - 10):
            now = processes()
            states = [state for state, _ in now.values()]
            assert states.count("Z") <= 4, "a child may have just ended, but nobody waits for long"
            sizes.append((sum(size for _, size in now.values()), len(now)))
            handles = len(os.listdir("/proc/self/fd"))
            assert handles < 64
    assert sum(seen.values()) == count
    assert sizes[1][0] < sizes[0][0] + (32 << 20), f"memory grows: {sizes}"
    assert sizes[1][1] <= sizes[0][1] + 4, f"processes pile up: {sizes}"
    assert set(processes()) <= before, "processes were left behind"
    left = set(Path(tempfile.gettempdir()).iterdir()) - before_files
    assert not [path for path in left if "anyorder" in path.name]
    assert not list(folder.iterdir()), "files were left behind"


def graded_elsewhere(count: int, measured_at: int, folder: Path) -> None:
    """In a new process, whose temporary files and whose graders' are to go into this folder."""
    code = (
        "from pathlib import Path; from test_grade_many import grade_many\n"
        f"grade_many({count}, {measured_at}, Path({str(folder)!r}))"
    )
    here = str(Path(__file__).parent)
    found = {"PYTHONPATH": os.pathsep.join([*sys.path, here]), "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | found,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_some_hundred_programs_leave_nothing(tmp_path: Path) -> None:
    graded_elsewhere(250, 120, tmp_path)


@pytest.mark.long
def test_ten_thousand_programs_leave_nothing(tmp_path: Path) -> None:
    graded_elsewhere(10_000, 2_000, tmp_path)
