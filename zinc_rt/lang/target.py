"""Instruction-set levels that code can be compiled for, and those that this machine can run."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final

from zinc_rt.lang.errors import UnsupportedTarget

_X86: Final = "x86_64-unknown-linux-gnu"
_ARM: Final = "aarch64-unknown-linux-gnu"
_AMD: Final = "amdgcn--"  # the bare triple: user data starts at s0, no runtime's conventions on top
_SPIR: Final = "spirv64v1.4-unknown-unknown"

_CPUINFO: Final = Path("/proc/cpuinfo")
# The kernel grants the tile registers' state on request: arch/x86/include/uapi/asm/prctl.h, xstate component 18.
_SYS_ARCH_PRCTL: Final = 158
_ARCH_REQ_XCOMP_PERM: Final = 0x1023
_XFEATURE_XTILEDATA: Final = 18


@dataclass(frozen=True)
class Target:
    """An instruction-set level: LLVM's options, the instruction sets for kernels, the required processor flags."""

    name: str
    triple: str
    cpu: str  # LLVM's name; it also chooses the instruction schedule
    features: tuple[str, ...]  # LLVM's feature strings on top of the cpu's
    isa: frozenset[str]  # what kernels ask before they use an instruction set
    needs: frozenset[str] = field(default=frozenset(), repr=False)  # flags of /proc/cpuinfo; none: not a processor
    options: tuple[str, ...] = ()  # of LLVM's command line

    @property
    def arch(self) -> str:
        """ "x86_64", "aarch64", "amdgcn", "spirv64" or "nvptx64"."""
        return self.triple.split("-", 1)[0].removesuffix("v1.4")

    @property
    def by_driver(self) -> bool:
        """Whether the device's driver compiles the image further: a module of SPIR-V, a text of PTX."""
        return self.arch in ("spirv64", "nvptx64")

    @property
    def gpu(self) -> bool:
        """Whether kernels are for a GPU, not for a processor."""
        return not self.needs

    @property
    def matrix_instructions(self) -> bool:
        """Whether it has matrix instructions that `kernels.gpu.fragments` knows."""
        return not self.isa.isdisjoint(("wmma", "mma"))

    @property
    def ids_are_arguments(self) -> bool:
        """Whether workgroups find their ids in scalar registers behind their arguments, as on RDNA 3; later GPUs have
        registers of their own for them.
        """
        return self.cpu.startswith("gfx11")

    @property
    def least_user_registers(self) -> int:
        """Scalar registers before the workgroup's ids, whatever the arguments take. gfx1100 and gfx1102 lose some of
        them in waves of 32 lanes unless 16 are filled at least, ids included (LLVM's UserSGPRInit16Bug).
        """
        return 16 - 3 if self.ids_are_arguments else 0


_CHAINS: Final = (
    # It turns chains of integer additions into trees, which need more registers than there are.
    "--x86-machine-combiner=false",
)


def _x86(name: str, cpu: str, features: str, isa: str, needs: str) -> Target:
    return Target(
        name, _X86, cpu, tuple(features.split()), frozenset(isa.split()), frozenset(needs.split()), options=_CHAINS
    )


def _arm(name: str, isa: str, needs: str) -> Target:
    words = isa.split()
    return Target(
        name, _ARM, "generic", tuple(f"+{word}" for word in words), frozenset(words), frozenset(needs.split())
    )


def _amd(name: str, isa: str) -> Target:
    # Without unaligned-access-mode a 16-byte load of 2-byte alignment becomes eight loads.
    return Target(name, _AMD, name, ("+unaligned-access-mode",), frozenset(isa.split()))


# Flags are those of the instructions that LLVM may choose by itself for the cpu, not all that the cpu has.
_AVX2: Final = "avx2 fma f16c bmi1 bmi2 abm movbe popcnt"
_AVX512: Final = f"{_AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
_AVX512_ISA: Final = "avx2 fma f16c avx512"
_AMX: Final = (
    f"{_AVX512} avx512_vnni avx_vnni avx512ifma avx512vbmi avx512_vbmi2 avx512_bitalg avx512_vpopcntdq avx512_bf16"
    " avx512_fp16 gfni vaes vpclmulqdq amx_tile amx_int8"
)

SMALL_GROUPS: Final = "small_groups"
"""What `Target.isa` holds where a workgroup has few registers: NVIDIA's have 65,536, of 512 lanes 128 each."""
_GPU_ISA: Final = frozenset({"wave32", "dot4", SMALL_GROUPS})
_SPIRV: Final = (
    "--spirv-ext=+SPV_KHR_integer_dot_product,+SPV_KHR_no_integer_wrap_decoration",
    # It cuts numbers to 3 or 5 bits, and LLVM 22's back end for SPIR-V makes them bytes without cutting them.
    "--disable-lsr",
)
_PTX: Final = (
    # It gives each address in a loop a register that is counted on, where PTX has offsets: more than a lane has.
    "--disable-lsr",
    "--nvptx-short-ptr",  # addresses of shared memory are 32 bits
)

