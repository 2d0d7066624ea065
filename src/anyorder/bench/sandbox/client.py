"""The grader's side: fork-servers that have proved their level, and programs started in them.

A `Sandbox` owns one fork-server, and a second one for heavy modules. Several children may live at a
time. When a server dies, the next `start` makes another one, which has to prove the same level.
This process never runs a sample. Not thread-safe, and not to be used on both sides of a fork.

A `Link` is the grader's end of one server, which is a fresh interpreter with an empty environment,
no hooks of site packages, and no code of our package but this folder. It cannot use `-I`, which
would ignore the fixed seed of hashes: without the seed the order of a set of strings, and now and
then a verdict, changes from run to run. `-P -s` and an environment made here do the rest of what
`-I` does.
"""

from __future__ import annotations

import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from anyorder.bench.sandbox.canaries import OUTSIDE, CanaryResult, bait, level_of, prove
from anyorder.bench.sandbox.handle import Child
from anyorder.bench.sandbox.limits import (
    COLLECT,
    CONSOLE,
    MECHANISMS,
    NAMESPACES,
    NOT_STARTED,
    RECORD,
    REQUEST,
    SIZE,
    START,
    STOP,
    Broken,
    Failed,
    Limits,
    Record,
)
from anyorder.bench.sandbox.wire import decode, encode

_HERE = Path(__file__).resolve().parent

# Three empty packages that lead to this folder: the server runs no other module of ours, so it
# holds no test, no answer and no torch.
_BOOTSTRAP = """
import os, sys, types
names = ("anyorder", "anyorder.bench", "anyorder.bench.sandbox")
for name, folder in zip(names, sys.argv[2:]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
if sys.argv[1] != "3":
    os.dup2(int(sys.argv[1]), 3)
    os.close(int(sys.argv[1]))
from anyorder.bench.sandbox.server import main
main()
"""
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "HOME": "/",
    **{f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")},
}
_START_SECONDS = 60.0
_ANSWER_SECONDS = 20.0
_LAST_SECONDS = 5.0

# Folders of shared libraries and of time zones, on any Linux.
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
    *("/usr/share/zoneinfo", "/etc/localtime", "/nix/store"),
)


def packages() -> list[str]:
    """Where installed packages are."""
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    return [path for path in dict.fromkeys(found) if os.path.isdir(path)]


def readable() -> list[str]:
    """What programs may read: the interpreter's library, installed packages, shared libraries."""
    libraries = sysconfig.get_config_var("LIBDIR")
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    found = [*standard, *packages(), *_SYSTEM, *([libraries] if libraries else [])]
    return [path for path in dict.fromkeys(found) if os.path.exists(path)]


class Refused(Exception):
    """The system refuses a server its namespaces."""


