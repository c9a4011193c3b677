"""`zinc check`: what this machine offers, device by device."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import zinc_rt
from zinc_rt.backends.devices import Device
from zinc_rt.cli import options as o
from zinc_rt.cli.machine import MachineFinding
from zinc_rt.cli.terminal import one_line, say, write, write_heading, write_table
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.utils.linux import host

if TYPE_CHECKING:
    from zinc_rt.backends.devices import DeviceReport
    from zinc_rt.backends.diagnostics.crash_log import Contacts
    from zinc_rt.cli.native import NativeReport
    from zinc_rt.lang.cache import CompileCache


_MOST_SOAK = 7 * 86_400.0


def check(
    gpu: o.TryGpus = False,
    soak: o.Soak = None,
    report: o.Report = None,
    as_json: o.Json = False,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> int:
    """Show which devices of this machine can run models.

    Lists each device, and for one that cannot run a model the reason and the remedy; the instruction sets of the CPU,
    tried with a small kernel; every step on the way to an AMD GPU; then the machine. Nothing is submitted to a GPU that
    drives a display before --gpu has proven it. The exit code is 0 if a device can run models, else 1. --report tries
    all AMD GPUs through every interface, and the exit code is 0 if one of them gives the right results.
    """
    if report is not None:
        from zinc_rt.cli.card_report import report as write_report

        return write_report(report, cache_dir, as_json=as_json)
    from zinc_rt.cli.gpu import gpu_findings
    from zinc_rt.cli.machine import findings
    from zinc_rt.cli.native import native_report
    from zinc_rt.engine.engine import probe_devices

    cache = announce(gpu, soak, cache_dir)
    devices = probe_devices(cache=cache, notify=notice, again=gpu)
    native, gpus, machine = native_report(cache_dir), gpu_findings(None, devices, contacts_of(cache)), findings()
    if soak is not None:
        gpus += soak_findings(soak, cache, devices)
    usable = [d for d in devices if d.available]
    if as_json:
        tree = {
            "version": zinc_rt.__version__,
            "devices": [{**asdict(d), "device": d.device.value} for d in devices],
            "auto": usable[0].device.value if usable else None,
            "native": native.as_dict(),
            "gpus": [asdict(f) for f in gpus],
            "machine": [asdict(f) for f in machine],
        }
        write(json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
    else:
        _print(devices, native, gpus, machine)
    return 0 if usable else 1


def _print(
    devices: list[DeviceReport], native: NativeReport, gpus: list[MachineFinding], machine: list[MachineFinding]
) -> None:
    write_heading(f"ZINC_RT {zinc_rt.__version__}\n\nDevices, in the order in which --device auto tries them")
    write_table([[d.name, "yes" if d.available else "no", _with_remedy(d.reason, d.remedy)] for d in devices])
    usable = [d.name for d in devices if d.available]
    write(f"auto: {usable[0]}\n" if usable else "auto: none, nothing can run here\n")
    sections = (("Native kernels of the CPU", native.findings), ("AMD GPUs", gpus), ("Machine", machine))
    for title, lines in sections:
        write_heading(f"\n{title}")
        write_table([[f.name, "ok" if f.ok else "!!", _with_remedy(f.value, f.remedy)] for f in lines])


def _with_remedy(text: str, remedy: str) -> str:
    return f"{text} -> {remedy}" if remedy else text


def notice(line: str) -> None:
    """A line beside the report."""
    say(f"zinc: {one_line(line)}", style="dim")


def announce(wanted: bool, soak: float | None, cache_dir: Path | None) -> CompileCache:
    """Say what --gpu will do, before anything is done; the folder in which it is remembered. Raises `UsageError`."""
    from zinc_rt.backends.probe import can_run, find_gpus
    from zinc_rt.lang.cache import CompileCache, default_cache_dir

    if soak is not None and not wanted:
        raise UsageError("--soak works on GPUs only where --gpu allows it; give both")
    if soak is not None and not (math.isfinite(soak) and 0 < soak <= _MOST_SOAK):
        raise UsageError(f"--soak is {soak:g}; it must be more than 0 and at most {_MOST_SOAK:g} seconds")
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
    from zinc_rt.backends.diagnostics.crash_log import SOAK_SECONDS, brief
    from zinc_rt.backends.diagnostics.device_trials import Trials, interface_name
    from zinc_rt.backends.probe import find_gpus

    proven = {report.name for report in devices if report.proven and report.render_node}
    if not proven:
        return [MachineFinding("soak", "no interface of an AMD GPU works", False, "see above")]
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
