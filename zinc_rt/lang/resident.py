"""One program of many kernels: each becomes an internal function, which a main kernel calls by number.

The main kernel is written in the kernel language; `run_part` calls a kernel, `part_traits` gives its needs. A kernel in
such a program gets the numbers of its workgroup and of its work-item as parameters. Only its arguments are read by
scalar loads: other memory that is CONSTANT during a dispatch may change within the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from zinc_rt.lang.amd import AmdKernel, amd_kernel
from zinc_rt.lang.building import Builder, ImageSource
from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.compiler import Module
from zinc_rt.lang.diagnostics import KernelError, Reject
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.frontend import Spec, emit_function, prepare, problem
from zinc_rt.lang.gpu_library import gpu_target
from zinc_rt.lang.kernel import language_fingerprint
from zinc_rt.lang.lower.parts import ARENA, LANES, MET, SLOT, WAVE, KernelFunction, ResidentText
from zinc_rt.lang.machines import machine_of
from zinc_rt.lang.machines.amdgcn import WORKGROUP, WORKITEM
from zinc_rt.lang.target import RESIDENT, SMALL_GROUPS, Target
from zinc_rt.lang.types import Type
from zinc_rt.lang.values import Val

MOST_LDS: Final = 16 << 10
"""Bytes that kernels side by side in a workgroup may take together: more of it, and fewer workgroups fit."""


def may_be_part(spec: Spec) -> bool:
    """Whether a kernel can be part of a resident program by its size; `resident_kernel` looks at its barriers."""
    lanes = spec.function.resident
    return spec.function.wave == WAVE and lanes <= LANES and lanes % WAVE == 0 and LANES % lanes == 0


def resident_kernel(
    main: Spec,
    parts: Sequence[Spec],
    target: str,
    *,
    cache: CompileCache | None = None,
    notify: Callable[[str], None] | None = None,
) -> AmdKernel:
    """Compile a resident program, or take it from the cache.

    Args:
        main: the kernel that calls the parts.
        parts: kernels, different from each other; `part_traits` and `run_part` number them in this order.
        target: the GPU target's name.
        cache: the cache of compiled code; None stores nothing.
        notify: called with a line before something is compiled or waited for.

    Raises:
        KernelError: the language refuses a source.
        LangError: a kernel cannot be part of a resident program.
        CompileError: LLVM refuses the module.
    """
    level = gpu_target(target)
    marks = [part for spec in (main, *parts) for part in (spec.function.fingerprint(), spec.symbol)]
    key = cache_key([language_fingerprint(), RESIDENT, *marks, level.name, level.cpu, *level.features])
    store = cache if cache is not None else CompileCache(None)
    wanted: Mapping[str, ImageSource] = {main.symbol: ImageSource(key, partial(emit_resident, main, parts, level))}
    return amd_kernel(main, Builder(store, target, None, notify).images(wanted)[main.symbol])


def emit_resident(main: Spec, parts: Sequence[Spec], target: Target) -> Module:
    """LLVM IR of a resident program. Raises `KernelError`, and `LangError` for a kernel that cannot be a part."""
    if target.by_driver or target.ids_are_arguments:
        raise LangError(f"resident programs are for gfx12, not for {target.name}")
    if main.function.workgroup != LANES:
        raise LangError(f"{main.function.name}: a resident program has workgroups of {LANES} work-items")
    text = ResidentText(target.triple, machine_of(target))
    text.attributes.append('attributes #0 = { nounwind "no-builtins" "frame-pointer"="none" }')
    text.attributes.append(
        f'attributes #2 = {{ nounwind alwaysinline "no-builtins" "amdgpu-flat-work-group-size"="{LANES},{LANES}" }}'
    )
    within = replace(target, isa=target.isa | {RESIDENT, SMALL_GROUPS})
    for spec in parts:
        text.functions.append(_fitted(text, spec, within))
    text.functions.append(emit_function(text, main, target, 1))
    if text.lds:
        text.globals.append(f"{ARENA} = internal unnamed_addr addrspace(3) global [{text.lds} x i8] poison, align 16")
    return Module(main.function.name, text.text(), target, (main.symbol,))


def _fitted(text: ResidentText, spec: Spec, target: Target) -> str:
    """The function of a kernel, which is noted in `text.parts`: side by side with itself where it waits for nobody and
    takes little LDS.
    """
    lanes = spec.function.resident
    if not may_be_part(spec):
        raise LangError(f"{spec.function.name} has workgroups of {lanes}; parts have 32 to {LANES}")
    text.lanes, text.side_by_side = lanes, LANES // lanes
    made, kinds, lds = _part(text, spec, target)
    if text.side_by_side > 1 and (text.waited or lds > MOST_LDS):
        text.side_by_side = 1
        made, kinds, lds = _part(text, spec, target)
    text.lds = max(text.lds, lds)
    text.parts.append(KernelFunction(spec.symbol, kinds, lanes, text.side_by_side, text.waited))
    return made


def _part(text: ResidentText, spec: Spec, target: Target) -> tuple[str, tuple[Type, ...], int]:
    """The function of a kernel, the types of its parameters, and bytes of LDS."""
    function, text.waited = spec.function, False
    compiler, shape = prepare(text, spec, target)
    f = compiler.f
    texts = []
    for i, (name, kind) in enumerate(shape.parameters):
        texts.append(f"{f.type(kind)} %a{i}")
        compiler.frame.names[name] = compiler.bind(name, Val(kind, f"%a{i}"))
    texts += [*(f"i32 {name}" for name in (*WORKGROUP, WORKITEM, SLOT)), f"{f.stack} {MET}"]
    try:
        compiler.body(function, shape.returns)
    except Reject as reason:
        raise problem(function, str(reason)) from None
    except KernelError as error:
        raise error.inside(function.name) from None
    if f.reachable:
        f.end("ret void")
    made = "\n".join([f"define internal void @{spec.symbol}({', '.join(texts)}) #2 {{", f.body(), "}"])
    return made, tuple(kind for _, kind in shape.parameters), f.shared_bytes
