"""Integer instructions, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.emu.core.one import INTEGERS32, Format, rows, scalar, signed, vector

M = 0xFFFFFFFF
Definition = Callable[..., int]


def s32(x: int) -> int:
    return signed(x, 32)


def s24(x: int) -> int:
    return signed(x, 24)


def s16(x: int) -> int:
    return signed(x, 16)


def byte(x: int, k: int) -> int:
    return x >> 8 * k & 255


def leading(x: int) -> int:
    return -1 if x == 0 else 32 - x.bit_length()


def bfe_i(a: int, b: int, c: int) -> int:
    width = c & 31
    return signed(a >> (b & 31) if not a >> 31 else s32(a) >> (b & 31), width) if width else 0


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


THREE: dict[str, Definition] = {
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
    "v_bfe_i32": bfe_i,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_perm_b32": perm,
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + c,
    "v_min3_u32": min,
    "v_max3_u32": max,
    "v_med3_u32": median,
    "v_min3_i32": lambda *x: min(map(s32, x)),
    "v_max3_i32": lambda *x: max(map(s32, x)),
    "v_med3_i32": lambda *x: median(*map(s32, x)),
    "v_maxmin_u32": lambda a, b, c: min(max(a, b), c),
    "v_minmax_u32": lambda a, b, c: max(min(a, b), c),
    "v_maxmin_i32": lambda a, b, c: min(max(s32(a), s32(b)), s32(c)),
    "v_minmax_i32": lambda a, b, c: max(min(s32(a), s32(b)), s32(c)),
    "v_sad_u8": lambda a, b, c: sum(abs(byte(a, k) - byte(b, k)) for k in range(4)) + c,
    "v_sad_hi_u8": lambda a, b, c: (sum(abs(byte(a, k) - byte(b, k)) for k in range(4)) << 16) + c,
    "v_msad_u8": lambda a, b, c: sum(abs(byte(a, k) - byte(b, k)) for k in range(4) if byte(b, k)) + c,
    "v_sad_u16": lambda a, b, c: abs((a & 65535) - (b & 65535)) + abs((a >> 16) - (b >> 16)) + c,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_lerp_u8": lambda a, b, c: sum(((byte(a, k) + byte(b, k) + (byte(c, k) & 1)) >> 1) << 8 * k for k in range(4)),
}
TWO: dict[str, Definition] = {
    "v_add_nc_u32": lambda a, b: a + b,
    "v_sub_nc_u32": lambda a, b: a - b,
    "v_subrev_nc_u32": lambda a, b: b - a,
    "v_add_nc_i32": lambda a, b: a + b,
    "v_sub_nc_i32": lambda a, b: a - b,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: s32(a) * s32(b) >> 32,
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_mul_hi_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_mul_hi_i32_i24": lambda a, b: s24(a) * s24(b) >> 32,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: s32(b) >> (a & 31),
    "v_min_u32": min,
    "v_max_u32": max,
    "v_min_i32": lambda a, b: min(s32(a), s32(b)),
    "v_max_i32": lambda a, b: max(s32(a), s32(b)),
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_bfm_b32": lambda a, b: (1 << (a & 31)) - 1 << (b & 31),
    "v_cvt_pk_u16_u32": lambda a, b: min(a, 65535) | min(b, 65535) << 16,
    "v_cvt_pk_i16_i32": lambda a, b: (
        (max(-32768, min(s32(a), 32767)) & 65535) | (max(-32768, min(s32(b), 32767)) & 65535) << 16
    ),
}
ONE: dict[str, Definition] = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_clz_i32_u32": leading,
    "v_ctz_i32_b32": lambda a: -1 if a == 0 else (a & -a).bit_length() - 1,
    "v_cls_i32": lambda a: -1 if a in (0, M) else leading(a if a < 1 << 31 else a ^ M),
}
SHORT: dict[str, tuple[int, Definition]] = {
    "v_add_nc_u16": (2, lambda a, b: a + b),
    "v_sub_nc_u16": (2, lambda a, b: a - b),
    "v_mul_lo_u16": (2, lambda a, b: a * b),
    "v_lshlrev_b16": (2, lambda a, b: b << (a & 15)),
    "v_lshrrev_b16": (2, lambda a, b: b >> (a & 15)),
    "v_ashrrev_i16": (2, lambda a, b: s16(b) >> (a & 15)),
    "v_min_i16": (2, lambda a, b: min(s16(a), s16(b))),
    "v_max_u16": (2, max),
    "v_mad_u16": (3, lambda a, b, c: a * b + c),
    "v_mad_i16": (3, lambda a, b, c: s16(a) * s16(b) + s16(c)),
    "v_med3_i16": (3, lambda *x: median(*map(s16, x))),
    "v_and_b16": (2, lambda a, b: a & b),
}


def check(name: str, sources: int, definition: Definition, bits: int = 32) -> None:
    mask = (1 << bits) - 1
    columns = rows((x & mask for x in INTEGERS32), sources, bits, 3)
    got = vector(name, columns, [bits] * sources, bits, old=0xABCD0000 if bits == 16 else 0)
    for k, row in enumerate(zip(*columns, strict=True)):
        assert got[k] == definition(*row) & mask, (name, [hex(x) for x in row], hex(got[k]))


@pytest.mark.parametrize("name", THREE)
def test_three_sources(name: str) -> None:
    check(name, 3, THREE[name])


@pytest.mark.parametrize("name", TWO)
def test_two_sources(name: str) -> None:
    check(name, 2, TWO[name])


@pytest.mark.parametrize("name", ONE)
def test_one_source(name: str) -> None:
    check(name, 1, ONE[name])


@pytest.mark.parametrize("name", SHORT)
def test_sixteen_bits(name: str) -> None:
    check(name, SHORT[name][0], SHORT[name][1], 16)


@pytest.mark.parametrize(("name", "low", "high", "signs"), [
    ("v_add_nc_u32", 0, M, False), ("v_sub_nc_u32", 0, M, False), ("v_add_nc_i32", -(1 << 31), (1 << 31) - 1, True),
    ("v_sub_nc_i32", -(1 << 31), (1 << 31) - 1, True),
])  # fmt: skip
def test_clamp_saturates(name: str, low: int, high: int, signs: bool) -> None:
    columns = rows(INTEGERS32, 2, 32, 4)
    got = vector(name, columns, [32, 32], modifiers={"clamp": 1})
    for k, (a, b) in enumerate(zip(*columns, strict=True)):
        x, y = (s32(a), s32(b)) if signs else (a, b)
        assert got[k] == max(low, min(x + y if "add" in name else x - y, high)) & M


@pytest.mark.parametrize("name", ["v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32"])
def test_carry(name: str) -> None:
    columns = rows(INTEGERS32, 2, 32, 5)
    for carried in (False, True):
        ins = [k % 3 == 0 for k in range(len(columns[0]))]
        full = name.replace("_co_u32", "_co_ci_u32") if carried else name
        got, out = vector(full, columns, [32, 32], masks=1, form=Format.VOP3SD, vcc_in=ins if carried else None)
        for k, (a, b) in enumerate(zip(*columns, strict=True)):
            x, y = (b, a) if "subrev" in name else (a, b)
            c = int(ins[k]) if carried else 0
            r = x + y + c if "add" in name else x - y - c
            assert (got[k], out[k]) == (r & M, not 0 <= r <= M)


@pytest.mark.parametrize("signs", [False, True])
def test_mad_64(signs: bool) -> None:
    a, b = rows(INTEGERS32, 2, 32, 6)
    (c,) = rows((0, 1, M, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1), 1, 63, 7, random=len(a))
    c = c[: len(a)]
    name = "v_mad_co_i64_i32" if signs else "v_mad_co_u64_u32"
    got, out = vector(name, [a, b, c], [32, 32, 64], 64, masks=1, form=Format.VOP3SD)
    for k in range(len(a)):
        if signs:
            r = s32(a[k]) * s32(b[k]) + signed(c[k], 64)
            assert out[k] == (r >> 64 & 1), "bit 64 of the sum in 65 bits"
        else:
            r = a[k] * b[k] + c[k]
            assert out[k] == r >> 64
        assert got[k] == r & (1 << 64) - 1


def test_shifts_of_64_bits() -> None:
    (x,) = rows((0, 1, 1 << 63, (1 << 64) - 1, 0x123456789ABCDEF0), 1, 64, 8)
    n = [7 * k % 70 for k in range(len(x))]
    for name, define in (
        ("v_lshlrev_b64", lambda v, s: v << s),
        ("v_lshrrev_b64", lambda v, s: v >> s),
        ("v_ashrrev_i64", lambda v, s: signed(v, 64) >> s),
    ):
        got = vector(name, [n, x], [32, 64], 64)
        assert got == [define(v, s & 63) & (1 << 64) - 1 for v, s in zip(x, n, strict=True)], name


SCALAR: dict[str, tuple[int, Definition, Definition | None]] = {
    "s_add_co_u32": (1, lambda a, b: a + b, lambda a, b, r: a + b > M),
    "s_sub_co_u32": (1, lambda a, b: a - b, lambda a, b, r: b > a),
    "s_add_co_i32": (1, lambda a, b: a + b, lambda a, b, r: not -(1 << 31) <= s32(a) + s32(b) < 1 << 31),
    "s_sub_co_i32": (1, lambda a, b: a - b, lambda a, b, r: not -(1 << 31) <= s32(a) - s32(b) < 1 << 31),
    "s_mul_i32": (1, lambda a, b: a * b, None),
    "s_mul_hi_u32": (1, lambda a, b: a * b >> 32, None),
    "s_mul_hi_i32": (1, lambda a, b: s32(a) * s32(b) >> 32, None),
    "s_and_b32": (1, lambda a, b: a & b, lambda a, b, r: r != 0),
    "s_or_b32": (1, lambda a, b: a | b, lambda a, b, r: r != 0),
    "s_xor_b32": (1, lambda a, b: a ^ b, lambda a, b, r: r != 0),
    "s_nand_b32": (1, lambda a, b: ~(a & b), lambda a, b, r: r != 0),
    "s_nor_b32": (1, lambda a, b: ~(a | b), lambda a, b, r: r != 0),
    "s_xnor_b32": (1, lambda a, b: ~(a ^ b), lambda a, b, r: r != 0),
    "s_and_not1_b32": (1, lambda a, b: a & ~b, lambda a, b, r: r != 0),
    "s_or_not1_b32": (1, lambda a, b: a | ~b, lambda a, b, r: r != 0),
    "s_lshl_b32": (1, lambda a, b: a << (b & 31), lambda a, b, r: r != 0),
    "s_lshr_b32": (1, lambda a, b: a >> (b & 31), lambda a, b, r: r != 0),
    "s_ashr_i32": (1, lambda a, b: s32(a) >> (b & 31), lambda a, b, r: r != 0),
    "s_min_u32": (1, min, lambda a, b, r: a < b),
    "s_max_u32": (1, max, lambda a, b, r: a >= b),
    "s_min_i32": (1, lambda a, b: min(s32(a), s32(b)), lambda a, b, r: s32(a) < s32(b)),
    "s_max_i32": (1, lambda a, b: max(s32(a), s32(b)), lambda a, b, r: s32(a) >= s32(b)),
    "s_bfm_b32": (1, lambda a, b: (1 << (a & 31)) - 1 << (b & 31), None),
    "s_absdiff_i32": (1, lambda a, b: abs(s32(a) - s32(b)), lambda a, b, r: r != 0),
    "s_lshl2_add_u32": (1, lambda a, b: (a << 2) + b, lambda a, b, r: (a << 2) + b > M),
    "s_pack_lh_b32_b16": (1, lambda a, b: a & 65535 | b & 0xFFFF0000, None),
    "s_pack_hl_b32_b16": (1, lambda a, b: a >> 16 | b << 16, None),
    "s_add_nc_u64": (2, lambda a, b: a + b, None),
    "s_sub_nc_u64": (2, lambda a, b: a - b, None),
    "s_mul_u64": (2, lambda a, b: a * b, None),
    "s_and_b64": (2, lambda a, b: a & b, lambda a, b, r: r != 0),
    "s_and_not1_b64": (2, lambda a, b: a & ~b, lambda a, b, r: r != 0),
}


@pytest.mark.parametrize("name", SCALAR)
def test_scalar(name: str) -> None:
    dwords, define, condition = SCALAR[name]
    bits, mask = 32 * dwords, (1 << 32 * dwords) - 1
    choices = INTEGERS32 if dwords == 1 else (*INTEGERS32, 1 << 32, 1 << 63, mask, mask - 1)
    columns = rows(choices, 2, bits, 9)
    before = [k & 1 for k in range(len(columns[0]))]
    got, scc = scalar(name, columns, [dwords, dwords], dwords, scc=before)
    for k, (a, b) in enumerate(zip(*columns, strict=True)):
        r = define(a, b) & mask
        assert got[k] == r, (name, hex(a), hex(b), hex(got[k]))
        assert scc[k] == (before[k] if condition is None else int(condition(a, b, r))), (name, hex(a), hex(b))


@pytest.mark.parametrize("signs", [False, True])
def test_scalar_bit_fields(signs: bool) -> None:
    a, b = rows(INTEGERS32, 2, 32, 10)
    control = [(y & 31) | (y >> 7 & 63) << 16 for y in b]
    got, scc = scalar(f"s_bfe_{'i' if signs else 'u'}32", [a, control], [1, 1])
    for k, (x, c) in enumerate(zip(a, control, strict=True)):
        offset, width = c & 31, min(c >> 16 & 127, 32)
        wide = s32(x) if signs else x
        field = wide >> offset & (1 << width) - 1
        r = (signed(field, width) if signs and width else field) & M
        assert (got[k], scc[k]) == (r, r != 0), (hex(x), offset, width)


@pytest.mark.parametrize(("name", "dwords", "define"), [
    ("s_bcnt1_i32_b32", 1, lambda a: a.bit_count()), ("s_bcnt0_i32_b32", 1, lambda a: 32 - a.bit_count()),
    ("s_brev_b32", 1, lambda a: int(f"{a:032b}"[::-1], 2)), ("s_clz_i32_u32", 1, leading),
    ("s_ctz_i32_b64", 2, lambda a: -1 if a == 0 else (a & -a).bit_length() - 1), ("s_not_b32", 1, lambda a: ~a),
    ("s_sext_i32_i8", 1, lambda a: signed(a, 8)), ("s_sext_i32_i16", 1, lambda a: signed(a, 16)),
    ("s_abs_i32", 1, lambda a: abs(s32(a))), ("s_bcnt1_i32_b64", 2, lambda a: a.bit_count()),
])  # fmt: skip
def test_scalar_with_one_source(name: str, dwords: int, define: Definition) -> None:
    (a,) = rows((*INTEGERS32, *((1 << 32 * dwords) - 1 - x for x in INTEGERS32)), 1, 32 * dwords, 11)
    got, _ = scalar(name, [a], [dwords], form=Format.SOP1)
    assert got == [define(x) & M for x in a]


@pytest.mark.parametrize("condition", ["eq", "lg", "gt", "ge", "lt", "le"])
@pytest.mark.parametrize("kind", ["i32", "u32"])
def test_scalar_compare(condition: str, kind: str) -> None:
    columns = rows(INTEGERS32, 2, 32, 12)
    _, scc = scalar(f"s_cmp_{condition}_{kind}", columns, [1, 1], 0, form=Format.SOPC)
    for k, (a, b) in enumerate(zip(*columns, strict=True)):
        x, y = (s32(a), s32(b)) if kind == "i32" else (a, b)
        want = {"eq": x == y, "lg": x != y, "gt": x > y, "ge": x >= y, "lt": x < y, "le": x <= y}[condition]
        assert scc[k] == want


def test_selection_and_carry_by_scc() -> None:
    a, b = rows(INTEGERS32, 2, 32, 13)
    before = [k % 2 for k in range(len(a))]
    got, _ = scalar("s_cselect_b32", [a, b], [1, 1], scc=before)
    assert got == [x if c else y for x, y, c in zip(a, b, before, strict=True)]
    got, scc = scalar("s_add_co_ci_u32", [a, b], [1, 1], scc=before)
    assert got == [(x + y + c) & M for x, y, c in zip(a, b, before, strict=True)]
    assert scc == [x + y + c > M for x, y, c in zip(a, b, before, strict=True)]


def test_dot_products_of_bytes() -> None:
    """v_dot4_i32_iu8: neg says "signed", for each factor on its own."""
    a, b, c = rows((0, 0x7F7F7F7F, 0x80808080, 0xFFFFFFFF, 0x01FF807F), 3, 32, 14)
    for x_signed in (False, True):
        for y_signed in (False, True):
            got = vector(
                "v_dot4_i32_iu8", [a, b, c], [32] * 3, form=Format.VOP3P,
                sources=[{"neg": x_signed, "op_sel": 2}, {"neg": y_signed, "op_sel": 2}, {"op_sel": 2}],
            )  # fmt: skip
            for k in range(len(a)):
                xs = [signed(byte(a[k], i), 8) if x_signed else byte(a[k], i) for i in range(4)]
                ys = [signed(byte(b[k], i), 8) if y_signed else byte(b[k], i) for i in range(4)]
                assert got[k] == (sum(x * y for x, y in zip(xs, ys, strict=True)) + c[k]) & M


def test_dot_products_of_nibbles() -> None:
    a, b, c = rows((0, 0x77777777, 0x88888888, 0xFFFFFFFF), 3, 32, 15)
    got = vector(
        "v_dot8_i32_iu4", [a, b, c], [32] * 3, form=Format.VOP3P,
        sources=[{"neg": True, "op_sel": 2}, {"op_sel": 2}, {"op_sel": 2}],
    )  # fmt: skip
    for k in range(len(a)):
        total = sum(signed(a[k] >> 4 * i & 15, 4) * (b[k] >> 4 * i & 15) for i in range(8))
        assert got[k] == (total + c[k]) & M
