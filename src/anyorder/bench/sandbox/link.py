"""The grader's end of a fork-server: starting it, asking for children, hearing of their ends.

The server is a fresh interpreter with an empty environment, no site packages' hooks and none of our
package but this folder. `-I` is spelt out (`-P -s` and an environment made here), since it would
ignore the fixed seed of hashes, without which the order of a set of strings, and now and then a
verdict, would change from run to run.
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

# Three packages that lead to this folder, without running what is in the others.
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

# Where the loader finds libraries, and what tells the time: the same for every program.
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
    *("/usr/share/zoneinfo", "/etc/localtime", "/nix/store"),
)


class Record(NamedTuple):
    """What a server knows of a child that has ended."""

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
    """The system does not let a server have the namespaces it was to have."""


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
        """Send the settings; what the server did about them."""
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
        self._process.stderr.close()
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
        """Whether the server was there when it was last heard of."""
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
        """What is known of a child at its end, which is now at the latest.

        `closed`: its channel has closed, so it is ending by itself, or seems to.
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
                self._process.wait(1.0)  # it ends by itself when nobody listens
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def _environment() -> dict[str, str]:
    """Nothing of the grader's, but for what a loader may need to find the interpreter's library."""
    kept = os.environ.get("LD_LIBRARY_PATH")
    return _ENVIRONMENT if kept is None else {**_ENVIRONMENT, "LD_LIBRARY_PATH": kept}


def _command(descriptor: int) -> list[str]:
    folders = [str(folder) for folder in (_HERE.parents[1], _HERE.parent, _HERE)]
    flags = ["-S", "-s", "-P", "-B", "-X", "utf8"]
    program = os.path.realpath(sys.executable)
    return [program, *flags, "-c", _BOOTSTRAP, str(descriptor), *folders]


def wrapper() -> str | None:
    """Bubblewrap, which some systems let do what they refuse to others."""
    return shutil.which("bwrap")


def _wrapper() -> list[str]:
    """A command that runs another one in namespaces of its own."""
    found = [wrapper() or "bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    found += ["--as-pid-1", "--cap-drop", "ALL", "--chdir", "/"]
    for path in [*readable(), os.path.realpath(sys.executable), str(_HERE)]:
        found += ["--ro-bind", path, path]
    return [*found, "--dev-bind", os.devnull, os.devnull, "--tmpfs", OUTSIDE, "--"]
