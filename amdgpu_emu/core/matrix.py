"""WMMA: D = A B + C on tiles of a wave; SWMMAC: the same with C in D and half of A left out.

Layout of gfx12 (RDNA 4 ISA, "Wave matrix multiply"; the same as LLVM's intrinsics take): A is 16 rows of K numbers, B K
rows of 16 columns, C and D 16 x 16. Lane l holds row (A) or column (B) l % 16, and of its K numbers each half of the
lanes its own: with 32 lanes, lane half h holds k from h K/2 on. C and D: register r of lane l is row r + 8 (l / 16),
column l % 16. With 64 lanes the four quarters hold K/4 numbers and four rows each.
Floats are summed exactly in float64 from the products of binary16 or bfloat16, four at a time rounded to binary32, and
to 16 bits where D has such. Integers that saturate do so twice: after the products of the first half of the lanes, and
after those of the second.

SWMMAC, with 32 lanes: of every four numbers of a row of A two are there, and two bits of a register tell the place of
each. A lane's k-th number meets the 4 (k / 2) + place-th of B's lane in the same half. neg_lo and neg_hi count for the
first and the second of the two, of A and B alike.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from amdgpu_emu.core.convert import BF8, FP8
from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.operands import bf16_bits, constant, is_constant
from amdgpu_emu.core.state import Group, Step
from amdgpu_emu.isa.instruction import Instruction, Operand


class _Shape(NamedTuple):
    bits: int  # of an element of A and B
    k: int
    a: str
    b: str
    d: str  # f32, f16, bf16 or i32


def _shape(name: str) -> _Shape:
    found = re.fullmatch(r"v_(?:wmma|swmmac)_(f32|f16|bf16|i32)_16x16x(16|32|64)_(\w+)", name)
    if found is None:
        raise Unsupported(f"{name} is not executed by this shader core")
    d, k, kinds = found[1], int(found[2]), found[3].split("_")
    a, b = kinds[0], kinds[-1]
    bits = {"f16": 16, "bf16": 16, "iu8": 8, "iu4": 4, "fp8": 8, "bf8": 8}.get(a)
    if bits is None:
        raise Unsupported(f"{name} is not executed by this shader core")
    return _Shape(bits, k, a, b, d)


def _elements(g: Group, op: Operand, kind: str, bits: int, k: int, *, signs: bool = True) -> Any:
    """The elements of A or B, [n, 16, K]: rows of A or columns of B."""
    parts = g.lanes // 16
    each = k // parts  # elements of a lane
    count = op.dwords
    raw = np.ascontiguousarray(np.moveaxis(g.v[op.index : op.index + count], 0, -1))  # [n, lanes, dwords]
    x: Any
    if bits == 16:
        halves = raw.view(np.uint16)
        if kind == "f16":
            x = halves.view(np.float16).astype(np.float64)
        else:
            x = (halves.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    elif kind in ("fp8", "bf8"):
        x = (FP8 if kind == "fp8" else BF8)[raw.view(np.uint8)].astype(np.float64)
    elif bits == 8:
        x = (raw.view(np.int8) if op.neg else raw.view(np.uint8)).astype(np.int32)
    else:
        low, high = raw.view(np.uint8) & np.uint8(15), raw.view(np.uint8) >> np.uint8(4)
        x = np.stack([low, high], axis=-1).reshape(g.n, g.lanes, -1).astype(np.int32)
        if op.neg:
            x = x - ((x >> 3) << 4)
    x = x[:, :, :each]
    if kind in ("f16", "bf16") and signs:
        # neg_lo negates the even elements, neg_hi the odd ones.
        if op.neg:
            x[:, :, 0::2] *= -1
        if op.abs:
            x[:, :, 1::2] *= -1
    return x.reshape(g.n, parts, 16, each).transpose(0, 2, 1, 3).reshape(g.n, 16, k)


def _tile(lanes: int) -> tuple[Any, Any]:
    """For [register, lane] of C and D: the row and the column."""
    per_part = 16 // (lanes // 16)
    lane = np.arange(lanes)
    return np.arange(per_part)[:, None] + per_part * (lane >> 4)[None, :], np.broadcast_to(lane & 15, (per_part, lanes))


def compile_wmma(ins: Instruction, lanes: int) -> Step:
    """Compile a WMMA or SWMMAC. Raises `Unsupported`."""
    shape = _shape(ins.name)
    sparse = ins.name.startswith("v_swmmac")
    if sparse and lanes == 64:
        raise Unsupported(f"{ins.name} with 64 lanes: the place of its indices is not documented")
    a, b = ins.src[:2]
    c = replace(ins.dst[0], neg=False, abs=False) if sparse else ins.src[2]
    d = ins.dst[0].index
    rows, columns = _tile(lanes)
    count = len(rows)
    clamp = ins.modifiers.get("clamp", 0)
    integer = shape.d == "i32"
    short = shape.d in ("f16", "bf16")
    registers = count // 2 if short else count

    def accumulator(g: Group) -> Any:
        """The matrix C of each wave: [n, 16, 16], int64 or float64."""
        out: Any = np.zeros((g.n, 16, 16), np.int64 if integer else np.float64)
        if is_constant(c):
            if integer:
                out += int(constant(c, "i"))
            else:
                out += float(constant(c, {"f16": "h", "bf16": "b"}.get(shape.d, "f")))
        else:
            raw = np.ascontiguousarray(np.moveaxis(g.v[c.index : c.index + registers], 0, -1))
            if integer:
                x: Any = raw.view(np.int32).astype(np.int64)
            elif shape.d == "f32":
                x = raw.view(np.float32).astype(np.float64)
            elif shape.d == "f16":
                x = raw.view(np.uint16).view(np.float16).astype(np.float64)
            else:
                x = (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
            out[:, rows, columns] = np.moveaxis(x, -1, 1)
        if not integer:
            if c.abs:
                out = np.abs(out)
            if c.neg:
                out = -out
        return out

    def run(g: Group) -> None:
        if g.mask is not None:
            wave = int(np.argmax(~g.mask.all(axis=1)))
            raise ShaderError("WMMA needs all lanes of EXEC to be on", wave=wave)
        if sparse:
            x, y = _selected(g, ins, shape)
            product, k = "nik,nikj->nij", shape.k // 2
        else:
            x, y = _elements(g, a, shape.a, shape.bits, shape.k), _elements(g, b, shape.b, shape.bits, shape.k)
            y, product, k = y.swapaxes(1, 2), "nik,nkj->nij", shape.k
        total = accumulator(g)
        for at in range(0, k, step := k // 2 if integer else 4):
            total = total + np.einsum(product, x[:, :, at : at + step], y[..., at : at + step, :])
            if integer:
                total = np.clip(total, -(1 << 31), (1 << 31) - 1) if clamp else total
            else:
                total = _rounded(total, shape.d)
        if integer:
            bits = np.moveaxis(total.astype(np.int32).view(np.uint32)[:, rows, columns], 1, 0)
        else:
            bits = _packed(np.moveaxis(total[:, rows, columns], 1, 0), shape.d)
        for k in range(registers):
            g.put(d + k, bits[k])

    return run


def _selected(g: Group, ins: Instruction, shape: _Shape) -> tuple[Any, Any]:
    """The factors of SWMMAC: [n, 16, K/2] of A, and [n, 16, K/2, 16] of B, the rows of B for each row of A."""
    a, b, index = ins.src
    k = shape.k // 2
    x = _elements(g, a, shape.a, shape.bits, k, signs=False)
    y = _elements(g, b, shape.b, shape.bits, shape.k, signs=False).swapaxes(1, 2)
    if shape.d != "i32":
        for slot, (p, q) in enumerate(((a.neg, b.neg), (a.abs, b.abs))):
            if p != q:
                x[:, :, slot::2] *= -1
    each = k // 2  # numbers of a lane
    word = g.v[index.index].reshape(g.n, 2, 16) >> np.uint32(16 * (ins.modifiers.get("op_sel", 0) & 1))
    at = np.arange(each, dtype=np.uint32)
    place = (word[..., None] >> (2 * at)) & np.uint32(3)  # [n, half, row, number]
    place = place + 4 * (at // 2) + shape.k // 2 * np.arange(2, dtype=np.uint32)[:, None, None]
    place = place.transpose(0, 2, 1, 3).reshape(g.n, 16, k).astype(np.intp)
    return x, y[np.arange(g.n)[:, None, None], place]


def _rounded(x: Any, kind: str) -> Any:
    """float64 to what D holds, as float64 again."""
    short = x.astype(np.float32)
    if kind == "f16":
        return short.astype(np.float16).astype(np.float64)
    if kind == "bf16":
        return (bf16_bits(short).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return short.astype(np.float64)


def _packed(found: Any, kind: str) -> Any:
    """Pack numbers [registers, n, lanes] into u32; numbers of 16 bits two in one."""
    if kind == "f32":
        return found.astype(np.float32).view(np.uint32)
    halves = found.astype(np.float16).view(np.uint16) if kind == "f16" else bf16_bits(found.astype(np.float32))
    return halves[0::2].astype(np.uint32) | (halves[1::2].astype(np.uint32) << np.uint32(16))
