"""Every instruction that the decoder knows runs, or is refused by its name; none fails in another way."""

from __future__ import annotations

import numpy as np

from amdgpu_emu.core.counters import Counters
from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.program import Program
from amdgpu_emu.core.shared_state import SharedState
from amdgpu_emu.core.state import NULL, SCC, Group
from amdgpu_emu.errors import GpuFault
from amdgpu_emu.isa.decoder import decode
from amdgpu_emu.isa.instruction import UnknownInstruction
from amdgpu_emu.shader import Dispatch, Scratch
from amdgpu_emu.shader_memory import ShaderMemory
from tests.amdgpu_emu.core.stage import Stage
from tests.amdgpu_emu.isa.encodings import encodings

NOT_EXECUTED = (
    "buffer_load_format", "buffer_store_format", "buffer_load_d16_format", "buffer_load_d16_hi_format",
    "buffer_store_d16_format", "buffer_store_d16_hi_format", "s_barrier_", "s_sendmsg", "global_load_tr", "s_getreg",
    "s_setreg", "s_rfe", "s_setkill", "s_singleuse", "s_version", "s_waitcnt", "s_wakeup_barrier", "s_get_barrier",
    "s_endpgm_saved", "global_atomic_ordered",
)  # fmt: skip


def everything(lanes: int, stage: Stage) -> Group:
    """Registers that are all written; odd ones hold numbers, even ones 0."""
    g = Group(256, lanes, np.arange(2), np.zeros(2, np.int64))
    rng = np.random.default_rng(1)
    for r in range(256):
        g.put(r, rng.integers(0, 2**32, (2, lanes), np.uint32) if r % 2 else np.uint32(0))
    for r in range(SCC):
        if r != NULL:
            g.put_s(r, np.uint32(0xFFFFFFFF if r in (126, 127) else 16 * r))
    g.put_scc(True)
    base = stage.buffer(1 << 16)
    made = Dispatch(
        0, (1, 1, 1), (64, 1, 1), (64, 1, 1), (0, 0, 0), True, (0,) * 16, 0, 0, 0, 1 << 16,
        Scratch(base, 1 << 15, 1), 1, (12, 0, 1),
    )  # fmt: skip
    g.shared = SharedState(made, ShaderMemory(stage.caches, stage.vm), Counters(), 1, 2)
    g.shared.lds.written[:] = True
    return g


def test_what_the_decoder_knows_runs_or_is_refused() -> None:
    stage = Stage()
    ran, refused = set(), set()
    for lanes, seed in ((32, 1), (64, 2)):
        program, start = Program(lambda a, n: b"", 256, lanes), everything(lanes, stage)
        with np.errstate(all="ignore"):
            for _, _, code in encodings(seed, 2):
                try:
                    ins = decode(code, 0x1000, wave=lanes)
                except UnknownInstruction:
                    continue
                try:
                    op = program._compile(ins)
                    op.fn(start.part(np.array([True, True])))
                except Unsupported:
                    refused.add(ins.name)
                    continue
                except (ShaderError, GpuFault):
                    pass
                ran.add(ins.name)
    assert len(ran) > 900
    # What was refused alone may have been refused for a form that is rare: a clamp, DPP of a wide source.
    whole = {name for name in refused - ran if not name.startswith(NOT_EXECUTED)}
    assert len(whole) < 15, whole
