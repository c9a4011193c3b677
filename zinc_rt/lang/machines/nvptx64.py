"""NVIDIA's GPUs by PTX: the calling convention ptx_kernel, and LLVM's intrinsics for NVPTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from zinc_rt.lang.machines import WAVE, GpuMachine, KernelHead
from zinc_rt.lang.occupancy import VGPRS
from zinc_rt.lang.types import Space

_ALL_LANES: Final = "-1"
REGISTERS: Final = 64 << 10
"""Of a multiprocessor."""


def _i32(c: Any, name: str, *arguments: str) -> str:
    return str(c.f.call(f"llvm.nvvm.{name}", "i32", [("i32", a) for a in arguments]))


def _mma(c: Any, shape: str, *words: str) -> list[str]:
    """A product of signed bytes; the sums come last among the words, and as many come back."""
    n = 4 if shape.startswith("m16") else 2
    kind = f"{{{', '.join(['i32'] * n)}}}"
    found = c.f.call(f"llvm.nvvm.mma.{shape}.row.col.s8", kind, [("i32", word) for word in words])
    return [str(c.f.value(f"extractvalue {kind} {found}, {i}")) for i in range(n)]


class _Ptx(GpuMachine):
    name = "nvptx64"
    # The constant bank has 64 KiB and wants one address in all lanes; `ld.global.nc` has neither limit.
    spaces: ClassVar[Mapping[Space, int]] = {Space.GLOBAL: 1, Space.SHARED: 3, Space.CONSTANT: 1, Space.PRIVATE: 0}
    tables = 1
    splits_loads = True
    max_shared = 48 << 10  # of variables with a size; PTX gives more only to kernels that are launched with a size

    def definition(self, head: KernelHead) -> str:
        # .reqntid: registers are planned for exactly this many work-items.
        lanes = head.function.lanes(head.target)
        words = f'nounwind "no-builtins" "nvvm.reqntid"="{lanes}"'
        if head.function.occupancy:
            # .minnctapersm: without it ptxas spills some registers where more workgroups then fit.
            registers = VGPRS // head.function.occupancy
            words += f' "nvvm.minctasm"="{max(1, REGISTERS // (registers * lanes))}"'
        return f"define ptx_kernel void @{head.symbol}({head.named}) {words} {{"

    def workgroup_id(self, c: Any, axis: int) -> str:
        return _i32(c, f"read.ptx.sreg.ctaid.{'xyz'[axis]}")

    def workitem_id(self, c: Any) -> str:
        return _i32(c, "read.ptx.sreg.tid.x")

    def lane_id(self, c: Any) -> str:
        return _i32(c, "read.ptx.sreg.laneid")

    def barrier(self, c: Any) -> None:
        c.f.call("llvm.nvvm.barrier.cta.sync.aligned.all", None, [("i32", "0")])

    def shuffle_xor(self, c: Any, bits: str, distance: int) -> str:
        return _i32(c, "shfl.sync.bfly.i32", _ALL_LANES, bits, str(distance), str(WAVE - 1))

    def first_lane(self, c: Any, bits: str) -> str:
        """What lane 0 has: kernels call it where all lanes are active."""
        return _i32(c, "shfl.sync.idx.i32", _ALL_LANES, bits, "0", str(WAVE - 1))

    def dot4(self, c: Any, total: str, a: str, b: str, signed: bool) -> str:
        """DP4A."""
        return _i32(c, "idp4a.s.s" if signed else "idp4a.u.s", a, b, total)

    def pick_bytes(self, c: Any, high: str, low: str, selector: str) -> str:
        """PRMT takes four numbers of four bits, from the low half of its selector."""
        halved = c.f.value(f"lshr i32 {selector}, 4")
        pairs = c.f.value(f"and i32 {c.f.value(f'or i32 {selector}, {halved}')}, {0x00FF00FF}")
        packed = c.f.value(f"or i32 {pairs}, {c.f.value(f'lshr i32 {pairs}, 8')}")
        return _i32(c, "prmt", low, high, str(packed))

    def mma_s8(self, c: Any, total: Sequence[str], a: Sequence[str], b: Sequence[str]) -> list[str]:
        """One MMA; sm_75 has those of 8 x 8 x 16 alone, which do the same in pieces."""
        if c.target.cpu != "sm_75":
            return _mma(c, f"m16n8k{16 * len(b)}", *a, *b, *total)
        sums = list(total)
        for k, columns in enumerate(b):
            for half in (0, 1):
                at = slice(2 * half, 2 * half + 2)
                sums[at] = _mma(c, "m8n8k16", a[2 * k + half], columns, *sums[at])
        return sums

    def pause(self, c: Any) -> None:
        c.f.call("llvm.nvvm.nanosleep", None, [("i32", "100")])


MACHINE = _Ptx()
