"""Programs in the sandbox: what comes back of honest ones, and how failures are told apart."""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from typing import Any

import numpy as np
import pytest

from anyorder.bench.sandbox import Child, Failed, Limits, Remote, Sandbox, WireError

LIMITS = Limits(cpu_seconds=5.0, wall_seconds=20.0)


def failure(child: Child, *request: Any) -> Failed:
    """How a call, or loading, fails."""
    attempt = partial(child.call, *request) if request else child.load
    with pytest.raises(Failed) as failed:
        attempt()
    return failed.value


def start(sandbox: Sandbox, program: str, **options: Any) -> Child:
    return sandbox.start(program, options.pop("limits", LIMITS), **options)


def test_a_call_and_many_calls(sandbox: Sandbox) -> None:
    with start(
        sandbox, "def add(a, b=1, *, c=None):\n    return a + b + c if c else a + b\n"
    ) as child:
        assert child.call("add", (2, 3)) == 5
        assert child.call("add", (2,), {"c": 10}) == 13
        assert list(child.calls("add", [(1, 2), ("a", "b"), ([1], [2])])) == [3, "ab", [1, 2]]
        assert list(child.calls("add", [])) == []
    ended = child.end()
    assert ended.how == "stopped" and 0 < ended.cpu_seconds < 5 and ended.memory_bytes > 1 << 20
    assert child.end() is ended


def test_results_of_many_calls_come_one_by_one(sandbox: Sandbox) -> None:
    program = "import time\ndef f(x):\n    if x == 2: time.sleep(60)\n    return x\n"
    with start(sandbox, program) as child:
        results = child.calls("f", [(0,), (1,), (2,)])
        assert [next(results), next(results)] == [0, 1]


def test_results_that_were_not_read_are_not_mistaken_for_others(sandbox: Sandbox) -> None:
    with start(sandbox, "def f(x): return x") as child:
        next(child.calls("f", [(0,), (1,)]))
        with pytest.raises(AssertionError, match="have not been read"):
            child.call("f", (2,))


def test_several_children_at_once(sandbox: Sandbox) -> None:
    program = "n = 0\ndef f():\n    global n\n    n += 1\n    return n\n"
    children = [start(sandbox, program) for _ in range(4)]
    assert [child.call("f") for child in children for _ in range(2)] == [1, 2] * 4
    for child in children:
        child.end()


def test_methods_of_a_fresh_instance(sandbox: Sandbox) -> None:
    program = (
        "class Solution:\n"
        "    n = 0\n"
        "    def up(self, by):\n        self.n += by\n        return self.n\n"
    )
    with start(sandbox, program) as child:
        assert list(child.calls("Solution.up", [(1,), (1,)])) == [1, 1]
        assert failure(child, "Solution.down", (1,)).exception == "AttributeError"
        assert (
            failure(child, "Nothing.up", (1,)).detail == "NameError: name 'Nothing' is not defined"
        )


def test_what_is_not_plain_stays_and_can_be_passed_back(sandbox: Sandbox) -> None:
    program = (
        "class Pair:\n"
        "    def __init__(self, a, b): self.a, self.b = a, b\n"
        "    def __eq__(self, other): return True\n"
        "def total(pairs): return sum(p.a * p.b for p in pairs)\n"
        "def same(pairs, pair): return any(p is pair for p in pairs)\n"
        "def squares(n):\n    for i in range(n): yield i * i\n"
        "def adder(n): return lambda m: n + m\n"
    )
    with start(sandbox, program) as child:
        pairs = [child.call("Pair", (2, 3)), child.call("Pair", (4, 5))]
        assert all(isinstance(pair, Remote) and pair.type_name == "Pair" for pair in pairs)
        assert pairs[0] != pairs[1] and pairs[0] == pairs[0] and pairs[0] != 6
        assert child.call("total", (pairs,)) == 26
        assert child.call("same", (pairs, pairs[1])) is True
        assert child.ask("attribute", pairs[0], "b") == 3
        generator = child.call("squares", (10,))
        assert generator != [0, 1, 4]
        assert child.ask("next", generator) == 0
        assert child.ask("items", generator, 3) == [1, 4, 9]
        assert child.call(child.call("adder", (3,)), (4,)) == 7
        assert child.names() == {
            "Pair": "type",
            **dict.fromkeys(["total", "same", "squares", "adder"], "function"),
        }
        with start(sandbox, program) as other, pytest.raises(AssertionError, match="another child"):
            other.call(pairs[0])


