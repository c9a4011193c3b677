"""Tiers: the engines that a machine may offer, which of them can run here, and which one to take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.lang.target import host_targets
from zinc_rt.linux import Linux, host

if TYPE_CHECKING:
    from zinc_rt.backends.probe import Gpu, Proof

TIER_VARIABLE = "ZINC_RT_TIER"


class Tier(StrEnum):
    """An execution tier, or `auto` for the best one that works."""

    auto = "auto"
    t1_pm4 = "t1_pm4"
    t2_umq = "t2_umq"
    t_cpu = "t_cpu"
    t_metal = "t_metal"
    t_intel = "t_intel"
    t_cuda = "t_cuda"
    emu = "emu"


_T = TypeVar("_T")
ON_GPU = frozenset({Tier.t1_pm4, Tier.t2_umq, Tier.emu})
_SHORT = {"t1": Tier.t1_pm4, "t2": Tier.t2_umq}


class UnknownZincRtTier(UsageError):
    """A tier name that is not in the list."""


class TierUnavailable(ZincError):
    """The tier that was asked for cannot run here."""


@dataclass(frozen=True)
class TierReport:
    """What `zinc check` says of a tier. `remedy` is empty where nothing can be done, or nothing needs to be; proven:
    a fence retired through the interface `interface` of the GPU at `render_node`.
    """

    tier: Tier
    available: bool
    reason: str
    remedy: str = ""
    proven: bool = False
    interface: str = ""
    render_node: str = ""


def parse_tier(text: str) -> Tier:
    """A tier by name (`auto`, `t1`, `t1_pm4`, `t2`, `t2_umq`, `t_cpu`, ...). Raises `UnknownZincRtTier`."""
    if text in _SHORT:
        return _SHORT[text]
    try:
        return Tier(text)
    except ValueError:
        names = ", ".join([*(t.value for t in Tier), *_SHORT])
        raise UnknownZincRtTier(f"unknown tier {text!r}; use one of {names}") from None


def tier_from_env(environ: Mapping[str, str] | None = None) -> Tier:
    """The tier named by ZINC_RT_TIER, else `auto`. Raises `UnknownZincRtTier` naming the variable."""
    text = (os.environ if environ is None else environ).get(TIER_VARIABLE, "")
    if not text:
        return Tier.auto
    try:
        return parse_tier(text)
    except UnknownZincRtTier as error:
        raise UnknownZincRtTier(f"{TIER_VARIABLE}: {error}") from None


_EMULATED = "the same machine code on an emulated R9700: for looking, slow"
_OTHER_REASON = "not built: AMD GPUs and the CPU are what this runtime is for"
_ORDER = (Tier.t2_umq, Tier.t1_pm4, Tier.t_cpu, Tier.t_metal, Tier.t_intel, Tier.t_cuda, Tier.emu)
_USE_CPU, _SEE = "use t_cpu", "see `zinc check`"


def _cpu_kernels() -> str:
    levels = host_targets()
    return (
        f"kernels compiled for {levels[0].name}" if levels else "reference kernels (NumPy), no native ones for this CPU"
    )


class _Probe:
    """Looks at the GPUs once, however many tiers ask."""

    def __init__(self, linux: Linux) -> None:
        self._linux = linux
        self._reports: dict[Tier, TierReport] = {}

    @cached_property
    def gpus(self) -> list[Gpu]:
        from zinc_rt.backends.probe import find_gpus

        return find_gpus(self._linux)

    def report(self, tier: Tier) -> TierReport:
        """Whether a tier can run."""
        if tier is Tier.t_cpu:
            return TierReport(tier, True, _cpu_kernels())
        if tier is Tier.emu:
            return TierReport(tier, True, _EMULATED)
        if tier in {Tier.t2_umq, Tier.t1_pm4}:
            if tier not in self._reports:
                self._reports[tier] = self._gpu_report(tier)
            return self._reports[tier]
        return TierReport(tier, False, _OTHER_REASON)

    def _gpu_report(self, tier: Tier) -> TierReport:
        if not self._linux.is_linux:
            return TierReport(tier, False, "AMD GPUs are driven on Linux only", _USE_CPU)
        if not self.gpus:
            return TierReport(tier, False, "no AMD GPU is in sight", _USE_CPU)
        from zinc_rt.amdgpu.interface import KERNELS_FOR

        eligible = [gpu for gpu in self.gpus if gpu.eligible and gpu.gfx_target_version // 100 == KERNELS_FOR]
        if not eligible:
            refusals = (gpu.refusal() or f"{gpu.render_node} is {gpu.name}: no kernels for it" for gpu in self.gpus)
            return TierReport(tier, False, "; ".join(refusals), _SEE)
        errors = []
        for gpu, proof in self._proofs(tier, eligible):
            if proof.seconds is not None:
                shown = f"a fence retired through {proof.interface} on {gpu.render_node} ({gpu.name})"
                return TierReport(tier, True, shown, "", True, proof.interface, gpu.render_node)
            errors.append(f"{proof.interface}: {proof.error}")
        return TierReport(tier, False, "; ".join(errors), _SEE)

    def _proofs(self, tier: Tier, gpus: list[Gpu]) -> Iterator[tuple[Gpu, Proof]]:
        from zinc_rt.backends.probe import prove_cs, prove_kfd, prove_umq

        interfaces = (prove_umq,) if tier is Tier.t2_umq else (prove_kfd, prove_cs)
        return ((gpu, interface(gpu.render_node, self._linux)) for gpu in gpus for interface in interfaces)


@cache
def _host_probe() -> _Probe:
    """GPUs are tried out once a process: amdkfd binds a GPU to the first file that it is opened with."""
    return _Probe(host())


def _probe(linux: Linux | None) -> _Probe:
    return _host_probe() if linux is None else _Probe(linux)


def tier_reports(*, linux: Linux | None = None) -> Iterator[TierReport]:
    """Every tier in the order `auto` prefers them, each looked at when it is asked for."""
    probe = _probe(linux)
    return (probe.report(tier) for tier in _ORDER)


def tier_report(tier: Tier, *, linux: Linux | None = None) -> TierReport:
    """What there is to say of one tier, which is not `auto`."""
    return _probe(linux).report(tier)


def probe_tiers(*, linux: Linux | None = None) -> list[TierReport]:
    """Every tier in the order `auto` prefers them, with the reason why it can or cannot run.

    A GPU tier is tried out: only a fence that retires through one of its interfaces proves it.
    """
    return list(tier_reports(linux=linux))


def said_of(taken: Tier, skipped: Sequence[TierReport]) -> str:
    """One line: which tier `auto` took, and what it skipped and why."""
    names = ", ".join(r.tier.value for r in skipped)
    reason = next((r.reason for r in skipped if r.proven), skipped[-1].reason)
    return f"tier {taken.value}; skipped {names}: {reason}"


def auto_tier(notify: Callable[[str], None] | None = None, *, linux: Linux | None = None) -> Tier:
    """The first tier in `probe_tiers` order that can run; `notify` gets one line saying what was skipped and why."""
    return first_tier(lambda report: report.tier, notify, linux=linux)


def first_tier(
    attempt: Callable[[TierReport], _T], notify: Callable[[str], None] | None = None, *, linux: Linux | None = None
) -> _T:
    """What `attempt` makes of the first tier that can run; a GPU for which it raises a `ZincError` is skipped, too.

    notify: as for `auto_tier`. Raises `TierUnavailable`.
    """
    skipped: list[TierReport] = []
    for report in tier_reports(linux=linux):
        if report.available:
            try:
                made = attempt(report)
            except ZincError as error:
                if report.tier not in ON_GPU:
                    raise
                skipped.append(replace(report, available=False, reason=str(error)))
                continue
            if skipped and notify is not None:
                notify(said_of(report.tier, skipped))
            return made
        skipped.append(report)
    raise TierUnavailable("no tier can run on this machine; `zinc check` explains each")


def resolve_tier(tier: Tier, notify: Callable[[str], None] | None = None, *, linux: Linux | None = None) -> Tier:
    """`auto` becomes the tier to use; an explicit tier is kept or refused. Raises `TierUnavailable` with the reason."""
    if tier is Tier.auto:
        return auto_tier(notify, linux=linux)
    available(tier_report(tier, linux=linux))
    return tier


def available(report: TierReport) -> TierReport:
    """The report. Raises `TierUnavailable` when the tier cannot run."""
    if not report.available:
        hint = f"; {report.remedy}" if report.remedy else ""
        raise TierUnavailable(f"tier {report.tier.value} cannot run: {report.reason}{hint}")
    return report
