"""What differs between instruction sets of GPUs: ids, lanes, barriers, dot products, conventions.

The functions in `lang.lower` that mean something on GPUs alone ask the machine of their target. `c` is the compiler of
the function at hand, as in `lang.lower`; results are names of LLVM values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import FunctionText, ModuleText, suffix
from zinc_rt.lang.types import Space
from zinc_rt.lang.values import Val

if TYPE_CHECKING:
    from zinc_rt.lang.kernel import Function
    from zinc_rt.lang.target import Target

WAVE = 32
"""Lanes that exchange values."""


@dataclass(frozen=True)
class KernelHead:
    """A kernel before its body. symbol: its name; parameters: LLVM types, named %a0, %a1, …; number: of its attributes
    among the module's.
    """

    module: ModuleText
    function: Function
    target: Target
    symbol: str
    parameters: Sequence[str]
    number: int

    @property
    def named(self) -> str:
        """The parameters as LLVM declares them."""
        return ", ".join(f"{kind} %a{i}" for i, kind in enumerate(self.parameters))


class GpuMachine(ABC):
    """An instruction set of GPUs.

    spaces: LLVM's numbers of address spaces; tables: of the one where constant tables lie; stack: how LLVM writes a
    pointer to a work-item's own memory; scope: LLVM's name for all work-items of a device; reverses_bits: whether it
    has an instruction for that; saturates: whether its conversions of floats to integers do, and make NaN 0;
    max_shared: bytes that a workgroup can share; splits_loads: whether a load takes as many instructions as its
    alignment makes pieces of it.
    """

    name: str
    spaces: ClassVar[Mapping[Space, int]]
    tables: int
    stack: str = "ptr"
    scope: str = "device"
    reverses_bits: bool = True
    saturates: bool = True
    max_shared: int = 64 << 10
    splits_loads: bool = False

    @abstractmethod
    def definition(self, head: KernelHead) -> str:
        """The line that begins a kernel."""

    @abstractmethod
    def workgroup_id(self, c: Any, axis: int) -> str:
        """i32: the workgroup's number in x, y or z."""

    @abstractmethod
    def workitem_id(self, c: Any) -> str:
        """i32: the work-item's number in its workgroup, of one dimension."""

    @abstractmethod
    def lane_id(self, c: Any) -> str:
        """i32: the lane's number in its wave."""

    @abstractmethod
    def barrier(self, c: Any) -> None:
        """Work-items of the workgroup wait for each other, and see what the others stored."""

    def schedule_barrier(self, c: Any) -> None:
        """A hint: loads before it start before arithmetic behind it. Nothing, where LLVM does not plan the machine's
        own instructions.
        """
        return

    @abstractmethod
    def shuffle_xor(self, c: Any, bits: str, distance: int) -> str:
        """i32: what lane `l ^ distance` has; all lanes of the wave call it together."""

    @abstractmethod
    def first_lane(self, c: Any, bits: str) -> str:
        """i32: what the wave's first active lane has."""

    @abstractmethod
    def dot4(self, c: Any, total: str, a: str, b: str, signed: bool) -> str:
        """i32: total plus the products of four bytes of the i32 words a and b. signed: of a; b is."""

    @abstractmethod
    def pick_bytes(self, c: Any, high: str, low: str, selector: str) -> str:
        """i32: four of the eight bytes of two words, low first, by the numbers 0 to 7 in the selector's bytes."""

    @abstractmethod
    def pause(self, c: Any) -> None:
        """A moment's rest while something is waited for."""

    def divide(self, f: FunctionText, x: Val, y: Val) -> Val:
        """x / y of floats, correctly rounded."""
        return Val(x.type, f.value(f"fdiv {f.type(x.type)} {x.ref}, {y.ref}"))

    def sqrt(self, f: FunctionText, x: Val) -> Val:
        """The square root, correctly rounded."""
        kind = f.type(x.type)
        return Val(x.type, f.call(f"llvm.sqrt.{suffix(x.type)}", kind, [(kind, x.ref)]))

    def extreme(self, f: FunctionText, word: str, x: Val, y: Val) -> Val:
        """The greater ("max") or lesser ("min") of floats: NaN where one is, +0 above -0."""
        kind = f.type(x.type)
        return Val(x.type, f.call(f"llvm.{word}imum.{suffix(x.type)}", kind, [(kind, x.ref), (kind, y.ref)]))

    def rounded(self, f: FunctionText, kind: str, value: str) -> str:
        """A float that LLVM must not join with the conversion behind it, where one instruction would round once."""
        return value

    def matrix_product(self, c: Any, signs: Sequence[str], types: tuple[str, str], operands: Sequence[str]) -> str:
        """See `ops.wmma_iu8`. Raises `Reject`."""
        raise Reject(f"wmma_iu8 is an instruction of gfx12, which {c.target.name} does not have")

    def mma_s8(self, c: Any, total: Sequence[str], a: Sequence[str], b: Sequence[str]) -> list[str]:
        """Four i32: see `ops.mma_s8`. Raises `Reject`."""
        raise Reject(f"mma_s8 is an instruction of NVIDIA's GPUs, which {c.target.name} does not have")


def machine_of(target: Target) -> GpuMachine | None:
    """The machine of a target; None for processors."""
    if not target.gpu:
        return None
    # Not imported above: machines build on this module, and compiling for a processor needs none of them.
    return import_module(f"{__name__}.{target.arch}").MACHINE  # type: ignore[no-any-return]
