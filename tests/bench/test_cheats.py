"""Ways to pass without being right, or to fail without being wrong, that were found by trying."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from anyorder.bench.checks import Calls, Check, Console, Script
from anyorder.bench.grade import Item, grade
from anyorder.bench.judge import judge, prepare
from anyorder.bench.pool import DEPTH, SMALL_FRAME, Pool, PoolJob, frame
from anyorder.bench.sandbox import Broken, Limits, Sandbox, probe
from anyorder.bench.tasks import Problem, find_task

HUMANEVAL = "benchmarks/HumanEvalPlus-OriginFmt-v0.1.10.jsonl.gz"
HUMANEVAL_NATIVE = "benchmarks/HumanEvalPlus-v0.1.10.jsonl.gz"
MBPP = "benchmarks/MbppPlus-OriginFmt-v0.2.0.jsonl.gz"
LIMITS = Limits(cpu_seconds=5, wall_seconds=20)
ANYTHING_PASSES = {"Mbpp/737", "Mbpp/787", "Mbpp/794"}
"""Their published tests assert nothing, which is another matter."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(minimum_level=1) as opened:
        yield opened


def judged(sandbox: Sandbox, program: str, *checks: Check, prologue: str = "") -> str:
    text = prologue + textwrap.dedent(program)
    return judge(sandbox, text, prepare(sandbox, checks, LIMITS)).verdict


@pytest.fixture(scope="module")
def problem(data_file: Callable[[str], Path]) -> Callable[..., Problem]:
    @cache
    def problems(task: str, name: str) -> dict[str, Problem]:
        found = find_task(task, {}, data=data_file(name)).problems(None)
        return {each.task_id: each for each in found}

    return lambda task, name, task_id: problems(task, name)[task_id]


NOTHING = "def {f}(*given): return []"
# Says that it is a number by its shape, and holds nothing when looked into.
SHAPELESS = """
class Shapeless:
    shape = ()
    def __len__(self): return 0
    def __iter__(self): return iter(())
def {f}(*given): return Shapeless()
"""
INSIDE = SHAPELESS.replace("Shapeless()", "[Shapeless()]")
EMPTIED = "def {f}(*given):\n    given[0].clear()\n    return {answer}"


@pytest.mark.parametrize(
    ("task", "name", "task_id", "cheat", "answer"),
    [
        ("humaneval+", HUMANEVAL, "HumanEval/2", NOTHING, ""),
        ("humaneval+", HUMANEVAL, "HumanEval/4", SHAPELESS, ""),
        ("humaneval+", HUMANEVAL, "HumanEval/45", INSIDE, ""),
        ("mbpp+", MBPP, "Mbpp/14", NOTHING, ""),
        ("mbpp+", MBPP, "Mbpp/98", SHAPELESS, ""),
        ("mbpp+", MBPP, "Mbpp/88", EMPTIED, "{}"),
        ("mbpp+", MBPP, "Mbpp/255", EMPTIED, "[] if given[1] else [()]"),
        ("humaneval+", HUMANEVAL, "HumanEval/32", EMPTIED, "0.0"),
        ("humaneval+", HUMANEVAL_NATIVE, "HumanEval/32", EMPTIED, "0.0"),
    ],
)
def test_tests_are_tightened(
    sandbox: Sandbox,
    problem: Callable[..., Problem],
    task: str,
    name: str,
    task_id: str,
    cheat: str,
    answer: str,
) -> None:
    """All of these pass the tests as published."""
    found = problem(task, name, task_id)
    program = cheat.replace("{f}", str(found.entry_point)).replace("{answer}", answer)
    assert judged(sandbox, program, *found.checks, prologue=found.prologue) == "wrong"
    right = str(found.solution)
    assert judged(sandbox, right, *found.checks, prologue=found.prologue) == "passed"


@pytest.mark.parametrize("cheat", [NOTHING, SHAPELESS, INSIDE])
def test_published_tests_stay_in_compat(
    sandbox: Sandbox, problem: Callable[..., Problem], cheat: str
) -> None:
    for task, name, task_id in (
        ("humaneval+:compat", HUMANEVAL, "HumanEval/2"),
        ("mbpp+:compat", MBPP, "Mbpp/14"),
    ):
        found = problem(task, name, task_id)
        program = cheat.replace("{f}", str(found.entry_point))
        assert judged(sandbox, program, *found.checks, prologue=found.prologue) == "passed"


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "name", "count"), [("humaneval+", HUMANEVAL, 3), ("mbpp+", MBPP, 24)]
)
def test_how_many_problems_nothing_solves(
    data_file: Callable[[str], Path], task: str, name: str, count: int
) -> None:
    """The numbers in docs/tasks.md."""
    for variant, passing in (("", 0), (":compat", count)):
        problems = find_task(f"{task}{variant}", {}, data=data_file(name)).problems(None)
        items = [
            Item(p.task_id, NOTHING.replace("{f}", str(p.entry_point)), p.checks, p.prologue)
            for p in problems
            if p.task_id not in ANYTHING_PASSES
        ]
        verdicts = [each.verdict for each in grade(items, limits=LIMITS, minimum_level=1)]
        assert verdicts.count("passed") == passing


