"""The system-call filters: tables of calls, BPF programs made from them, and how to install one.

    server_filter   for the fork-server, inherited by every child: what is not allowed is refused
    child_filter    on top, once per child: no processes, no signals to others, no more filters

A filter is a list of instructions `(code, jt, jf, k)` over `struct seccomp_data` (number at 0,
machine at 4, arguments of 8 bytes from 16). The kernel runs all filters of a process for every
call, and the strictest answer wins. It takes the checked arguments as 32 bits, so the filters look
at their low 32 bits. Refused calls fail with EPERM, so that an honest program gets an exception it
can read; calls in another machine's convention (32-bit, x32) kill the process. A filter cannot see
memory, hence not the paths that a call names: Landlock guards those.

Rows of the tables are `name x86_64 aarch64`, `-` where a machine lacks the call: part of the
kernel's stable interface (`asm/unistd_64.h`, `asm-generic/unistd.h`). A call in none of the first
three tables is refused, also what future kernels add. Linux only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import Any

# Every program may make these. Why they are safe:
#   open, stat, getdents ...     imports need them; Landlock decides what can be opened
#   write, pwritev ...           for the channel, the output and its own pipes: Landlock opens only
#                                /dev/null for writing, and the limit on file size is 0
#   mmap, mprotect               libraries need executable pages. Any machine code may run: the
#                                filters judge system calls, however they are made
#   sendto, recvfrom, shutdown   what Python's sockets use on the pairs that `socketpair` may make;
#                                no socket can be made, bound or connected otherwise
#   rt_sig..., setitimer, alarm  handle signals, and send them to this process only
#   setrlimit                    without capabilities a hard limit can only be lowered
#   chdir, umask, dup ...        change nothing outside the process
#   get..., sched_get..., uname  only read
_PROGRAM = """
read 0 63 | write 1 64 | open 2 - | close 3 57 | stat 4 - | fstat 5 80 | lstat 6 - | poll 7 -
lseek 8 62 | mmap 9 222 | mprotect 10 226 | munmap 11 215 | brk 12 214 | mremap 25 216
madvise 28 233 | rt_sigaction 13 134 | rt_sigprocmask 14 135 | rt_sigreturn 15 139
rt_sigpending 127 136 | rt_sigtimedwait 128 137 | rt_sigsuspend 130 133 | sigaltstack 131 132
pread64 17 67 | pwrite64 18 68 | readv 19 65 | writev 20 66 | preadv 295 69 | pwritev 296 70
preadv2 327 286 | pwritev2 328 287 | access 21 - | faccessat 269 48 | faccessat2 439 439
openat 257 56 | newfstatat 262 79 | statx 332 291 | getdents 78 - | getdents64 217 61
getcwd 79 17 | chdir 80 49 | fchdir 81 50 | readlink 89 - | readlinkat 267 78 | umask 95 166
statfs 137 43 | fstatfs 138 44 | pipe 22 - | pipe2 293 59 | dup 32 23 | dup2 33 - | dup3 292 24
close_range 436 436 | select 23 - | pselect6 270 72 | ppoll 271 73 | epoll_create 213 -
epoll_create1 291 20 | epoll_ctl 233 21 | epoll_wait 232 - | epoll_pwait 281 22
epoll_pwait2 441 441 | eventfd 284 - | eventfd2 290 19 | sendto 44 206 | recvfrom 45 207
shutdown 48 210 | getsockname 51 204 | getpeername 52 205 | getsockopt 55 209
sched_yield 24 124 | sched_getaffinity 204 123 | sched_getparam 143 121
sched_getscheduler 145 120 | sched_get_priority_max 146 125 | sched_get_priority_min 147 126
sched_rr_get_interval 148 127 | getpriority 140 141 | pause 34 - | nanosleep 35 101
clock_nanosleep 230 115 | getitimer 36 102 | setitimer 38 103 | alarm 37 - | gettimeofday 96 169
time 201 - | times 100 153 | clock_gettime 228 113 | clock_getres 229 114 | getpid 39 172
gettid 186 178 | getppid 110 173 | getpgrp 111 - | getpgid 121 155 | getsid 124 156
getuid 102 174 | geteuid 107 175 | getgid 104 176 | getegid 108 177 | getgroups 115 158
getresuid 118 148 | getresgid 120 150 | getrusage 98 165 | getrlimit 97 163 | setrlimit 160 164
uname 63 160 | sysinfo 99 179 | getcpu 309 168 | getrandom 318 278 | fadvise64 221 223
wait4 61 260 | waitid 247 95 | futex 202 98 | futex_waitv 449 449 | set_robust_list 273 99
set_tid_address 218 96 | restart_syscall 219 128 | rseq 334 293 | membarrier 324 283
exit 60 93 | exit_group 231 94
"""

# Only with certain arguments, which the filters below check.
_CHECKED = """
clone 56 220 | fcntl 72 25 | ioctl 16 29 | kill 62 129 | prctl 157 167 | prlimit64 302 261
socketpair 53 199 | tgkill 234 131
"""

# The fork-server, but not its children: it forks, receives descriptors (which these messages can
# carry), and each child begins its session before its own filter is on.
_SERVER = """
fork 57 - | recvmsg 47 212 | sendmsg 46 211 | setsid 112 157
"""

# Refused to all. A call need not be here to be refused; `syscall`, canaries and tests need names.
_REFUSED = """
accept 43 202 | accept4 288 242 | acct 163 89 | add_key 248 217 | adjtimex 159 171
arch_prctl 158 - | bind 49 200 | bpf 321 280 | capget 125 90 | capset 126 91 | chmod 90 -
chown 92 - | chroot 161 51 | clock_adjtime 305 266 | clock_settime 227 112 | clone3 435 435
connect 42 203 | copy_file_range 326 285 | creat 85 - | delete_module 176 106 | execve 59 221
execveat 322 281 | fallocate 285 47 | fanotify_init 300 262 | fanotify_mark 301 263
fchmod 91 52 | fchmodat 268 53 | fchown 93 55 | fchownat 260 54 | fdatasync 75 83
fgetxattr 193 10 | finit_module 313 273 | flistxattr 196 13 | flock 73 32 | fremovexattr 199 16
fsconfig 431 431 | fsetxattr 190 7 | fsmount 432 432 | fsopen 430 430 | fspick 433 433
fsync 74 82 | ftruncate 77 46 | futimesat 261 - | get_mempolicy 239 236
get_robust_list 274 100 | getxattr 191 8 | init_module 175 105 | inotify_add_watch 254 27
inotify_init 253 - | inotify_init1 294 26 | inotify_rm_watch 255 28 | io_cancel 210 3
io_destroy 207 1 | io_getevents 208 4 | io_pgetevents 333 292 | io_setup 206 0 | io_submit 209 2
io_uring_enter 426 426 | io_uring_register 427 427 | io_uring_setup 425 425 | ioperm 173 -
iopl 172 - | ioprio_get 252 31 | ioprio_set 251 30 | kcmp 312 272 | kexec_file_load 320 294
kexec_load 246 104 | keyctl 250 219 | landlock_add_rule 445 445
landlock_create_ruleset 444 444 | landlock_restrict_self 446 446 | lchown 94 - | lgetxattr 192 9
link 86 - | linkat 265 37 | listen 50 201 | listxattr 194 11 | llistxattr 195 12
lookup_dcookie 212 18 | lremovexattr 198 15 | lsetxattr 189 6 | mbind 237 235
memfd_create 319 279 | memfd_secret 447 447 | migrate_pages 256 238 | mincore 27 232
mkdir 83 - | mkdirat 258 34 | mknod 133 - | mknodat 259 33 | mlock 149 228 | mlock2 325 284
mlockall 151 230 | modify_ldt 154 - | mount 165 40 | mount_setattr 442 442 | move_mount 429 429
move_pages 279 239 | mq_getsetattr 245 185 | mq_notify 244 184 | mq_open 240 180
mq_timedreceive 243 183 | mq_timedsend 242 182 | mq_unlink 241 181 | msgctl 71 187
msgget 68 186 | msgrcv 70 188 | msgsnd 69 189 | msync 26 227 | munlock 150 229
munlockall 152 231 | name_to_handle_at 303 264 | open_by_handle_at 304 265 | open_tree 428 428
openat2 437 437 | perf_event_open 298 241 | personality 135 92 | pidfd_getfd 438 438
pidfd_open 434 434 | pidfd_send_signal 424 424 | pivot_root 155 41 | pkey_alloc 330 289
pkey_free 331 290 | pkey_mprotect 329 288 | process_madvise 440 440 | process_mrelease 448 448
process_vm_readv 310 270 | process_vm_writev 311 271 | ptrace 101 117 | quotactl 179 60
quotactl_fd 443 443 | readahead 187 213 | reboot 169 142 | recvmmsg 299 243
remap_file_pages 216 234 | removexattr 197 14 | rename 82 - | renameat 264 38
renameat2 316 276 | request_key 249 218 | rmdir 84 - | rt_sigqueueinfo 129 138
rt_tgsigqueueinfo 297 240 | sched_getattr 315 275 | sched_setaffinity 203 122
seccomp 317 277
sched_setattr 314 274 | sched_setparam 142 118 | sched_setscheduler 144 119 | semctl 66 191
semget 64 190 | semop 65 193 | semtimedop 220 192 | sendfile 40 71 | sendmmsg 307 269
set_mempolicy 238 237 | set_mempolicy_home_node 450 450 | setdomainname 171 162
setfsgid 123 152 | setfsuid 122 151 | setgid 106 144 | setgroups 116 159 | sethostname 170 161
setns 308 268 | setpgid 109 154 | setpriority 141 140 | setregid 114 143 | setresgid 119 149
setresuid 117 147 | setreuid 113 145 | setsockopt 54 208 | settimeofday 164 170 | setuid 105 146
setxattr 188 5 | shmat 30 196 | shmctl 31 195 | shmdt 67 197 | shmget 29 194 | signalfd 282 -
signalfd4 289 74 | socket 41 198 | splice 275 76 | swapoff 168 225 | swapon 167 224
symlink 88 - | symlinkat 266 36 | sync 162 81 | sync_file_range 277 84 | syncfs 306 267
sysfs 139 - | syslog 103 116 | tee 276 77 | timer_create 222 107 | timer_delete 226 111
timer_getoverrun 225 109 | timer_gettime 224 108 | timer_settime 223 110 | timerfd_create 283 85
timerfd_gettime 287 87 | timerfd_settime 286 86 | tkill 200 130 | truncate 76 45
umount2 166 39 | unlink 87 - | unlinkat 263 35 | unshare 272 97 | uselib 134 -
userfaultfd 323 282 | ustat 136 - | utime 132 - | utimensat 280 88 | utimes 235 - | vfork 58 -
vhangup 153 58 | vmsplice 278 75
"""


# The newest call in the tables. Calls beyond it answer ENOSYS, so that a newer C library falls back
# to calls that it may make; EPERM would be an error to it.
NEWEST = 450


def _table(text: str, column: int) -> dict[str, int]:
    rows = (row.split() for line in text.splitlines() for row in line.split("|") if row.strip())
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


class SyscallNumbers:
    """The calls of one machine."""

    def __init__(self, column: int, audit: int) -> None:
        self.audit = audit
        """What the kernel calls this machine in a filter's input."""
        self.program = _table(_PROGRAM, column)
        self.checked = _table(_CHECKED, column)
        self.server = _table(_SERVER, column)
        self.refused = _table(_REFUSED, column)
        self.numbers = {**self.program, **self.checked, **self.server, **self.refused}
        """Every call by its name."""


