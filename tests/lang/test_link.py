"""Objects made into one run of bytes: what is linked computes the right values, what cannot stand alone is refused."""

from __future__ import annotations

import ctypes
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lang.modules import AVX2, CONSTANTS, CONSTANTS_EXPORTS, INCREMENT, compiled, function
from zinc_rt.lang.children import JobResult, run_jobs
from zinc_rt.lang.compiler import Compiler, Module, _request
from zinc_rt.lang.elf import link
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.image import Code
from zinc_rt.lang.relocate import apply
from zinc_rt.lang.target import TARGETS

BYTES, SHORTS, WORDS = b"0123456789abcdef", (100, -200, 300, 400), (7, -8, 9, 10)
LONGS = (100000000001, -200000000002, 300000000003)
GPU = 'attributes #0 = { "amdgpu-flat-work-group-size"="32,32" }\n'


@pytest.fixture(scope="module", params=[0, 2, 3])
def constants(request: pytest.FixtureRequest) -> Code:
    return compiled(CONSTANTS, *CONSTANTS_EXPORTS, opt=request.param).load()


@pytest.mark.parametrize(
    ("case", "value"), [(0, 4.5), (1, 8.75), (2, 4.0), (3, 9.0), (4, 1.0), (5, 100.25), (-1, 100.25)]
)
def test_float_constants_jump_tables_and_calls(constants: Code, case: int, value: float) -> None:
    assert function(constants, "pick", ctypes.c_float, ctypes.c_float, ctypes.c_int)(3.0, case) == value


@pytest.mark.parametrize("i", [0, 1, 2])
def test_constant_arrays(constants: Code, i: int) -> None:
    value = BYTES[i] + SHORTS[i] + WORDS[i] + LONGS[i] + LONGS[1] + SHORTS[3]
    assert function(constants, "sum", ctypes.c_int64, ctypes.c_int64)(i) == value


def test_a_functions_own_address(constants: Code) -> None:
    assert function(constants, "itself", ctypes.c_void_p)() == constants.address("pick")


def test_wide_constants_are_aligned_for_aligned_loads() -> None:
    lanes = ", ".join(f"float {i}.0" for i in range(8))
    ir = (
        f"define void @add(ptr %p) {{\n  %v = load <8 x float>, ptr %p, align 4\n"
        f"  %w = fadd <8 x float> %v, <{lanes}>\n  store <8 x float> %w, ptr %p, align 4\n  ret void\n}}\n"
    )
    buffer = (ctypes.c_float * 8)(*[0.5] * 8)
    code = compiled(ir, "add").load()
    function(code, "add", None, ctypes.c_void_p)(ctypes.addressof(buffer))
    assert list(buffer) == [i + 0.5 for i in range(8)]


def test_data_keeps_its_alignment_and_shares_no_cache_line_with_code() -> None:
    lanes = ", ".join(f"i32 {i + 100}" for i in range(8))
    ir = (
        "define float @one(float %x) {\n  %y = fadd float %x, 1.5\n  ret float %y\n}\n"
        f"define void @two(ptr %p) {{\n  store <8 x i32> <{lanes}>, ptr %p, align 4\n  ret void\n}}\n"
    )
    image = compiled(ir, "one", "two")
    end = max(image.entries[name] + size for name, size in image.meta["sizes"].items())
    places = [image.code.index(c) for c in (struct.pack("<f", 1.5), struct.pack("<8i", *range(100, 108)))]
    assert places[1] % 32 == 0
    assert min(places) % 64 == 0
    assert min(places) // 64 > (end - 1) // 64


def test_products_and_sums_are_not_contracted() -> None:
    ir = (
        "define double @f(double %x, double %y, double %z) {\n  %p = fmul double %x, %y\n"
        "  %s = fadd double %p, %z\n  ret double %s\n}\n"
    )
    code = compiled(ir, "f", opt=3).load()
    x = 1.0 + 2.0**-30
    assert function(code, "f", ctypes.c_double, *[ctypes.c_double] * 3)(x, x, -1.0) == x * x - 1.0
    assert x * x - 1.0 != 2.0**-29 + 2.0**-60  # what one rounding would give


