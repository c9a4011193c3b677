"""Integer instructions of the vector unit, on Python's integers (RDNA 4 ISA, VOP1, VOP2, VOP3)."""

from __future__ import annotations

from tests.amdgpu_emu.core.defined.harness import Definition, define
from tests.amdgpu_emu.core.one import signed

M = 0xFFFFFFFF


def s32(x: int) -> int:
    return signed(x, 32)


def s24(x: int) -> int:
    return signed(x, 24)


def s16(x: int) -> int:
    return signed(x, 16)


def byte(x: int, k: int) -> int:
    return x >> 8 * k & 255


def leading(x: int, bits: int = 32) -> int:
    return -1 if x == 0 else bits - x.bit_length()


def trailing(x: int) -> int:
    return -1 if x == 0 else (x & -x).bit_length() - 1


def signs(x: int, bits: int = 32) -> int:
    """Bits from the top that equal the highest, -1 if all do."""
    top = f"{x:0{bits}b}"
    same = len(top) - len(top.lstrip(top[0]))
    return -1 if same == bits else same


def field(a: int, offset: int, width: int, bits: int) -> int:
    """A signed bit field, 0 where the width is."""
    return signed(signed(a, bits) >> offset, width) if width else 0


def perm(a: int, b: int, c: int) -> int:
    source = [byte(b, k) for k in range(4)] + [byte(a, k) for k in range(4)]
    out = 0
    for k in range(4):
        pick = byte(c, k)
        if pick < 8:
            x = source[pick]
        elif pick < 12:
            x = 255 * (source[(pick - 8) * 2 + 1] >> 7)
        else:
            x = 0 if pick == 12 else 255
        out |= x << 8 * k
    return out


def median(*xs: int) -> int:
    return sorted(xs)[1]


def apart(a: int, b: int, masked: bool = False) -> int:
    """Sum of the distances of four bytes."""
    return sum(abs(byte(a, k) - byte(b, k)) for k in range(4) if byte(b, k) or not masked)


def quads(a: int, b: int, c: int, masked: bool, bits: int, clamp: bool = False) -> int:
    out, top = 0, (1 << bits) - 1
    for k in range(4):
        total = apart(a >> 8 * k & M, b, masked) + (c >> bits * k & top)
        out |= (min(total, top) if clamp else total & top) << bits * k
    return out


