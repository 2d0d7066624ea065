"""The grader: a stream of programs over several processes that may die, hang or be interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

from anyorder.bench.checks import Script
from anyorder.bench.grade import Item, Verdict, grade
from anyorder.bench.sandbox import Limits

RIGHT = "def f(x):\n    return x + 1\n"
QUICK = Limits(cpu_seconds=0.6, wall_seconds=20)  # the clock is for a busy machine only
CHECKS = (Script("assert f(1) == 2\nassert f(5) == 6", remote=("f",)),)


def graded(items: list[Item], workers: int = 2) -> dict[object, Verdict]:
    found = list(grade(iter(items), workers=workers, limits=QUICK, minimum_level=1))
    assert Counter(v.key for v in found) == Counter(item.key for item in items)
    return {verdict.key: verdict for verdict in found}


def descendants(pid: int, but: Set[int] = frozenset()) -> set[int]:
    """All processes below one, zombies included; without those of `but` and what is below them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                after = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(after[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found - but:
        found |= more
    return found - {pid}


def children(pid: int) -> set[int]:
    names = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return set(map(int, names))


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Whatever ran before, a browser of another test say, may begin and end processes meanwhile."""
    before, opened = descendants(os.getpid()), len(os.listdir("/proc/self/fd"))
    yield
    assert not descendants(os.getpid(), but=before), "processes, or zombies, were left behind"
    assert len(os.listdir("/proc/self/fd")) <= opened, "descriptors were left open"


def test_every_item_gets_its_verdict() -> None:
    programs = {
        "passed": "def f(x):\n    return x + 1",
        "wrong": "def f(x):\n    return x",
        "error": "def f(x):\n    return y",
        "syntax": "def f(x) return x",
        "no_code": None,
    }
    items = [
        Item((name, number), program if program is None else f"{program}\n# {number}", CHECKS)
        for number in range(20)
        for name, program in programs.items()
    ]
    for (name, _), verdict in graded(items).items():
        assert verdict.verdict == name
        assert verdict.attempts == (0 if name == "no_code" else 1)
        assert (verdict.level is None) == (verdict.program_digest is None) == (name == "no_code")


def test_equal_programs_run_once_and_prologues_count() -> None:
    """The seconds tell: no two runs take the same, to the last bit."""
    found = graded([Item(number, RIGHT, CHECKS) for number in range(40)])
    assert len({(v.program_digest, v.wall_seconds, v.cpu_seconds) for v in found.values()}) == 1
    assert found[0].wall_seconds > 0
    comments = graded([Item(number, f"{RIGHT}# {number}", CHECKS) for number in range(5)])
    assert len({verdict.wall_seconds for verdict in comments.values()}) == 5
    needs = "def f(x):\n    return one + x"
    other = graded([Item("a", needs, CHECKS, "one = 1"), Item("b", needs, CHECKS, "one = 2\n")])
    assert (other["a"].verdict, other["b"].verdict) == ("passed", "wrong")
    assert other["a"].program_digest != other["b"].program_digest


def test_the_same_program_is_judged_by_each_problem() -> None:
    program = "def f(x):\n    return x + 1"
    other = (Script("assert f(1) == 3", remote=("f",)),)
    found = graded([Item("a", program, CHECKS), Item("b", program, other)])
    assert (found["a"].verdict, found["b"].verdict) == ("passed", "wrong")


def test_time_outs_are_run_again_alone() -> None:
    loops = "def f(x):\n    while True:\n        pass"
    items = [
        Item(number, f"def f(x):\n    return x + 1\n# {number}", CHECKS) for number in range(9)
    ]
    items.insert(3, Item("loop", loops, CHECKS))
    found = graded(items)
    assert (found["loop"].verdict, found["loop"].attempts) == ("timeout", 2)
    assert all(found[number].verdict == "passed" for number in range(9))


@pytest.mark.long
def test_what_passes_alone_has_passed(tmp_path: Path) -> None:
    """A program that was too slow beside others gets its chance."""
    slow_first = (
        "import os, time\n"
        f"mark = {str(tmp_path / 'mark')!r}\n"
        "if not os.path.exists(mark):\n"
        "    open(mark, 'w').close()\n"
        "    time.sleep(60)\n"
        "assert f(1) == 2\n"
    )
    # The tests hang the first time, so the worker is ended by its alarm, and replaced.
    limits = Limits(cpu_seconds=1, wall_seconds=5)
    item = Item("x", "def f(x):\n    return x + 1", (Script(slow_first, remote=("f",)),))
    (found,) = grade([item], workers=1, limits=limits, minimum_level=1)
    assert (found.verdict, found.attempts) == ("passed", 2)


def test_a_dead_worker_costs_its_program_only() -> None:
    dies = (Script("import os\nassert f(1) == 2\nos.kill(os.getpid(), 9)", remote=("f",)),)
    right = "def f(x):\n    return x + 1"
    items = [Item(number, f"{right}\n# {number}", CHECKS) for number in range(30)]
    items.insert(7, Item("dies", right, dies))
    items.insert(8, Item("dies too", right + "\n#", dies))
    found = graded(items)
    for name in ("dies", "dies too"):
        assert (found[name].verdict, found[name].attempts) == ("error", 2)
        assert "signal 9" in found[name].detail
    assert all(found[number].verdict == "passed" for number in range(30))


def test_a_killed_fork_server_is_replaced() -> None:
    items = [Item(number, f"{RIGHT}# {number}", CHECKS) for number in range(40)]
    found = []
    others = children(os.getpid())  # of other tests in this process
    for verdict in grade(items, workers=1, limits=QUICK, minimum_level=1):
        found.append(verdict)
        if len(found) in (5, 25):
            (worker,) = children(os.getpid()) - others
            for server in children(worker):
                os.kill(server, signal.SIGKILL)
    assert {verdict.verdict for verdict in found} == {"passed"}
    assert len({verdict.key for verdict in found}) == len(found) == 40


def test_a_problem_that_cannot_be_graded_is_told() -> None:
    from anyorder.bench.checks import Calls

    broken = (Calls("f", ((1,),), reference="def f(x):\n    1 / 0"),)
    with pytest.raises(ValueError, match="reference solution of f fails"):
        graded([Item("x", "def f(x):\n    return x", broken)])
    with pytest.raises(ValueError, match="without checks"):
        graded([Item("x", "def f(x):\n    return x", ())])


def test_a_stream_that_is_left_ends_its_processes() -> None:
    items = (Item(n, f"def f(x):\n    return x + 1\n# {n}", CHECKS) for n in range(10_000))
    stream = grade(items, workers=2, limits=QUICK, minimum_level=1)
    assert next(stream).verdict == "passed"
    stream.close()


def test_items_are_taken_as_they_are_needed() -> None:
    taken = 0

    def items() -> Iterator[Item]:
        nonlocal taken
        for taken in range(1, 1000):
            yield Item(taken, f"def f(x):\n    return x + 1\n# {taken}", CHECKS)

    stream = grade(items(), workers=2, limits=QUICK, minimum_level=1)
    for number, _ in enumerate(stream, 1):
        assert taken <= number + 8
        if number > 60:
            break
    stream.close()


# A script without a main guard: workers must not import it.
SCRIPT = """
import sys
from anyorder.bench.checks import Script
from anyorder.bench.grade import Item, grade
checks = (Script({code!r}, remote=("f",)),)
items = (Item(n, f"def f(x):\\n    return x + 1\\n# {{n}}", checks) for n in range({count}))
for verdict in grade(items, workers=2, minimum_level=1):
    print(verdict.verdict, verdict.detail, flush=True)
"""


def run_script(folder: Path, **parts: object) -> subprocess.Popen[str]:
    path = folder / "script.py"
    path.write_text(SCRIPT.format(**{"count": 3, "code": "assert f(1) == 2", **parts}))
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_plain_script_can_grade(tmp_path: Path) -> None:
    process = run_script(tmp_path, count=5)
    out, errors = process.communicate(timeout=240)
    assert (out.split(), errors) == (["passed"] * 5, "")


def test_workers_are_light(tmp_path: Path) -> None:
    code = (
        "import sys\nheavy = {'torch', 'numpy', 'pyarrow', 'transformers', 'rich', 'tyro'}\n"
        "assert not heavy & set(sys.modules), sorted(heavy & set(sys.modules))\nassert f(1) == 2"
    )
    out, errors = run_script(tmp_path, code=code).communicate(timeout=240)
    assert (out.split(), errors) == (["passed"] * 3, "")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_grader_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    process = run_script(tmp_path, count=100_000)
    assert process.stdout is not None
    for _ in range(20):
        assert process.stdout.readline() == "passed \n"
    below = descendants(process.pid)
    assert len(below) >= 2
    process.send_signal(how)
    _, errors = process.communicate(timeout=240)
    assert process.returncode != 0
    if how == signal.SIGINT:
        assert errors.strip().endswith("KeyboardInterrupt")
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in below):
        time.sleep(0.05)
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]