def test_what_is_not_exported_leaves_no_trace() -> None:
    image = compiled(CONSTANTS, "sum")
    assert list(image.entries) == ["sum"]
    assert list(image.meta["sizes"]) == ["sum"]


def test_code_is_padded_and_sizes_are_those_of_the_functions() -> None:
    image = compiled(INCREMENT, "increment")
    assert image.code.rstrip(b"\0") == bytes.fromhex("8d4701c3")  # lea eax, [rdi + 1]; ret
    assert len(image.code) == 64
    assert image.meta["sizes"] == {"increment": 4}


REFUSED = {
    "@llvm.fmaa.f32": (
        "declare float @llvm.fmaa.f32(float)\ndefine float @f(float %x) {\n  %r = call float @llvm.fmaa.f32(float %x)\n"
        "  ret float %r\n}",
        "undefined symbol 'llvm.fmaa.f32': a misspelt intrinsic",
    ),
    "helper": (
        "declare float @helper(float)\ndeclare void @other()\ndefine float @f(float %x) {\n  call void @other()\n"
        "  %r = call float @helper(float %x)\n  ret float %r\n}",
        r"undefined symbol 'helper': declared but not defined in the module \(and 1 more: other\)",
    ),
    "sine": (
        "declare float @llvm.sin.f32(float)\ndefine float @f(float %x) {\n  %r = call float @llvm.sin.f32(float %x)\n"
        "  ret float %r\n}",
        "undefined symbol 'sinf': a library call that LLVM put in",
    ),
    "memset": (
        "define void @f(ptr %p, i64 %n) {\nentry:\n  br label %l\nl:\n  %i = phi i64 [0, %entry], [%j, %l]\n"
        "  %q = getelementptr i8, ptr %p, i64 %i\n  store i8 0, ptr %q\n  %j = add i64 %i, 1\n"
        "  %c = icmp ult i64 %j, %n\n  br i1 %c, label %l, label %e\ne:\n  ret void\n}",
        "undefined symbol 'memset': a library call .*no-builtins",
    ),
    "variable": (
        "@g = global i32 4\ndefine i32 @f() {\n  %x = load volatile i32, ptr @g\n  store volatile i32 5, ptr @g\n"
        "  ret i32 %x\n}",
        r"section \.data of 4 bytes is writable",
    ),
    "zeros": (
        "@g = global [9 x i32] zeroinitializer\ndefine i32 @f() {\n  %x = load volatile i32, ptr @g\n"
        "  store volatile i32 5, ptr @g\n  ret i32 %x\n}",
        r"section \.bss of 36 bytes is writable",
    ),
    "addresses": (
        "@g = constant [2 x ptr] [ptr @f, ptr null]\ndefine ptr @f(i64 %i) {\n"
        "  %p = getelementptr ptr, ptr @g, i64 %i\n  %x = load ptr, ptr %p\n  ret ptr %x\n}",
        r"section \.data\.rel\.ro of 16 bytes holds addresses",
    ),
    "no function": ("@f = constant i32 7", "'f' is to be exported, but the module defines no such function"),
    "no export": (INCREMENT, "'f' is to be exported, but the module defines no such function"),
    "alignment": (
        "@t = internal constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 8192\ndefine i32 @f(i64 %i) {\n"
        "  %p = getelementptr i32, ptr @t, i64 %i\n  %x = load i32, ptr %p\n  ret i32 %x\n}",
        "wants an alignment of 8192; the limit is 4096",
    ),
}
REFUSED_ON_GPU = {
    "call": (
        "define internal amdgpu_gfx i32 @h(i32 %x) noinline {\n  %y = mul i32 %x, %x\n  ret i32 %y\n}\n"
        "define amdgpu_cs void @f(ptr addrspace(1) inreg %p, i32 %k) #0 {\n  %r = call amdgpu_gfx i32 @h(i32 %k)\n"
        "  store i32 %r, ptr addrspace(1) %p\n  ret void\n}\n",
        "R_AMDGPU_REL32_LO.* needs a loader; inline its functions",
    ),
}


