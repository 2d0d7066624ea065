"""The grader's end of a fork-server: starting it, asking for children, hearing of their ends.

The server is a fresh interpreter with an empty environment, no hooks of site packages, and no code
of our package but this folder. It cannot use `-I`, which would ignore the fixed seed of hashes:
without the seed the order of a set of strings, and now and then a verdict, changes from run to run.
`-P -s` and an environment made here do the rest of what `-I` does.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anyorder.bench.sandbox.canaries import OUTSIDE
from anyorder.bench.sandbox.limits import (
    COLLECT,
    NOT_STARTED,
    RECORD,
    REQUEST,
    SIZE,
    START,
    STOP,
    Broken,
    Limits,
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


class Record(NamedTuple):
    """A server's record of a child that has ended."""

    why: int
    number: int
    status: int
    cpu_seconds: float
    memory_bytes: int


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