EMULATED: Final = "emulated"
"""What `Target.isa` holds where AVX2 stands in for the byte dot products of later levels, for tests."""

RESIDENT: Final = "resident"
"""What `Target.isa` holds too while kernels are compiled as parts of one resident program."""

# From the best to the plainest within an architecture; `host_targets` keeps this order.
TARGETS: Final[dict[str, Target]] = {
    t.name: t
    for t in (
        # LLVM halves vectors on these cpus unless told not to.
        _x86("amx", "sapphirerapids", "-prefer-256-bit", f"{_AVX512_ISA} vnni vbmi avxvnni amx", _AMX),
        _x86("avx512vnni", "cascadelake", "-prefer-256-bit", f"{_AVX512_ISA} vnni", f"{_AVX512} avx512_vnni"),
        _x86("avx512", "skylake-avx512", "-prefer-256-bit", _AVX512_ISA, _AVX512),
        _x86("avxvnni", "haswell", "+avxvnni", "avx2 fma f16c avxvnni", f"{_AVX2} avx_vnni"),
        _x86("avx2", "haswell", "", "avx2 fma f16c", _AVX2),
        _arm("aarch64-i8mm", "neon dotprod i8mm", "asimd asimddp i8mm"),
        _arm("aarch64-dotprod", "neon dotprod", "asimd asimddp"),
        _arm("aarch64", "neon", "asimd"),
        *(_amd(name, "wave32 dot4 wmma") for name in ("gfx1201", "gfx1200")),
        # Their matrix instructions want other shapes than `wmma_iu8` has.
        *(_amd(name, "wave32 dot4") for name in ("gfx1100", "gfx1151")),
        Target("spirv", _SPIR, "", (), _GPU_ISA, options=_SPIRV),
        Target("spirv-plain", _SPIR, "", (), _GPU_ISA - {"dot4"}, options=_SPIRV),
        # Later GPUs translate it for themselves. The first with matrix instructions of 16 rows is sm_80.
        Target("ptx80", "nvptx64-nvidia-cuda", "sm_80", ("+ptx70",), _GPU_ISA | {"mma"}, options=_PTX),
        Target("ptx", "nvptx64-nvidia-cuda", "sm_75", ("+ptx70",), _GPU_ISA | {"mma"}, options=_PTX),
    )
}


def host_targets() -> list[Target]:
    """Every level that this machine can run, best first; none on a machine that no level is made for.

    Asks the kernel for the tile registers where the processor has them, which holds for the whole process.
    """
    return [t for t in TARGETS.values() if not _missing(t)]


def host_target(level: str | None = None) -> Target:
    """The best level that this machine can run, or the named one.

    Raises `UnsupportedTarget` naming what is missing and what can run here.
    """
    usable = host_targets()
    here = f"this machine runs {', '.join(t.name for t in usable)}" if usable else "no level runs on this machine"
    if level is None:
        if not usable:
            needs = " ".join(sorted(TARGETS["avx2"].needs))
            raise UnsupportedTarget(
                f"native code needs x86-64 with {needs}, or aarch64 with asimd; this is {os.uname().machine};"
                " use the reference kernels"
            )
        return usable[0]
    if level not in TARGETS:
        raise UnsupportedTarget(f"unknown instruction-set level {level!r}; there are {', '.join(TARGETS)}; {here}")
    if missing := _missing(TARGETS[level]):
        raise UnsupportedTarget(f"level {level!r} needs {' '.join(missing)}, which is missing; {here}")
    return TARGETS[level]


def _missing(target: Target) -> list[str]:
    """The target's requirements that the machine lacks, for a message; empty if it can run the target."""
    machine = os.uname().machine
    if target.arch != machine:
        return [f"{target.arch} (this is {machine})" if target.needs else f"a {target.name} device"]
    lacking = sorted(target.needs - host_flags())
    if not lacking and "amx" in target.isa and not _amx_permitted():
        return ["the kernel's permission for AMX tiles (arch_prctl)"]
    return lacking


def host_flags(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """The processor's flags as the system names them; the kernel drops those that it does not enable."""
    about = host_processor(cpuinfo)
    return frozenset((about.get("flags") or about.get("Features") or "").split())


@cache
def host_processor(cpuinfo: Path = _CPUINFO) -> Mapping[str, str]:
    """What the system says of the first processor, by the system's names; empty where it says nothing."""
    about = {}
    try:
        with cpuinfo.open(encoding="ascii", errors="replace") as file:
            # The kernel writes the file as it is read, and an empty line ends what it says of a processor.
            for line in takewhile(str.strip, file):
                name, _, value = line.partition(":")
                about[name.strip()] = value.strip()
    except OSError:
        return {}
    return about


@cache
def _amx_permitted() -> bool:
    """Whether this process may use tiles, after asking for it."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)) == 0
    except (OSError, AttributeError):
        return False
