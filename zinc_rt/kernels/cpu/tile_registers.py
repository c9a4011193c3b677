"""Matrix registers for kernels: the processor's ("amx"), or the same in memory ("emulated", for machines without).

Registers 0 to 3 add up products i32[16, 16], 4 and 5 hold weights (four columns of 16 rows in a line), 6 and 7 sixteen
rows of activations. All of them are 32 columns deep, or 16 where halves of a group have scales of their own.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, LINE_BYTES
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import (
    array,
    bitcast,
    cast,
    dot4,
    load,
    splat,
    store,
    tile_configure,
    tile_dot_i8i8,
    tile_load,
    tile_store,
    tile_zero,
    unroll,
    zeros,
)
from zinc_rt.lang.types import i8, i32, ptr, u8, vec

ACCUMULATORS = 4
WEIGHTS = 4
ACTIVATIONS = 6
_REGISTERS = 8
_BYTES = BLOCK_ROWS * LINE_BYTES


@inline
def register_bank(TILES: str):
    """What the other functions take as `bank`."""
    if TILES == "emulated":
        return array(u8, _REGISTERS * _BYTES, zero=False)
    return 0


@inline
def shape_registers(TILES: str, COLUMNS: int):
    """Give this thread's registers their shapes, for products COLUMNS deep."""
    if TILES == "amx":
        lines = COLUMNS // 4
        tile_configure((16, 16, 16, 16, lines, lines, 16, 16), (64, 64, 64, 64, 64, 64, COLUMNS, COLUMNS))


@inline
def clear(bank, T: int, TILES: str):
    """Products of register T: none yet."""
    if TILES == "amx":
        tile_zero(T)
    else:
        for row in range(BLOCK_ROWS):
            store(cast(bank, ptr[i32]), zeros(vec[i32, 16]), T * (_BYTES // 4) + row * 16)


@inline
def fetch(bank, T: int, p, stride, COLUMNS: int, TILES: str):
    """Register T = rows at p, `stride` bytes apart: lines of weights, or activations."""
    if TILES == "amx":
        tile_load(T, p, stride)
    else:
        source = cast(p, ptr[u8])
        if T < ACTIVATIONS:
            for line in range(COLUMNS // 4):
                store(bank, load(source, line * stride, lanes=64), T * _BYTES + line * 64)
        else:
            for row in range(BLOCK_ROWS):
                store(bank, load(source, row * stride, lanes=COLUMNS), T * _BYTES + row * 64)


@inline
def multiply(bank, T: int, X: int, W: int, COLUMNS: int, TILES: str):
    """Products of T += activations of X times weights of W, signed bytes both."""
    if TILES == "amx":
        tile_dot_i8i8(T, X, W)
    else:
        sums = cast(bank, ptr[i32])
        x = cast(bank + X * _BYTES, ptr[i32])
        w = cast(bank + W * _BYTES, ptr[i8])
        for row in range(BLOCK_ROWS):
            acc = load(sums, T * (_BYTES // 4) + row * 16, lanes=16)
            for line in unroll(COLUMNS // 4):
                q = bitcast(splat(load(x, row * 16 + line), 16), vec[i8, 64])
                acc = dot4(acc, load(w, line * 64, lanes=64), q)
            store(sums, acc, T * (_BYTES // 4) + row * 16)


@inline
def keep(bank, T: int, p: ptr[i32], TILES: str):
    """Products of register T to p, i32[16, 16]."""
    if TILES == "amx":
        tile_store(T, p, 64)
    else:
        for row in range(BLOCK_ROWS):
            store(p, load(cast(bank, ptr[i32]), T * (_BYTES // 4) + row * 16, lanes=16), row * 16)