@pytest.mark.parametrize(
    "code",
    [
        "assert all(map(lambda x: f(x) == x + 1, range(5)))",
        "for got in map(f, [1, 2, 3]):\n    assert got == 5",
        "assert not any(map(lambda x: f(x) != x + 1, range(5)))",
    ],
)
def test_an_exception_that_looks_like_an_end(sandbox: Sandbox, code: str) -> None:
    check = Script(code, remote=("f",))
    assert judged(sandbox, "def f(x): raise StopIteration", check) == "error"
    caught = Script(
        "try:\n    f(1)\nexcept StopIteration:\n    pass\nelse:\n    assert False", remote=("f",)
    )
    assert judged(sandbox, "def f(x): raise StopIteration", caught) == "passed"


@pytest.mark.parametrize("value", ["list", "type", "numpy.array(7)", "{}.keys()", "..."])
def test_odd_values_are_wrong_and_harm_nobody(sandbox: Sandbox, value: str) -> None:
    check = Calls("f", ((1,),), expected=(2,))
    assert judged(sandbox, f"import numpy\ndef f(x): return {value}", check) == "wrong"


SORTS = """
    class Result:
        def __init__(self, items): self.items = items
        def __getitem__(self, place): return self.items[place]
        def __iter__(self): return iter(self.items)
    def f(items):
        items.sort()
        return Result(items)
"""
NEXT = "def f(x): return x + 1"
COUNT = """
    def f():
        n = 0
        while True:
            yield n
            n += 1
"""


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (SORTS, "assert list(f([3, 1, 2])) == [1, 2, 3]\nassert list(f([5, 4])) == [4, 5]"),
        (SORTS, "assert f([3, 1, 2])[0] == 1\nassert f([5, 4])[0] == 4"),
        (NEXT, "def g(x):\n    return f(x)\nassert f(1) == 2\nassert g(2) == 3\nassert f(3) == 4"),
        (
            NEXT,
            "from functools import partial\ng = partial(f, 5)\n"
            "assert f(1) == 2\nassert g() == 6\nassert f(3) == 4",
        ),
        (
            NEXT,
            "def g():\n    assert f(1) == 2\n    assert f(3) == 4\n    return 5\n"
            "assert f(7) == 8\nassert g() == 5\nassert f(9) == 10",
        ),
        (
            NEXT,
            "class G:\n    def h(self, x): return f(x)\ng = G()\n"
            "assert f(1) == 2\nassert g.h(2) == 3\nassert f(3) == 4",
        ),
        (COUNT, "import itertools\nassert list(itertools.islice(f(), 5)) == [0, 1, 2, 3, 4]"),
        (
            COUNT,
            "g = f()\nassert [a for _, a in zip(range(3), g)] == [0, 1, 2]\nassert next(g) == 3\n"
            "for x in g:\n    if x > 9: break\nassert next(g) == 11",
        ),
        ("x = object()\ndef f(): return x", "assert f() is f()\na, b = f(), f()\nassert a == b"),
    ],
)
def test_right_programs_pass(sandbox: Sandbox, program: str, code: str) -> None:
    assert judged(sandbox, program, Script(code, remote=("f",))) == "passed"


def test_a_long_right_output_is_read(sandbox: Sandbox) -> None:
    lines = "\n".join(map(str, range(200_000)))
    assert len(lines) > LIMITS.output_bytes
    check = Console((("", lines),))
    assert judged(sandbox, "for n in range(200_000): print(n)", check) == "passed"
    assert judged(sandbox, "while True: print(1)", check) == "error"


def test_no_job_stops_up_a_pipe() -> None:
    """What a busy worker is handed must fit into its pipe, in the bytes that it takes there."""
    pipe = 1 << 16
    pool = Pool(1, 1)
    for character in ("a", "\u00e9", "\0", "\U00010000"):
        program = character * (SMALL_FRAME - 2)
        job = PoolJob(1, program, "", "", {})
        size = len(frame({"job": 1, "program": program}))
        assert size < pipe or not pool.fits_beside(job), character
    assert pool.fits_beside(PoolJob(1, "def f(): pass", "", json.dumps([]), {}))
    assert DEPTH == 2


def test_a_sandbox_does_not_lose_its_level() -> None:
    with Sandbox(minimum_level=1) as opened:
        if opened.level < 2:
            pytest.skip("there is nothing to lose")
        opened._use = ("rlimits",)
        with pytest.raises(Broken, match="level 1 only"):
            opened._open(heavy=True)
        assert opened.level >= 2


