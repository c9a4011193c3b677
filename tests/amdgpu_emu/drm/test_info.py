"""What the driver says about the card."""

from __future__ import annotations

import errno
import struct

import pytest

from amdgpu_emu.abi import info
from amdgpu_emu.models import GIB, MIB, R9700, RAPHAEL, RX7900XTX, RX9070, SMALL_BAR
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ
from tests.amdgpu_emu.drm.card import COMPUTE, DMA, GFX, GTT, VRAM, Card, refused
from tests.amdgpu_emu.drm.checks import covers

ALL = [LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ]


@covers("3.ip-alignment", "3.ip-rings", "3.ip-version")
@pytest.mark.parametrize("machine", ALL, indirect=True)
def test_engines_of_the_r9700(card: Card) -> None:
    found = {kind: card.hw_ip(kind) for kind in (GFX, COMPUTE, DMA)}
    assert [found[k].available_rings for k in (GFX, COMPUTE, DMA)] == [1, 0xF, 3]
    assert [(found[k].ib_start_alignment, found[k].ib_size_alignment) for k in found] == [(32, 32), (32, 32), (256, 4)]
    assert found[COMPUTE].hw_ip_version_major == 12
    assert found[COMPUTE].ip_discovery_version == 0x0C0001


@covers("3.ip-absent")
@pytest.mark.parametrize("kind", [3, 4, 5])
def test_an_absent_engine_is_zeros(card: Card, kind: int) -> None:
    assert card.info(info.AMDGPU_INFO_HW_IP_INFO, 40, kind) == bytes(40)
    assert card.info(info.AMDGPU_INFO_HW_IP_COUNT, 4, kind) == bytes(4)
    assert card.info(info.AMDGPU_INFO_HW_IP_COUNT, 4, COMPUTE) == b"\1\0\0\0"


@covers("3.ip-slots")
@pytest.mark.parametrize("machine", ALL, indirect=True)
def test_slots_of_user_queues(card: Card) -> None:
    on = card.machine.profile.user_queue == 1
    expected = [7, 4, 12] if on else [0, 0, 0]
    slots = [card.info(info.AMDGPU_INFO_HW_IP_INFO, 40, kind)[32:36] for kind in (GFX, COMPUTE, DMA)]
    if card.machine.profile is LINUX_6_12:
        assert slots == [b"\xee" * 4] * 3
    else:
        assert [struct.unpack("<I", slot)[0] for slot in slots] == expected


@covers("3.ip-size", "3.info-min")
@pytest.mark.parametrize(
    ("machine", "size"), [(LINUX_6_12, 32), (LINUX_6_17, 40), (LINUX_7_3, 40)], indirect=["machine"]
)
def test_as_much_as_there_is(card: Card, size: int) -> None:
    whole = card.info(info.AMDGPU_INFO_HW_IP_INFO, 48, COMPUTE)
    assert whole[size:] == b"\xee" * (48 - size)
    assert whole[size - 1] != 0xEE
    assert card.info(info.AMDGPU_INFO_HW_IP_INFO, 20, COMPUTE) == whole[:20]


@covers("3.areas-size")
@pytest.mark.parametrize("machine", [LINUX_7_3_USERQ], indirect=True)
def test_areas_of_user_queues(card: Card) -> None:
    query = info.AMDGPU_INFO_UQ_FW_AREAS
    assert struct.unpack("<4I4s", card.info(query, 20, GFX)) == (73728, 256, 484, 256, b"\xee" * 4)
    assert struct.unpack("<4I4s", card.info(query, 20, COMPUTE)) == (2048, 256, 0, 0, b"\xee" * 4)
    assert card.info(query, 16, DMA)[8:] == bytes(8)


def device(card: Card) -> info.DrmAmdgpuInfoDevice:
    return info.DrmAmdgpuInfoDevice.from_buffer_copy(card.info(info.AMDGPU_INFO_DEV_INFO))


@covers("3.dev-va")
def test_address_ranges(card: Card) -> None:
    d = device(card)
    assert (d.virtual_address_offset, d.virtual_address_max) == (0x10000, 0x8000_0000_0000)
    assert (d.high_va_offset, d.high_va_max) == (0xFFFF_8000_0000_0000, 0xFFFF_FFFF_FFBF_0000)
    assert (d.virtual_address_alignment, d.pte_fragment_size) == (4096, 2 * MIB)


