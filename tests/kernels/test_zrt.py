"""`.zrt` files: what is written is read back whole, and whatever else is refused by field, value and limit."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lang import gpu_kernels as g
from zinc_rt.kernels import zrt
from zinc_rt.lang import Spec
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.gpu import Argument, GpuKernel
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.lang.types import Int, Ptr, Space, Struct, bf16, boolean, f16, f32, f64, i8, u8, u16, u32, u64

SPECS = {"lanes": Spec(g.lanes_of_64), "sum": Spec(g.workgroup_sum), "block": Spec(g.from_block),
         "many": Spec(g.many_arguments), "spills": Spec(g.spills_to_scratch)}  # fmt: skip


@cache
def kernels() -> dict[str, GpuKernel]:
    return gpu_kernels(SPECS, cache=CompileCache(default_cache_dir()))


def plain(**how: Any) -> GpuKernel:
    """A small kernel, with s_endpgm as its code."""
    code = struct.pack("<I", 0xBFB00000) + struct.pack("<I", 0xBF9F0000) * 127
    arguments = (Argument("x", Ptr(f32), 0), Argument("n", u32, 2))
    base = GpuKernel("plain", code, 4, arguments, 3, 32, 0xE00F0000, 0x380 | 3 << 1, 1 << 4, 0)
    return replace(base, **how)


@cache
def data() -> bytes:
    return zrt.write_zrt(plain())


def sealed(raw: bytes | bytearray) -> bytes:
    """With the right checksum: what only the fields' own checks refuse."""
    digest = blake2b(raw[:112], digest_size=16)
    digest.update(raw[128:])
    return bytes(raw[:112]) + digest.digest() + bytes(raw[128:])


@pytest.mark.parametrize("name", SPECS)
def test_compiled_kernels_come_back_whole(name: str) -> None:
    kernel = kernels()[name]
    written = zrt.write_zrt(kernel)
    assert zrt.read_zrt(written) == kernel
    assert zrt.write_zrt(zrt.read_zrt(written)) == written
    header = zrt.header_of(written)
    assert written[: 4 * 4] == struct.pack("<4I", 0x005A5254, 1, 1, len(kernel.code))
    assert (header.subgroup_size, header.workgroup_x, header.vgpr) == (kernel.wave, kernel.workgroup, kernel.vgprs)
    assert written.endswith(kernel.code)
    assert (len(written) - len(kernel.code)) % 256 == 0
    assert kernel.name.encode() == written[header.name_offset : header.name_offset + header.name_size]


def test_arguments_still_pack_as_before() -> None:
    kernel = zrt.read_zrt(zrt.write_zrt(kernels()["many"]))
    values = (0x1_2345_6789_ABCD, 7, 2**40, 65535, 3, -1.5, 0xFFFF_FFFF_FFFF_FFF8, -128, 5, 2**32 - 1)
    assert kernel.user_data(*values) == kernels()["many"].user_data(*values)
    assert str(kernel.arguments[0].type) == "ptr[f32]"
    block = zrt.read_zrt(zrt.write_zrt(kernels()["block"])).arguments[0].type
    assert isinstance(block, Ptr)
    assert block.space is Space.CONSTANT
    assert isinstance(block.elem, Struct)
    assert block.elem.size == kernels()["block"].arguments[0].type.elem.size == 24  # type: ignore[attr-defined]


def test_the_header_field_by_field() -> None:
    kernel = plain()
    fields = struct.unpack_from("<12I2H3I", data())
    name_offset = 128 + (8 + 1 + 3) + (8 + 1 + 1)
    assert fields == (
        0x005A5254, 1, 1, 512, 0, 1, 4, 32, 32, 1, 1, 0, 8, 106, 16, name_offset, 5,
    )  # fmt: skip
    launch = struct.unpack_from("<12I", data(), 64)
    assert launch == (kernel.rsrc1, kernel.rsrc2, kernel.rsrc3, 0, 3, 2, 22, 4, 256, 768, 0, 0)
    assert struct.unpack_from("<4H", data(), 128) == (0, 1, 3, 0)
    assert data()[136:140] == b"x" + bytes([0x40, 1, 10])
    assert struct.unpack_from("<4H", data(), 140) == (2, 1, 1, 0)
    assert data()[148:150] == b"n" + bytes([6])
    assert data()[150:155] == b"plain"


@pytest.mark.parametrize("target", ["gfx1201", "gfx1200", "gfx1151", "gfx1100"])
def test_targets(target: str) -> None:
    kernel = plain(target=target)
    assert zrt.read_zrt(zrt.write_zrt(kernel)) == kernel


