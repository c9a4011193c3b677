"""Generations of AMD's graphics core: one record for each, with everything of it that the driver has to know.

The kernel has two forms of a core's version: gfx_target_version in KFD's topology (120001 for gfx1201: major, two
digits of minor, two of stepping), and the discovery table's 0x0C0001 in HW_IP_INFO. docs/how/extending.md says what
else a new generation takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zinc_rt.amdgpu.pm4.builder import ACQUIRE_HOST, ACQUIRE_KERNEL, RELEASE_CONTROL
from zinc_rt.amdgpu.pm4.registers import RSRC1_PRIV


@dataclass(frozen=True)
class Gfx:
    """A generation.

    name, major: "gfx12" and 12. kernel_target: what kernels are compiled for, a name of `zinc_rt.lang.target.TARGETS`;
    cores: gfx_target_version // 100 of the cores that run that code; integrated: whether they may be parts of a
    processor, whose data lie in system memory. executed: whether compiled kernels have been run
    on it, by the emulator at least; where not, they are compiled and no device takes the GPU. interfaces: in the order
    in which they are tried.

    acquire_host, acquire_kernel: gcr_cntl of the full barrier, which also makes host writes visible, and of the light
    one between dispatches. release_control: the first body dword of a fence's RELEASE_MEM.

    max_groups: workgroups of a dispatch in x, y and z; user_dwords: registers that a kernel's arguments arrive in;
    max_threads: work-items of a workgroup.

    resident: whether steps of few rows may be one resident program, whose parts are compiled for this generation.

    saved_rsrc1: bits of RSRC1 that kernels need on queues whose waves are saved when they are preempted.

    lds_bytes: of a compute unit; large_registers: gfx_target_versions with 384 KiB of vector registers a compute unit,
    the others have 256. Both are part of the save area of a preempted queue, whose size amdkfd checks.
    """

    name: str
    major: int
    kernel_target: str
    cores: frozenset[int]
    executed: bool
    interfaces: tuple[str, ...]
    acquire_host: int
    acquire_kernel: int
    release_control: int
    max_groups: tuple[int, int, int]
    user_dwords: int
    max_threads: int
    lds_bytes: int
    large_registers: frozenset[int]
    resident: bool = False
    saved_rsrc1: int = 0
    integrated: bool = False

    def vgprs_per_simd(self, version: int) -> int:
        """Vector registers of 32 lanes that a SIMD of the core with this gfx_target_version has."""
        return 1536 if version in self.large_registers else 1024

    def runs_kernels(self, version: int) -> bool:
        """Whether compiled kernels run on the core with this gfx_target_version, and that has been shown."""
        return self.executed and version // 100 in self.cores


_DWORD = 0xFFFF_FFFF
_GL1_INV = 1 << 9  # of gcr_cntl: the cache between L0 and L2 that gfx11 has and gfx12 does not; Mesa drops it with L0
_GLM_WB, _GLM_INV = 1 << 12, 1 << 13  # of RELEASE_MEM: compressed memory's metadata, as Linux has it before gfx12
# From gfx11 on, firmware (MES) schedules the queues of KFD and of user space. On gfx1201 queues that it manages were
# seen to hang while submissions of the kernel driver ran (ROCm/legacy-rocm-build, issues 6630, 6413, 6397). A compute
# user queue cannot be preempted without a save area, which no kernel takes yet, so those are last.
_KERNEL_FIRST = ("cs", "kfd", "umq")

GFX11 = Gfx(
    name="gfx11",
    major=11,
    kernel_target="gfx1100",
    cores=frozenset({1100}),
    executed=True,
    interfaces=_KERNEL_FIRST,
    acquire_host=ACQUIRE_HOST,
    acquire_kernel=ACQUIRE_KERNEL | _GL1_INV,
    release_control=RELEASE_CONTROL | _GLM_WB | _GLM_INV,
    max_groups=(_DWORD, _DWORD, _DWORD),
    user_dwords=16,
    max_threads=1024,
    lds_bytes=0x10000,
    large_registers=frozenset({110000, 110001}),
    # amdkfd makes queues of cores 11.0.0 to 11.0.3 without traps (`kfd_dbg_has_cwsr_workaround`), and AMD's tests set
    # PRIV there (kfdtest, `NeedCwsrWA`). Neither does so on cores 11.5 or on gfx12.
    saved_rsrc1=RSRC1_PRIV,
)
GFX11_5 = replace(  # gfx1151 runs gfx1150's code as well: LLVM tells them apart by the register file alone
    GFX11,
    name="gfx11.5",
    kernel_target="gfx1151",
    cores=frozenset({1105}),
    large_registers=frozenset({110501}),
    saved_rsrc1=0,
    integrated=True,
)
GFX12 = Gfx(
    name="gfx12",
    major=12,
    kernel_target="gfx1201",
    cores=frozenset({1200}),
    executed=True,
    interfaces=_KERNEL_FIRST,
    acquire_host=ACQUIRE_HOST,
    acquire_kernel=ACQUIRE_KERNEL,
    release_control=RELEASE_CONTROL,
    max_groups=(_DWORD, 0xFFFF, 0xFFFF),  # a wave gets its y and z in halves of one register (ttmp7)
    user_dwords=16,
    max_threads=1024,
    lds_bytes=0x10000,
    large_registers=frozenset({120000, 120001}),
    resident=True,
)
GENERATIONS = (GFX11, GFX11_5, GFX12)
"""Those that the packets are written for, oldest first."""


def generations(*, executed: bool = False) -> str:
    """Their names for a message, as "gfx11 and gfx12"; executed: only of those that compiled kernels ran on."""
    *names, last = (gfx.name for gfx in GENERATIONS if gfx.executed or not executed)
    return f"{', '.join(names)} and {last}" if names else last


def gfx_of(version: int) -> Gfx | None:
    """The generation of a gfx_target_version; None when the packets are not written for it. A core that is in no record
    gets the oldest of its major version, for packets alone.
    """
    alike = [gfx for gfx in GENERATIONS if gfx.major == version // 10000]
    return next((gfx for gfx in alike if version // 100 in gfx.cores), alike[0] if alike else None)


def runs_kernels(version: int) -> bool:
    """Whether compiled kernels run on the GPU with this gfx_target_version."""
    gfx = gfx_of(version)
    return gfx is not None and gfx.runs_kernels(version)


def gfx_name(version: int) -> str:
    """A gfx_target_version as people write it: 120001 is "gfx1201", 90010 is "gfx90a"; "gfx?" for 0."""
    if version <= 0:
        return "gfx?"
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


_TOLD_APART = {90403: 90402, 110001: 110003, 110003: 110001, 110004: 110003}
"""Cores whose version in the hardware is not the one that compilers know them by, as amdkfd has it (kgd2kfd_probe)."""


def version_of(ip_discovery_version: int) -> int:
    """The gfx_target_version of a discovery version: major, minor and stepping, a byte each; 0x0C0001 is 120001."""
    major, minor, stepping = (ip_discovery_version >> shift & 0xFF for shift in (16, 8, 0))
    version = major * 10000 + minor * 100 + stepping
    return _TOLD_APART.get(version, version)
