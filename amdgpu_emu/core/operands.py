"""Makes, from decoded operands, functions that read and write the registers of a group.

Types are letters: u, i: 32-bit integers; f: binary32; U, J: 64-bit integers; d: binary64; H, I: 16-bit integers;
h: binary16; b: bfloat16, read as binary32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from amdgpu_emu.apertures import BYTES, PRIVATE_BASE, SHARED_BASE
from amdgpu_emu.core.errors import Unsupported
from amdgpu_emu.core.state import EXEC, M0, NULL, SCC, TTMP, VCC, Array, Group
from amdgpu_emu.isa.instruction import Instruction, Operand, OperandKind

Reader = Callable[[Group], Any]
Writer = Callable[[Group, Any], None]
DTYPE: Final[dict[str, Any]] = {
    "u": np.uint32, "i": np.int32, "f": np.float32, "U": np.uint64, "J": np.int64, "d": np.float64, "H": np.uint16,
    "I": np.int16, "h": np.float16, "b": np.uint16,
}  # fmt: skip
_UNSIGNED: Final[dict[str, Any]] = {
    "u": np.uint32, "i": np.uint32, "f": np.uint32, "U": np.uint64, "J": np.uint64, "d": np.uint64, "H": np.uint16,
    "I": np.uint16, "h": np.uint16, "b": np.uint16,
}  # fmt: skip
FLOATS: Final = "fdhb"
WIDE: Final = "UJd"
SHORT: Final = "HIhb"
_FIXED: Final = {OperandKind.M0: M0, OperandKind.NULL: NULL, OperandKind.SCC: SCC}
_BASES: Final = {OperandKind.SGPR: 0, OperandKind.TTMP: TTMP, OperandKind.VCC: VCC, OperandKind.EXEC: EXEC}
_CONSTANTS: Final = (OperandKind.LITERAL, OperandKind.INTEGER, OperandKind.FLOAT)
APERTURES: Final = (SHARED_BASE, SHARED_BASE + BYTES - 1, PRIVATE_BASE, PRIVATE_BASE + BYTES - 1)
_S32 = np.uint64(32)


def scalar_index(op: Operand) -> int | None:
    """Hardware number of a scalar register, or None."""
    if op.kind in _BASES:
        return _BASES[op.kind] + op.index
    return _FIXED.get(op.kind)


def is_constant(op: Operand) -> bool:
    """Whether an operand is an inline constant, a literal, or null as a source."""
    return op.kind in _CONSTANTS or op.kind is OperandKind.NULL


def from_bits(x: Any, t: str) -> Any:
    """Reinterpret unsigned bits as numbers of a type."""
    if t == "b":
        return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return x.view(DTYPE[t])


def _modified(op: Operand, t: str, read: Reader) -> Reader:
    if t not in FLOATS or not (op.neg or op.abs):
        return read
    if op.abs:
        return (lambda g: -np.abs(read(g))) if op.neg else (lambda g: np.abs(read(g)))
    return lambda g: -read(g)


def constant(op: Operand, t: str) -> Any:
    """The value of a constant operand as a NumPy scalar of a type."""
    word = _UNSIGNED[t]
    value = 0 if op.kind is OperandKind.NULL else op.value
    return from_bits(word(value & (1 << 8 * word().itemsize) - 1), t)


def reader(op: Operand, t: str, *, scalar: bool = False) -> Reader:
    """A function that reads the numbers of an operand: [n, lanes], [n, 1] or a scalar; in scalar instructions [n] or a
    scalar.
    """
    return _modified(op, t, _plain(op, t, scalar))


def _plain(op: Operand, t: str, scalar: bool) -> Reader:
    if is_constant(op):
        value = constant(op, t)
        return lambda g: value
    if op.kind is OperandKind.VGPR:
        return vector_reader(op.index, t, op.op_sel & 1)
    if op.kind is OperandKind.SCC:
        return _shaped(lambda g: g.scc.astype(np.uint32), t, scalar, 0)
    if op.kind is OperandKind.EXECZ:
        return _shaped(lambda g: (~g.active().any(axis=1)).astype(np.uint32), t, scalar, 0)
    if op.kind is OperandKind.VCCZ:
        return _shaped(lambda g: (~g.bits(VCC).any(axis=1)).astype(np.uint32), t, scalar, 0)
    if op.kind is OperandKind.APERTURE and t in WIDE:
        window = np.uint64(APERTURES[op.index - 235]).view(DTYPE[t])
        return lambda g: window
    index = scalar_index(op)
    if index is None:
        raise Unsupported(f"an operand of kind {op.kind.name}")
    if t in WIDE:
        kind = DTYPE[t]
        if scalar:
            return lambda g: (g.s[index].astype(np.uint64) | g.s[index + 1].astype(np.uint64) << _S32).view(kind)
        return lambda g: (g.s[index].astype(np.uint64) | g.s[index + 1].astype(np.uint64) << _S32).view(kind)[:, None]
    return _shaped(lambda g: g.s[index], t, scalar, op.op_sel & 1)


def _shaped(read: Reader, t: str, scalar: bool, half: int) -> Reader:
    shift = np.uint32(16 * half)
    if t in WIDE:
        word = DTYPE[t]
        if scalar:
            return lambda g: read(g).astype(np.uint64).view(word)
        return lambda g: read(g).astype(np.uint64).view(word)[:, None]
    if t in SHORT:

        def short(g: Group) -> Any:
            found = from_bits((read(g) >> shift).astype(np.uint16), t)
            return found if scalar else found[:, None]

        return short
    kind = DTYPE[t]
    return (lambda g: read(g).view(kind)) if scalar else (lambda g: read(g).view(kind)[:, None])


def vector_reader(register: int, t: str, half: int = 0) -> Reader:
    """A function that reads the numbers of a vector register."""
    if t == "u":
        return lambda g: g.v[register]
    if t == "f":
        return lambda g: g.f[register]
    if t == "i":
        return lambda g: g.i[register]
    if t in WIDE:
        kind = DTYPE[t]
        return lambda g: wide(g.v[register], g.v[register + 1]).view(kind)
    if t == "b":
        return lambda g: from_bits(g.halves[register, :, :, half], t)
    kind = DTYPE[t]
    return lambda g: g.halves[register, :, :, half].copy().view(kind)


def wide(low: Array, high: Array) -> Array:
    """Join low and high words to 64-bit numbers."""
    out = high.astype(np.uint64)
    out <<= _S32
    out |= low
    return out


def words(x: Any) -> tuple[Any, Any]:
    """Split 64-bit numbers into low and high words."""
    x = np.asarray(x).view(np.uint64)
    return x.astype(np.uint32), (x >> _S32).astype(np.uint32)


def bf16_bits(x: Any) -> Any:
    """Round float32 to bfloat16, to nearest even; NaN stays NaN."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)


