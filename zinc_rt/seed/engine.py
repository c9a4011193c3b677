"""The page `engine`: tiers by the seed's names, and what it says of tenants; written on `backends.devices`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from zinc_rt.backends.devices import Device
from zinc_rt.backends.devices import DeviceUnavailable as TierUnavailable
from zinc_rt.backends.devices import UnknownDevice as UnknownZincRtTier
from zinc_rt.backends.select import select_device
from zinc_rt.utils.environment import DEVICE

if TYPE_CHECKING:
    from zinc_rt.utils.linux import Linux

__all__ = [
    "SUPPORTS_MULTITENANT_BATCHED_EXECUTION",
    "SUPPORTS_MULTITENANT_BATCH_PLANNING",
    "Capabilities",
    "Tier",
    "TierUnavailable",
    "UnknownZincRtTier",
    "auto_tier",
    "parse_tier",
    "tier_from_env",
]

SUPPORTS_MULTITENANT_BATCH_PLANNING = True
SUPPORTS_MULTITENANT_BATCHED_EXECUTION = True


@dataclass(frozen=True)
class Capabilities:
    """What there is beyond one caller's sequences: `scheduler.EngineCore` computes requests of several tenants, and
    registers tenants by itself.
    """

    multitenant_batch_planning: bool = SUPPORTS_MULTITENANT_BATCH_PLANNING
    requires_explicit_tenant_registration: bool = True
    multitenant_batched_execution: bool = SUPPORTS_MULTITENANT_BATCHED_EXECUTION
    server_entrypoint: bool = True


class Tier(StrEnum):
    """An execution tier, or `auto` for the best one that works. `Options(tier=...)` takes a member or its name."""

    auto = "auto"
    t1_pm4 = "t1_pm4"
    t2_umq = "t2_umq"
    t_cpu = "t_cpu"
    t_metal = "t_metal"
    t_intel = "t_intel"
    t_cuda = "t_cuda"


_SHORT = {"t1": Tier.t1_pm4, "t2": Tier.t2_umq}
_TIER_OF = {
    Device.cpu: Tier.t_cpu,
    Device.gpu_umq: Tier.t2_umq,
    Device.gpu_kfd: Tier.t1_pm4,
    Device.gpu_cs: Tier.t1_pm4,
}


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
    """The tier named by ZINC_RT_TIER, also by a device's name with or without a card, else `auto`.

    Raises `UnknownZincRtTier` naming the variable.
    """
    text = (os.environ if environ is None else environ).get(DEVICE.name, "")
    for device, tier in _TIER_OF.items():
        if text.partition("@")[0] == device.value:
            return tier
    try:
        return parse_tier(text) if text else Tier.auto
    except UnknownZincRtTier as error:
        raise UnknownZincRtTier(f"{DEVICE.name}: {error}") from None


def auto_tier(notify: Callable[[str], None] | None = None, *, linux: Linux | None = None) -> Tier:
    """The tier of the first device that can run; `notify` gets one line saying what was skipped and why."""
    return _TIER_OF[select_device(Device.auto, notify, linux=linux)]
