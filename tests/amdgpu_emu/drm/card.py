"""An open render node for tests: one method per ioctl, raw structs underneath, everything given back at the end."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import struct
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from amdgpu_emu.abi import cs, drm, gem, info, requests, userq
from amdgpu_emu.abi.info import DrmAmdgpuInfoHwIp
from amdgpu_emu.abi.requests import Ioctl
from amdgpu_emu.drm.file import DrmFile
from amdgpu_emu.machine import Machine
from zinc_rt.utils.linux import MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE

RWX = gem.AMDGPU_VM_PAGE_READABLE | gem.AMDGPU_VM_PAGE_WRITEABLE | gem.AMDGPU_VM_PAGE_EXECUTABLE
GTT, VRAM, DOORBELL = gem.AMDGPU_GEM_DOMAIN_GTT, gem.AMDGPU_GEM_DOMAIN_VRAM, gem.AMDGPU_GEM_DOMAIN_DOORBELL
ALWAYS_VALID = gem.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
COMPUTE, GFX, DMA = cs.AMDGPU_HW_IP_COMPUTE, cs.AMDGPU_HW_IP_GFX, cs.AMDGPU_HW_IP_DMA
FOREVER = (1 << 64) - 1
BAD_POINTER = 0x10  # in the first page, which no program has
IB_VA, IB_BYTES = 0x1_0000_0000, 0x10000
DATA_VA = 0x1_0010_0000
A = TypeVar("A", bound=ctypes.Structure | ctypes.Union)


@contextlib.contextmanager
def refused(code: int) -> Iterator[None]:
    """What is done within fails with this errno."""
    with pytest.raises(OSError) as error:
        yield
    assert errno.errorcode.get(error.value.errno or 0) == errno.errorcode[code]


def write_data(va: int, value: int) -> list[int]:
    """WRITE_DATA of 64 bits to memory, confirmed."""
    return [0xC0043700, 0x00100500, va & 0xFFFFFFFF, va >> 32, value & 0xFFFFFFFF, value >> 32]


def wait_memory(va: int, value: int) -> list[int]:
    """WAIT_REG_MEM until a dword of memory equals a value."""
    return [0xC0053C00, 0x13, va & 0xFFFFFFFF, va >> 32, value, 0xFFFFFFFF, 4]


def nop(n_dwords: int) -> list[int]:
    """NOPs of that many dwords."""
    return (
        []
        if not n_dwords
        else [0xFFFF1000]
        if n_dwords == 1
        else [0xC0001000 | n_dwords - 2 << 16] + [0] * (n_dwords - 1)
    )


class Card:
    """`ib`: an always valid buffer of packets, `data`: an always valid page that the GPU does not cache; both are
    mapped here and on the GPU.
    """

    def __init__(self, machine: Machine, index: int = 0, process: Any = None) -> None:
        self.machine = machine
        self.process = process or machine.process()
        self.fd = self.process.open(machine.gpus[index].render_node)
        found = self.process.file(self.fd)
        assert isinstance(found, DrmFile)
        self.file = found
        self.keep: list[Any] = []  # arrays whose addresses the kernel was given
        self._maps: list[tuple[int, int]] = []
        self._fds: list[int] = []
        self._next = 0
        self.ib_address = self.data_address = 0

    def close(self) -> None:
        """Give everything back, as a tidy program does."""
        self.machine.gpus[0].fence_delay = 0.0
        if not self.file.gpu.lost:
            for number in self.file.user_queues:
                self.userq(op=userq.AMDGPU_USERQ_OP_FREE, queue_id=number)
            for number in self.file.bo_lists:
                self.bo_list(cs.AMDGPU_BO_LIST_OP_DESTROY, number)
            for number in self.file.contexts:
                self.ctx(cs.AMDGPU_CTX_OP_FREE_CTX, number)
            for number in self.file.syncobjs:
                self.call(requests.DRM_SYNCOBJ_DESTROY, drm.DrmSyncobjDestroy(handle=number))
            for number in self.file.gems:
                self.close_gem(number)
            for mapping in list(self.file.vm):  # sparse ranges, which have no handle
                if mapping.va < 1 << 47:
                    self.va(0, mapping.va, mapping.size, op=gem.AMDGPU_VA_OP_CLEAR)
        else:
            self.machine.strict = False
        for address, length in self._maps:
            self.process.munmap(address, length)
        for fd in self._fds:
            self.process.close(fd)
        self.process.close(self.fd)

    def call(self, request: Ioctl, argument: A) -> A:
        self.process.ioctl(self.fd, request.value, argument)
        return argument

    def address_of(self, thing: Any) -> int:
        """Keep it alive, and its address."""
        self.keep.append(thing)
        return ctypes.addressof(thing)

    def array(self, kind: str, values: list[int]) -> int:
        """Address of an array: kind as in `struct`."""
        raw = struct.pack(f"<{len(values)}{kind}", *values)
        return self.address_of(ctypes.create_string_buffer(raw, max(len(raw), 1)))

    def owns(self, fd: int) -> int:
        """A descriptor to close at the end."""
        self._fds.append(fd)
        return fd

    # Buffers.

    def create(self, size: int = 4096, domains: int = GTT, flags: int = 0, alignment: int = 0) -> int:
        argument = gem.DrmAmdgpuGemCreate()
        argument.in_ = gem.DrmAmdgpuGemCreateIn(size, alignment, domains, flags)
        return int(self.call(requests.AMDGPU_GEM_CREATE, argument).out.handle)

    def close_gem(self, handle: int) -> None:
        self.call(requests.DRM_GEM_CLOSE, drm.DrmGemClose(handle=handle))

    def gem_mmap(self, handle: int) -> int:
        argument = gem.DrmAmdgpuGemMmap()
        argument.in_.handle = handle
        return int(self.call(requests.AMDGPU_GEM_MMAP, argument).out.addr_ptr)

    def map_offset(self, offset: int, length: int) -> int:
        address = self.process.mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, offset)
        self._maps.append((address, length))
        return int(address)

    def anonymous(self, length: int) -> int:
        address = self.process.mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
        self._maps.append((address, length))
        return int(address)

    def userptr(self, address: int, size: int = 4096, flags: int = gem.AMDGPU_GEM_USERPTR_REGISTER) -> int:
        argument = gem.DrmAmdgpuGemUserptr(addr=address, size=size, flags=flags)
        return int(self.call(requests.AMDGPU_GEM_USERPTR, argument).handle)

    def va(
        self,
        handle: int,
        va: int = DATA_VA,
        size: int = 4096,
        op: int = gem.AMDGPU_VA_OP_MAP,
        offset: int = 0,
        flags: int = RWX,
        **more: int,
    ) -> None:
        argument = gem.DrmAmdgpuGemVa(
            handle=handle, operation=op, flags=flags, va_address=va, offset_in_bo=offset, map_size=size, **more
        )
        self.call(requests.AMDGPU_GEM_VA, argument)

    def buffer(self, va: int, size: int = 4096, flags: int = ALWAYS_VALID, mtype: int = 0) -> tuple[int, int]:
        """Handle and address of a new buffer that is mapped on both sides."""
        handle = self.create(size, GTT, flags)
        self.va(handle, va, size, flags=RWX | mtype)
        return handle, self.map_offset(self.gem_mmap(handle), size)

    def wait_idle(self, handle: int, timeout: int = 0) -> int:
        argument = gem.DrmAmdgpuGemWaitIdle()
        argument.in_.handle, argument.in_.timeout = handle, timeout
        return int(self.call(requests.AMDGPU_GEM_WAIT_IDLE, argument).out.status)

    def gem_op(self, handle: int, op: int, value: int = 0, entries: int = 0, padding: int = 0) -> gem.DrmAmdgpuGemOp:
        argument = gem.DrmAmdgpuGemOp(handle, op, value, entries, padding)
        return self.call(requests.AMDGPU_GEM_OP, argument)

    def prime(self, handle: int, flags: int = 0) -> int:
        argument = self.call(requests.DRM_PRIME_HANDLE_TO_FD, drm.DrmPrimeHandle(handle=handle, flags=flags))
        return self.owns(int(argument.fd))

    def import_fd(self, fd: int) -> int:
        return int(self.call(requests.DRM_PRIME_FD_TO_HANDLE, drm.DrmPrimeHandle(fd=fd)).handle)

    # What the device is.

    def info(self, query: int, size: int = 512, first: int = 0, second: int = 0, third: int = 0) -> bytes:
        """The first bytes of an answer; whatever the kernel left alone is 0xEE."""
        room = ctypes.create_string_buffer(b"\xee" * size, size)
        argument = info.DrmAmdgpuInfo(return_pointer=ctypes.addressof(room), return_size=size, query=query)
        argument.query_fw.fw_type, argument.query_fw.ip_instance, argument.query_fw.index = first, second, third
        self.call(requests.AMDGPU_INFO, argument)
        return room.raw

    def hw_ip(self, kind: int) -> DrmAmdgpuInfoHwIp:
        return DrmAmdgpuInfoHwIp.from_buffer_copy(self.info(info.AMDGPU_INFO_HW_IP_INFO, 40, kind))

    # Contexts, lists.

    def ctx(self, op: int = cs.AMDGPU_CTX_OP_ALLOC_CTX, number: int = 0, flags: int = 0, priority: int = 0) -> int:
        return int(self.ctx_call(op, number, flags, priority).out_alloc.ctx_id)

    def ctx_call(self, op: int, number: int = 0, flags: int = 0, priority: int = 0) -> cs.DrmAmdgpuCtx:
        argument = cs.DrmAmdgpuCtx()
        argument.in_ = cs.DrmAmdgpuCtxIn(op, flags, number, priority)
        return self.call(requests.AMDGPU_CTX, argument)

    def query(self, number: int) -> int:
        return int(self.ctx_call(cs.AMDGPU_CTX_OP_QUERY_STATE, number).out_state.reset_status)

    def query2(self, number: int) -> int:
        return int(self.ctx_call(cs.AMDGPU_CTX_OP_QUERY_STATE2, number).out_state.flags)

    def bo_list(
        self,
        op: int,
        number: int = 0,
        handles: tuple[int, ...] = (),
        *,
        size: int = 8,
        count: int | None = None,
        pointer: int | None = None,
    ) -> int:
        entries = b"".join(struct.pack("<2I", handle, 0)[:size].ljust(size, b"\xff") for handle in handles)
        argument = cs.DrmAmdgpuBoList()
        argument.in_ = cs.DrmAmdgpuBoListIn(
            op,
            number,
            len(handles) if count is None else count,
            size,
            self.address_of(ctypes.create_string_buffer(entries, len(entries) + 1)) if pointer is None else pointer,
        )
        return int(self.call(requests.AMDGPU_BO_LIST, argument).out.list_handle)

    # Submissions.

    def prepare(self) -> Card:
        """The two buffers, and a context with number 1."""
        self.ib, self.ib_address = self.buffer(IB_VA, IB_BYTES)
        self.data, self.data_address = self.buffer(DATA_VA, mtype=gem.AMDGPU_VM_MTYPE_UC)
        assert self.ctx() == 1
        return self

    def program(self, words: list[int]) -> tuple[int, int]:
        """Write packets, padded; their address and bytes."""
        words = words + nop(-len(words) % 8)
        at = self._next
        self._next += 4 * len(words)
        raw = struct.pack(f"<{len(words)}I", *words)
        ctypes.memmove(self.ib_address + at, raw, len(raw))
        self.process.store_fence()
        return IB_VA + at, len(raw)

    @staticmethod
    def ib_chunk(
        va: int,
        size: int,
        ip: int = COMPUTE,
        ring: int = 0,
        flags: int = cs.AMDGPU_IB_FLAG_EMIT_MEM_SYNC,
        instance: int = 0,
    ) -> tuple[int, bytes]:
        data = cs.DrmAmdgpuCsChunkIb(
            flags=flags, va_start=va, ib_bytes=size, ip_type=ip, ip_instance=instance, ring=ring
        )
        return cs.AMDGPU_CHUNK_ID_IB, bytes(data)

    def cs(self, *chunks: tuple[int, bytes], ctx: int = 1, bo_list: int = 0) -> int:
        """The fence's number."""
        pointers = []
        for kind, data in chunks:
            held = ctypes.create_string_buffer(data, len(data) + 1)
            head = cs.DrmAmdgpuCsChunk(kind, len(data) // 4, self.address_of(held))
            pointers.append(self.address_of(head))
        return self.cs_raw(len(pointers), self.array("Q", pointers), ctx, bo_list)

    def cs_raw(self, count: int, chunks: int, ctx: int = 1, bo_list: int = 0) -> int:
        argument = cs.DrmAmdgpuCs()
        argument.in_ = cs.DrmAmdgpuCsIn(ctx, bo_list, count, 0, chunks)
        return int(self.call(requests.AMDGPU_CS, argument).out.handle)

    def submit(self, words: list[int], *more: tuple[int, bytes], ip: int = COMPUTE, ring: int = 0, **to: int) -> int:
        return self.cs(self.ib_chunk(*self.program(words), ip, ring), *more, **to)

    def block(self, *more: tuple[int, bytes], value: int = 1, **to: int) -> int:
        """A submission that lasts until `unblock`."""
        return self.submit(wait_memory(DATA_VA, value), *more, **to)

    def unblock(self, value: int = 1) -> None:
        ctypes.c_uint32.from_address(self.data_address).value = value

    def word(self, offset: int = 0) -> int:
        """A u64 of the data page."""
        return int(ctypes.c_uint64.from_address(self.data_address + offset).value)

    def soon(self, seconds: float = 5.0) -> int:
        """A deadline."""
        return int(self.process.monotonic_ns() + seconds * 1e9)

    def wait(
        self, handle: int, timeout: int | None = None, ctx: int = 1, ip: int = COMPUTE, ring: int = 0, instance: int = 0
    ) -> int:
        argument = cs.DrmAmdgpuWaitCs()
        deadline = self.soon() if timeout is None else timeout
        argument.in_ = cs.DrmAmdgpuWaitCsIn(handle, deadline, ip, instance, ring, ctx)
        return int(self.call(requests.AMDGPU_WAIT_CS, argument).out.status)

    def wait_fences(self, *sequences: int, every: bool, timeout: int | None = None, ring: int = 0) -> tuple[int, int]:
        raw = b"".join(bytes(cs.DrmAmdgpuFence(1, COMPUTE, 0, ring, sequence)) for sequence in sequences)
        held = ctypes.create_string_buffer(raw, len(raw) + 1)
        argument = cs.DrmAmdgpuWaitFences()
        deadline = self.soon() if timeout is None else timeout
        argument.in_ = cs.DrmAmdgpuWaitFencesIn(self.address_of(held), len(sequences), every, deadline)
        self.call(requests.AMDGPU_WAIT_FENCES, argument)
        return argument.out.status, argument.out.first_signaled

    def fence_to(self, what: int, sequence: int, ctx: int = 1) -> int:
        argument = cs.DrmAmdgpuFenceToHandle()
        argument.in_ = cs.DrmAmdgpuFenceToHandleIn(cs.DrmAmdgpuFence(ctx, COMPUTE, 0, 0, sequence), what, 0)
        return int(self.call(requests.AMDGPU_FENCE_TO_HANDLE, argument).out.handle)

    # Sync objects.

    def syncobj(self, flags: int = 0) -> int:
        return int(self.call(requests.DRM_SYNCOBJ_CREATE, drm.DrmSyncobjCreate(flags=flags)).handle)

    def syncobj_wait(self, *handles: int, timeout: int = 0, flags: int = 0, count: int | None = None) -> int:
        argument = drm.DrmSyncobjWait(
            handles=self.array("I", list(handles)),
            timeout_nsec=timeout,
            flags=flags,
            count_handles=len(handles) if count is None else count,
        )
        return int(self.call(requests.DRM_SYNCOBJ_WAIT, argument).first_signaled)

    def timeline_wait(self, handle: int, point: int, timeout: int = 0, flags: int = 0) -> int:
        argument = drm.DrmSyncobjTimelineWait(
            handles=self.array("I", [handle]),
            points=self.array("Q", [point]),
            timeout_nsec=timeout,
            flags=flags,
            count_handles=1,
        )
        return int(self.call(requests.DRM_SYNCOBJ_TIMELINE_WAIT, argument).first_signaled)

    def syncobj_array(self, request: Ioctl, *handles: int, pad: int = 0) -> None:
        argument = drm.DrmSyncobjArray(handles=self.array("I", list(handles)), count_handles=len(handles), pad=pad)
        self.call(request, argument)

    def timeline_signal(self, handle: int, point: int) -> None:
        argument = drm.DrmSyncobjTimelineArray(
            handles=self.array("I", [handle]), points=self.array("Q", [point]), count_handles=1
        )
        self.call(requests.DRM_SYNCOBJ_TIMELINE_SIGNAL, argument)

    def timeline_query(self, handle: int, flags: int = 0) -> int:
        point = ctypes.c_uint64(0xEE)
        argument = drm.DrmSyncobjTimelineArray(
            handles=self.array("I", [handle]), points=ctypes.addressof(point), count_handles=1, flags=flags
        )
        self.call(requests.DRM_SYNCOBJ_QUERY, argument)
        return int(point.value)

    # User queues.

    def userq(self, **fields: int) -> int:
        argument = userq.DrmAmdgpuUserq()
        argument.in_ = userq.DrmAmdgpuUserqIn(**fields)
        return int(self.call(requests.AMDGPU_USERQ, argument).out.queue_id)