class Link:
    """A running server."""

    def __init__(
        self, use: Sequence[str], preload: Sequence[str], grader: Mapping[str, Any], *, wrap: bool
    ) -> None:
        self._absent: set[int] = set()  # children that could not be started
        self._buffer = b""
        self._socket, theirs = socket.socketpair()
        command = _command(theirs.fileno())
        if wrap:
            command = [*_wrapper(), *command]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                cwd="/",
                # An interrupt at the terminal reaches the grader alone, which then ends the server.
                start_new_session=True,
            )
        settings: dict[str, Any] = {"use": tuple(use), "preload": list(preload), "wrapped": wrap}
        settings |= {"readable": readable(), "path": packages(), "grader": dict(grader)}
        try:
            self.report = self._greet(settings)
        except BaseException:
            self.close()
            raise

    def _greet(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Send the settings; return the server's report."""
        data = encode(settings)
        self._socket.settimeout(_START_SECONDS)
        try:
            self._socket.sendall(SIZE.pack(len(data)) + data)
            size = self._exactly(SIZE.size)
            report: dict[str, Any] = decode(self._exactly(SIZE.unpack(size)[0]))
        except OSError:
            raise Broken(f"the fork-server did not start: {self._last_words()}") from None
        if "refused" in report:
            raise Refused(report["refused"])
        assert self._process.stderr is not None
        self._process.stderr.close()  # the server closes its end too, before any program
        self._socket.settimeout(_ANSWER_SECONDS)
        return report

    def _last_words(self) -> str:
        self._socket.close()
        self._process.kill()
        try:
            said = self._process.communicate(timeout=_LAST_SECONDS)[1]
        except subprocess.TimeoutExpired:
            said = b""
        errors = said.decode("utf-8", "replace").strip()
        return errors.splitlines()[-1] if errors else "it said nothing"

    @property
    def alive(self) -> bool:
        """Whether the socket to the server is open."""
        return self._socket.fileno() >= 0

    def start(self, number: int, which: int, descriptors: Sequence[int], limits: Limits) -> None:
        """Ask for a child that owns `descriptors`: its channel, then what `which` says."""
        request = REQUEST.pack(
            START,
            which,
            number,
            limits.cpu_seconds,
            limits.memory_bytes,
            limits.stack_bytes,
            limits.open_files,
            limits.threads,
        )
        try:
            socket.send_fds(self._socket, [request], list(descriptors))
        except OSError:
            raise self._broken() from None

    def end(self, number: int, *, closed: bool) -> Record:
        """End a child, and return the server's record of it.

        `closed`: its channel has closed, so it gets a moment to end before it is killed.
        """
        try:
            if number not in self._absent:
                what = COLLECT if closed else STOP
                self._socket.sendall(REQUEST.pack(what, 0, number, 0.0, 0, 0, 0, 0))
            while number not in self._absent:
                record = Record(*RECORD.unpack(self._exactly(RECORD.size)))
                # Unlike other records, these come unasked, whichever child is ended now.
                if record.why == NOT_STARTED:
                    self._absent.add(record.number)
                elif record.number == number:
                    return record
        except OSError:
            raise self._broken() from None
        self._absent.discard(number)
        raise Broken("the system has no room for another process")

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            piece = self._socket.recv(4096) if self.alive else b""
            if not piece:
                raise ConnectionResetError("the fork-server is gone")
            self._buffer += piece
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def _broken(self) -> Broken:
        self.close()
        return Broken("the fork-server ended: no verdict on the programs that were running")

    def close(self) -> None:
        """End the server and all its children."""
        self._socket.close()
        if self._process.poll() is None:
            try:
                self._process.wait(1.0)  # it ends when the socket closes
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def _environment() -> dict[str, str]:
    """Nothing of the grader's but the path on which the loader may find the interpreter."""
    kept = os.environ.get("LD_LIBRARY_PATH")
    return _ENVIRONMENT if kept is None else {**_ENVIRONMENT, "LD_LIBRARY_PATH": kept}


def _command(descriptor: int) -> list[str]:
    folders = [str(folder) for folder in (_HERE.parents[1], _HERE.parent, _HERE)]
    flags = ["-S", "-s", "-P", "-B", "-X", "utf8"]
    # The file itself: inside bubblewrap, the link of a virtual environment leads nowhere.
    program = os.path.realpath(sys.executable)
    return [program, *flags, "-c", _BOOTSTRAP, str(descriptor), *folders]


def wrapper() -> str | None:
    """Bubblewrap, to which some systems allow the namespaces that they refuse to others."""
    return shutil.which("bwrap")


def _wrapper() -> list[str]:
    """The beginning of a command that runs the rest in new namespaces."""
    found = [wrapper() or "bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    found += ["--as-pid-1", "--cap-drop", "ALL", "--chdir", "/"]
    for path in [*readable(), os.path.realpath(sys.executable), str(_HERE)]:
        found += ["--ro-bind", path, path]
    return [*found, "--dev-bind", os.devnull, os.devnull, "--tmpfs", OUTSIDE, "--"]


PRELOAD = (
    *("abc", "array", "bisect", "cmath", "collections", "collections.abc", "contextlib", "copy"),
    *("dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq"),
    *("inspect", "io", "itertools", "json", "math", "numbers", "operator", "queue", "random", "re"),
    *("statistics", "string", "textwrap", "threading", "time", "traceback", "types", "typing"),
    *("unicodedata", "ctypes", "numpy", "numpy.linalg", "numpy.random"),
)
"""What programs commonly import; what is not installed is left out."""
HEAVY = frozenset({"numpy", "numpy.linalg", "numpy.random"})
"""Modules that make every fork slower: a second server has them, for programs that name them."""


def _remedy(level: int) -> str:
    found = (
        "run in a Linux virtual machine or a container that allows Landlock and seccomp "
        "(kernel 5.13 or newer; WSL2 on Windows)"
    )
    return f"{found}, or accept less with minimum_level={level}" if level else found


@dataclass(frozen=True)
class Probe:
    """What this machine offers, for `anyorder doctor`."""

    level: int
    """3, 2, 1, or 0 where programs cannot be run at all."""
    checks: tuple[CanaryResult, ...] = ()
    """What was tried, by name."""
    applied: tuple[tuple[str, str], ...] = ()
    """The mechanisms that are in force, with a word on each."""
    notes: tuple[str, ...] = ()
    """What is missing, and why."""


class Sandbox:
    """Confined processes, one per program."""

    level: int
    """What the canaries proved: 3, 2 or 1."""
    checks: tuple[CanaryResult, ...]
    """What they tried."""
    applied: dict[str, str]
    """The mechanisms in force, with a word on each."""
    notes: tuple[str, ...]
    """What is missing, and why."""

    def __init__(
        self,
        *,
        minimum_level: int = 2,
        preload: Sequence[str] = PRELOAD,
        use: Sequence[str] = MECHANISMS,
    ) -> None:
        """Raises ValueError if the level proved is below `minimum_level`.

        `use` leaves mechanisms out, to try what a machine without them would do.
        """
        unknown = sorted(set(use) - set(MECHANISMS))
        if unknown:
            raise ValueError(f"no mechanism {unknown[0]!r}: choose from {', '.join(MECHANISMS)}")
        if sys.platform == "win32":
            raise ValueError(f"programs cannot be confined on Windows: {_remedy(1)}")
        self.minimum_level = minimum_level
        self._use = tuple(use)
        self._preload = tuple(preload)
        self._heavy = sorted(HEAVY.intersection(preload))
        self._count = 0
        self.level = 0
        self._links: dict[bool, Link] = {}  # with the heavy modules, or without
        self._open(heavy=False)

    def start(
        self,
        program: str,
        limits: Limits,
        *,
        stdin: str | None = None,
        builtins: Sequence[str] | None = None,
    ) -> Child:
        """A new confined process that begins to run `program`.

        With `stdin` it is a console program: its `__name__` is "__main__", and what it prints is
        kept. `builtins` leaves a program only these builtin names.
        """
        # A search of the text is enough: a false hit costs time, and a miss an import.
        heavy = any(name in program for name in self._heavy)
        link = self._links.get(heavy)
        if link is not None:
            try:
                return self._start(link, program, limits, stdin, builtins)
            except Broken:
                pass  # the server died before this program began: start another
        return self._start(self._open(heavy=heavy), program, limits, stdin, builtins)

    def close(self) -> None:
        """End the servers and their children."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, *, heavy: bool) -> Link:
        """A new server that has proved its level."""
        if heavy in self._links:
            self._links.pop(heavy).close()
        with bait() as grader:
            notes: list[str] = []
            link = self._connect(
                [n for n in self._preload if heavy or n not in HEAVY], grader, notes
            )
            applied: dict[str, str] = link.report["applied"]
            try:
                start = partial(self._start, link)
                checks = tuple(prove(start, applied, grader, link.report["seen"]))
            except (Failed, Broken) as error:
                link.close()
                raise Broken(f"the sandbox does not run programs: {error}") from None
        absent = [f"{name} is not installed" for name in link.report["missing"]]
        before, level = self.level, level_of(applied, checks)
        if level < before:  # verdicts store the level that the first server proved
            link.close()
            raise Broken(f"a new fork-server has level {level} only, the first one had {before}")
        self.applied, self.checks = applied, checks
        self.notes = (*notes, *link.report["notes"], *absent)
        self.level = before or level
        if self.level < self.minimum_level:
            link.close()
            raise ValueError(self._refusal())
        self._links[heavy] = link
        return link

    def _connect(self, preload: list[str], grader: dict[str, Any], notes: list[str]) -> Link:
        """A server with all mechanisms of `use`, or without namespaces if they are refused."""
        try:
            return Link(self._use, preload, grader, wrap=False)
        except Refused as refused:
            notes.append(f"no namespaces: {refused}")
        if wrapper() and os.geteuid() != 0:  # if root is refused, so is bubblewrap under root
            try:
                return Link(self._use, preload, grader, wrap=True)
            except (Refused, Broken) as error:
                notes.append(f"no namespaces through bubblewrap: {error}")
        use = [name for name in self._use if name != NAMESPACES]
        return Link(use, preload, grader, wrap=False)

    def _refusal(self) -> str:
        broken = [f"{check.name} ({check.detail})" for check in self.checks if not check.held]
        why = "; ".join([*self.notes, *(f"not prevented: {what}" for what in broken)])
        return (
            f"programs can be confined at level {self.level} only, and level {self.minimum_level} "
            f"is required ({why or 'mechanisms were left out'}): {_remedy(self.level)}"
        )

    def _start(
        self,
        link: Link,
        program: str,
        limits: Limits,
        stdin: str | None = None,
        builtins: Sequence[str] | None = None,
    ) -> Child:
        self._count += 1
        allowed = None if builtins is None else list(builtins)
        data = encode(("run", program, stdin is not None, allowed, limits.message_bytes))
        printed = None
        with ExitStack() as theirs:  # our copies close, or the channel would outlive the child
            ours, channel = socket.socketpair()
            descriptors = [theirs.enter_context(channel).fileno()]
            if stdin is not None:
                descriptors.append(theirs.enter_context(_file_of(stdin)).fileno())
                printed, writing = os.pipe()
                theirs.callback(os.close, writing)
                descriptors.append(writing)
                os.set_blocking(printed, False)
            # The grader waits with deadlines and never blocks on what a program does.
            ours.setblocking(False)
            which = 0 if stdin is None else CONSOLE
            link.start(self._count, which, descriptors, limits)
        child = Child(link, self._count, ours, limits, printed)
        child.send(data)  # over the child's own socket: the server never sees a program
        return child


def _file_of(text: str) -> Any:
    """An open file without a name that holds `text`, to be read from its start."""
    data = text.encode("utf-8", "surrogatepass")
    # A file, because a pipe would need someone to feed it while the program runs.
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("stdin")
    else:
        with tempfile.TemporaryFile() as named:
            number = os.dup(named.fileno())
    file = os.fdopen(number, "r+b", buffering=0)
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    file.seek(0)
    return file


@cache
def probe() -> Probe:
    """The level that this machine offers; tried once per process."""
    try:
        with Sandbox(minimum_level=0) as sandbox:
            applied = tuple(sandbox.applied.items())
            return Probe(sandbox.level, sandbox.checks, applied, sandbox.notes)
    except (ValueError, Broken) as error:
        return Probe(0, notes=(str(error),))
