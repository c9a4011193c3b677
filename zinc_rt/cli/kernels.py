"""`zinc kernels`: the GPU kernels of this version."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zinc_rt.amdgpu.gfx import GFX12
from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import say, write, write_heading, write_table
from zinc_rt.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.lang.amd import AmdKernel
    from zinc_rt.lang.gpu import GpuKernel

_WORD = 4


class KernelsAction(StrEnum):
    """The actions of `zinc kernels`."""

    list = "list"
    show = "show"
    disasm = "disasm"


def _targets(incomplete: str) -> list[str]:
    from zinc_rt.lang.gpu_library import gpu_targets

    return [name for name in gpu_targets() if name.startswith(incomplete)]


def _names(incomplete: str) -> list[str]:
    from zinc_rt.kernels.amd.catalogue import KERNELS

    return [name for name in KERNELS if name.startswith(incomplete)]


def kernels(
    action: Annotated[
        KernelsAction,
        typer.Argument(
            metavar="ACTION",
            help="list, show (arguments, registers) or disasm (the code as text).",
            show_default=False,
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            autocompletion=_names,
            help="Names of kernels; for list, by default all.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="GPU",
            autocompletion=_targets,
            help="The core that kernels are compiled for; spirv and ptx are for drivers that compile further.",
            rich_help_panel=o.OTHER,
        ),
    ] = GFX12.kernel_target,
    as_json: o.Json = False,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """List GPU kernels, and show their registers and code.

    Kernels are compiled when they are first needed and kept in the compile cache.
    """
    names = names or []
    if action is not KernelsAction.list and not names:
        raise UsageError(f"{action.value} needs the name of a kernel")
    built = _compile(names, target, cache_dir, listing=action is KernelsAction.disasm)
    found = [(name, built[name]) for name in names or built]
    if action is KernelsAction.list:
        _list(found, as_json)
    elif action is KernelsAction.show:
        _show(found, as_json)
    else:
        _disassemble(found, as_json)


def _compile(names: Sequence[str], target: str, cache_dir: Path | None, *, listing: bool) -> dict[str, GpuKernel]:
    """Kernels of this version by name; when none is named, all of the target's. listing: with their text, where the
    driver compiles them further; that is not kept.
    """
    from zinc_rt.kernels.amd.catalogue import BOUNDARY, KERNELS
    from zinc_rt.lang.cache import CompileCache, default_cache_dir
    from zinc_rt.lang.gpu import gpu_kernel
    from zinc_rt.lang.gpu_library import gpu_kernels, gpu_targets
    from zinc_rt.lang.target import TARGETS

    if target not in gpu_targets():
        raise UsageError(f"--target is {target!r}, it must be {', '.join(gpu_targets())}")
    by_driver = TARGETS[target].by_driver
    for name in names:
        if name not in KERNELS:
            near = difflib.get_close_matches(name, KERNELS, n=1)
            hint = f"did you mean {near[0]}?" if near else "`zinc kernels list` has them all"
            raise UsageError(f"no kernel is named {name}; {hint}")
        if by_driver and name in BOUNDARY:
            raise UsageError(f"{name} is a kernel of AMD's cores alone; --target is {target}")
    specs = {name: KERNELS[name].spec for name in names or KERNELS if not (by_driver and name in BOUNDARY)}
    if listing and by_driver:
        return {name: gpu_kernel(spec, target, disassemble=True) for name, spec in specs.items()}
    store = CompileCache(cache_dir if cache_dir is not None else default_cache_dir(), notify=say)
    return gpu_kernels(specs, target, cache=store, notify=say)


def _amd(kernel: GpuKernel) -> AmdKernel | None:
    """The kernel, where its registers are known here."""
    from zinc_rt.lang.amd import AmdKernel

    return kernel if isinstance(kernel, AmdKernel) else None


def _facts(name: str, kernel: GpuKernel) -> dict[str, Any]:
    amd = _amd(kernel)
    registers = {"vgprs": amd.vgprs, "lds_bytes": amd.lds_bytes, "scratch_bytes": amd.scratch_bytes} if amd else {}
    return {
        "name": name,
        "target": kernel.target,
        "code_bytes": amd.size if amd else len(kernel.code),
        **registers,
        "wave": kernel.wave,
        "workgroup": kernel.workgroup,
        **({"occupancy": amd.occupancy} if amd else {}),
    }


_HEADER = {
    "name": "kernel",
    "target": "for",
    "code_bytes": "code",
    "vgprs": "VGPRs",
    "lds_bytes": "LDS",
    "scratch_bytes": "scratch",
    "wave": "wave",
    "workgroup": "group",
    "occupancy": "waves/SIMD",
}


def _list(found: Sequence[tuple[str, GpuKernel]], as_json: bool) -> None:
    facts = [_facts(name, kernel) for name, kernel in found]
    if as_json:
        _json(facts)
        return
    header = [_HEADER[fact] for fact in facts[0]]
    write_table([[str(value) for value in row.values()] for row in facts], header, right=range(2, len(header)))


def _show(found: Sequence[tuple[str, GpuKernel]], as_json: bool) -> None:
    trees = [_facts(name, kernel) | _details(kernel) for name, kernel in found]
    if as_json:
        _json(trees)
        return
    for i, (tree, (_, kernel)) in enumerate(zip(trees, found, strict=True)):
        write_heading(("\n" if i else "") + f"{tree['name']}, for {kernel.target}")
        amd = _amd(kernel)
        workgroup = ["workgroup", f"{kernel.workgroup} work-items in waves of {kernel.wave}"]
        if amd is None:
            write_table([["code", f"{len(kernel.code)} bytes, which the driver compiles further"], workgroup])
        else:
            write_table(
                [
                    ["code", f"{amd.size} bytes, {len(amd.code)} with padding"],
                    ["registers", f"{amd.vgprs} vector registers, {amd.scratch_bytes} bytes of scratch memory"],
                    ["LDS", f"{amd.lds_bytes} bytes"],
                    workgroup,
                    ["occupancy", f"{amd.occupancy} waves on a SIMD"],
                    *([name.upper(), text] for name, text in _registers(amd)),
                ]
            )
        if kernel.arguments:
            write_heading("arguments")
            write_table(
                [[f"s{a.dword}" if amd else str(i), a.name, str(a.type)] for i, a in enumerate(kernel.arguments)]
            )


def _details(kernel: GpuKernel) -> dict[str, Any]:
    words = ("rsrc1", "rsrc2", "rsrc3", "tmpring")
    amd = _amd(kernel)
    registers = {word: f"{getattr(amd, word):#010x}" for word in words} if amd else {}
    return {
        **({"padded_bytes": len(kernel.code)} if amd else {}),
        **registers,
        "arguments": [{"name": a.name, "type": str(a.type), "dword": a.dword} for a in kernel.arguments],
    }


def _generation(kernel: AmdKernel) -> int:
    """12 of gfx1201."""
    return int(kernel.target.removeprefix("gfx")[:2])


def _registers(kernel: AmdKernel) -> Iterator[tuple[str, str]]:
    """The words for a driver, with their fields that are not zero."""
    from zinc_rt.amdgpu.pm4 import registers as reg

    known = reg.registers(_generation(kernel))
    offsets = {"rsrc1": reg.PGM_RSRC1, "rsrc2": reg.PGM_RSRC2, "rsrc3": reg.PGM_RSRC3, "tmpring": reg.TMPRING_SIZE}
    for name, offset in offsets.items():
        value = getattr(kernel, name)
        fields = " ".join(f"{field}={n:#x}" for field, n in known[offset].decode(value).items() if n)
        yield name, f"{value:#010x}  {fields}".rstrip()


def _disassemble(found: Sequence[tuple[str, GpuKernel]], as_json: bool) -> None:
    trees: list[dict[str, Any]] = []
    for i, (name, kernel) in enumerate(found):
        amd = _amd(kernel)
        lines = _instructions(amd) if amd else []
        if not as_json:
            write(("\n" if i else "") + f"{name}:\n" + ("".join(_listing(amd, lines)) if amd else kernel.assembly))
        elif amd:
            trees.append({"name": name, "code": [{"at": at, "text": line} for at, _, line, _ in lines]})
        else:
            trees.append({"name": name, "code": [{"text": line} for line in kernel.assembly.splitlines()]})
    if as_json:
        _json(trees)


def _instructions(kernel: AmdKernel) -> list[tuple[int, int, str, int | None]]:
    """The address, the bytes, the text and the goal of a branch of each."""
    from amdgpu_emu.isa.decoder import instructions
    from amdgpu_emu.isa.listing import target
    from amdgpu_emu.isa.printer import text

    gfx = _generation(kernel)
    decoded = instructions(kernel.code[: kernel.size], wave=kernel.wave, gfx=gfx)
    return [(n.address, n.size, text(n, gfx), target(n)) for n in decoded]


def _listing(kernel: AmdKernel, lines: Sequence[tuple[int, int, str, int | None]]) -> Iterator[str]:
    goals = sorted({goal for *_, goal in lines if goal is not None})
    labels = {goal: f"L{n}" for n, goal in enumerate(goals)}
    for at, size, line, goal in lines:
        if at in labels:
            yield f"{labels[at]}:\n"
        if goal is not None:
            line = f"{line.rsplit(maxsplit=1)[0]} {labels[goal]}"
        words = " ".join(kernel.code[w : w + _WORD][::-1].hex() for w in range(at, at + size, _WORD))
        yield f"  {at:6x}  {line:<72}  {words}\n"


def _json(tree: object) -> None:
    write(json.dumps(tree, indent=1) + "\n")
