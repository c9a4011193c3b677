"""`zinc check --gpu`: what it is about to do, in words, and the soak of each interface."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.backends.devices import Device
from zinc_rt.cli.machine import MachineFinding
from zinc_rt.cli.terminal import one_line, say
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.utils.linux import host

if TYPE_CHECKING:
    from zinc_rt.backends.devices import DeviceReport
    from zinc_rt.backends.diagnostics.crash_log import Contacts
    from zinc_rt.lang.cache import CompileCache

_MOST = 7 * 86_400.0


def notice(line: str) -> None:
    """A line beside the report."""
    say(f"zinc: {one_line(line)}", style="dim")


def announce(wanted: bool, soak: float | None, cache_dir: Path | None) -> CompileCache:
    """Say what --gpu will do, before anything is done; the folder in which it is remembered. Raises `UsageError`."""
    from zinc_rt.backends.probe import can_run, find_gpus
    from zinc_rt.lang.cache import CompileCache, default_cache_dir

    if soak is not None and not wanted:
        raise UsageError("--soak works on GPUs only where --gpu allows it; give both")
    if soak is not None and not (math.isfinite(soak) and 0 < soak <= _MOST):
        raise UsageError(f"--soak is {soak:g}; it must be more than 0 and at most {_MOST:g} seconds")
    for gpu in filter(can_run, find_gpus(host())) if wanted else ():
        screens = f", which drives {' and '.join(gpu.displays)}," if gpu.displays else ""
        notice(
            f"--gpu runs a small model on {gpu.render_node} ({gpu.name}){screens} through each interface, also where"
            " that failed before. If one hangs, the driver may reset the card: screens go dark for some seconds, and"
            " programs that use it, the desktop too, may end"
        )
    return CompileCache(cache_dir if cache_dir is not None else default_cache_dir(), notify=notice)


def contacts_of(cache: CompileCache) -> Contacts:
    """The remembered trials of this machine's GPUs."""
    from zinc_rt.backends.diagnostics.crash_log import Contacts

    return Contacts(cache.path, host(), None)  # the trials before have told what cannot be written


def soak_findings(seconds: float, cache: CompileCache, devices: Sequence[DeviceReport]) -> list[MachineFinding]:
    """Repeat the self-test on each interface that works, one after the other."""
    from zinc_rt.backends.diagnostics.crash_log import SOAK_SECONDS
    from zinc_rt.backends.diagnostics.device_trials import Trials, brief, interface_name
    from zinc_rt.backends.probe import find_gpus

    proven = {report.name for report in devices if report.proven}
    if not proven:
        return [MachineFinding("soak", "no interface of a GPU works", False, "see above")]
    trials, found = Trials(host(), find_gpus(host()), cache, notice), []
    for candidate in trials.candidates(Device.gpu):
        if candidate.name not in proven:
            continue
        name = f"{candidate.gpu.short} {interface_name(candidate.device)} soak"
        notice(f"{candidate.name}: the same step for {seconds:g} s")
        try:
            known = trials.soak(candidate, seconds)
        except ZincError as error:
            found.append(MachineFinding(name, brief(error), False, "it is not tried again"))
            continue
        text = f"{known.soak:.0f} s without a fault, {known.step * 1e3:.3f} ms a step"
        found.append(MachineFinding(name, text))
    first = trials.candidates(Device.gpu)[0].name
    note = "" if seconds >= SOAK_SECONDS else f"; a soak of less than {SOAK_SECONDS:g} s changes no order"
    return [*found, MachineFinding("tried first", f"{first}{note}")]
