"""The loop over packets: indirect buffers, chained and called, and rings. `HANDLERS` has what the packets do.

Facts: `docs/how/pm4.md`. Every error names packet, dword offset and decoded text; nothing else comes out of any stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from amdgpu_emu.caches import Actions
from amdgpu_emu.cp import control_packets as control
from amdgpu_emu.cp import memory_packets as memory
from amdgpu_emu.cp import order_packets as order
from amdgpu_emu.cp.position import PacketFault, PacketHang, Position
from amdgpu_emu.cp.queue import CpQueue, Fields
from amdgpu_emu.errors import GpuFault, GpuHang
from amdgpu_emu.gpu import IDLE, PROGRESS, Gpu
from amdgpu_emu.vm import GpuVm
from zinc_rt.amdgpu.pm4 import opcodes as op
from zinc_rt.amdgpu.pm4.builder import ACQUIRE_HOST

Handler = Callable[[CpQueue, tuple[int, ...], Fields], Iterator[str] | None]
"""The function of a packet: takes queue, body and fields; returns the remaining steps if it has to wait."""

HANDLERS: dict[int, Handler] = {
    op.NOP: control.nop,
    op.SET_SH_REG: control.set_sh,
    op.SET_UCONFIG_REG: control.set_uconfig,
    op.SET_CONTEXT_REG: control.set_context,
    op.LOAD_SH_REG_INDEX: control.load_sh,
    op.DISPATCH_DIRECT: control.dispatch_direct,
    op.DISPATCH_INDIRECT: control.dispatch_indirect,
    op.INDIRECT_BUFFER: control.indirect_buffer,
    op.COND_EXEC: control.cond_exec,
    op.WRITE_DATA: memory.write_data,
    op.COPY_DATA: memory.copy_data,
    op.WAIT_REG_MEM: memory.wait,
    op.EVENT_WRITE: order.event,
    op.RELEASE_MEM: order.release,
    op.ACQUIRE_MEM: order.acquire,
}


_MAX_JUMPS = 1 << 12
"""Most indirect buffers in one chain; a longer one counts as a circle."""
_HOST = Actions.of_acquire(ACQUIRE_HOST)


class CommandProcessor:
    """A command processor, which runs one queue. Its registers live as long as it does.

    interrupt: called with the context id of a fence that asks for it. eop_buffer: False for a user queue without one,
    where RELEASE_MEM faults. kind: "cs", "kfd" or "umq". longest: seconds of modelled time that an
    indirect buffer may take, None for no limit. Steps raise `GpuFault` and `GpuHang` (`PacketFault`, `PacketHang`: with
    the packet).
    """

    def __init__(
        self,
        gpu: Gpu,
        name: str,
        *,
        interrupt: Callable[[int], None] | None = None,
        eop_buffer: bool = True,
        kind: str = "cs",
        longest: float | None = None,
    ) -> None:
        self.gpu, self.name = gpu, name
        self._gfx = gpu.model.gfx[0]
        self._queue = CpQueue(gpu, name, interrupt, eop_buffer, kind, longest)

    @property
    def registers(self) -> dict[int, int]:
        """SH registers that are not zero, by offset; for tests and messages."""
        return {offset: value for offset, value in enumerate(self._queue.registers.sh) if value}

    def indirect(self, vm: GpuVm, va: int, n_dwords: int, *, mem_sync: bool) -> Iterator[str]:
        """Run an indirect buffer of a kernel ring. mem_sync: first make all host writes visible, as EMIT_MEM_SYNC."""
        self._queue.begin(vm)
        if mem_sync:
            self.gpu.caches.act(_HOST)
        yield from self._buffer(va, n_dwords)

    def end_of_pipe(self) -> Iterator[str]:
        """Run the kernel's fence after a job: then all waves are done and all writes are in memory."""
        yield from self._queue.pipe.drain()
        self.gpu.caches.act(Actions(write_back=True))
        yield PROGRESS

    def ring(
        self,
        vm: GpuVm,
        ring_va: int,
        ring_bytes: int,
        write_pointer: Callable[[], int],
        read_pointer: Callable[[int], None],
        *,
        start: int = 0,
    ) -> Iterator[str]:
        """Run a user queue. The pointers count dwords and never wrap; read_pointer is called after every packet.
        start: the read pointer at first.

        Yields `IDLE` when there is nothing to do; it never ends.
        """
        queue, read, size = self._queue, start, ring_bytes // 4
        queue.begin(vm)
        queue.on_user_ring = True
        index = 0
        while True:
            write = write_pointer()
            if write == read:
                yield from queue.pipe.drain()
                if write_pointer() == read:
                    yield IDLE
                continue
            position = Position(f"ring {self.name}", (), 0, index, read, self._gfx)
            if not 0 < write - read <= size:
                raise PacketHang(
                    position,
                    f"the write pointer is {write:#x}, the read pointer {read:#x}, the ring has {size:#x} dwords",
                )
            words = self._ring_words(vm, ring_va, size, read, write - read)
            yield from self._packets(words, position, done=partial(_advance, read_pointer, read))
            read, index = write, position.index
            # It fetches in blocks: with the last packets came what lies behind them now, into the L2 if that keeps it.
            self.gpu.caches.read(vm, ring_va + 4 * (read % size), 4)

    # Within.

    def _ring_words(self, vm: GpuVm, va: int, size: int, read: int, n: int) -> list[int]:
        at = read % size
        first = min(n, size - at)
        words: list[int] = []
        for start, count in ((at, first), (0, n - first)):
            if count:
                words += self.gpu.caches.fetch(vm, va + 4 * start, count, partial(self._stale_ring, start), "read")
        return words

    def _stale_ring(self, start: int, at: int) -> None:
        self._queue.report(
            "stale-ring",
            f"dword {start + at} of the ring of {self.name} is read as the L2 kept it from a fetch before; "
            "map the ring uncached (AMDGPU_VM_MTYPE_UC)",
        )

    def _buffer(self, va: int, n_dwords: int) -> Iterator[str]:
        """An indirect buffer and those that it chains to."""
        queue = self._queue
        queue.begin_buffer()
        jumps = 0
        target: tuple[int, int] | None = (va, n_dwords)
        while target is not None:
            va, n_dwords = target
            position = Position(f"the indirect buffer at {va:#x}, {self.name}", (), 0, 0, 0, self._gfx)
            if not n_dwords or va % 4:
                raise PacketHang(position, f"{n_dwords} dwords at {va:#x}; it needs at least one, at a multiple of 4")
            try:
                words = self.gpu.caches.fetch(queue.vm, va, n_dwords, partial(self._stale, va))
            except GpuFault as fault:
                raise PacketFault(position, fault) from fault
            yield from self._packets(words, position, inner=True)
            target, queue.jump = queue.jump, None
            jumps += 1
            if jumps > _MAX_JUMPS:
                raise PacketHang(position, f"{_MAX_JUMPS} indirect buffers chained: a circle")

    def _stale(self, va: int, at: int) -> None:
        self._queue.report(
            "stale-packets",
            f"the indirect buffer at {va:#x} was rewritten from dword {at} on after the L2 had loaded it; "
            "acquire (GL2_INV) before it runs again, or keep it in uncached memory",
        )

    def _packets(
        self, words: list[int], position: Position, *, inner: bool = False, done: Callable[[int], None] | None = None
    ) -> Iterator[str]:
        """Run the packets of a list of words; `position` moves along. Ends early after a jump.

        done: called after each packet with the offset of the next.
        """
        queue = self._queue
        position.words = words
        queue.position = position
        n = len(words)
        while position.at < n:
            try:
                opcode, body, fields = _parse(words, position.at)
                length = 1 + len(body)
                queue.inner = inner
                steps = HANDLERS[opcode](queue, body, fields)
                if steps is not None:
                    yield from steps
                if queue.call is not None:
                    call, queue.call = queue.call, None
                    yield from self._buffer(*call)
                    queue.position = position
                if queue.skip:
                    length += self._skipped(n - position.at - length)
            except (PacketHang, PacketFault):
                raise
            except GpuFault as fault:
                raise PacketFault(position, fault) from fault
            except GpuHang as hang:
                raise PacketHang(position, str(hang)) from hang
            position.at += length
            position.index += 1
            if done is not None:
                done(position.at)
            yield PROGRESS
            if queue.jump is not None:
                return

    def _skipped(self, left: int) -> int:
        n, self._queue.skip = self._queue.skip, 0
        if n > left:
            raise GpuHang(f"it skips {n} dwords; {left} are left")
        return n


