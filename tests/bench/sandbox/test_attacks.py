"""Programs that are wrong on purpose and try everything else: none passes, none leaves a trace.

Each runs at both levels that protect. The right answer is a number drawn by the test, which only
the grader's process holds; after each attack the host is as before, and an honest program passes.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anyorder.bench.sandbox import Limits, Sandbox

ANSWER = secrets.randbits(60)
FAILURES = {"wrong", "error", "timeout", "memory", "syntax", "blocked"}

AGREES = """
class Yes:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __getattr__(self, name): return self
    def __call__(self, *args): return self
    def __int__(self): return 1
"""

PRETENCE = {
    "equal to everything": AGREES + "def f(x): return Yes()",
    "a number equal to everything": AGREES + "class N(Yes, int): pass\ndef f(x): return N(7)",
    "text equal to everything": AGREES + "class S(Yes, str): pass\ndef f(x): return S('7')",
    "a list equal to everything": AGREES + "class L(Yes, list): pass\ndef f(x): return L([7])",
    "a dict equal to everything": AGREES + "class D(Yes, dict): pass\ndef f(x): return D()",
    "equal through its type": (
        AGREES + "class M(type):\n    def __eq__(c, o): return True\n"
        "    def __hash__(c): return hash(int)\n"
        "class C(metaclass=M): pass\ndef f(x): return C"
    ),
    "a method that says it is equal": "def f(x): return (10**9).__eq__",
    "not a number": "def f(x): return float('nan')",
    "not implemented": "def f(x): return NotImplemented",
    "an endless generator": "def f(x):\n    while True: yield x",
    "an array of everything": "import numpy\ndef f(x): return numpy.arange(10)",
    "a list in itself": "def f(x):\n    a = []; a.append(a); return a",
    "a list in itself, twice": "def f(x):\n    a = []\n    a += [a, a]\n    return [a, a]",
    "nested without end": "def f(x):\n    a = []\n    for _ in range(10**5): a = [a]\n    return a",
    "a class for a class": "class int(int): __eq__ = lambda a, b: True\ndef f(x): return int(3)",
}

ENDINGS = {
    "sys.exit while loading": "import sys\nsys.exit(0)",
    "os._exit while loading": "import os\nos._exit(0)",
    "SystemExit": "def f(x): raise SystemExit(0)",
    "sys.exit": "import sys\ndef f(x): sys.exit(0)",
    "os._exit": "import os\ndef f(x): os._exit(0)",
    "exit": "def f(x): exit()",
    "kills itself": "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGKILL)",
    "aborts": "import os\ndef f(x): os.abort()",
    "raises what is no error": "def f(x): raise KeyboardInterrupt",
    "an exception without words": (
        "class E(BaseException):\n    def __str__(self): raise self\ndef f(x): raise E"
    ),
    "closes its channel": "import os\ndef f(x):\n    os.close(3)\n    while True: pass",
    "closes its channel and sleeps": (
        "import os, time\ndef f(x):\n    os.close(3)\n    time.sleep(60)"
    ),
    "the process ends, a thread goes on": (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "def f(x): ctypes.CDLL(None).syscall(60, 0)"
    ),
}

FORGERIES = {
    "frames that say it went well": (
        "import os, sys\n"
        "send = None\n"
        "frame = sys._getframe()\n"
        "while frame and '_send' not in dir(frame.f_locals.get('self')): frame = frame.f_back\n"
        "for n in range(200): frame.f_locals['self']._send(('value', n, None))\n"
        "def f(x): return 0"
    ),
    "bytes that say nothing": "import os\nos.write(3, os.urandom(100000))\ndef f(x): return 0",
    "a length of four gigabytes": "import os\nos.write(3, b'\\xff' * 8)\ndef f(x): return 0",
    "an answer to nothing": (
        "import os, struct\n"
        "def put(b): os.write(3, struct.pack('<I', len(b)) + b)\n"
        "put(b'T'); put(b'F'); put(b'N')\ndef f(x): return 0"
    ),
    "another kind of failure": (
        "import sys\n"
        "frame = sys._getframe()\n"
        "while frame and '_send' not in dir(frame.f_locals.get('self')): frame = frame.f_back\n"
        "frame.f_locals['self']._send(('raised', 'passed', 'passed', [], 'passed'))\n"
        "def f(x): return 0"
    ),
    "an endless stream of answers": (
        "import os\ndef f(x):\n    while True: os.write(3, b'\\x01\\0\\0\\0T' * 1000)"
    ),
    "another encoder": (
        "import gc\n"
        "for thing in gc.get_objects():\n"
        "    if callable(thing) and getattr(thing, '__name__', '') in ('encode', 'decode'):\n"
        "        thing.__code__ = (lambda *a, **k: b'T').__code__\n"
        "def f(x): return 0"
    ),
    "keys that collide": "def f(x): return {n * (2**61 - 1) for n in range(1, 30000)}",
}

PATCHES = {
    "builtins": (
        "import builtins\n"
        "for name in ('len', 'isinstance', 'all', 'any', 'abs', 'sorted', 'type', 'bool'):\n"
        "    setattr(builtins, name, lambda *a, **k: True)\n"
        "builtins.AssertionError = builtins.Exception = SystemExit\ndef f(x): return 0"
    ),
    "mathematics": (
        "import math, operator, numpy\n"
        "math.isclose = operator.eq = numpy.allclose = numpy.array_equal = lambda *a, **k: True\n"
        "def f(x): return 0"
    ),
    "modules": (
        "import sys\n"
        "class Any(dict):\n    def __missing__(self, key): return self\n"
        "for name in list(sys.modules): sys.modules[name] = None\ndef f(x): return 0"
    ),
    "exceptions": (
        "import sys, threading, signal\n"
        "sys.excepthook = threading.excepthook = lambda *a: None\n"
        "sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)\ndef f(x): return 0"
    ),
}

# {answer} never stands in them: they look for it.
SPIES = {
    "all objects": (
        "import gc\n"
        "def f(x):\n"
        "    for thing in gc.get_objects():\n"
        "        if isinstance(thing, (dict, list, tuple, set)):\n"
        "            for item in (thing.values() if isinstance(thing, dict) else thing):\n"
        "                if type(item) is int and hash(str(item)) % 1000003 == {mark}:\n"
        "                    return item\n"
    ),
    "all frames": (
        "import sys\n"
        "def f(x):\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        for item in [*frame.f_locals.values(), *frame.f_globals.values()]:\n"
        "            if type(item) is int and item > 2**50: return item\n"
        "        frame = frame.f_back\n"
    ),
    "its environment": "import os\ndef f(x): return int(os.environ['ANYORDER_TEST_ANSWER'])",
    "the C library's environment": (
        "import ctypes\n"
        "def f(x):\n"
        "    get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p\n"
        "    return int(get(b'ANYORDER_TEST_ANSWER'))"
    ),
    "the main module": (
        "import __main__, sys\n"
        "def f(x):\n    return next(v for m in sys.modules.values() for v in vars(m).values()"
        " if type(v) is int and v > 2**58 and v not in (sys.maxsize,))"
    ),
    "the grader's files": "def f(x): return int(open({secret!r}).read())",
    "the grader's folder": "import os\ndef f(x): return os.listdir({folder!r})",
    "a link to the grader's file": (
        "import os\ndef f(x):\n    os.symlink({secret!r}, '/tmp/link')\n"
        "    return int(open('/tmp/link').read())"
    ),
    "the grader's memory": "def f(x): return open('/proc/{pid}/mem', 'rb').read(10)",
    "the parent's memory": (
        "import os\ndef f(x): return open(f'/proc/{{os.getppid()}}/maps').read()"
    ),
    "its own memory": "def f(x): return open('/proc/self/mem', 'rb').read(10)",
    "the grader's environment": "def f(x): return open('/proc/{pid}/environ').read()",
    "users of the host": "def f(x): return open('/etc/passwd').read()",
    "process_vm_readv": (
        "import ctypes, os\n"
        "def f(x):\n"
        "    libc = ctypes.CDLL(None, use_errno=True)\n"
        "    here = ctypes.create_string_buffer(8)\n"
        "    iov = (ctypes.c_void_p * 2)(ctypes.addressof(here), 8)\n"
        "    n = libc.process_vm_readv(os.getppid(), iov, 1, iov, 1, 0)\n"
        "    if n < 0: raise OSError(ctypes.get_errno(), 'no')\n"
        "    return here.raw"
    ),
}

HARM = {
    "write to a file": "def f(x): open({folder!r} + '/mark', 'w').write('x')",
    "overwrite a file": "def f(x): open({secret!r}, 'w').write('x')",
    "append to a file": "def f(x): open({secret!r}, 'a').write('x')",
    "make a folder": "import os\ndef f(x): os.mkdir({folder!r} + '/mark')",
    "remove a file": "import os\ndef f(x): os.remove({secret!r})",
    "rename a file": "import os\ndef f(x): os.rename({secret!r}, {folder!r} + '/mark')",
    "link a file": "import os\ndef f(x): os.link({secret!r}, {folder!r} + '/mark')",
    "change a mode": "import os\ndef f(x): os.chmod({secret!r}, 0o777)",
    "change a time": "import os\ndef f(x): os.utime({secret!r}, (0, 0))",
    "empty a file": "import os\ndef f(x): os.truncate({secret!r}, 0)",
    "empty a file by reading it": (
        "import os\ndef f(x): os.open({secret!r}, os.O_RDONLY | os.O_TRUNC)"
    ),
    "empty a file of the interpreter": (
        "import os\ndef f(x): os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)"
    ),
    "write beside the interpreter": (
        "import os\ndef f(x): open(os.path.dirname(os.__file__) + '/mark.py', 'w')"
    ),
    "shared memory": "def f(x): open('/dev/shm/mark', 'w').write('x')",
    "a relative file": "def f(x): open('mark', 'w').write('x')",
    "a temporary file": "import tempfile\ndef f(x): tempfile.NamedTemporaryFile().write(b'x')",
    "connect": "import socket\ndef f(x): socket.create_connection(('127.0.0.1', {port}))",
    "a datagram": (
        "import socket\n"
        "def f(x): socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))"
    ),
    "a local socket": (
        "import socket\ndef f(x): socket.socket(socket.AF_UNIX).connect({folder!r} + '/socket')"
    ),
    "datagrams from a pair": (
        "import socket\n"
        "def f(x):\n"
        "    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "    a.sendto(b'x', {folder!r} + '/socket')"
    ),
    "listen": "import socket\ndef f(x): socket.create_server(('', 0))",
    "fork": "import os\ndef f(x): return os.fork()",
    "run a command": "import os\ndef f(x): return os.system('touch {folder}/mark')",
    "start a program": (
        "import subprocess\ndef f(x): return subprocess.run(['touch', {folder!r} + '/mark'])"
    ),
    "become a program": (
        "import os\ndef f(x): os.execv('/bin/touch', ['touch', {folder!r} + '/mark'])"
    ),
    "kill the parent": "import os\ndef f(x): os.kill(os.getppid(), 9)",
    "kill the grader": "import os\ndef f(x): os.kill({pid}, 9)",
    "kill everybody": "import os\ndef f(x): os.kill(-1, 9)",
    "kill a group": "import os\ndef f(x): os.killpg(os.getpgid(os.getppid()), 9)",
    "kill through a descriptor": (
        "import os, signal\ndef f(x): signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)"
    ),
    "kill through C": (
        "import ctypes, os\n"
        "def f(x):\n"
        "    libc = ctypes.CDLL(None, use_errno=True)\n"
        "    for call in (libc.kill, libc.killpg):\n"
        "        if call(os.getppid(), 9) < 0: raise OSError(ctypes.get_errno(), 'no')\n"
        "    return 0"
    ),
    "signals by a descriptor's owner": (
        "import fcntl, os\n"
        "def f(x):\n"
        "    r, w = os.pipe()\n"
        "    fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\n"
        "    fcntl.fcntl(r, fcntl.F_SETFL, fcntl.fcntl(r, fcntl.F_GETFL) | os.O_ASYNC)\n"
        "    os.write(w, b'x')"
    ),
    "limits of the parent": (
        "import os, resource\ndef f(x): resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))"
    ),
    "slow down the parent": ("import os\ndef f(x): os.sched_setaffinity(os.getppid(), [0])"),
    "priority of the parent": (
        "import os\ndef f(x): os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)"
    ),
    "higher limits": (
        "import resource\ndef f(x): resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"
    ),
    "another user": "import os\ndef f(x): os.setuid(0)",
    "memory that is a file": "import os\ndef f(x): os.memfd_create('x')",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """What attacks aim at: a folder and a file open to all, a port, this process."""
    folder = tmp_path / "open"
    folder.mkdir()
    for path in (folder, *folder.parents):
        if "pytest" in str(path):  # pytest's own folders are closed to other users
            path.chmod(0o777)
    monkeypatch.setenv("ANYORDER_TEST_ANSWER", str(ANSWER))
    secret = folder / "secret"
    secret.write_text(str(ANSWER))
    secret.chmod(0o666)
    with socket.socket() as listener, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with local:
            local.bind(str(folder / "socket"))
            before = (secret.stat().st_mode, secret.stat().st_mtime)
            mark = hash(str(ANSWER)) % 1000003
            yield {
                "folder": str(folder),
                "secret": str(secret),
                "port": port,
                "mark": mark,
                "pid": os.getpid(),
            }
            assert sorted(path.name for path in folder.iterdir()) == ["secret", "socket"]
            assert secret.read_text() == str(ANSWER)
            assert (secret.stat().st_mode, secret.stat().st_mtime) == before
            for listening in (listener, datagrams, local):
                listening.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
            for listening in (datagrams, local):
                with pytest.raises(BlockingIOError):
                    listening.recv(1)
    assert not Path("/dev/shm/mark").exists()
    assert not Path(os.__file__).with_name("mark.py").exists()


def named(cases: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("program", cases.values(), ids=[*cases])


@named(PRETENCE)
def test_pretended_answers(intact: Sandbox, verdict: Callable[..., str], program: str) -> None:
    assert verdict(intact, program, (1,), ANSWER) in FAILURES


@named(ENDINGS)
def test_endings_are_no_answers(intact: Sandbox, verdict: Callable[..., str], program: str) -> None:
    limits = Limits(cpu_seconds=0.3, wall_seconds=0.6)
    assert verdict(intact, program, (1,), None, limits) in {"error", "timeout", "memory"}


@named(FORGERIES)
def test_forged_messages(intact: Sandbox, verdict: Callable[..., str], program: str) -> None:
    limits = Limits(cpu_seconds=0.5, wall_seconds=4.0)
    assert verdict(intact, program, (1,), ANSWER, limits) in FAILURES


@named(PATCHES)
def test_patched_modules(intact: Sandbox, verdict: Callable[..., str], program: str) -> None:
    assert verdict(intact, program, (1,), ANSWER) in FAILURES
    assert math.isclose(1, 2) is False and len([1]) == 1  # here, all is as it was


@named(SPIES)
def test_spies(
    each_intact: Sandbox, verdict: Callable[..., str], place: dict[str, object], program: str
) -> None:
    assert verdict(each_intact, program.format(**place), (1,), ANSWER) in {
        "wrong",
        "error",
        "blocked",
    }


@named(HARM)
def test_harm(
    each_intact: Sandbox, verdict: Callable[..., str], place: dict[str, object], program: str
) -> None:
    """Nothing of it works: the program fails, mostly because it was not allowed to."""
    expected = "what the program returns when it did it"
    assert verdict(each_intact, program.format(**place), (1,), expected) in FAILURES
