"""The native CPU kernels for `zinc check`: levels, threads, compiler and cache, tried out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.machine import MachineFinding
from zinc_rt.errors import ZincError

if TYPE_CHECKING:
    from zinc_rt.lang.target import Target

_REFERENCE = "--kernels reference runs without, slowly"


@dataclass(frozen=True)
class NativeReport:
    """Levels from the best down, the one that is taken (None: no level runs here), and a line for each part."""

    levels: tuple[str, ...]
    level: str | None
    threads: int
    cache: str | None
    findings: tuple[MachineFinding, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "findings": [vars(f) for f in self.findings]}


def native_report(cache_dir: Path | None = None) -> NativeReport:
    """Examine this machine, compile a kernel and run it."""
    from zinc_rt.backends.cpu.cores import default_threads
    from zinc_rt.lang.cache import default_cache_dir
    from zinc_rt.lang.target import host_targets

    targets, threads = host_targets(), default_threads()
    folder = cache_dir if cache_dir is not None else default_cache_dir()
    found = [_levels(targets), MachineFinding("threads", _cores(threads)), _compiler(), _cache(folder)]
    if targets:
        found.append(_self_test(targets[0], threads))
        if found[-1].ok:
            found += _products(targets[0], folder)
    return NativeReport(
        levels=tuple(t.name for t in targets),
        level=targets[0].name if targets else None,
        threads=threads,
        cache=None if folder is None else str(folder),
        findings=tuple(found),
    )


def _levels(targets: list[Target]) -> MachineFinding:
    from zinc_rt.lang.errors import LangError
    from zinc_rt.lang.target import host_target

    if targets:
        rest = f"; also {', '.join(t.name for t in targets[1:])}" if targets[1:] else ""
        return MachineFinding("instruction sets", f"{targets[0].name}{rest}")
    try:
        why = f"none: {host_target().name}"
    except LangError as error:
        why = f"none: {error}"
    return MachineFinding("instruction sets", why, False, _REFERENCE)


def _cores(threads: int) -> str:
    return f"{threads}, the physical cores that this process may use"


def _compiler() -> MachineFinding:
    from zinc_rt.lang.cache import llvm_version

    version = llvm_version()
    if version == "none":
        return MachineFinding("compiler", "llvmlite is not installed", False, f"pip install llvmlite; {_REFERENCE}")
    return MachineFinding("compiler", f"llvmlite {version}")


def _cache(folder: Path | None) -> MachineFinding:
    import os

    from zinc_rt.lang.cache import CompileCache
    from zinc_rt.lang.errors import CacheError
    from zinc_rt.mem.plan import format_bytes

    name, remedy = "kernel cache", "name another folder with --cache-dir; without one every start compiles"
    if folder is None:
        return MachineFinding(name, "none: there is no home folder", False, remedy)
    try:
        entries = CompileCache(folder).entries()
    except CacheError as error:
        return MachineFinding(name, str(error), False, remedy)
    # The nearest existing folder must allow the creation of the others.
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return MachineFinding(name, f"{folder} cannot be written", False, remedy)
    return MachineFinding(name, f"{folder}: {len(entries)} kernels, {format_bytes(sum(e.size for e in entries))}")


def _products(target: Target, folder: Path | None) -> list[MachineFinding]:
    """How products of 16 rows and more are computed: what was measured so far, and now for one format at least."""
    from zinc_rt.backends.cpu.choice import TargetTuning
    from zinc_rt.backends.cpu.ways import WaysOfProducts, forced_ways, in_words
    from zinc_rt.formats.table import quantized
    from zinc_rt.gguf import GGMLType
    from zinc_rt.lang.cache import CompileCache
    from zinc_rt.lang.library import Library
    from zinc_rt.utils.environment import MATRIX_ROWS

    name, tuning = "products", TargetTuning.of(target)
    if not tuning.tiles:
        return [MachineFinding(name, "in vectors; there is no other way here, so nothing is measured")]
    ways = WaysOfProducts(Library(target, CompileCache(folder)))
    try:
        if forced_ways() is not None:
            return [MachineFinding(name, f"as {MATRIX_ROWS.name} says, not as measured")]
        ways.chosen(tuning, [GGMLType.Q8_0], rows=64)
    except ZincError as error:
        return [MachineFinding(name, str(error), False, f"unset {MATRIX_ROWS.name}")]
    findings = []
    for format_ in quantized():
        found = ways.recall(tuning, GGMLType[format_.name])
        if found is not None:
            right = not found.wrong
            remedy = "" if right else "they are not used; please report it"
            findings.append(MachineFinding(f"{name} {format_.name}", in_words(found), right, remedy))
    return findings


def _self_test(target: Target, threads: int) -> MachineFinding:
    """Compile without the cache, so that the compiler is tried too; run on all threads; look at the sums."""
    from zinc_rt.backends.cpu.selftest import sums_are_right
    from zinc_rt.lang.cache import CompileCache
    from zinc_rt.lang.library import Library

    started = time.perf_counter()
    library = Library(target, CompileCache(None))
    try:
        right = sums_are_right(library, threads)
    except ZincError as error:
        return MachineFinding("self-test", f"failed: {error}", False, _REFERENCE)
    if not right:
        return MachineFinding("self-test", "a kernel gave wrong sums", False, f"{_REFERENCE}; please report it")
    seconds = time.perf_counter() - started
    return MachineFinding(
        "self-test", f"{library.compiled} kernels compiled and run on {threads} threads, {seconds:.1f} s"
    )
