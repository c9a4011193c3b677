"""Executable memory. No page is ever writable and executable at once (W^X)."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from functools import cache
from typing import Final

from zinc_rt.lang.errors import ImageError, UnsupportedTarget
from zinc_rt.lang.target import TARGETS, host_target

_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_REFUSED: Final = (errno.EACCES, errno.EPERM)


class Pages:
    """A mapping that is freed with the object. `address` is a multiple of the page size; `size` is in bytes."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self._free = weakref.finalize(self, _libc().munmap, address, size)
        self._free.atexit = False  # other threads may still run this code


def map_code(code: bytes, target: str) -> Pages:
    """Map `code`, made for the level named `target`, into pages that can be executed and not written.

    Raises `ImageError` when this machine cannot run the level or the system lets no program make code.
    """
    _check_host(target)
    size = max(-(-len(code) // mmap.PAGESIZE) * mmap.PAGESIZE, mmap.PAGESIZE)
    # The kernel makes instruction caches coherent when it maps a page executable (needed on aarch64), so both
    # ways write first and ask for execution after.
    first = _by_protection(code, size)
    if isinstance(first, Pages):
        return first
    second = _by_file(code, size) if first in _REFUSED else first
    if isinstance(second, Pages):
        return second
    raise ImageError(
        f"no executable memory for {len(code)} bytes of compiled code: {os.strerror(second)};"
        " a security policy (SELinux execmem, systemd MemoryDenyWriteExecute, a sandbox) may forbid it:"
        " allow it or use the reference kernels"
        if second in _REFUSED
        else f"no executable memory for {len(code)} bytes of compiled code: {os.strerror(second)}"
    )


@cache
def _check_host(target: str) -> None:
    if target not in TARGETS:
        raise ImageError(f"the image is for {target!r}, which this release does not know")
    if not TARGETS[target].needs:
        raise ImageError(f"the image is for {target}; this machine's processor cannot run it")
    try:
        host_target(target)
    except UnsupportedTarget as error:
        raise ImageError(f"the image cannot run here: {error}") from None


def _by_protection(code: bytes, size: int) -> Pages | int:
    """Anonymous memory, filled, then made executable; or the error number."""
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address == _MAP_FAILED:
        return ctypes.get_errno()
    ctypes.memmove(address, code, len(code))
    pages = Pages(address, size)
    if libc.mprotect(address, size, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        return ctypes.get_errno()
    return pages


def _by_file(code: bytes, size: int) -> Pages | int:
    """A file in memory mapped for execution, for systems where memory that was writable may not become code."""
    try:
        file = os.memfd_create("zinc_rt")
    except OSError as error:
        return error.errno or errno.EACCES
    try:
        os.truncate(file, size)
        os.pwrite(file, code, 0)
        address = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, 0)
        return ctypes.get_errno() if address == _MAP_FAILED else Pages(address, size)
    except OSError as error:
        return error.errno or errno.EACCES
    finally:
        os.close(file)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
