"""Namespaces around the fork-server: no network, no other process, and a file system of its own.

The new root is a small read-only tmpfs in which only the folders that programs may read appear, at
the paths they have outside, so that even an interpreter below root's home can be read by the user
that the server becomes. Without privilege the same is done inside a user namespace. `isolate` ends
with a fork, since a process cannot enter a new process namespace itself: the caller goes on as its
first process, and when that one dies the kernel kills all the others.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
from collections.abc import Iterable

from anyorder.bench.sandbox.canaries import OUTSIDE, SECRET
from anyorder.bench.sandbox.libc import checked, library, syscall

# From linux/sched.h, linux/mount.h and linux/fcntl.h.
_CLONE_NEWUSER = 0x10000000
# mount, cgroup, uts, ipc, pid, net
_CLONE_OTHERS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4

# Where the new root is put together: any folder will do that none of the sources is in.
_STAGES = ("/tmp", "/mnt", "/run", "/sys", "/var")
_LINKS = 40  # more symbolic links on one path than this are a circle, as in the kernel


def isolate(readable: Iterable[str], *, root: bool) -> None:
    """Leave the host's namespaces. OSError where that is refused, perhaps half-way: then end."""
    uid, gid = os.getuid(), os.getgid()
    flags = _CLONE_OTHERS if root else _CLONE_OTHERS | _CLONE_NEWUSER
    checked("unshare", library.unshare(flags))
    if not root:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    socket.sethostname("sandbox")
    _own_root([path for path in readable if os.path.exists(path)])


def leave_users() -> bool:
    """A user namespace on top, for a server that root started; False where that is refused."""
    return library.unshare(_CLONE_NEWUSER) == 0


def first_process() -> None:
    """Go on as the first process of the new process namespace; the old one waits and follows."""
    pid = os.fork()
    if not pid:
        return
    os.closerange(3, 64)
    status = os.waitpid(pid, 0)[1]
    os._exit(0 if status == 0 else 1)


def leave_a_secret(stage: str = "") -> None:
    """What canaries try to read and to overwrite."""
    _write(stage + SECRET, "secret")
    os.chmod(stage + SECRET, 0o666)


def _own_root(readable: list[str]) -> None:
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    stage = _stage(readable)
    _mount("tmpfs", stage, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m")
    garden = _Garden(stage)
    for path in sorted(readable, key=len):
        garden.plant(path)
    os.makedirs(stage + OUTSIDE, exist_ok=True)
    small = "mode=777,size=64k,nr_inodes=16"
    _mount("tmpfs", stage + OUTSIDE, "tmpfs", _MS_NOSUID | _MS_NODEV, small)
    leave_a_secret(stage)
    os.chdir(stage)
    syscall("pivot_root", b".", b".")
    checked("umount", library.umount2(b".", _MNT_DETACH))
    os.chdir("/")
    _set_attributes("/", _ATTR_RDONLY, recursive=False)


def _stage(sources: list[str]) -> str:
    """A folder to mount on, which hides none of the sources."""
    real = [os.path.realpath(path) + "/" for path in sources]
    for folder in _STAGES:
        if os.path.isdir(folder) and not any(path.startswith(f"{folder}/") for path in real):
            return folder
    raise FileNotFoundError(f"no folder to put a root together in: {', '.join(_STAGES)}")


class _Garden:
    """A root in the making: paths appear in it as they are outside, links included."""

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
