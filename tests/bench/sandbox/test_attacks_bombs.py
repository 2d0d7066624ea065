"""Programs that want everything: time, memory, processes, threads, output. All are bounded."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

import pytest

from anyorder.bench.sandbox import Failed, Limits, Sandbox

MEMORY = 128 << 20


BOMBS: dict[str, tuple[str, set[str]]] = {
    "fork bomb": ("import os\nwhile True: os.fork()", {"blocked"}),
    "fork bomb that does not give up": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        {"timeout"},
    ),
    "survivor": (
        "import os, time\n"
        "try:\n"
        "    if not os.fork():\n"
        "        os.setsid(); time.sleep(60)\n"
        "except OSError: pass\n"
        "def f(x): return 0",
        {"wrong"},
    ),
    "thread that survives": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "def f(x): return 0",
        {"wrong"},
    ),
    "memory, at once": ("def f(x): return len(bytearray(8 << 30))", {"memory"}),
    "memory, by and by": (
        "def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 20))",
        {"memory"},
    ),
    "memory, in small pieces": (
        "def f(x):\n    a = {}\n    while True: a[len(a)] = str(len(a)) * 50",
        {"memory"},
    ),
    "memory, and no regrets": (
        "def f(x):\n"
        "    a = []\n"
        "    while True:\n"
        "        try: a.append(bytearray(1 << 20))\n"
        "        except MemoryError: pass",
        {"timeout"},
    ),
    "memory through C": (
        "import ctypes\n"
        "def f(x):\n"
        "    libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p\n"
        "    got = 0\n"
        "    while libc.malloc(ctypes.c_size_t(1 << 20)): got += 1\n"
        "    return 1000 if got > 128 else got",
        {"wrong", "memory", "error"},
    ),
    "processor": ("while True: pass", {"timeout"}),
    "processor, deaf to signals": (
        "import signal\n"
        "for n in range(1, 65):\n"
        "    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
        "while True: pass",
        {"timeout"},
    ),
    "processor, swallowing exceptions": (
        "def f(x):\n"
        "    while True:\n"
        "        try:\n"
        "            while True: pass\n"
        "        except BaseException: pass",
        {"timeout"},
    ),
    "processor, in one instruction": ("def f(x): return 3 ** (10 ** 9)", {"timeout", "memory"}),
    "processor, in a regular expression": (
        "import re\ndef f(x): return re.match('(a+)+$', 'a' * 40 + 'b')",
        {"timeout"},
    ),
    "processor, on all cores": (
        "import hashlib, threading\n"
        "data = bytes(1 << 22)\n"
        "def spin():\n    while True: hashlib.sha256(data).digest()\n"
        "for _ in range(4): threading.Thread(target=spin).start()\n"
        "spin()",
        {"timeout"},
    ),
    "recursion": ("def f(x): return f(x)", {"error"}),
    "recursion without limit": (
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return f(x)",
        {"error", "memory", "timeout"},
    ),
    "recursion in C": (
        "import sys\nsys.setrecursionlimit(10 ** 9)\n"
        "class A:\n    def __repr__(self): return repr(self)\n"
        "def f(x): return repr(A())",
        {"error", "memory"},
    ),
    "recursion in the compiler": ("x = " + "(" * 5000 + ")" * 5000, {"syntax", "error", "memory"}),
    "recursion in a value": (
        "def f(x):\n    a = ()\n    for _ in range(10 ** 6): a = (a,)\n    return a",
        {"wrong", "error"},
    ),
    "a number with millions of digits": ("def f(x): return 1 << (10 ** 8)", {"wrong"}),
    "a number that cannot be printed": ("def f(x): return str(10 ** (10 ** 5))", {"error"}),
    "a result of gigabytes": ("def f(x): return [bytes(1 << 20)] * 5000", {"memory"}),
    "a result of many parts": ("def f(x): return [[]] * (1 << 23)", {"memory"}),
    "a result that doubles": (
        "def f(x):\n    a = []\n    for _ in range(64): a = [a, a]\n    return a",
        {"memory", "timeout"},
    ),
    "an exception of megabytes": ("def f(x): raise ValueError('x' * (1 << 24))", {"error"}),
    "threads": (
        "import threading, time\n"
        "threading.stack_size(32768)\n"
        "def f(x):\n"
        "    started = 0\n"
        "    try:\n"
        "        while True:\n"
        "            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "            started += 1\n"
        "    except RuntimeError:\n"
        "        return 1000 if started > 500 else 0",
        {"wrong"},
    ),
    "descriptors": (
        "import os\n"
        "def f(x):\n"
        "    found = []\n"
        "    try:\n"
        "        while True: found += os.pipe()\n"
        "    except OSError:\n"
        "        return 1000 if len(found) > 100 else 0",
        {"wrong"},
    ),
    "output to nowhere": (
        "def f(x):\n    for _ in range(1000): print('x' * 100_000)\n    return 0",
        {"wrong"},
    ),
    "output through the descriptor": (
        "import os\n"
        "def f(x):\n"
        "    for n in range(1000): os.write(1 + n % 2, bytes(100_000))\n"
        "    return 0",
        {"wrong"},
    ),
    "a null pointer": ("import ctypes\ndef f(x): ctypes.string_at(0)", {"error"}),
    "a wild jump": (
        "import ctypes\ndef f(x): ctypes.CFUNCTYPE(None)(0x123456789abc)()",
        {"error"},
    ),
    "a bad free": (
        "import ctypes\ndef f(x): ctypes.CDLL(None).free(ctypes.c_void_p(0x1234560))",
        {"error"},
    ),
}

SLEEPERS = {
    "sleeps": "import time\ntime.sleep(60)",
    "sleeps in C": "import ctypes\nctypes.CDLL(None).sleep(60)",
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "waits for nobody": "import threading\nthreading.Event().wait()",
}


@pytest.mark.parametrize(("program", "kinds"), BOMBS.values(), ids=[*BOMBS])
def test_bombs(intact: Sandbox, verdict: Callable[..., str], program: str, kinds: set[str]) -> None:
    """`f` must not give 1000, which is what a program returns that got more than its share."""
    begun = time.monotonic()
    cpu_seconds = 0.6 if "timeout" in kinds else 5.0  # what ends otherwise must come to that
    limits = Limits(cpu_seconds=cpu_seconds, wall_seconds=30.0, memory_bytes=MEMORY)
    assert verdict(intact, program, (1,), 1000, limits) in kinds
    assert time.monotonic() - begun < 120


@pytest.mark.parametrize("program", SLEEPERS.values(), ids=[*SLEEPERS])
def test_sleepers(intact: Sandbox, verdict: Callable[..., str], program: str) -> None:
    limits = Limits(cpu_seconds=5.0, wall_seconds=0.4)
    assert verdict(intact, program, (1,), 1000, limits) == "timeout"


def test_printing_without_end(intact: Sandbox) -> None:
    limits = Limits(cpu_seconds=5.0, output_bytes=100_000)
    for program in (
        "while True: print('x' * 1000)",
        "import os\nwhile True: os.write(1, b'x' * 99)",
    ):
        with intact.start(program, limits, stdin="") as child:
            with pytest.raises(Failed, match="printed more than 100000 bytes") as failed:
                child.load()
            assert failed.value.kind == "error" and len(child.output) == 100_000


CODE = {
    # mov eax, 20 (getpid of the 32-bit table); int 0x80; ret
    "a 32-bit call": b"\xb8\x14\x00\x00\x00\xcd\x80\xc3",
    # mov eax, 0x40000027 (getpid of the x32 table); syscall; ret
    "an x32 call": b"\xb8\x27\x00\x00\x40\x0f\x05\xc3",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86_64")
@pytest.mark.parametrize("code", CODE.values(), ids=[*CODE])
def test_calls_in_another_convention_kill(
    intact: Sandbox, verdict: Callable[..., str], code: bytes
) -> None:
    program = (
        "import ctypes, mmap\n"
        f"code = {code!r}\n"
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "page.write(code)\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "def f(x): return ctypes.CFUNCTYPE(ctypes.c_int)(address)() and 1000\n"
    )
    assert verdict(intact, program, (1,), 1000) == "blocked"