def test_results_of_library_types(sandbox: Sandbox) -> None:
    program = (
        "import numpy as np\n"
        "from collections import *\n"
        "from fractions import Fraction\n"
        "def f():\n"
        "    return [Counter('aab'), deque([1], 3), Fraction(1, 3), np.float64(0.5), {1: 2}.keys()]"
        "\ndef g(): return np.arange(4).reshape(2, 2)\n"
    )
    with start(sandbox, program) as child:
        counter, queue, third, half, keys = child.call("f")
        assert type(counter) is Counter and counter == Counter("aab")
        assert type(queue) is deque and queue.maxlen == 3 and third * 3 == 1
        assert type(half) is float and keys == {1}
        array = child.call("g")
        assert type(array) is np.ndarray and array.tolist() == [[0, 1], [2, 3]]


def test_arguments_are_changed_in_place(sandbox: Sandbox) -> None:
    program = (
        "def f(a, d, s, t, q, *, k):\n"
        "    a.sort(); a[0].append(9); d['new'] = a; s.discard(1); t[0].pop(); q.appendleft(0)\n"
        "    k.clear()\n"
        "def g(a): return a[0]\n"
        "def h(a): a[0] = a[1]\n"
    )
    inner: list[int] = [1]
    a: list[list[int]] = [inner, [0]]
    d: dict[str, Any] = {"old": 1}
    s, t, q, k = {1, 2}, ([1, 2], 3), deque([1]), bytearray(b"k")
    with start(sandbox, program) as child:
        assert child.call("f", (a, d, s, t, q), {"k": k}) is None
        assert a == [[0, 9], [1]] and d == {"old": 1, "new": a} and s == {2}
        assert t == ([1], 3) and q == deque([0, 1]) and k == b""
        same = [[1], "x"]
        kept = same[0]
        assert child.call("g", (same,)) == [1] and same[0] is kept
        array = np.array([1, 2])
        child.call("h", (array,))
        assert array.tolist() == [2, 2]


def test_exceptions_are_told_apart(sandbox: Sandbox) -> None:
    program = (
        "class Mine(KeyError): pass\n"
        "def f(x):\n"
        "    if x == 0: raise Mine('a\\nb')\n"
        "    if x == 1: return 1 / 0\n"
        "    if x == 2: raise PermissionError('of my own')\n"
        "    if x == 3: open('/etc/shadow', 'w')\n"
        "    return x\n"
    )
    with start(sandbox, program) as child:
        mine = failure(child, "f", (0,))
        assert (mine.kind, mine.exception) == ("error", "Mine")
        assert mine.bases == ("KeyError", "LookupError", "Exception", "BaseException")
        assert mine.detail == "Mine: 'a\\nb'"
        assert failure(child, "f", (1,)).detail == "ZeroDivisionError: division by zero"
        assert failure(child, "f", (2,)).kind == "error"
        assert failure(child, "f", (3,)).kind in ("blocked", "error")
        assert child.call("f", (4,)) == 4, "after an exception the child goes on"


LOADING = {
    "syntax": ("def f(:", "syntax", "SyntaxError"),
    "null bytes": ("a = '\0'", "syntax", None),
    "a lone surrogate": ("a = '\ud800'", "syntax", "UnicodeEncodeError"),
    "indentation": ("def f():\nreturn 1", "syntax", "IndentationError"),
    "a syntax error of its own": ("raise SyntaxError('mine')", "error", "SyntaxError"),
    "a name that is not there": ("x = y", "error", "NameError"),
    "an import that is not there": ("import nothing_like_this", "error", "ModuleNotFoundError"),
    "a failed assertion": ("assert 1 == 2", "error", "AssertionError"),
    "no memory": ("x = bytearray(1 << 40)", "memory", "MemoryError"),
    "no input": ("x = input()", "error", "EOFError"),
    "exit": ("exit(0)", "error", "SystemExit"),
}


