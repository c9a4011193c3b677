"""Buffers: sizes, heaps, who holds them; user memory, metadata, files."""

from __future__ import annotations

import ctypes
import errno
import struct

import pytest

from amdgpu_emu.abi import gem, requests
from amdgpu_emu.machine import Machine
from amdgpu_emu.memory import Placement
from amdgpu_emu.models import MIB, R9700, RX9070
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.drm.card import ALWAYS_VALID, COMPUTE, DATA_VA, DOORBELL, FOREVER, GTT, RWX, VRAM, Card, refused
from tests.amdgpu_emu.drm.checks import covers

TWO_GPUS = {"models": (R9700, RX9070)}


def made_with(card: Card, handle: int) -> tuple[int, int, int, int]:
    """Size, alignment, domains, flags."""
    room = ctypes.create_string_buffer(b"\xee" * 40, 40)
    card.gem_op(handle, gem.AMDGPU_GEM_OP_GET_GEM_CREATE_INFO, ctypes.addressof(room))
    assert room.raw[32:] == b"\xee" * 8
    found: tuple[int, int, int, int] = struct.unpack("<4Q", room.raw[:32])
    return found


@covers("3.create-round", "3.op-info", "3.create-cleared")
def test_sizes_are_rounded_up_and_told(card: Card) -> None:
    handle = card.create(5000, GTT, gem.AMDGPU_GEM_CREATE_CPU_GTT_USWC, 300)
    flags = gem.AMDGPU_GEM_CREATE_CPU_GTT_USWC | gem.AMDGPU_GEM_CREATE_VRAM_CLEARED
    assert made_with(card, handle) == (8192, 4096, GTT, flags)


@covers("3.create-flags-ok")
@pytest.mark.parametrize("machine", [LINUX_6_12, LINUX_6_17, LINUX_7_3], indirect=True)
def test_flags_that_every_kernel_takes(card: Card) -> None:
    for flag in (0, 1, 2, 4, 8, 0x40, 0x80, 0x1000, 0x10000):
        assert made_with(card, card.create(flags=flag, domains=VRAM))[3] == flag | 8


@covers("3.create-fallback")
@pytest.mark.parametrize("machine", [{"models": (R9700,)}], indirect=True)
def test_vram_that_is_full_falls_back_to_system_memory(card: Card) -> None:
    gpu = card.file.gpu
    gpu.limits[Placement.VRAM], gpu.limits[Placement.GTT] = 4 * MIB, 64 * MIB
    first, second = card.create(3 * MIB, VRAM), card.create(3 * MIB, VRAM, gem.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED)
    large = card.create(8 * MIB, VRAM)
    assert [made_with(card, handle)[2] for handle in (first, second, large)] == [VRAM, VRAM | GTT, VRAM | GTT]
    assert gpu.used == {Placement.VRAM: 3 * MIB, Placement.GTT: 11 * MIB}
    for handle in (first, second, large):
        card.close_gem(handle)
    assert gpu.used == {Placement.VRAM: 0, Placement.GTT: 0}
    card.create(60 * MIB, GTT)
    with refused(errno.ENOMEM):
        card.create(8 * MIB, VRAM)  # there is no room in either


def test_doorbells_are_mapped_but_take_no_memory(card: Card) -> None:
    handle = card.create(4096, DOORBELL, ALWAYS_VALID)
    address = card.map_offset(card.gem_mmap(handle), 4096)
    card.process.store_fence()
    card.process.store64(address + 8, 3)  # nobody's: it is lost
    assert card.file.gpu.used == {Placement.VRAM: 0, Placement.GTT: 0}


@covers("3.always-valid")
def test_always_valid_buffers_stay_in_their_address_space(card: Card, machine: Machine) -> None:
    mine = card.file.gems.get(card.create(flags=ALWAYS_VALID))
    other = Card(machine)
    assert mine is not None
    with refused(errno.EPERM):
        other.file.open_gem(mine)
    other.close()


def test_closing_a_handle_takes_its_addresses(card: Card) -> None:
    handle = card.create(8192)
    card.va(handle, DATA_VA, 4096)
    card.va(handle, DATA_VA + 0x10000, 8192)
    card.close_gem(handle)
    assert len(card.file.vm) == 0


