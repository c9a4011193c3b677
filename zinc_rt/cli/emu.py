"""`zinc emu`: an emulated machine with AMD GPUs, for code that talks to the driver."""

from __future__ import annotations

import errno as errno_names
import json
import runpy
import sys
import traceback
from contextlib import nullcontext, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.terminal import say, write, write_heading, write_table
from zinc_rt.errors import UsageError, ZincError

if TYPE_CHECKING:
    from amdgpu_emu.machine import Machine
    from amdgpu_emu.profiler import Profiler

MACHINE = "The machine"


class EmuAction(StrEnum):
    """The actions of `zinc emu`."""

    list = "list"
    check = "check"
    run = "run"
    profile = "profile"


def _kernels(incomplete: str) -> list[str]:
    from amdgpu_emu.profiles import PROFILES

    return [name for name in PROFILES if name.startswith(incomplete)]


def emu(
    action: Annotated[
        EmuAction,
        typer.Argument(
            metavar="ACTION",
            help="list (kernels and GPUs), check (every interface), run (a script) or profile (a script's dispatches).",
        ),
    ],
    script: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SCRIPT]", help="Python file for `run` and `profile`; its function main(machine, linux) is called."
        ),
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the script.")] = None,
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            help="Kernel version; see `list`.",
            autocompletion=_kernels,
            rich_help_panel=MACHINE,
            metavar="NAME",
        ),
    ] = "6.17",
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            help="A GPU of the machine; give it again for more.",
            autocompletion=o.completes(o.emulated_gpus),
            rich_help_panel=MACHINE,
            metavar="NAME",
            show_default="r9700",
        ),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            help="Let a call fail: an ioctl's name, open or mmap, with an errno, after N good calls.",
            rich_help_panel=MACHINE,
            metavar="CALL=ERRNO[:N]",
        ),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show every call to the kernel.", rich_help_panel=o.OUTPUT)
    ] = False,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Run code for AMD GPUs on an emulated machine.

    The kernel driver, the command processor and the memory of AMD GPUs are emulated as strictly as the documents allow:
    a broken rule is a finding, also if real hardware would let it pass. Exit code 1 if there are findings. `profile`
    executes the machine code of dispatches, counts what it does, and predicts how long it would take on the card.
    """
    scripted = action in (EmuAction.run, EmuAction.profile)
    if not scripted and script is not None:
        raise UsageError(f"{action.value} takes no script; did you mean zinc emu run {script}?")
    if action is EmuAction.list:
        _list(as_json)
        return 0
    machine = _machine(kernel, gpu or ["r9700"], fault or [])
    machine.trace = [] if trace else None
    machine.strict = False  # findings are printed
    profiler = _profiler(machine) if action is EmuAction.profile else None
    quiet = profiler is not None and as_json  # nothing but JSON on standard output
    show = say if quiet else lambda line: write(f"{line}\n")
    try:
        with machine:
            if scripted:
                with redirect_stdout(sys.stderr) if quiet else nullcontext():
                    result = _run(machine, action, script, arguments or [])
            else:
                result = _check(machine, as_json)
    except Exception:
        for line in machine.dmesg if scripted else ():
            show(f"kernel log: {line}")
        raise
    if profiler is not None:
        _profile(profiler, as_json)
    for line in (*(machine.trace or ()), *(f"finding: {finding}" for finding in machine.findings)):
        show(line)
    return 1 if machine.findings else result


def _machine(kernel: str, gpus: list[str], faults: list[str]) -> Machine:
    from amdgpu_emu.machine import Machine
    from amdgpu_emu.profiles import PROFILES
    from zinc_rt.backends.amdgpu.emulated import gpu_model

    if kernel not in PROFILES:
        raise UsageError(f"--kernel is {kernel!r}, it must be {', '.join(PROFILES)}")
    machine = Machine(PROFILES[kernel], [gpu_model(name) for name in gpus])
    for text in faults:
        call, code, skip = _fault(text)
        machine.inject(call, code, skip=skip)
    return machine


def _fault(text: str) -> tuple[str, int, int]:
    """Call, errno and calls before it, from CALL=ERRNO[:N]."""
    call, _, rest = text.partition("=")
    name, _, skip = rest.partition(":")
    code = getattr(errno_names, name, None) if name.isidentifier() else int(name) if name.isdigit() else None
    if not isinstance(code, int) or (skip and not skip.isdigit()):
        raise UsageError(f"--fault is {text!r}; it must look like AMDGPU_CS=EBUSY or KFD_CREATE_QUEUE=EINVAL:1")
    return call, code, int(skip or 0)


def _list(as_json: bool) -> None:
    from amdgpu_emu.faults import CALLS
    from amdgpu_emu.models import MODELS
    from amdgpu_emu.profiles import PROFILES

    if as_json:
        tree = {
            "kernels": {name: p.release for name, p in PROFILES.items()},
            "gpus": {name: {"name": m.name, "gfx_target_version": m.gfx_target_version} for name, m in MODELS.items()},
            "calls": list(CALLS),
        }
        write(json.dumps(tree, indent=1) + "\n")
        return
    write_heading("Kernels")
    write_table([[name, p.release, "user queues" if p.user_queue in (1, 2) else ""] for name, p in PROFILES.items()])
    write_heading("\nGPUs")
    write_table([[name, m.name, f"{m.cu} compute units", f"{m.memory >> 20} MiB"] for name, m in MODELS.items()])
    write_heading("\nCalls that can fail on demand")
    write_table([[name] for name in CALLS])


def _check(machine: Machine, as_json: bool) -> int:
    from amdgpu_emu.core.core import ShaderCore
    from zinc_rt.backends.select import probe_devices
    from zinc_rt.cli.gpu import gpu_findings

    linux, machine.shader = machine.process(), ShaderCore()
    found = gpu_findings(linux)
    devices = probe_devices(linux=linux, remember=False)
    if as_json:
        write(json.dumps([vars(line) for line in found], indent=1) + "\n")
    else:
        write_heading(f"{machine.profile.release}, {', '.join(gpu.model.name for gpu in machine.gpus)}")
        write_table(
            [[f.name, "ok" if f.ok else "!!", f.value + (f" -> {f.remedy}" if f.remedy else "")] for f in found]
        )
    return 0 if any(device.proven for device in devices) else 1


def _run(machine: Machine, action: EmuAction, script: Path | None, arguments: list[str]) -> int:
    if script is None:
        raise UsageError(f"{action.value} needs a script: zinc emu {action.value} FILE.py")
    if not script.is_file():
        raise UsageError(f"{script} is not a file")
    sys.argv = [str(script), *arguments]
    try:
        main = runpy.run_path(str(script)).get("main")
        if not callable(main):
            raise UsageError(f"{script} has no function main(machine, linux)")
        main(machine, machine.process())
    except ZincError:
        raise
    except Exception as error:
        raise CommandError(_where(script, error)) from error
    return 0


def _where(script: Path, error: Exception) -> str:
    """The error and the script's line that it came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(script)]
    at = f", line {lines[-1]}" if lines else ""
    return f"{script}{at}: {type(error).__name__}{f': {error}' if str(error) else ''}; --debug shows the trace"


