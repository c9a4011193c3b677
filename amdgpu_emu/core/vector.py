"""Instructions of the vector unit, compiled: VOP1, VOP2, VOP3, VOPC and VOPD.

An instruction is two functions: one reads and computes, one stores; of a pair both read before either stores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from amdgpu_emu.core import divide
from amdgpu_emu.core.compare import CONDITIONS, TYPES, in_class
from amdgpu_emu.core.convert import CONVERSIONS
from amdgpu_emu.core.errors import Unsupported
from amdgpu_emu.core.floats import FLOATS, KINDS, FloatInstruction, flush, limited
from amdgpu_emu.core.integers import INTEGERS, Plain
from amdgpu_emu.core.lanes import LANES, with_dpp
from amdgpu_emu.core.matrix import compile_wmma
from amdgpu_emu.core.narrow8 import NARROW_NAMES, compile_narrow
from amdgpu_emu.core.operands import (
    DTYPE,
    Reader,
    from_bits,
    mask_reader,
    mask_writer,
    reader,
    writer,
)
from amdgpu_emu.core.packed import PACKED_NAMES, compile_packed
from amdgpu_emu.core.relative import VECTOR as RELATIVE
from amdgpu_emu.core.state import EXEC, NORMAL_MODE, Group, Step
from amdgpu_emu.core.sums import SUMS
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind

Halves = tuple[Reader, Callable[[Group, Any], None]]
_DPP = -1
"""Register number that stands for a source in `Group.dpp`."""
_FLOAT_TYPES = "fhd"


def compile_vector(ins: Instruction, lanes: int) -> Step:
    """Compile an instruction of the vector unit. Raises `Unsupported`."""
    if ins.name in RELATIVE:
        return RELATIVE[ins.name](ins, lanes)
    if "dpp_ctrl" in ins.modifiers or "dpp8" in ins.modifiers:
        through = replace(ins, src=(replace(ins.src[0], index=_DPP), *ins.src[1:]))
        return with_dpp(ins, lanes, _plain(through, lanes))
    return _plain(ins, lanes)


def _plain(ins: Instruction, lanes: int) -> Step:
    if ins.name in LANES:
        return LANES[ins.name](ins, lanes)
    if ins.name.startswith(("v_wmma", "v_swmmac")):
        return compile_wmma(ins, lanes)
    if ins.format is Encoding.VOPD:
        return _pair(ins)
    if ins.name in ("v_nop", "v_pipeflush"):
        return lambda g: None
    if ins.name in ("v_swap_b32", "v_swap_b16"):
        return _swap(ins)
    compute, store = halves(ins)

    def run(g: Group) -> None:
        store(g, compute(g))

    return run


def _swap(ins: Instruction) -> Step:
    t = "u" if ins.name.endswith("32") else "H"
    a, b = ins.dst[0], ins.src[0]
    read_a, read_b, write_a, write_b = reader(a, t), reader(b, t), writer(a, t), writer(b, t)

    def run(g: Group) -> None:
        x, y = read_a(g).copy(), read_b(g).copy()
        write_a(g, y)
        write_b(g, x)

    return run


def _pair(ins: Instruction) -> Step:
    other = ins.second
    if other is None:
        raise Unsupported("a VOPD without a second half")
    first, second = (
        halves(replace(half, name=half.name.replace("v_dual_", "v_"), format=Encoding.VOP2)) for half in (ins, other)
    )

    def run(g: Group) -> None:
        x, y = first[0](g), np.array(second[0](g))
        first[1](g, x)
        second[1](g, y)

    return run


def source(op: Operand, t: str) -> Reader:
    """A function that reads a source; a source that DPP moved has the register number -1."""
    if op.kind is OperandKind.VGPR and op.index == _DPP:
        return _moved(op, t)
    return reader(op, t)


def _moved(op: Operand, t: str) -> Reader:
    def bits(g: Group) -> Any:
        assert g.dpp is not None
        return g.dpp

    half = np.uint32(16 * (op.op_sel & 1))
    if t in "HIhb":
        plain: Reader = lambda g: from_bits((bits(g) >> half).astype(np.uint16), t)  # noqa: E731
    elif t in "UJd":
        raise Unsupported("DPP of a 64-bit source")
    else:
        plain = lambda g: bits(g).view(DTYPE[t])  # noqa: E731
    if t not in "fhb":
        return plain
    if op.abs:
        return (lambda g: -np.abs(plain(g))) if op.neg else (lambda g: np.abs(plain(g)))
    return (lambda g: -plain(g)) if op.neg else plain


def halves(ins: Instruction) -> Halves:
    """Compile an instruction with a result: one function computes, one stores. Raises `Unsupported`."""
    name = ins.name
    if ins.format is Encoding.VOP3P or name in PACKED_NAMES:
        packed: Halves = compile_packed(ins, source)
        return packed
    if name in INTEGERS:
        return _integer(ins, INTEGERS[name])
    if name in FLOATS or name in CONVERSIONS:
        return _float(ins, FLOATS.get(name) or CONVERSIONS[name])
    if name.startswith("v_cmp"):
        return _compare(ins)
    if name in NARROW_NAMES:
        return compile_narrow(ins, source)
    if name in SUMS:
        return SUMS[name](ins, source)
    special = _SPECIAL.get(name)
    if special is None:
        raise Unsupported(f"{name} is not executed by this shader core")
    return special(ins)


def _integer(ins: Instruction, definition: Plain) -> Halves:
    reads = [source(op, t) for op, t in zip(ins.src, definition.sources, strict=True)]
    call = definition.call
    if ins.modifiers.get("clamp"):
        if definition.wide is None:
            raise Unsupported(f"clamp with {ins.name}")
        wide, kind = definition.wide, DTYPE[definition.result]
        info = np.iinfo(kind)
        call = lambda *xs: np.clip(wide(*xs), info.min, info.max).astype(kind)  # noqa: E731
    store = writer(ins.dst[0], definition.result)
    if len(reads) == 1:
        (a,) = reads
        return (lambda g: call(a(g))), store
    if len(reads) == 2:
        a, b = reads
        return (lambda g: call(a(g), b(g))), store
    a, b, c = reads
    return (lambda g: call(a(g), b(g), c(g))), store


def round_of(mode: int, t: str) -> int:
    """The rounding mode of a float type in MODE."""
    return mode & 3 if t == "f" else mode >> 2 & 3


def denorm_of(mode: int, t: str) -> int:
    """The denormal mode of a float type: bit 0: subnormal inputs count; bit 1: subnormal results are kept."""
    return mode >> 4 & 3 if t == "f" else mode >> 6 & 3


def _float(ins: Instruction, definition: FloatInstruction) -> Halves:
    sources = list(ins.src)
    if len(sources) == len(definition.sources) - 1 and "fmac" in ins.name:
        sources.append(replace(ins.dst[0], kind=OperandKind.VGPR))
    if ins.name == "v_cvt_pk_u8_f32" or len(sources) == len(definition.sources):
        reads = [source(op, t) for op, t in zip(sources, definition.sources, strict=True)]
    else:
        raise Unsupported(f"{ins.name} with {len(sources)} sources")
    if ins.name.startswith(("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_")):
        reads = [_selected(ins, reads[0])]
    compute = with_mode(definition, reads)
    return output_modified(ins, definition.result, compute), writer(ins.dst[0], definition.result)


def _selected(ins: Instruction, read: Reader) -> Reader:
    """The byte, or pair of bytes, that op_sel picks: bit 0 is the upper half, bit 1 the odd byte."""
    select = ins.modifiers.get("op_sel", 0)
    amount = np.uint32(16 * (select & 1) + (0 if "_pk_" in ins.name else 8 * (select >> 1 & 1)))
    return lambda g: np.asarray(read(g)) >> amount


def with_mode(definition: FloatInstruction, reads: list[Reader]) -> Reader:
    """Wrap a computation in MODE's rounding and denormal modes; to nearest with subnormals takes the fast way."""
    call = definition.call
    kind = KINDS.get(definition.result, np.float32)

    def slow(g: Group) -> Any:
        values = [read(g) for read in reads]
        for i, t in enumerate(definition.sources):
            if t in _FLOAT_TYPES and not denorm_of(g.mode, t) & 1:
                values[i] = flush(np.asarray(values[i]))
        mode = round_of(g.mode, definition.result)
        r = call(*values) if definition.modal is None or mode == 0 else definition.modal(*values, kind, mode)
        if definition.result in _FLOAT_TYPES and not denorm_of(g.mode, definition.result) & 2:
            r = flush(np.asarray(r))
        return r

    if len(reads) == 1:
        (a,) = reads
        return lambda g: call(a(g)) if g.mode == NORMAL_MODE else slow(g)
    if len(reads) == 2:
        a, b = reads
        return lambda g: call(a(g), b(g)) if g.mode == NORMAL_MODE else slow(g)
    a, b, c = reads
    return lambda g: call(a(g), b(g), c(g)) if g.mode == NORMAL_MODE else slow(g)