def test_modules_that_cannot_stand_alone_are_refused() -> None:
    cases = {name: Module(name, ir, AVX2, ("f",)) for name, (ir, _) in REFUSED.items()}
    cases |= {
        f"gpu {name}": Module(name, ir + GPU, TARGETS["gfx1201"], ("f",)) for name, (ir, _) in REFUSED_ON_GPU.items()
    }
    messages = [*REFUSED.values(), *REFUSED_ON_GPU.values()]
    for (name, module), result, (_, message) in zip(
        cases.items(), Compiler().compile_each(list(cases.values())), messages, strict=True
    ):
        assert isinstance(result, CompileError), name
        assert result.module == module.name
        with pytest.raises(CompileError, match=message):
            raise result


def test_constants_of_a_gpu_lie_where_its_code_adds_them_up() -> None:
    """s_getpc_b64 gives the address behind it; two literals carry the distance from there, 64 bits in halves."""
    ir = (
        "@t = internal addrspace(4) constant [4 x i32] [i32 4, i32 9, i32 77, i32 8]\n"
        "define amdgpu_cs void @f(ptr addrspace(1) inreg %p, i32 inreg %k) #0 {\n"
        "  %q = getelementptr i32, ptr addrspace(4) @t, i32 %k\n  %r = load i32, ptr addrspace(4) %q\n"
        "  store i32 %r, ptr addrspace(1) %p\n  ret void\n}\n"
    )
    (image,) = Compiler().compile([Module("m", ir + GPU, TARGETS["gfx1201"], ("f",))])
    assert image.meta["constants"] is True
    words = struct.unpack(f"<{len(image.code) // 4}I", image.code)
    getpc = next(i for i, w in enumerate(words) if w & 0xFF80FFFF == 0xBE804700)
    low = next(i for i, w in enumerate(words) if i > getpc and w & 0xFF80FF00 == 0x8000FF00)
    high = next(i for i, w in enumerate(words) if i > low and w & 0xFF80FF00 == 0x8200FF00)
    at = 4 * (getpc + 1) + words[low + 1] + (words[high + 1] << 32)
    assert struct.unpack_from("<4I", image.code, at) == (4, 9, 77, 8)
    assert at % 64 == 0
    assert at >= image.meta["sizes"]["f"]


def test_no_builtins_keeps_the_loop() -> None:
    ir = REFUSED["memset"][0].replace("%n) {", "%n) #0 {") + '\nattributes #0 = { "no-builtins" }\n'
    buffer = ctypes.create_string_buffer(b"x" * 40)
    code = compiled(ir, "f").load()
    function(code, "f", None, ctypes.c_void_p, ctypes.c_int64)(ctypes.addressof(buffer), 30)
    assert buffer.raw == bytes(30) + b"x" * 10 + b"\0"