FIELDS: list[tuple[str, int, str, int, type[zrt.ZrtError], str]] = [  # field, offset, format, value, error, limit
    ("magic", 0, "<I", 0x46554747, zrt.NotZrt, "must be 0x005a5254"),
    ("abi", 4, "<I", 2, zrt.UnsupportedAbi, "this release reads 1"),
    ("gpu_target", 8, "<I", 0, zrt.UnsupportedGpuTarget, "1 gfx1201"),
    ("gpu_target", 8, "<I", 5, zrt.UnsupportedGpuTarget, "4 gfx1100"),
    *(("gpu_target", 8, "<I", n, zrt.UnsupportedGpuTarget, "are made for") for n in (0x10, 0x20, 0x30, 0xFF)),
    ("code_size", 12, "<I", 0, zrt.InvalidField, "4 to 16777216"),
    ("code_size", 12, "<I", 0xFFFFFFFF, zrt.InvalidField, "4 to 16777216"),
    ("the file's size", 12, "<I", 508, zrt.ZrtTruncated, "say 764"),
    ("entry_offset", 16, "<I", 256, zrt.InvalidField, "must be 0"),
    ("buffer_count", 20, "<I", 2, zrt.InvalidField, "must be 1"),
    ("push_const_bytes", 24, "<I", 8, zrt.InvalidField, "must be 4"),
    ("subgroup_size", 28, "<I", 16, zrt.InvalidField, "32 or 64"),
    ("vgpr", 28, "<I", 64, zrt.InvalidField, "as RSRC1 says"),
    ("workgroup_x", 32, "<I", 0, zrt.InvalidField, "1 to 1024"),
    ("workgroup_x", 32, "<I", 1025, zrt.InvalidField, "1 to 1024"),
    ("workgroup_y", 36, "<I", 2, zrt.InvalidField, "must be 1"),
    ("workgroup_z", 40, "<I", 0, zrt.InvalidField, "must be 1"),
    ("lds_bytes", 44, "<I", 512, zrt.InvalidField, "must be 0, as RSRC2 says"),
    ("vgpr", 48, "<H", 16, zrt.InvalidField, "must be 8"),
    ("sgpr", 50, "<H", 104, zrt.InvalidField, "must be 106"),
    ("occupancy", 52, "<I", 15, zrt.InvalidField, "must be 16"),
    ("name_offset", 56, "<I", 151, zrt.InvalidField, "must be 150"),
    ("name_size", 60, "<I", 0, zrt.InvalidField, "1 to 255"),
    ("name_size", 60, "<I", 256, zrt.InvalidField, "1 to 255"),
    ("vgpr", 64, "<I", 0xE00F0001, zrt.InvalidField, "must be 16"),
    ("RSRC2.USER_SGPR", 68, "<I", 0x380 | 4 << 1, zrt.InvalidField, "must be 3"),
    ("lds_bytes", 68, "<I", 0x380 | 3 << 1 | 1 << 15, zrt.InvalidField, "must be 512"),
    ("user_dwords", 80, "<I", 17, zrt.InvalidField, "0 to 16"),
    ("user_dwords", 80, "<I", 4, zrt.InvalidField, "must be 3"),
    ("n_arguments", 84, "<I", 17, zrt.InvalidField, "0 to 16"),
    ("arguments_size", 84, "<I", 1, zrt.InvalidField, "must be 12"),
    ("arguments_size", 84, "<I", 3, zrt.InvalidField, "argument 2 begins at 22"),
    ("name_offset", 88, "<I", 21, zrt.InvalidField, "must be 149"),
    ("instruction_bytes", 92, "<I", 0, zrt.InvalidField, "4 to 512"),
    ("instruction_bytes", 92, "<I", 516, zrt.InvalidField, "4 to 512"),
    ("instruction_bytes", 92, "<I", 6, zrt.InvalidField, "modulo 4"),
    ("code_offset", 96, "<I", 512, zrt.InvalidField, "must be 256"),
    ("the file's size", 100, "<I", 769, zrt.ZrtTruncated, "says 769"),
    ("reserved_0", 104, "<I", 1, zrt.InvalidField, "must be 0"),
    ("reserved_1", 108, "<I", 1, zrt.InvalidField, "must be 0"),
    ("argument 0, first dword", 128, "<H", 1, zrt.InvalidField, "must be 0"),
    ("arguments_size", 130, "<H", 60000, zrt.InvalidField, "ends at"),
    ("argument 0, reserved", 134, "<H", 1, zrt.InvalidField, "must be 0"),
    ("argument 0, name", 136, "<B", 0x31, zrt.InvalidField, "an identifier"),
    ("argument 0, name", 136, "<B", 0xFF, zrt.InvalidField, "UTF-8"),
    ("argument 1, name", 148, "<B", ord("x"), zrt.InvalidField, "no other argument has"),
    ("argument 0, type", 137, "<B", 0x41, zrt.InvalidField, "a scalar"),
    ("argument 0, type", 138, "<B", 3, zrt.InvalidField, "1 (global) or 4 (constant)"),
    ("argument 0, type", 139, "<B", 13, zrt.InvalidField, "a scalar"),
    ("argument 0, type", 137, "<B", 6, zrt.InvalidField, "ends after 1"),
    ("argument 1, type", 149, "<B", 8, zrt.InvalidField, "integers, f32"),
    ("argument 1, type", 149, "<B", 0x40, zrt.InvalidField, "goes on behind"),
    ("user_dwords", 149, "<B", 7, zrt.InvalidField, "must be 4"),
    ("name", 150, "<B", 0xFF, zrt.InvalidField, "UTF-8"),
    ("name", 150, "<B", 7, zrt.InvalidField, "printable"),
    ("padding before the code", 200, "<B", 1, zrt.InvalidField, "it is zero"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "at", "form", "value", "kind", "limit"), FIELDS)
