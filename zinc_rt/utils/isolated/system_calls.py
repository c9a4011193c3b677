"""The system calls left to a process that renders templates: for memory, its pipes, the time, and its end.

All other system calls fail with EPERM, so that a template which got out of the sandbox starts no process, opens no
socket, sends no signal and changes nothing of another process. Calls of another architecture end the process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Mapping
from typing import Final

_NO_NEW_PRIVS, _SECCOMP, _MODE_FILTER = 38, 22, 2  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER
_KILL, _ALLOW, _REFUSE = 0x8000_0000, 0x7FFF_0000, 0x0005_0000 | errno.EPERM  # SECCOMP_RET_*
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD | W | ABS, BPF_JMP | JEQ | K, BPF_RET | K
_NR, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; of an argument the lower half comes first

# AUDIT_ARCH_*, then numbers of arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
CALLS: Final[Mapping[str, tuple[int, Mapping[str, int]]]] = {
    "x86_64": (0xC000_003E, {
        "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8, "mmap": 9, "mprotect": 10,
        "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24,
        "mremap": 25, "madvise": 28, "getpid": 39, "exit": 60, "fcntl": 72, "gettimeofday": 96, "getrusage": 98,
        "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202, "restart_syscall": 219, "clock_gettime": 228,
        "clock_getres": 229, "exit_group": 231, "newfstatat": 262, "prlimit64": 302, "getrandom": 318, "statx": 332,
        "rseq": 334,
    }),
    "aarch64": (0xC000_00B7, {
        "fcntl": 25, "close": 57, "lseek": 62, "read": 63, "write": 64, "newfstatat": 79, "fstat": 80, "exit": 93,
        "exit_group": 94, "futex": 98, "clock_gettime": 113, "clock_getres": 114, "sched_yield": 124,
        "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139,
        "getrusage": 165, "gettimeofday": 169, "getpid": 172, "gettid": 178, "brk": 214, "munmap": 215, "mremap": 216,
        "mmap": 222, "mprotect": 226, "madvise": 233, "prlimit64": 261, "getrandom": 278, "statx": 291, "rseq": 293,
    }),
}  # fmt: skip
_ONLY: Final = {"prlimit64": (0, 0), "fcntl": (1, fcntl.F_SETFL)}
"""Calls that an argument must have a value in: limits of the process itself, flags of its pipes."""


def program(machine: str) -> bytes:
    """The filter as struct sock_filter[]; empty for a machine whose calls are not known here."""
    if machine not in CALLS:
        return b""
    arch, calls = CALLS[machine]
    code = [(_LOAD, 0, 0, _ARCH), (_JUMP_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NR)]
    for name, number in calls.items():
        if name not in _ONLY:
            code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
            continue
        argument, value = _ONLY[name]
        code += [(_JUMP_EQUAL, 0, 4, number), (_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
        code += [(_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    code.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("=HBBI", *step) for step in code)


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def give_up_calls() -> bool:
    """Refuse this process new privileges and all other calls, for good. False where the kernel has no such filters."""
    prctl, zero = ctypes.CDLL(None).prctl, ctypes.c_ulong(0)
    prctl.restype = ctypes.c_int
    if prctl(ctypes.c_int(_NO_NEW_PRIVS), ctypes.c_ulong(1), zero, zero, zero):
        return False
    code = program(os.uname().machine)
    if not code:
        return False
    made = _Program(len(code) // 8, code)
    return not prctl(ctypes.c_int(_SECCOMP), ctypes.c_ulong(_MODE_FILTER), ctypes.byref(made), zero, zero)
