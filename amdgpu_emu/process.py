"""A process of an emulated machine: `zinc_rt.utils.linux.Linux`, answered by the emulated kernel."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

from amdgpu_emu.drm.file import DrmFile
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.faults import ioctl_name
from amdgpu_emu.file import OpenFile
from amdgpu_emu.kfd.file import KfdFile, KfdProcess
from amdgpu_emu.memory import BufferObject
from amdgpu_emu.sysfs import SysFs
from zinc_rt.utils.linux import MAP_ANONYMOUS, Argument, Linux

if TYPE_CHECKING:
    from amdgpu_emu.machine import Machine

_FIRST_FD = 1 << 20  # far from the real ones: mixing them up is an EBADF


class Process(Linux):
    """A process of an emulated machine, made by `Machine.process`.

    It implements `zinc_rt.utils.linux.Linux`: code that takes a `Linux` runs on the emulated machine with it. Calls
    raise `CallRefused` (an `OSError` with the kernel's errno), also for calls that were made to fail.
    """

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine, self.number = machine, number
        self.kfd: KfdProcess | None = None
        self.ended = False
        self._files: dict[int, OpenFile] = {}
        self._maps: dict[int, tuple[int, BufferObject | None]] = {}  # address: length, what is mapped
        self._kept: set[int | None] = set()  # descriptors and addresses that are no leaks
        self._opener = os.getpid()
        self._sysfs = SysFs(machine)
        self._unfenced: dict[int, int] = {}  # by thread: stores that none of its fences followed
        self.fences = 0  # store fences so far
        self.submitted_at_fence = -1  # how many there were at the last submission

    @property
    def is_linux(self) -> bool:
        """True: an emulated machine is always Linux."""
        return True

    def kernel_release(self) -> str:
        """The release of the emulated kernel, as `uname -r` prints it."""
        return self.machine.profile.release

    def pid(self) -> int:
        """The emulated process id; in a forked child, the real one."""
        return self.number if os.getpid() == self._opener else os.getpid()

    def groups(self) -> list[int]:
        """The emulated group ids, sorted."""
        return sorted(self.machine.groups)

    # Files.

    def _check_process(self) -> None:
        # The lock may be held for ever in a child: the GPU's thread, which held it at the fork, is not there.
        if os.getpid() != self._opener:
            raise CallRefused(
                errno.EBADF, "the emulated machine lives in the process that made it; a forked child needs its own"
            )

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CLOEXEC) -> int:
        """Open a device file of the machine. Raises `CallRefused`."""
        self._check_process()
        with self.machine.lock:
            self.machine.faults.check("open", path)
            self._trace(f"open {path}")
            return self.add_file(self._open(path))

    def _open(self, path: str) -> OpenFile:
        machine = self.machine
        if path == "/dev/kfd" and machine.has_kfd:
            self._sysfs.check_access()
            return KfdFile.open(self)
        for gpu in machine.gpus if machine.has_dri else ():
            if path == gpu.render_node:
                self._sysfs.check_access()
                return DrmFile(self, gpu)
        raise CallRefused(errno.ENOENT, f"{path} does not exist here")

    def close(self, fd: int) -> None:
        """Close a descriptor. Raises `CallRefused` (EBADF)."""
        self._check_process()
        with self.machine.lock:
            file = self._file(fd)
            del self._files[fd]
            file.put()

    def file(self, fd: int) -> OpenFile | None:
        """The open file of a descriptor, for calls that take one as argument; None if it is not open."""
        return self._files.get(fd)

    def add_file(self, file: OpenFile) -> int:
        """Give an open file the lowest free descriptor: a device file, or a file of the kernel (a dma-buf, a sync
        file).
        """
        fd = next(fd for fd in range(_FIRST_FD, _FIRST_FD + len(self._files) + 1) if fd not in self._files)
        self._files[fd] = file
        return fd

    def _file(self, fd: int) -> OpenFile:
        if fd not in self._files:
            raise CallRefused(errno.EBADF, f"{fd} is not open")
        return self._files[fd]

    def read_text(self, path: str) -> str:
        """Read an emulated file as text. Raises `CallRefused`."""
        with self.machine.lock:
            return self._sysfs.read(path)

    def list_dir(self, path: str) -> list[str]:
        """Names in an emulated folder, sorted. Raises `CallRefused`."""
        with self.machine.lock:
            return self._sysfs.list(path)

    def stat(self, path: str) -> os.stat_result:
        """Kind, mode and owner of an emulated file. Raises `CallRefused` (ENOENT)."""
        with self.machine.lock:
            return self._sysfs.stat(path)

    # Devices.

    def ioctl(self, fd: int, request: int, argument: Argument) -> int:
        """Call the emulated driver. Raises `CallRefused`."""
        self._check_process()
        with self.machine.lock:
            name = ioctl_name(request)
            self.machine.faults.check(name)
            file = self._file(fd)
            try:
                result = file.ioctl(request, argument)
            except CallRefused as error:
                self._trace(f"{name} -> {errno.errorcode.get(error.errno or 0, error.errno)}: {error.why}")
                raise
            self._trace(f"{name} -> {result}")
            return result

    def mmap(self, address: int, length: int, protection: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        """Map a device file, or memory; returns the real address. Raises `CallRefused`."""
        self._check_process()
        with self.machine.lock:
            self.machine.faults.check("mmap")
            if flags & MAP_ANONYMOUS or fd < 0:
                at, bo = super().mmap(address, length, protection, flags), None
            else:
                bo = self._file(fd).find_map(length, protection, offset & (1 << 64) - 1)
                at = bo.map(address, length, protection, flags)
            self._forget_maps(at, length)
            self._maps[at] = (length, bo)
            return at

    def munmap(self, address: int, length: int) -> None:
        """Unmap a range of addresses. Raises `CallRefused`."""
        with self.machine.lock:
            # Addresses that this process has not mapped belong to others.
            if any(start < address + length and address < start + n for start, (n, _) in self._maps.items()):
                super().munmap(address, length)
                self._forget_maps(address, length)

    def _forget_maps(self, address: int, length: int) -> None:
        """Remove the maps in a range; parts of reserved ranges outside of it stay."""
        end = address + length
        for start, (n, bo) in tuple(self._maps.items()):
            if start >= end or start + n <= address:
                continue
            del self._maps[start]
            if bo is not None:
                if (start, n) in bo.mapped_at:
                    bo.mapped_at.remove((start, n))
                continue
            if start < address:
                self._maps[start] = (address - start, None)
            if start + n > end:
                self._maps[end] = (start + n - end, None)

    def keep(self, *, fd: int | None = None, address: int | None = None) -> None:
        """Exempt a descriptor, or the map at an address, from the leak findings at the end."""
        with self.machine.lock:
            self._kept |= {fd, address} - {None}

    def map_at(self, address: int) -> tuple[int, int, BufferObject] | None:
        """Start, length and buffer of the device map that holds an address, or None."""
        for start, (length, bo) in self._maps.items():
            if bo is not None and start <= address < start + length:
                return start, length, bo
        return None

    # Words.

    def store32(self, address: int, value: int) -> None:
        """Store a dword to memory that a device may watch."""
        with self.machine.lock:
            super().store32(address, value)
            self._stored(address, value)

    def store64(self, address: int, value: int) -> None:
        """Store a quadword; a store to a doorbell page rings the doorbell."""
        with self.machine.lock:
            super().store64(address, value)
            self._stored(address, value)

    def _stored(self, address: int, value: int) -> None:
        found = self.map_at(address)
        if found is not None and found[2].doorbell is not None:
            stores = self._unfenced.get(threading.get_ident(), 0)
            if stores:
                self.machine.report(
                    "missing-store-fence",
                    f"a doorbell rang with {stores} stores before it that no store fence follows",
                )
            found[2].doorbell(address - found[0], value)
            return
        me = threading.get_ident()
        self._unfenced[me] = self._unfenced.get(me, 0) + 1

    def store_fence(self) -> None:
        """Make all earlier stores of this thread visible to devices."""
        with self.machine.lock:
            super().store_fence()
            self._unfenced[threading.get_ident()] = 0
            self.fences += 1

    def submits(self, what: str) -> None:
        """Check a submission by ioctl: stores to write-combined maps need a store fence before it."""
        combined = any(bo is not None and bo.write_combined for _, bo in self._maps.values())
        if combined and self.fences == self.submitted_at_fence:
            self.machine.report("missing-store-fence", f"{what} without a store fence since the submission before")
        self.submitted_at_fence = self.fences

    # Time.

    def monotonic_ns(self) -> int:
        """The machine's own clock."""
        return self.machine.clock.now_ns()

    def sleep(self, seconds: float) -> None:
        """Let the GPUs run."""
        self.machine.clock.sleep(seconds)

    # The end.

    def exit(self) -> None:
        """End the process and close everything as the kernel does; everything still open is a finding."""
        with self.machine.lock:
            machine = self.machine
            self.ended = True
            if self.kfd is not None:
                self.kfd.exit()
                self.kfd = None
            for fd, file in tuple(self._files.items()):
                if fd not in self._kept:
                    machine.report("leak", f"descriptor {fd} of {file.path} was not closed")
                del self._files[fd]
                file.put()
            for at, (length, bo) in tuple(self._maps.items()):
                what = "address range" if bo is None else f"map of {bo.label}"
                if at not in self._kept:
                    machine.report("leak", f"{what}, {length} bytes at {at:#x}, was not unmapped")
            # The maps stay: arrays of the real process may still use them, and unmap them later.

    def kill(self) -> None:
        """End the process as a signal does, in the middle of its work: what it leaves open is no finding."""
        with self.machine.lock:
            before = len(self.machine.findings)
            self.exit()
            del self.machine.findings[before:]
            self._files.clear()
            self._maps.clear()

    def _trace(self, line: str) -> None:
        if self.machine.trace is not None:
            self.machine.trace.append(line)
