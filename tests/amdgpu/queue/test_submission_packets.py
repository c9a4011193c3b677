"""The words around an indirect buffer, against those that kernels and runtimes are known to write; order of stores."""

from __future__ import annotations

from amdgpu_emu.machine import Machine
from zinc_rt.amdgpu.gfx import GFX12
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.submission_packets import SubmissionPackets, interrupt_packets

FENCE, CODE = 0x7F12_3456_7008, 0x7F65_4321_0100
FLUSH = [0xC0004600, 0x00000407]
HOST_DATA_PATH = [0xC0053C00, 0x00000045, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4]
ACQUIRE = [0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 10, 0xC3B1]
CALL = [0xC0023F00, 0x43210100, 0x7F65, 0x00800123]
RELEASE = [0xC0064900, 0x06600514, 0x40000000, 0x34567008, 0x7F12, 0x89ABCDEF, 0x1, 0]


def test_a_submission() -> None:
    packets = SubmissionPackets(FENCE, GFX12, flush_hdp=True)
    words = [*FLUSH, *HOST_DATA_PATH, *ACQUIRE, *CALL, *RELEASE]
    for _ in range(2):
        assert packets.build(CODE, 0x123, 0x1_89AB_CDEF).tolist() == words
        assert packets.n_dwords == len(words)
        packets.build(0, 0xFFFFF, 1)
    assert SubmissionPackets(FENCE, GFX12, flush_hdp=False).build(CODE, 0x123, 0x1_89AB_CDEF).tolist() == [
        *FLUSH,
        *ACQUIRE,
        *CALL,
        *RELEASE,
    ]


def test_an_interrupt() -> None:
    words = [0xC0064900, 0x00000514, 0x22000000, 0x34567010, 0x7F12, 3, 0, 3]
    assert interrupt_packets(FENCE + 8, 3).tolist() == words


def test_order_of_stores() -> None:
    """Everything before, then the write pointer, then the doorbell, with a store fence between each."""
    with Machine() as machine:
        process = machine.process()
        interface = KfdInterface(linux=process)
        code = interface.allocate(4096, "gtt", "packets", executable=True)
        assert code.address is not None
        process.store32(code.address, 0xC0001000)
        seen: list[str] = []
        store64, fence = process.store64, process.store_fence

        def store(address: int, value: int) -> None:
            found = process.map_at(address)
            seen.append(f"{'doorbell' if found and found[2].doorbell else 'pointer'} {value}")
            store64(address, value)

        process.store64 = store  # type: ignore[method-assign]
        process.store_fence = lambda: (seen.append("fence"), fence())[1]  # type: ignore[method-assign]
        interface.wait(interface.submit(code, 0, 2), 5)
        n = SubmissionPackets(FENCE, GFX12, flush_hdp=True).n_dwords
        assert seen[:4] == ["fence", f"pointer {n}", "fence", f"doorbell {n}"]
        interface.close()
