"""DPP16 and DPP8 for every control: lanes that are off, masks of rows and banks, bounds; waves of both sizes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from amdgpu_emu.core.state import EXEC, VCC
from tests.amdgpu_emu.core.defined.harness import perform
from tests.amdgpu_emu.core.one import Encoding, Instruction, Operand, OperandKind, group, vgpr

HOLES = 0xF3A5_0FF7_5BD9_36EB


def source(control: int, lane: int) -> int | None:
    """The lane that is read; None where the row ends (RDNA 4 ISA, DPP_CTRL)."""
    row, at = lane & ~15, lane & 15
    if control < 0x100:
        return lane & ~3 | control >> 2 * (lane & 3) & 3
    n = control & 15
    found = {
        0x10: at + n,
        0x11: at - n,
        0x12: (at - n) % 16,
        0x14: 15 - at if n == 0 else at ^ 7,
        0x15: n,
        0x16: at ^ n,
    }[control >> 4]
    return row + found if 0 <= found < 16 else None


CONTROLS = (
    0x00, 0x1B, 0xE4, 0xB1, 0x4E, 0xFF, 0x93, *range(0x101, 0x110, 3), *range(0x111, 0x120, 3), *range(0x121, 0x130, 3),
    0x140, 0x141, *range(0x150, 0x160, 4), *range(0x160, 0x170, 3),
)  # fmt: skip


def wanted(lane: int, read: int | None, mask: int, how: dict[str, int]) -> int | None:
    """What a lane reads: a number of the lane, 0, or None where it does not write at all."""
    rows = how.get("row_mask", 15) >> (lane >> 4) & how.get("bank_mask", 15) >> (lane >> 2 & 3) & 1
    if not mask >> lane & 1 or not rows:
        return None
    valid = read is not None and (mask >> read & 1 or how["fi"])
    if valid:
        return 100 + read
    return 0 if how["bound_ctrl"] else None


@pytest.mark.parametrize("lanes", [32, 64])
def test_dpp16(lanes: int) -> None:
    for control, bound, fi, (rows, banks) in product(CONTROLS, (0, 1), (0, 1), ((15, 15), (5, 15), (15, 6), (10, 9))):
        how = {"dpp_ctrl": control, "row_mask": rows, "bank_mask": banks, "bound_ctrl": bound, "fi": fi}
        g = group(2, lanes)
        g.put(1, 100 + np.arange(lanes, dtype=np.uint32))
        g.put(0, np.uint32(7))
        masks = (HOLES & (1 << lanes) - 1, (1 << lanes) - 1)
        for k in range(2):
            g.put_s(EXEC + k, np.array([m >> 32 * k & 0xFFFFFFFF for m in masks], np.uint32))
        perform(g, Instruction(0, 8, Encoding.VOP2, "v_add_nc_u32", (vgpr(0),), (vgpr(1), vgpr(1)), how))
        for w, mask in enumerate(masks):
            got = g.v[0][w].tolist()
            for lane in range(lanes):
                found = wanted(lane, source(control, lane), mask, how)
                want = 7 if found is None else found + 100 + lane
                assert got[lane] == want, (hex(control), bound, fi, rows, banks, lane)


@pytest.mark.parametrize("lanes", [32, 64])
def test_dpp8(lanes: int) -> None:
    """Lanes that are off give 0, or with fi what they hold."""
    rng = np.random.default_rng(8)
    for fi, _ in product((0, 1), range(12)):
        picks = [int(x) for x in rng.integers(0, 8, 8)]
        g = group(1, lanes)
        g.put(1, 100 + np.arange(lanes, dtype=np.uint32))
        g.put(0, np.uint32(7))
        for k in range(2):
            g.put_s(EXEC + k, np.uint32(HOLES >> 32 * k & 0xFFFFFFFF))
        how = {"dpp8": sum(p << 3 * i for i, p in enumerate(picks)), "fi": fi}
        perform(g, Instruction(0, 8, Encoding.VOP1, "v_mov_b32", (vgpr(0),), (vgpr(1),), how))
        for lane in range(lanes):
            read = lane & ~7 | picks[lane & 7]
            want = 7 if not HOLES >> lane & 1 else 100 + read if fi or HOLES >> read & 1 else 0
            assert g.v[0][0][lane] == want


@pytest.mark.parametrize("lanes", [32, 64])
def test_masks_with_dpp(lanes: int) -> None:
    """A comparison's bits of lanes that do not take part are 0; v_cmpx narrows EXEC to those that do."""
    for bound, rows in product((0, 1), (15, 6)):
        how = {"dpp_ctrl": 0x113, "row_mask": rows, "bank_mask": 15, "bound_ctrl": bound, "fi": 0}
        for name, kind in (("v_cmp_le_u32", OperandKind.VCC), ("v_cmpx_le_u32", OperandKind.EXEC)):
            g = group(1, lanes)
            g.put(1, 100 + np.arange(lanes, dtype=np.uint32))
            g.put(2, np.uint32(110))
            for k in range(2):
                g.put_s(EXEC + k, np.uint32(HOLES >> 32 * k & 0xFFFFFFFF))
            dst = Operand(kind, 0, lanes // 32, bits=lanes)
            perform(g, Instruction(0, 8, Encoding.VOPC, name, (dst,), (vgpr(1), vgpr(2)), how))
            got = g.bits(VCC if kind is OperandKind.VCC else EXEC)[0].tolist()
            for lane in range(lanes):
                found = wanted(lane, source(0x113, lane), HOLES, how)
                assert got[lane] == (found is not None and found <= 110), (name, bound, rows, lane)