def output_modified(ins: Instruction, t: str, compute: Reader) -> Reader:
    """omod, then clamp to 0 … 1 with NaN as 0. omod counts only where subnormal results are flushed. Conversions to
    integers saturate anyway.
    """
    omod, clamp = ins.modifiers.get("omod", 0), ins.modifiers.get("clamp", 0)
    if (not omod and not clamp) or t in "iuHI":
        return compute
    if t not in KINDS:
        raise Unsupported(f"an output modifier with {ins.name}")
    kind = KINDS[t]
    factor = kind({0: 1, 1: 2, 2: 4, 3: 0.5}[omod])

    def run(g: Group) -> Any:
        r = np.asarray(compute(g))
        if omod and not denorm_of(g.mode, t) & 2:
            r = flush(r * factor)
        return limited(r) if clamp else r

    return run


def _compare(ins: Instruction) -> Halves:
    _, operation, condition, kind = ins.name.split("_")
    t = TYPES[kind]
    float_sources = t in _FLOAT_TYPES
    if condition == "class":
        a, m = source(ins.src[0], t), source(ins.src[1], "H" if t == "h" else "u")
        test: Reader = lambda g: in_class(t, a(g), m(g))  # noqa: E731
    else:
        call = CONDITIONS[condition]
        x, y = (source(op, t) for op in ins.src)

        def test(g: Group) -> Any:
            if float_sources and not denorm_of(g.mode, t) & 1:
                return call(flush(np.asarray(x(g))), flush(np.asarray(y(g))))
            return call(x(g), y(g))

    if operation == "cmpx":

        def narrow(g: Group, mask: Any) -> None:
            g.put_bits(EXEC, mask & g.active())

        return test, narrow
    return test, mask_writer(ins.dst[0])


