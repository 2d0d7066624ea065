"""Confinement in three stages: two for the fork-server, then the little that each child needs.

    enter   namespaces, then a user of its own without groups or capabilities
    seal    no_new_privs, Landlock, the server's filter; none of it can be taken back
    limit   per child, after the fork: session, descriptors, resource limits, the child's filter

Namespaces: no network, no other process, and a small read-only root in which only the readable
folders appear, at the paths they have outside. Without privilege the same is done inside a user
namespace. User: a server that root starts becomes a user that has no other process, because the
limit on processes does not hold root and counts all processes of a user. Landlock: files below the
readable folders can be read; all else that this kernel's Landlock knows is refused (TCP from
version 4 of the interface, signals and abstract sockets from version 6). Landlock does not know
times, modes, owners and UDP: `seccomp` refuses those.

Each stage notes what it did; `canaries` proves what that is worth.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress

from anyorder.bench.sandbox.canaries import OUTSIDE, SECRET
from anyorder.bench.sandbox.child import CHANNEL
from anyorder.bench.sandbox.limits import LANDLOCK, NAMESPACES, RLIMITS, SECCOMP
from anyorder.bench.sandbox.seccomp import (
    PR_SET_DUMPABLE,
    PR_SET_KEEPCAPS,
    checked,
    library,
    prctl,
    syscall,
)

# From linux/sched.h, linux/mount.h and linux/fcntl.h.
_CLONE_NEWUSER = 0x10000000
# mount, cgroup, uts, ipc, pid, net
_CLONE_OTHERS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4

# Where the new root is put together: any folder that holds none of the sources.
_STAGES = ("/tmp", "/mnt", "/run", "/sys", "/var")
_LINKS = 40  # more symbolic links on one path than this are a circle, as in the kernel


def isolate(readable: Iterable[str], *, root: bool) -> None:
    """Leave the host's namespaces. OSError where that is refused, perhaps half-way: then end."""
    uid, gid = os.getuid(), os.getgid()
    flags = _CLONE_OTHERS if root else _CLONE_OTHERS | _CLONE_NEWUSER
    checked("unshare", library.unshare(flags))
    if not root:
        # The kernel takes a gid_map from an unprivileged process only after this.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    socket.sethostname("sandbox")
    _own_root([path for path in readable if os.path.exists(path)])


def leave_users() -> bool:
    """For a server that root started: enter a user namespace; False where that is refused.

    The other namespaces belong to the user namespace before it, so capabilities that a process
    might gain in here have no power over them.
    """
    return library.unshare(_CLONE_NEWUSER) == 0


def first_process() -> None:
    """Continue as the first process of the new process namespace; the old one waits for its end.

    `unshare` moves only later children into the namespace, hence the fork. When the first process
    dies the kernel kills all others in the namespace.
    """
    pid = os.fork()
    if not pid:
        return
    # The grader learns of the server's death when the socket closes: hold no second copy.
    os.closerange(3, 64)
    status = os.waitpid(pid, 0)[1]
    os._exit(0 if status == 0 else 1)


def leave_a_secret(stage: str = "") -> None:
    """Write the file that canaries try to read and to overwrite: only Landlock protects it."""
    _write(stage + SECRET, "secret")
    os.chmod(stage + SECRET, 0o666)


