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
    as_json: o.Json = False,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> int:
    """Show what this machine offers.

    Every device with the reason why it can or cannot run, and what helps; what kernels of the CPU are compiled for,
    tried out with a small one; every step on the way to an AMD GPU; then the machine. A GPU that drives a display is
    only looked at until --gpu has proven it. Exit code 0 when at least one device can run, else 1.
    """
    from zinc_rt.cli.contact import announce, contacts_of, notice, soak_findings
    from zinc_rt.cli.gpu import gpu_findings
    from zinc_rt.cli.machine import findings
    from zinc_rt.cli.native import native_report
    from zinc_rt.engine import probe_devices

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
