"""Products in matrix registers, the registers replaced by memory: the same bits as in vectors."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.backends.cpu.both import LEVELS
from tests.compiled import images
from zinc_rt.backends.cpu import selftest
from zinc_rt.backends.cpu.choice import TargetTuning, Ways
from zinc_rt.backends.cpu.selftest import ProductTrial
from zinc_rt.formats import table
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu.matrix import PRODUCTS
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.frontend import Spec, emit_module
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import TARGETS, host_targets

QUANTIZED = [GGMLType[f.name] for f in table.quantized()]
BOTH = Ways(1, 2)
SIZES = ((16, 256), (33, 768), (20, 3328), (16, 6400))
"""n_out, n_in: lanes without groups; batches of several lanes, of one, of less than one."""


def library() -> Library:
    usable = [t for t in host_targets() if "vnni" in t.isa]
    if not usable:
        pytest.skip("the path needs 512-bit vectors with byte dot products")
    return Library(usable[-1], CompileCache(default_cache_dir()))


def emulated(lib: Library, kind: GGMLType, ways: Ways = BOTH, blocks: tuple[int, ...] = (1,)) -> TargetTuning:
    """blocks: rows that vectors take at once of those that are left; single ones are the least to compile."""
    return replace(TargetTuning.of(lib.target), tiles="emulated", ways=((kind.name, ways),), blocks=blocks)


SOON = ("Q6_K",) if "amx" in LEVELS else ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ2_S", "NVFP4")
"""One of each way to scale; the kernels of the others are compiled in slow tests. Fewer where the machine has such
registers itself, which `test_products.py` tries.
"""


@pytest.mark.parametrize(
    "kind", [pytest.param(k, id=k.name, marks=() if k.name in SOON else pytest.mark.slow) for k in QUANTIZED]
)
def test_matrix_registers_give_the_bits_of_vectors(kind: GGMLType) -> None:
    lib = library()
    tuning = emulated(lib, kind)
    lib.load([tuning.matmul(kind), replace(tuning, ways=()).matmul(kind)])
    for n_out, n_in in SIZES:
        assert ProductTrial(lib, kind, n_out, n_in, selftest.TRIAL_ROWS).agrees(tuning), (n_out, n_in)


def test_rows_come_in_blocks_of_sixteen_where_thirty_two_are_not_wanted() -> None:
    """The rest by as many rows at once as in products, too."""
    lib = library()
    trial = ProductTrial(lib, GGMLType.Q4_0, 20, 1280, selftest.TRIAL_ROWS)
    for ways, blocks in ((Ways(0, 1), TargetTuning.of(lib.target).blocks), (Ways(1, 0), (1,)), (Ways(0, 2), (1,))):
        assert trial.agrees(emulated(lib, GGMLType.Q4_0, ways, blocks)), ways


def test_a_format_without_a_way_gets_the_kernel_of_vectors() -> None:
    tuning = replace(TargetTuning.of(TARGETS["amx"]), ways=(("Q4_0", BOTH),))
    assert tuning.matmul(GGMLType.Q8_0)[1]["TILES"] == ""
    assert tuning.matmul(GGMLType.Q4_0)[1]["TILES"] == "amx"
    mixed = tuning.expert_gate_up(GGMLType.Q4_0, GGMLType.Q8_0)[1]
    assert (mixed["TILES"], mixed["FEW"], mixed["MANY"]) == ("", 0, 0)


def test_the_trial_sees_a_wrong_product(monkeypatch: pytest.MonkeyPatch) -> None:
    lib = library()
    original = ProductTrial.product

    def off_by_one(self: ProductTrial, choice: TargetTuning, rows: int) -> np.ndarray:
        y = original(self, choice, rows)
        if choice.ways and rows > 16:
            y[35, 5] = np.nextafter(y[35, 5], np.float32(np.inf))
        return y

    trial = ProductTrial(lib, GGMLType.Q4_0, 20, 1280, selftest.TRIAL_ROWS)
    assert trial.agrees(emulated(lib, GGMLType.Q4_0))
    monkeypatch.setattr(ProductTrial, "product", off_by_one)
    assert not trial.agrees(emulated(lib, GGMLType.Q4_0))


@pytest.mark.slow  # registers as one compiler hands them out
@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q6_K], ids=lambda k: k.name)
def test_amx_code_uses_all_registers(kind: GGMLType) -> None:
    target = TARGETS["amx"]
    function, constants = replace(TargetTuning.of(target), ways=((kind.name, BOTH),)).matmul(kind)
    (image,) = images([emit_module("matmul", [Spec(function, constants)], target)], disassemble=True)
    text = image.meta["assembly"]
    for mnemonic in ("ldtilecfg", "tilezero", "tileloadd", "tilestored", "tilerelease", "vpdpbusd"):
        assert mnemonic in text
    # Each turn makes four products, for 16 rows and for 32, and keeps each once.
    products = re.findall(r"tdpbssd\s+%tmm(\d), %tmm(\d), %tmm(\d)", text)
    assert sorted(int(acc) for *_, acc in products) == sorted([0, 1, 2, 3] * 2)
    assert {int(x) for _, x, _ in products} | {int(w) for w, *_ in products} == {4, 5, 6, 7}
    assert len(re.findall(r"tilestored", text)) == len(products) == 2 * PRODUCTS // 4