def _own_root(readable: list[str]) -> None:
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)  # else mounts made here would spread to the host
    stage = _stage(readable)
    _mount("tmpfs", stage, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m")
    garden = _NewRoot(stage)
    for path in sorted(readable, key=len):  # a folder before what is in it: that is covered then
        garden.plant(path)
    os.makedirs(stage + OUTSIDE, exist_ok=True)
    small = "mode=777,size=64k,nr_inodes=16"
    _mount("tmpfs", stage + OUTSIDE, "tmpfs", _MS_NOSUID | _MS_NODEV, small)
    leave_a_secret(stage)
    os.chdir(stage)
    # With one folder for both, the old root ends up on top of the new one; unmounting it leaves no
    # path to the host.
    syscall("pivot_root", b".", b".")
    checked("umount", library.umount2(b".", _MNT_DETACH))
    os.chdir("/")
    # Last, since folders were made in it; the mounts below have their own attributes.
    _set_attributes("/", _ATTR_RDONLY, recursive=False)


def _stage(sources: list[str]) -> str:
    """A folder to mount on that hides none of the sources."""
    real = [os.path.realpath(path) + "/" for path in sources]
    for folder in _STAGES:
        if os.path.isdir(folder) and not any(path.startswith(f"{folder}/") for path in real):
            return folder
    raise FileNotFoundError(f"no folder to put a root together in: {', '.join(_STAGES)}")


class _NewRoot:
    """A root under construction: paths appear in it as they are outside, links included."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.taken: set[str] = set()

    def plant(self, path: str) -> None:
        """Bind `path` at its own place, with the links that lead to it."""
        parts = [part for part in path.split("/") if part]
        here, links = "", 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                here = os.path.dirname(here)
                continue
            there = f"{here}/{part}"
            if os.path.islink(there) and links < _LINKS:
                links += 1
                target = os.readlink(there)
                if not self._covered(there) and not os.path.lexists(self.stage + there):
                    os.symlink(target, self.stage + there)
                here = "" if target.startswith("/") else here
                parts = [piece for piece in target.split("/") if piece not in ("", ".")] + parts
                continue
            if parts and not self._covered(there):
                os.makedirs(self.stage + there, exist_ok=True)
            here = there
        if not self._covered(here):
            self._bind(here)

    def _covered(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{taken}/") for taken in self.taken)

    def _bind(self, path: str) -> None:
        target = self.stage + path
        device = stat.S_ISCHR(os.stat(path).st_mode)
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            _write(target, "")
        # Two steps: a bind mount ignores attributes, and mounts below `path` need them too.
        _mount(path, target, None, _MS_BIND | _MS_REC)
        limits = _ATTR_NOSUID if device else _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV
        _set_attributes(target, limits, recursive=True)
        self.taken.add(path)


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users"))


def _set_attributes(path: str, attributes: int, *, recursive: bool) -> None:
    wanted = _MountAttributes(attributes)
    where = os.fsencode(path)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.sizeof(wanted)
    syscall("mount_setattr", _AT_FDCWD, where, flags, ctypes.byref(wanted), size)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    names = [None if name is None else os.fsencode(name) for name in (source, target, kind)]
    data = None if options is None else options.encode()
    checked(f"mount on {target}", library.mount(*names, ctypes.c_ulong(flags), data))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


# High numbers that no system gives to people or services; a container may offer far fewer.
_FIRST_NUMBER = 0x70000000
_NUMBERS = 1 << 20
_FEW_NUMBERS = 512
_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_READ_SEARCH = 2


def own_number(uid_map: str, seed: int) -> int | None:
    """A user number for one fork-server, within `/proc/self/uid_map`; None: no room."""
    ranges = [tuple(map(int, line.split())) for line in uid_map.splitlines()]
    for first, _, count in ranges:
        if first <= _FIRST_NUMBER and first + count >= _FIRST_NUMBER + _NUMBERS:
            return _FIRST_NUMBER + seed % _NUMBERS
    first, _, count = max(ranges, key=lambda row: row[2])
    if count < 4 * _FEW_NUMBERS:
        return None
    return first + count - 3 * _FEW_NUMBERS + seed % _FEW_NUMBERS  # below "nobody"


def others_can_read(path: str) -> bool:
    """Whether a user who owns nothing can reach the file or folder and read it."""
    path = os.path.realpath(path)
    mode = os.stat(path).st_mode
    if not mode & stat.S_IROTH or (stat.S_ISDIR(mode) and not mode & stat.S_IXOTH):
        return False
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
    return True


def become(number: int | None, *, keep_reading: bool) -> None:
    """Become user and group `number` (None: keep the user) and give up all capabilities.

    `keep_reading` keeps the one capability to read what others own, for an interpreter below root's
    home where there are no namespaces. Landlock then narrows it.
    """
    if number is not None:
        if keep_reading:
            prctl(PR_SET_KEEPCAPS, 1)  # else leaving user 0 clears every capability
        # Groups, then group, then user: after the last one the right to change the others is gone.
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
    _hold_only(1 << _CAP_DAC_READ_SEARCH if keep_reading and number is not None else 0)
    # Last, since a change of user may reset it: no process of the same user, such as another child,
    # may trace this one or read its memory.
    prctl(PR_SET_DUMPABLE, 0)


def _hold_only(capabilities: int) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(capabilities, capabilities)  # effective, permitted; none inherited
    syscall("capset", ctypes.byref(header), ctypes.byref(sets))


# From linux/landlock.h.
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_ALL_TCP = 0b11
_ALL_SCOPES = 0b11

# How many bits of file-system rights each version of the interface knows.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_FILE_RIGHTS_NOW = 16
TRUNCATE_SINCE = 3
NETWORK_SINCE = 4
SCOPES_SINCE = 6


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """The kernel's version of the interface; OSError where there is none."""
    return syscall("landlock_create_ruleset", None, 0, _VERSION_FLAG)


def restrict(readable: Iterable[str], writable: Iterable[str] = ()) -> int:
    """Confine this process: read below `readable`, write the files `writable`, nothing else.

    Needs no_new_privs. Leaves missing paths out. Returns the interface's version.
    """
    known = version()
    # Every right of the kernel's version is handled, hence refused unless granted below. The right
    # to execute is never granted: libraries are mapped, which needs only the right to read.
    handled = (1 << _FILE_RIGHTS.get(known, _FILE_RIGHTS_NOW)) - 1
    ruleset = _Ruleset(handled, _ALL_TCP if known >= NETWORK_SINCE else 0, 0)
    ruleset.scopes = _ALL_SCOPES if known >= SCOPES_SINCE else 0
    size = 8 * (1 + (known >= NETWORK_SINCE) + (known >= SCOPES_SINCE))
    domain = syscall("landlock_create_ruleset", ctypes.byref(ruleset), size, 0)
    try:
        for path in readable:
            _grant(domain, path, (_READ_FILE | _READ_DIR) & handled)
        for path in writable:
            _grant(domain, path, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & handled)
        syscall("landlock_restrict_self", domain, 0)
    finally:
        os.close(domain)
    return known


def _grant(domain: int, path: str, rights: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # without a rule the path stays refused
    try:
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            rights &= ~_READ_DIR  # the kernel refuses rules that give a file rights of folders
        rule = _PathBeneath(rights, folder)
        syscall("landlock_add_rule", domain, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(folder)


LINUX = sys.platform == "linux"
if LINUX:  # imported now, because a server in its own root cannot read our files
    from anyorder.bench.sandbox import seccomp
    from anyorder.bench.sandbox import seccomp as libc

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
    """The confinement of this process, and what is prepared for its children."""

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
        """Namespaces and identity. OSError: namespaces are refused, start again without them.

        Everything that reads /proc comes before `isolate`, whose root has none. Namespaces come
        before the change of user, which gives up the capabilities that they need.
        """
        if not LINUX:
            self.notes.append("not Linux: resource limits are all there is")
            _become_nobody()
            return
        root = os.geteuid() == 0 and not self.wrapped
        number = own_number(_uid_map(), os.getpid()) if root else None
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OUT_OF_MEMORY_SCORE)  # when memory runs out, not the grader first
        self._neighbours = self._count_neighbours(alone=number is not None)
        if NAMESPACES in self.use and not self.wrapped:
            isolate([*self.readable, os.devnull], root=root)
        self._become(number, root=root)
        if NAMESPACES in self.use and not self.wrapped:
            first_process()
            if number is not None and leave_users():
                become(None, keep_reading=False)  # a new user namespace grants every capability
            self.applied[NAMESPACES] = "unshare"
        elif NAMESPACES in self.use:
            leave_a_secret()
            self.applied[NAMESPACES] = "bubblewrap"

    def _become(self, number: int | None, *, root: bool) -> None:
        reading = number is not None and self._needs_reading()
        try:
            become(number, keep_reading=reading)
        except PermissionError:  # root in name only, as in some containers
            become(None, keep_reading=False)
            number = None
        if root and number is None:
            self.notes.append("runs as root, whose processes and threads are not counted")

    def _needs_reading(self) -> bool:
        """Whether the interpreter lies where the server's own user could not read it."""
        if NAMESPACES in self.use or all(map(others_can_read, self.readable)):
            return False
        if LANDLOCK in self.use:
            self.notes.append("keeps one capability: to read an interpreter closed to other users")
            return True
        self.notes.append("the interpreter is closed to other users: only preloaded modules load")
        return False

    def _count_neighbours(self, *, alone: bool) -> int:
        """How many processes, other than the program's, count towards its limit."""
        release = tuple(map(int, os.uname().release.split(".")[:2]))
        if alone or self.wrapped or (NAMESPACES in self.use and release >= _COUNTED_PER_NAMESPACE):
            return _NEIGHBOURS
        return _tasks_of(os.getuid()) + _MORE_NEIGHBOURS

    def seal(self) -> None:
        """Landlock and the server's filter, for this process and its descendants.

        no_new_privs is first: without it an unprivileged process may use neither. Landlock comes
        before the filter, which refuses its calls.
        """
        self._server = os.getpid()
        if RLIMITS in self.use:
            self.applied[RLIMITS] = "per child"
        if not LINUX:
            return
        libc.prctl(libc.PR_SET_PDEATHSIG, _SIGKILL)  # forks and changes of user would clear it
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        version = 0
        if LANDLOCK in self.use:
            try:
                version = restrict(self.readable, [os.devnull])
                self.applied[LANDLOCK] = f"version {version}"
            except OSError as error:
                self.notes.append(f"no Landlock here: {error.strerror}")
        if SECCOMP in self.use:
            try:
                self._filter_calls(refuse_truncation=version < TRUNCATE_SINCE)
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
        """The last steps, in the child: only `CHANNEL` and the standard three stay open.

        The filter is last, because it refuses `setsid`, this use of `prctl`, and further filters.
        """
        os.setsid()
        os.closerange(CHANNEL + 1, _DESCRIPTORS)
        if LINUX and NAMESPACES not in self.applied:  # those die with their first process
            libc.prctl(libc.PR_SET_PDEATHSIG, _SIGKILL)
            if os.getppid() != self._server:
                os._exit(1)  # the server died before it could take this child along
        if RLIMITS in self.use:
            # Whole seconds, and one more: only for the case that the server's watch fails.
            seconds = math.ceil(cpu) + 1
            processes = threads + self._neighbours
            # Hard limits: a program without capabilities cannot raise them. The signal of the
            # processor's soft limit can be caught; its hard limit, a second later, kills.
            set_limit = resource.setrlimit
            set_limit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            set_limit(resource.RLIMIT_AS, (memory, memory))
            set_limit(resource.RLIMIT_STACK, (stack, stack))
            set_limit(resource.RLIMIT_NOFILE, (files, files))
            set_limit(resource.RLIMIT_NPROC, (processes, processes))
            set_limit(resource.RLIMIT_FSIZE, (0, 0))  # a console's standard input is writable
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