def _cndmask(ins: Instruction) -> Halves:
    t = "H" if ins.name.endswith("16") else "u"
    signs = "h" if t == "H" else "f"
    modified = any(op.neg or op.abs for op in ins.src[:2])
    a, b = (source(op, signs if modified else t) for op in ins.src[:2])
    mask = mask_reader(ins.src[2])
    return (lambda g: np.where(mask(g), b(g), a(g))), writer(ins.dst[0], signs if modified else t)


def _div_scale(ins: Instruction) -> Halves:
    t = TYPES[ins.name.rsplit("_", 1)[1]]
    a, d, n = (source(op, t) for op in ins.src)
    put, put_mask = writer(ins.dst[0], t), mask_writer(ins.dst[1])

    def store(g: Group, both: tuple[Any, Any]) -> None:
        put(g, both[0])
        put_mask(g, both[1])

    return (lambda g: divide.scale(t, a(g), d(g), n(g))), store


def _div_fmas(ins: Instruction) -> Halves:
    t = TYPES[ins.name.rsplit("_", 1)[1]]
    a, b, c = (source(op, t) for op in ins.src[:3])
    vcc = mask_reader(ins.src[3] if len(ins.src) > 3 else Operand(OperandKind.VCC))

    def compute(g: Group) -> Any:
        return divide.fmas(t, a(g), b(g), c(g), vcc(g), round_of(g.mode, t))

    return output_modified(ins, t, compute), writer(ins.dst[0], t)


def _div_fixup(ins: Instruction) -> Halves:
    t = TYPES[ins.name.rsplit("_", 1)[1]]
    q, d, n = (source(op, t) for op in ins.src)

    def compute(g: Group) -> Any:
        if t == "h":
            return divide.fixup16(q(g), d(g), n(g))
        return divide.fixup(t, q(g), d(g), n(g), round_of(g.mode, t))

    return output_modified(ins, t, compute), writer(ins.dst[0], t)


def _mbcnt(ins: Instruction) -> Halves:
    high = "_hi_" in ins.name
    a, b = (source(op, "u") for op in ins.src)
    lane = np.arange(64)
    below = lane - 32 if high else lane
    masks = np.array([(1 << min(max(k, 0), 32)) - 1 for k in below.tolist()], np.uint32)
    return (lambda g: np.bitwise_count(a(g) & masks[: g.lanes]).astype(np.uint32) + b(g)), writer(ins.dst[0], "u")


_SPECIAL: dict[str, Callable[[Instruction], Halves]] = {
    "v_cndmask_b32": _cndmask,
    "v_cndmask_b16": _cndmask,
    "v_mbcnt_lo_u32_b32": _mbcnt,
    "v_mbcnt_hi_u32_b32": _mbcnt,
    "v_div_scale_f32": _div_scale,
    "v_div_scale_f64": _div_scale,
    "v_div_fmas_f32": _div_fmas,
    "v_div_fmas_f64": _div_fmas,
    "v_div_fixup_f16": _div_fixup,
    "v_div_fixup_f32": _div_fixup,
    "v_div_fixup_f64": _div_fixup,
}
