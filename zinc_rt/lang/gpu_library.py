"""GPU kernels by name: from the cache where they are there, else compiled and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from zinc_rt.lang.building import Builder, ImageSource
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.errors import UnsupportedTarget
from zinc_rt.lang.frontend import Spec, emit_module
from zinc_rt.lang.gpu import GpuKernel, describe_kernel
from zinc_rt.lang.library import image_key
from zinc_rt.lang.target import TARGETS, Target


def gpu_targets() -> list[str]:
    """The GPUs that kernels can be compiled for."""
    return [name for name, target in TARGETS.items() if target.gpu]


def gpu_target(name: str) -> Target:
    """Find a GPU target by name. Raises `UnsupportedTarget`."""
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
    """Compile GPU kernels, or take them from the cache.

    Args:
        specs: the kernels and their constants, by name.
        target: the GPU target's name (`gpu_targets`).
        cache: the cache of compiled code; None stores nothing.
        notify: called with a line before something is compiled or waited for.

    Returns:
        The kernels under their names, in the order of `specs`, without assembly.

    Raises:
        KernelError: the language refuses a source.
        UnsupportedTarget: the target is unknown.
        CompileError: LLVM refuses a module.
    """
    level = gpu_target(target)
    store = cache if cache is not None else CompileCache(None)
    wanted = {
        name: ImageSource(
            image_key(spec.function.fingerprint(), spec.symbol, level), partial(emit_module, name, [spec], level)
        )
        for name, spec in specs.items()
    }
    images = Builder(store, target, None, notify).images(wanted)
    return {name: replace(describe_kernel(spec, images[name]), name=name) for name, spec in specs.items()}