MACHINES = {
    "x86_64": SyscallNumbers(1, 0xC000003E),
    "aarch64": SyscallNumbers(2, 0xC00000B7),
}


# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_NAME = 15
PR_GET_NAME = 16
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
PR_SET_VMA = 0x53564D41

library: Any = ctypes.CDLL(None, use_errno=True)
library.syscall.restype = ctypes.c_long

# Python's own fork also runs the after-fork hooks of modules, which write to memory that is then
# copied page by page: half a millisecond. The fork-server has one thread, so no lock needs repair.
bare_fork: Any = ctypes.PyDLL(None).fork
bare_fork.restype = ctypes.c_int
bare_fork.argtypes = []


def calls() -> SyscallNumbers:
    """The table of this machine."""
    return MACHINES[platform.machine()]


def syscall(name: str, *arguments: Any) -> int:
    """A system call by its name."""
    return checked(name, library.syscall(calls().numbers[name], *map(_libc_argument, arguments)))


def prctl(option: int, *arguments: int) -> None:
    """Change something about this process."""
    four = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    checked("prctl", library.prctl(option, *four))


def checked(name: str, result: int) -> int:
    """`result`, unless it says that the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _libc_argument(value: Any) -> Any:
    """Integers as machine words; the rest as ctypes takes it."""
    return ctypes.c_long(value) if isinstance(value, int) else value


Instruction = tuple[int, int, int, int]

# From linux/bpf_common.h: the few operations that a filter needs.
LOAD = 0x20  # ld [k]
AND = 0x54  # A &= k
EQUAL = 0x15  # A == k ? skip jt : skip jf
GREATER = 0x25  # A > k
ANY_BIT = 0x45  # A & k
RETURN = 0x06

# From linux/seccomp.h.
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
KILL = 0x80000000
REFUSE = ERRNO | errno.EPERM
ABSENT = ERRNO | errno.ENOSYS
SECCOMP_MODE_FILTER = 2

NUMBER, MACHINE, ARGUMENTS = 0, 4, 16
X32_BIT = 0x40000000

CLONE_THREAD = 0x00010000
# Every namespace, and CLONE_PARENT, which makes a sibling instead of a child.
CLONE_NEVER = 0x7E020000 | 0x00008000
AF_UNIX = 1
SOCK_STREAM = 1
SOCK_TYPE_MASK = 0xF
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ. Not F_SETOWN and
# F_SETSIG, by which the kernel sends signals to other processes.
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030, 1032)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONCLEX, FIOCLEX, FIONBIO. Not TIOCSTI: it types.
IOCTL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451, 0x5421)
# PR_SET_VMA only names memory: the C library's allocator does so.
PROGRAM_PRCTL = (PR_SET_NAME, PR_GET_NAME, PR_SET_VMA)
SERVER_PRCTL = (*PROGRAM_PRCTL, PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS)
O_TRUNC = 0o1000


def server_filter(calls: SyscallNumbers, *, refuse_truncation: bool = False) -> list[Instruction]:
    """The filter of the fork-server and all its children.

    `refuse_truncation` is for kernels whose Landlock does not know that right: there, opening a
    file with O_TRUNC can empty it although only reading is granted.
    """
    body = _preamble(calls)
    # The C library's `fork` is a clone as well, so the flag for threads is the child's to check.
    body += _when(calls, "clone", [*_argument(0), (ANY_BIT, 0, 1, CLONE_NEVER), *_answer(REFUSE)])
    body += _when(calls, "fcntl", _one_of(1, FCNTL_COMMANDS))
    body += _when(calls, "ioctl", _one_of(1, IOCTL_REQUESTS))
    body += _when(calls, "prctl", _one_of(0, SERVER_PRCTL))
    body += _when(calls, "prlimit64", _one_of(0, (0,)))  # process 0: only the caller's own limits
    body += _when(calls, "socketpair", _stream_pair())
    if refuse_truncation:
        for name, position in (("open", 1), ("openat", 2)):
            check = [*_argument(position), (ANY_BIT, 0, 1, O_TRUNC), *_answer(REFUSE)]
            body += _when(calls, name, check)
    allowed = {*calls.program.values(), *calls.server.values()}
    # The server kills its children; the child's filter narrows both calls to its own number.
    allowed |= {calls.checked["kill"], calls.checked["tgkill"]}
    for number in sorted(allowed):
        body += [(EQUAL, 0, 1, number), *_answer(ALLOW)]
    # Its flags are in memory, which a filter cannot read; on ENOSYS the C library uses clone.
    body += [(EQUAL, 0, 1, calls.numbers["clone3"]), *_answer(ABSENT)]
    return [*body, (GREATER, 0, 1, NEWEST), *_answer(ABSENT), *_answer(REFUSE)]


def child_filter(calls: SyscallNumbers, pid: int) -> list[Instruction]:
    """The filter of a program, on top of the server's; `pid` is its own number.

    A clone must make a thread, which ends with its process: nothing outlives a child.
    """
    body = _preamble(calls)
    body += _when(calls, "clone", [*_argument(0), (ANY_BIT, 1, 0, CLONE_THREAD), *_answer(REFUSE)])
    body += _when(calls, "kill", _one_of(0, (pid,)))
    body += _when(calls, "tgkill", _one_of(0, (pid,)))
    body += _when(calls, "prctl", _one_of(0, PROGRAM_PRCTL))
    for number in sorted(calls.server.values()):
        body += [(EQUAL, 0, 1, number), *_answer(REFUSE)]
    return [*body, *_answer(ALLOW)]


def assemble(instructions: list[Instruction]) -> bytes:
    """`struct sock_filter` after `struct sock_filter`."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


