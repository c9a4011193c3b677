"""The answers of INFO that describe the card, from its model. Sizes of caches and other blocks are those of Navi 48."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amdgpu_emu.abi import cs, info
from amdgpu_emu.drm.userq import EOP_BYTES, SLOTS
from amdgpu_emu.drm.va import HOLE_END, HOLE_START, RESERVED_BOTTOM, RESERVED_TOP, VM_SIZE
from amdgpu_emu.memory import Placement
from amdgpu_emu.models import GpuModel
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile
    from amdgpu_emu.gpu import Gpu

_ARRAYS_PER_ENGINE = 2
_RDNA_3_5 = (11, 5)
_FAMILIES = {
    (9, 0): 0x8D, (10, 0): 0x95, (11, 0): info.AMDGPU_FAMILY_GC_11_0_0, _RDNA_3_5: info.AMDGPU_FAMILY_GC_11_5_0,
    (12, 0): info.AMDGPU_FAMILY_GC_12_0_0,
}  # fmt: skip
_COPY_ENGINES = {(9, 0): (4, 4, 2), (10, 0): (5, 2, 6), (11, 0): (6, 0, 0), _RDNA_3_5: (6, 1, 1), (12, 0): (7, 0, 1)}
_SHADOW = (73728, 256)
_SAVE_AREA = (484, 256)
_EOP_ALIGNMENT = 256
_COPY_SAVE_AREA = (32, 4)


def _core(model: GpuModel) -> tuple[int, int]:
    """The generation in the tables above."""
    return _RDNA_3_5 if model.gfx[:2] == _RDNA_3_5 else (model.gfx[0], 0)


def ip_version(model: GpuModel, kind: int) -> tuple[int, int, int] | None:
    """The version of an IP; None if the IP is not emulated and reads as absent."""
    if kind in (cs.AMDGPU_HW_IP_GFX, cs.AMDGPU_HW_IP_COMPUTE):
        return model.ip
    return _COPY_ENGINES[_core(model)] if kind == cs.AMDGPU_HW_IP_DMA else None


def firmware(model: GpuModel) -> dict[int, tuple[int, int]]:
    """Version and feature version of each firmware; 0 where the emulator does not depend on it."""
    fw = model.firmware
    known = {
        info.AMDGPU_INFO_FW_GFX_ME: (fw.me, 29),
        info.AMDGPU_INFO_FW_GFX_PFP: (fw.pfp, 29),
        info.AMDGPU_INFO_FW_GFX_MEC: (fw.mec, 29),
        info.AMDGPU_INFO_FW_MES: (fw.mes, 1),
        info.AMDGPU_INFO_FW_MES_KIQ: (fw.mes, 6),
        info.AMDGPU_INFO_FW_SDMA: (fw.sdma, 60),
        info.AMDGPU_INFO_FW_GFX_RLC: (fw.rlc, 1),
        info.AMDGPU_INFO_FW_SMC: (fw.smc, 0),
    }
    return {kind: known.get(kind, (0, 0)) for kind in range(info.AMDGPU_INFO_FW_VCE, info.AMDGPU_INFO_FW_VPE + 1)}


def user_queue_areas() -> dict[int, bytes]:
    """Sizes of the buffers that a program allocates for a user queue, by IP."""
    return {
        cs.AMDGPU_HW_IP_GFX: bytes(info.DrmAmdgpuInfoUqMetadataGfx(*_SHADOW, *_SAVE_AREA)),
        cs.AMDGPU_HW_IP_COMPUTE: bytes(info.DrmAmdgpuInfoUqMetadataCompute(EOP_BYTES, _EOP_ALIGNMENT)),
        cs.AMDGPU_HW_IP_DMA: bytes(info.DrmAmdgpuInfoUqMetadataSdma(*_COPY_SAVE_AREA)),
    }


def sensors(gpu: Gpu) -> dict[int, int]:
    """Sensor values: MHz, millidegrees, percent, watts, millivolts."""
    model = gpu.model
    return {
        info.AMDGPU_INFO_SENSOR_GFX_SCLK: model.clock_mhz,
        info.AMDGPU_INFO_SENSOR_GFX_MCLK: model.memory_clock_mhz,
        info.AMDGPU_INFO_SENSOR_GPU_TEMP: 45000,
        info.AMDGPU_INFO_SENSOR_GPU_LOAD: 100 if gpu.busy() else 0,
        info.AMDGPU_INFO_SENSOR_GPU_AVG_POWER: 60,
        info.AMDGPU_INFO_SENSOR_VDDGFX: 800,
        info.AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_SCLK: model.clock_mhz,
        info.AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_MCLK: model.memory_clock_mhz,
        info.AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_SCLK: model.clock_mhz,
        info.AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_MCLK: model.memory_clock_mhz,
    }


def heaps(gpu: Gpu) -> bytes:
    """Serve VRAM_GTT."""
    return bytes(info.DrmAmdgpuInfoVramGtt(gpu.limits[Placement.VRAM], _visible(gpu), gpu.limits[Placement.GTT]))


def memory(gpu: Gpu) -> bytes:
    """Serve MEMORY: the largest allocation is three quarters of what is usable."""
    used, limits = gpu.used, gpu.limits

    def heap(size: int, usage: int) -> info.DrmAmdgpuHeapInfo:
        return info.DrmAmdgpuHeapInfo(size, size, usage, size * 3 // 4)

    vram, gtt = used[Placement.VRAM], used[Placement.GTT]
    return bytes(
        info.DrmAmdgpuMemoryInfo(
            heap(limits[Placement.VRAM], vram),
            heap(_visible(gpu), min(vram, _visible(gpu))),
            heap(limits[Placement.GTT], gtt),
        )
    )


def _visible(gpu: Gpu) -> int:
    return min(gpu.model.mappable_vram, gpu.limits[Placement.VRAM])


def device(file: DrmFile) -> bytes:
    """Serve DEV_INFO."""
    model = file.gpu.model
    arrays = model.shader_engines * _ARRAYS_PER_ENGINE
    d = info.DrmAmdgpuInfoDevice()
    d.device_id, d.chip_rev, d.external_rev, d.pci_rev = model.device_id, 1, 0x51, 0xC0
    d.family = _FAMILIES[_core(model)]
    d.num_shader_engines, d.num_shader_arrays_per_engine = model.shader_engines, _ARRAYS_PER_ENGINE
    d.gpu_counter_freq = 100_000
    d.max_engine_clock, d.max_memory_clock = model.clock_mhz * 1000, model.memory_clock_mhz * 1000
    d.min_engine_clock, d.min_memory_clock = 500_000, 96_000
    d.cu_active_number, d.num_cu_per_sh = model.cu, -(-model.cu // arrays)
    for array in range(arrays):
        engine, j = divmod(array, _ARRAYS_PER_ENGINE)
        own = model.cu // arrays + (array < model.cu % arrays)
        d.cu_bitmap[engine % 4][j + engine // 4 * 2] = (1 << own) - 1
    d.num_rb_pipes = 4 * model.shader_engines
    d.enabled_rb_pipes_mask = (1 << d.num_rb_pipes) - 1
    d.num_hw_gfx_contexts, d.pcie_gen, d.pcie_num_lanes = 8, 5, 16
    d.ids_flags = info.AMDGPU_IDS_FLAGS_FUSION if model.integrated else info.AMDGPU_IDS_FLAGS_GANG_SUBMIT
    d.virtual_address_offset = RESERVED_BOTTOM
    d.virtual_address_max = min(VM_SIZE - RESERVED_TOP, HOLE_START)
    d.high_va_offset, d.high_va_max = HOLE_END, HOLE_END | VM_SIZE - RESERVED_TOP
    d.virtual_address_alignment, d.pte_fragment_size, d.gart_page_size = PAGE, PAGE << 9, PAGE
    d.vram_type, d.vram_bit_width = info.AMDGPU_VRAM_TYPE_GDDR6, model.memory_bits
    d.wave_front_size, d.num_shader_visible_vgprs = 32, 1024
    d.num_tcc_blocks, d.gs_vgt_table_depth, d.gs_prim_buffer_depth, d.max_gs_waves_per_vgt = 16, 32, 1792, 32
    d.tcp_cache_size, d.num_sqc_per_wgp, d.sqc_data_cache_size, d.sqc_inst_cache_size = 32, 1, 16, 32
    d.gl1c_cache_size, d.gl2c_cache_size, d.mall_size = 256, 8192, 64 << 20
    if file.has_user_queues:
        (d.shadow_size, d.shadow_alignment), (d.csa_size, d.csa_alignment) = _SHADOW, _SAVE_AREA
        d.userq_ip_mask = sum(1 << kind for kind in SLOTS)
    return bytes(d)
