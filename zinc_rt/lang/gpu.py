"""Kernels of GPUs, compiled one at a time."""

from __future__ import annotations

from zinc_rt.lang.amd import amd_kernel
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.image import Image
from zinc_rt.lang.launch import GpuKernel, arguments_of
from zinc_rt.lang.native import compile_image
from zinc_rt.lang.target import TARGETS

__all__ = ["GpuKernel", "describe_kernel", "gpu_kernel"]


def gpu_kernel(spec: Spec, target: str = "gfx1201", *, disassemble: bool = False) -> GpuKernel:
    """Compile a GPU kernel and describe its launch; the arguments and errors are those of `compile_image`."""
    return describe_kernel(spec, compile_image(spec, target, disassemble=disassemble))


def describe_kernel(spec: Spec, image: Image) -> GpuKernel:
    """A kernel of a compiled image, for an AMD GPU an `AmdKernel`. Raises `CompileError` where the image lacks it or is
    for another kind of target.
    """
    target = TARGETS[image.target]
    if not target.gpu or spec.symbol not in image.entries:
        raise CompileError(f"the image for {image.target} holds no GPU kernel {spec.symbol}")
    if not target.by_driver:
        return amd_kernel(spec, image)
    return GpuKernel(
        name=spec.function.name,
        symbol=spec.symbol,
        code=image.code,
        arguments=arguments_of(spec, target),
        workgroup=spec.function.lanes(target),
        wave=spec.function.wave,
        target=image.target,
        assembly=image.meta.get("assembly", ""),
    )
