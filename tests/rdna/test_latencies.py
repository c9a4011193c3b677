"""How many latencies lie one behind the other in the loops that move most bytes."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rdna.latencies import depth, loops, main_loop
from tests.rdna.listing import compiled, kernels
from zinc_rt.kernels.rdna.catalogue import QUANTIZED, attention_kernel, gated_experts, gated_rows, matvec_rows
from zinc_rt.lang import GpuKernel

GRIDS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
"""Formats whose weights are places in a table, which is a second way to memory."""
BLOCKS = {f"{kind} {rows}": matvec_rows(kind, rows) for kind, rows in (
    ("Q8_0", 2), ("Q4_0", 4), ("Q8_0", 8), ("Q4_0", 8), ("Q4_K", 8), ("Q5_K", 8), ("Q6_K", 8), ("MXFP4", 8), ("F16", 8),
)}  # fmt: skip
OTHERS = {
    "experts": gated_experts("Q4_K", "Q4_K", packed=True, bias=False, activation="silu"),
    "mixed": gated_rows("Q4_K", "Q6_K", 8, packed=True, bias=True, activation="silu"),
    "attention": attention_kernel(128, 4, sinks=True),
    "attention of blocks": attention_kernel(256, 2, quantized=True),
}


@cache
def made() -> dict[str, GpuKernel]:
    """All of these, compiled once."""
    return compiled({**BLOCKS, **OTHERS})


def _code(text: str) -> list[Any]:
    """Instructions of a program: names, with the number of a wait."""
    words = (part.split() for part in text.split(";"))
    return [SimpleNamespace(name=w[0], modifiers={"simm16": int(w[1]) if len(w) > 1 else 0}) for w in words]


@pytest.mark.parametrize(
    ("program", "latencies"),
    [
        ("global_load_b128; global_load_b32; s_wait_loadcnt 1; s_wait_loadcnt 0", 1),
        ("global_load_b128; s_wait_loadcnt 0; global_load_b32; s_wait_loadcnt 0", 2),
        # The second wait is for a load that was asked for before the first one ended.
        ("global_load_b128; global_load_b128; s_wait_loadcnt 1; global_load_b32; s_wait_loadcnt 1", 1),
        # Loads for the next turn.
        ("s_wait_loadcnt 0; global_load_b128", 1),
        ("global_load_b128; s_load_b64; s_wait_kmcnt 0; s_wait_loadcnt_dscnt 0; v_add_f32", 1),
        ("v_add_f32; s_wait_loadcnt 0", 0),
    ],
)
def test_latencies_of_a_turn(program: str, latencies: int) -> None:
    assert depth(_code(program), "loadcnt") == latencies


@pytest.mark.parametrize("kind", QUANTIZED)
def test_one_row_waits_once(kind: str) -> None:
    found = loops(kernels()[f"matvec_{kind.lower()}"])
    assert [loop.latencies for loop in found] == [2 if kind in GRIDS else 1] * 2
    assert found[0].loads == 2 * found[1].loads


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_a_row_of_floats_waits_once(kind: str) -> None:
    assert main_loop(kernels()[f"matvec_{kind}"]).latencies == 1


@pytest.mark.parametrize("name", BLOCKS)
def test_rows_of_a_block_wait_once(name: str) -> None:
    """Of eight rows of floats registers do not hold all: two parts of a group."""
    kernel = made()[name]
    assert main_loop(kernel).latencies == (2 if name == "F16 8" else 1)
    assert kernel.scratch_bytes == 0
    assert kernel.occupancy >= 6


def test_a_turn_of_a_block_has_four_rows_of_weights() -> None:
    loop = main_loop(made()["Q8_0 8"])
    assert loop.count("v_dot4_i32_iu8") == 4 * 8 * 8
    assert loop.count("global_load_b128") == 2 * (4 + 8), "activations once for all four"
    assert loop.count("v_add_co_u32") == 0, "addresses are a base and an offset"


def test_gate_and_up_are_loaded_together() -> None:
    assert [loop.latencies for loop in loops(made()["experts"])] == [1, 1]
    mixed = made()["mixed"]
    assert {loop.latencies for loop in loops(mixed)} == {2}, "four rows of activations at a time"
    assert (mixed.scratch_bytes, mixed.occupancy) == (0, 8)


def test_keys_come_by_whole_lines() -> None:
    floats, blocks = (loops(made()[name])[0] for name in ("attention", "attention of blocks"))
    assert (floats.latencies, floats.count("global_load_b128")) == (1, 8)
    assert (blocks.latencies, blocks.count("global_load_b128")) == (1, 8)
    assert made()["attention"].occupancy == 16