@pytest.mark.parametrize(("program", "kind", "exception"), LOADING.values(), ids=[*LOADING])
def test_loading_fails(sandbox: Sandbox, program: str, kind: str, exception: str | None) -> None:
    with start(sandbox, program) as child:
        failed = failure(child)
        assert failed.kind == kind
        assert exception is None or failed.exception == exception


def test_a_program_that_died_stays_dead(sandbox: Sandbox) -> None:
    with start(sandbox, "import os\ndef f(): os._exit(3)\ndef g(): return 1\n") as child:
        died = failure(child, "f")
        assert died.exception is None and died.detail == "ended before it answered: exit 3"
        assert failure(child, "g") is died
        assert child.end().how == "exit 3"
    assert failure(child, "g") is died


def test_the_module_is_not_main_unless_it_is_a_console_program(sandbox: Sandbox) -> None:
    program = "seen = __name__\nif __name__ == '__main__': print('main')\ndef f(): return seen\n"
    with start(sandbox, program) as child:
        assert child.call("f") == "program" and child.output == ""
    with start(sandbox, program, stdin="") as child:
        assert child.call("f") == "__main__" and child.output == "main\n"


CONSOLE = {
    "input": ("a, b = map(int, input().split())\nprint(a + b)", "2 3\n", "5\n"),
    "lines": ("import sys\nfor line in sys.stdin: print(line.upper(), end='')", "a\nb", "A\nB"),
    "buffers": (
        "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])",
        "abc",
        "cba",
    ),
    "descriptors": (
        "import os\nos.write(1, os.read(0, os.fstat(0).st_size).swapcase())",
        "abc",
        "ABC",
    ),
    "descriptor zero": ("print(len(open(0).read().split()))", "a b c", "3\n"),
    "exit": ("print(1); exit()\nprint(2)", "", "1\n"),
    "exit with zero": ("import sys\nprint(1, end=''); sys.exit(0)", "", "1"),
    "text of all kinds": ("print(input()[::-1])", "äß漢\U0001f600\n", "\U0001f600漢ßä\n"),
    "a thread with a deep stack": (
        "import sys, threading\n"
        "sys.setrecursionlimit(10 ** 6); threading.stack_size(256 << 20)\n"
        "def depth(n): return n if n == 0 else 1 + depth(n - 1)\n"
        "def main(): print(depth(50_000))\n"
        "threading.Thread(target=main).start()",
        "",
        "50000\n",
    ),
    "a handler at the end": (
        "import atexit, io, sys\n"
        "kept = io.StringIO(); atexit.register(lambda: sys.__stdout__.write(kept.getvalue()))\n"
        "sys.stdout = kept; print('late')",
        "",
        "late\n",
    ),
    "a data class": (
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: 'int'\nprint(A(3))",
        "",
        "A(x=3)\n",
    ),
    "an event loop": (
        "import asyncio\n"
        "async def main():\n    await asyncio.sleep(0); print('done')\n"
        "asyncio.run(main())",
        "",
        "done\n",
    ),
}


@pytest.mark.parametrize(("program", "given", "printed"), CONSOLE.values(), ids=[*CONSOLE])
def test_console_programs(sandbox: Sandbox, program: str, given: str, printed: str) -> None:
    with start(sandbox, program, stdin=given) as child:
        child.load()
        assert child.output == printed


def test_console_programs_that_fail_keep_what_they_printed(sandbox: Sandbox) -> None:
    for program, detail in (
        ("print('a', flush=True); 1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys\nprint('a', flush=True); sys.exit(1)", "SystemExit: 1"),
        ("import os\nprint('a', flush=True); os._exit(0)", "ended before it answered: exit 0"),
    ):
        with start(sandbox, program, stdin="") as child:
            assert failure(child).detail == detail
            assert child.output == "a\n"


def test_a_long_input_and_a_long_output(sandbox: Sandbox) -> None:
    text = "x" * 300_000 + "\n"
    with start(sandbox, "print(input())", stdin=text) as child:
        child.load()
        assert child.output == text