def test_every_field(field: str, at: int, form: str, value: int, kind: type[zrt.ZrtError], limit: str) -> None:
    raw = bytearray(data())
    struct.pack_into(form, raw, at, value)
    with pytest.raises(zrt.ZrtError) as caught:
        zrt.read_zrt(sealed(raw))
    error = caught.value
    assert type(error) is kind
    assert (error.field, limit in error.limit) == (field, True), str(error)
    assert str(error.value) in str(error)
    assert "\n" not in str(error)
    assert str(error.at("some/file.zrt")).startswith("some/file.zrt: ")


def test_reserved_targets_are_named() -> None:
    for number, name in ((0x10, "Xe2"), (0x20, "sm_90"), (0x30, "Apple"), (0xFF, "CPU")):
        raw = bytearray(data())
        raw[8] = number
        with pytest.raises(zrt.UnsupportedGpuTarget, match=name):
            zrt.read_zrt(sealed(raw))


def test_a_workgroup_that_does_not_fit() -> None:
    with pytest.raises(zrt.InvalidField, match="occupancy is 0"):
        zrt.write_zrt(plain(rsrc1=0xC00F0000 | 31, workgroup=1024))


def test_cut_and_longer() -> None:
    whole = data()
    for n in range(len(whole)):
        with pytest.raises(zrt.ZrtTruncated):
            zrt.read_zrt(whole[:n])
    with pytest.raises(zrt.ZrtTruncated):
        zrt.read_zrt(whole + b"\0")


def test_every_bit_is_guarded() -> None:
    whole = data()
    for at in range(len(whole)):
        raw = bytearray(whole)
        raw[at] ^= 1 << at % 8
        with pytest.raises(zrt.ZrtError):
            zrt.read_zrt(bytes(raw))


def refused_or_whole(raw: bytes) -> None:
    """Whatever the bytes are: a `ZrtError`, or a kernel whose file they are."""
    try:
        kernel = zrt.read_zrt(raw)
    except zrt.ZrtError:
        return
    assert zrt.write_zrt(kernel) == raw


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_mutations_with_a_right_checksum(draw: st.DataObject) -> None:
    raw = bytearray(zrt.write_zrt(kernels()[draw.draw(st.sampled_from(list(SPECS)))]))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, min(len(raw) - 1, 400)))
        how = draw.draw(st.sampled_from(["bit", "byte", "word", "cut", "insert"]))
        if how == "bit":
            raw[at] ^= 1 << draw.draw(st.integers(0, 7))
        elif how == "byte":
            raw[at] = draw.draw(st.integers(0, 255))
        elif how == "word":
            value = draw.draw(st.sampled_from([0, 1, 2, 32, 64, 255, 256, 0x7FFFFFFF, 0xFFFFFFFF]))
            raw[at & ~3 : (at & ~3) + 4] = struct.pack("<I", value)
        elif how == "cut":
            del raw[at : at + draw.draw(st.integers(1, 8))]
        else:
            raw[at:at] = draw.draw(st.binary(min_size=1, max_size=8))
    refused_or_whole(sealed(raw) if len(raw) >= 128 else bytes(raw))
    refused_or_whole(bytes(raw))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_anything(raw: bytes) -> None:
    refused_or_whole(raw)
    if len(raw) > 128:
        refused_or_whole(sealed(data()[:112] + raw[112:]))


