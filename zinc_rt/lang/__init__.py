"""The kernel language: typed Python compiled to machine code for a named target. Guide: docs/how/lang.md.

Types, words and decorators are here at once; modules that compile and run are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from zinc_rt.lang.kernel import Function, inline, kernel  # at once: the decorator must win over its module's name

from zinc_rt.lang.ops import (  # isort: skip
    absolute, add_pairs, all_of, any_of, array, atomic_add, atomic_cas, atomic_load, atomic_store, barrier, bitcast,
    call, cast, concat, count_trailing_zeros, cycle_counter, dot2, dot4, dot8, fence, first_lane, floor, fma, gather,
    high, insert, iota, lane_id, lanes, load, lookup16, low, maximum, minimum, mma_s8, part_traits, pause, popcount,
    prefetch, reduce_add, reduce_max, reduce_min, reduce_or, regs, reversed_bits, rint, run_part, schedule_barrier,
    select, shared, shuffle, signed_like, splat, sqrt, static_assert, store, table, target_has, tile_configure,
    tile_dot_i8i8, tile_dot_i8u8, tile_dot_u8i8, tile_load, tile_release, tile_store, tile_zero, unroll,
    wave_reduce_add, wave_shuffle_xor, wmma_iu8, workgroup_id, workitem_id, zeros,
)  # fmt: skip
from zinc_rt.lang.types import (  # isort: skip
    Space, bf16, boolean, f16, f32, f64, i8, i16, i32, i64, ptr, struct, u8, u16, u32, u64, vec,
)  # fmt: skip

if TYPE_CHECKING:
    from zinc_rt.lang.cache import CompileCache, default_cache_dir
    from zinc_rt.lang.diagnostics import KernelError
    from zinc_rt.lang.errors import LangError
    from zinc_rt.lang.frontend import Spec, emit_module
    from zinc_rt.lang.gpu import GpuKernel, gpu_kernel
    from zinc_rt.lang.native import NativeKernel, compile, compile_image
    from zinc_rt.lang.target import TARGETS, Target, host_target, host_targets

_LATER: Final = {
    "cache": "CompileCache default_cache_dir",
    "diagnostics": "KernelError",
    "errors": "LangError",
    "frontend": "Spec emit_module",
    "gpu": "GpuKernel gpu_kernel",
    "native": "NativeKernel compile compile_image",
    "target": "TARGETS Target host_target host_targets",
}  # submodule -> names

__all__ = [
    "TARGETS",
    "CompileCache",
    "Function",
    "GpuKernel",
    "KernelError",
    "LangError",
    "NativeKernel",
    "Space",
    "Spec",
    "Target",
    "absolute",
    "add_pairs",
    "all_of",
    "any_of",
    "array",
    "atomic_add",
    "atomic_cas",
    "atomic_load",
    "atomic_store",
    "barrier",
    "bf16",
    "bitcast",
    "boolean",
    "call",
    "cast",
    "compile",
    "compile_image",
    "concat",
    "count_trailing_zeros",
    "cycle_counter",
    "default_cache_dir",
    "dot2",
    "dot4",
    "dot8",
    "emit_module",
    "f16",
    "f32",
    "f64",
    "fence",
    "first_lane",
    "floor",
    "fma",
    "gather",
    "gpu_kernel",
    "high",
    "host_target",
    "host_targets",
    "i8",
    "i16",
    "i32",
    "i64",
    "inline",
    "insert",
    "iota",
    "kernel",
    "lane_id",
    "lanes",
    "load",
    "lookup16",
    "low",
    "maximum",
    "minimum",
    "mma_s8",
    "part_traits",
    "pause",
    "popcount",
    "prefetch",
    "ptr",
    "reduce_add",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "regs",
    "reversed_bits",
    "rint",
    "run_part",
    "schedule_barrier",
    "select",
    "shared",
    "shuffle",
    "signed_like",
    "splat",
    "sqrt",
    "static_assert",
    "store",
    "struct",
    "table",
    "target_has",
    "tile_configure",
    "tile_dot_i8i8",
    "tile_dot_i8u8",
    "tile_dot_u8i8",
    "tile_load",
    "tile_release",
    "tile_store",
    "tile_zero",
    "u8",
    "u16",
    "u32",
    "u64",
    "unroll",
    "vec",
    "wave_reduce_add",
    "wave_shuffle_xor",
    "wmma_iu8",
    "workgroup_id",
    "workitem_id",
    "zeros",
]


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names.split():
            from importlib import import_module

            value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
