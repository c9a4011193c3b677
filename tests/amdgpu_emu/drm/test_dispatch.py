"""Sizes and directions of arguments, the core's small calls, and mmap."""

from __future__ import annotations

import contextlib
import ctypes
import errno

import pytest

from amdgpu_emu.abi import cs, drm, gem, info, requests
from amdgpu_emu.abi.requests import READ_WRITE, WRITE, request_value
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.drm.card import DATA_VA, RWX, Card, refused
from tests.amdgpu_emu.drm.checks import covers

D = ord("d")


class _Va40(ctypes.Structure):
    """GEM_VA as it was before Linux 6.16."""

    _fields_ = gem.DrmAmdgpuGemVa._fields_[:7]


@covers("0.short")
@pytest.mark.parametrize("machine", [LINUX_6_17, LINUX_7_3], indirect=True)
def test_a_short_argument_is_filled_with_zeros(card: Card) -> None:
    args = _Va40(handle=card.create(), operation=1, flags=RWX, va_address=DATA_VA, map_size=4096)
    assert ctypes.sizeof(args) == 40
    card.process.ioctl(card.fd, request_value(WRITE, D, 0x48, 40), args)
    assert card.file.vm.starting_at(DATA_VA) is not None


@covers("0.long")
@pytest.mark.parametrize("machine", [LINUX_6_12], indirect=True)
def test_a_long_argument_works_on_an_older_kernel(card: Card) -> None:
    room = ctypes.create_string_buffer(32)
    card.gem_op(card.create(8192), gem.AMDGPU_GEM_OP_GET_GEM_CREATE_INFO, ctypes.addressof(room), padding=7)
    assert gem.DrmAmdgpuGemCreateIn.from_buffer(room).bo_size == 8192
    card.va(card.create(), vm_timeline_syncobj_out=99, num_syncobj_handles=99)  # fields that 6.12 does not know


@covers("0.copy-size")
def test_no_more_than_the_announced_size_is_copied_back(card: Card) -> None:
    class Larger(ctypes.Structure):
        _fields_ = (("given", gem.DrmAmdgpuGemCreate), ("behind", ctypes.c_uint64))

    args = Larger(behind=0xEEEE)
    args.given.in_ = gem.DrmAmdgpuGemCreateIn(4096, 0, gem.AMDGPU_GEM_DOMAIN_GTT, 0)
    card.process.ioctl(card.fd, requests.AMDGPU_GEM_CREATE.value, args)
    assert (args.given.out.handle, args.behind) == (1, 0xEEEE)


@covers("0.write-only")
def test_write_only_requests_copy_nothing_back(card: Card) -> None:
    high = DATA_VA | 0xFFFF_8000_0000_0000  # the kernel masks it in its own copy
    args = gem.DrmAmdgpuGemVa(handle=card.create(), operation=1, flags=RWX, va_address=high, map_size=4096)
    before = bytes(args)
    card.call(requests.AMDGPU_GEM_VA, args)
    assert bytes(args) == before
    both = request_value(READ_WRITE, D, 0x48, 64)  # the kernel's own direction counts too
    card.va(int(args.handle), high, op=gem.AMDGPU_VA_OP_UNMAP)
    card.process.ioctl(card.fd, both, args)
    assert bytes(args) == before


@covers("0.copy-on-error")
def test_results_are_copied_back_when_the_call_failed(card: Card) -> None:
    args = gem.DrmAmdgpuGemMmap()
    args.in_.handle = 77
    with refused(errno.ENOENT):
        card.call(requests.AMDGPU_GEM_MMAP, args)
    assert args.out.addr_ptr == 0


def test_a_read_only_request_copies_nothing_in(card: Card) -> None:
    args = drm.DrmGetCap(capability=drm.DRM_CAP_SYNCOBJ, value=5)
    with refused(errno.EINVAL):  # capability 0 does not exist
        card.process.ioctl(card.fd, request_value(requests.READ, D, 0x0C, 16), args)


