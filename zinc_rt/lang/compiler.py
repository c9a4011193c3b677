"""Modules in, images out: runs compile processes (worker.py), hands them modules as they come free, links the objects.

The driver of an OpenCL device or of NVIDIA's takes a whole module and links it itself.

What `Image.meta` holds: "sizes" {function: bytes}; "constants" True where data follow the code; for AMD devices
"config" {function: {register or count: value}}; with `disassemble` the text as "assembly"; "warnings" [line] where LLVM
had any.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from zinc_rt.lang.errors import CompileError, LangError
from zinc_rt.lang.image import Image
from zinc_rt.lang.target import Target

if TYPE_CHECKING:
    from zinc_rt.lang.children import Crash, JobResult
    from zinc_rt.lang.elf import Linked

_BYTES_PER_CHILD: Final = 32 << 10  # IR text that keeps a process busy for about as long as it takes to start one
CPU_SECONDS: Final = 120
"""Processor time that one module may take. The largest kernels of a model that is accepted take about 5 s."""
_UNKNOWN: Final = "is not a recognized "  # LLVM goes on after this warning, with another processor in mind
# Registers by their offset, and two counts, as LLVM's SIProgramInfo writes them for the bare triple.
_AMD_CONFIG: Final = {
    0xB848: "COMPUTE_PGM_RSRC1",
    0xB84C: "COMPUTE_PGM_RSRC2",
    0xB860: "COMPUTE_TMPRING_SIZE",
    4: "spilled_sgprs",
    8: "spilled_vgprs",
}
_AMD_ROW: Final = struct.Struct("<10I")  # five pairs for every function, in the module's order


@dataclass(frozen=True)
class Module:
    """LLVM IR text for one target. Everything it defines and does not export becomes internal."""

    name: str  # for messages
    ir: str  # may leave out `target datalayout` and `target triple`
    target: Target
    exports: tuple[str, ...]  # functions that the image's `entries` name
    opt: int = 2  # LLVM's level, 0 to 3; loops are never vectorised

    def __post_init__(self) -> None:
        if self.opt not in range(4):
            raise CompileError(f"optimisation level {self.opt}; it must be 0 to 3", self.name)


class Compiler:
    """Compiles modules in child processes, up to `jobs` (default: usable cores) at once.

    cpu_seconds: processor time for one module, in whole seconds. timeout: seconds for one module, the start of its
    process and its waits for a processor included.
    """

    def __init__(self, jobs: int | None = None, timeout: float = 600.0, cpu_seconds: int = CPU_SECONDS) -> None:
        self.jobs = jobs if jobs is not None else _usable_cores()
        self.timeout = timeout
        self.cpu_seconds = cpu_seconds

    def compile(self, modules: Sequence[Module], *, disassemble: bool = False) -> list[Image]:
        """The images, in order. Compiles all modules before it raises the first module's error.

        Raises `CompileError` with the name of a module that LLVM refuses, that ends its process, or that takes too
        long.
        """
        images: list[Image] = []
        for result in self.compile_each(modules, disassemble=disassemble):
            if isinstance(result, LangError):
                raise result
            images.append(result)
        return images

    def compile_each(
        self, modules: Sequence[Module], *, disassemble: bool = False, done: Callable[[int], None] | None = None
    ) -> list[Image | CompileError]:
        """For every module, in order, its image or why there is none. done: gets now and then how many are ready."""
        from zinc_rt.lang.children import run_jobs  # not at import: a start that compiles nothing must not pay for it

        jobs = [({**_request(m, disassemble), "cpu_seconds": self.cpu_seconds}, m.ir.encode()) for m in modules]
        children = min(self.jobs, len(jobs), 1 + sum(len(ir) for _, ir in jobs) // _BYTES_PER_CHILD)
        answers = run_jobs(jobs, max(children, 1), self.timeout, done)
        return [_result(module, answer, self.cpu_seconds) for module, answer in zip(modules, answers, strict=True)]


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _request(module: Module, disassemble: bool) -> dict[str, Any]:
    features = list(module.target.features)
    by_object = disassemble and module.target.arch == "amdgcn"
    if by_object:
        features.append("+dumpcode")  # the object then carries its own listing
    return {
        "triple": module.target.triple,
        "cpu": module.target.cpu,
        "features": ",".join(features),
        "options": module.target.options,
        "text": module.target.arch == "nvptx64",
        "alone": module.target.by_driver,
        "exports": module.exports,
        "opt": module.opt,
        "disassemble": disassemble and not by_object,
    }


def _result(module: Module, answer: JobResult | Crash, cpu_seconds: int) -> Image | CompileError:
    from zinc_rt.lang.children import Crash
    from zinc_rt.lang.elf import link

    text = answer.notes if isinstance(answer, Crash) else answer.header["notes"]
    notes = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if unknown := [line for line in notes if _UNKNOWN in line]:
        return CompileError(f"the LLVM in llvmlite lacks target {module.target.name}: {unknown[0]}", module.name)
    if isinstance(answer, Crash):
        if answer.over_cpu_limit:
            problem = f"not done after {cpu_seconds} s of processor time, the limit of one kernel; make it smaller"
            return CompileError(problem, module.name, lasting=True)
        return CompileError(answer.reason, module.name, lasting=answer.by_llvm)
    header = answer.header
    if header["problem"] is not None:
        return CompileError(_with_line(module.ir, header), module.name, lasting=header.get("refused", False))
    if module.target.by_driver:
        code, entries = answer.payload, dict.fromkeys(module.exports, 0)
        meta: dict[str, Any] = {"sizes": dict.fromkeys(module.exports, len(code))}
    else:
        try:
            linked = link(answer.payload, module.target.arch, module.exports, module.ir)
            meta = _meta(linked, module.target)
        except CompileError as error:
            return CompileError(error.problem, module.name, lasting=True)
        code, entries = linked.code, linked.entries
    if header.get("assembly"):
        meta["assembly"] = header["assembly"]
    if notes:
        meta["warnings"] = notes
    return Image(code, entries, module.target.name, meta)


def _with_line(ir: str, header: dict[str, Any]) -> str:
    """The worker's message, with the line of the IR that it names, if any."""
    problem, number = str(header["problem"]), header.get("line")
    lines = ir.splitlines()
    if not isinstance(number, int) or not 1 <= number <= len(lines):
        return problem
    return f"LLVM refuses line {number} of its IR: {problem}: {lines[number - 1].strip()}"


def _meta(linked: Linked, target: Target) -> dict[str, Any]:
    meta: dict[str, Any] = {"sizes": {name: size for name, (_, size) in linked.functions.items()}}
    if linked.constants:
        meta["constants"] = True
    if target.arch == "amdgcn":
        rows = list(_AMD_ROW.iter_unpack(linked.extra.get(".AMDGPU.config", b"")))
        if len(rows) != len(linked.functions):
            raise CompileError(f"{len(rows)} register rows for {len(linked.functions)} functions in LLVM's object")
        meta["config"] = {
            name: {_AMD_CONFIG.get(row[i], f"0x{row[i]:X}"): row[i + 1] for i in range(0, 10, 2)}
            for name, row in zip(linked.functions, rows, strict=True)
        }
        if listing := linked.extra.get(".AMDGPU.disasm"):
            meta["assembly"] = listing.decode(errors="replace").replace("\0", "")
    return meta
