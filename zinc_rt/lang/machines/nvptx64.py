"""NVIDIA's GPUs by PTX: the calling convention ptx_kernel, and LLVM's intrinsics for NVPTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zinc_rt.lang.machines import WAVE, GpuMachine
from zinc_rt.lang.occupancy import VGPRS
from zinc_rt.lang.types import Space

if TYPE_CHECKING:
    from zinc_rt.lang.irtext import ModuleText
    from zinc_rt.lang.kernel import Function
    from zinc_rt.lang.target import Target

_ALL_LANES: Final = "-1"
REGISTERS: Final = 64 << 10
"""Of a multiprocessor."""


def _i32(c: Any, name: str, *arguments: str) -> str:
    return str(c.f.call(f"llvm.nvvm.{name}", "i32", [("i32", a) for a in arguments]))


class _Ptx(GpuMachine):
    name = "nvptx64"
    # The constant bank has 64 KiB and wants one address in all lanes; `ld.global.nc` has neither limit.
    spaces: ClassVar[Mapping[Space, int]] = {Space.GLOBAL: 1, Space.SHARED: 3, Space.CONSTANT: 1, Space.PRIVATE: 0}
    tables = 1
    splits_loads = True
    max_shared = 48 << 10  # of variables with a size; PTX gives more only to kernels that are launched with a size

    def definition(
        self,
        module: ModuleText,
        function: Function,
        symbol: str,
        target: Target,
        parameters: Sequence[str],
        number: int,
    ) -> str:
        texts = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(parameters))
        # .reqntid: registers are planned for exactly this many work-items.
        lanes = function.lanes(target)
        words = f'nounwind "no-builtins" "nvvm.reqntid"="{lanes}"'
        if function.occupancy:
            # .minnctapersm: without it ptxas spills some registers where more workgroups then fit.
            registers = VGPRS // function.occupancy
            words += f' "nvvm.minctasm"="{max(1, REGISTERS // (registers * lanes))}"'
        return f"define ptx_kernel void @{symbol}({texts}) {words} {{"

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

    def pause(self, c: Any) -> None:
        c.f.call("llvm.nvvm.nanosleep", None, [("i32", "100")])


MACHINE = _Ptx()
