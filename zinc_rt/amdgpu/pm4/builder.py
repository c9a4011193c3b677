"""Writes PM4 packets into a caller's buffer of dwords. It knows the packets' syntax and nothing else.

The first thirteen methods are those of the seed's page. The others are packets of the driver, and of the tests of the
emulated command processor. Packets without a method of their own are written by name, with `packet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from typing import Any

from zinc_rt.amdgpu.pm4 import opcodes as op
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4 import values as v
from zinc_rt.amdgpu.pm4.errors import InvalidField, OutOfSpace
from zinc_rt.amdgpu.pm4.fields import DWORD, Fields

DISPATCH_INITIATOR_COMPUTE = 5
"""COMPUTE_SHADER_EN and FORCE_START_AT_000: a dispatch that runs, from group 0 on, in waves of 64."""
CS_W32_EN = 1 << 15
"""With it in the initiator, waves have 32 lanes; the program must be compiled for that."""
USE_THREAD_DIMENSIONS = 1 << 5

ACQUIRE_HOST = 0xC3B1
"""gcr_cntl that makes all host writes visible: what the kernel emits before an indirect buffer with EMIT_MEM_SYNC."""
ACQUIRE_KERNEL = 0x10180
"""gcr_cntl between dispatches of one queue on gfx12: the scalar and vector caches are dropped, in order."""
RELEASE_CONTROL = 0x06600514
"""First body dword of a fence as Linux writes it on gfx12: end of pipe, L2 written back in order, the value stored for
the last use. It reaches the host because it goes to memory (dst_sel 0) of a type that the L2 does not keep (UC).
"""
_WHOLE_SIZE = 0xFF_FFFF_FFFF


def lo32(value: int) -> int:
    """The low dword of a 64-bit number."""
    return value & DWORD


def hi32(value: int) -> int:
    """The high dword of a 64-bit number."""
    return value >> 32 & DWORD


class PacketBuilder:
    """A cursor over `words`, which never grow. u32[n]: an array of NumPy or ctypes, a memoryview, a list.

    Every packet raises `OutOfSpace` when it does not fit, and then has written nothing; `InvalidField` for a value that
    does not fit its field. The header is written after the body: a reader that polls it sees a whole packet.
    """

    def __init__(self, words: MutableSequence[int] | Any) -> None:
        self.words = words
        self.cursor = 0
        self._by_slice = isinstance(words, list) or hasattr(words, "dtype")

    @property
    def space(self) -> int:
        """Dwords that are left."""
        return len(self.words) - self.cursor

    def reset(self) -> None:
        """Back to the start; the buffer keeps its dwords."""
        self.cursor = 0

    def written(self) -> Any:
        """The dwords so far: a view when the buffer's slices are views, as those of NumPy are."""
        return self.words[: self.cursor]

    def write_nop(self, payload_dwords: int) -> None:
        """NOP with as many zero dwords, at least one."""
        self._emit(op.NOP, [0] * max(1, payload_dwords))

    def set_sh_reg(self, reg_offset: int, values: Sequence[int]) -> None:
        """Consecutive registers from an offset on; no values, no packet."""
        if len(values):
            self._set(op.SET_SH_REG, reg_offset, values, reg.SH_COUNT)

    def set_sh_reg_one(self, reg_offset: int, value: int) -> None:
        """One register."""
        self.set_sh_reg(reg_offset, (value,))

    def set_user_data64(self, slot: int, value: int) -> None:
        """Two user-data slots from `slot` on, the low dword first."""
        self.set_sh_reg(reg.USER_DATA_0 + slot, (lo32(value), hi32(value)))

    def dispatch_direct(self, x: int, y: int, z: int) -> None:
        """A dispatch with an initiator of zero, which runs nothing: for tests of syntax."""
        self.dispatch_direct_initiator(x, y, z, 0)

    def dispatch_direct_initiator(self, x: int, y: int, z: int, initiator: int) -> None:
        """Run `x`*`y`*`z` workgroups. initiator: `DISPATCH_INITIATOR_COMPUTE` and what else it shall say."""
        self._emit(op.DISPATCH_DIRECT, (x, y, z, initiator))

    def release_mem_signal(self, address: int, value: int) -> None:
        """Write 64 bits when all waves before are done and their writes have left the L2. Needs gfx10 or newer."""
        self._emit(op.RELEASE_MEM, (RELEASE_CONTROL, v.ReleaseData.WORD64 << 29, *_split(address, 8), *_long(value), 0))

    def write_data64(self, address: int, value: int) -> None:
        """Write 64 bits, at once: it waits for the write, not for running waves."""
        self.write_data(address, _long(value))

    def copy_data32(self, source: int, target: int) -> None:
        """Copy a dword from memory to memory, named as older drivers do."""
        self._copy(v.CopySrc.L2_OBSOLETE, source, target, v.Count.DWORD)

    def pad_to_alignment(self, n: int) -> None:
        """One NOP up to the next multiple of `n` dwords; a gap of one dword grows by `n`. 0: nothing."""
        gap = -self.cursor % n if n else 0
        if gap:
            self.write_nop((gap if gap > 1 else gap + n) - 1)

    # Beyond the seed's page.

    def packet(self, name: str, **fields: int | tuple[int, ...]) -> None:
        """Any packet of the table by its name and the names of its fields; fields that are not given are zero."""
        spec = next((spec for spec in op.PACKETS.values() if spec.name == name), None)
        if spec is None:
            raise InvalidField(f"no packet is named {name}")
        self._emit(spec.opcode, encode(spec.opcode, fields))

    def set_sh_regs(self, values: Mapping[int, int]) -> None:
        """Registers by offset, a packet for each run of neighbours; without room for all of them, none."""
        runs = list(_runs(values))
        self._room(sum(2 + len(run) for _, run in runs))
        for offset, run in runs:
            self.set_sh_reg(offset, run)

    def dispatch_indirect(self, address: int, initiator: int) -> None:
        """A dispatch whose three group counts are in memory, in the form of compute queues: the address is inline."""
        self._emit(op.DISPATCH_INDIRECT, (*_split(address, 4), initiator))

    def write_data(self, address: int, values: Sequence[int], dst: v.WriteDst = v.WriteDst.MEMORY) -> None:
        """Write dwords to memory, and wait until they are there."""
        self._emit(op.WRITE_DATA, (dst << 8 | 1 << 20, *_split(address, 4), *values))

    def write_data32(self, address: int, value: int) -> None:
        """Write one dword."""
        self.write_data(address, (value,))

    def copy_dword(self, source: int, target: int) -> None:
        """Copy a dword from memory to memory."""
        self._copy(v.CopySrc.L2, source, target, v.Count.DWORD)

    def copy_data64(self, source: int, target: int) -> None:
        """Copy 64 bits from memory to memory."""
        self._copy(v.CopySrc.L2, source, target, v.Count.QWORD)

    def copy_clock(self, target: int) -> None:
        """Store the GPU's counter, 64 bits, at once."""
        control = v.CopySrc.GPU_CLOCK | v.CopyDst.MEMORY << 8 | v.Count.QWORD << 16 | 1 << 20
        self._emit(op.COPY_DATA, (control, 0, 0, *_split(target, 8)))

    def event_write(self, event: v.EventType, index: v.EventIndex) -> None:
        """An event without an address."""
        self._emit(op.EVENT_WRITE, (event | index << 8,))

    def cs_partial_flush(self) -> None:
        """Wait until all waves before are done. Their writes are in the L2 then."""
        self.event_write(v.EventType.CS_PARTIAL_FLUSH, v.EventIndex.PARTIAL_FLUSH)

    def acquire_mem(self, gcr: int = ACQUIRE_KERNEL, poll_interval: int = 10) -> None:
        """Drop and write back caches, for all of memory. gcr: what and in which order, as `ACQUIRE_HOST`."""
        size = (lo32(_WHOLE_SIZE), hi32(_WHOLE_SIZE))
        self._emit(op.ACQUIRE_MEM, (0, *size, 0, 0, poll_interval, gcr))

    def release_mem(
        self,
        address: int,
        value: int,
        *,
        control: int = RELEASE_CONTROL,
        data: v.ReleaseData = v.ReleaseData.WORD64,
        interrupt: v.ReleaseInt = v.ReleaseInt.NONE,
        dst: v.ReleaseDst = v.ReleaseDst.MEMORY,
        context_id: int = 0,
    ) -> None:
        """The full end-of-pipe fence: event and caches in `control`, what is written where, which interrupt."""
        select = dst << 16 | interrupt << 24 | data << 29
        align = 8 if data >= v.ReleaseData.WORD64 else 4
        self._emit(op.RELEASE_MEM, (control, select, *_split(address, align), *_long(value), context_id))

    def wait_mem(
        self,
        address: int,
        value: int,
        function: v.Compare = v.Compare.GREATER_EQUAL,
        mask: int = DWORD,
        temporal: v.Temporal = v.Temporal.RT,
    ) -> None:
        """Stop until the masked dword at `address` compares so with `value`."""
        control = function | v.PollSpace.MEMORY << 4 | temporal << 25
        self._emit(op.WAIT_REG_MEM, (control, *_split(address, 4), value, mask, 4))

    def hdp_flush(self) -> None:
        """Let host writes to VRAM arrive, and wait until they have."""
        control = v.Compare.GREATER_EQUAL | v.WaitOperation.WRITE_WAIT << 6
        self._emit(op.WAIT_REG_MEM, (control, reg.HDP_FLUSH_REQUEST, reg.HDP_FLUSH_DONE, DWORD, DWORD, 4))

    def indirect_buffer(self, address: int, n_dwords: int, *, chain: bool = False, inherit_vmid: bool = False) -> None:
        """Run other packets: from a ring a call; from an indirect buffer a jump, which needs `chain`. inherit_vmid:
        read them in the address space of the queue's descriptor, as user queues of the render node need it.
        """
        if not 0 < n_dwords < 1 << 20:
            raise InvalidField(f"n_dwords is {n_dwords}; an indirect buffer has 1 to {(1 << 20) - 1}")
        self._emit(op.INDIRECT_BUFFER, (*_split(address, 4), n_dwords | chain << 20 | 1 << 23 | inherit_vmid << 30))

    def cond_exec(self, address: int, n_dwords: int) -> None:
        """Skip the next `n_dwords` when the dword at `address` is zero."""
        self._emit(op.COND_EXEC, encode(op.COND_EXEC, {"address": address, "n_dwords": n_dwords}))

    def _copy(self, source_kind: v.CopySrc, source: int, target: int, count: v.Count) -> None:
        align = 8 if count else 4
        control = source_kind | v.CopyDst.MEMORY << 8 | count << 16 | 1 << 20
        self._emit(op.COPY_DATA, (control, *_split(source, align), *_split(target, align)))

    def _set(self, opcode: int, offset: int, values: Sequence[int], count: int) -> None:
        if not 0 <= offset <= count - len(values) or not len(values):
            raise InvalidField(f"{len(values)} registers from {offset:#x} on; there are {count:#x}")
        self._emit(opcode, (offset, *values))

    def _room(self, n: int) -> None:
        if n > len(self.words) - self.cursor:
            raise OutOfSpace(f"{n} dwords do not fit: {self.space} of {len(self.words)} are left")

    def _emit(self, opcode: int, body: Sequence[int]) -> None:
        n, at, words = len(body), self.cursor, self.words
        if n > op.MAX_BODY:
            raise InvalidField(f"{op.name_of(opcode)} with {n} dwords; a packet has at most {op.MAX_BODY}")
        self._room(n + 1)
        if max(body) > DWORD or min(body) < 0:
            bad = next(word for word in body if not 0 <= word <= DWORD)
            raise InvalidField(f"{op.name_of(opcode)}: {bad:#x} is no dword")
        words[at] = 0
        if self._by_slice:
            words[at + 1 : at + 1 + n] = body
        else:
            for i, word in enumerate(body, at + 1):
                words[i] = int(word)
        words[at] = op.header(opcode, n)
        self.cursor = at + n + 1


def encode(opcode: int, fields: Fields, n_body: int | None = None) -> list[int]:
    """A packet's body from its fields. n_body: its length, for optional dwords. Raises `InvalidField`."""
    spec = op.PACKETS.get(opcode)
    if spec is None:
        raise InvalidField(f"{op.name_of(opcode)} is not in the table")
    return spec.encode(fields, n_body)


def _long(value: int) -> tuple[int, int]:
    if not 0 <= value < 1 << 64:
        raise InvalidField(f"{value:#x} is no 64-bit number")
    return lo32(value), hi32(value)


def _split(address: int, align: int) -> tuple[int, int]:
    if address % align:
        raise InvalidField(f"address {address:#x} is not a multiple of {align}")
    return _long(address)


def _runs(values: Mapping[int, int]) -> Iterable[tuple[int, list[int]]]:
    start, run = 0, list[int]()
    for offset in sorted(values):
        if run and offset != start + len(run):
            yield start, run
            run = []
        if not run:
            start = offset
        run.append(values[offset])
    if run:
        yield start, run
