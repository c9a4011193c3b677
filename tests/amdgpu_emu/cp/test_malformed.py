"""Every way in which a stream can be wrong ends in an error that names packet, offset, text and reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amdgpu_emu.cp import PacketFault, PacketHang
from amdgpu_emu.errors import GpuFault, GpuHang
from amdgpu_emu.gpu import POLLING
from tests.amdgpu.pm4.raw import words_raw
from tests.amdgpu.pm4.test_decoder import headers
from tests.amdgpu_emu.cp.rig import CODE, DATA, FENCE, IB, IB2, READ_ONLY, Rig, dispatch
from zinc_rt.amdgpu.pm4.builder import RELEASE_CONTROL

LOW, HIGH = DATA & 0xFFFFFFFF, DATA >> 32
NOWHERE = 0x7000_0000_0000

HANGS = {
    "type 0": ([0x00000001, 0], "a header of type 0"),
    "type 1": ([0x40000000], "a header of type 1"),
    "type 2": ([0x80000000], "a header of type 2"),
    "zeros": ([0, 0, 0], "a header of type 0"),
    "header bits": ([0xC0001004, 0], "header bits 0x4"),
    "predicate": ([0xC0001001, 0], "header bits 0x1"),
    "opcode": ([0xC0000000, 0], "opcode 0x00"),
    "graphics": ([0xC0022D00, 0, 0, 0], "DRAW_INDEX_AUTO"),
    "context registers": ([0xC0016900, 0, 0], "for graphics"),
    "shader type on a fence": (
        [0xC0064902, RELEASE_CONTROL, 0x40000000, LOW, HIGH, 1, 0, 0],
        "SHADER_TYPE",
    ),
    "shader type on a wait": ([0xC0053C02, 0x13, LOW, HIGH, 0, 0, 4], "SHADER_TYPE"),
    "runs over the end": ([0xC0FF1000, 0], "256 body dwords; 1 are left"),
    "body too short": ([0xC0021500, 1, 1, 1], "the body has 3 dwords; it must have 4"),
    "body too long": ([0xC0041500, 1, 1, 1, 5, 0], "the body has 5 dwords; it must have 4"),
    "write without data": ([0xC0023700, 0x500, LOW, HIGH], "at least 4"),
    "reserved bits": ([0xC0033700, 0x501, LOW, HIGH, 1], "reserved bits 0x1"),
    "reserved selector": ([0xC0033700, 0x400, LOW, HIGH, 1], "dst_sel 4 is reserved"),
    "write to GDS": ([0xC0033700, 0x300, LOW, HIGH, 1], "not for compute queues"),
    "write by another engine": ([0xC0033700, 0x40000500, LOW, HIGH, 1], "engine_sel 1"),
    "misaligned write": ([0xC0033700, 0x500, LOW + 2, HIGH, 1], "not a multiple of 4"),
    "address too high": ([0xC0033700, 0x500, LOW, 0x10000, 1], "not a 48-bit address"),
    "misaligned 64-bit copy": ([0xC0044000, 0x00110501, LOW, HIGH, LOW + 4, HIGH], "not a multiple of 8"),
    "copy from GDS": ([0xC0044000, 0x00100503, 0, 0, LOW, HIGH], "src_sel 3 is not emulated"),
    "copy to GDS": ([0xC0044000, 0x00100301, LOW, HIGH, LOW, HIGH], "dst_sel 3 is not emulated"),
    "wait function": ([0xC0053C00, 0x17, LOW, HIGH, 0, 0, 4], "function 7 is reserved"),
    "wait for misaligned memory": ([0xC0053C00, 0x13, LOW + 1, HIGH, 0, 0, 4], "not a multiple of 4"),
    "write and wait on memory": ([0xC0053C00, 0x53, LOW, HIGH, 0, 0, 4], "is for registers"),
    "register too high": ([0xC0053C00, 0x03, 0x40000, 0, 0, 0, 4], "18 bits"),
    "registers beyond the last": ([0xC0027600, 0x3FF, 1, 2], "the SH space ends at 0x3ff"),
    "register of a VMID": ([0xC0017600, 0x240 | 1 << 28, 1], "kernel's own"),
    "uconfig beyond the last": ([0xC0027900, 0x3FFF, 1, 2], "0x4000 registers"),
    "load too many": ([0xC0036300, LOW, HIGH, 0x240, 0x401], "1 to 1024"),
    "load none": ([0xC0036300, LOW, HIGH, 0x240, 0], "1 to 1024"),
    "load by offset": ([0xC0036300, LOW | 1, HIGH, 0x240, 1], "only values at an address"),
    "load beyond the last": ([0xC0036300, LOW, HIGH, 0x3FF, 2], "the SH space ends at 0x3ff"),
    "event": ([0xC0004600, 0x16], "CACHE_FLUSH_AND_INV is not emulated"),
    "event index": ([0xC0004600, 0x7], "needs event index 4"),
    "event with address": ([0xC0024600, 0x407, LOW, HIGH], "no address"),
    "event length": ([0xC0014600, 0x407, LOW], "it must have 3"),
    "range of the L2": ([0xC0065800, 0, 0, 0, 0, 0, 10, 2 << 11], "gl2_range 2"),
    "range of instructions": ([0xC0065800, 0, 0, 0, 0, 0, 10, 2], "gli_inv 2"),
    "fence event": ([0xC0064900, 0x407, 0x40000000, LOW, HIGH, 1, 0, 0], "no end of pipe"),
    "fence index": ([0xC0064900, 0x414, 0x40000000, LOW, HIGH, 1, 0, 0], "the event needs 5"),
    "misaligned fence": ([0xC0064900, 0x514, 0x40000000, LOW + 4, HIGH, 1, 0, 0], "not a multiple of 8"),
    "misaligned 32-bit fence": ([0xC0064900, 0x514, 0x20000000, LOW + 2, HIGH, 1, 0, 0], "not a multiple of 4"),
    "interrupt alone with data": ([0xC0064900, 0x514, 0x21000000, LOW, HIGH, 1, 0, 0], "goes with data_sel 0"),
    "fence selector": ([0xC0064900, 0x514, 0xA0000000, LOW, HIGH, 1, 0, 0], "data_sel 5 is reserved"),
    "call from a buffer": ([0xC0023F00, IB2 & 0xFFFFFFFF, IB2 >> 32, 4 | 1 << 23], "it can only chain"),
    "chain not valid": ([0xC0023F00, IB2 & 0xFFFFFFFF, IB2 >> 32, 4 | 1 << 20], "VALID"),
    "chain to nothing": ([0xC0023F00, IB2 & 0xFFFFFFFF, IB2 >> 32, 1 << 20 | 1 << 23], "at least one dword"),
    "chain for a VMID": ([0xC0023F00, IB2 & 0xFFFFFFFF, IB2 >> 32, 4 | 0x01900000], "for the kernel"),
    "chain misaligned": ([0xC0023F00, (IB2 & 0xFFFFFFFF) + 2, IB2 >> 32, 4 | 0x00900000], "not a multiple of 4"),
    "skips too far": ([0xC0032200, FENCE & 0xFFFFFFFF, FENCE >> 32, 0, 9], "it skips 9 dwords; 0 are left"),
    "no groups": ([0xC0031500, 4, 0, 1, 5], "4x0x1 groups"),
}


@pytest.mark.parametrize("name", HANGS)
def test_malformed(name):
    words, reason = HANGS[name]
    rig = Rig()
    with pytest.raises(PacketHang) as caught:
        rig.words(0xC0021000, 0, 0, 0, *words)
    error = caught.value
    assert reason in error.reason
    assert (error.index, error.offset) == (1, 4)
    assert str(error).startswith(f"packet 1 at dword 4 of the indirect buffer at {IB:#x}, queue: ")
    assert str(error).endswith(error.reason)
    assert "\n" not in str(error)


def test_an_error_shows_the_packet():
    with pytest.raises(PacketHang) as caught:
        Rig().words(*HANGS["misaligned write"][0])
    assert "WRITE_DATA dst_sel=MEMORY address=0x100200002 values=[0x1]" in str(caught.value)


FAULTS = {
    "write nowhere": (lambda b: b.write_data32(NOWHERE, 1), "write", NOWHERE, "not mapped"),
    "write what is read-only": (lambda b: b.write_data32(READ_ONLY, 1), "write", READ_ONLY, "not allowed"),
    "write over an end": (lambda b: b.write_data64(DATA + 0x3FFC, 1), "write", DATA + 0x4000, "not mapped"),
    "copy from nowhere": (lambda b: b.copy_data32(NOWHERE, DATA), "read", NOWHERE, "not mapped"),
    "copy to nowhere": (lambda b: b.copy_data32(DATA, NOWHERE), "write", NOWHERE, "not mapped"),
    "fence nowhere": (lambda b: b.release_mem_signal(NOWHERE, 1), "write", NOWHERE, "not mapped"),
    "wait nowhere": (lambda b: b.wait_mem(NOWHERE, 1), "read", NOWHERE, "not mapped"),
    "condition nowhere": (lambda b: b.cond_exec(NOWHERE, 0), "read", NOWHERE, "not mapped"),
    "load from nowhere": (
        lambda b: b.packet("LOAD_SH_REG_INDEX", address=NOWHERE, register=0x240, n_registers=1),
        "read",
        NOWHERE,
        "not mapped",
    ),
    "counts from nowhere": (lambda b: b.dispatch_indirect(NOWHERE, 5), "read", NOWHERE, "not mapped"),
    "program nowhere": (lambda b: dispatch(b, NOWHERE), "execute", NOWHERE, "not mapped"),
    "program not executable": (lambda b: dispatch(b, DATA), "execute", DATA, "not allowed"),
    "scratch nowhere": (
        lambda b: dispatch(b, r213=0x91, r218=1 | 1 << 12, r210=NOWHERE >> 8 & 0xFFFFFFFF, r211=NOWHERE >> 40),
        "write",
        NOWHERE,
        "not mapped",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    build, access, va, reason = FAULTS[name]
    rig = Rig()
    with pytest.raises(PacketFault) as caught:
        rig.run(lambda b: (b.write_nop(1), build(b)))
    error = caught.value
    assert (error.access, error.va) == (access, va)
    assert error.reason.startswith(reason)
    assert f"packet {error.index} at dword {error.offset} of the indirect buffer at {IB:#x}" in str(error)
    assert error.offset >= 2
    assert "bytes" in error.nearest


@pytest.mark.parametrize(("va", "reason"), [(NOWHERE, "not mapped"), (DATA, "not allowed")])
def test_indirect_buffers_that_cannot_be_fetched(va, reason):
    rig = Rig()
    with pytest.raises(PacketFault, match=reason) as caught:
        list(rig.processor.indirect(rig.vm, va, 4, mem_sync=True))
    assert caught.value.access == "execute"


@pytest.mark.parametrize(("va", "n"), [(IB + 2, 4), (IB, 0)])
def test_indirect_buffers_of_a_wrong_shape(va, n):
    rig = Rig()
    with pytest.raises(PacketHang, match="at least one, at a multiple of 4"):
        list(rig.processor.indirect(rig.vm, va, n, mem_sync=True))


def test_a_buffer_shorter_than_its_packets():
    rig = Rig()
    n = rig.place(lambda b: b.write_data64(DATA, 1))
    with pytest.raises(PacketHang, match="5 body dwords; 4 are left"):
        list(rig.processor.indirect(rig.vm, IB, n - 1, mem_sync=True))


DISPATCHES = {
    "no threads": ({"r208": 0}, "64x0x1; a workgroup needs threads"),
    "too many threads": ({"r207": 512, "r208": 3}, "at most 1024 threads"),
    "too much LDS": ({"r213": 0x90 | 129 << 15}, "66048 bytes of LDS"),
    "too many user registers": ({"r213": 17 << 1}, "17 user registers"),
    "no compute units": (
        {f"r{at:x}": 0 for at in (0x216, 0x217, 0x219, 0x21A, 0x223, 0x22B, 0x22C, 0x22D, 0x22E)},
        "no compute unit",
    ),
    "scratch without size": ({"r213": 0x91}, "0 waves 0 bytes"),
}


@pytest.mark.parametrize("name", DISPATCHES)
def test_dispatches_that_cannot_run(name):
    registers, reason = DISPATCHES[name]
    rig = Rig()
    with pytest.raises(PacketHang, match=reason) as caught:
        rig.run(lambda b: dispatch(b, **registers))
    assert "DISPATCH_DIRECT x=1 y=1 z=1" in caught.value.packet
    assert rig.dispatches == []


def test_the_largest_workgroup_runs():
    rig = Rig()
    rig.run(lambda b: dispatch(b, r207=1024, r213=0x90 | 128 << 15))
    assert rig.dispatches[0].lds_bytes == 65536


@pytest.mark.parametrize("compiled", [True, False])
def test_wave_sizes_must_match(compiled):
    rig = Rig()
    rig.machine.shader.add(CODE, lambda d, memory: None, wave32=compiled)
    rig.run(lambda b: dispatch(b, initiator=5 | compiled << 15))
    with pytest.raises(PacketHang, match=f"compiled for wave{32 if compiled else 64}"):
        rig.run(lambda b: dispatch(b, initiator=5 | (not compiled) << 15))


def test_a_shader_that_fails_is_a_hang():
    rig = Rig()

    def broken(d, memory):
        raise ZeroDivisionError("by design")

    rig.machine.shader.add(CODE, broken)
    with pytest.raises(PacketHang, match="ZeroDivisionError: by design"):
        rig.run(dispatch)


def test_a_dispatch_that_fails_while_another_packet_waits():
    rig = Rig()
    rig.machine.shader.add(CODE, lambda d, memory: memory.read(NOWHERE, 4))
    with pytest.raises(PacketFault, match="DISPATCH_DIRECT") as caught:
        rig.run(lambda b: (dispatch(b), b.release_mem_signal(FENCE, 1), b.write_nop(1), b.cs_partial_flush()))
    assert caught.value.packet.startswith("DISPATCH_DIRECT")
    rig.finish()
    assert rig.peek(FENCE) == 0  # the fence never comes


def test_a_shader_that_faults():
    rig = Rig()
    rig.machine.shader.add(CODE, lambda d, memory: memory.write(READ_ONLY, b"1234"))
    with pytest.raises(PacketFault, match="not allowed") as caught:
        rig.run(dispatch)
    assert caught.value.va == READ_ONLY
    assert "DISPATCH_DIRECT" in caught.value.packet


def test_a_fence_without_the_buffer_for_it():
    rig = Rig(eop_buffer=False)
    with pytest.raises(PacketFault, match="no end-of-pipe buffer"):
        rig.run(lambda b: b.release_mem_signal(FENCE, 1))
    assert rig.peek(FENCE) == 0


def test_chains_in_a_circle():
    rig = Rig()
    n = rig.place(lambda b: b.indirect_buffer(IB2, 4, chain=True), IB2)
    assert n == 4
    with pytest.raises(PacketHang, match="a circle"):
        list(rig.processor.indirect(rig.vm, IB2, n, mem_sync=True))


def test_a_queue_can_go_on_after_an_error():
    rig = Rig()
    with pytest.raises(GpuHang):
        rig.words(*HANGS["skips too far"][0])
    rig.run(lambda b: b.write_data32(DATA, 6))
    assert rig.peek(DATA) == 6


interesting = st.sampled_from(
    [
        LOW,
        HIGH,
        0,
        1,
        4,
        5,
        0x500,
        0x407,
        0x13,
        0x15,
        0x8005,
        RELEASE_CONTROL,
        0x40000000,
        0x00900004,
        0x100501,
        CODE >> 8,
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(headers | interesting | st.integers(0, 0xFFFFFFFF), min_size=1, max_size=40), st.booleans())
def test_no_stream_breaks_the_emulator(words, ring):
    rig, message = Rig(), "packet"
    if ring:
        rig.poke(DATA, *words)
        steps = rig.processor.ring(rig.vm, DATA, 256, lambda: len(words), lambda read: None)
    else:
        steps = rig.steps(lambda b: words_raw(b, words))
    try:
        for state, _ in zip(steps, range(200), strict=False):
            if state == POLLING:
                break
    except (GpuHang, GpuFault) as error:
        message = str(error)
    assert "packet" in message


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(set(HANGS) - {"skips too far"})), st.integers(0, 3)), min_size=1, max_size=4
    )
)
def test_the_first_error_is_the_one_that_is_told(picks):
    rig = Rig()
    words: list[int] = []
    for name, n in picks:
        words += [0xC0001000, 0] * n + HANGS[name][0]
    with pytest.raises(PacketHang) as caught:
        rig.words(*words)
    assert caught.value.index == picks[0][1]