def test_user_memory_is_the_programs_own(card: Card) -> None:
    address = card.anonymous(8192)
    card.process.store32(address + 4096, 0x77)
    handle = card.userptr(address, 8192)
    bo = card.file.gems.get(handle)
    assert bo is not None
    assert bo.bo.bytes[4096] == 0x77
    bo.bo.bytes[0] = 9
    assert card.process.load32(address) == 9
    assert made_with(card, handle)[2] == GTT


@covers("3.idle-status")
@pytest.mark.parametrize("machine", [{"time_scale": 1.0}], indirect=True)
def test_idle_and_busy(ready: Card) -> None:
    listed, unlisted = ready.create(), ready.create()
    held = ready.bo_list(0, handles=(listed,))
    assert ready.wait_idle(listed) == 0
    sequence = ready.block(bo_list=held)
    assert [ready.wait_idle(h) for h in (listed, unlisted, ready.data)] == [1, 0, 1]
    assert ready.wait_idle(listed, int(ready.process.monotonic_ns() + 2e7)) == 1
    ready.unblock()
    assert ready.wait_idle(listed, FOREVER) == 0
    assert ready.wait(sequence) == 0


@covers("3.metadata")
def test_metadata_comes_back(card: Card) -> None:
    handle = card.create()
    given = gem.DrmAmdgpuGemMetadata(handle=handle, op=gem.AMDGPU_GEM_METADATA_OP_SET_METADATA)
    given.data.flags, given.data.tiling_info, given.data.data_size_bytes, given.data.data[1] = 3, 5, 8, 0x1234
    card.call(requests.AMDGPU_GEM_METADATA, given)
    got = gem.DrmAmdgpuGemMetadata(handle=handle, op=gem.AMDGPU_GEM_METADATA_OP_GET_METADATA)
    card.call(requests.AMDGPU_GEM_METADATA, got)
    assert bytes(got.data) == bytes(given.data)
    card.call(requests.AMDGPU_GEM_METADATA, gem.DrmAmdgpuGemMetadata(handle=handle, op=9))  # does nothing


@covers("3.op-mappings")
@pytest.mark.parametrize("machine", [LINUX_7_3], indirect=True)
def test_mapping_info(card: Card) -> None:
    handle = card.create(12288)
    card.va(handle, DATA_VA, 4096, offset=8192)
    card.va(handle, DATA_VA + 0x8000, 8192, flags=gem.AMDGPU_VM_PAGE_READABLE)
    room = (ctypes.c_uint64 * 8)()
    op = gem.AMDGPU_GEM_OP_GET_MAPPING_INFO
    assert card.gem_op(handle, op, ctypes.addressof(room), entries=1).num_entries == 2
    assert list(room) == [0] * 8  # too small: only the count is told
    assert card.gem_op(handle, op, ctypes.addressof(room), entries=2).num_entries == 2
    assert list(room) == [DATA_VA, 4096, 8192, RWX, DATA_VA + 0x8000, 8192, 0, 2]


@pytest.mark.parametrize("machine", [TWO_GPUS], indirect=True)
def test_a_buffer_as_a_file_reaches_another_gpu(card: Card, machine: Machine) -> None:
    handle = card.create(8192)
    fd = card.prime(handle)
    assert card.import_fd(fd) == handle  # what has a handle gets no second one
    other = Card(machine, 1, card.process)
    imported = other.import_fd(fd)
    other.va(imported, DATA_VA, 8192)
    address = card.process.mmap(0, 8192, 3, 1, fd, 0)
    card.process.store32(address, 0x55)
    assert other.file.vm.at(DATA_VA).bo.bytes[0] == 0x55  # type: ignore[union-attr]
    card.process.munmap(address, 8192)
    card.close_gem(handle)
    assert card.file.gpu.used[Placement.GTT] == 8192  # the file and the other GPU still hold it
    other.close()


def test_a_file_is_mapped_from_its_start(card: Card) -> None:
    fd = card.prime(card.create(8192))
    for length, offset in ((12288, 0), (4096, 4096)):
        with refused(errno.EINVAL):
            card.process.mmap(0, length, 3, 1, fd, offset)


@pytest.mark.parametrize("machine", [LINUX_7_3], indirect=True)
def test_limits_of_a_heap_are_the_machines_to_set(card: Card) -> None:
    card.file.gpu.limits[Placement.GTT] = MIB
    with refused(errno.ENOMEM):
        card.create(MIB)
    assert card.hw_ip(COMPUTE).available_rings == 15
