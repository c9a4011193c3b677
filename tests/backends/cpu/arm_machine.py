"""aarch64 code on any machine: qemu's user emulation runs it, in memory that this process has at the same addresses.

A `Machine` is a stretch of memory and processes of qemu-aarch64 that map it too. Both sides see code and data
in it with the same pointers, so a call is an address and its arguments.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import shutil
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
"""The emulator; Debian's packages qemu-user and qemu-user-static have it."""

_BASE = 0x10_0000_0000  # free in this process and in qemu's: below where both put what has no place of its own
_SIZE = 1 << 34  # of addresses; memory is what is touched
_DRIVER = 0x40_0000
_ARGUMENTS = 6
_COMMAND = struct.Struct(f"<{1 + _ARGUMENTS}Qq")
_TIMEOUT = 300.0  # seconds for one call
_MAP_FIXED_NOREPLACE = 0x100000


def _constant(register: int, value: int) -> list[int]:
    """movz, then movk for the other halves: any number into an x register."""
    halves = [(value >> 16 * i) & 0xFFFF for i in range(4)]
    first = 0xD2800000 | halves[0] << 5 | register
    return [first, *(0xF2800000 | i << 21 | half << 5 | register for i, half in enumerate(halves) if i and half)]


def _driver(file: int) -> bytes:
    """Map the memory, then for ever: read a command, call, write x0. Register numbers and calls are Linux's."""
    svc, sp = 0xD4000001, 31
    loads = [0xA9400000 | (1 + i) // 2 << 16 | (i + 1) << 10 | sp << 5 | i for i in range(1, _ARGUMENTS, 2)]
    loop = [
        *_constant(0, 0), 0x910003E1, *_constant(2, _COMMAND.size), *_constant(8, 63), svc,  # read(0, sp, size)
        0xF101001F, 0x54000000 | 17 << 5 | 1,  # cmp x0, #64; b.ne to exit
        0xA9400000 | 0 << 10 | sp << 5 | 9,  # ldp x9, x0, [sp]
        *loads,  # x1 ... from behind them
        0xD63F0000 | 9 << 5,  # blr x9
        0xF90003E0,  # str x0, [sp]
        *_constant(0, 1), 0x910003E1, *_constant(2, 8), *_constant(8, 64), svc,  # write(1, sp, 8)
    ]  # fmt: skip
    exits = [*_constant(8, 94), svc]
    jump = next(i for i, word in enumerate(loop) if word >> 24 == 0x54)
    loop[jump] = 0x54000000 | (len(loop) + 1 - jump) << 5 | 1
    loop.append(0x14000000 | (-len(loop) & 0x3FFFFFF))  # b to the read
    start = [
        *_constant(0, _BASE),
        *_constant(1, _SIZE),
        *_constant(2, 7),
        *_constant(3, 0x11),
        *_constant(4, file),
        *_constant(5, 0),
        *_constant(8, 222),
        svc,  # mmap, shared and fixed
        0xD10203FF,  # sub sp, sp, #128
    ]
    code = b"".join(struct.pack("<I", word) for word in (*start, *loop, *exits))
    size = 64 + 56 + len(code)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 183, 1, _DRIVER + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )  # ET_EXEC, EM_AARCH64, one program header
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, _DRIVER, _DRIVER, size, size, 4096) + code


