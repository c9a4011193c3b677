"""An interface that keeps packets and memory in this process: for tests of what stands above."""

from __future__ import annotations

import ctypes

from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.interface import DeviceBuffer, DeviceInfo, Heap, HostUse, Interface
from zinc_rt.utils.linux import Linux, host

DEVICE = DeviceInfo("/dev/dri/renderD128", 120001, 64, 1 << 35, 1 << 35, "no driver")


class FakeInterface(Interface):
    """limit: bytes that it has. Submissions retire when `retire` says so."""

    name = "fake"

    def __init__(self, limit: int = 1 << 40, device: DeviceInfo = DEVICE) -> None:
        self.linux: Linux = host()
        self.device, self.limit = device, limit
        self.live: dict[DeviceBuffer, object] = {}
        self.submissions: list[list[int]] = []
        self.done = 0
        self.closed = False
        self._next = 0x1_0000_0000

    def allocate(
        self,
        size: int,
        heap: Heap,
        label: str,
        *,
        executable: bool = False,
        visible: bool = True,
        use: HostUse = "writes",
    ) -> DeviceBuffer:
        if sum(b.size for b in self.live) + size > self.limit:
            raise InterfaceError(f"{label}: {size} bytes", 12)
        memory = (ctypes.c_uint8 * size)() if visible else None
        address = ctypes.addressof(memory) if memory is not None else None
        buffer = DeviceBuffer(self._next, size, heap, address, len(self.live) + 1, label)
        self._next += size + 4096
        self.live[buffer] = memory
        return buffer

    def release(self, buffer: DeviceBuffer) -> None:
        del self.live[buffer]

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        assert buffer.address is not None
        words = (ctypes.c_uint32 * n_dwords).from_address(buffer.address + offset)
        self.submissions.append(list(words))
        return 10 * len(self.submissions)  # an interface's numbers are its own

    def retired(self) -> int:
        return 10 * self.done

    def wait(self, sequence: int, timeout: float) -> None:
        self.done = max(self.done, sequence // 10)

    def close(self) -> None:
        self.closed = True
