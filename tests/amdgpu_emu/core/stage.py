"""A shader core with memory, without driver and packets: buffers, and dispatches of kernels or raw code."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdgpu_emu.caches import Caches
from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.core.counters import Counters
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.shader import Dispatch, Scratch
from amdgpu_emu.shader_memory import ShaderMemory
from amdgpu_emu.vm import GpuVm, Mapping
from zinc_rt.lang.gpu import GpuKernel

PAGE = 4096
KERNEL = 0x10_0000
GFX = {"gfx1201": (12, 0, 1), "gfx1100": (11, 0, 0), "gfx1101": (11, 0, 1), "gfx1102": (11, 0, 2)}
S_ENDPGM = 0xBFB00000
S_CODE_END = 0xBF9F0000
RSRC1 = 0x0F << 16 | 0 << 12  # FLOAT_MODE 0xF0


class Stage:
    """core: with its limits, of a target. Buffers lie a page apart, from 0x1_0000_0000 on."""

    def __init__(self, target: str = "gfx1201", **how: Any) -> None:
        self.target, self.gfx = target, GFX[target]
        self.core = ShaderCore(**how)
        self.vm, self.caches = GpuVm("stage"), Caches()
        self._next = 0x1_0000_0000
        self._code = KERNEL

    def buffer(self, data: Any, label: str = "buffer", *, writable: bool = True, at: int | None = None) -> int:
        """Its address; data: an array, or a number of bytes."""
        array = (
            np.zeros(data, np.uint8) if isinstance(data, int) else np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        )
        size = -(-max(array.size, 1) // PAGE) * PAGE
        va = self._next if at is None else at
        bo = BufferObject(size, Placement.VRAM, label, uncached=True)
        bo.bytes[: array.size] = array
        self.vm.insert(Mapping(va, size, bo, 0, True, writable, at is not None))
        if at is None:
            self._next += size + PAGE
        return va

    def read(self, va: int, kind: Any, n: int) -> Any:
        """An array of n numbers."""
        mapping = self.vm.at(va)
        assert mapping is not None
        start = va - mapping.va
        return mapping.bo.bytes[start : start + n * np.dtype(kind).itemsize].view(kind).copy()

    def code(self, words: Sequence[int] | bytes) -> int:
        """The address of machine code, with s_code_end behind."""
        raw = words if isinstance(words, bytes) else struct.pack(f"<{len(words)}I", *words)
        raw += struct.pack("<I", S_CODE_END) * 64
        va = self._code
        self._code += (len(raw) // PAGE + 2) * PAGE
        return self.buffer(np.frombuffer(raw, np.uint8), "kernel", at=va)

    def dispatch(
        self,
        address: int,
        groups: tuple[int, int, int] = (1, 1, 1),
        threads: tuple[int, int, int] = (32, 1, 1),
        user_data: Sequence[int] = (),
        *,
        rsrc1: int = RSRC1 | 7,
        n_user: int | None = None,
        rsrc2: int = 0,
        lds: int = 0,
        scratch: int = 0,
        wave32: bool = True,
        grid: tuple[int, int, int] | None = None,
    ) -> Counters:
        """Run to the end."""
        count = len(user_data) if n_user is None else n_user
        private = None
        if scratch:
            private = Scratch(self.buffer(scratch * 64, "scratch"), scratch, 64)
        whole = tuple(g * t for g, t in zip(groups, threads, strict=True))
        made = Dispatch(
            address, groups, threads, grid or whole, (0, 0, 0), wave32, (*user_data, *[0] * (16 - len(user_data))),
            rsrc1, rsrc2 or count << 1, 0, lds, private, 1, self.gfx,
        )  # fmt: skip
        memory = ShaderMemory(self.caches, self.vm)
        self.core.run(made, memory)
        memory.retire()
        return self.core.counters[-1]

    def launch(
        self, kernel: GpuKernel, groups: int | tuple[int, int, int], *arguments: Any, code: bytes | None = None
    ) -> Counters:
        """A compiled kernel; pointers are addresses. code: in place of its own."""
        return self.dispatch(
            self.code(code or kernel.code[: kernel.size]),
            (groups, 1, 1) if isinstance(groups, int) else groups,
            (kernel.workgroup, 1, 1),
            kernel.user_data(*arguments),
            rsrc1=kernel.rsrc1,
            rsrc2=kernel.rsrc2 if self.gfx[0] == 11 else kernel.dwords << 1,
            lds=kernel.lds_bytes,
            scratch=kernel.scratch_bytes,
        )
