"""Compiles machine code to closures: each instruction is decoded and compiled once, when it is reached first.

What an instruction does depends on its bytes and on the waves' registers and lanes, and only for jumps on its address,
too. So programs share the closures of equal instructions, wherever they lie and whichever shader core runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from amdgpu_emu.core.control import compile_control
from amdgpu_emu.core.counters import class_of
from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.gfx11 import as_gfx12
from amdgpu_emu.core.lanes import LANES
from amdgpu_emu.core.lds import compile_lds
from amdgpu_emu.core.memory import compile_memory
from amdgpu_emu.core.operands import read_too, registers, scalar_index
from amdgpu_emu.core.relative import dynamic, is_relative
from amdgpu_emu.core.scalar import compile_scalar
from amdgpu_emu.core.state import M0, SCC, VCC, Group, Step
from amdgpu_emu.core.vector import compile_vector
from amdgpu_emu.core.waits import counters_of, issue
from amdgpu_emu.errors import GpuFault
from amdgpu_emu.isa.decoder import decode
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind, UnknownInstruction
from zinc_rt.utils.linux import PAGE

_SCALAR = (Encoding.SOP1, Encoding.SOP2, Encoding.SOPK, Encoding.SOPC)
_MEMORY = (Encoding.SMEM, Encoding.GLOBAL, Encoding.FLAT, Encoding.SCRATCH, Encoding.BUFFER)
_LONGEST = 20  # bytes: VOP3 of two words with a literal or DPP word; VBUFFER and VFLAT take twelve
_N_SGPRS = 106
_HEAD = 8  # bytes: two words tell how long an instruction is
_HERE = ("s_branch", "s_cbranch", "s_call", "s_getpc", "s_swappc")  # what depends on its address
_MOST = 60_000

_sizes: dict[tuple[bytes, int, int], int] = {}
"""Bytes of instructions, by their first two words, lanes and gfx."""
_compiled: dict[tuple[bytes, int, int], CompiledInstruction] = {}
"""Instructions by bytes, lanes and gfx."""


class CompiledInstruction:
    """One compiled instruction. use_*: bits of registers it reads; touch_*: those and the ones it writes; n_vgprs: how
    many vector registers a wave must have; kind: its class in `Counters`; vector: whether each lane counts.
    """

    __slots__ = (
        "_ins", "address", "code", "count", "counters", "fn", "kind", "n_vgprs", "name", "next", "touch_s", "touch_v",
        "use_s", "use_v", "vector",
    )  # fmt: skip

    def __init__(
        self,
        ins: Instruction,
        fn: Step,
        use: tuple[int, int],
        touch: tuple[int, int],
        counters: tuple[str, ...],
        n_vgprs: int,
    ) -> None:
        self._ins, self.fn, self.address, self.next, self.count = ins, fn, ins.address, ins.address + ins.size, 0
        (self.use_v, self.use_s), (self.touch_v, self.touch_s) = use, touch
        self.name, self.counters, self.n_vgprs = ins.name, counters, n_vgprs
        self.kind, self.vector = class_of(ins), not ins.name.startswith("s_")
        self.code = b"".join([word.to_bytes(4, "little") for word in ins.words])

    @property
    def ins(self) -> Instruction:
        """The decoded instruction."""
        if self._ins.address != self.address:
            self._ins = replace(self._ins, address=self.address)
        return self._ins

    def moved(self, address: int) -> CompiledInstruction:
        """The same instruction at another address, with a count of its own."""
        other = CompiledInstruction.__new__(CompiledInstruction)
        other._ins, other.fn, other.address, other.count = self._ins, self.fn, address, 0
        other.next = address + self._ins.size
        other.use_v, other.use_s, other.touch_v, other.touch_s = self.use_v, self.use_s, self.touch_v, self.touch_s
        other.name, other.counters, other.n_vgprs = self.name, self.counters, self.n_vgprs
        other.kind, other.vector, other.code = self.kind, self.vector, self.code
        return other


class Program:
    """The compiled code from an address on. fetch: reads bytes of memory, raises `GpuFault`; gfx: 12 or 11."""

    def __init__(self, fetch: Callable[[int, int], bytes], n_vgprs: int, lanes: int, gfx: int = 12) -> None:
        self.fetch, self.n_vgprs, self.lanes, self.gfx = fetch, n_vgprs, lanes, gfx
        self.ops: dict[int, CompiledInstruction] = {}
        self._pages: dict[int, bytes] = {}
        self._image: tuple[int, bytes, int] | None = None  # address and bytes of all of `ops`, and how many they are

    def at(self, address: int) -> CompiledInstruction:
        """The compiled instruction at an address. Raises `ShaderError`, `GpuFault`."""
        op = self.ops.get(address)
        if op is None:
            op = self.ops[address] = self._made(address)
        return op

    def take(self, old: Program) -> None:
        """Take over the compiled instructions of another program whose bytes in memory are still the same."""
        if not old.ops:
            return
        image = old._image
        if image is not None and image[2] == len(old.ops):
            low, high = image[0], image[0] + len(image[1])
        else:
            image = None
            low, high = min(old.ops), max(op.next for op in old.ops.values())
        try:
            code = self.fetch(low, high - low)
        except GpuFault:
            return
        if image is not None and code == image[1]:  # the whole code is unchanged, so each instruction is
            self.ops, self._image = old.ops, image
            return
        for address, op in old.ops.items():
            if code[address - low : op.next - low] == op.code:
                op.count = 0
                self.ops[address] = op
        if len(self.ops) == len(old.ops):
            self._image = low, code, len(self.ops)

    def _made(self, address: int) -> CompiledInstruction:
        code = self._bytes(address)
        head = code[:_HEAD], self.lanes, self.gfx
        size = _sizes.get(head)
        if size is not None:
            known = _compiled.get((code[:size], self.lanes, self.gfx))
            if known is not None and known.n_vgprs <= self.n_vgprs:
                return known.moved(address)
        ins = self._decode(address, code)
        op = self._compile(ins)
        if len(code) == _LONGEST and not ins.name.startswith(_HERE):
            if len(_compiled) >= _MOST:
                _forget_half(_compiled)
                _forget_half(_sizes)
            _sizes[head] = ins.size
            # A copy: the profiler and the sampler change `fn` of those that they run.
            _compiled[code[: ins.size], self.lanes, self.gfx] = op.moved(address)
        return op

    def _bytes(self, address: int) -> bytes:
        """The bytes of an instruction and some behind it, fewer at the end of a page."""
        if address % 4:
            raise ShaderError(f"jumps to {address:#x}, which is misaligned")
        page = address // PAGE
        if page not in self._pages:
            self.fetch(address, 4)  # raises `GpuFault`; a page is mapped, and executable, as a whole
            self._pages[page] = self.fetch(page * PAGE, PAGE)
        return self._pages[page][address % PAGE :][:_LONGEST]

    def _decode(self, address: int, code: bytes) -> Instruction:
        try:
            return decode(code, address, wave=self.lanes, gfx=self.gfx)
        except UnknownInstruction:
            if len(code) == _LONGEST:
                raise
        return decode(self.fetch(address, _LONGEST), address, wave=self.lanes, gfx=self.gfx)

    def _compile(self, ins: Instruction) -> CompiledInstruction:
        if self.gfx == 11:
            ins = as_gfx12(ins, self.lanes)
        use, touch, n_vgprs = self._registers(ins)
        fn = compile_control(ins, self.lanes)
        if fn is None:
            if ins.format in _SCALAR:
                fn = compile_scalar(ins, self.lanes)
            elif ins.format in _MEMORY:
                fn = compile_memory(ins, self.lanes)
            elif ins.format is Encoding.DS:
                fn = compile_lds(ins, self.lanes)
            else:
                fn = compile_vector(ins, self.lanes)
        if _discards_carry(ins):
            fn = _low_alone(ins, fn)
        counters = counters_of(ins, self.gfx)
        if counters:
            fn = _issuing(ins, fn, counters, self.lanes)
        return CompiledInstruction(ins, fn, use, touch, counters, n_vgprs)

    def _registers(self, ins: Instruction) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Bits of the registers that are read, bits of those and the ones that are written, and how many vector
        registers there must be.
        """
        read, write = _operands(ins)
        n_vgprs = self._check_limits((*read, *write))
        use_v, use_s = registers(read, self.lanes)
        def_v, def_s = registers(write, self.lanes)
        name = ins.name
        if is_relative(name):  # its moved registers are checked when M0 is known
            moved = dynamic(ins)
            use_v, use_s = registers(tuple(op for op in read if op not in moved), self.lanes)
            def_v, def_s = registers(tuple(op for op in write if op not in moved), self.lanes)
            use_s |= 1 << M0
        touch = use_v | def_v, use_s | def_s
        if _discards_carry(ins):
            use_v, use_s = registers((*ins.src[:2], replace(ins.src[2], dwords=1)), self.lanes)
        if _reads_scc(name):
            use_s |= 1 << SCC
        if name == "v_writelane_b32":  # its value may be one that was never written
            _, use_s = registers(ins.src[1:2], self.lanes)
        if name.startswith("s_cbranch_vcc"):
            use_s |= 1 << VCC
        if name.startswith("v_div_fmas") and len(ins.src) == 3:
            use_s |= 1 << VCC
        if ("addtid" in name and ins.format is Encoding.DS) or name.endswith(("_block", "ds_append", "ds_consume")):
            use_s |= 1 << M0
        if name.endswith("_store_block"):  # those of its registers that M0 names are checked as they are stored
            use_v, _ = registers((ins.src[0],), self.lanes)
        if "dpp_ctrl" in ins.modifiers or "dpp8" in ins.modifiers:  # its first source is checked lane by lane
            use_v, _ = registers(tuple(op for op in read if op is not ins.src[0]), self.lanes)
        if name in LANES or name in ("ds_bpermute_b32", "ds_bpermute_fi_b32", "ds_swizzle_b32"):
            checked = tuple(op for op in ins.src if op.kind is not OperandKind.VGPR)
            use_v, _ = registers((ins.src[0],) if name.startswith("ds_b") else checked, self.lanes)
            touch = touch[0] | registers(ins.src, self.lanes)[0], touch[1]
        return (use_v, use_s), touch, n_vgprs

    def _check_limits(self, ops: tuple[Operand, ...]) -> int:
        """How many vector registers the operands need. Raises `ShaderError` where there are fewer."""
        most = 0
        for op in ops:
            if op.kind is OperandKind.VGPR:
                most = max(most, op.index + op.dwords)
            elif op.kind is OperandKind.SGPR and op.index + op.dwords > _N_SGPRS:
                raise ShaderError(f"s{op.index + op.dwords - 1} is beyond the {_N_SGPRS} scalar registers")
        if most > self.n_vgprs:
            raise ShaderError(f"v{most - 1} is beyond the {self.n_vgprs} vector registers of RSRC1")
        return most


