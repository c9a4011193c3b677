"""Tiers: the engines that a machine may offer, which of them can run here, and which one to take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.lang.target import host_targets

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


_SHORT = {"t1": Tier.t1_pm4, "t2": Tier.t2_umq}


class UnknownZincRtTier(UsageError):
    """A tier name that is not in the list."""


class TierUnavailable(ZincError):
    """The tier that was asked for cannot run here."""


@dataclass(frozen=True)
class TierReport:
    """What `zinc check` says of a tier. `remedy` is empty where nothing can be done, or nothing needs to be."""

    tier: Tier
    available: bool
    reason: str
    remedy: str = ""


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


_GPU_REASON = "this version has no AMD GPU tier yet"
_OTHER_REASON = "not built: AMD GPUs and the CPU are what this runtime is for"


def _cpu_kernels() -> str:
    levels = host_targets()
    return (
        f"kernels compiled for {levels[0].name}" if levels else "reference kernels (NumPy), no native ones for this CPU"
    )


def probe_tiers() -> list[TierReport]:
    """Every tier in the order `auto` prefers them, with the reason why it can or cannot run."""
    return [
        TierReport(Tier.t2_umq, False, _GPU_REASON, "use t_cpu"),
        TierReport(Tier.t1_pm4, False, _GPU_REASON, "use t_cpu"),
        TierReport(Tier.t_cpu, True, _cpu_kernels()),
        *(TierReport(t, False, _OTHER_REASON) for t in (Tier.t_metal, Tier.t_intel, Tier.t_cuda)),
    ]


def auto_tier(notify: Callable[[str], None] | None = None) -> Tier:
    """The first tier in `probe_tiers` order that can run; `notify` gets one line saying what was skipped and why."""
    skipped: list[TierReport] = []
    for report in probe_tiers():
        if report.available:
            if skipped and notify is not None:
                names = ", ".join(r.tier.value for r in skipped)
                notify(f"tier {report.tier.value}; skipped {names}: {skipped[0].reason}")
            return report.tier
        skipped.append(report)
    raise TierUnavailable("no tier can run on this machine; `zinc check` explains each")


def resolve_tier(tier: Tier, notify: Callable[[str], None] | None = None) -> Tier:
    """`auto` becomes the tier to use; an explicit tier is kept or refused. Raises `TierUnavailable` with the reason."""
    if tier is Tier.auto:
        return auto_tier(notify)
    report = next(r for r in probe_tiers() if r.tier is tier)
    if not report.available:
        hint = f"; {report.remedy}" if report.remedy else ""
        raise TierUnavailable(f"tier {tier.value} cannot run: {report.reason}{hint}")
    return tier
