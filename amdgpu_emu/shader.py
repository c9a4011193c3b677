"""Shader cores, which run dispatched kernels: they take a `Dispatch` and the memory as shaders see it.

`RecordingShader` stands in for machine code: it keeps the dispatches, and runs Python functions by program address.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amdgpu_emu.errors import GpuHang

if TYPE_CHECKING:
    from amdgpu_emu.shader_memory import ShaderMemory

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Scratch:
    """Private memory of the waves. base: its address; bytes_per_wave: for 64 lanes; waves: the number that fits."""

    base: int
    bytes_per_wave: int
    waves: int


@dataclass(frozen=True)
class Dispatch:
    """One dispatch, as the registers and the packet say; checked, so that a shader core need not.

    address: of the program, bytes, a multiple of 256; groups: workgroups in x, y, z; threads: of a whole workgroup;
    grid: threads of the dispatch, which is less than groups times threads where the last ones are partial; start: the
    first workgroup's ids; wave32: 32 lanes a wave, else 64; user_data: the sixteen words that waves find in their
    first scalar registers; lds_bytes: local memory of a workgroup; gfx: version of the graphics core;
    compute_units: of the shader engines that it may use.
    """

    address: int
    groups: Triple
    threads: Triple
    grid: Triple
    start: Triple
    wave32: bool
    user_data: tuple[int, ...]
    rsrc1: int
    rsrc2: int
    rsrc3: int
    lds_bytes: int
    scratch: Scratch | None
    initiator: int
    gfx: Triple
    compute_units: int = 64

    @property
    def n_user_sgprs(self) -> int:
        """Number of words of `user_data` that waves get."""
        return self.rsrc2 >> 1 & 0x1F

    def __str__(self) -> str:
        sizes = ("x".join(map(str, part)) for part in (self.groups, self.threads))
        return f"program {self.address:#x}, {' groups of '.join(sizes)} threads, wave{32 if self.wave32 else 64}"


class Shader(ABC):
    """The interface of a shader core: `run` executes dispatches."""

    def issued(self, dispatch: Dispatch) -> None:  # noqa: B027  not every core wants to know
        """Note that a dispatch packet was read.

        The dispatch runs later, when something waits for it, perhaps in another order.
        """

    @abstractmethod
    def run(self, dispatch: Dispatch, memory: ShaderMemory) -> None:
        """Run a dispatch to its end; others see its writes after this returns.

        Raises:
            GpuFault: an access was refused (`memory` raises it; let it through).
            GpuHang: the program broke a rule. Any other exception counts as a hang, too.
        """


Program = Callable[[Dispatch, "ShaderMemory"], None]


class RecordingShader(Shader):
    """A shader core that records dispatches, in the order of their packets, in `dispatches`.

    It executes no machine code. A Python function added for a program's address runs in place of the program.
    """

    def __init__(self) -> None:
        self.dispatches: list[Dispatch] = []
        self._programs: dict[int, tuple[Program, bool | None]] = {}

    def add(self, address: int, program: Program, *, wave32: bool | None = None) -> None:
        """Run a Python function in place of the code at a GPU address. wave32: lanes, 32 or else 64; None: either."""
        self._programs[address] = (program, wave32)

    def issued(self, dispatch: Dispatch) -> None:
        """Record a dispatch."""
        self.dispatches.append(dispatch)

    def run(self, dispatch: Dispatch, memory: ShaderMemory) -> None:
        """Run the Python function that was added for the program's address, if any.

        Raises `GpuHang` for wrong lanes.
        """
        program, wave32 = self._programs.get(dispatch.address, (None, None))
        if wave32 is not None and wave32 != dispatch.wave32:
            raise GpuHang(
                f"the program is compiled for wave{32 if wave32 else 64}, and bit 15 of the initiator (CS_W32_EN) is "
                f"{int(dispatch.wave32)}"
            )
        if program is not None:
            program(dispatch, memory)
