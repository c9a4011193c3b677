"""Matrix registers (AMX). Tile numbers are static: the intrinsics name registers tmm0 to tmm7 directly."""

from __future__ import annotations

from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.convert import convert
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.lower.registry import lowers, want_int, want_pointer, want_static
from zinc_rt.lang.types import i64

TILES = 8
_MAX_ROWS, _MAX_BYTES = 16, 64
_CONFIG_BYTES = 64
# Layout of the configuration: Intel SDM volume 1, section 18.3, palette 1.
_COLUMNS_AT, _ROWS_AT = 16, 48


def _need_tiles(c: Any, word: str) -> None:
    if "amx" not in c.target.isa:
        raise Reject(f"{word} needs the instruction set amx, which the target {c.target.name} does not have")


def _tile(t: Any) -> str:
    if not 0 <= want_static(t, int, "the tile's number") < TILES:
        raise Reject(f"tiles are numbered 0 to {TILES - 1}, got {t}")
    return str(t)


@lowers(ops.tile_configure)
def _tile_configure(c: Any, rows: Any, bytes: Any) -> None:
    _need_tiles(c, "tile_configure")
    shapes = list(zip(want_static(rows, tuple, "rows"), want_static(bytes, tuple, "bytes"), strict=False))
    if len(rows) != len(bytes) or not 1 <= len(shapes) <= TILES:
        raise Reject(f"rows and bytes must be tuples of one length, 1 to {TILES}")
    config = bytearray(_CONFIG_BYTES)
    config[0] = 1
    for i, (n_rows, n_bytes) in enumerate(shapes):
        if not (isinstance(n_rows, int) and isinstance(n_bytes, int)):
            raise Reject("rows and bytes must be compile-time integers")
        if not (1 <= n_rows <= _MAX_ROWS and 1 <= n_bytes <= _MAX_BYTES and n_bytes % 4 == 0):
            raise Reject(f"a tile has 1 to {_MAX_ROWS} rows of 4 to {_MAX_BYTES} bytes, a multiple of 4")
        config[_COLUMNS_AT + 2 * i] = n_bytes
        config[_ROWS_AT + i] = n_rows
    cell = c.f.alloca("i8", 64, _CONFIG_BYTES)
    for at in range(0, _CONFIG_BYTES, 8):
        word = int.from_bytes(config[at : at + 8], "little")
        address = c.f.value(f"getelementptr i8, {c.f.stack} {cell}, i64 {at}")
        # Volatile: the optimiser does not know that the instruction reads all 64 bytes.
        c.f.emit(f"store volatile i64 {word}, {c.f.stack} {address}, align 8")
    c.f.call("llvm.x86.ldtilecfg", None, [("ptr", cell)])


@lowers(ops.tile_zero)
def _tile_zero(c: Any, t: Any) -> None:
    _need_tiles(c, "tile_zero")
    c.f.call("llvm.x86.tilezero", None, [("i8", _tile(t))])


def _move(c: Any, name: str, t: Any, p: Any, stride: Any) -> None:
    base, kind = want_pointer(p)
    step = str(stride) if isinstance(stride, int) else convert(c.f, want_int(stride, "the stride"), i64).ref
    c.f.call(name, None, [("i8", _tile(t)), (c.f.type(kind), base.ref), ("i64", step)])


@lowers(ops.tile_load)
def _tile_load(c: Any, t: Any, p: Any, stride: Any) -> None:
    _need_tiles(c, "tile_load")
    _move(c, "llvm.x86.tileloadd64", t, p, stride)


@lowers(ops.tile_store)
def _tile_store(c: Any, t: Any, p: Any, stride: Any) -> None:
    _need_tiles(c, "tile_store")
    _move(c, "llvm.x86.tilestored64", t, p, stride)


@lowers(ops.tile_dot_i8u8)
def _tile_dot_i8u8(c: Any, acc: Any, a: Any, b: Any) -> None:
    _need_tiles(c, "tile_dot_i8u8")
    c.f.call("llvm.x86.tdpbsud", None, [("i8", _tile(x)) for x in (acc, a, b)])


@lowers(ops.tile_dot_u8i8)
def _tile_dot_u8i8(c: Any, acc: Any, a: Any, b: Any) -> None:
    _need_tiles(c, "tile_dot_u8i8")
    c.f.call("llvm.x86.tdpbusd", None, [("i8", _tile(x)) for x in (acc, a, b)])


@lowers(ops.tile_dot_i8i8)
def _tile_dot_i8i8(c: Any, acc: Any, a: Any, b: Any) -> None:
    _need_tiles(c, "tile_dot_i8i8")
    c.f.call("llvm.x86.tdpbssd", None, [("i8", _tile(x)) for x in (acc, a, b)])


@lowers(ops.tile_release)
def _tile_release(c: Any) -> None:
    _need_tiles(c, "tile_release")
    c.f.call("llvm.x86.tilerelease", None, [])
