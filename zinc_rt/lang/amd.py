"""Compiled kernels of AMD GPUs: launch registers, argument layout, code to copy to the GPU.

LLVM's object for the bare triple leaves to us: the number of user registers in RSRC2, on gfx11 the bits there for the
workgroup ids, the prefetch size in RSRC3, and the padding that instruction prefetch may run into. Register fields:
COMPUTE_PGM_RSRC* as in the Linux headers (gc_11_0_0_sh_mask.h, gc_12_0_0_sh_mask.h); padding as LLVM writes it for
amdhsa (AMDGPUTargetStreamer, EmitCodeEnd).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from zinc_rt.lang.errors import CompileError, LangError
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.image import Image
from zinc_rt.lang.launch import GpuKernel, arguments_of, dwords_of
from zinc_rt.lang.occupancy import VGPRS, waves_per_simd
from zinc_rt.lang.target import TARGETS

CODE_ALIGN: Final = 256  # COMPUTE_PGM_LO counts in it
_LINE: Final = 128  # bytes of an instruction cache line, and of a step of INST_PREF_SIZE
_S_CODE_END: Final = struct.pack("<I", 0xBF9F0000)
_PAD_LINES: Final = 3  # lines beyond the code that prefetch may touch
_LDS_STEP: Final = 512
_SCRATCH_STEP: Final = 256

_RSRC1_WGP_MODE: Final = 29
_RSRC2_SCRATCH_EN: Final = 1
_RSRC2_USER_SGPR: Final = 1  # shift; 5 bits
_RSRC2_TGID_EN: Final = 0b111 << 7  # x, y, z; LLVM knows of them where there are registers of their own
_RSRC2_LDS_SIZE: Final = 15  # shift; 9 bits
_RSRC3_INST_PREF_SIZE: Final = 4  # shift; 8 bits, on gfx11 6
_TMPRING_WAVESIZE: Final = 12  # shift; 18 bits


@dataclass(frozen=True, kw_only=True)
class AmdKernel(GpuKernel):
    """A kernel with its launch registers. Its code is to be placed at a multiple of `CODE_ALIGN` and holds the padding;
    waves of 32 lanes need CS_W32_EN in the dispatch initiator.
    """

    size: int  # bytes of the code that are instructions
    rsrc1: int
    rsrc2: int
    rsrc3: int
    tmpring: int
    constants: int = 0  # bytes behind the code's `size` that it reads

    @property
    def vgprs(self) -> int:
        """Vector registers that a lane asks for, in steps of 8, with 64 lanes of 4."""
        return ((self.rsrc1 & 0x3F) + 1) * (256 // self.wave)

    @property
    def lds_bytes(self) -> int:
        """LDS bytes of a workgroup, in allocation steps."""
        return (self.rsrc2 >> _RSRC2_LDS_SIZE & 0x1FF) * _LDS_STEP

    @property
    def scratch_bytes(self) -> int:
        """Scratch bytes of a wave, for values that do not fit in registers; 0 for a fast kernel."""
        return (self.tmpring >> _TMPRING_WAVESIZE & 0x3FFFF) * _SCRATCH_STEP if self.rsrc2 & _RSRC2_SCRATCH_EN else 0

    @property
    def wgp(self) -> bool:
        """Whether a workgroup may use both compute units of a pair."""
        return bool(self.rsrc1 >> _RSRC1_WGP_MODE & 1)

    @property
    def occupancy(self) -> int:
        """Waves that a SIMD holds at once, by registers and LDS."""
        return self.occupancy_of(VGPRS)

    def occupancy_of(self, registers: int) -> int:
        """The same on a SIMD with so many vector registers; 0 where not even one workgroup fits."""
        return waves_per_simd(
            registers=registers,
            wave=self.wave,
            vgprs=self.vgprs,
            lds_bytes=self.lds_bytes,
            workgroup=self.workgroup,
            wgp=self.wgp,
        )


def amd_kernel(spec: Spec, image: Image) -> AmdKernel:
    """A kernel of an image for an AMD GPU. Raises `CompileError` for an image that no launch can start."""
    target = TARGETS[image.target]
    start, size = image.entries[spec.symbol], image.meta["sizes"][spec.symbol]
    if start % CODE_ALIGN:
        raise CompileError(f"kernel {spec.symbol} starts at byte {start}, which is no multiple of {CODE_ALIGN}")
    # Constants lie behind the code, at the distances that the code names.
    end = len(image.code) if image.meta.get("constants") else start + size
    arguments = arguments_of(spec, target)
    config = image.meta["config"][spec.symbol]
    gfx11 = target.ids_are_arguments
    return AmdKernel(
        name=spec.function.name,
        symbol=spec.symbol,
        code=_padded(image.code[start:end]),
        size=size,
        arguments=arguments,
        workgroup=spec.function.workgroup,
        rsrc1=config["COMPUTE_PGM_RSRC1"],
        rsrc2=config["COMPUTE_PGM_RSRC2"]
        | max(dwords_of(arguments), target.least_user_registers) << _RSRC2_USER_SGPR
        | (_RSRC2_TGID_EN if gfx11 else 0),
        rsrc3=min(-(-size // _LINE), 0x3F if gfx11 else 0xFF) << _RSRC3_INST_PREF_SIZE,
        tmpring=config["COMPUTE_TMPRING_SIZE"],
        wave=spec.function.wave,
        target=image.target,
        assembly=image.meta.get("assembly", ""),
        constants=end - start - size,
    )


def for_amd(kernel: GpuKernel) -> AmdKernel:
    """A kernel with its launch registers. Raises `LangError` for one of another kind of target."""
    if not isinstance(kernel, AmdKernel):
        raise LangError(f"{kernel.name} is compiled for {kernel.target}, which is no AMD GPU")
    return kernel


def _padded(code: bytes) -> bytes:
    fill = -len(code) % _LINE + _PAD_LINES * _LINE
    return code + _S_CODE_END * (fill // len(_S_CODE_END))
