"""The judge: verdicts on honest and dishonest programs, for each kind of check."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

from anyorder.bench.checks import Calls, Check, Console, Judged, Script
from anyorder.bench.judge import CannotGrade, judge, prepare
from anyorder.bench.sandbox import Limits, Sandbox

LIMITS = Limits(cpu_seconds=0.6, wall_seconds=30)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(minimum_level=1) as opened:
        yield opened


def judged(sandbox: Sandbox, program: str, *checks: Check) -> Judged:
    return judge(sandbox, textwrap.dedent(program), prepare(sandbox, checks, LIMITS))


ASSERTS = Script("assert f(1) == 2\nassert f(2) == 3\nassert f(3) == 4", remote=("f",))
CHECK = Script(
    "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3\n\ncheck(f)",
    remote=("f",),
)
RIGHT = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize("check", [ASSERTS, CHECK], ids=["asserts", "function"])
@pytest.mark.parametrize(
    ("program", "verdict", "detail"),
    [
        (RIGHT, "passed", ""),
        ("f = (1).__add__", "passed", ""),
        ("def f(x):\n    return 2", "wrong", "(2) == 3"),
        ("def f(x):\n    return None", "wrong", "(1) == 2"),
        ("def f(x):\n    return x + 1.5", "wrong", "(1) == 2"),
        ("def f(x):\n    return 1 / 0", "error", "ZeroDivisionError"),
        ("def f(x):\n    assert x < 0, 'mine'", "error", "AssertionError: mine"),
        ("def f(x, y):\n    return x", "error", "TypeError"),
        ("def g(x):\n    return x", "error", "f"),
        ("f = 3", "error", "TypeError"),
        ("import nowhere_to_be_found\n" + RIGHT, "error", "ModuleNotFoundError"),
        ("def f(x:\n    return x", "syntax", "SyntaxError"),
        ("def f(x):\n    while True:\n        pass", "timeout", ""),
        ("while True:\n    pass", "timeout", ""),
        ("def f(x):\n    return 'x' * (1 << 40)", "memory", ""),
        ("def f(x):\n    return f(x)", "error", "RecursionError"),
        ("def f(x):\n    raise SystemExit(0)", "error", "SystemExit"),
        ("import os\nos._exit(0)", "error", ""),
        ("def f(x):\n    import os\n    os._exit(0)", "error", ""),
    ],
)
def test_verdicts(sandbox: Sandbox, check: Script, program: str, verdict: str, detail: str) -> None:
    found = judged(sandbox, program, check)
    assert found.verdict == verdict, found.detail
    assert detail in found.detail
    assert "\n" not in found.detail


def test_costs_are_told(sandbox: Sandbox) -> None:
    busy = "def f(x):\n    for _ in range(1_000_000):\n        pass\n    return x + 1"
    found = judged(sandbox, busy, ASSERTS)
    assert found.verdict == "passed"
    assert found.cpu_seconds > 0.005
    assert found.wall_seconds > 0.005


CHEATS = {
    "equal to everything": """
        class Yes:
            def __eq__(self, other): return True
            def __bool__(self): return True
            def __hash__(self): return 0
            __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __eq__
            def __sub__(self, other): return 0
        def f(x): return Yes()
    """,
    "a number that equals everything": """
        class Yes(int):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
        def f(x): return Yes(77)
    """,
    "a list that equals everything": """
        class Yes(list):
            def __eq__(self, other): return True
        def f(x): return Yes()
    """,
    "helpers of the tests replaced": """
        def set(x): return 0
        def abs(x): return 0
        def tuple(x): return 0
        def list(x): return 0
        def helper(x): return 0
        def check(candidate): pass
        def __prefetch__(*given): raise SystemExit(0)
        f = lambda x: 99
    """,
    "builtins replaced": """
        import builtins, math
        for name in ("set", "abs", "tuple", "list", "sorted"):
            setattr(builtins, name, lambda *given: 0)
        math.isclose = lambda *given, **named: True
        f = lambda x: 99
    """,
    "an end that looks fine": """
        import sys
        def f(x): sys.exit(0)
    """,
    "an assertion taken for one of the tests": """
        def f(x): raise AssertionError
    """,
}
HARD_TO_CHEAT = [
    "assert f(1) == 2",
    "assert not f(1) != 2",
    "assert abs(f(1) - 2) < 1e-6",
    "assert f(1) in [2, 3]",
    "assert 2 in [f(1)]",
    "assert set([f(1)]) == {2}",
    "assert sorted([f(1), 5]) == [2, 5]",
    "assert math.isclose(f(1), 2.0)",
    "assert f(1) > 1 and f(1) < 3",
    "assert helper(f(1)) == 4",
    "assert {2: 'two'}[f(1)] == 'two'",
    "assert str(f(1)) == '2'",
    "assert f(1) is not None and type(f(1)) is int and f(1) == 2",
    "def check(c):\n    assert c(1) == 2\n    assert c(2) == 3\ncheck(f)",
]


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
def test_no_program_passes_by_cheating(sandbox: Sandbox, cheat: str) -> None:
    for code in HARD_TO_CHEAT:
        setup = "import math\ndef helper(x):\n    return x * 2\n"
        check = Script(code, setup=setup, remote=("f",))
        assert judged(sandbox, RIGHT, check).verdict == "passed", code
        found = judged(sandbox, cheat, check)
        assert found.verdict in ("wrong", "error"), (code, found)


def test_libraries_of_the_tests_are_not_misled(sandbox: Sandbox) -> None:
    """numpy asks an object for an address to read at, and believes the answer."""
    cheat = """
        class Array:
            __array_interface__ = dict(shape=(2,), typestr="<f8", data=(8, False), version=3)
            def __array__(self, *given, **named): return [1.0, 2.0]
            def __float__(self): return 2.0
            def __index__(self): return 2
            def __len__(self): return 2
            def __getitem__(self, index): return 2.0
        def f(x): return Array()
    """
    for code in ("assert np.allclose(f(1), [1.0, 2.0])", "assert np.asarray(f(1)).dtype == float"):
        check = Script(code, setup="import numpy as np", remote=("f",))
        assert judged(sandbox, cheat, check).verdict in ("wrong", "error")


def test_tests_that_are_no_python_are_told(sandbox: Sandbox) -> None:
    with pytest.raises(CannotGrade, match="not Python"):
        prepare(sandbox, (Script("assert f(1", remote=("f",)),), LIMITS)


def test_calls_cannot_be_cheated_either(sandbox: Sandbox) -> None:
    for name in ("equal", "close", "number", "returned"):
        check = Calls("f", ((1,), (2,)), expected=(2, 3), compare=name)
        assert judged(sandbox, RIGHT, check).verdict == "passed"
        for cheat in CHEATS.values():
            assert judged(sandbox, cheat, check).verdict in ("wrong", "error")


OBJECTS = """
    import re
    class Pair:
        def __init__(self, a, b): self.a, self.b = a, b
        def total(self): return self.a + self.b
    class Bag:
        def __init__(self, items): self.items = items
        def __len__(self): return len(self.items)
        def __getitem__(self, index): return self.items[index]
    def f(pairs): return sum(pair.a for pair in pairs)
    def pairs(n): return [Pair(i, i) for i in range(n)]
    def squares(n): return (i * i for i in range(n))
    def found(text): return re.search("b", text)
    def keys(n): return dict.fromkeys(range(n)).keys()
    def bag(n): return Bag(list(range(n)))
    def adder(n): return lambda x: x + n
    def remove(values, kind): return [v for v in values if not isinstance(v, kind)]
    def sort(values): values.sort()
    def unlike(x):
        if x < 0: raise ValueError("negative")
        class Mine(KeyError): pass
        if x > 9: raise Mine("large")
        return x
    count = 0
    def counted(step):
        global count
        count += step
        return count
