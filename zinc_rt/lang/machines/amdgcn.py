"""AMD's cores: the calling convention amdgpu_cs, and LLVM's intrinsics for amdgcn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.lower.parts import part_barrier
from zinc_rt.lang.machines import GpuMachine, KernelHead
from zinc_rt.lang.occupancy import MAX_WAVES
from zinc_rt.lang.target import RESIDENT
from zinc_rt.lang.types import Space

if TYPE_CHECKING:
    from zinc_rt.lang.irtext import FunctionText

WORKITEM = "%workitem"
"""The packed work-item id that the hardware puts into v0: x in bits 0-9, y in 10-19, z in 20-29."""
WORKGROUP = ("%group_x", "%group_y", "%group_z")
"""The workgroup's ids, where `Target.ids_are_arguments`."""


def _i32(c: Any, name: str, *arguments: str) -> str:
    return str(c.f.call(f"llvm.amdgcn.{name}", "i32", [("i32", a) for a in arguments]))


class _Amd(GpuMachine):
    name = "amdgcn"
    spaces: ClassVar[Mapping[Space, int]] = {space: int(space) for space in Space}
    tables = int(Space.CONSTANT)
    stack = f"ptr addrspace({int(Space.PRIVATE)})"
    scope = "agent"

    def definition(self, head: KernelHead) -> str:
        texts = [f"{kind} inreg %a{i}" for i, kind in enumerate(head.parameters)]
        if head.target.ids_are_arguments:
            given = sum(2 if kind.startswith("ptr") or kind in ("i64", "double") else 1 for kind in head.parameters)
            texts += [f"i32 inreg %unused{k}" for k in range(head.target.least_user_registers - given)]
            texts += [f"i32 inreg {name}" for name in WORKGROUP]
        texts.append(f"i32 {WORKITEM}")
        size, waves = head.function.workgroup, head.function.occupancy
        words = f'nounwind "no-builtins" "amdgpu-flat-work-group-size"="{size},{size}"'
        if waves:
            words += f' "amdgpu-waves-per-eu"="{waves},{MAX_WAVES}"'
        head.module.attributes.append(f"attributes #{head.number} = {{ {words} }}")
        return f"define amdgpu_cs void @{head.symbol}({', '.join(texts)}) #{head.number} {{"

    def workgroup_id(self, c: Any, axis: int) -> str:
        if c.target.ids_are_arguments or RESIDENT in c.target.isa:
            return WORKGROUP[axis]
        return _i32(c, f"workgroup.id.{'xyz'[axis]}")

    def workitem_id(self, c: Any) -> str:
        return str(c.f.value(f"and i32 {WORKITEM}, 1023"))

    def lane_id(self, c: Any) -> str:
        low = _i32(c, "mbcnt.lo", "-1", "0")
        return low if "wave32" in c.target.isa else _i32(c, "mbcnt.hi", "-1", low)

    def barrier(self, c: Any) -> None:
        if RESIDENT in c.target.isa:
            part_barrier(c)
            return
        c.f.emit('fence syncscope("workgroup") release')
        c.f.call("llvm.amdgcn.s.barrier", None, [])
        c.f.emit('fence syncscope("workgroup") acquire')

    def schedule_barrier(self, c: Any) -> None:
        c.f.call("llvm.amdgcn.sched.barrier", None, [("i32", "0")])

    def shuffle_xor(self, c: Any, bits: str, distance: int) -> str:
        return _other_row(c, bits) if distance == 16 else _within_row(c, bits, distance)

    def first_lane(self, c: Any, bits: str) -> str:
        return str(c.f.call("llvm.amdgcn.readfirstlane.i32", "i32", [("i32", bits)]))

    def dot4(self, c: Any, total: str, a: str, b: str, signed: bool) -> str:
        """V_DOT4_I32_IU8."""
        operands = [("i1", "true" if signed else "false"), ("i32", a), ("i1", "true"), ("i32", b)]
        return str(c.f.call("llvm.amdgcn.sudot4", "i32", [*operands, ("i32", total), ("i1", "false")]))

    def pick_bytes(self, c: Any, high: str, low: str, selector: str) -> str:
        """V_PERM_B32."""
        return _i32(c, "perm", high, low, selector)

    def pause(self, c: Any) -> None:
        c.f.call("llvm.amdgcn.s.sleep", None, [("i32", "1")])

    def rounded(self, f: FunctionText, kind: str, value: str) -> str:
        """LLVM would take a product and its conversion together (v_fma_mixlo_f16), which rounds once, not twice."""
        return f.value(f'call {kind} asm "", "=v,0"({kind} {value})')

    def matrix_product(self, c: Any, signs: Sequence[str], types: tuple[str, str], operands: Sequence[str]) -> str:
        if "wmma" not in c.target.isa:
            raise Reject(f"wmma_iu8 is for gfx12; {c.target.name} has another shape of it")
        (kind, half), (total, x, y) = types, operands
        given = [("i1", signs[0]), (half, x), ("i1", signs[1]), (half, y), (kind, total), ("i1", "false")]
        return str(c.f.call("llvm.amdgcn.wmma.i32.16x16x16.iu8.v8i32.v2i32", kind, given))


def _within_row(c: Any, bits: str, distance: int) -> str:
    """Lane `l ^ distance` of the same row of 16: DPP control ROW_XMASK (0x160 + mask, gfx10 and later).

    Row and bank masks of all ones write every active lane, and with the bound control a lane that is switched off reads
    as 0; so the old value is never used and may be poison, which lets LLVM fold the move into the next instruction.
    """
    operands = ["poison", bits, str(0x160 + distance), "15", "15"]
    return str(c.f.call("llvm.amdgcn.update.dpp.i32", "i32", [*(("i32", o) for o in operands), ("i1", "true")]))


def _other_row(c: Any, bits: str) -> str:
    """The same lane of the other row of 16: V_PERMLANEX16_B32 with the identity as its selection.

    Lane i of a row reads, from the other row, the lane in bits 4i … 4i+3 of the 64 bits {selection 2, selection 1}
    (RDNA 4 ISA, V_PERMLANEX16_B32): 0x76543210 for lanes 0-7, 0xFEDCBA98 for lanes 8-15. A wave of 32 has two rows, so
    that is lane ^ 16. The last operands are fetch-inactive and bound control; the old value is never used, as above.
    """
    low, high = 0x76543210, 0xFEDCBA98 - (1 << 32)
    operands = ["poison", bits, str(low), str(high)]
    text = [*(("i32", o) for o in operands), ("i1", "true"), ("i1", "true")]
    return str(c.f.call("llvm.amdgcn.permlanex16.i32", "i32", text))


MACHINE = _Amd()
