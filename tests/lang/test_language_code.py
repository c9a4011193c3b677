"""What the language becomes: IR without liberties, the right instructions, and every target compiles."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.compiled import images, listing
from tests.lang import arith_kernels, control_kernels, value_kernels
from tests.lang import code_kernels as k
from tests.lang.levels import LEVELS
from zinc_rt.lang import TARGETS, Spec, Target, bf16, emit_module, f16, f32, f64, i8, i16, u8, u64
from zinc_rt.lang.lower import LOWERINGS
from zinc_rt.lang.ops import WORDS

CPUS = [t for t in TARGETS.values() if t.arch != "amdgcn"]
ELSEWHERE = [t for t in TARGETS.values() if t.name not in LEVELS]


def text(target: Target, function: object, **constants: object) -> str:
    return listing(Spec(function, constants), target)  # type: ignore[arg-type]


SAMPLE = [
    *(Spec(arith_kernels.int_ops, {"T": t, "W": 8}) for t in (i16, u64)),
    *(Spec(arith_kernels.float_ops, {"T": t, "W": 8}) for t in (f32, f64)),
    *(Spec(arith_kernels.convert, {"S": s, "W": 8}) for s in (f32, f64, bf16, f16, u64)),
    *(Spec(value_kernels.copies, {"T": t}) for t in (u8, bf16)),
    *(Spec(value_kernels.rearranged, {"T": t, "N": 6}) for t in (f16, f64)),
    *(Spec(value_kernels.dots, {"T": t, "BOUND": b}) for t, b in value_kernels.BOUNDS),
    Spec(value_kernels.reductions, {"T": f32}),
    *(Spec(f) for f in (value_kernels.masks, value_kernels.fields, value_kernels.arrays, value_kernels.aligned)),
    *(Spec(f) for f in (control_kernels.helpers, control_kernels.unrolled, control_kernels.exchanges)),
]


def soon(targets: list[Target]) -> list[Any]:
    """Parameters: AVX2 and 64-bit Arm by default, the other targets where slow tests run."""
    names = ("avx2", "aarch64")
    return [pytest.param(t, id=t.name, marks=() if t.name in names else pytest.mark.slow) for t in targets]


@pytest.mark.parametrize("target", soon(ELSEWHERE))
def test_every_target_compiles_what_cannot_run_here(target: Target) -> None:
    groups = [SAMPLE[i::2] for i in range(2)]
    made = images([emit_module(f"sample {i}", group, target) for i, group in enumerate(groups)])
    for group, image in zip(groups, made, strict=True):
        assert set(image.entries) == {spec.symbol for spec in group}


def test_the_ir_takes_no_liberties() -> None:
    specs = [*SAMPLE, Spec(k.products_and_sums), Spec(k.fused), Spec(k.halves)]
    for target in (TARGETS["avx2"], TARGETS["gfx1201"]):
        ir = emit_module("all", specs, target).ir
        for line in ir.splitlines():
            if re.search(r"= (fadd|fsub|fmul|fdiv|fneg|fcmp|call (float|double|<))", line):
                assert not re.search(r"\b(fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)\b", line), line
        assert "fmuladd" not in ir
        assert not re.search(r"fp-math|denormal|unsafe", ir)
        # Only counts of loops are known not to overflow.
        for line in re.findall(r".*\b(?:nsw|nuw|exact|inbounds)\b.*", ir):
            assert re.fullmatch(r"  %i\d+ = (add|sub) (nsw|nuw) i\d+ %i\d+, -?\d+", line), line


@pytest.mark.parametrize("target", soon(CPUS))
def test_products_and_sums_are_not_contracted(target: Target) -> None:
    fused = r"\b(vfn?m(add|sub)\w*|fn?m(add|sub|la|ls)\b|fmla|fmls)"
    code = text(target, k.products_and_sums)
    assert not re.search(fused, code)
    assert "mulp" in code or "fmul" in code
    assert re.search(fused, text(target, k.fused))


def test_products_and_sums_are_not_contracted_on_a_gpu() -> None:
    gpu = TARGETS["gfx1201"]
    code = text(gpu, k.sums_without_quotients)
    assert not re.search(r"\b[sv]_\w*(fma|mad_f|mac_f)", code)
    assert re.search(r"\b[sv]_\w*mul_f", code)
    assert re.search(r"v_\w*fma", text(gpu, k.fused))


@pytest.mark.parametrize("level", ["avx2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("avx512", "amx"))])
def test_halves_round_in_the_nearest_even_mode_and_keep_subnormals(level: str) -> None:
    code = text(TARGETS[level], k.halves)
    # 0: to nearest even, by the instruction; 4: by the control register, whose default is the same.
    assert re.search(r"vcvtps2ph\s+\$[04],|vcvtps2phx\s", code)
    assert "vcvtph2ps" in code
    assert "bf16" not in code.replace("halves", "")  # vcvtneps2bf16 flushes subnormals
    assert not re.search(r"\b(call|bl)\b", code)


@pytest.mark.slow  # which instructions one compiler chooses; results have tests of their own
@pytest.mark.parametrize(
    ("target", "kind", "n", "bound", "instruction"),
    [
        ("avx2", u8, 8, 127, "vpmaddubsw"),
        ("avx2", u8, 8, 255, "vpmaddwd"),
        ("avx2", i8, 8, 255, "vpsignb"),
        ("avx512", u8, 16, 128, r"vpmaddubsw.*zmm"),
        ("avx512", u8, 16, 255, r"vpmaddwd.*zmm"),
        ("avxvnni", u8, 8, 255, r"vpdpbusd.*ymm"),
        ("avx512vnni", u8, 16, 255, r"vpdpbusd.*zmm"),
        ("avx512vnni", u8, 48, 255, r"vpdpbusd.*zmm"),
        ("avx512vnni", i8, 16, 255, r"vpdpbusd.*zmm"),
        ("avx512vnni", u8, 2, 255, r"vpdpbusd.*xmm"),
        ("aarch64-dotprod", i8, 4, 255, r"\bsdot\b"),
        ("aarch64-dotprod", u8, 8, 127, r"\bsdot\b"),
        ("aarch64-dotprod", u8, 4, 255, r"\bsdot\b"),
        ("aarch64", i8, 4, 255, r"\bsmull2?\b"),
        ("aarch64", u8, 8, 127, r"\bsadalp\b"),
        ("aarch64", u8, 4, 255, r"\bsmull2?\b"),
        ("aarch64-i8mm", u8, 4, 255, r"\busdot\b"),
        ("gfx1201", u8, 1, 255, r"v_dot4_i32_iu8.*neg_lo:\[0,1,0\]"),
        ("gfx1201", i8, 4, 255, r"v_dot4_i32_iu8.*neg_lo:\[1,1,0\]"),
    ],
)
def test_dot_products_use_the_targets_instruction(
    target: str, kind: object, n: int, bound: int, instruction: str
) -> None:
    code = text(TARGETS[target], k.dot, T=kind, N=n, BOUND=bound)
    assert re.search(instruction, code)


@pytest.mark.slow  # likewise
@pytest.mark.parametrize(
    ("target", "n", "instruction"),
    [
        ("avx2", 32, r"vpshufb.*ymm"),
        ("avx2", 8, r"vpshufb.*xmm"),
        ("avx512vnni", 64, r"vpshufb.*zmm"),
        ("amx", 128, r"vpshufb.*zmm"),
        ("aarch64-dotprod", 16, r"\btbl\b"),
        ("aarch64", 32, r"\btbl\b"),
        ("gfx1201", 4, "v_perm_b32"),
        ("gfx1100", 8, "v_perm_b32"),
    ],
)
def test_lookups_use_the_targets_byte_shuffle(target: str, n: int, instruction: str) -> None:
    code = text(TARGETS[target], k.lookup, N=n)
    assert re.search(instruction, code)


def test_hints_reach_the_machine() -> None:
    code = text(TARGETS["avx2"], k.hints)
    for instruction in (
        r"prefetchnta\s+4096\(",
        r"prefetcht0\s+8192\(",
        r"vmovaps\s+\(%rdi\), %ymm",
        r"vmovntps\s+%ymm",
    ):
        assert re.search(instruction, code), instruction
    code = text(TARGETS["aarch64"], k.hints)
    assert "prfm\tpldl1strm" in code
    assert "prfm\tpldl1keep" in code


def test_orders_reach_the_machine() -> None:
    code = text(TARGETS["avx2"], k.orders)
    assert re.search(r"lock\s+(;\s*)?xaddl", code)
    assert re.search(r"mfence|lock\s+orl", code)  # either orders non-temporal stores, too
    assert "pause" in code
    code = text(TARGETS["aarch64"], k.orders)
    assert all(re.search(rf"\b{word}\b", code) for word in ("ldxr", "stlr", "dmb\tish", "yield"))


@pytest.mark.slow  # likewise
@pytest.mark.parametrize("level", ["avx2", "avx512"])
def test_conversions_to_integers_and_extremes_stay_vectors(level: str) -> None:
    code = text(TARGETS[level], k.quantised)
    assert re.search(r"vcvttps2dq\s+%[yz]mm", code)
    assert not re.search(r"vcvttss2si|vucomiss", code)


@pytest.mark.slow  # likewise
def test_constant_memory_is_read_once() -> None:
    code = text(TARGETS["avx2"], k.unchanging)
    loop = code[code.rindex("vmulss") :]
    assert "8(%rdi)" not in loop, "the pointer is loaded again in the loop"


def test_every_word_is_lowered() -> None:
    missing = {name for name, word in WORDS.items() if word not in LOWERINGS and not name.startswith("tile_")}
    assert not missing


def test_the_package_offers_every_word() -> None:
    from zinc_rt import lang

    for word in WORDS:
        assert word in lang.__all__, f"add {word} to zinc_rt/lang/__init__.py"
    assert all(getattr(lang, name) is not None for name in lang.__all__)
    assert lang.kernel.__module__ == "zinc_rt.lang.kernel"