# Every page that a child writes to is copied, so the call that each child makes is prepared here.
_prctl = ctypes.PyDLL(None, use_errno=True).prctl
_prctl.argtypes = (ctypes.c_int, *4 * [ctypes.c_ulong])


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """An assembled filter, kept where the kernel can read it: installing it is one call."""

    def __init__(self, instructions: list[Instruction]) -> None:
        code = assemble(instructions)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(instructions), ctypes.addressof(self._code))
        self._address = ctypes.addressof(self._program)
        self._places: list[int] = []

    @classmethod
    def of_child(cls, calls: SyscallNumbers) -> Filter:
        """The child's filter, with holes for the process number, known only after the fork."""
        found = cls(child_filter(calls, 0))
        for index, (code, _, _, k) in enumerate(child_filter(calls, _HOLE)):
            if code == EQUAL and k == _HOLE:
                found._places.append(8 * index + 4)
        assert len(found._places) == 2
        return found

    def install(self, pid: int | None = None) -> None:
        """Hold this thread, and its later threads and children, to the filter from now on."""
        for place in self._places:
            struct.pack_into("=I", self._code, place, pid)
        checked("seccomp", _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self._address, 0, 0))


_HOLE = 0x3FFFFFF7  # no process has this number: the kernel's highest is 2**22


