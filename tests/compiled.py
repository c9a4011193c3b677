"""Code for tests that look at it or run it by hand: taken from the cache of test runs, else compiled and kept there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from zinc_rt.lang.building import Builder, ImageSource
from zinc_rt.lang.cache import CompileCache, cache_key, default_cache_dir
from zinc_rt.lang.compiler import Compiler, Module
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.frontend import Spec, emit_module
from zinc_rt.lang.gpu import GpuKernel, describe_kernel
from zinc_rt.lang.image import Image
from zinc_rt.lang.kernel import language_fingerprint
from zinc_rt.lang.library import image_key
from zinc_rt.lang.target import TARGETS, Target


class _Lister(Compiler):
    """Adds the text of the code to every image."""

    def compile_each(
        self, modules: Sequence[Module], *, disassemble: bool = False, done: Callable[[int], None] | None = None
    ) -> list[Image | CompileError]:
        return super().compile_each(modules, disassemble=True, done=done)


def images(modules: Sequence[Module], *, disassemble: bool = False) -> list[Image]:
    """What `Compiler().compile` returns and raises, compiled once for all workers and runs: the key holds the IR."""
    if not modules:
        return []
    wanted = {str(i): ImageSource(_key(m, disassemble), lambda m=m: m) for i, m in enumerate(modules)}
    return _built(wanted, modules[0].target, disassemble)


def kernel_images(specs: Sequence[Spec], target: Target, *, disassemble: bool = False) -> list[Image]:
    """An image for each kernel, as `emit_module` and `Compiler` make it. Where it is kept, no IR is made again."""
    wanted = {
        str(i): ImageSource(_kernel_key(spec, target, disassemble), partial(emit_module, spec.symbol, [spec], target))
        for i, spec in enumerate(specs)
    }
    return _built(wanted, target, disassemble)


def gpu_kernel(spec: Spec, target: str = "gfx1201", *, disassemble: bool = False) -> GpuKernel:
    """What `zinc_rt.lang.gpu.gpu_kernel` returns."""
    return describe_kernel(spec, kernel_images([spec], TARGETS[target], disassemble=disassemble)[0])


def listing(spec: Spec, target: Target) -> str:
    """The text of a kernel's code for a target."""
    return str(kernel_images([spec], target, disassemble=True)[0].meta["assembly"])


def _built(wanted: Mapping[str, ImageSource], target: Target, disassemble: bool) -> list[Image]:
    cache = CompileCache(default_cache_dir())
    return list(Builder(cache, target.name, _Lister() if disassemble else None, None).images(wanted).values())


def _kernel_key(spec: Spec, target: Target, disassemble: bool) -> str:
    """Without a listing, the key under which the runtime itself keeps the image."""
    key = image_key(spec.function.fingerprint(), spec.symbol, target)
    return cache_key(["tests", key, "listing"]) if disassemble else key


def _key(module: Module, disassemble: bool) -> str:
    target = module.target
    parts = (module.ir, target.name, target.triple, target.cpu, *target.features, "exports", *module.exports)
    return cache_key(["tests", language_fingerprint(), *parts, f"opt {module.opt}", f"listing {disassemble}"])
