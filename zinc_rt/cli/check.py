"""`zinc check`: what this machine offers, device by device."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import zinc_rt
from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import write, write_heading, write_table

if TYPE_CHECKING:
    from zinc_rt.backends.devices import DeviceReport
    from zinc_rt.cli.machine import MachineFinding
    from zinc_rt.cli.native import NativeReport


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
    from zinc_rt.cli.contact import announce, contacts_of, notice, soak_findings
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
