"""The scalar unit: SOP1, SOP2, SOPK, SOPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from amdgpu_emu.core.compare import CONDITIONS
from amdgpu_emu.core.convert import CONVERSIONS, pair, rtz16
from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.floats import FLOATS, FloatInstruction
from amdgpu_emu.core.integers import cls, clz, ctz, reverse
from amdgpu_emu.core.operands import Reader, constant, is_constant, reader, scalar_index, words
from amdgpu_emu.core.relative import SCALAR as RELATIVE
from amdgpu_emu.core.state import EXEC, Group, Step
from amdgpu_emu.core.vector import with_mode
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind

U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64


class Scalar(NamedTuple):
    """One scalar instruction. scc: computes SCC from sources and result; None leaves SCC unchanged."""

    result: str
    sources: str
    call: Callable[..., Any]
    scc: Callable[..., Any] | None = None


def _nonzero(r: Any, *_: Any) -> Any:
    return r != 0


def _carry(r: Any, a: Any, b: Any) -> Any:
    return r < b


def _overflow_add(r: Any, a: Any, b: Any) -> Any:
    return ((a ^ r) & (b ^ r)) < 0


def _overflow_sub(r: Any, a: Any, b: Any) -> Any:
    return ((a ^ b) & (a ^ r)) < 0


def _bitops() -> dict[str, Scalar]:
    table = {}
    for t, bits in (("u", 32), ("U", 64)):
        for name, call in (
            ("and", np.bitwise_and),
            ("or", np.bitwise_or),
            ("xor", np.bitwise_xor),
            ("nand", lambda a, b: ~(a & b)),
            ("nor", lambda a, b: ~(a | b)),
            ("xnor", lambda a, b: ~(a ^ b)),
            ("and_not1", lambda a, b: a & ~b),
            ("or_not1", lambda a, b: a | ~b),
        ):
            table[f"s_{name}_b{bits}"] = Scalar(t, t * 2, call, _nonzero)
        m = U32(bits - 1)
        word: Any = U32 if bits == 32 else U64
        signed: Any = I32 if bits == 32 else I64
        s = "i" if bits == 32 else "J"
        table |= {
            f"s_lshl_b{bits}": Scalar(t, t + "u", lambda a, b, m=m, w=word: a << (b & m).astype(w), _nonzero),
            f"s_lshr_b{bits}": Scalar(t, t + "u", lambda a, b, m=m, w=word: a >> (b & m).astype(w), _nonzero),
            f"s_ashr_i{bits}": Scalar(s, s + "u", lambda a, b, m=m, w=signed: a >> (b & m).astype(w), _nonzero),
            f"s_not_b{bits}": Scalar(t, t, np.invert, _nonzero),
            f"s_mov_b{bits}": Scalar(t, t, lambda a: a),
            f"s_brev_b{bits}": Scalar(t, t, reverse),
            f"s_bcnt0_i32_b{bits}": Scalar("u", t, lambda a, n=bits: (n - np.bitwise_count(a)).astype(U32), _nonzero),
            f"s_bcnt1_i32_b{bits}": Scalar("u", t, lambda a: np.bitwise_count(a).astype(U32), _nonzero),
            f"s_ctz_i32_b{bits}": Scalar("i", t, ctz),
            f"s_clz_i32_u{bits}": Scalar("i", t, lambda a, n=bits: clz(a, n)),
            f"s_cls_i32{'' if bits == 32 else '_i64'}": Scalar("i", s, lambda a, n=bits: cls(a, n)),
            f"s_bfm_b{bits}": Scalar(
                t, "uu", lambda a, b, m=m, w=word: ((w(1) << (a & m).astype(w)) - w(1)) << (b & m).astype(w)
            ),
            f"s_wqm_b{bits}": Scalar(t, t, lambda a, n=bits: _wqm(a, n), _nonzero),
            f"s_quadmask_b{bits}": Scalar(t, t, lambda a, n=bits: _quadmask(a, n), _nonzero),
            f"s_bfe_u{bits}": Scalar(t, t + "u", lambda a, b, n=bits: _bfe(a, b, n, False), _nonzero),
            f"s_bfe_i{bits}": Scalar(t, t + "u", lambda a, b, n=bits: _bfe(a, b, n, True), _nonzero),
        }
    return table


def _wqm(a: Any, bits: int) -> Any:
    one = a.dtype.type
    quads = (a | a >> one(1) | a >> one(2) | a >> one(3)) & one(int("1" * (bits // 4), 16))
    return quads * one(15)


def _quadmask(a: Any, bits: int) -> Any:
    """A bit for every four that are not all 0."""
    one = a.dtype.type
    out = np.zeros_like(a)
    for k in range(bits // 4):
        out |= ((a >> one(4 * k)) & one(15) != 0).astype(a.dtype) << one(k)
    return out


def _twice(a: Any) -> Any:
    """Every bit two times."""
    out = np.zeros(a.shape, U64)
    for k in range(32):
        out |= ((a.astype(U64) >> U64(k)) & U64(1)) * U64(3) << U64(2 * k)
    return out


def _bfe(a: Any, b: Any, bits: int, signed: bool) -> Any:
    """Offset in the low bits, width in bits 16 to 22; wider than what is left ends at the top."""
    word = a.dtype.type
    control = b.astype(a.dtype)
    offset = control & word(bits - 1)
    width = np.minimum(control >> word(16) & word(0x7F), word(bits) - offset)
    # NumPy shifts by the size of a word, or by more, to 0.
    field = (a >> offset) & ((word(1) << width) - word(1))
    if not signed:
        return field
    sign = word(1) << (width - word(1))
    return (field ^ sign) - sign


def _mul_hi(t: Any, wide: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: (np.multiply(a, b, dtype=wide) >> wide(32)).astype(t)


def _lshl_add(n: int) -> Scalar:
    def wide(a: Any, b: Any) -> Any:
        return (np.asarray(a).astype(U64) << U64(n)) + b

    return Scalar("u", "uu", lambda a, b: wide(a, b).astype(U32), lambda r, a, b: wide(a, b) > U64(0xFFFFFFFF))


def _table() -> dict[str, Scalar]:
    table = _bitops()
    table |= {
        "s_add_co_u32": Scalar("u", "uu", np.add, _carry),
        "s_sub_co_u32": Scalar("u", "uu", np.subtract, lambda r, a, b: b > a),
        "s_add_co_i32": Scalar("i", "ii", np.add, _overflow_add),
        "s_sub_co_i32": Scalar("i", "ii", np.subtract, _overflow_sub),
        "s_add_nc_u64": Scalar("U", "UU", np.add),
        "s_sub_nc_u64": Scalar("U", "UU", np.subtract),
        "s_mul_u64": Scalar("U", "UU", np.multiply),
        "s_bitreplicate_b64_b32": Scalar("U", "u", _twice),
        "s_mul_i32": Scalar("u", "uu", np.multiply),
        "s_mul_hi_u32": Scalar("u", "uu", _mul_hi(U32, U64)),
        "s_mul_hi_i32": Scalar("i", "ii", _mul_hi(I32, I64)),
        "s_min_i32": Scalar("i", "ii", np.minimum, lambda r, a, b: a < b),
        "s_min_u32": Scalar("u", "uu", np.minimum, lambda r, a, b: a < b),
        "s_max_i32": Scalar("i", "ii", np.maximum, lambda r, a, b: a >= b),
        "s_max_u32": Scalar("u", "uu", np.maximum, lambda r, a, b: a >= b),
        "s_absdiff_i32": Scalar("u", "ii", lambda a, b: np.abs(a - b).view(U32), _nonzero),
        "s_abs_i32": Scalar("i", "i", np.abs, _nonzero),
        "s_sext_i32_i8": Scalar("i", "u", lambda a: a.astype(np.uint8).view(np.int8).astype(I32)),
        "s_sext_i32_i16": Scalar("i", "u", lambda a: a.astype(np.uint16).view(np.int16).astype(I32)),
        "s_pack_ll_b32_b16": Scalar("u", "uu", lambda a, b: (a & U32(0xFFFF)) | (b << U32(16))),
        "s_pack_lh_b32_b16": Scalar("u", "uu", lambda a, b: (a & U32(0xFFFF)) | (b & U32(0xFFFF0000))),
        "s_pack_hh_b32_b16": Scalar("u", "uu", lambda a, b: (a >> U32(16)) | (b & U32(0xFFFF0000))),
        "s_pack_hl_b32_b16": Scalar("u", "uu", lambda a, b: (a >> U32(16)) | (b << U32(16))),
    }
    for n in (1, 2, 3, 4):
        table[f"s_lshl{n}_add_u32"] = _lshl_add(n)
    return table


SCALARS: Final = _table()


def _float_table() -> dict[str, FloatInstruction]:
    table: dict[str, FloatInstruction] = {}
    for op in ("add", "sub", "mul", "min_num", "max_num", "minimum", "maximum", "ceil", "floor", "trunc", "rndne"):
        for kind in ("f32", "f16"):
            table[f"s_{op}_{kind}"] = FLOATS[f"v_{op}_{kind}"]
    for kind in ("f32", "f16"):
        table[f"s_fmac_{kind}"] = FLOATS[f"v_fma_{kind}"]
    table["s_fmaak_f32"], table["s_fmamk_f32"] = FLOATS["v_fma_f32"], FLOATS["v_fma_f32"]
    for name in ("cvt_f32_i32", "cvt_f32_u32", "cvt_i32_f32", "cvt_u32_f32", "cvt_f16_f32", "cvt_f32_f16"):
        table[f"s_{name}"] = CONVERSIONS[f"v_{name}"]
    table["s_cvt_hi_f32_f16"] = FloatInstruction(
        "f", "u", lambda x: (x >> U32(16)).astype(np.uint16).view(np.float16).astype(np.float32)
    )
    table["s_cvt_pk_rtz_f16_f32"] = FloatInstruction("u", "ff", lambda a, b: pair(rtz16(a), rtz16(b)))
    return table


FLOAT_SCALARS: Final = _float_table()
_SAVEEXEC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "and": lambda s, e: s & e, "or": lambda s, e: s | e, "xor": lambda s, e: s ^ e, "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e), "xnor": lambda s, e: ~(s ^ e), "and_not0": lambda s, e: ~s & e,
    "or_not0": lambda s, e: ~s | e, "and_not1": lambda s, e: s & ~e, "or_not1": lambda s, e: s | ~e,
}  # fmt: skip


def put(g: Group, index: int, t: str, value: Any) -> None:
    """A function that stores numbers, [n] or a scalar, into scalar registers."""
    if t in "uif":
        g.put_s(index, value.view(U32))
    elif t in "HIh":
        g.put_s(index, value.view(np.uint16).astype(U32))
    else:
        low, high = words(value)
        g.put_s(index, low)
        g.put_s(index + 1, high)


def compile_scalar(ins: Instruction, lanes: int) -> Step:
    """Compile an instruction of the scalar unit, except jumps. Raises `Unsupported`."""
    name = ins.name
    if name.startswith("s_cmp_"):
        return _compare(ins)
    if name in SCALARS:
        return _simple(ins, SCALARS[name])
    if name in FLOAT_SCALARS:
        return _float(ins, FLOAT_SCALARS[name])
    for suffix in ("_saveexec_b32", "_saveexec_b64", "_wrexec_b32", "_wrexec_b64"):
        if name.endswith(suffix):
            return _saveexec(ins, _SAVEEXEC[name[2 : -len(suffix)]], "wrexec" in suffix)
    special = _SPECIAL.get(name)
    if special is None:
        raise Unsupported(f"{name} is not executed by this shader core")
    return special(ins)


def _index(op: Operand) -> int:
    index = scalar_index(op)
    if index is None:
        raise Unsupported(f"a scalar result in an operand of kind {op.kind.name}")
    return index


def _simple(ins: Instruction, definition: Scalar) -> Step:
    reads = [_array(op, t) for op, t in zip(ins.src, definition.sources, strict=True)]
    call, scc, t, d = definition.call, definition.scc, definition.result, _index(ins.dst[0])

    def run(g: Group) -> None:
        values = [read(g) for read in reads]
        r = call(*values)
        condition = None if scc is None else scc(r, *values)
        put(g, d, t, r)
        if condition is not None:
            g.put_scc(condition)

    return run


def _array(op: Operand, t: str) -> Reader:
    """A reader that gives an array of a constant, too."""
    if is_constant(op):
        value = np.asarray(constant(op, t))
        return lambda g: value
    read = reader(op, t, scalar=True)
    return read if scalar_index(op) is not None else lambda g: np.asarray(read(g))


def _float(ins: Instruction, definition: FloatInstruction) -> Step:
    ops = list(ins.src)
    if "fmac" in ins.name:
        ops.append(ins.dst[0])
    compute = with_mode(
        definition, [_arrays(reader(op, t, scalar=True)) for op, t in zip(ops, definition.sources, strict=True)]
    )
    d, t = _index(ins.dst[0]), definition.result
    return lambda g: put(g, d, t, compute(g))


def _arrays(read: Callable[[Group], Any]) -> Callable[[Group], Any]:
    return lambda g: np.atleast_1d(read(g))


def _compare(ins: Instruction) -> Step:
    _, _, condition, kind = ins.name.split("_")
    t = {"i32": "i", "u32": "u", "u64": "U", "f32": "f", "f16": "h"}[kind]
    call = CONDITIONS["ne" if condition == "lg" and t in "iuU" else condition]
    a, b = (reader(op, t, scalar=True) for op in ins.src)
    return lambda g: g.put_scc(call(a(g), b(g)))


def _saveexec(ins: Instruction, call: Callable[[Any, Any], Any], write: bool) -> Step:
    """D = EXEC, EXEC = S op EXEC; of s_*_wrexec D gets the new EXEC."""
    wide = ins.name.endswith("b64")
    t = "U" if wide else "u"
    read, d = reader(ins.src[0], t, scalar=True), _index(ins.dst[0])
    old_of = reader(Operand(OperandKind.EXEC), t, scalar=True)

    def run(g: Group) -> None:
        s, old = np.array(read(g)), np.array(old_of(g))
        new = call(s, old)
        put(g, EXEC, t, new)
        put(g, d, t, new if write else old)
        g.put_scc(new != 0)

    return run


def _cselect(ins: Instruction) -> Step:
    t = "U" if ins.name.endswith("64") else "u"
    a, b = (reader(op, t, scalar=True) for op in ins.src)
    d = _index(ins.dst[0])
    return lambda g: put(g, d, t, np.where(g.scc, a(g), b(g)))


def _cmov(ins: Instruction) -> Step:
    t = "U" if ins.name.endswith("64") else "u"
    a, old, d = reader(ins.src[0], t, scalar=True), reader(ins.dst[0], t, scalar=True), _index(ins.dst[0])
    return lambda g: put(g, d, t, np.where(g.scc, a(g), old(g)))


def _with_carry(ins: Instruction) -> Step:
    minus = "sub" in ins.name
    a, b, d = reader(ins.src[0], "u", scalar=True), reader(ins.src[1], "u", scalar=True), _index(ins.dst[0])

    def run(g: Group) -> None:
        x, y = np.asarray(a(g)).astype(I64), np.asarray(b(g)).astype(I64)
        r = x - y - g.scc if minus else x + y + g.scc
        put(g, d, "u", (r & 0xFFFFFFFF).astype(U32))
        g.put_scc((r < 0) | (r > 0xFFFFFFFF))

    return run


def _bitset(ins: Instruction) -> Step:
    wide, on = ins.name.endswith("64"), "bitset1" in ins.name
    t: str = "U" if wide else "u"
    word: Any = U64 if wide else U32
    a, old, d = reader(ins.src[0], "u", scalar=True), reader(ins.dst[0], t, scalar=True), _index(ins.dst[0])

    def run(g: Group) -> None:
        bit = word(1) << (np.asarray(a(g)) & U32(63 if wide else 31)).astype(word)
        put(g, d, t, (old(g) | bit) if on else (old(g) & ~bit))

    return run


def _bitcmp(ins: Instruction) -> Step:
    wide, one = ins.name.endswith("64"), "bitcmp1" in ins.name
    a, b = reader(ins.src[0], "U" if wide else "u", scalar=True), reader(ins.src[1], "u", scalar=True)
    word: Any = U64 if wide else U32

    def run(g: Group) -> None:
        bit = (np.asarray(a(g)) >> (np.asarray(b(g)) & U32(63 if wide else 31)).astype(word)) & word(1)
        g.put_scc(bit == (1 if one else 0))

    return run


def _constant_op(ins: Instruction) -> Step:
    """s_movk_i32, s_cmovk_i32, s_addk_co_i32, s_mulk_i32."""
    k = I32(ins.modifiers.get("simm16", 0)) if ins.format is Encoding.SOPK and not ins.src else None
    read = (lambda g: k) if k is not None else reader(ins.src[0], "i", scalar=True)
    old, d, name = reader(ins.dst[0], "i", scalar=True), _index(ins.dst[0]), ins.name

    def run(g: Group) -> None:
        x = np.asarray(read(g))
        if name == "s_movk_i32":
            put(g, d, "i", x)
        elif name == "s_cmovk_i32":
            put(g, d, "i", np.where(g.scc, x, old(g)))
        elif name == "s_mulk_i32":
            put(g, d, "i", old(g) * x)
        else:
            a = old(g).copy()
            r = a + x
            put(g, d, "i", r)
            g.put_scc(_overflow_add(r, a, x))

    return run


_MODE: Final = 1
_FP16_OVFL: Final = 1 << 23


def _field(ins: Instruction) -> tuple[int, int, int]:
    op = next((op for op in (*ins.src, *ins.dst) if op.kind is OperandKind.HWREG), None)
    value = op.value if op is not None else ins.modifiers.get("simm16", 0) & 0xFFFF
    return value & 0x3F, value >> 6 & 0x1F, (value >> 11 & 0x1F) + 1


def _setreg(ins: Instruction) -> Step:
    """s_setreg_b32, s_setreg_imm32_b32 of MODE."""
    register, offset, size = _field(ins)
    if register != _MODE:
        raise Unsupported(f"{ins.name} of hardware register {register}; only MODE (1) can be written")
    value = next(op for op in ins.src if op.kind is not OperandKind.HWREG)
    read = reader(value, "u", scalar=True)
    field = (1 << size) - 1

    def run(g: Group) -> None:
        values = np.unique(np.broadcast_to(read(g), (g.n,)))
        if len(values) > 1:
            raise ShaderError("waves set MODE to different values, which this core does not follow")
        mode = (g.mode & ~(field << offset)) | ((int(values[0]) & field) << offset)
        if mode & _FP16_OVFL:
            raise ShaderError("sets FP16_OVFL in MODE, which this core does not follow")
        g.mode = mode & 0xFF

    return run


def _getreg(ins: Instruction) -> Step:
    register, offset, size = _field(ins)
    if register != _MODE:
        raise Unsupported(f"s_getreg_b32 of hardware register {register}; only MODE (1) can be read")
    d = _index(ins.dst[0])
    return lambda g: g.put_s(d, U32(g.mode >> offset & (1 << size) - 1))


_SPECIAL: Final[dict[str, Callable[[Instruction], Step]]] = {
    "s_cselect_b32": _cselect, "s_cselect_b64": _cselect, "s_cmov_b32": _cmov, "s_cmov_b64": _cmov,
    "s_add_co_ci_u32": _with_carry, "s_sub_co_ci_u32": _with_carry, "s_bitset0_b32": _bitset,
    "s_bitset1_b32": _bitset, "s_bitset0_b64": _bitset, "s_bitset1_b64": _bitset, "s_bitcmp0_b32": _bitcmp,
    "s_bitcmp1_b32": _bitcmp, "s_bitcmp0_b64": _bitcmp, "s_bitcmp1_b64": _bitcmp, "s_movk_i32": _constant_op,
    "s_cmovk_i32": _constant_op, "s_addk_co_i32": _constant_op, "s_mulk_i32": _constant_op, "s_setreg_b32": _setreg,
    "s_setreg_imm32_b32": _setreg, "s_getreg_b32": _getreg, **RELATIVE,
}  # fmt: skip
