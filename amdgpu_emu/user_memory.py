"""Access to the calling program's memory by address, as a kernel does it: a bad pointer is EFAULT, no crash."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Any, TypeVar, cast

from amdgpu_emu.errors import CallRefused

_MAX_COPY = 64 << 20
_T = TypeVar("_T", bound=ctypes.Structure | ctypes.Union)


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@cache
def _calls() -> tuple[Any, Any]:
    libc = ctypes.CDLL(None, use_errno=True)
    kind = ctypes.POINTER(_Part)
    for call in (libc.process_vm_readv, libc.process_vm_writev):
        call.argtypes = (ctypes.c_int, kind, ctypes.c_ulong, kind, ctypes.c_ulong, ctypes.c_ulong)
        call.restype = ctypes.c_ssize_t
    return libc.process_vm_readv, libc.process_vm_writev


def _transfer(write: bool, address: int, buffer: ctypes.Array[ctypes.c_char]) -> None:
    n = len(buffer)
    local, remote = _Part(ctypes.addressof(buffer), n), _Part(address, n)
    call = _calls()[write]
    done = call(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    if done == n:
        return
    if done < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS) and address:
        # Such a container forbids reading any process's memory, even one's own: a bad pointer crashes then.
        source, target = (ctypes.addressof(buffer), address) if write else (address, ctypes.addressof(buffer))
        ctypes.memmove(target, source, n)
        return
    raise CallRefused(errno.EFAULT, f"{n} bytes at {address:#x} are not the caller's")


def copy_from_user(address: int, n: int) -> bytes:
    """Copy `n` bytes from the caller. Raises `CallRefused`: EFAULT, ENOMEM for more than a kernel allocates at once."""
    if not n:
        return b""
    if n > _MAX_COPY:
        raise CallRefused(errno.ENOMEM, f"{n} bytes of the caller's at once: the kernel has room for {_MAX_COPY}")
    buffer = ctypes.create_string_buffer(n)
    _transfer(False, address, buffer)
    return buffer.raw


def copy_to_user(address: int, data: bytes) -> None:
    """Copy bytes to the caller. Raises `CallRefused` (EFAULT)."""
    if data:
        _transfer(True, address, (ctypes.c_char * len(data)).from_buffer_copy(data))


def read_struct(kind: type[_T], address: int) -> _T:
    """Copy a struct from the caller. Raises `CallRefused` (EFAULT)."""
    return cast("_T", kind.from_buffer_copy(copy_from_user(address, ctypes.sizeof(kind))))
