"""/sys/devices/virtual/kfd/kfd/topology: amdkfd's list of nodes, as text (`kfd_topology.c`).

Order and names of the lines are the kernel's; the values of an R9700 are those of public reports where there are any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from amdgpu_emu.sysfs.buses import location_id

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu
    from amdgpu_emu.machine import Machine

ROOT = "/sys/devices/virtual/kfd/kfd/topology"
CPU_CORES, CPU_CLOCK_MHZ = 24, 5662
CPU_MEMORY, CPU_MEMORY_BITS, CPU_MEMORY_MHZ = 67060072448, 64, 2800
_KEYS = (
    "cpu_cores_count", "simd_count", "mem_banks_count", "caches_count", "io_links_count", "p2p_links_count",
    "cpu_core_id_base", "simd_id_base", "max_waves_per_simd", "lds_size_in_kb", "gds_size_in_kb", "num_gws",
    "wave_front_size", "array_count", "simd_arrays_per_engine", "cu_per_simd_array", "simd_per_cu",
    "max_slots_scratch_cu", "gfx_target_version", "vendor_id", "device_id", "location_id", "domain",
    "drm_render_minor", "hive_id", "num_sdma_engines", "num_sdma_xgmi_engines", "num_sdma_queues_per_engine",
    "num_cp_queues", "cwsr_size", "ctl_stack_size",
)  # fmt: skip
"""Lines that every node has; a GPU's own follow, then `max_engine_clk_ccompute`."""
_GPU_KEYS = (
    "max_engine_clk_fcompute", "local_mem_size", "fw_version", "capability", "capability2", "debug_prop",
    "sdma_fw_version", "unique_id", "num_xcc",
)  # fmt: skip
_CAPABILITY = 0x6843A280
_QUEUE_RESET = 0x80000000  # single queues can be reset, gfx12 since 7.x
_DEBUG_PROPERTIES = 0x5D7
_FIRST_SIMD_ID = 0x80001000
_UNIQUE_ID = 4565675986337361990
_PCIE = 2
_SYSTEM, _PUBLIC, _PRIVATE = 0, 1, 2
"""Kinds of heaps."""


def is_of_gpu(path: str) -> bool:
    """Whether a file belongs to a GPU's node, which a container may not see."""
    return path.startswith(f"{ROOT}/nodes/") and not path.startswith(f"{ROOT}/nodes/0/")


def files(machine: Machine) -> dict[str, str]:
    """The files of the whole topology, path to text: node 0 is the processor, GPUs follow."""
    found = {
        f"{ROOT}/generation_id": f"{1 + len(machine.gpus)}\n",
        f"{ROOT}/system_properties": "platform_oem 19984723346\nplatform_id 0\nplatform_rev 1\n",
    }
    found |= _below(f"{ROOT}/nodes/0", _cpu_node(machine))
    for gpu in machine.gpus:
        found |= _below(f"{ROOT}/nodes/{gpu.index + 1}", _gpu_node(machine, gpu))
    return found


def _below(root: str, node: Mapping[str, str]) -> dict[str, str]:
    return {f"{root}/{name}": text for name, text in node.items()}


def _lines(keys: Iterable[str], values: Mapping[str, int]) -> str:
    return "".join(f"{key} {values.get(key, 0)}\n" for key in keys)


def _cpu_node(machine: Machine) -> dict[str, str]:
    values = {
        "cpu_cores_count": CPU_CORES,
        "mem_banks_count": 1,
        "io_links_count": len(machine.gpus),
        "max_engine_clk_ccompute": CPU_CLOCK_MHZ,
    }
    node = {
        "gpu_id": "0\n",
        "name": "\n",
        "properties": _lines((*_KEYS, "max_engine_clk_ccompute"), values),
        "mem_banks/0/properties": _memory(_SYSTEM, CPU_MEMORY, CPU_MEMORY_BITS, CPU_MEMORY_MHZ),
    }
    for gpu in machine.gpus:
        node[f"io_links/{gpu.index}/properties"] = _link(gpu, 0, gpu.index + 1)
    return node


def _gpu_node(machine: Machine, gpu: Gpu) -> dict[str, str]:
    model = gpu.model
    peers = [p for p in machine.gpus if p is not gpu and _large_bar(p) and _large_bar(gpu)]
    caches = _caches(gpu)
    keys = [key for key in _GPU_KEYS if key != "capability2" or machine.profile.since(7, 0)]
    node = {
        "gpu_id": f"{gpu.gpu_id}\n",
        "name": "ip discovery\n" if model.gfx >= (11, 0, 0) or model.integrated else f"{model.name.lower()}\n",
        "properties": _lines(
            (*_KEYS, *keys, "max_engine_clk_ccompute"), _gpu_values(machine, gpu, len(caches), len(peers))
        ),
        "mem_banks/0/properties": _memory(_heap(gpu), model.vram, model.memory_bits, model.memory_clock_mhz),
        "io_links/0/properties": _link(gpu, gpu.index + 1, 0),
    }
    for i, peer in enumerate(peers):
        node[f"p2p_links/{i}/properties"] = _link(gpu, gpu.index + 1, peer.index + 1)
    for i, text in enumerate(caches):
        node[f"caches/{i}/properties"] = text
    return node


