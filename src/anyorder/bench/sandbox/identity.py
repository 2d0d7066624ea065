"""Who the fork-server is: a user of its own where it can be, with no groups and no capabilities.

Started by root, it becomes a user that nobody else is: the limit on processes is not enforced for
root, and counts all processes of a user. Started by anybody else, it stays that user.
"""

from __future__ import annotations

import ctypes
import os
import stat

from anyorder.bench.sandbox.libc import PR_SET_DUMPABLE, PR_SET_KEEPCAPS, prctl, syscall

# High numbers that no system gives to people or services; a container may offer far fewer.
_FIRST_NUMBER = 0x70000000
_NUMBERS = 1 << 20
_FEW_NUMBERS = 512
_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_READ_SEARCH = 2


def own_number(uid_map: str, seed: int) -> int | None:
    """A user number for one fork-server, inside what `/proc/self/uid_map` offers; None: no room."""
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
    """Be user and group `number` (None: stay who you are), and nothing more than that user.

    `keep_reading` keeps the one capability to read what others own, which Landlock then narrows:
    for an interpreter in root's own folder, where no namespace can show it to somebody else.
    """
    if number is not None:
        if keep_reading:
            prctl(PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
    _hold_only(1 << _CAP_DAC_READ_SEARCH if keep_reading and number is not None else 0)
    prctl(PR_SET_DUMPABLE, 0)


def _hold_only(capabilities: int) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(capabilities, capabilities)  # effective, permitted; none inherited
    syscall("capset", ctypes.byref(header), ctypes.byref(sets))