def _preamble(calls: SyscallNumbers) -> list[Instruction]:
    """Load the call's number; kill a process that calls in another machine's convention.

    There the same numbers are other calls, so no check below would mean anything.
    """
    found = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, calls.audit), *_answer(KILL)]
    return [*found, (LOAD, 0, 0, NUMBER), (ANY_BIT, 0, 1, X32_BIT), *_answer(KILL)]


def _answer(action: int) -> list[Instruction]:
    return [(RETURN, 0, 0, action)]


def _argument(position: int) -> list[Instruction]:
    return [(LOAD, 0, 0, ARGUMENTS + 8 * position)]


def _when(calls: SyscallNumbers, name: str, check: list[Instruction]) -> list[Instruction]:
    """`check`, for the call `name` alone; a check that falls through allows the call."""
    if name not in calls.numbers:
        return []
    # The check loads an argument over the number, so every path through it must end in an answer.
    block = [*check, *_answer(ALLOW)]
    assert len(block) < 256, "a jump has one byte"
    return [(EQUAL, 0, len(block), calls.numbers[name]), *block]


def _one_of(position: int, values: tuple[int, ...]) -> list[Instruction]:
    """Refuses, unless the argument is one of `values`."""
    found = _argument(position)
    for index, value in enumerate(values):
        found.append((EQUAL, len(values) - index, 0, value))
    return [*found, *_answer(REFUSE)]


def _stream_pair() -> list[Instruction]:
    """A pair of connected local streams, as event loops use; datagrams could name a receiver."""
    family = [*_argument(0), (EQUAL, 1, 0, AF_UNIX), *_answer(REFUSE)]
    kind = [*_argument(1), (AND, 0, 0, SOCK_TYPE_MASK), (EQUAL, 1, 0, SOCK_STREAM)]
    return [*family, *kind, *_answer(REFUSE)]
