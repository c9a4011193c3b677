"""The scalar unit's results and SCC against their definitions: special and random numbers, registers and constants."""

from __future__ import annotations

import inspect
from itertools import product

import numpy as np
import pytest

from tests.amdgpu_emu.core.defined import scalars  # noqa: F401
from tests.amdgpu_emu.core.defined.harness import DEFINED, OPCODES, equal, final, run_scalar
from tests.amdgpu_emu.core.defined.values import choices
from tests.amdgpu_emu.core.one import INTEGERS32, SPECIAL32, SPECIAL64, Encoding, rows

SCALARS = [n for n in DEFINED if OPCODES[n][0] in (Encoding.SOP1, Encoding.SOP2, Encoding.SOPC, Encoding.SOPK)]


@pytest.mark.parametrize("name", SCALARS)
def test_scalars(name: str) -> None:
    form, op = OPCODES[name]
    constants = (0, 1, -1, 0x7FFF, -0x8000) if form is Encoding.SOPK else (0x3FC00000, 0xFF800000, 0x80000001)
    kinds = [t for t in op.src if t.place != "k" and t.kind != "imm"]
    if kinds:
        every = [choices(name, t, k) for k, t in enumerate(kinds)]
        seed = len(name)
        columns = [list(c) for c in rows(range(max(map(len, every))), len(kinds), 16, seed, limit=500, random=0)]
        columns = [[every[k][i % len(every[k])] for i in column] for k, column in enumerate(columns)]
        rng = np.random.default_rng(seed)
        columns = [
            c + [int(x) & (1 << t.bits) - 1 for x in rng.integers(0, 1 << 63, 60)]
            for c, t in zip(columns, kinds, strict=True)
        ]
        if "bfe" in name:  # offset and width
            columns[1] = [x & 63 | (x >> 7 & 127) << 16 for x in columns[1]]
    else:
        columns = []
    count = len(columns[0]) if columns else len(INTEGERS32)
    scc = [k % 2 for k in range(count)]
    special = (*SPECIAL32, *INTEGERS32, *SPECIAL64)
    old = [special[7 * k % len(special)] for k in range(count)]
    for constant in constants if form is Encoding.SOPK or len(kinds) < len(op.src) else (0,):
        results = run_scalar(name, columns, scc=scc, old=old, constant=constant)
        check_scalars(name, columns, scc, old, constant, *results)
    if form is Encoding.SOPK:
        return
    for i, literals in product(range(0, count, count // 7), ("0", "1", "01")):
        row = [[c[i] & (1 << t.bits) - 1] for c, t in zip(columns, kinds, strict=True)]
        before = [scc[i]], [old[i]]
        results = run_scalar(name, row, scc=before[0], old=before[1], constant=constants[0], literals=literals)
        check_scalars(name, row, *before, constants[0], *results)


def check_scalars(
    name: str, columns: list[list[int]], scc: list[int], old: list[int], constant: int, got: list[int], flags: list[int]
) -> None:
    _, op = OPCODES[name]
    entry = DEFINED[name]
    wants = inspect.signature(entry.call).parameters
    bits = op.dst[0].bits if op.dst else 32
    for i in range(len(old)):
        values = [c[i] for c in columns]
        for k, t in enumerate(op.src):
            if t.place == "k":
                values.insert(k, constant & (1 << t.bits) - 1)
            if t.kind == "imm":
                values.append(constant)
        given = {k: v for k, v in (("scc", scc[i]), ("old", old[i])) if k in wants}
        result, flag = entry.call(*values, **given)
        where = (name, [hex(v) for v in values], given)
        assert flags[i] == (scc[i] if flag is None else int(flag)), where
        if result is None:
            continue
        parts = result if entry.result == "p" else (result,)
        width = bits // len(parts)
        for k, part in enumerate(parts):
            want = final(part, width)
            found = got[i] >> width * k & (1 << width) - 1
            assert equal(found, want, width, "f" if entry.result in "fp" else "u"), (where, hex(found), want)
        if bits == 16:
            assert got[i] >> 16 == 0, "the upper half is 0"
