"""What amdgpu says about the device: layouts of `amdgpu_drm.h`."""

from __future__ import annotations

from ctypes import Structure, Union

from zinc_rt.amdgpu.abi.types import u32, u64

AMDGPU_IDS_FLAGS_FUSION = 1
AMDGPU_INFO_DEV_INFO = 0x16
AMDGPU_INFO_FW_GFX_ME = 4
AMDGPU_INFO_FW_GFX_MEC = 8
AMDGPU_INFO_FW_GFX_PFP = 5
AMDGPU_INFO_FW_GFX_RLC = 7
AMDGPU_INFO_FW_IMU = 0x1B
AMDGPU_INFO_FW_MES = 0x1A
AMDGPU_INFO_FW_MES_KIQ = 0x19
AMDGPU_INFO_FW_SDMA = 0xB
AMDGPU_INFO_FW_SMC = 0xA
AMDGPU_INFO_FW_VERSION = 0xE
AMDGPU_INFO_GPUVM_FAULT = 0x23
AMDGPU_INFO_HW_IP_INFO = 2
AMDGPU_INFO_MEMORY = 0x19
AMDGPU_INFO_UQ_FW_AREAS = 0x24


class DrmAmdgpuQueryFw(Structure):
    """Which firmware."""

    _fields_ = (
        ("fw_type", u32),
        ("ip_instance", u32),
        ("index", u32),
        ("_pad", u32),
    )


class DrmAmdgpuInfoModeCrtc(Structure):
    """Member `mode_crtc` of `DrmAmdgpuInfo`."""

    _fields_ = (
        ("id", u32),
        ("_pad", u32),
    )


class DrmAmdgpuInfoQueryHwIp(Structure):
    """Member `query_hw_ip` of `DrmAmdgpuInfo`."""

    _fields_ = (
        ("type", u32),
        ("ip_instance", u32),
    )


class DrmAmdgpuInfoReadMmrReg(Structure):
    """Member `read_mmr_reg` of `DrmAmdgpuInfo`."""

    _fields_ = (
        ("dword_offset", u32),
        ("count", u32),
        ("instance", u32),
        ("flags", u32),
    )


class DrmAmdgpuInfoVbiosInfo(Structure):
    """Member `vbios_info` of `DrmAmdgpuInfo`."""

    _fields_ = (
        ("type", u32),
        ("offset", u32),
    )


class DrmAmdgpuInfoSensorInfo(Structure):
    """Member `sensor_info` of `DrmAmdgpuInfo`."""

    _fields_ = (("type", u32),)


class DrmAmdgpuInfoVideoCap(Structure):
    """Member `video_cap` of `DrmAmdgpuInfo`."""

    _fields_ = (("type", u32),)


class _DrmAmdgpuInfoUnion(Union):
    _fields_ = (
        ("mode_crtc", DrmAmdgpuInfoModeCrtc),
        ("query_hw_ip", DrmAmdgpuInfoQueryHwIp),
        ("read_mmr_reg", DrmAmdgpuInfoReadMmrReg),
        ("query_fw", DrmAmdgpuQueryFw),
        ("vbios_info", DrmAmdgpuInfoVbiosInfo),
        ("sensor_info", DrmAmdgpuInfoSensorInfo),
        ("video_cap", DrmAmdgpuInfoVideoCap),
    )


class DrmAmdgpuInfo(Structure):
    """INFO: the answer is written to `return_pointer`."""

    _anonymous_ = ("_u1",)
    _fields_ = (
        ("return_pointer", u64),
        ("return_size", u32),
        ("query", u32),
        ("_u1", _DrmAmdgpuInfoUnion),
    )


class DrmAmdgpuInfoHwIp(Structure):
    """An engine: version, alignment of indirect buffers, rings, slots for user queues."""

    _fields_ = (
        ("hw_ip_version_major", u32),
        ("hw_ip_version_minor", u32),
        ("capabilities_flags", u64),
        ("ib_start_alignment", u32),
        ("ib_size_alignment", u32),
        ("available_rings", u32),
        ("ip_discovery_version", u32),
        ("userq_num_slots", u32),
    )


class DrmAmdgpuInfoFirmware(Structure):
    """A version of firmware."""

    _fields_ = (
        ("ver", u32),
        ("feature", u32),
    )


class DrmAmdgpuHeapInfo(Structure):
    """One heap, in bytes."""

    _fields_ = (
        ("total_heap_size", u64),
        ("usable_heap_size", u64),
        ("heap_usage", u64),
        ("max_allocation", u64),
    )


