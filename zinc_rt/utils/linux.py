"""The one way to the operating system: files, ioctls, memory maps, sysfs, clock, and stores that a device sees.

Everything that talks to the amdgpu driver takes a `Linux` as an argument; `host()` is the real one, and the emulator
(`amdgpu_emu`) stands behind the same methods. They raise `OSError` with the kernel's errno and interpret nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC = 0, 1, 2, 4
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
PAGE = 4096
"""Bytes of a page of the GPU and of every processor that these drivers run beside."""

Argument = ctypes.Structure | ctypes.Union
_AGAIN_SECONDS = 5.0
_FENCES = {
    "x86_64": bytes((0x0F, 0xAE, 0xF8, 0xC3)),  # sfence; ret
    "aarch64": bytes.fromhex("9f3e03d5c0035fd6"),  # dsb st; ret: the whole system, devices are beyond the inner domain
}


class LastErrno(threading.local):
    """The errno of a thread's latest call of some kind; None when it went well or there was none yet."""

    errno: int | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """One call: what was there before is forgotten, the errno of an `OSError` is kept."""
        self.errno = None
        try:
            yield
        except OSError as error:
            self.errno = error.errno
            raise


class Linux:
    """The running system. An emulated one overrides every method; addresses are the process's own in both."""

    @property
    def is_linux(self) -> bool:
        """Whether amdgpu can exist here. When not, nothing else of this class may be called."""
        return sys.platform.startswith("linux")

    def kernel_release(self) -> str:
        """As `uname -r` prints it."""
        return platform.release()

    # Files.

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CLOEXEC) -> int:
        """A file descriptor."""
        return os.open(path, flags)

    def close(self, fd: int) -> None:
        """Give a descriptor back."""
        os.close(fd)

    def read_text(self, path: str) -> str:
        """A whole small file, as those of sysfs."""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def list_dir(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        return sorted(os.listdir(path))

    def stat(self, path: str) -> os.stat_result:
        """Owner and mode of a file."""
        return os.stat(path)

    def groups(self) -> list[int]:
        """Group ids of the process."""
        return sorted({os.getegid(), *os.getgroups()})

    def pid(self) -> int:
        """The process."""
        return os.getpid()

    # Devices.

    def ioctl(self, fd: int, request: int, argument: Argument) -> int:
        """What the call returned. An interrupted call is repeated (a signal's Python handler runs first, so Ctrl-C
        gets through); one that shall be tried again is, for five seconds.
        """
        started = time.monotonic()
        while True:
            result = int(_libc().ioctl(fd, ctypes.c_ulong(request), ctypes.byref(argument)))
            if result >= 0:
                return result
            code = ctypes.get_errno()
            again = code == errno.EAGAIN and time.monotonic() - started < _AGAIN_SECONDS
            if code != errno.EINTR and not again:
                raise OSError(code, os.strerror(code))
            time.sleep(0.0005 if again else 0)

    def mmap(self, address: int, length: int, protection: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        """Address of the new map. offset: any 64 bits; amdkfd's are beyond what Python's own mmap takes."""
        signed = ctypes.c_int64(offset & (1 << 64) - 1).value
        result = _libc().mmap(address or None, length, protection, flags, fd, signed)
        if result in (None, ctypes.c_void_p(-1).value):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(result)

    def munmap(self, address: int, length: int) -> None:
        """Undo a map."""
        if _libc().munmap(address, length):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def keep(self, *, fd: int | None = None, address: int | None = None) -> None:
        """This descriptor, or the map at this address, stays until the process ends, on purpose: the driver binds it to
        the process. Nothing happens here; the emulator's search for leaks leaves it out.
        """

    # Words that a device sees: one load or store each, never split, never left out.

    def load32(self, address: int) -> int:
        """An aligned u32 of memory."""
        return ctypes.c_uint32.from_address(address).value

    def load64(self, address: int) -> int:
        """An aligned u64 of memory."""
        return ctypes.c_uint64.from_address(address).value

    def store32(self, address: int, value: int) -> None:
        """Write an aligned u32."""
        ctypes.c_uint32.from_address(address).value = value

    def store64(self, address: int, value: int) -> None:
        """Write an aligned u64: a write pointer, a doorbell."""
        ctypes.c_uint64.from_address(address).value = value

    def store_fence(self) -> None:
        """Every store before is visible to devices before any store after: also those to write-combined memory."""
        _store_fence()()

    # Time.

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, which amdgpu's absolute timeouts count in."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Let others run."""
        time.sleep(seconds)


@cache
def host() -> Linux:
    """The system that this process runs on."""
    return Linux()


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)
    libc.ioctl.restype = ctypes.c_int
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    )
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc


@cache
def _store_fence() -> Callable[[], object]:
    """The processor's store fence as a function; where code pages are refused, a lock, whose atomic exchange drains
    the store and write-combining buffers of x86 as well.
    """
    code = _FENCES.get(platform.machine())
    if code is not None:
        try:
            return ctypes.CFUNCTYPE(None)(_code_page(code))
        except OSError:
            pass
    lock = threading.Lock()

    def locked() -> None:
        with lock:
            pass

    return locked


def _code_page(code: bytes) -> int:
    """Address of a page that holds `code`, executable and no longer writable."""
    libc = _libc()
    address = Linux().mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
    ctypes.memmove(address, code, len(code))
    if libc.mprotect(address, PAGE, PROT_READ | PROT_EXEC):
        error = ctypes.get_errno()
        Linux().munmap(address, PAGE)
        raise OSError(error, os.strerror(error))
    return address
