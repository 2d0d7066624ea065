"""One attack of each kind among honest programs, through the whole grader: none passes, none leaves
a trace, and grading goes on. tests/bench/sandbox has many more of each, against the sandbox alone.
"""

from __future__ import annotations

import socket
import textwrap
from pathlib import Path

import pytest

from anyorder.bench.checks import Calls, Check, Script
from anyorder.bench.grade import Item, grade
from anyorder.bench.sandbox import Limits, probe

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