class DrmAmdgpuMemoryInfo(Structure):
    """All heaps."""

    _fields_ = (
        ("vram", DrmAmdgpuHeapInfo),
        ("cpu_accessible_vram", DrmAmdgpuHeapInfo),
        ("gtt", DrmAmdgpuHeapInfo),
    )


class DrmAmdgpuInfoDevice(Structure):
    """The device."""

    _fields_ = (
        ("device_id", u32),
        ("chip_rev", u32),
        ("external_rev", u32),
        ("pci_rev", u32),
        ("family", u32),
        ("num_shader_engines", u32),
        ("num_shader_arrays_per_engine", u32),
        ("gpu_counter_freq", u32),
        ("max_engine_clock", u64),
        ("max_memory_clock", u64),
        ("cu_active_number", u32),
        ("cu_ao_mask", u32),
        ("cu_bitmap", u32 * 4 * 4),
        ("enabled_rb_pipes_mask", u32),
        ("num_rb_pipes", u32),
        ("num_hw_gfx_contexts", u32),
        ("pcie_gen", u32),
        ("ids_flags", u64),
        ("virtual_address_offset", u64),
        ("virtual_address_max", u64),
        ("virtual_address_alignment", u32),
        ("pte_fragment_size", u32),
        ("gart_page_size", u32),
        ("ce_ram_size", u32),
        ("vram_type", u32),
        ("vram_bit_width", u32),
        ("vce_harvest_config", u32),
        ("gc_double_offchip_lds_buf", u32),
        ("prim_buf_gpu_addr", u64),
        ("pos_buf_gpu_addr", u64),
        ("cntl_sb_buf_gpu_addr", u64),
        ("param_buf_gpu_addr", u64),
        ("prim_buf_size", u32),
        ("pos_buf_size", u32),
        ("cntl_sb_buf_size", u32),
        ("param_buf_size", u32),
        ("wave_front_size", u32),
        ("num_shader_visible_vgprs", u32),
        ("num_cu_per_sh", u32),
        ("num_tcc_blocks", u32),
        ("gs_vgt_table_depth", u32),
        ("gs_prim_buffer_depth", u32),
        ("max_gs_waves_per_vgt", u32),
        ("pcie_num_lanes", u32),
        ("cu_ao_bitmap", u32 * 4 * 4),
        ("high_va_offset", u64),
        ("high_va_max", u64),
        ("pa_sc_tile_steering_override", u32),
        ("pad", u32),
        ("tcc_disabled_mask", u64),
        ("min_engine_clock", u64),
        ("min_memory_clock", u64),
        ("tcp_cache_size", u32),
        ("num_sqc_per_wgp", u32),
        ("sqc_data_cache_size", u32),
        ("sqc_inst_cache_size", u32),
        ("gl1c_cache_size", u32),
        ("gl2c_cache_size", u32),
        ("mall_size", u64),
        ("enabled_rb_pipes_mask_hi", u32),
        ("shadow_size", u32),
        ("shadow_alignment", u32),
        ("csa_size", u32),
        ("csa_alignment", u32),
        ("userq_ip_mask", u32),
    )


class DrmAmdgpuInfoGpuvmFault(Structure):
    """The last page fault."""

    _fields_ = (
        ("addr", u64),
        ("status", u32),
        ("vmhub", u32),
    )


class DrmAmdgpuInfoUqMetadataGfx(Structure):
    """Areas of a graphics user queue."""

    _fields_ = (
        ("shadow_size", u32),
        ("shadow_alignment", u32),
        ("csa_size", u32),
        ("csa_alignment", u32),
    )


class DrmAmdgpuInfoUqMetadataCompute(Structure):
    """The end-of-pipe buffer of a compute user queue."""

    _fields_ = (
        ("eop_size", u32),
        ("eop_alignment", u32),
    )


class DrmAmdgpuInfoUqMetadataSdma(Structure):
    """The save area of a copy user queue."""

    _fields_ = (
        ("csa_size", u32),
        ("csa_alignment", u32),
    )


class DrmAmdgpuInfoUqMetadata(Union):
    """UQ_FW_AREAS: what the firmware needs of a user queue, by engine. Kernels before 7.2 fill in `gfx` alone."""

    _fields_ = (
        ("gfx", DrmAmdgpuInfoUqMetadataGfx),
        ("compute", DrmAmdgpuInfoUqMetadataCompute),
        ("sdma", DrmAmdgpuInfoUqMetadataSdma),
    )
