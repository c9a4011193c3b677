"""Opening the backend of a tier: which interface, which GPU, or the CPU. What `auto` takes has opened and computed
right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zinc_rt.backends.base import Backend
from zinc_rt.backends.cpu.backend import KEEP_BYTES, CpuBackend, Kernels
from zinc_rt.backends.tiers import ON_GPU, Tier, TierReport, available, first_tier, tier_report
from zinc_rt.errors import UsageError
from zinc_rt.lang.cache import CompileCache
from zinc_rt.linux import Linux, host
from zinc_rt.mem.plan import available_memory

if TYPE_CHECKING:
    from zinc_rt.amdgpu.interface import Interface
    from zinc_rt.backends.amdgpu.backend import AmdBackend


@dataclass(frozen=True)
class BackendOptions:
    """kernels, threads, isa: of the CPU's backend, see `CpuBackend`; with any of them `auto` means the CPU."""

    kernels: Kernels = "native"
    threads: int | None = None
    isa: str | None = None

    @property
    def of_cpu(self) -> str:
        """The first of them that was given, as a message shows it; empty when none was."""
        kernels = self.kernels if self.kernels != "native" else None
        given = {"kernels": kernels, "threads": self.threads, "isa": self.isa}
        return next((f"{name} is {value!r}" for name, value in given.items() if value is not None), "")


def open_backend(
    tier: Tier,
    options: BackendOptions,
    cache: CompileCache,
    *,
    notify: Callable[[str], None] | None = None,
    linux: Linux | None = None,
) -> tuple[Tier, Backend]:
    """The tier that was taken, and its backend.

    An explicit tier is obeyed or fails with the reason; `auto` takes the first one that opens, and `notify` gets one
    line saying what was skipped and why. linux: the machine; None for this one.
    Raises `TierUnavailable`, `UsageError` for options that the tier does not have, `BackendError`, `UnsupportedTarget`.
    """
    if tier in ON_GPU and options.of_cpu:
        raise UsageError(f"{options.of_cpu}, but that is an option of t_cpu; tier {tier.value} has none of it")
    if tier is not Tier.auto:
        return tier, _open(available(tier_report(tier, linux=linux)), options, cache, notify, linux)
    if options.of_cpu:
        return Tier.t_cpu, _cpu(options, cache, notify)
    return first_tier(lambda report: (report.tier, _open(report, options, cache, notify, linux)), notify, linux=linux)


def _open(
    report: TierReport,
    options: BackendOptions,
    cache: CompileCache,
    notify: Callable[[str], None] | None,
    linux: Linux | None,
) -> Backend:
    if report.tier is Tier.t_cpu:
        return _cpu(options, cache, notify)
    if report.tier is Tier.emu:
        from zinc_rt.backends.amdgpu.emulated import EmulatedBackend

        return EmulatedBackend(cache=cache, notify=notify)
    return _proven(_interface(report.interface, report.render_node, linux or host()), cache, notify)


def _cpu(options: BackendOptions, cache: CompileCache, notify: Callable[[str], None] | None) -> CpuBackend:
    there = available_memory()
    keep = KEEP_BYTES if there is None else min(KEEP_BYTES, there // 2)
    return CpuBackend(
        kernels=options.kernels, threads=options.threads, isa=options.isa, cache=cache, keep_bytes=keep, notify=notify
    )


def _interface(name: str, render_node: str, linux: Linux) -> Interface:
    if name == "umq":
        from zinc_rt.amdgpu.umq.interface import UserQueueInterface

        return UserQueueInterface(render_node, linux=linux)
    if name == "kfd":
        from zinc_rt.amdgpu.kfd.interface import KfdInterface

        return KfdInterface(render_node, linux=linux)
    from zinc_rt.amdgpu.cs.interface import CsInterface

    return CsInterface(render_node, linux=linux)


def _proven(interface: Interface, cache: CompileCache, notify: Callable[[str], None] | None) -> AmdBackend:
    from zinc_rt.backends.amdgpu.backend import AmdBackend
    from zinc_rt.backends.amdgpu.selftest import check_results

    backend = AmdBackend(interface, cache=cache, notify=notify)
    try:
        check_results(backend)
    except BaseException:
        backend.close()
        raise
    return backend
