"""One memory instruction on the core and on the model: registers and memory of both must be the same afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdgpu_emu.core.counters import Counters
from amdgpu_emu.core.shared_state import SharedState
from amdgpu_emu.core.state import EXEC, M0, Group
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.isa.opcodes import names
from amdgpu_emu.shader import Dispatch, Scratch
from amdgpu_emu.shader_memory import ShaderMemory
from tests.amdgpu_emu.core.memory_model import DEFINITIONS, FORMATS
from tests.amdgpu_emu.core.memory_numbers import BF16
from tests.amdgpu_emu.core.memory_places import State
from tests.amdgpu_emu.core.one import INTEGERS32, SPECIAL16, SPECIAL32, execute, is_nan, sgpr, vgpr
from tests.amdgpu_emu.core.stage import Stage

NULL = Operand(OperandKind.NULL)
BYTES, LDS, PER_LANE, WAVES, VGPRS = 16384, 4096, 128, 2, 64
ADDRESS, DATA, RESULT = 2, 8, 32
"""First vector registers of what instructions read and write. Results of scalar loads begin at s40."""


class Scene:
    """Two waves, each the only one of its workgroup; registers and memory hold random bits, EXEC has holes."""

    def __init__(self, seed: int, lanes: int = 32, *, holes: bool = True, special: Sequence[int] = ()) -> None:
        self.rng, self.lanes = np.random.default_rng(seed), lanes
        self.stage = Stage()
        rng = self.rng
        self.base = self.stage.buffer(BYTES)
        self.scratch = self.stage.buffer(1 << 16, "scratch")
        self.memory = self._bytes(self.base)
        self.private = self._bytes(self.scratch)
        for where in (self.memory, self.private):
            where[:] = rng.integers(0, 256, len(where), np.uint8)
        g = self.g = Group(VGPRS, lanes, np.arange(WAVES), np.arange(WAVES))
        for k in range(2):
            g.put_s(EXEC + k, np.uint32(0xFFFFFFFF))
        for r in range(VGPRS):
            g.put(r, rng.integers(0, 1 << 32, (WAVES, lanes), np.uint32))
        for r in (*range(106), M0):
            g.put_s(r, rng.integers(0, 1 << 32, WAVES, np.uint32))
        if holes:
            g.put_bits(EXEC, rng.random((WAVES, lanes)) < 0.7)
        made = Dispatch(
            0, (WAVES, 1, 1), (lanes, 1, 1), (WAVES * lanes, 1, 1), (0, 0, 0), lanes == 32, (0,) * 16, 0, 0, 0, LDS,
            Scratch(self.scratch, PER_LANE * lanes, WAVES), 1, (12, 0, 1),
        )  # fmt: skip
        self.shader_memory = ShaderMemory(self.stage.caches, self.stage.vm)
        g.shared = SharedState(made, self.shader_memory, Counters(True), WAVES, 1)
        g.shared.lds.data[:] = rng.integers(0, 256, WAVES * LDS, np.uint8)
        g.shared.lds.written[:] = True
        if special:
            numbers = np.array(special, np.uint64)
            self.fill(self.memory.view(np.uint32), numbers)
            self.fill(g.shared.lds.data.view(np.uint32), numbers)

    def fill(self, words: Any, numbers: Any) -> None:
        """Numbers of 32 bits, in random order."""
        words[:] = self.rng.choice(numbers, len(words)).astype(np.uint32)

    def _bytes(self, va: int) -> Any:
        mapping = self.stage.vm.at(va)
        assert mapping is not None
        return mapping.bo.bytes

    # Registers.

    def lanes_of(self, register: int, numbers: Any, dwords: int = 1) -> None:
        """Numbers [waves, lanes] of one or two dwords."""
        wide = np.broadcast_to(np.asarray(numbers).astype(np.int64).view(np.uint64), (WAVES, self.lanes))
        for k in range(dwords):
            self.g.v[register + k] = (wide >> np.uint64(32 * k)).astype(np.uint32)

    def scalar(self, register: int, number: int, dwords: int = 1) -> None:
        for k in range(dwords):
            self.g.put_s(register + k, np.uint32(number >> 32 * k & 0xFFFFFFFF))

    # Both.

    def state(self) -> State:
        """As the model takes it."""
        g = self.g
        v = [[g.v[r, w].tolist() for r in range(VGPRS)] for w in range(WAVES)]
        s = [g.s[:106, w].tolist() for w in range(WAVES)]
        whole = bytearray(self.scratch + len(self.private) - self.base)
        whole[: len(self.memory)] = self.memory.tobytes()
        whole[self.scratch - self.base :] = self.private.tobytes()
        lds = [bytearray(g.shared.lds.data[w * LDS : (w + 1) * LDS].tobytes()) for w in range(WAVES)]
        return State(
            self.lanes, v, s, g.s[M0].tolist(), g.active().tolist(), list(range(WAVES)), self.base, whole, lds,
            (self.scratch, PER_LANE * self.lanes),
        )  # fmt: skip

    def check(self, ins: Instruction) -> None:
        """Run it on both and compare everything."""
        state = self.state()
        DEFINITIONS[ins.name](state, ins)
        execute(self.g, ins)
        self.shader_memory.retire()
        got = self.state()
        for (space, wave, lane, at), width in state.nans:
            place, n = (space, wave, lane, at), 2 if width == BF16 else width // 8
            number = got.load(place, n)
            assert is_nan(number << 16, 32) if width == BF16 else is_nan(number, width), ins.name
            state.store(place, n, number)
        for wave in range(WAVES):
            for r in range(VGPRS):
                assert got.v[wave][r] == state.v[wave][r], (ins.name, f"wave {wave}, v{r}", ins.modifiers)
        assert got.s == state.s, ins.name
        assert got.lds == state.lds, ins.name
        assert got.memory == state.memory, ins.name


def instruction(name: str, src: Sequence[Operand], returns: bool = True, **modifiers: int) -> Instruction:
    """With registers for its result as wide as the decoder says."""
    form = FORMATS[name.partition("_")[0]]
    opcode = names(form)[name]
    returns = returns or "atomic" not in name
    if form is Encoding.SMEM:
        dst = tuple(sgpr(40, t.dwords) for t in opcode.dst)
    else:
        dst = tuple(vgpr(RESULT, t.bits) for t in opcode.dst) if returns else ()
    return Instruction(0x1000, 12, form, name, dst, tuple(src), modifiers)


def data_of(name: str) -> list[Operand]:
    """What it reads beside its address: from DATA on, four registers apart."""
    form = FORMATS[name.partition("_")[0]]
    types = names(form)[name].src
    if form is Encoding.DS and "addtid" not in name:
        types = types[1:]
    return [vgpr(DATA + 4 * k, t.bits) for k, t in enumerate(types) if t.kind == "b"]


def special_words(name: str) -> list[int]:
    """Dwords that make up numbers at the edges of what an atomic instruction works on."""
    if name.endswith("pk_add_f16") or name == "ds_pk_add_rtn_f16":
        return [a | b << 16 for a, b in zip(SPECIAL16, SPECIAL16[3:] + SPECIAL16[:3], strict=True)]
    if "bf16" in name:
        short = [x >> 16 for x in SPECIAL32]
        return [a | b << 16 for a, b in zip(short, short[5:] + short[:5], strict=True)]
    if name.endswith("f64"):
        return [0, 1, 0xFFFFFFFF, 0x80000000, 0x7FF00000, 0xFFF00000, 0x7FF80000, 0x3FF00000, 0xBFF00000, 0xFFFFF]
    return list(SPECIAL32) if name.endswith("f32") else list(INTEGERS32)


def small_words(name: str, rng: np.random.Generator, n: int) -> list[int]:
    """Dwords of finite numbers, whose sums stay finite, too."""
    numbers = rng.normal(size=2 * n).astype(np.float32)
    if name.endswith("f32"):
        return [int(x) for x in numbers.view(np.uint32)]
    halves = numbers.view(np.uint32) >> 16 if "bf16" in name else numbers.astype(np.float16).view(np.uint16)
    return [int(a) | int(b) << 16 for a, b in zip(halves[::2], halves[1::2], strict=True)]