def _gpu_values(machine: Machine, gpu: Gpu, caches: int, peers: int) -> dict[str, int]:
    model = gpu.model
    arrays = 2 if model.cu > 2 * model.shader_engines else 1
    per_array = -(-model.cu // (model.shader_engines * arrays))
    newest = machine.profile.since(7, 0) and model.gfx[0] >= 12
    before = sum(other.model.cu for other in machine.gpus[: gpu.index])
    return {
        "simd_count": 2 * model.cu,
        "mem_banks_count": 1,
        "caches_count": caches,
        "io_links_count": 1,
        "p2p_links_count": peers,
        "simd_id_base": _FIRST_SIMD_ID + before,
        "max_waves_per_simd": 16,
        "lds_size_in_kb": 64,
        "num_gws": 0 if model.integrated else 64,
        "wave_front_size": 32,
        "array_count": model.shader_engines * arrays,
        "simd_arrays_per_engine": arrays,
        "cu_per_simd_array": per_array + per_array % 2,  # whole pairs: cards with fewer have some switched off
        "simd_per_cu": 2,
        "max_slots_scratch_cu": 32,
        "gfx_target_version": model.gfx_target_version,
        "vendor_id": 0x1002,
        "device_id": model.device_id,
        "location_id": location_id(gpu),
        "drm_render_minor": gpu.render_minor,
        "num_sdma_engines": _sdma_engines(gpu),
        "num_sdma_queues_per_engine": 6 if model.gfx[0] >= 11 else 8,
        "num_cp_queues": 4,
        "cwsr_size": model.cwsr_size,
        "ctl_stack_size": model.ctl_stack_size,
        "max_engine_clk_fcompute": model.clock_mhz,
        "fw_version": model.firmware.mec,
        "capability": _CAPABILITY | _QUEUE_RESET * newest,
        "debug_prop": _DEBUG_PROPERTIES,
        "sdma_fw_version": model.firmware.sdma,
        "unique_id": 0 if model.integrated else _UNIQUE_ID + gpu.index,
        "num_xcc": 1,
        "max_engine_clk_ccompute": CPU_CLOCK_MHZ,
    }


def _sdma_engines(gpu: Gpu) -> int:
    return 1 if gpu.model.integrated else 2


def _large_bar(gpu: Gpu) -> bool:
    return gpu.model.mappable_vram == gpu.model.vram and not gpu.model.integrated


def _heap(gpu: Gpu) -> int:
    """The memory bank of a GPU: public if the processor can map the whole."""
    return _PUBLIC if gpu.model.mappable_vram == gpu.model.vram else _PRIVATE


def _memory(kind: int, size: int, bits: int, mhz: int) -> str:
    return f"heap_type {kind}\nsize_in_bytes {size}\nflags 0\nwidth {bits}\nmem_clk_max {mhz}\n"


def _link(gpu: Gpu, start: int, end: int) -> str:
    return (
        f"type {_PCIE}\nversion_major 0\nversion_minor 0\nnode_from {start}\nnode_to {end}\nweight 20\n"
        "min_latency 0\nmax_latency 0\nmin_bandwidth 312\nmax_bandwidth 31504\nrecommended_transfer_size 0\n"
        f"recommended_sdma_engine_id_mask {(1 << _sdma_engines(gpu)) - 1}\nflags 1\n"
    )


def _caches(gpu: Gpu) -> list[str]:
    """A vector cache per compute unit; a scalar and an instruction cache per pair; L2 and the one behind it."""
    cu = gpu.model.cu
    pairs = max(1, cu // 2)
    rows = [(i, 1, 32, 1, 1) for i in range(cu)]
    rows += [(2 * i, 1, 16, 1, 2) for i in range(pairs)] + [(2 * i, 1, 32, 2, 2) for i in range(pairs)]
    rows += [(0, 2, 8192, 1, cu)] + ([] if gpu.model.integrated else [(0, 3, 65536, 1, cu)])
    first = _FIRST_SIMD_ID + sum(other.model.cu for other in gpu.machine.gpus[: gpu.index])
    return [_cache(first, cu, *row) for row in rows]


def _cache(first: int, cu: int, at: int, level: int, kib: int, kind: int, shared: int) -> str:
    """The text of a cache. kind: 1 data, 2 instructions; siblings: the compute units that share it."""
    siblings = ",".join("1" if at <= i < at + shared else "0" for i in range(cu))
    return (
        f"processor_id_low {first + at}\nlevel {level}\nsize {kib}\ncache_line_size 128\ncache_lines_per_tag 1\n"
        f"association 0\nlatency 0\ntype {kind}\nsibling_map {siblings}\n"
    )