SCALARS = st.one_of(
    st.builds(Int, st.sampled_from([8, 16, 32, 64]), st.booleans()), st.sampled_from([f16, bf16, f32, f64])
)
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
ELEMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(Ptr, inner, st.sampled_from([Space.GLOBAL, Space.CONSTANT])),
        st.builds(Struct, NAMES, st.lists(st.tuples(NAMES, inner), min_size=1, max_size=4).map(tuple)),
    ),
    max_leaves=6,
)
POINTERS = st.builds(Ptr, ELEMENTS, st.sampled_from([Space.GLOBAL, Space.CONSTANT]))
KINDS = st.one_of(POINTERS, st.sampled_from([i8, u8, u16, u32, u64, f32, f64, boolean]))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NAMES, KINDS), max_size=5, unique_by=lambda pair: pair[0]), st.text(min_size=1, max_size=40))
def test_any_arguments_and_names(pairs: list[tuple[str, Any]], name: str) -> None:
    arguments, at = [], 0
    for text, kind in pairs:
        arguments.append(Argument(text, kind, at))
        at += 2 if kind.size == 8 else 1
    kernel = plain(name=name, arguments=tuple(arguments), dwords=at, rsrc2=0x380 | at << 1)
    try:
        written = zrt.write_zrt(kernel)
    except zrt.ZrtError:
        assert not name.isprintable() or len(name.encode()) > 255
        return
    assert zrt.read_zrt(written) == kernel


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"target": "amx"}, "gpu_target is amx"),
    ({"name": ""}, "name_size is 0"),
    ({"name": "n" * 256}, "name_size is 256"),
    ({"code": b""}, "code_size is 0"),
    ({"code": b"abc"}, "code_size"),
    ({"wave": 16}, "subgroup_size"),
    ({"workgroup": 2000}, "workgroup_x is 2000"),
    ({"tmpring": -1}, "a number of the header is plain"),
    ({"rsrc2": 0x380}, "USER_SGPR is 0"),
    ({"arguments": (Argument("a b", u32, 0),), "dwords": 1, "rsrc2": 0x382}, "identifier"),
    ({"arguments": (Argument("a", Ptr(f32, Space.SHARED), 0),), "dwords": 2, "rsrc2": 0x384}, "address space 3"),
    ({"arguments": (Argument("a", u32, 1),), "dwords": 1, "rsrc2": 0x382}, "first dword is 1"),
]


@pytest.mark.parametrize(("how", "text"), WRONG)
def test_what_cannot_be_read_is_not_written(how: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(zrt.ZrtError, match=text):
        zrt.write_file(tmp_path / "a.zrt", plain(**how))
    assert not list(tmp_path.iterdir())


def test_deep_types_are_refused() -> None:
    kind: Any = f32
    for _ in range(20):
        kind = Ptr(kind)
    with pytest.raises(zrt.InvalidField, match="inside each other"):
        zrt.write_zrt(plain(arguments=(Argument("x", kind, 0),), dwords=2, rsrc2=0x384))


# Files and folders.


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "plain.zrt"
    assert zrt.write_file(path, plain()) == len(data())
    assert path.read_bytes() == data()
    assert zrt.read_file(path) == plain()
    path.write_bytes(data()[:-1])
    with pytest.raises(zrt.ZrtTruncated, match=r"plain\.zrt: the file's size is 767"):
        zrt.read_file(path)
    for missing in (tmp_path / "none.zrt", tmp_path):
        with pytest.raises(zrt.KernelFileError, match="cannot read"):
            zrt.read_file(missing)


def test_folders(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert zrt.write_folder(folder, {"plain": plain(), "other": plain(name="other")}) == {"plain": 768, "other": 768}
    (folder / "notes.txt").write_text("not a kernel")
    assert list(zrt.read_folder(folder)) == ["other", "plain"]
    zrt.write_file(folder / "again.zrt", plain())
    with pytest.raises(zrt.KernelFileError, match="holds plain, as another file"):
        zrt.read_folder(folder)
    with pytest.raises(zrt.KernelFileError, match="cannot read"):
        zrt.read_folder(tmp_path / "nowhere")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    with pytest.raises(zrt.ZrtError):
        zrt.write_folder(folder, {"plain": plain(), "bad": plain(name="")})
    assert not folder.exists()
    zrt.write_folder(folder, {"plain": plain()})
    (folder / "late.zrt").mkdir()  # in the way
    with pytest.raises(zrt.KernelFileError, match=r"cannot write .*late\.zrt"):
        zrt.write_folder(folder, {"late": plain(), "plain": plain(name="new")})
    assert zrt.read_file(folder / "plain.zrt") == plain()
    assert sorted(p.name for p in folder.iterdir()) == ["late.zrt", "plain.zrt"]


def test_half_written_files_of_others_are_no_kernels(tmp_path: Path) -> None:
    zrt.write_file(tmp_path / "a.zrt", plain())
    (tmp_path / ".b.zrt.77.part").write_bytes(data()[:100])
    assert list(zrt.read_folder(tmp_path)) == ["plain"]