@pytest.mark.parametrize("opt", [0, 2])
def test_aarch64_addresses_lead_to_the_constants(opt: int) -> None:
    """Follow every ADRP and the instruction that adds its low bits, as the architecture's manual decodes them."""
    image = compiled(CONSTANTS, *CONSTANTS_EXPORTS, target=TARGETS["aarch64"], opt=opt)
    code_end = max(
        image.entries[name] + image.meta["sizes"][name] for name in image.meta["sizes"] if name in image.entries
    )
    words = struct.unpack(f"<{code_end // 4}I", image.code[: code_end // 4 * 4])
    pages: dict[int, int] = {}
    found = set()
    for place, word in enumerate(words):
        if word & 0x9F000000 == 0x90000000:  # ADRP
            distance = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
            pages[word & 31] = ((place * 4) & ~0xFFF) + ((distance ^ 1 << 20) - (1 << 20)) * 4096
        elif (base := word >> 5 & 31) in pages:
            scale = None
            if word & 0xFF800000 == 0x91000000:  # ADD (immediate)
                scale = 0
            elif word & 0x3B000000 == 0x39000000:  # LDR (immediate, unsigned offset)
                scale = word >> 30 | (word >> 21 & 4 if word >> 26 & 1 else 0)
            if scale is not None:
                found.add(pages.pop(base) + ((word >> 10 & 0xFFF) << scale))
    tables = [struct.pack("<3q", *LONGS), struct.pack("<4i", *WORDS), struct.pack("<4h", *SHORTS), BYTES]
    for table in tables:
        assert any(image.code[at : at + len(table)] == table or at == image.code.find(table) for at in found), table
    assert all(code_end <= at < len(image.code) or at == image.entries["pick"] for at in found)


@pytest.mark.parametrize(
    ("kind", "instruction", "place", "target", "patched"),
    [  # encoded by the architecture's manual, and read back with an independent disassembler
        (283, 0x94000000, 0x100, 0x40, 0x97FFFFD0),  # bl .-0xc0
        (282, 0x14000000, 0x40, 0x100, 0x14000030),  # b .+0xc0
        (280, 0x54000000, 0x40, 0x50, 0x54000080),  # b.eq .+0x10
        (279, 0x36000000, 0x40, 0x30, 0x3607FF80),  # tbz w0, #0, .-0x10
        (274, 0x10000000, 0x40, 0x43, 0x70000000),  # adr x0, .+3
        (275, 0x90000000, 0x40, 0x5123, 0xB0000020),  # adrp x0, .+0x5000
        (277, 0x91000000, 0x40, 0x5123, 0x91048C00),  # add x0, x0, #0x123
        (286, 0xF9400000, 0x40, 0x5128, 0xF9409400),  # ldr x0, [x0, #0x128]
        (299, 0x3DC00000, 0x40, 0x5130, 0x3DC04C00),  # ldr q0, [x0, #0x130]
    ],
)
def test_aarch64_fields(kind: int, instruction: int, place: int, target: int, patched: int) -> None:
    code = bytearray(0x200)
    struct.pack_into("<I", code, place, instruction)
    assert apply(code, "aarch64", kind, place, target)
    assert code[place : place + 4].hex() == struct.pack("<I", patched).hex()
    assert not any(code[:place])
    assert not any(code[place + 4 :])


@pytest.mark.parametrize(
    ("arch", "kind", "target"),
    [("x86_64", 2, 1 << 31), ("aarch64", 283, 1 << 27), ("aarch64", 283, 2), ("aarch64", 275, 1 << 33)],
)
def test_distances_that_do_not_fit(arch: str, kind: int, target: int) -> None:
    with pytest.raises(CompileError, match=f"a distance of {target >> (12 if kind == 275 else 0)} bytes"):
        apply(bytearray(8), arch, kind, 0, target)


def test_misaligned_low_bits() -> None:
    with pytest.raises(CompileError, match="offset 4 is not a multiple of 8"):
        apply(bytearray(8), "aarch64", 286, 0, 4)


@pytest.fixture(scope="module")
def object_file() -> bytes:
    """What LLVM writes for the constants, before linking."""
    request = _request(Module("constants", CONSTANTS, AVX2, CONSTANTS_EXPORTS), disassemble=False)
    (answer,) = run_jobs([({**request, "cpu_seconds": 60}, CONSTANTS.encode())], 1, 60.0)
    assert isinstance(answer, JobResult)
    return answer.payload


@given(data=st.data())
def test_damaged_objects_raise_nothing_else(object_file: bytes, data: st.DataObject) -> None:
    damaged = bytearray(object_file)
    for _ in range(data.draw(st.integers(1, 4))):
        # The tables at the end matter more than the code.
        place = data.draw(st.integers(0, 63) | st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    try:
        linked = link(
            bytes(damaged[: data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))]), "x86_64", ("sum",)
        )
    except CompileError:
        return
    assert len(linked.code) % 64 == 0


def test_an_object_for_another_machine_is_refused(object_file: bytes) -> None:
    with pytest.raises(CompileError, match="no relocatable little-endian ELF64 for aarch64"):
        link(object_file, "aarch64", ())