def test_only_some_builtins(sandbox: Sandbox) -> None:
    program = "def f(): return len([1, 2])\ndef g(): return open('x')\ndef h():\n    import os\n"
    with start(sandbox, program, builtins=["len", "range"]) as child:
        assert child.call("f") == 2
        assert failure(child, "g").detail == "NameError: name 'open' is not defined"
        assert failure(child, "h").exception == "ImportError"
    with start(sandbox, "x = 1\ndef f(): return x", builtins=[]) as child:
        assert child.call("f") == 1


def test_the_clock_of_the_processor_decides(sandbox: Sandbox) -> None:
    limits = Limits(cpu_seconds=1.0, wall_seconds=60.0)
    with start(sandbox, "while True: pass", limits=limits) as child:
        failed = failure(child)
        assert failed.kind == "timeout" and "processor time" in failed.detail
        ended = child.end()
        assert ended.how == "cpu limit" and 0.8 < ended.cpu_seconds < 5.0
    with start(sandbox, "import time\ntime.sleep(1.5)\ndef f(): return 1", limits=limits) as child:
        assert child.call("f") == 1, "sleeping takes no processor time"
    limits = Limits(cpu_seconds=5.0, wall_seconds=0.3)
    with start(sandbox, "import time\ntime.sleep(60)", limits=limits) as child:
        failed = failure(child)
        assert failed.kind == "timeout" and failed.detail == "more than 0.3 s on the clock"
        assert child.end().how == "stopped"


def test_time_is_for_all_calls_together(sandbox: Sandbox) -> None:
    program = (
        "import time\n"
        "def f():\n"
        "    t = time.process_time()\n"
        "    while time.process_time() < t + 0.1: pass\n"
    )
    with start(sandbox, program, limits=Limits(cpu_seconds=0.45)) as child:
        with pytest.raises(Failed, match="timeout"):
            for _ in child.calls("f", [()] * 10):
                pass
        assert child.end().how == "cpu limit"


def test_messages_are_bounded_both_ways(sandbox: Sandbox) -> None:
    limits = Limits(message_bytes=10_000)
    with start(sandbox, "def f(x): return x * 100\ndef g(x): return 1\n", limits=limits) as child:
        assert child.call("g", ("x" * 1000,)) == 1
        failed = failure(child, "f", ("x" * 1000,))
        assert (failed.kind, failed.exception) == ("memory", "TooLargeError")
        with pytest.raises(WireError, match="more than 10000 bytes"):
            child.call("g", ("x" * 10_000,))
        assert child.call("g", (1,)) == 1


def test_large_values_go_through(sandbox: Sandbox) -> None:
    data = {"numbers": list(range(100_000)), "text": "x" * 1_000_000, "big": 1 << 1_000_000}
    with start(sandbox, "def f(x):\n    return x\n") as child:
        assert child.call("f", (data,)) == data


def test_runs_repeat_themselves(sandbox: Sandbox) -> None:
    """Hashes and random numbers start alike, so that a verdict does not change from run to run."""
    program = (
        "import random, numpy\n"
        "def f():\n"
        "    return [list({'a', 'b', 'c', 'd'}), random.random(), float(numpy.random.rand())]\n"
    )
    seen = []
    for _ in range(2):
        with start(sandbox, program) as child:
            seen.append(child.call("f"))
    with Sandbox(minimum_level=0) as another, start(another, program) as child:
        seen.append(child.call("f"))
    assert seen[0] == seen[1] == seen[2]


def test_what_is_beside_the_program_is_nothing_of_ours(sandbox: Sandbox) -> None:
    program = (
        "import sys, os\n"
        "def f(): return [sorted(n for n in sys.modules if 'anyorder' in n), sorted(os.environ),\n"
        "    [p for p in sys.path if 'src' in p.split('/')], os.getcwd(), os.getuid() == 0]\n"
    )
    with start(sandbox, program) as child:
        modules, environment, path, folder, root = child.call("f")
        assert modules == [] and path == [] and folder == "/" and root is False
        assert set(environment) <= {
            *("HOME", "LC_ALL", "PYTHONHASHSEED", "LD_LIBRARY_PATH"),
            *(f"{name}_NUM_THREADS" for name in ("OPENBLAS", "OMP", "MKL")),
        }


def test_bad_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="cpu_seconds must be positive"):
        Limits(cpu_seconds=0)