def _profiler(machine: Machine) -> Profiler:
    from amdgpu_emu.profiler import Profiler

    profiler = Profiler([gpu.model for gpu in machine.gpus])
    machine.shader = profiler
    return profiler


def _profile(profiler: Profiler, as_json: bool) -> None:
    from amdgpu_emu.profiler import table

    rows = table(profiler.records)
    if as_json:
        write(json.dumps(rows, indent=1) + "\n")
        return
    if not rows:
        write("no dispatch ran\n")
        return
    header = ["kernel", "groups", "calls", "waves", "waves/SIMD", "read", "written", "unique read", "unique written"]
    header += ["lines", "line bytes", "us", "bound", "bandwidth"]
    write_table([_cells(row) for row in rows], header, right=(*range(2, 12), 13))
    write_heading("\nInstructions that waves executed")
    kinds = sorted({kind for row in rows for kind in row["instructions"]})
    cells = [[row["kernel"], *(str(row["instructions"].get(kind, 0)) for kind in kinds)] for row in rows]
    write_table(cells, ["kernel", *kinds], right=range(1, len(kinds) + 1))


def _cells(row: dict[str, Any]) -> list[str]:
    sizes = [
        row[name] for name in ("bytes_read", "bytes_written", "unique_read", "unique_written", "lines", "memory_bytes")
    ]
    return [
        row["kernel"],
        "x".join(map(str, row["groups"])),
        *(str(n) for n in (row["calls"], row["waves"], row["occupancy"], *sizes)),
        f"{row['microseconds']:.2f}",
        row["bound"],
        f"{row['bandwidth']:.1%}",
    ]
