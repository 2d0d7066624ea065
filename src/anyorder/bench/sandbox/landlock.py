"""Landlock: which files may be read, enforced by the kernel without any privilege.

A domain that handles every right its kernel knows and grants reading below some folders: nothing
else can be opened, made, renamed or removed, no TCP port bound or connected to (from version 4 of
the interface), no signal sent and no abstract socket reached outside the domain (from version 6).
What Landlock does not know (times, modes, owners, UDP) is refused by `seccomp`.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from anyorder.bench.sandbox.libc import syscall

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

    Needs no_new_privs. Paths that are not there are left out. Returns the interface's version.
    """
    known = version()
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
        return  # what is not there cannot be read either
    try:
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            rights &= ~_READ_DIR
        rule = _PathBeneath(rights, folder)
        syscall("landlock_add_rule", domain, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(folder)
