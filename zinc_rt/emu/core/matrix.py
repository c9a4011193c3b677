"""WMMA: D = A B + C on tiles of a wave.

Layout of gfx12 (RDNA 4 ISA, "Wave matrix multiply"; the same as LLVM's intrinsics take): A is 16 rows of K numbers, B K
rows of 16 columns, C and D 16 x 16. Lane l holds row (A) or column (B) l % 16, and of its K numbers each half of the
lanes its own: with 32 lanes, lane half h holds k from h K/2 on. C and D: register r of lane l is row r + 8 (l / 16),
column l % 16. With 64 lanes the four quarters hold K/4 numbers and four rows each.
Floats are summed exactly in float64 from the products of binary16 or bfloat16, four at a time rounded to binary32.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np

from zinc_rt.emu.core.convert import BF8, FP8
from zinc_rt.emu.core.errors import ShaderError, Unsupported
from zinc_rt.emu.core.operands import bf16_bits, constant, is_constant
from zinc_rt.emu.core.state import Group, Step
from zinc_rt.emu.isa.instruction import Instruction, Operand


class _Shape(NamedTuple):
    bits: int  # of an element of A and B
    k: int
    a: str
    b: str
    d: str  # f32, f16, bf16 or i32


def _shape(name: str) -> _Shape:
    found = re.fullmatch(r"v_wmma_(f32|f16|bf16|i32)_16x16x(16|32)_(\w+)", name)
    if found is None:
        raise Unsupported(f"{name} is not executed by this shader core")
    d, k, kinds = found[1], int(found[2]), found[3].split("_")
    a, b = kinds[0], kinds[-1]
    bits = {"f16": 16, "bf16": 16, "iu8": 8, "iu4": 4, "fp8": 8, "bf8": 8}.get(a)
    if bits is None:
        raise Unsupported(f"{name} is not executed by this shader core")
    return _Shape(bits, k, a, b, d)


WMMA_NAMES: Final = frozenset(
    {f"v_wmma_{n}" for n in (
        "f32_16x16x16_f16", "f32_16x16x16_bf16", "f16_16x16x16_f16", "bf16_16x16x16_bf16", "i32_16x16x16_iu8",
        "i32_16x16x16_iu4", "i32_16x16x32_iu4", "f32_16x16x16_fp8_fp8", "f32_16x16x16_fp8_bf8",
        "f32_16x16x16_bf8_fp8", "f32_16x16x16_bf8_bf8",
    )}
)  # fmt: skip


def _elements(g: Group, op: Operand, kind: str, bits: int, k: int) -> Any:
    """[n, 16, K]: rows of A or columns of B."""
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
    if kind in ("f16", "bf16"):
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
    """What a WMMA does."""
    shape = _shape(ins.name)
    a, b, c = ins.src
    d = ins.dst[0].index
    rows, columns = _tile(lanes)
    count = len(rows)
    clamp = ins.modifiers.get("clamp", 0)
    integer = shape.d == "i32"
    short = shape.d in ("f16", "bf16")
    registers = count // 2 if short else count

    def accumulator(g: Group) -> Any:
        """[n, 16, 16], int64 or float64."""
        out: Any = np.zeros((g.n, 16, 16), np.int64 if integer else np.float64)
        if is_constant(c):
            if integer:
                out += int(constant(c, "i"))
            else:
                out += float(constant(c, "h") if shape.d == "f16" else constant(c, "f"))
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
        x, y = _elements(g, a, shape.a, shape.bits, shape.k), _elements(g, b, shape.b, shape.bits, shape.k)
        total = accumulator(g)
        if integer:
            total += np.einsum("nik,njk->nij", x, y)
            if clamp:
                total = np.clip(total, -(1 << 31), (1 << 31) - 1)
            bits = np.moveaxis(total.astype(np.int32).view(np.uint32)[:, rows, columns], 1, 0)
        else:
            for at in range(0, shape.k, 4):
                part = np.einsum("nik,njk->nij", x[:, :, at : at + 4], y[:, :, at : at + 4])
                total = (total + part).astype(np.float32).astype(np.float64)
            found = np.moveaxis(total[:, rows, columns], 1, 0)
            bits = _packed(found, shape.d)
        for k in range(registers):
            g.put(d + k, bits[k])

    return run


def _packed(found: Any, kind: str) -> Any:
    """[registers, n, lanes] of numbers as u32; of 16 bits two in one."""
    if kind == "f32":
        return found.astype(np.float32).view(np.uint32)
    halves = found.astype(np.float16).view(np.uint16) if kind == "f16" else bf16_bits(found.astype(np.float32))
    return halves[0::2].astype(np.uint32) | (halves[1::2].astype(np.uint32) << np.uint32(16))
