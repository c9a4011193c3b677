"""The registers of one queue, and the dispatch that they describe."""

from __future__ import annotations

from collections.abc import Callable

from amdgpu_emu.errors import GpuHang
from amdgpu_emu.models import GpuModel
from amdgpu_emu.shader import Dispatch, Scratch, Triple
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4.builder import CS_W32_EN, USE_THREAD_DIMENSIONS

_ALL = 0xFFFFFFFF
_LEFT = (
    reg.NUM_THREAD_X, reg.NUM_THREAD_Y, reg.NUM_THREAD_Z, reg.PGM_LO, reg.PGM_HI, reg.PGM_RSRC1, reg.PGM_RSRC2,
    reg.PGM_RSRC3, reg.RESOURCE_LIMITS, *reg.USER_ACCUM, reg.DISPATCH_INTERLEAVE, reg.DISPATCH_TUNNEL,
)  # fmt: skip
"""Registers of each dispatch that other programs write, too, in their preambles (Mesa's `ac_preamble.c`) or for their
dispatches; the masks of shader engines are of this kind.
"""
_READ = (
    *_LEFT, reg.TMPRING_SIZE, reg.RESTART_X, reg.RESTART_Y, reg.RESTART_Z, reg.PIPELINESTAT_ENABLE,
    reg.PERFCOUNT_ENABLE,
)  # fmt: skip
_OPENED = {"cs": 4, "umq": 4, "kfd": 8}
"""Shader engines that kernels open for a queue (`gfx_v11_0_compute_mqd_init`, and amdkfd's `init_mqd`); a card may have
more.
"""
_ANOTHER = -1
"""In place of an indirect buffer's number: another program's."""
_PARTIAL, _FORCE_START = 1 << 1, 1 << 2
_MAX_THREADS = 1024
_MAX_LDS = 64 << 10


