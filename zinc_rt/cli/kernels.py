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
            help="list, show (registers, arguments) or disasm (the machine code).",
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
            help="The core that kernels are compiled for.",
            rich_help_panel=o.OTHER,
        ),
    ] = GFX12.kernel_target,
    as_json: o.Json = False,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """List GPU kernels, and show their registers and machine code.

    Kernels are compiled when they are first needed and kept in the compile cache.
    """
    names = names or []
    if action is not KernelsAction.list and not names:
        raise UsageError(f"{action.value} needs the name of a kernel")
    built = _compile(names, target, cache_dir)
    found = [(name, built[name]) for name in names or built]
    if action is KernelsAction.list:
        _list(found, as_json)
    elif action is KernelsAction.show:
        _show(found, as_json)
    else:
        _disassemble(found, as_json)


def _compile(names: Sequence[str], target: str, cache_dir: Path | None) -> dict[str, GpuKernel]:
    """Kernels of this version by name, all of them when none is named."""
    from zinc_rt.kernels.amd.catalogue import KERNELS
    from zinc_rt.lang.cache import CompileCache, default_cache_dir
    from zinc_rt.lang.gpu_library import gpu_kernels, gpu_targets

    if target not in gpu_targets():
        raise UsageError(f"--target is {target!r}, it must be {', '.join(gpu_targets())}")
    for name in names:
        if name not in KERNELS:
            near = difflib.get_close_matches(name, KERNELS, n=1)
            hint = f"did you mean {near[0]}?" if near else "`zinc kernels list` has them all"
            raise UsageError(f"no kernel is named {name}; {hint}")
    store = CompileCache(cache_dir if cache_dir is not None else default_cache_dir(), notify=say)
    return gpu_kernels({name: KERNELS[name].spec for name in names or KERNELS}, target, cache=store, notify=say)


def _facts(name: str, kernel: GpuKernel) -> dict[str, Any]:
    return {
        "name": name,
        "target": kernel.target,
        "code_bytes": kernel.size,
        "vgprs": kernel.vgprs,
        "lds_bytes": kernel.lds_bytes,
        "scratch_bytes": kernel.scratch_bytes,
        "wave": kernel.wave,
        "workgroup": kernel.workgroup,
        "occupancy": kernel.occupancy,
    }


def _list(found: Sequence[tuple[str, GpuKernel]], as_json: bool) -> None:
    facts = [_facts(name, kernel) for name, kernel in found]
    if as_json:
        _json(facts)
        return
    header = ["kernel", "for", "code", "VGPRs", "LDS", "scratch", "wave", "group", "waves/SIMD"]
    write_table([[str(value) for value in row.values()] for row in facts], header, right=range(2, len(header)))


def _show(found: Sequence[tuple[str, GpuKernel]], as_json: bool) -> None:
    trees = [_facts(name, kernel) | _details(kernel) for name, kernel in found]
    if as_json:
        _json(trees)
        return
    for i, (tree, (_, kernel)) in enumerate(zip(trees, found, strict=True)):
        write_heading(("\n" if i else "") + f"{tree['name']}, for {kernel.target}")
        rows = [
            ["code", f"{kernel.size} bytes, {len(kernel.code)} with padding"],
            ["registers", f"{kernel.vgprs} vector registers, {kernel.scratch_bytes} bytes of scratch memory"],
            ["LDS", f"{kernel.lds_bytes} bytes"],
            ["workgroup", f"{kernel.workgroup} work-items in waves of {kernel.wave}"],
            ["occupancy", f"{kernel.occupancy} waves on a SIMD"],
            *([name.upper(), text] for name, text in _registers(kernel)),
        ]
        write_table(rows)
        if kernel.arguments:
            write_heading("arguments")
            write_table(
                [[f"s{a.dword}", a.name, str(a.type)] for a in kernel.arguments],
            )


def _details(kernel: GpuKernel) -> dict[str, Any]:
    words = ("rsrc1", "rsrc2", "rsrc3", "tmpring")
    return {
        "padded_bytes": len(kernel.code),
        **{word: f"{getattr(kernel, word):#010x}" for word in words},
        "arguments": [{"name": a.name, "type": str(a.type), "dword": a.dword} for a in kernel.arguments],
    }


def _generation(kernel: GpuKernel) -> int:
    """12 of gfx1201."""
    return int(kernel.target.removeprefix("gfx")[:2])


def _registers(kernel: GpuKernel) -> Iterator[tuple[str, str]]:
    """The words for a driver, with their fields that are not zero."""
    from zinc_rt.amdgpu.pm4 import registers as reg

    known = reg.registers(_generation(kernel))
    offsets = {"rsrc1": reg.PGM_RSRC1, "rsrc2": reg.PGM_RSRC2, "rsrc3": reg.PGM_RSRC3, "tmpring": reg.TMPRING_SIZE}
    for name, offset in offsets.items():
        value = getattr(kernel, name)
        fields = " ".join(f"{field}={n:#x}" for field, n in known[offset].decode(value).items() if n)
        yield name, f"{value:#010x}  {fields}".rstrip()


def _disassemble(found: Sequence[tuple[str, GpuKernel]], as_json: bool) -> None:
    from amdgpu_emu.isa.decoder import instructions
    from amdgpu_emu.isa.listing import target
    from amdgpu_emu.isa.printer import text

    trees = []
    for i, (name, kernel) in enumerate(found):
        code, gfx = kernel.code[: kernel.size], _generation(kernel)
        decoded = instructions(code, wave=kernel.wave, gfx=gfx)
        lines = [(n.address, n.size, text(n, gfx), target(n)) for n in decoded]
        if as_json:
            trees.append({"name": name, "code": [{"at": at, "text": line} for at, _, line, _ in lines]})
            continue
        goals = sorted({goal for *_, goal in lines if goal is not None})
        labels = {goal: f"L{n}" for n, goal in enumerate(goals)}
        write(("\n" if i else "") + f"{name}:\n")
        for at, size, line, goal in lines:
            if at in labels:
                write(f"{labels[at]}:\n")
            if goal is not None:
                line = f"{line.rsplit(maxsplit=1)[0]} {labels[goal]}"
            words = " ".join(code[w : w + _WORD][::-1].hex() for w in range(at, at + size, _WORD))
            write(f"  {at:6x}  {line:<72}  {words}\n")
    if as_json:
        _json(trees)


def _json(tree: object) -> None:
    write(json.dumps(tree, indent=1) + "\n")
