"""The fork-server: it may die, be killed or outlive its grader, and nobody is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anyorder.bench.sandbox import Broken, Limits, Sandbox, client

if sys.platform != "linux":
    pytest.skip("processes of Linux", allow_module_level=True)

SOURCE = Path(client.__file__).resolve().parents[3]
PROGRAM = "def f(x):\n    return x + 1\n"
Family = Callable[[Sandbox | int], set[int]]
LEVELS = pytest.mark.parametrize("level", [3, 2])
USE = {
    3: ["rlimits", "seccomp", "landlock", "namespaces"],
    2: ["rlimits", "seccomp", "landlock"],
}


@pytest.fixture
def own(
    request: pytest.FixtureRequest, sandboxes: Callable[[int], Sandbox]
) -> Callable[[int], Sandbox]:
    """`own(level)`: a sandbox that this test may break."""

    def make(level: int) -> Sandbox:
        sandboxes(level)  # skips where there is none
        sandbox = Sandbox(minimum_level=level, use=USE[level])
        request.addfinalizer(sandbox.close)
        return sandbox

    return make


def server_of(sandbox: Sandbox) -> int:
    """The process that forks: behind the one that waits for it, if there is one."""
    outer = sandbox._links[False]._process.pid
    inner = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
    return int(inner[0]) if "namespaces" in sandbox.applied else outer


def grown(family: Callable[[], set[int]], before: set[int], count: int) -> set[int]:
    """The processes that were not there before, once there are so many."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        made = family() - before
        if len(made) >= count:
            return made
        time.sleep(0.02)
    raise AssertionError(f"{len(made)} processes, not {count}")


def gone(pids: set[int]) -> bool:
    """Whether all have ended, soon."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not left:
            return True
        time.sleep(0.02)
    return False


@LEVELS
def test_a_server_that_dies_takes_its_children_along_and_is_replaced(
    own: Callable[[int], Sandbox], family: Family, level: int
) -> None:
    sandbox = own(level)
    idle = family(sandbox)
    running = [sandbox.start("import time\ntime.sleep(60)", Limits()) for _ in range(2)]
    children = grown(lambda: family(sandbox), idle, 2)
    os.kill(server_of(sandbox), signal.SIGKILL)
    with pytest.raises(Broken, match="no verdict"):
        running[0].load()
    with pytest.raises(Broken):
        running[1].load()
    assert gone(children)
    assert running[0].end().how == "the fork-server ended"
    with sandbox.start(PROGRAM, Limits()) as child:
        assert child.call("f", (1,)) == 2
    assert sandbox.level == level


@LEVELS
def test_a_server_that_died_unnoticed_is_replaced_at_once(
    own: Callable[[int], Sandbox], level: int
) -> None:
    sandbox = own(level)
    server = server_of(sandbox)
    os.kill(server, signal.SIGKILL)
    sandbox._links[False]._process.wait(240)
    with sandbox.start(PROGRAM, Limits()) as child:
        assert child.call("f", (1,)) == 2
    assert server_of(sandbox) != server


@LEVELS
def test_closing_leaves_no_process(
    own: Callable[[int], Sandbox], family: Family, level: int
) -> None:
    sandbox = own(level)
    for _ in range(3):
        sandbox.start("while True: pass", Limits())
    made = grown(lambda: family(sandbox), set(), 4 if level == 2 else 5)
    sandbox.close()
    assert gone(made)
    sandbox.close()


GRADER = """
import sys, time
sys.path.insert(0, {source!r})
from anyorder.bench.sandbox import Limits, Sandbox
sandbox = Sandbox(minimum_level={level}, use={use!r})
programs = ["while True: pass", "import time\\ntime.sleep(99)"]
children = [sandbox.start(program, Limits()) for program in programs]
print("ready", flush=True)
time.sleep(99)
"""


@LEVELS
def test_a_grader_that_is_killed_leaves_no_process(
    sandboxes: Callable[[int], Sandbox], family: Family, level: int
) -> None:
    sandboxes(level)
    code = GRADER.format(source=str(SOURCE), level=level, use=USE[level])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as grader:
        assert grader.stdout is not None and grader.stdout.readline() == b"ready\n"
        made = grown(lambda: family(grader.pid), {grader.pid}, 3 if level == 2 else 4)
        grader.kill()
    assert gone(made)


def stop(pid: int) -> None:
    """Stop a process; all its threads have stopped when this returns."""
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until, "it does not stop"
        time.sleep(0.005)


def test_a_server_that_does_not_answer_is_given_up(own: Callable[[int], Sandbox]) -> None:
    sandbox = own(2)
    child = sandbox.start(PROGRAM, Limits())
    assert child.call("f", (1,)) == 2
    given_up = sandbox._links[False]
    given_up._socket.settimeout(0.2)
    stop(server_of(sandbox))
    assert child.end().how == "the fork-server ended"
    with sandbox.start(PROGRAM, Limits()) as child:
        assert sandbox._links[False] is not given_up, "the short timeout is for the old one only"
        assert child.call("f", (1,)) == 2


MANY = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, {source!r})
from anyorder.bench.sandbox import Failed, Limits, Sandbox

def many(count):
    for number in range(count):
        answer = "return x + 1" if number % 3 else "raise ValueError(x)"
        with sandbox.start("def f(x):\\n    " + answer, Limits(cpu_seconds=5.0)) as child:
            try:
                assert child.call("f", (number,)) == number + 1 and number % 3
            except Failed as error:
                assert "ValueError" in str(error) and not number % 3

def children(pid):
    return [int(name) for name in Path(f"/proc/{{pid}}/task/{{pid}}/children").read_text().split()]

def family(pid):
    return [pid, *(below for child in children(pid) for below in family(child))]

def state():
    here = family(os.getpid())
    pages = sum(int(Path(f"/proc/{{pid}}/statm").read_text().split()[1]) for pid in here)
    return {{
        "descriptors": {{pid: len(os.listdir(f"/proc/{{pid}}/fd")) for pid in here}},
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
    }}

with Sandbox(minimum_level={level}, use={use!r}) as sandbox:
    many(200)
    before = state()
    many({count})
    print(json.dumps([before, state()]))
"""


def states(level: int, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A grader by itself, before and after so many programs.

    In a process of its own: what other tests left in this one, memory to give back or processes
    about to end, would be counted too.
    """
    code = MANY.format(source=str(SOURCE), level=level, use=USE[level], count=count)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    return before, after


@LEVELS
def test_programs_leave_no_process_and_no_descriptor(
    sandboxes: Callable[[int], Sandbox], level: int
) -> None:
    sandboxes(level)
    before, after = states(level, 60)
    assert after["descriptors"] == before["descriptors"]


@pytest.mark.long
@LEVELS
def test_ten_thousand_programs(sandboxes: Callable[[int], Sandbox], level: int) -> None:
    """Memory of grader and server stays flat, and so do descriptors and processes."""
    sandboxes(level)
    before, after = states(level, 10_000 if level == 3 else 1_000)
    assert after["descriptors"] == before["descriptors"]
    assert after["bytes"] < before["bytes"] + (4 << 20)
