"""The table: its records against ggml's sizes and the numerics contract, and the lists that are derived from it."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.formats import grids as written
from tests.gguf.judge import SIZES
from tests.kernels.material import OF_EACH_KIND
from zinc_rt.formats import grids, table
from zinc_rt.formats.kinds import CodeLayout, Scale, Signs
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import SUPPORTED, GGMLType
from zinc_rt.ir.dtype import DType
from zinc_rt.kernels.cpu import layout
from zinc_rt.kernels.gpu import catalogue
from zinc_rt.numerics import GROUP

ROOT = Path(__file__).parents[2]
NAMES = tuple(FORMATS)
SMALL_SCALES = {
    Scale.SIX_BIT: 12,
    Scale.INT8_HALVES: 16,
    Scale.SIX_BIT_SIGNED: 6,
    Scale.SIX_BIT_HALVES: 12,
    Scale.FOUR_BIT_HALVES: 16,
    Scale.ODD_NIBBLES: 4,
    Scale.ODD_HALVES: 8,
    Scale.ODD_THREES: 8,
}
"""Bytes of the small scales of a block."""
each = pytest.mark.parametrize("f", FORMATS.values(), ids=NAMES)


@each
def test_a_record_says_what_ggml_says(f: Format) -> None:
    assert (f.block, f.block_bytes) == SIZES[GGMLType[f.name]]


@each
def test_the_parts_of_a_block_fill_it(f: Format) -> None:
    """Every byte belongs to one part."""
    if not f.quantized:
        return
    bits = 8 if f.kind == CodeLayout.BYTES else f.low_bits if f.grid is None else 0
    parts = [(f.q, 52 if f.kind == CodeLayout.TRITS else f.block * bits // 8), *((at, 2) for at in f.halves)]
    if f.high is not None:
        parts.append((f.high, f.block * f.high_bits // 8))
    if f.scales is not None:
        parts.append((f.scales, SMALL_SCALES[Scale(f.scale)]))
    if f.scale in (Scale.POWER_OF_TWO, Scale.E4M3_HALVES):
        parts.append((f.d, 2 * f.groups if f.scale == Scale.E4M3_HALVES else 1))
    if f.grid is not None:
        n = GROUP // f.grid.width * (2 if f.grid.signs == Signs.IN_INDEX else 1)
        parts += [(f.q + g * f.grid.step, n) for g in range(f.groups)]
        if f.kind == CodeLayout.SHIFTED_GRID:
            assert f.grid.high is not None
            parts.append((f.grid.high, 2 * f.groups))
        elif f.grid.signs != Signs.IN_INDEX:
            parts += [(f.grid.sign_place + g * f.grid.sign_step, 4) for g in range(f.groups)]
        if f.kind == CodeLayout.GRID and f.grid.high is not None:
            assert GROUP // f.grid.width * f.grid.high_bits == 8
            parts.append((f.grid.high, f.groups))
    used = [at + i for at, n in parts for i in range(n)]
    assert sorted(used) == list(range(f.block_bytes))


@each
def test_integers_fit_the_contract(f: Format) -> None:
    if f.quantized:
        assert -128 <= f.integers[0] <= f.integers[1] <= 127
        assert f.largest_sum < 1 << 24
    else:
        with pytest.raises(ValueError, match="no integers"):
            _ = f.integers


def test_the_tables_of_vectors_are_those_of_the_package() -> None:
    assert (ROOT / "zinc_rt/formats/grids.py").read_text(encoding="utf-8") == written.module()
    tables = {f.grid.table for f in FORMATS.values() if f.grid is not None}
    assert set(grids.PACKED) == tables
    for name, packed in grids.PACKED.items():
        theirs = gguf.quants._type_traits[gguf.GGMLQuantizationType[name]]
        theirs.init_grid()
        sizes = np.array(packed.words(), "<u4").view(np.uint8).reshape(packed.entries, packed.width)
        least = min(0, *theirs.grid_map)
        assert (sizes == theirs.grid.reshape(theirs.grid_shape) - least).all()
        grid = FORMATS[name].grid
        assert grid is not None
        assert (grid.width, grid.peak) == (packed.width, sizes.max())
        assert sizes.min() > 0 or FORMATS[name].kind == CodeLayout.SHIFTED_GRID, "kernels negate no bytes of zero"
        assert packed.entries == 256 << grid.index_bits


def test_every_list_is_the_tables() -> None:
    quantised = tuple(f.name for f in table.quantized())
    floats = tuple(f.name for f in table.floats())
    assert (*floats, *quantised) == NAMES
    assert tuple(t.name for t in SUPPORTED) == NAMES
    assert {t.name for t in GGMLType if t.supported} == set(NAMES)
    assert {d.name for d in DType} == {*NAMES, "I32"}
    assert all(DType.of(GGMLType[name]).ggml is GGMLType[name] for name in NAMES)
    assert set(layout.TILES) == set(NAMES)
    assert (floats, quantised) == (catalogue.FLOATS, catalogue.QUANTIZED)
    assert {f"{what}_{name.lower()}" for what in ("matvec", "embed") for name in NAMES} <= set(catalogue.DECODE)


@pytest.mark.parametrize("page", ["README.md", "docs/how/gguf.md", "docs/use/models.md"])
def test_pages_list_the_formats_of_the_table(page: str) -> None:
    """The first run of names of ggml's types, in the table's order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    name = "|".join(sorted(GGMLType.__members__, key=len, reverse=True))
    found = re.search(rf"\b(?:{name})(?:,?\s+(?:{name})\b){{5,}}", text)
    assert found is not None
    assert tuple(re.findall(rf"{name}", found[0])) == NAMES


def test_numerics_md_has_a_formula_for_every_quantised_format() -> None:
    text = (ROOT / "docs/how/numerics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:I?Q|TQ|MX|NV)[\w, ]+) \| `", text, re.M)
    assert sorted(n for row in rows for n in row.split(", ")) == sorted(f.name for f in table.quantized())


def test_extending_md_names_files_that_exist() -> None:
    text = (ROOT / "docs/how/extending.md").read_text(encoding="utf-8").split("## A block format")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) >= 9
    for row in rows:
        last = Path()
        for file in re.findall(r"`([\w/.]+)`", row):
            last = Path(file) if "/" in file else last.parent / file
            assert (ROOT / last).is_file(), last


def test_the_table_of_gguf_md_is_this_one() -> None:
    """A row a format: its kind of integers and of scales, and the bytes of its block."""
    text = (ROOT / "docs/how/gguf.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| `(\w+)` \| `(\w+)` \|", text, re.M)
    assert rows == [
        (f.name, str(f.block), str(f.block_bytes), CodeLayout(f.kind).name, Scale(f.scale).name)
        for f in table.quantized()
    ]


def test_each_kind_of_format_has_products_by_default() -> None:
    ways = {f.name: (f.kind, f.scale, f.minimum is not None) for f in table.quantized()}
    assert {ways[name] for name in OF_EACH_KIND if name in ways} == set(ways.values())
