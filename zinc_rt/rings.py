"""Opening the ring of a tier: which door, which GPU, or the CPU. What `auto` takes has opened and computed right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zinc_rt.errors import UsageError
from zinc_rt.lang.cache import CompileCache
from zinc_rt.linux import Linux, host
from zinc_rt.mem.plan import available_memory
from zinc_rt.ring.base import Ring
from zinc_rt.ring.cpu import KEEP_BYTES, CpuRing, Kernels
from zinc_rt.tiers import ON_GPU, Tier, TierReport, available, first_tier, tier_report

if TYPE_CHECKING:
    from zinc_rt.ring.door.base import Door
    from zinc_rt.ring.gpu.ring import AmdRing


@dataclass(frozen=True)
class RingOptions:
    """kernels, threads, isa: of the CPU's ring, see `CpuRing`; with any of them `auto` means the CPU."""

    kernels: Kernels = "native"
    threads: int | None = None
    isa: str | None = None

    @property
    def of_cpu(self) -> str:
        """The first of them that was given, as a message shows it; empty when none was."""
        kernels = self.kernels if self.kernels != "native" else None
        given = {"kernels": kernels, "threads": self.threads, "isa": self.isa}
        return next((f"{name} is {value!r}" for name, value in given.items() if value is not None), "")


def open_ring(
    tier: Tier,
    options: RingOptions,
    cache: CompileCache,
    *,
    notify: Callable[[str], None] | None = None,
    linux: Linux | None = None,
) -> tuple[Tier, Ring]:
    """The tier that was taken, and its ring.

    An explicit tier is obeyed or fails with the reason; `auto` takes the first one that opens, and `notify` gets one
    line saying what was skipped and why. linux: the machine; None for this one.
    Raises `TierUnavailable`, `UsageError` for options that the tier does not have, `RingError`, `UnsupportedTarget`.
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
    options: RingOptions,
    cache: CompileCache,
    notify: Callable[[str], None] | None,
    linux: Linux | None,
) -> Ring:
    if report.tier is Tier.t_cpu:
        return _cpu(options, cache, notify)
    if report.tier is Tier.emu:
        from zinc_rt.emulated import EmulatedRing

        return EmulatedRing(cache=cache, notify=notify)
    return _proven(_door(report.door, report.render_node, linux or host()), cache, notify)


def _cpu(options: RingOptions, cache: CompileCache, notify: Callable[[str], None] | None) -> CpuRing:
    there = available_memory()
    keep = KEEP_BYTES if there is None else min(KEEP_BYTES, there // 2)
    return CpuRing(
        kernels=options.kernels, threads=options.threads, isa=options.isa, cache=cache, keep_bytes=keep, notify=notify
    )


def _door(name: str, render_node: str, linux: Linux) -> Door:
    if name == "umq":
        from zinc_rt.ring.umq import UmqDoor

        return UmqDoor(render_node, linux=linux)
    if name == "kfd":
        from zinc_rt.ring.kfd.door import KfdDoor

        return KfdDoor(render_node, linux=linux)
    from zinc_rt.ring.cs.door import CsDoor

    return CsDoor(render_node, linux=linux)


def _proven(door: Door, cache: CompileCache, notify: Callable[[str], None] | None) -> AmdRing:
    from zinc_rt.ring.gpu.ring import AmdRing
    from zinc_rt.ring.gpu.selftest import check_results

    ring = AmdRing(door, cache=cache, notify=notify)
    try:
        check_results(ring)
    except BaseException:
        ring.close()
        raise
    return ring