@covers("0.version")
@pytest.mark.parametrize(
    ("machine", "minor", "date"),
    [(LINUX_6_12, 61, b"20150101"), (LINUX_6_17, 64, b"0"), (LINUX_7_3, 64, b"0")],
    indirect=["machine"],
)
def test_version(card: Card, minor: int, date: bytes) -> None:
    name, when, what = (ctypes.create_string_buffer(20) for _ in range(3))
    args = drm.DrmVersion(
        name_len=19,
        name=ctypes.addressof(name),
        date_len=19,
        date=ctypes.addressof(when),
        desc_len=19,
        desc=ctypes.addressof(what),
    )
    card.call(requests.DRM_VERSION, args)
    assert (args.version_major, args.version_minor) == (3, minor)
    assert (name.value, when.value, what.value) == (b"amdgpu", date, b"AMD GPU")


@covers("0.version-cut")
def test_version_strings_are_cut_and_their_true_lengths_stored(card: Card) -> None:
    name = ctypes.create_string_buffer(b"\xee" * 8, 8)
    args = card.call(requests.DRM_VERSION, drm.DrmVersion(name_len=3, name=ctypes.addressof(name)))
    assert (name.raw, args.name_len, args.desc_len) == (b"amd" + b"\xee" * 5, 6, 7)


def test_capabilities(card: Card) -> None:
    for capability, value in ((drm.DRM_CAP_SYNCOBJ, 1), (drm.DRM_CAP_SYNCOBJ_TIMELINE, 1), (drm.DRM_CAP_PRIME, 3)):
        assert card.call(requests.DRM_GET_CAP, drm.DrmGetCap(capability=capability)).value == value


@pytest.mark.parametrize(("op", "flags", "accepted"), [(1, 0, True), (2, 0, True), (3, 0, False), (1, 1, False)])
def test_vm_reservations(card: Card, op: int, flags: int, accepted: bool) -> None:
    args = cs.DrmAmdgpuVm()
    args.in_ = cs.DrmAmdgpuVmIn(op, flags)
    with contextlib.nullcontext() if accepted else refused(errno.EINVAL):
        card.call(requests.AMDGPU_VM, args)


@covers("0.handles")
def test_handles_are_the_lowest_free_ones(card: Card) -> None:
    assert [card.create() for _ in range(4)] == [1, 2, 3, 4]
    card.close_gem(3)
    card.close_gem(2)
    assert [card.create() for _ in range(3)] == [2, 3, 5]
    assert [card.syncobj() for _ in range(2)] == [1, 2]
    card.call(requests.DRM_SYNCOBJ_DESTROY, drm.DrmSyncobjDestroy(handle=1))
    assert card.syncobj() == 1


@covers("1.first-offset")
def test_offsets_for_mmap(card: Card) -> None:
    first, second = card.create(8192), card.create()
    assert [card.gem_mmap(first), card.gem_mmap(second)] == [0x1_0000_0000, 0x1_0000_2000]
    here, there = card.map_offset(0x1_0000_0000, 8192), card.map_offset(0x1_0000_0000, 100)
    card.process.store32(here, 0x1234)
    assert card.process.load32(there) == 0x1234
    card.close_gem(first)
    assert card.gem_mmap(card.create()) == 0x1_0000_3000  # an offset is not used twice


def test_a_forgotten_map_outlives_its_handle(card: Card) -> None:
    handle = card.create()
    address = card.map_offset(card.gem_mmap(handle), 4096)
    card.close_gem(handle)
    card.process.store32(address, 5)
    assert card.process.load32(address) == 5


def test_info_is_answered_through_its_pointer(card: Card) -> None:
    room = ctypes.c_uint32(0xEE)
    args = info.DrmAmdgpuInfo(return_pointer=ctypes.addressof(room), return_size=4)
    before = bytes(args)
    card.call(requests.AMDGPU_INFO, args)
    assert (room.value, bytes(args)) == (1, before)