PLAIN: dict[str, Definition] = {
    "v_mov_b32": lambda a: a,
    "v_mov_b16": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_not_b16": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_clz_i32_u32": leading,
    "v_ctz_i32_b32": trailing,
    "v_cls_i32": signs,
    "v_sat_pk_u8_i16": lambda a: max(0, min(s16(a), 255)) | max(0, min(s16(a >> 16), 255)) << 8,
    "v_cvt_i32_i16": s16,
    "v_cvt_u32_u16": lambda a: a,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: s32(a) * s32(b) >> 32,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_mul_hi_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_mul_hi_i32_i24": lambda a, b: s24(a) * s24(b) >> 32,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b64": lambda a, b: b << (a & 63),
    "v_lshrrev_b64": lambda a, b: b >> (a & 63),
    "v_ashrrev_i64": lambda a, b: signed(b, 64) >> (a & 63),
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_bfm_b32": lambda a, b: (1 << (a & 31)) - 1 << (b & 31),
    "v_cvt_pk_u16_u32": lambda a, b: min(a, 65535) | min(b, 65535) << 16,
    "v_cvt_pk_i16_i32": lambda a, b: (
        (max(-32768, min(s32(a), 32767)) & 65535) | (max(-32768, min(s32(b), 32767)) & 65535) << 16
    ),
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xor3_b32": lambda a, b, c: a ^ b ^ c,
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: ((a + b) & M) << (c & 31),
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_bfe_u32": lambda a, b, c: a >> (b & 31) & (1 << (c & 31)) - 1,
    "v_bfe_i32": lambda a, b, c: field(a, b & 31, c & 31, 32),
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_perm_b32": perm,
    "v_lerp_u8": lambda a, b, c: sum(((byte(a, k) + byte(b, k) + (byte(c, k) & 1)) >> 1) << 8 * k for k in range(4)),
}
SATURATING_U: dict[str, Definition] = {
    "v_add_nc_u32": lambda a, b: a + b,
    "v_sub_nc_u32": lambda a, b: a - b,
    "v_subrev_nc_u32": lambda a, b: b - a,
    "v_add_nc_u16": lambda a, b: a + b,
    "v_sub_nc_u16": lambda a, b: a - b,
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_u16": lambda a, b, c: a * b + c,
    "v_mad_u32_u16": lambda a, b, c: a * b + c,
    "v_sad_u8": lambda a, b, c: apart(a, b) + c,
    "v_sad_hi_u8": lambda a, b, c: (apart(a, b) << 16) + c,
    "v_msad_u8": lambda a, b, c: apart(a, b, True) + c,
    "v_sad_u16": lambda a, b, c: abs((a & 65535) - (b & 65535)) + abs((a >> 16) - (b >> 16)) + c,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
}
SATURATING_I: dict[str, Definition] = {
    "v_add_nc_i32": lambda a, b: s32(a) + s32(b),
    "v_sub_nc_i32": lambda a, b: s32(a) - s32(b),
    "v_add_nc_i16": lambda a, b: s16(a) + s16(b),
    "v_sub_nc_i16": lambda a, b: s16(a) - s16(b),
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + s32(c),
    "v_mad_i16": lambda a, b, c: s16(a) * s16(b) + s16(c),
    "v_mad_i32_i16": lambda a, b, c: s16(a) * s16(b) + s32(c),
}
for _bits in (16, 32):
    PLAIN |= {
        f"v_and_b{_bits}": lambda a, b: a & b,
        f"v_or_b{_bits}": lambda a, b: a | b,
        f"v_xor_b{_bits}": lambda a, b: a ^ b,
        f"v_lshlrev_b{_bits}": lambda a, b, m=_bits - 1: b << (a & m),
        f"v_lshrrev_b{_bits}": lambda a, b, m=_bits - 1: b >> (a & m),
        f"v_ashrrev_i{_bits}": lambda a, b, n=_bits: signed(b, n) >> (a & n - 1),
    }
    for _kind, _of in (("u", lambda x, n: x), ("i", signed)):
        _f = lambda x, n=_bits, of=_of: of(x, n)  # noqa: E731
        PLAIN |= {
            f"v_min_{_kind}{_bits}": lambda a, b, f=_f: min(f(a), f(b)),
            f"v_max_{_kind}{_bits}": lambda a, b, f=_f: max(f(a), f(b)),
            f"v_min3_{_kind}{_bits}": lambda a, b, c, f=_f: min(f(a), f(b), f(c)),
            f"v_max3_{_kind}{_bits}": lambda a, b, c, f=_f: max(f(a), f(b), f(c)),
            f"v_med3_{_kind}{_bits}": lambda a, b, c, f=_f: median(f(a), f(b), f(c)),
        }
        if _bits == 32:
            PLAIN |= {
                f"v_maxmin_{_kind}32": lambda a, b, c, f=_f: min(max(f(a), f(b)), f(c)),
                f"v_minmax_{_kind}32": lambda a, b, c, f=_f: max(min(f(a), f(b)), f(c)),
            }
QUADS: dict[str, Definition] = {
    "v_qsad_pk_u16_u8": lambda a, b, c, clamp=False: quads(a, b, c, False, 16, clamp),
    "v_mqsad_pk_u16_u8": lambda a, b, c, clamp=False: quads(a, b, c, True, 16, clamp),
    "v_mqsad_u32_u8": lambda a, b, c, clamp=False: quads(a, b, c, True, 32, clamp),
}
SELECT: dict[str, Definition] = {
    "v_cndmask_b32": lambda a, b, c: b if c else a,
    "v_cndmask_b16": lambda a, b, c: b if c else a,
}
define(PLAIN, "u")
define(SATURATING_U, "u", saturates=True)
define(SATURATING_I, "i", saturates=True)
define(QUADS, "u")
define(SELECT, "u")
