"""Random encodings of every opcode number of every format, field by field as the ISA document draws them.

Most of them are legal, if the opcode exists; unused fields are sometimes not zero. What they mean is not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random

V = 256  # the first vector register of a nine-bit source field
NULL, EXEC, LITERAL, DPP16, DPP8 = 124, 126, 255, 250, 233
CONSTANTS = (128, 129, 192, 193, 208, 240, 242, 247, 248)


def _scalar(r: Random) -> int:
    return r.choice((0, 4, 8, 52, 96, r.randrange(0, 100, 4), r.randrange(106), 106, 107, 108, 116, NULL, 125, EXEC))


def _source(r: Random, *, literal: bool = True) -> int:
    """Eight bits."""
    kind = r.randrange(10)
    if kind < 5:
        return _scalar(r)
    if kind < 9 or not literal:
        return r.choice((*CONSTANTS, r.randrange(128, 209), 235, 236, 238, 253))
    return LITERAL


def _wide(r: Random) -> int:
    """Nine bits."""
    return V + _vector(r) if r.random() < 0.55 else _source(r)


def _vector(r: Random) -> int:
    return r.choice((0, 1, 4, 100, 127, r.randrange(128), r.randrange(224), 224))


def _rarely(r: Random, bits: int, chance: float = 0.2) -> int:
    return r.randrange(1 << bits) if r.random() < chance else 0


def _unused(r: Random, value: int) -> int:
    """A field that some opcodes do not have."""
    return value if r.random() < 0.7 else 0


def _dpp(r: Random) -> tuple[int, int]:
    """src0 and the word behind."""
    if r.random() < 0.3:
        return DPP8 + r.randrange(2), _vector(r) | r.getrandbits(24) << 8
    control = r.choice((r.randrange(256), 0x101, 0x10F, 0x111, 0x123, 0x140, 0x141, 0x150, 0x15F, 0x161, 0x168))
    return DPP16, _vector(r) | control << 8 | _rarely(r, 2) << 18 | _rarely(r, 4) << 20 | r.randrange(256) << 24


def _pack(words: tuple[int, ...], r: Random, *, literal: bool) -> bytes:
    if literal:
        words = (*words, (r.getrandbits(32) if r.random() < 0.7 else r.getrandbits(16)) | 1 << 12)
    return struct.pack(f"<{len(words)}I", *words)


def sop1(r: Random, op: int) -> bytes:
    src = _unused(r, _source(r))
    return _pack((0x17D << 23 | _unused(r, _scalar(r)) << 16 | op << 8 | src,), r, literal=src == LITERAL)


def sop2(r: Random, op: int) -> bytes:
    a, b = _source(r), _source(r)
    constant = op in {69, 70}
    return _pack((2 << 30 | op << 23 | _scalar(r) << 16 | b << 8 | a,), r, literal=LITERAL in {a, b} or constant)


def sopc(r: Random, op: int) -> bytes:
    a, b = _source(r), _source(r)
    return _pack((0x17E << 23 | op << 16 | b << 8 | a,), r, literal=LITERAL in {a, b})


def sopk(r: Random, op: int) -> bytes:
    return _pack((0xB << 28 | op << 23 | _unused(r, _scalar(r)) << 16 | r.getrandbits(16),), r, literal=op == 19)


def sopp(r: Random, op: int) -> bytes:
    return _pack((0x17F << 23 | op << 16 | r.choice((0, 1, 5, 0xFFFF, r.getrandbits(16))),), r, literal=False)


def smem(r: Random, op: int) -> bytes:
    low = r.randrange(54) | _unused(r, _scalar(r)) << 6 | op << 13 | _rarely(r, 4) << 21
    offset = r.choice((0, 16, 0x7FFFFF, 0xFFFFF0, r.getrandbits(20)))
    return _pack((0x3D << 26 | low, offset | r.choice((NULL, _scalar(r))) << 25), r, literal=False)


def vop1(r: Random, op: int) -> bytes:
    dst = r.choice((_vector(r), _scalar(r)))
    src, behind = _dpp(r) if r.random() < 0.2 else (_unused(r, _wide(r)), None)
    word = 0x3F << 25 | _unused(r, dst) << 17 | op << 9 | src
    return _pack((word,) if behind is None else (word, behind), r, literal=src == LITERAL)


def vop2(r: Random, op: int) -> bytes:
    constant = op in {44, 45, 55, 56}
    src, behind = _dpp(r) if r.random() < 0.2 and not constant else (_wide(r), None)
    word = op << 25 | _vector(r) << 17 | _vector(r) << 9 | src
    return _pack((word,) if behind is None else (word, behind), r, literal=src == LITERAL or constant)


def vopc(r: Random, op: int) -> bytes:
    src, behind = _dpp(r) if r.random() < 0.2 else (_wide(r), None)
    word = 0x3E << 25 | op << 17 | _vector(r) << 9 | src
    return _pack((word,) if behind is None else (word, behind), r, literal=src == LITERAL)


def vop3(r: Random, op: int) -> bytes:
    n = r.choice((1, 2, 3))
    src, behind = _dpp(r) if r.random() < 0.15 else (_wide(r), None)
    if behind and src == DPP16:
        behind &= ~(0xF << 20)
    fields = [src, *(_wide(r) if i < n else 0 for i in (1, 2))]
    dst = r.choice((_vector(r), _scalar(r), EXEC)) if op >> 7 != 1 else EXEC
    low = dst | _rarely(r, 3) << 8 | _rarely(r, 4) << 11 | _rarely(r, 1, 0.3) << 15
    if r.random() < 0.3 and (op >= 0x2FC or 288 <= op <= 290):
        low = dst | _scalar(r) << 8 | _rarely(r, 1) << 15
    high = fields[0] | fields[1] << 9 | fields[2] << 18 | _rarely(r, 2) << 27 | _rarely(r, n) << 29
    words: tuple[int, ...] = (0x35 << 26 | op << 16 | low, high)
    return _pack(words if behind is None else (*words, behind), r, literal=LITERAL in fields)


def vop3p(r: Random, op: int) -> bytes:
    n = r.choice((2, 3))
    fields = [V + _vector(r) if op >= 64 else _wide(r) for _ in range(n)]
    if op >= 64 and n == 3 and r.random() < 0.3:
        fields[2] = r.choice(CONSTANTS)
    low = _vector(r) | _rarely(r, n) << 8 | _rarely(r, n) << 11 | _rarely(r, 1) << 15
    hi = 7 if r.random() < 0.6 or op >= 64 else r.randrange(8)
    high = fields[0] | fields[1] << 9 | (fields[2] if n > 2 else 0) << 18 | (hi & 3) << 27 | _rarely(r, n) << 29
    return _pack((0xCC << 24 | op << 16 | low | (hi >> 2) << 14, high), r, literal=LITERAL in fields)


def vopd(r: Random, op: int) -> bytes:
    first, second = op & 15, op >> 4
    a, b = _wide(r), _wide(r)
    v = [0 if which == 8 else _vector(r) for which in (first, second)]
    words = (
        0x32 << 26 | first << 22 | second << 17 | v[0] << 9 | a,
        _vector(r) << 24 | _vector(r) >> 1 << 17 | v[1] << 9 | b,
    )
    return _pack(words, r, literal=LITERAL in {a, b} or first in {1, 2} or second in {1, 2})


def ds(r: Random, op: int) -> bytes:
    n = r.choice((0, 1, 2, 3))
    fields = [_vector(r) if i < n else 0 for i in range(3)]
    high = fields[0] | fields[1] << 8 | fields[2] << 16 | _unused(r, _vector(r)) << 24
    return _pack((0x36 << 26 | op << 18 | r.choice((0, r.getrandbits(16))), high), r, literal=False)


def _vmem(prefix: int) -> Callable[[Random, int], bytes]:
    def make(r: Random, op: int) -> bytes:
        base = NULL if r.random() < 0.5 or prefix == 0xEC else _scalar(r)
        sve = prefix == 0xED and r.random() < 0.6
        middle = r.choice((0, _vector(r))) | sve << 17 | _rarely(r, 2) << 18 | _rarely(r, 3, 0.5) << 20
        middle |= r.choice((0, _vector(r))) << 23
        offset = r.choice((0, 16, 0xFFFFF0, 0x7FFFFF, r.getrandbits(24)))
        address = 0 if prefix == 0xED and not sve else _unused(r, _vector(r))
        return _pack((prefix << 24 | op << 14 | base, middle, address | offset << 8), r, literal=False)

    return make


def vbuffer(r: Random, op: int) -> bytes:
    modes = r.choice((0, 0, 1, 2, 3))
    middle = _vector(r) | 4 * r.randrange(26) << 9 | _rarely(r, 2) << 18 | _rarely(r, 3) << 20 | 1 << 23 | modes << 30
    last = (_vector(r) if modes else 0) | r.choice((0, 16, 4095, 0x7FFFFF)) << 8
    return _pack((0xC4 << 24 | op << 14 | r.choice((NULL, _scalar(r))), middle, last), r, literal=False)


# Maker and how many opcode numbers the field has room for.
FORMATS: dict[str, tuple[Callable[[Random, int], bytes], int]] = {
    "SOP1": (sop1, 256), "SOP2": (sop2, 0x60), "SOPC": (sopc, 128), "SOPK": (sopk, 26), "SOPP": (sopp, 128),
    "SMEM": (smem, 64), "VOP1": (vop1, 256), "VOP2": (vop2, 62), "VOPC": (vopc, 256), "VOP3": (vop3, 1024),
    "VOP3P": (vop3p, 128), "VOPD": (vopd, 512), "DS": (ds, 256), "VFLAT": (_vmem(0xEC), 256),
    "VSCRATCH": (_vmem(0xED), 256), "VGLOBAL": (_vmem(0xEE), 256), "VBUFFER": (vbuffer, 256),
}  # fmt: skip


def _blank(name: str, op: int) -> list[bytes]:
    """Instructions without operands."""
    words = {
        "SOP1": (0x17D << 23 | op << 8 | 0xC1,),
        "SMEM": (0x3D << 26 | op << 13, 0),
        "VOP3": (0x35 << 26 | op << 16, 0),
        "VGLOBAL": (0xEE << 24 | op << 14 | NULL, 2 << 18, 0),
    }.get(name)
    return [struct.pack(f"<{len(words)}I", *words)] if words else []


def encodings(seed: int, each: int) -> Iterator[tuple[str, int, bytes]]:
    """Format, opcode number and bytes; `each` of every number."""
    r = Random(seed)
    for name, (make, count) in FORMATS.items():
        for op in range(count):
            for code in _blank(name, op):
                yield name, op, code
            for _ in range(each):
                yield name, op, make(r, op)
