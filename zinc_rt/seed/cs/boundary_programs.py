"""The boundary's kernels in its shader buffer, and the packets that dispatch one of them.

The packets set program, resources, workgroup, limits and eight dwords of user data, and start one workgroup. All
shader engines take part. The signal is always a RELEASE_MEM: a WRITE_DATA does not wait for the shader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.gfx import GFX12
from zinc_rt.amdgpu.packets import INTERLEAVE
from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4.builder import CS_W32_EN, DISPATCH_INITIATOR_COMPUTE, lo32
from zinc_rt.errors import BackendError
from zinc_rt.lang.amd import CODE_ALIGN, AmdKernel

USER_DWORDS = 8
NAMES = (
    "argmax_top2", "argmax_keys", "rms_norm_element0", "dmmv_serial_f32", "dmmv_serial_q4_0", "dmmv_rows_q4_0",
    "dmmv_argmax_q4_0", "dmmv_serial_q8_0", "dmmv_rows_q8_0",
)  # fmt: skip
"""Kernels of `zinc_rt.kernels.gpu` that operations dispatch, in the order in which they lie in the buffer."""
_ALL = 0xFFFF_FFFF


@dataclass(frozen=True)
class BoundaryProgram:
    """A kernel at a GPU address."""

    va: int
    kernel: AmdKernel


@cache
def built_in() -> Mapping[str, AmdKernel]:
    """The kernels of `NAMES`, from the user's compile cache or compiled; once a process. Raises `LangError`."""
    # Imported here: callers that only open an interface to the driver do without the compiler.
    from zinc_rt.kernels.amd.catalogue import BOUNDARY
    from zinc_rt.lang.amd import for_amd
    from zinc_rt.lang.cache import CompileCache, default_cache_dir
    from zinc_rt.lang.gpu_library import gpu_kernels

    specs = {name: BOUNDARY[name].spec for name in NAMES}
    compiled = gpu_kernels(specs, GFX12.kernel_target, cache=CompileCache(default_cache_dir()))
    return {name: for_amd(kernel) for name, kernel in compiled.items()}


def checked(kernels: Mapping[str, AmdKernel]) -> dict[str, AmdKernel]:
    """Those of `NAMES`. Raises `BackendError` for one that is missing or cannot be launched here."""
    for name in NAMES:
        kernel = kernels.get(name)
        if kernel is None:
            raise BackendError(f"kernel {name} is missing; there are {', '.join(kernels) or 'none'}")
        if not kernel.target.startswith(GFX12.name):
            raise BackendError(f"kernel {name} is compiled for {kernel.target}, the boundary runs {GFX12.name} code")
        if kernel.scratch_bytes or kernel.dwords > USER_DWORDS:
            raise BackendError(
                f"kernel {name} needs {kernel.scratch_bytes} bytes of scratch memory and {kernel.dwords} dwords of"
                f" arguments; the boundary gives none, and {USER_DWORDS}"
            )
    return {name: kernels[name] for name in NAMES}


def upload(kernels: Mapping[str, AmdKernel], target: npt.NDArray[np.uint8], va: int) -> dict[str, BoundaryProgram]:
    """Copy the kernels into memory at a GPU address. target: u8[bytes]. Raises `BackendError` when they do not fit."""
    placed, at = {}, 0
    for name, kernel in kernels.items():
        end = at + len(kernel.code)
        if end > len(target):
            raise BackendError(f"the kernels up to {name} take {end} bytes; the shader buffer has {len(target)}")
        target[at:end] = np.frombuffer(kernel.code, np.uint8)
        placed[name] = BoundaryProgram(va + at, kernel)
        at = -(-end // CODE_ALIGN) * CODE_ALIGN
    return placed


def record_dispatch(builder: PacketBuilder, program: BoundaryProgram, user_data: Sequence[int]) -> None:
    """The packets of one workgroup. Raises `OutOfSpace`."""
    kernel = program.kernel
    builder.set_sh_reg(reg.PGM_LO, (lo32(program.va >> 8), program.va >> 40))
    builder.set_sh_reg(reg.PGM_RSRC1, (kernel.rsrc1, kernel.rsrc2))
    builder.set_sh_reg(reg.USER_ACCUM[0], (0, 0, 0, 0, kernel.rsrc3))  # USER_ACCUM_0 to 3 and RSRC3
    builder.set_sh_reg(reg.NUM_THREAD_X, (kernel.workgroup, 1, 1))
    # RESOURCE_LIMITS and the thread management of engines 0 and 1, of 2 and 3, of 4 to 7 with DISPATCH_INTERLEAVE.
    builder.set_sh_reg(reg.RESOURCE_LIMITS, (0, _ALL, _ALL))
    builder.set_sh_reg(reg.STATIC_THREAD_MGMT[2], (_ALL, _ALL))
    builder.set_sh_reg(reg.STATIC_THREAD_MGMT[4], (_ALL, _ALL, _ALL, _ALL, INTERLEAVE))
    builder.set_sh_reg_one(reg.DISPATCH_TUNNEL, 0)
    builder.set_sh_reg(reg.USER_DATA_0, user_data)
    initiator = DISPATCH_INITIATOR_COMPUTE | (CS_W32_EN if kernel.wave == 32 else 0)
    builder.dispatch_direct_initiator(1, 1, 1, initiator)


def pair(address: int) -> tuple[int, int]:
    """A GPU address as two dwords of user data."""
    return lo32(address), address >> 32