def _forget_half(kept: dict[Any, Any]) -> None:
    """Drop what came first."""
    for key in list(islice(kept, len(kept) // 2)):
        kept.pop(key, None)  # several GPUs may run at once


def _operands(ins: Instruction) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """The operands that are read and those that are written, of both halves of a pair."""
    read, write = ins.src, ins.dst
    if read_too(ins) and ins.format is not Encoding.SMEM and not ins.name.startswith("v_writelane"):
        read = (*read, *(op for op in ins.dst if "_d16" not in ins.name))
    if ins.second is not None:
        more_read, more_write = _operands(ins.second)
        read, write = (*read, *more_read), (*write, *more_write)
    if ins.name.startswith("v_swap"):
        write = (*write, *ins.src)
    return read, write


def _discards_carry(ins: Instruction) -> bool:
    """Whether an instruction is v_mad_co with an unused carry. Compilers use it for 32-bit products, too, whose addend
    has nothing in its upper half: that half matters to the upper half of the result alone.
    """
    return ins.name.startswith("v_mad_co_") and len(ins.dst) == 2 and ins.dst[1].kind is OperandKind.NULL


def _low_alone(ins: Instruction, fn: Step) -> Step:
    """Mark the upper half of a result as never written where that of the addend was never written."""
    addend, top = ins.src[2], ins.dst[0].index + 1
    vector = addend.kind is OperandKind.VGPR
    scalar = scalar_index(addend) if addend.dwords == 2 and not vector else None
    if not vector and scalar is None:
        return fn

    def run(g: Group) -> None:
        if vector and g.undef_v >> addend.index + 1 & 1:
            missing = ~g.v_defined[addend.index + 1]
        elif scalar is not None and g.undef_s >> scalar + 1 & 1:
            missing = np.broadcast_to(~g.s_defined[scalar + 1][:, None], g.v_defined[top].shape)
        else:
            fn(g)
            return
        if g.mask is not None:
            missing = missing & g.mask
        fn(g)
        if missing.any():
            g.v_defined[top] &= ~missing
            g.undef_v |= 1 << top

    return run


def _reads_scc(name: str) -> bool:
    return name.startswith(("s_cbranch_scc", "s_cselect", "s_cmov", "s_add_co_ci", "s_sub_co_ci"))


def _issuing(ins: Instruction, fn: Step, counters: tuple[str, ...], lanes: int) -> Step:
    scalar = ins.format is Encoding.SMEM
    v, s = registers(ins.dst, lanes)
    bits = s if scalar else v
    name = ins.name

    def run(g: Group) -> None:
        fn(g)
        for counter in counters:
            issue(g, counter, bits, scalar, g.pc, name)

    return run