class Process:
    """A qemu that maps the machine's memory and does calls, one at a time."""

    def __init__(self, driver: Path, file: int) -> None:
        assert QEMU is not None
        command = [QEMU, "-cpu", "max", str(driver)]
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[file]
        )

    def start(self, address: int, arguments: Sequence[int]) -> None:
        """Begin a call; `result` waits for its end."""
        assert self._process.stdin is not None
        given = [*arguments, *[0] * (_ARGUMENTS - len(arguments))]
        self._process.stdin.write(_COMMAND.pack(address, *given, 0))

    def result(self) -> int:
        """x0 of the call that was begun. Raises AssertionError when it ended the process, or does not end."""
        out = self._process.stdout
        assert out is not None
        assert select.select([out], [], [], _TIMEOUT)[0], "the emulated call does not return"
        answer = out.read(8)
        assert len(answer) == 8, f"the emulated call ended its process: {self._process.wait()}"
        return int.from_bytes(answer, "little")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Machine:
    """Memory at the same place on both sides, and processes on the emulated one. Memory that is let go is reused."""

    def __init__(self, folder: Path, processes: int = 2) -> None:
        self._file = os.memfd_create("aarch64")
        os.ftruncate(self._file, _SIZE)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        flags = mmap.MAP_SHARED | _MAP_FIXED_NOREPLACE
        at = libc.mmap(_BASE, _SIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, self._file, 0)
        assert at == _BASE, os.strerror(ctypes.get_errno())
        self._next = _BASE
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._sizes: dict[int, int] = {}
        driver = folder / "driver"
        driver.write_bytes(_driver(self._file))
        driver.chmod(0o700)
        self.processes = [Process(driver, self._file) for _ in range(processes)]

    def call(self, address: int, *arguments: int) -> int:
        """The result of a function."""
        self.processes[0].start(address, arguments)
        return self.processes[0].result()

    def allocate(self, size: int) -> int:
        """The address of zeroed memory at a multiple of 4096 from that size on, else of 64."""
        room = 64 << max(0, (size - 1).bit_length() - 6)
        if self._free[room]:
            at = self._free[room].pop()
            ctypes.memset(at, 0, size)
        else:
            step = min(room, mmap.PAGESIZE)
            at = -(-self._next // step) * step
            self._next = at + room
            assert self._next <= _BASE + _SIZE, "the memory shared with the emulated machine is full"
        self._sizes[at] = room
        return at

    def release(self, at: int) -> None:
        """Let memory go."""
        if at:
            self._free[self._sizes.pop(at)].append(at)

    def place(self, data: bytes) -> int:
        """The address of a copy at a multiple of 4096, which stays."""
        at = self.allocate(max(len(data), mmap.PAGESIZE))
        ctypes.memmove(at, data, len(data))
        return at

    @contextmanager
    def arrays(self) -> Iterator[None]:
        """Arrays that NumPy makes meanwhile in this thread lie in the machine's memory, wherever they are made."""
        api = np._core.multiarray._ARRAY_API  # type: ignore[attr-defined]
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        table = ctypes.cast(pointer(api, None) or 0, ctypes.POINTER(ctypes.c_void_p))
        # PyDataMem_SetHandler: entry 304 of NumPy's table of functions since 1.22.
        set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[304] or 0)
        before = set_handler(self._handler)
        try:
            yield
        finally:
            set_handler(before)

    @property
    def _handler(self) -> Any:
        """NumPy's description of an allocator, NEP 49."""
        if not hasattr(self, "_kept"):
            p, size = ctypes.c_void_p, ctypes.c_size_t

            def again(_: object, old: int | None, n: int) -> int:
                at = self.allocate(n)
                if old:
                    ctypes.memmove(at, old, min(n, self._sizes[old]))
                    self.release(old)
                return at

            calls = (
                ctypes.CFUNCTYPE(p, p, size)(lambda _, n: self.allocate(n)),
                ctypes.CFUNCTYPE(p, p, size, size)(lambda _, n, each: self.allocate(n * each)),
                ctypes.CFUNCTYPE(p, p, p, size)(again),
                ctypes.CFUNCTYPE(None, p, p, size)(lambda _, at, __: self.release(at or 0)),
            )
            addresses = (ctypes.cast(call, p).value or 0 for call in calls)
            record = ctypes.create_string_buffer(struct.pack("<127sB5Q", b"aarch64", 1, 0, *addresses))
            new = ctypes.PYFUNCTYPE(ctypes.py_object, p, ctypes.c_char_p, p)(("PyCapsule_New", ctypes.pythonapi))
            name = b"mem_handler"
            self._kept = (new(ctypes.addressof(record), name, None), record, name, calls)
        return self._kept[0]

    def close(self) -> None:
        """End the processes. The memory stays: arrays may lie in it."""
        for process in self.processes:
            process.close()
        os.close(self._file)
