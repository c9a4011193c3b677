"""GPU kernels by name: from the cache where they are there, else compiled and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.compiler import Compiler
from zinc_rt.lang.errors import CompileError, UnsupportedTarget
from zinc_rt.lang.frontend import Spec, emit_module
from zinc_rt.lang.gpu import GpuKernel, describe_kernel
from zinc_rt.lang.image import Image
from zinc_rt.lang.library import image_key
from zinc_rt.lang.target import TARGETS, Target


def gpu_targets() -> list[str]:
    """The GPUs that kernels can be compiled for."""
    return [name for name, target in TARGETS.items() if target.arch == "amdgcn"]


def gpu_target(name: str) -> Target:
    """One of them. Raises `UnsupportedTarget`."""
    if name not in gpu_targets():
        raise UnsupportedTarget(f"kernels for {name!r} cannot be made; the GPUs are {', '.join(gpu_targets())}")
    return TARGETS[name]


def gpu_kernels(
    specs: Mapping[str, Spec],
    target: str,
    *,
    cache: CompileCache | None = None,
    notify: Callable[[str], None] | None = None,
) -> dict[str, GpuKernel]:
    """Kernels under these names, in this order, without assembly.

    cache: where compiled code is kept; None: nowhere. notify: gets a line before something is compiled.
    Raises `KernelError`, `UnsupportedTarget`, `CompileError`.
    """
    level = gpu_target(target)
    store = cache if cache is not None else CompileCache(None)
    keys = {name: image_key(spec.function.fingerprint(), spec.symbol, level) for name, spec in specs.items()}
    images = {name: image for name, key in keys.items() if (image := store.get(key)) is not None}
    missing = [name for name in specs if name not in images]
    if missing:
        if notify is not None:
            notify(f"compiling {len(missing)} kernels for {target}")
        results = Compiler().compile_each([emit_module(name, [specs[name]], level) for name in missing])
        failed: CompileError | None = None
        for name, result in zip(missing, results, strict=True):
            if isinstance(result, Image):
                store.put(keys[name], result)
                images[name] = result
            else:
                failed = failed or result
        if failed is not None:
            raise failed
    return {name: replace(describe_kernel(spec, images[name]), name=name) for name, spec in specs.items()}