def test_grading_with_little_address_space() -> None:
    program = """
        from anyorder.bench.checks import Calls
        from anyorder.bench.grade import Item, grade
        item = Item("a", "def f(x): return x", (Calls("f", ((1,),), expected=(1,)),))
        print([verdict.verdict for verdict in grade([item], workers=1, minimum_level=1)])
    """
    most = 3 << 30

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        timeout=240,
        check=False,
    )
    assert said.stdout.strip() == "['passed']", said.stderr


# One attack of each kind among honest programs, through the whole grader: none passes, none
# leaves a trace, and grading goes on. tests/bench/sandbox has many more of each, against the
# sandbox alone.


RIGHT = "def f(x):\n    return x * 31 + 7\n"
CHECKS: dict[str, tuple[Check, ...]] = {
    "asserts": (Script("assert f(3) == 100\nassert abs(f(4) - 131) < 1e-9", remote=("f",)),),
    "calls": (Calls("f", ((3,), (4,)), expected=(100, 131), compare="close"),),
}

ATTACKS = {
    "equal to everything": """
        class Yes:
            __eq__ = __lt__ = lambda self, other: True
            __sub__ = lambda self, other: self
            __abs__ = lambda self: 0
        def f(x): return Yes()
    """,
    "hash and order": """
        class Yes(float):
            __hash__ = lambda self: 100
            __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True
        def f(x): return Yes("nan")
    """,
    "frames": """
        import sys
        def f(x):
            frame = sys._getframe()
            while frame:
                for value in list(frame.f_locals.values()):
                    if value in (100, 131): return value
                frame = frame.f_back
    """,
    "the parent's memory": """
        import os
        def f(x): return open("/proc/%d/mem" % os.getppid(), "rb").read(9)
    """,
    "the channel": """
        import os
        for handle in range(3, 64):
            try: os.write(handle, bytes(100))
            except OSError: pass
        def f(x): return 0
    """,
    "sys.exit": """
        import sys
        def f(x): sys.exit(0)
    """,
    "os._exit": """
        import os
        os._exit(0)
    """,
    "builtins": """
        import builtins, math
        builtins.abs = lambda x: 0
        builtins.AssertionError = BaseException
        math.isclose = lambda *given: True
        def f(x): return 0
    """,
    "fork bomb": """
        import os
        def f(x):
            while True: os.fork()
    """,
    "memory bomb": """
        def f(x):
            a = ["x"]
            while True: a += a
    """,
    "endless, deaf to signals": """
        import signal
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        def f(x):
            while True: pass
    """,
    "output flood": """
        import os
        def f(x):
            while True: os.write(1, bytes(65536))
    """,
    "a file": """
        def f(x): open("FOLDER/mark", "w").write("x")
    """,
    "a secret": """
        def f(x): return int(open("FOLDER/secret").read())
    """,
    "the network": """
        import socket
        def f(x): socket.create_connection(("127.0.0.1", PORT)).send(b"x")
    """,
    "the parent": """
        import os
        def f(x): os.kill(os.getppid(), 9)
    """,
    "a survivor": """
        import os, time
        def f(x):
            if os.fork() == 0:
                os.setsid()
                time.sleep(999)
    """,
    "recursion": """
        import sys
        sys.setrecursionlimit(10**9)
        def f(x): return f(x)
    """,
    "a huge integer": """
        def f(x): return 1 << (1 << 31)
    """,
    "threads": """
        import threading
        def f(x):
            while True: threading.Thread(target=f, args=(x,)).start()
    """,
    "ctypes": """
        import ctypes
        def f(x): return ctypes.CDLL(None).system(b"touch FOLDER/mark")
    """,
    "a crash": """
        import ctypes
        def f(x): return ctypes.string_at(8)
    """,
}


@pytest.mark.parametrize("kind", ["asserts", pytest.param("calls", marks=pytest.mark.long)])
def test_no_attack_passes_and_grading_goes_on(kind: str, tmp_path: Path) -> None:
    if probe().level < 2:
        pytest.skip("programs cannot be confined here")
    (tmp_path / "secret").write_text("100")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = str(server.getsockname()[1])
        items = []
        for number, (name, program) in enumerate(ATTACKS.items()):
            text = textwrap.dedent(program).replace("FOLDER", str(tmp_path)).replace("PORT", port)
            items.append(Item(name, text, CHECKS[kind]))
            items.append(Item(number, f"{RIGHT}# {number}", CHECKS[kind]))
        limits = Limits(cpu_seconds=0.5, wall_seconds=20, memory_bytes=256 << 20)
        found = {verdict.key: verdict for verdict in grade(items, workers=2, limits=limits)}
        with pytest.raises(BlockingIOError):
            server.accept()  # nobody called
    assert len(found) == len(items)
    for key, verdict in found.items():
        assert (verdict.verdict == "passed") == isinstance(key, int), verdict
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").read_text() == "100"
