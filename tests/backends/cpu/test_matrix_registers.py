"""Products in matrix registers, their instructions replaced by vectors: the same bits as without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from zinc_rt.backends.cpu import selftest
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.formats import table
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu import layout, matrix
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.compiler import Compiler
from zinc_rt.lang.frontend import Spec, emit_module
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import TARGETS, host_targets

QUANTIZED = [GGMLType[f.name] for f in table.quantized()]


def library() -> Library:
    usable = [t for t in host_targets() if "vnni" in t.isa]
    if not usable:
        pytest.skip("the path needs 512-bit vectors with byte dot products")
    return Library(usable[-1], CompileCache(default_cache_dir()))


@pytest.mark.parametrize("kind", QUANTIZED, ids=lambda k: k.name)
def test_sixteen_rows_at_once_are_the_same_bits(kind: GGMLType, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = library()
    emulated = replace(TargetTuning.of(lib.target), tiles="emulated")
    for n_out, n_in in ((16, 256), (33, 768), (20, 3328)):
        monkeypatch.setattr(selftest, "_N_OUT", n_out)
        monkeypatch.setattr(selftest, "_N_IN", n_in)
        assert selftest.matrix_products_agree(lib, emulated, kind)


def test_the_self_test_sees_a_wrong_product(monkeypatch: pytest.MonkeyPatch) -> None:
    lib = library()
    original = selftest._product

    def off_by_one(*arguments: object) -> np.ndarray:
        y = original(*arguments)  # type: ignore[arg-type]
        if len(y) == layout.BLOCK_ROWS:
            y[3, 5] = np.nextafter(y[3, 5], np.float32(np.inf))
        return y

    monkeypatch.setattr(selftest, "_product", off_by_one)
    assert not selftest.matrix_products_agree(
        lib, replace(TargetTuning.of(lib.target), tiles="emulated"), GGMLType.Q4_0
    )


def test_rows_beyond_the_scratch_fall_back() -> None:
    assert matrix.QUARTET_GROUPS * 8 == matrix.MAX_GROUPS
    lanes = [sum(1 for g in range(matrix.MAX_GROUPS) if g % 32 == lane) for lane in range(32)]
    assert max(sum(lanes[(q + step) % 32] for step in matrix.LANE_STEPS) for q in range(8)) <= matrix.QUARTET_GROUPS


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q6_K], ids=lambda k: k.name)
def test_amx_code_uses_the_instructions(kind: GGMLType) -> None:
    target = TARGETS["amx"]
    function, constants = TargetTuning.of(target).matmul(kind)
    (image,) = Compiler().compile([emit_module("matmul", [Spec(function, constants)], target)], disassemble=True)
    text = image.meta["assembly"]
    for mnemonic in ("ldtilecfg", "tilezero", "tileloadd", "tdpbsud", "tilestored", "tilerelease", "vpdpbusd"):
        assert mnemonic in text
