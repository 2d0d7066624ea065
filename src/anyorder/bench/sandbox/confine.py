"""Confinement in three stages: two for the fork-server, then the little that each child needs.

    enter   namespaces, then a user of its own
    seal    no_new_privs, Landlock, most of seccomp; afterwards nothing can be taken back
    limit   per child, after the fork: its session, descriptors, resource limits, the last filter

Each stage notes what it did. What that is worth is for `canaries` to say.
"""

from __future__ import annotations

import math
import os
import resource
import sys
from contextlib import suppress

from anyorder.bench.sandbox.child import CHANNEL
from anyorder.bench.sandbox.limits import LANDLOCK, NAMESPACES, RLIMITS, SECCOMP

LINUX = sys.platform == "linux"
if LINUX:  # here and not where they are used: a server in its own root cannot read our files
    from anyorder.bench.sandbox import identity, landlock, libc, namespaces, seccomp

# No descriptor above this one is open in a child when it starts.
_DESCRIPTORS = 64
# Processes of the same user that are not the program's: the server, a few other children.
_NEIGHBOURS = 32
# Where a user has other processes, their number changes while we run.
_MORE_NEIGHBOURS = 256
_OUT_OF_MEMORY_SCORE = "500"
_COUNTED_PER_NAMESPACE = (5, 14)
_SIGKILL = 9


class Confinement:
    """What holds this process, and what is prepared for its children."""

    def __init__(self, use: tuple[str, ...], readable: list[str], *, wrapped: bool) -> None:
        self.use = use
        self.readable = readable
        self.wrapped = wrapped
        """Whether bubblewrap has put namespaces around this process already."""
        self.applied: dict[str, str] = {}
        self.notes: list[str] = []
        self._filter: seccomp.Filter | None = None
        self._neighbours = 0
        self._server = 0

    def enter(self) -> None:
        """Namespaces and identity. OSError: namespaces are refused, start again without them."""
        if not LINUX:
            self.notes.append("not Linux: resource limits are all there is")
            _become_nobody()
            return
        root = os.geteuid() == 0 and not self.wrapped
        number = identity.own_number(_uid_map(), os.getpid()) if root else None
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OUT_OF_MEMORY_SCORE)  # when memory runs out, not the grader first
        self._neighbours = self._count_neighbours(alone=number is not None)
        if NAMESPACES in self.use and not self.wrapped:
            namespaces.isolate([*self.readable, os.devnull], root=root)
        self._become(number, root=root)
        if NAMESPACES in self.use and not self.wrapped:
            namespaces.first_process()
            if number is not None and namespaces.leave_users():
                identity.become(None, keep_reading=False)
            self.applied[NAMESPACES] = "unshare"
        elif NAMESPACES in self.use:
            namespaces.leave_a_secret()
            self.applied[NAMESPACES] = "bubblewrap"

    def _become(self, number: int | None, *, root: bool) -> None:
        reading = number is not None and self._needs_reading()
        try:
            identity.become(number, keep_reading=reading)
        except PermissionError:  # root in name only, as in some containers
            identity.become(None, keep_reading=False)
            number = None
        if root and number is None:
            self.notes.append("runs as root, whose processes and threads are not counted")

    def _needs_reading(self) -> bool:
        """Whether the interpreter lies where the server's own user could not read it."""
        if NAMESPACES in self.use or all(map(identity.others_can_read, self.readable)):
            return False
        if LANDLOCK in self.use:
            self.notes.append("keeps one capability: to read an interpreter closed to other users")
            return True
        self.notes.append("the interpreter is closed to other users: only preloaded modules load")
        return False

    def _count_neighbours(self, *, alone: bool) -> int:
        """How many processes the system counts that are not the program's."""
        release = tuple(map(int, os.uname().release.split(".")[:2]))
        if alone or self.wrapped or (NAMESPACES in self.use and release >= _COUNTED_PER_NAMESPACE):
            return _NEIGHBOURS
        return _tasks_of(os.getuid()) + _MORE_NEIGHBOURS

    def seal(self) -> None:
        """Landlock and the server's filter, for this process and all that come of it."""
        self._server = os.getpid()
        if RLIMITS in self.use:
            self.applied[RLIMITS] = "per child"
        if not LINUX:
            return
        libc.prctl(libc.PR_SET_PDEATHSIG, _SIGKILL)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        version = 0
        if LANDLOCK in self.use:
            try:
                version = landlock.restrict(self.readable, [os.devnull])
                self.applied[LANDLOCK] = f"version {version}"
            except OSError as error:
                self.notes.append(f"no Landlock here: {error.strerror}")
        if SECCOMP in self.use:
            try:
                self._filter_calls(refuse_truncation=version < landlock.TRUNCATE_SINCE)
            except KeyError as error:
                self.notes.append(f"no seccomp here: no table of system calls for {error}")
            except OSError as error:
                self.notes.append(f"no seccomp here: {error.strerror}")

    def _filter_calls(self, *, refuse_truncation: bool) -> None:
        calls = libc.calls()
        program = seccomp.server_filter(calls, refuse_truncation=refuse_truncation)
        prepared = seccomp.Filter.of_child(calls)
        seccomp.Filter(program).install()
        self._filter = prepared
        self.applied[SECCOMP] = f"{len(program)} instructions"

    def limit(self, cpu: float, memory: int, stack: int, files: int, threads: int) -> None:
        """The last steps, in the child: only `CHANNEL` and the standard three stay open."""
        os.setsid()
        os.closerange(CHANNEL + 1, _DESCRIPTORS)
        if LINUX and NAMESPACES not in self.applied:  # those die with their first process
            libc.prctl(libc.PR_SET_PDEATHSIG, _SIGKILL)
            if os.getppid() != self._server:
                os._exit(1)  # the server died before it could take this child along
        if RLIMITS in self.use:
            seconds = (
                math.ceil(cpu) + 1
            )  # whole seconds: for the case that the server's watch fails
            processes = threads + self._neighbours
            set_limit = resource.setrlimit
            set_limit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            set_limit(resource.RLIMIT_AS, (memory, memory))
            set_limit(resource.RLIMIT_STACK, (stack, stack))
            set_limit(resource.RLIMIT_NOFILE, (files, files))
            set_limit(resource.RLIMIT_NPROC, (processes, processes))
            set_limit(resource.RLIMIT_FSIZE, (0, 0))
            set_limit(resource.RLIMIT_CORE, (0, 0))
        if self._filter is not None:
            self._filter.install(os.getpid())


def _uid_map() -> str:
    try:
        with open("/proc/self/uid_map") as file:
            return file.read()
    except OSError:
        return "0 0 4294967295"  # no such file: the host's own users


def _become_nobody() -> None:
    if os.geteuid() == 0:
        import pwd

        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)


def _tasks_of(uid: int) -> int:
    """The threads of all processes of a user, as the limit on processes counts them."""
    found = 0
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError):  # it has ended meanwhile
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                found += len(os.listdir(f"/proc/{entry.name}/task"))
    return found
