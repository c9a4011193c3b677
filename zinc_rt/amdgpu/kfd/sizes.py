"""Sizes that amdkfd checks to the byte: the save area of a queue (CWSR).

A queue that is preempted saves its waves into memory that the creator of the queue allocates: a control stack, the
registers and LDS of every compute unit, and a part for the debugger that no file tells. CREATE_QUEUE refuses any other
size with EINVAL. Formulas: `kfd_queue_ctx_save_restore_size` of amdkfd.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.amdgpu.gfx import gfx_of
from zinc_rt.amdgpu.kfd.topology import TopologyNode
from zinc_rt.utils.linux import PAGE

EOP_BYTES = 4096
"""End-of-pipe buffer of a compute queue from gfx8 on; without it RELEASE_MEM faults."""

_WAVES_PER_CU = 32
_DEBUG_BYTES_PER_WAVE = 32
_STACK_BYTES_PER_WAVE, _STACK_HEADER = 12, 8 + 40
_STACK_LIMIT_GFX10 = 0x7000
_SGPR, _LDS, _HWREG = 0x4000, 0x10000, 0x1000  # of a compute unit
_VGPR, _VGPR_LARGE = 0x40000, 0x60000


@dataclass(frozen=True)
class SaveArea:
    """The sizes that CREATE_QUEUE accepts. context, control_stack: its arguments, in bytes; allocation: bytes."""

    context: int
    control_stack: int
    allocation: int


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is not below `value`; `value` itself for alignment 0."""
    return value if alignment == 0 else -(-value // alignment) * alignment


def compute_cwsr_bo_size(
    cwsr_size: int, simd_count: int, simd_per_cu: int, num_xcc: int, gfx_target_version: int
) -> int:
    """Bytes to allocate for a queue's save area, from what the topology says.

    simd_per_cu 0: 2 on RDNA, 4 on others; num_xcc 0: 1. (cwsr_size + debugger's part) of each XCC, whole pages.
    """
    xcc = num_xcc or 1
    debug = 0
    if gfx_target_version >= 100100:
        cu = simd_count // (simd_per_cu or _default_simd_per_cu(gfx_target_version)) // xcc
        debug = align_up(cu * _WAVES_PER_CU * _DEBUG_BYTES_PER_WAVE, 64)
    return align_up((cwsr_size + debug) * xcc, PAGE)


def save_area(node: TopologyNode) -> SaveArea:
    """Sizes for a queue on a node. Where an old kernel's topology does not tell them, they are computed (gfx10.1+)."""
    context = node.cwsr_size or computed_cwsr_size(node)
    stack = node.ctl_stack_size or computed_ctl_stack_size(node)
    allocation = compute_cwsr_bo_size(context, node.simd_count, node.simd_per_cu, node.num_xcc, node.gfx_target_version)
    return SaveArea(context, stack, allocation)


def compute_units(node: TopologyNode) -> int:
    """Compute units of one XCC of a node."""
    simd_per_cu = node.simd_per_cu or _default_simd_per_cu(node.gfx_target_version)
    return node.simd_count // simd_per_cu // (node.num_xcc or 1)


def computed_ctl_stack_size(node: TopologyNode) -> int:
    """The control stack as gfx10.1 and later need it, bytes."""
    size = align_up(_STACK_BYTES_PER_WAVE * compute_units(node) * _WAVES_PER_CU + _STACK_HEADER, PAGE)
    return min(size, _STACK_LIMIT_GFX10) if node.gfx_target_version // 10000 == 10 else size


def computed_cwsr_size(node: TopologyNode) -> int:
    """Control stack and registers as gfx10.1 and later need them, bytes, without the debugger's part."""
    gfx = gfx_of(node.gfx_target_version)
    large = gfx is not None and node.gfx_target_version in gfx.large_registers
    lds = gfx.lds_bytes if gfx is not None else _LDS
    unit = (_VGPR_LARGE if large else _VGPR) + _SGPR + lds + _HWREG
    return align_up(compute_units(node) * unit, PAGE) + computed_ctl_stack_size(node)


def eop_bytes(gfx_target_version: int) -> int:
    """Bytes of the end-of-pipe buffer, 0 where there is none."""
    return EOP_BYTES if gfx_target_version >= 80000 else 0


def _default_simd_per_cu(gfx_target_version: int) -> int:
    return 2 if 100000 <= gfx_target_version < 130000 else 4
