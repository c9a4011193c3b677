"""Driver state per GPU (not per open file): offsets for mmap, kernel rings, doorbells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amdgpu_emu.drm import reset
from amdgpu_emu.drm.rings import KernelRing, RingId
from amdgpu_emu.memory import BufferObject
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile
    from amdgpu_emu.drm.userq import UserQueue
    from amdgpu_emu.gpu import Gpu

FIRST_OFFSET = 0x1_0000_0000
"""The first fake offset of a DRM device (drm_vma_manager.h)."""


@dataclass(eq=False)
class MapNode:
    """A buffer in the space of mmap offsets. users: open files that may map it, with how many reasons;
    refused: why the processor may not map it, empty when it may.
    """

    bo: BufferObject
    start: int
    refused: str = ""
    users: dict[DrmFile, int] = field(default_factory=dict)

    def allow(self, file: DrmFile) -> None:
        """Count one more reason for a file to map the buffer."""
        self.users[file] = self.users.get(file, 0) + 1

    def revoke(self, file: DrmFile) -> None:
        """Count one reason less."""
        self.users[file] -= 1
        if not self.users[file]:
            del self.users[file]


class DrmDevice:
    """The driver's state of one GPU, made when its device file is first opened."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.files: list[DrmFile] = []
        self.doorbells: dict[tuple[BufferObject, int], UserQueue] = {}  # page and index of a user queue's doorbell
        self._nodes: dict[int, MapNode] = {}
        self._next_offset = FIRST_OFFSET
        self._rings: dict[RingId, KernelRing] = {}
        gpu.at_reset.append(lambda: reset.card_was_reset(self))

    def add_node(self, bo: BufferObject, refused: str = "") -> MapNode:
        """Give a buffer an mmap offset. Offsets are never reused, so a stale one finds nothing."""
        node = MapNode(bo, self._next_offset, refused)
        self._nodes[node.start] = node
        self._next_offset += (bo.size + PAGE - 1) // PAGE * PAGE
        return node

    def node_at(self, offset: int) -> MapNode | None:
        """The buffer whose pages begin at an mmap offset."""
        return self._nodes.get(offset)

    def remove_node(self, node: MapNode) -> None:
        """Remove a buffer's mmap offset."""
        self._nodes.pop(node.start, None)

    def ring(self, ring: RingId) -> KernelRing:
        """Find a kernel ring; it is made when first used."""
        if ring not in self._rings:
            self._rings[ring] = KernelRing(self, ring)
        return self._rings[ring]

    def rings(self) -> list[KernelRing]:
        """All kernel rings that were used."""
        return list(self._rings.values())

    def log(self, line: str) -> None:
        """Write a line into the kernel's log."""
        self.gpu.machine.dmesg.append(f"amdgpu {self.gpu.render_node.rpartition('/')[2]}: {line}")


def device_of(gpu: Gpu) -> DrmDevice:
    """The driver's state of a GPU."""
    if gpu.drm is None:
        gpu.drm = DrmDevice(gpu)
    return gpu.drm
