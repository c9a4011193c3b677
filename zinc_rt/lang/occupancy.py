"""The number of waves of a kernel that a SIMD holds at once; more waves hide more of the memory latency.

Sizes of RDNA 3 and 4 as LLVM has them (AMDGPUBaseInfo: getTotalNumVGPRs, getVGPRAllocGranule, getMaxWavesPerEU) for
GPUs with the large register file, which gfx1100, gfx1101, gfx1151, gfx1200 and gfx1201 have; gfx1102's SIMDs have 1024
registers.
"""

from __future__ import annotations

from typing import Final

MAX_WAVES: Final = 16
"""Waves that a SIMD can keep."""
VGPRS: Final = 1536
"""Registers of 32 lanes that a SIMD has."""
_GRANULE: Final = 24
_SMALL_GRANULE: Final = 16
_LDS: Final = 64 << 10  # bytes of a compute unit
_SIMDS: Final = 2  # of a compute unit


def waves_per_simd(*, wave: int, vgprs: int, lds_bytes: int, workgroup: int, wgp: bool, registers: int = VGPRS) -> int:
    """Waves of 32 or 64 lanes that a SIMD holds at once. vgprs: of a lane; lds_bytes: of a workgroup of `workgroup`
    work-items; wgp: whether a workgroup may use both compute units of a pair (RSRC1.WGP_MODE); registers: of a SIMD. 0:
    not even one workgroup fits.
    """
    units = 2 if wgp else 1
    groups, by_registers = _of_units(wave, vgprs, lds_bytes, workgroup, units, registers)
    return min(MAX_WAVES, by_registers, -(-groups * -(-workgroup // wave) // (units * _SIMDS)))


def workgroups_at_once(
    compute_units: int, *, wave: int, vgprs: int, lds_bytes: int, workgroup: int, wgp: bool, registers: int = VGPRS
) -> int:
    """Workgroups that so many compute units hold at once; see `waves_per_simd`."""
    units = 2 if wgp else 1
    return compute_units // units * _of_units(wave, vgprs, lds_bytes, workgroup, units, registers)[0]


def _of_units(wave: int, vgprs: int, lds_bytes: int, workgroup: int, units: int, registers: int) -> tuple[int, int]:
    """Workgroups that one or two compute units hold, and waves of a SIMD by registers."""
    scale = wave // 32
    step = (_GRANULE if registers == VGPRS else _SMALL_GRANULE) // scale
    by_registers = registers // scale // (-(-max(vgprs, 1) // step) * step)
    groups = units * _SIMDS * min(MAX_WAVES, by_registers) // -(-workgroup // wave)
    if lds_bytes:
        groups = min(groups, units * _LDS // lds_bytes)
    return groups, by_registers