@covers("3.dev-userq")
@pytest.mark.parametrize(("machine", "mask"), [(LINUX_6_17, 0), (LINUX_7_3_USERQ, 7)], indirect=["machine"])
def test_user_queues_of_the_device(card: Card, mask: int) -> None:
    assert device(card).userq_ip_mask == mask


@pytest.mark.parametrize(
    ("machine", "family"),
    [
        ({"models": (R9700,)}, 0x98),
        ({"models": (RX9070,)}, 0x98),
        ({"models": (RX7900XTX,)}, 0x91),
        ({"models": (RAPHAEL,)}, 0x95),
    ],
    indirect=["machine"],
)
def test_the_shape_of_the_card(card: Card, family: int) -> None:
    d, model = device(card), card.file.gpu.model
    assert (d.device_id, d.family) == (model.device_id, family)
    assert sum(bits.bit_count() for row in d.cu_bitmap for bits in row) == model.cu == d.cu_active_number
    assert d.ids_flags & 1 == model.integrated
    assert (d.wave_front_size, d.gpu_counter_freq) == (32, 100_000)


@covers("3.memory")
@pytest.mark.parametrize(
    ("machine", "visible"),
    [({"models": (R9700,)}, 32 * GIB), ({"models": (SMALL_BAR,)}, 256 * MIB)],
    indirect=["machine"],
)
def test_heaps(card: Card, visible: int) -> None:
    model = card.file.gpu.model
    card.create(MIB, VRAM)
    card.create(2 * MIB, GTT)
    sizes = struct.unpack("<3Q", card.info(info.AMDGPU_INFO_VRAM_GTT, 24))
    assert sizes == (model.vram, visible, model.gtt)
    memory = info.DrmAmdgpuMemoryInfo.from_buffer_copy(card.info(info.AMDGPU_INFO_MEMORY))
    for heap, size, used in (
        (memory.vram, model.vram, MIB),
        (memory.cpu_accessible_vram, visible, MIB),
        (memory.gtt, model.gtt, 2 * MIB),
    ):
        assert (heap.total_heap_size, heap.usable_heap_size, heap.heap_usage) == (size, size, used)
        assert heap.max_allocation == size * 3 // 4
    for query, value in (
        (info.AMDGPU_INFO_VRAM_USAGE, MIB),
        (info.AMDGPU_INFO_VIS_VRAM_USAGE, MIB),
        (info.AMDGPU_INFO_GTT_USAGE, 2 * MIB),
    ):
        assert struct.unpack("<Q", card.info(query, 8)) == (value,)


def test_firmware(card: Card) -> None:
    firmware = card.file.gpu.model.firmware
    for kind, version in (
        (info.AMDGPU_INFO_FW_GFX_MEC, firmware.mec),
        (info.AMDGPU_INFO_FW_MES, firmware.mes),
        (info.AMDGPU_INFO_FW_GFX_ME, firmware.me),
        (info.AMDGPU_INFO_FW_SOS, 0),
    ):
        assert struct.unpack("<2I", card.info(info.AMDGPU_INFO_FW_VERSION, 8, kind))[0] == version
    for wrong in ((info.AMDGPU_INFO_FW_GFX_MEC, 1, 0), (info.AMDGPU_INFO_FW_GFX_MEC, 0, 2)):
        with refused(errno.EINVAL):
            card.info(info.AMDGPU_INFO_FW_VERSION, 8, *wrong)


def test_counters(card: Card) -> None:
    first, second = (struct.unpack("<Q", card.info(info.AMDGPU_INFO_TIMESTAMP, 8))[0] for _ in range(2))
    assert 0 < first <= second
    assert struct.unpack("<10I", card.info(info.AMDGPU_INFO_MAX_IBS, 40)) == (192, 125, 49, 49, 49, 49, 49, 49, 16, 49)
    assert card.info(info.AMDGPU_INFO_VRAM_LOST_COUNTER, 4) == bytes(4)
    assert card.info(info.AMDGPU_INFO_NUM_EVICTIONS, 8) == bytes(8)
    assert struct.unpack("<I", card.info(info.AMDGPU_INFO_SENSOR, 4, info.AMDGPU_INFO_SENSOR_GFX_SCLK)) == (2350,)
