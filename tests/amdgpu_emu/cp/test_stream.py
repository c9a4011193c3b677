"""The command processor on the GPU's own thread: hangs lose patience, and say what for."""

from __future__ import annotations

import pytest

from amdgpu_emu.cp import PacketFault, PacketHang
from amdgpu_emu.gpu import Stream
from tests.amdgpu.pm4.raw import words_raw
from tests.amdgpu_emu.cp.rig import DATA, FENCE, Rig


def run(rig: Rig, build, timeout: float | None = None) -> Exception | None:
    """Run packets on the GPU's thread; what went wrong."""
    ended: list[Exception | None] = []
    with rig.machine.lock:
        rig.gpu.start(Stream("job 1", rig.steps(build), ended.append, timeout))
    with rig.machine.lock:
        rig.machine.changed.wait_for(lambda: ended, 60)
    rig.gpu.stop()
    return ended[0]


def test_a_job_ends():
    rig = Rig()
    assert run(rig, lambda b: b.write_data32(DATA, 1)) is None
    assert rig.peek(DATA) == 1


def test_a_wait_that_never_ends_is_a_hang_that_names_its_packet():
    rig = Rig()
    error = run(rig, lambda b: (b.write_nop(4), b.wait_mem(FENCE, 3)), timeout=0.02)
    assert isinstance(error, PacketHang)
    assert (error.index, error.offset) == (1, 5)
    assert "WAIT_REG_MEM function=GREATER_EQUAL mem_space=MEMORY" in str(error)
    assert "job 1 made no progress for 0.02 s; the value is 0x0, wanted is >= 0x3" in str(error)


@pytest.mark.parametrize(
    ("build", "kind"),
    [(lambda b: words_raw(b, [0]), PacketHang), (lambda b: b.write_data32(0x1000, 1), PacketFault)],
)
def test_errors_reach_who_waits(build, kind):
    assert isinstance(run(Rig(), build), kind)
