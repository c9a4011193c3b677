"""Parts of a resident program: kernels as functions of one module, their LDS, their barriers, and calls to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from zinc_rt.lang import ops
from zinc_rt.lang.access import unchanging
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import ModuleText
from zinc_rt.lang.lower.registry import lowers, want_pointer, want_static, want_val
from zinc_rt.lang.types import Ptr, Space, Type, u32
from zinc_rt.lang.values import Val

LANES: Final = 256
"""Work-items of a workgroup of a resident program. Parts of fewer run side by side in one."""
WAVE: Final = 32
SLOT = "%slot"
"""Which of the parts side by side in a workgroup this is."""
MET = "%met"
"""Where a part that does not fill a workgroup counts its barriers, for the other waves of the workgroup."""
ARENA = "@resident_lds"


@dataclass(frozen=True)
class KernelFunction:
    """A kernel as an internal function. parameters: types, of the dwords of its arguments in order; lanes: work-items
    of one of its workgroups; side_by_side: how many of these run together in one of the program's; meets: whether
    their waves wait for each other.
    """

    symbol: str
    parameters: tuple[Type, ...]
    lanes: int
    side_by_side: int
    meets: bool


@dataclass
class ResidentText(ModuleText):
    """The text of a resident program. lds: bytes that the greatest part takes; lanes, side_by_side, waited: of the part
    under construction, see `KernelFunction`; waited as soon as it is known.
    """

    parts: list[KernelFunction] = field(default_factory=list)
    lds: int = 0
    lanes: int = LANES
    side_by_side: int = 1
    waited: bool = False


def _text(c: Any, word: str) -> ResidentText:
    if not isinstance(c.f.module, ResidentText):
        raise Reject(f"{word} belongs to resident programs")
    return c.f.module


def _part(c: Any, number: Any, word: str) -> KernelFunction:
    part: KernelFunction = _text(c, word).parts[want_static(number, int, "the part's number")]
    return part


def shared_part(c: Any, kind: Type, count: int) -> Val:
    """LDS of a part: all parts share the same bytes, those side by side in a workgroup have some each."""
    text = _text(c, "shared memory of a part")
    size, start = -(-kind.size * count // 16) * 16, c.f.shared_bytes
    c.f.shared_bytes += size * text.side_by_side
    at = c.f.value(f"mul nuw nsw i32 {SLOT}, {size}") if text.side_by_side > 1 else "0"
    place = c.f.value(f"add nuw nsw i32 {at}, {start}") if start else at
    return Val(Ptr(kind, Space.SHARED), c.f.value(f"getelementptr inbounds i8, ptr addrspace(3) {ARENA}, i32 {place}"))


def part_barrier(c: Any) -> None:
    """A barrier of the work-items of a part: of the workgroup, or of a wave, which runs in step anyhow."""
    text = _text(c, "the barrier of a part")
    if text.lanes <= WAVE:
        c.f.emit('fence syncscope("wavefront") release')
        c.f.call("llvm.amdgcn.wave.barrier", None, [])
        c.f.emit('fence syncscope("wavefront") acquire')
        return
    text.waited = True
    if text.lanes < LANES:
        before = c.f.value(f"load i32, {c.f.stack} {MET}")
        c.f.emit(f"store i32 {c.f.value(f'add i32 {before}, 1')}, {c.f.stack} {MET}")
    c.f.emit('fence syncscope("workgroup") release')
    c.f.call("llvm.amdgcn.s.barrier", None, [])
    c.f.emit('fence syncscope("workgroup") acquire')


@lowers(ops.part_traits)
def _part_traits(c: Any, number: Any) -> tuple[int, int, bool]:
    part = _part(c, number, "part_traits")
    return part.lanes, part.side_by_side, part.meets


@lowers(ops.run_part)
def _run_part(c: Any, number: Any, arguments: Any, groups: Any, lane: Any, slot: Any) -> Val:
    part = _part(c, number, "run_part")
    base, space = want_pointer(arguments, "the arguments")
    stays = unchanging(c.f, space)
    ids = [want_val(x, "a workgroup's number") for x in _three(groups)]
    given, at = [], 0
    for kind in part.parameters:
        where = c.f.value(f"getelementptr inbounds i8, {c.f.type(base.type)} {base.ref}, i64 {4 * at}")
        text = c.f.type(kind)
        if kind.size < 4:
            word = c.f.value(f"load i32, {c.f.type(base.type)} {where}, align 4{stays}")
            given.append(f"{text} {c.f.value(f'trunc i32 {word} to {text}')}")
        else:
            loaded = c.f.value(f"load {text}, {c.f.type(base.type)} {where}, align 4{stays}")
            given.append(f"{text} {loaded}")
        at += 2 if kind.size == 8 else 1
    given += [f"i32 {x.ref}" for x in (*ids, want_val(lane, "the lane"), want_val(slot, "the slot"))]
    met = c.f.alloca("i32", 4)
    c.f.emit(f"store i32 0, {c.f.stack} {met}")
    c.f.emit(f"call void @{part.symbol}({', '.join([*given, f'{c.f.stack} {met}'])})")
    return Val(u32, c.f.value(f"load i32, {c.f.stack} {met}"))


def _three(groups: Any) -> Sequence[Any]:
    if not isinstance(groups, tuple) or len(groups) != 3 or any(getattr(x, "type", None) != u32 for x in groups):
        raise Reject("the workgroup's numbers are three u32")
    return groups