"""


@pytest.mark.parametrize(
    "code",
    [
        "assert f([Pair(1, 2), Pair(3, 4)]) == 4",
        "pair = Pair(1, 2)\npair.a = 7\nassert f((pair, pair)) == 14 and pair.b == 2",
        "assert Pair(1, 2).total() == 3",
        "assert [p.a for p in pairs(3)] == [0, 1, 2]",
        "assert list(squares(3)) == [0, 1, 4]\nassert tuple(squares(2)) == (0, 1)",
        "assert set(squares(4)) == {0, 1, 4, 9}",
        "assert 9 in squares(4)\nassert 8 not in squares(4)",
        "g = squares(3)\nassert next(g) == 0\nassert next(g) == 1\nassert list(g) == [4]",
        "assert found('abc')\nassert not found('xyz')\nassert found('abc').group() == 'b'",
        "assert set(keys(3)) == {0, 1, 2}\nassert sorted(keys(2)) == [0, 1]",
        "assert len(bag(3)) == 3\nassert bag(3)[1] == 1\nassert not bag(0)\nassert bag(1)",
        "assert adder(3)(4) == 7\nassert adder(1)(1) == 2",
        "assert remove((1, 'a', 2.5), int) == ['a', 2.5]\nassert remove((1, 'a'), str) == [1]",
        "x = [3, 1, 2]\nassert sort(x) is None\nassert x == [1, 2, 3]",
        "try:\n    unlike(-1)\nexcept ValueError as error:\n    assert 'negative' in str(error)\n"
        "else:\n    assert False",
        "try:\n    unlike(10)\nexcept KeyError:\n    pass\nassert unlike(5) == 5",
        "assert counted(1) == 1\nassert counted(2) == 3\nassert counted(3) == 6",
        "assert counted(step=2) == 2\nassert counted(1) == 3",
        "for i in range(50):\n    assert counted(1) == i + 1",
        "assert counted(counted(counted(1))) == 4",
        "def check(c):\n    assert c(1) == 1\n    assert c(2) == 0\n    assert c(3) == 3\n"
        "try:\n    check(unlike)\nexcept AssertionError:\n    assert unlike(7) == 7\n"
        "assert unlike(4) == 4\nassert unlike(5) == 5",
        "def check(c):\n    assert c(1) == 1\n    assert c(-2) == 0\n    assert c(3) == 3\n"
        "try:\n    check(unlike)\nexcept ValueError:\n    assert unlike(3) == 3\n"
        "assert unlike(4) == 4\nassert unlike(5) == 5",
    ],
)
def test_tests_look_into_what_a_program_returns(sandbox: Sandbox, code: str) -> None:
    names = ("f", "Pair", "pairs", "squares", "found", "keys", "bag", "adder", "remove", "sort")
    check = Script(code, remote=(*names, "unlike", "counted"))
    found = judged(sandbox, OBJECTS, check)
    assert found.verdict == "passed", found
    scope: dict[str, object] = {}
    exec(textwrap.dedent(OBJECTS), scope)
    exec(code, scope)  # the tests are right: they pass in one process too


def test_names_come_from_the_program_only_where_the_check_says_so(sandbox: Sandbox) -> None:
    program = "def f(x):\n    return helper(x)\ndef helper(x):\n    return x + 1"
    setup = "def helper(x):\n    return 100\ndef f(x):\n    '''the stub of a prompt'''"
    check = Script("assert f(1) == 2 and helper(1) == 100", setup=setup, remote=("f",))
    assert judged(sandbox, program, check).verdict == "passed"


def test_a_caught_death_still_counts(sandbox: Sandbox) -> None:
    code = "try:\n    f(1)\nexcept BaseException:\n    pass\nassert True"
    check = Script(code, remote=("f",))
    found = judged(sandbox, "def f(x):\n    import os\n    os._exit(0)", check)
    assert found.verdict == "error"
    assert judged(sandbox, "def f(x):\n    1 / 0", check).verdict == "passed"


def test_tests_that_draw_at_random_draw_the_same(sandbox: Sandbox) -> None:
    code = "import random\nassert f() == [random.random() for _ in range(3)]"
    program = (
        "import random\ndef f():\n    g = random.Random(0)\n    return [g.random() for _ in '123']"
    )
    for _ in range(2):
        assert judged(sandbox, program, Script(code, remote=("f",))).verdict == "passed"


def test_calls(sandbox: Sandbox) -> None:
    method = "class Solution:\n    def f(self, x):\n        return (x, x + 1)"
    pairs = Calls("Solution.f", ((1,), (5,)), expected=([1, 2], [5, 6]), compare="returned")
    assert judged(sandbox, method, pairs).verdict == "passed"
    found = judged(sandbox, method.replace("+ 1", "+ x"), pairs)
    assert found.verdict == "wrong"
    assert found.detail.startswith("call 2 of 2")
    limited = Calls("f", (((1, 2),),), expected=(2,), builtins=("len",))
    assert judged(sandbox, "def f(x):\n    return len(x)", limited).verdict == "passed"
    assert judged(sandbox, "def f(x):\n    return len(list(x))", limited).verdict == "error"


def test_what_a_program_does_to_its_arguments_is_not_seen_by_the_next(sandbox: Sandbox) -> None:
    check = Calls("f", (([3, 1],), ([3, 1],)), expected=([1, 3], [1, 3]))
    sorting = "def f(x):\n    x.sort()\n    return x"
    clearing = "def f(x):\n    kept = sorted(x)\n    x.clear()\n    return kept"
    for program in (sorting, clearing, sorting):
        assert judged(sandbox, program, check).verdict == "passed"
    assert check.inputs == (([3, 1],), ([3, 1],))
    reference = Calls("f", (([3, 1],),), reference=clearing)
    (ready,) = prepare(sandbox, (reference,), LIMITS)
    assert isinstance(ready.check, Calls)
    assert ready.check.inputs == (([3, 1],),)
    assert ready.check.expected == ([1, 3],)


def test_huge_results_are_told_in_few_words(sandbox: Sandbox) -> None:
    check = Calls("f", ((1,),), expected=(2,))
    for result in ("1 << 80000", "'x' * 100000", "[0] * 100000", "float('nan')", "object()"):
        found = judged(sandbox, f"def f(x):\n    return {result}", check)
        assert found.verdict == "wrong"
        assert len(found.detail) < 150


def test_references_give_the_answers(sandbox: Sandbox) -> None:
    given = Calls("f", ((1,), (2,)), reference="def f(x):\n    return x + 1", compare="equal")
    (ready,) = prepare(sandbox, (given,), LIMITS)
    assert isinstance(ready.check, Calls)
    assert ready.check.expected == (2, 3)
    assert ready.limits == LIMITS
    assert judge(sandbox, RIGHT, (ready,)).verdict == "passed"
    with pytest.raises(CannotGrade, match="ZeroDivisionError"):
        prepare(sandbox, (Calls("f", ((1,),), reference="def f(x):\n    1 / 0"),), LIMITS)


def test_a_slow_reference_gives_programs_more_time(sandbox: Sandbox) -> None:
    slow = (
        "import time\ndef f(x):\n    begun = time.process_time()\n"
        "    while time.process_time() < begun + {}:\n        pass\n    return x"
    )
    limits = Limits(cpu_seconds=0.2, wall_seconds=30)
    check = Calls("f", ((1,),), reference=slow.format(0.3))
    (ready,) = prepare(sandbox, (check,), limits)
    assert ready.limits.cpu_seconds >= 0.6
    assert ready.limits.wall_seconds >= 90
    assert judge(sandbox, slow.format(0.4), (ready,)).verdict == "passed"


def test_console(sandbox: Sandbox) -> None:
    check = Console((("1 2\n", "3\n"), ("4 5", "9.0")))
    program = "a, b = map(int, input().split())\nprint(a + b)"
    assert judged(sandbox, program, check).verdict == "passed"
    line = "print(sum(map(int, input().split())))"
    guarded = f"def main():\n    {line}\nif __name__ == '__main__':\n    main()"
    assert judged(sandbox, guarded, check).verdict == "passed"
    found = judged(sandbox, program.replace("a + b", "3"), check)
    assert (found.verdict, found.detail) == ("wrong", "case 2 of 2: printed '3\\n'")
    assert judged(sandbox, "print(input(), input(), input())", check).verdict == "error"


def test_all_checks_must_pass_and_each_has_its_own_process(sandbox: Sandbox) -> None:
    once = "calls = []\ndef f(x):\n    calls.append(x)\n    return len(calls)"
    first = Script("assert f(1) == 1", remote=("f",))
    assert judged(sandbox, once, first, first).verdict == "passed"
    second = Script("assert f(1) == 2", remote=("f",))
    assert judged(sandbox, once, first, second).verdict == "wrong"