def writer(op: Operand, t: str) -> Writer:
    """A function that stores numbers of a type in a vector register."""
    r, half = op.index, op.op_sel & 1
    if op.kind is not OperandKind.VGPR:
        return _scalar_writer(op, t)
    if t == "u":
        return lambda g, x: g.put(r, x)
    if t in WIDE:

        def both(g: Group, x: Any) -> None:
            low, high = words(x)
            g.put(r, low)
            g.put(r + 1, high)

        return both
    if t == "b":
        return lambda g, x: g.put_half(r, half, bf16_bits(x))
    if t in SHORT:
        return lambda g, x: g.put_half(r, half, x.view(np.uint16))
    return lambda g, x: g.put(r, x.view(np.uint32))


def _scalar_writer(op: Operand, t: str) -> Writer:
    """For v_s_* instructions, whose result is scalar; numbers come as [n, 1] or a scalar."""
    index = scalar_index(op)
    if index is None:
        raise Unsupported(f"a result in an operand of kind {op.kind.name}")
    return lambda g, x: g.put_s(index, np.asarray(x).view(_UNSIGNED[t]).astype(np.uint32).reshape(-1))


def mask_reader(op: Operand) -> Reader:
    """A function that reads a lane mask operand as bool[n, lanes], or as a scalar."""
    if is_constant(op):
        value = constant(op, "U")
        lanes = np.arange(64, dtype=np.uint64)
        table = (value >> lanes & np.uint64(1)).astype(np.bool_)
        return lambda g: table[: g.lanes][None, :]
    index = scalar_index(op)
    if index is None:
        raise Unsupported(f"a lane mask in an operand of kind {op.kind.name}")
    return lambda g: g.bits(index)


def mask_writer(op: Operand) -> Writer:
    """A function that stores bool[n, lanes] as a lane mask, 0 in inactive lanes."""
    index = scalar_index(op)
    if index is None:
        raise Unsupported(f"a lane mask in an operand of kind {op.kind.name}")

    def write(g: Group, mask: Any) -> None:
        g.put_bits(index, mask if g.mask is None else mask & g.mask)

    return write


def registers(ops: tuple[Operand, ...], lanes: int) -> tuple[int, int]:
    """Bit sets of the vector and of the scalar registers that operands name."""
    v = s = 0
    for op in ops:
        run = (1 << op.dwords) - 1
        if op.kind is OperandKind.VGPR:
            v |= run << op.index
        else:
            index = scalar_index(op)
            if index is not None and index != NULL:
                s |= run << index
    return v, s


_READ_TOO: Final = (
    "v_fmac_", "v_dual_fmac_", "v_dot2acc_", "v_dual_dot2acc_", "v_writelane", "s_cmov", "s_addk_", "s_mulk_",
    "s_fmac_", "s_bitset", "v_pk_fmac_", "v_swap_", "v_swmmac_",
)  # fmt: skip


def read_too(ins: Instruction) -> bool:
    """Whether an instruction reads its destination as well."""
    return ins.name.startswith(_READ_TOO)