class Registers:
    """The registers of a queue: SH registers by offset, others by dword address, as another program left them.

    report: called with kind and text of a finding. kind: of the queue, "cs", "kfd" or "umq".
    """

    def __init__(self, model: GpuModel, report: Callable[[str, str], None], kind: str) -> None:
        self.gfx, self._report, self._compute_units = model.gfx, report, model.cu
        self._untrapped = kind == "kfd" and model.gfx[:2] == (11, 0)  # as amdkfd makes the queues of these cores
        self._engines = reg.STATIC_THREAD_MGMT[: model.shader_engines]
        self.names = reg.registers(model.gfx[0])
        self.sh = [0] * reg.SH_COUNT
        for offset in reg.STATIC_THREAD_MGMT[: _OPENED[kind]]:
            self.sh[offset] = _ALL
        self.other: dict[int, int] = {}
        self._buffer = 0  # number of the indirect buffer that runs; 0 for packets in a ring
        self._written = [0] * reg.SH_COUNT  # by which of them, 0 also where nothing was written
        for offset in (*_LEFT, *reg.STATIC_THREAD_MGMT):
            self._written[offset] = _ANOTHER
        self._reported: set[int] = set()

    def begin_buffer(self) -> None:
        """An indirect buffer begins. What another one left is not its own: another program may have come between."""
        self._buffer += 1

    def set_sh(self, offset: int, values: tuple[int, ...] | list[int], *, inner: bool = True) -> None:
        """Write consecutive SH registers; inner: from an indirect buffer. Raises `GpuHang` beyond the last."""
        if offset + len(values) > reg.SH_COUNT:
            last = offset + len(values) - 1
            raise GpuHang(f"registers {offset:#x}..{last:#x}: the SH space ends at {reg.SH_COUNT - 1:#x}")
        for i, value in enumerate(values, offset):
            self.sh[i] = value
            self._written[i] = self._buffer if inner else 0
            if i not in self.names:
                self._report("unknown-register", f"SH register {i:#x} is none of a compute dispatch")

    def read(self, address: int) -> int:
        """Read a register by its dword address."""
        if reg.SH_BASE <= address < reg.SH_BASE + reg.SH_COUNT:
            return self.sh[address - reg.SH_BASE]
        return self.other.get(address, 0)

    def write(self, address: int, value: int) -> None:
        """Write a register by its dword address. A write to the flush register flushes host writes."""
        if reg.SH_BASE <= address < reg.SH_BASE + reg.SH_COUNT:
            self.set_sh(address - reg.SH_BASE, (value,))
            return
        self.other[address] = value
        if address == reg.HDP_FLUSH_REQUEST:
            self.other[reg.HDP_FLUSH_DONE] = value

    def dispatch(self, x: int, y: int, z: int, initiator: int) -> Dispatch:
        """Make the dispatch that the registers describe. Raises `GpuHang` if no hardware could run it."""
        sh = self.sh
        rsrc1, rsrc2, rsrc3 = sh[reg.PGM_RSRC1], sh[reg.PGM_RSRC2], sh[reg.PGM_RSRC3]
        user = range(reg.USER_DATA_0, reg.USER_DATA_0 + min(rsrc2 >> 1 & 0x1F, reg.USER_DATA_COUNT))
        self._check_left((*_READ, *self._engines, *user))
        threads = self._threads()
        start: Triple = (0, 0, 0)
        if not initiator & _FORCE_START:
            start = (sh[reg.START_X], sh[reg.START_X + 1], sh[reg.START_X + 2])
        if initiator & USE_THREAD_DIMENSIONS:
            groups: Triple = (-(-x // threads[0]), -(-y // threads[1]), -(-z // threads[2]))
            grid: Triple = (x, y, z)
        else:
            groups = (x, y, z)
            last = self._last(threads, initiator)
            grid = (
                (x - 1) * threads[0] + last[0],
                (y - 1) * threads[1] + last[1],
                (z - 1) * threads[2] + last[2],
            )
        compute_units = self._open_units()
        for offset in (reg.PGM_HI, reg.PGM_RSRC1, reg.PGM_RSRC2, reg.PGM_RSRC3, reg.TMPRING_SIZE):
            register = self.names[offset]
            if register.reserved(sh[offset]):
                self._report(
                    "reserved-bits",
                    f"{register.name} is {sh[offset]:#x}: {register.reserved(sh[offset]):#x} is reserved",
                )
        if self._untrapped and not rsrc1 & reg.RSRC1_PRIV:
            self._report(
                "unprivileged",
                f"a dispatch has COMPUTE_PGM_RSRC1 {rsrc1:#x} without PRIV: amdkfd turns traps off on this core, and "
                "waves without PRIV cannot be saved when the queue is preempted",
            )
        user_sgprs = rsrc2 >> 1 & 0x1F
        if user_sgprs > reg.USER_DATA_COUNT:
            raise GpuHang(f"RSRC2 asks for {user_sgprs} user registers; there are {reg.USER_DATA_COUNT}")
        lds = (rsrc2 >> 15 & 0x1FF) * reg.LDS_GRANULE
        if lds > _MAX_LDS:
            raise GpuHang(f"RSRC2 asks for {lds} bytes of LDS; a workgroup has at most {_MAX_LDS}")
        return Dispatch(
            (sh[reg.PGM_LO] | (sh[reg.PGM_HI] & 0xFF) << 32) << 8,
            groups, threads, grid, start, bool(initiator & CS_W32_EN),
            tuple(sh[reg.USER_DATA_0 : reg.USER_DATA_0 + reg.USER_DATA_COUNT]),
            rsrc1, rsrc2, rsrc3, lds, self._scratch() if rsrc2 & 1 else None, initiator, self.gfx,
            compute_units,
        )  # fmt: skip

    def _open_units(self) -> int:
        """Compute units of the engines that the dispatch may use; the others are reported.

        Raises `GpuHang` where there are none.
        """
        closed = [self.names[offset].name for offset in self._engines if not self.sh[offset]]
        if len(closed) == len(self._engines):
            raise GpuHang("COMPUTE_STATIC_THREAD_MGMT leaves no compute unit to run on")
        if closed:
            self._report("closed-engine", f"a dispatch leaves shader engines unused: {', '.join(closed)} is 0")
        return self._compute_units * (len(self._engines) - len(closed)) // len(self._engines)

    def _check_left(self, used: tuple[int, ...]) -> None:
        """Report registers that a dispatch uses and that an earlier indirect buffer wrote last."""
        for offset in used:
            if self._written[offset] not in (0, self._buffer) and offset not in self._reported:
                self._reported.add(offset)
                before = "another program" if self._written[offset] == _ANOTHER else "an earlier indirect buffer"
                self._report(
                    "left-register",
                    f"a dispatch uses {self.names[offset].name} as {before} left it; each has to set "
                    "what its dispatches need",
                )

    def _threads(self) -> Triple:
        mask = 0x1FFF if self.gfx[0] >= 12 else 0xFFFF
        x, y, z = (self.sh[reg.NUM_THREAD_X + i] & mask for i in range(3))
        if not x * y * z:
            raise GpuHang(f"COMPUTE_NUM_THREAD is {x}x{y}x{z}; a workgroup needs threads")
        if x * y * z > _MAX_THREADS:
            raise GpuHang(f"COMPUTE_NUM_THREAD is {x}x{y}x{z}; a workgroup has at most {_MAX_THREADS} threads")
        return x, y, z

    def _last(self, threads: Triple, initiator: int) -> Triple:
        """Threads of the last workgroup of each dimension."""
        parts = (self.sh[reg.NUM_THREAD_X + i] >> 16 if initiator & _PARTIAL else 0 for i in range(3))
        x, y, z = (part or full for part, full in zip(parts, threads, strict=True))
        return x, y, z

    def _scratch(self) -> Scratch:
        sh = self.sh
        size = sh[reg.TMPRING_SIZE]
        waves, wave = size & 0xFFF, (size >> 12 & (0x3FFFF if self.gfx[0] >= 12 else 0x7FFF)) * 256
        base = (sh[reg.SCRATCH_BASE_LO] | (sh[reg.SCRATCH_BASE_HI] & 0xFF) << 32) << 8
        if not waves or not wave:
            raise GpuHang(f"RSRC2 enables scratch, and COMPUTE_TMPRING_SIZE {size:#x} gives {waves} waves {wave} bytes")
        return Scratch(base, wave, waves)