def _advance(read_pointer: Callable[[int], None], read: int, at: int) -> None:
    read_pointer(read + at)


def _parse(words: list[int], at: int) -> tuple[int, tuple[int, ...], dict[str, int | tuple[int, ...]]]:
    """Opcode, body and fields of a well-formed packet. Raises `GpuHang` with what is wrong."""
    head = words[at]
    if head == op.NOP_ALONE:
        return op.NOP, (), {}
    if head >> 30 != op.TYPE3:
        raise GpuHang(f"a header of type {head >> 30} ({head:#010x}); compute queues take type 3")
    if head & (op.HEADER_RESERVED | op.PREDICATE):
        raise GpuHang(f"header bits {head & (op.HEADER_RESERVED | op.PREDICATE):#x} are set; compute queues know none")
    opcode, n_body = head >> 8 & 0xFF, (head >> 16 & 0x3FFF) + 1
    spec = op.PACKETS.get(opcode)
    if spec is None:
        raise GpuHang(f"opcode {opcode:#04x} ({op.name_of(opcode)}) is not known to the emulator's compute queues")
    if head & op.SHADER_TYPE and not spec.shader_type:
        raise GpuHang(f"{spec.name} with the SHADER_TYPE bit")
    if at + 1 + n_body > len(words):
        raise GpuHang(f"it has {n_body} body dwords; {len(words) - at - 1} are left")
    body = tuple(words[at + 1 : at + 1 + n_body])
    if opcode == op.NOP:
        return opcode, body, {}
    fields, problems = _checked(opcode, body) if n_body <= 16 else spec.decode(body)
    if problems:
        raise GpuHang(problems[0])
    return opcode, body, fields


@lru_cache(maxsize=4096)
def _checked(opcode: int, body: tuple[int, ...]) -> tuple[dict[str, int | tuple[int, ...]], list[str]]:
    return op.PACKETS[opcode].decode(body)
