"""The lowering of a batch, dword by dword, against words that are known from other drivers' traces."""

from __future__ import annotations

import random
from typing import Any

import pytest

from amdgpu_emu.models import R9700, RX7900XTX, GpuModel
from tests.amdgpu.queue.fake import FakeInterface
from tests.amdgpu_emu.cp.rig import CODE, LEFT, Rig
from zinc_rt.amdgpu.command_list import MAX_COPY, MAX_WRITE, CommandList, ListedDispatch
from zinc_rt.amdgpu.gfx import GFX11, GFX12
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel, padded
from zinc_rt.amdgpu.packets import fence_packets, lower
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4.builder import PacketBuilder
from zinc_rt.amdgpu.pool import GpuMemory, Pool
from zinc_rt.errors import BackendError

ALL = 0xFFFFFFFF
BEGIN = [0xC0001000, 0]
FLUSH = [0xC0004600, 0x407]
FULL = [*FLUSH, 0xC0065800, 0, ALL, 0xFF, 0, 0, 10, 0xC3B1]
LIGHT = [*FLUSH, 0xC0065800, 0, ALL, 0xFF, 0, 0, 10, 0x10180]
PROGRAM = LoadedKernel("k", 0x12_3456_7800, 0xC00F0005, 0x384, 0x30, (32, 1, 1), 2)
PROGRAM_IN_RIG = LoadedKernel("k", CODE, 0xC00F0005, 0x384, 0x30, (32, 1, 1), 2)


def dispatch_words(groups: list[int], threads: list[int], user: list[int], initiator: int = 0x8005) -> list[int]:
    """As written out in the notes on hardware and in Mesa's preamble: register offsets of gfx11 and gfx12."""
    return [
        0xC00A7600, 0x204, 0, 0, 0, *threads, 0, 0, 0x12345678, 0,
        0xC0027600, 0x212, 0xC00F0005, 0x384,
        0xC0097600, 0x215, 0, ALL, ALL, 0, ALL, ALL, 0, 0, 0,
        0xC0057600, 0x224, 0, 0, 0, 0, 0x30,
        0xC0057600, 0x22B, ALL, ALL, ALL, ALL, 64,
        0xC0007600 | len(user) << 16, 0x240, *user,
        0xC0017600, 0x27D, 0,
        0xC0031500, *groups, initiator,
    ]  # fmt: skip


@pytest.fixture
def memory() -> list[GpuMemory]:
    pool = Pool(FakeInterface(), "gtt", "pool", chunk=1 << 20)
    return [pool.allocate(64 << 10, name) for name in "ab"]


def test_a_dispatch() -> None:
    batch = CommandList().dispatch(PROGRAM, (7, 2, 3), user_data=(5, 6))
    assert lower(batch, GFX12) == BEGIN + FULL + dispatch_words([7, 2, 3], [32, 1, 1], [5, 6])


def test_a_later_dispatch_sets_what_differs() -> None:
    other = LoadedKernel("other", 0x12_3456_7900, 0xC00F0005, 0x385, 0x30, (32, 1, 1), 2)
    batch = CommandList().dispatch(PROGRAM, 1, user_data=(5, 6, 7, 8, 9, 10))
    batch.dispatch(other, 2, user_data=(1, 6, 7, 2, 9, 10)).dispatch(PROGRAM, 3, user_data=(1, 6), threads=(64, 1, 1))
    batch.dispatch(PROGRAM, 4, user_data=(1, 6, 7, 2, 9, 11))
    words = lower(batch, GFX12)[len(BEGIN + FULL) + len(dispatch_words([1] * 3, [32, 1, 1], [0] * 6)) :]
    assert words == [
        0xC0017600, 0x20C, 0x12345679,
        0xC0017600, 0x213, 0x385,
        0xC0047600, 0x240, 1, 6, 7, 2,  # two that stay the same, rather than a packet more
        0xC0031500, 2, 1, 1, 0x8005,
        0xC0017600, 0x207, 64,
        0xC0017600, 0x20C, 0x12345678,
        0xC0017600, 0x213, 0x384,
        0xC0031500, 3, 1, 1, 0x8005,
        0xC0017600, 0x207, 32,
        0xC0017600, 0x245, 11,
        0xC0031500, 4, 1, 1, 0x8005,
    ]  # fmt: skip


def test_registers_that_a_kernel_gets_and_does_not_read_have_some_value() -> None:
    """gfx11 hands over 16 at least, so kernels ask for more than their arguments."""
    more = LoadedKernel("more", 0x12_3456_7900, 0xC00F0005, 0x388, 0x30, (32, 1, 1), 2)
    words = lower(CommandList().dispatch(more, 1, user_data=(5, 6)), GFX12)
    assert words[words.index(0x240) - 1 :][:6] == [0xC0047600, 0x240, 5, 6, 0, 0]
    words = lower(CommandList().dispatch(PROGRAM, 1, user_data=(1, 2, 3)).dispatch(more, 1, user_data=(1, 6)), GFX12)
    assert words[-10:] == [0xC0037600, 0x241, 6, 3, 0, 0xC0031500, 1, 1, 1, 0x8005]  # the 3 is what was there


def test_registers_as_dispatches_find_them() -> None:
    """Random lists on an emulated command processor: each dispatch is what it is alone."""
    rng = random.Random(5)
    kernels = [
        LoadedKernel(f"k{i}", CODE + 256 * i, i, rng.randrange(1, 17) << 1, (i & 3) << 4, (32 << i % 3, 1, 1), 0)
        for i in range(6)
    ]
    batch = CommandList()
    for _ in range(60):
        kernel = rng.choice(kernels)
        words = [rng.randrange(3) for _ in range(kernel.rsrc2 >> 1)]
        batch.dispatch(kernel, rng.randrange(1, 5), user_data=words)
    rig = Rig()
    rig.words(*lower(batch, GFX12))
    assert not rig.kinds
    assert len(rig.dispatches) == 60
    for item, found in zip(batch.items, rig.dispatches, strict=True):
        assert isinstance(item, ListedDispatch)
        assert (item.program.va, item.groups, item.threads) == (found.address, found.groups, found.threads)
        assert (item.program.rsrc1, item.program.rsrc2, item.program.rsrc3) == (found.rsrc1, found.rsrc2, found.rsrc3)
        assert item.user_data == found.user_data[: len(item.user_data)]


def test_registers_of_another_submission_are_not_counted_on() -> None:
    rig = Rig()
    rig.words(*lower(CommandList().dispatch(PROGRAM_IN_RIG, 1, user_data=(5, 6)), GFX12))
    rig.words(*lower(CommandList().dispatch(PROGRAM_IN_RIG, 1, user_data=(5, 6)), GFX12))
    assert not rig.kinds
    rig.words(0xC0031500, 1, 1, 1, 0x8005)
    assert set(rig.kinds) == {"left-register"}
    assert "COMPUTE_PGM_LO as an earlier indirect buffer left it" in str(rig.machine.findings)


@pytest.mark.parametrize("model", [R9700, RX7900XTX], ids=lambda m: m.name)
def test_all_of_a_card_is_used_whatever_another_program_left(model: GpuModel) -> None:
    """Kernels open four shader engines for their queues; a ring keeps what other programs' preambles wrote."""
    rig = Rig(model)
    rig.words(*lower(CommandList().dispatch(PROGRAM_IN_RIG, 1, user_data=(5, 6)), GFX12 if model is R9700 else GFX11))
    assert not rig.machine.findings
    assert rig.dispatches[0].compute_units == model.cu


@pytest.mark.parametrize(
    ("kind", "model", "opened"),
    [("cs", R9700, 4), ("cs", RX7900XTX, 4), ("umq", RX7900XTX, 4), ("kfd", RX7900XTX, 6)],
)
def test_what_another_program_left_is_not_counted_on(kind: str, model: GpuModel, opened: int) -> None:
    """The emulated card finds each register that is not set, and dispatches on the engines that the kernel opened."""
    rig = Rig(model, kind=kind)
    program = {0x20C: CODE >> 8 & ALL, 0x20D: CODE >> 40, 0x207: 64, 0x208: 1, 0x209: 1, 0x212: 1 << 20, 0x213: 0x90}

    def build(b: PacketBuilder) -> None:
        b.set_sh_regs(program)
        b.dispatch_direct_initiator(1, 1, 1, 5)

    rig.run(build)
    texts = [text for finding, text in rig.machine.findings if finding == "left-register"]
    absent = reg.STATIC_THREAD_MGMT[model.shader_engines :]
    assert {text.split()[4] for text in texts} == {reg.registers()[at].name for at in LEFT if at not in absent}
    assert all("as another program left it" in text for text in texts)
    closed = [text for finding, text in rig.machine.findings if finding == "closed-engine"]
    assert len(closed) == (opened < model.shader_engines)
    assert not closed or "COMPUTE_STATIC_THREAD_MGMT_SE4, COMPUTE_STATIC_THREAD_MGMT_SE5 is 0" in closed[0]
    assert rig.dispatches[0].compute_units == model.cu * opened // model.shader_engines


@pytest.mark.parametrize(
    ("kind", "model", "reported"),
    [("kfd", RX7900XTX, True), ("cs", RX7900XTX, False), ("umq", RX7900XTX, False), ("kfd", R9700, False)],
)
def test_waves_that_cannot_be_saved_are_found(kind: str, model: GpuModel, reported: bool) -> None:
    commands = CommandList().dispatch(PROGRAM_IN_RIG, 1, user_data=(5, 6))
    rig = Rig(model, kind=kind)
    rig.words(*lower(commands, GFX12 if model is R9700 else GFX11))
    assert rig.kinds == ["unprivileged"] * reported


def test_high_addresses_and_waves_of_64() -> None:
    program = LoadedKernel("k", 0x7FFF_1234_5600, 1, 2, 0, (64, 1, 1), 0, wave32=False)
    words = lower(CommandList().dispatch(program, 1, user_data=range(16)), GFX12)
    at = words.index(0x204)
    assert words[at + 9 : at + 11] == [0xFF12_3456, 0x7F]
    assert words[-4:] == [1, 1, 1, 5]
    assert words[words.index(0x240) + 1 :][:16] == list(range(16))


def test_copies_and_writes(memory: list[GpuMemory]) -> None:
    a, b = memory
    batch = CommandList().copy(a, b, 16).copy(a, b, 4, source_offset=4, target_offset=8).write(b, [1, 2, 3], offset=12)
    assert a.va >> 32 == b.va >> 32 == 1
    s, t = a.va & ALL, b.va & ALL
    assert lower(batch, GFX12) == [
        *BEGIN, *FULL,
        0xC0044000, 0x00110502, s, 1, t, 1,
        0xC0044000, 0x00110502, s + 8, 1, t + 8, 1,
        0xC0044000, 0x00100502, s + 4, 1, t + 8, 1,
        0xC0053700, 0x00100500, t + 12, 1, 1, 2, 3,
    ]  # fmt: skip


def test_barriers_stand_where_they_are_needed() -> None:
    one = dispatch_words([1, 1, 1], [32, 1, 1], [0, 0])
    again = one[-5:]  # all registers are as they were

    def batch(kinds: str) -> list[int]:
        made = CommandList()
        for kind in kinds:
            if kind == "d":
                made.dispatch(PROGRAM, 1, user_data=(0, 0))
            else:
                made.barrier(light=kind == "l")
        return lower(made, GFX12)[len(BEGIN + FULL) :]

    assert batch("") == batch("lf") == []
    assert batch("fd") == batch("dl") == batch("ldf") == one
    assert batch("dfd") == batch("dlffd") == batch("dflld") == batch("dfdf") == one + FULL + again
    assert batch("dld") == batch("dlld") == one + LIGHT + again
    assert batch("dd") == one + again


def test_marks_count_dispatches() -> None:
    batch = CommandList().dispatch(PROGRAM, 1, user_data=(0, 0)).barrier().dispatch(PROGRAM, 1, user_data=(0, 0))
    plain, marked = lower(batch, GFX12), lower(batch, GFX12, (0x1_0000_0040, 7))
    assert len(marked) == len(plain) + 16
    release = [0xC0064900, 0x06600514, 0x40000000, 0x40, 1]
    found = [marked[i + 5] for i in range(len(marked)) if marked[i : i + 5] == release]
    assert found == [8, 9]


@pytest.mark.parametrize("n", [0, 1, 55, 56, 57, 63, 64, 1000])
def test_the_fence_and_its_padding(n: int) -> None:
    words = fence_packets(n, GFX12, 0x1_2345_6780, 0x11_2233_4455)
    assert words[:8] == [0xC0064900, 0x06600514, 0x40000000, 0x23456780, 1, 0x22334455, 0x11, 0]
    assert (n + len(words)) % 64 == 0
    assert len(words) < 8 + 2 * 64
    if len(words) > 8:
        assert words[8:] == [0xC0001000 | len(words) - 10 << 16, *[0] * (len(words) - 9)]


def test_padding_of_code() -> None:
    for n in (4, 128, 132, 1000):
        code = padded(bytes(n))
        assert len(code) % 128 == 0
        assert len(code) - n >= 3 * 128
        assert set(code[n:]) == {0xBF, 0x9F, 0}


WRONG: list[tuple[str, Any]] = [
    ("three counts", lambda b, m: b.dispatch(PROGRAM, 0, user_data=(0, 0))),
    ("three counts", lambda b, m: b.dispatch(PROGRAM, (1 << 32, 1, 1), user_data=(0, 0))),
    ("three counts", lambda b, m: b.dispatch(PROGRAM, (1, 1 << 16, 1), user_data=(0, 0))),
    ("three counts", lambda b, m: b.dispatch(PROGRAM, (1, 1, 1 << 16), user_data=(0, 0))),
    ("three counts", lambda b, m: b.dispatch(PROGRAM, (1, 1), user_data=(0, 0))),
    ("work-items", lambda b, m: b.dispatch(PROGRAM, 1, user_data=(0, 0), threads=(1025, 1, 1))),
    ("work-items", lambda b, m: b.dispatch(PROGRAM, 1, user_data=(0, 0), threads=(32, 0, 1))),
    ("1 dwords of user data; it reads 2", lambda b, m: b.dispatch(PROGRAM, 1, user_data=(0,))),
    ("17 dwords", lambda b, m: b.dispatch(PROGRAM, 1, user_data=[0] * 17)),
    ("not all dwords", lambda b, m: b.dispatch(PROGRAM, 1, user_data=(0, -1))),
    ("not all dwords", lambda b, m: b.dispatch(PROGRAM, 1, user_data=(0, 1 << 32))),
    ("declares no arguments", lambda b, m: b.dispatch(PROGRAM, 1, 5)),
    ("both given", lambda b, m: b.dispatch(PROGRAM, 1, 5, user_data=(0, 0))),
    ("work for a kernel", lambda b, m: b.copy(m[0], m[1], MAX_COPY + 4)),
    ("are not all in", lambda b, m: b.copy(m[0], m[1], 8, source_offset=m[0].size - 4)),
    ("are not all in", lambda b, m: b.copy(m[0], m[1], 8, target_offset=-4)),
    ("are not all in", lambda b, m: b.copy(m[0], m[1], 0)),
    ("whole dwords", lambda b, m: b.copy(m[0], m[1], 6)),
    ("whole dwords", lambda b, m: b.copy(m[0], m[1], 8, source_offset=2)),
    ("overlap", lambda b, m: b.copy(m[0], m[0], 8, target_offset=4)),
    ("1 to 4096", lambda b, m: b.write(m[0], [])),
    ("1 to 4096", lambda b, m: b.write(m[0], [0] * (MAX_WRITE + 1))),
    ("takes dwords", lambda b, m: b.write(m[0], [1 << 32])),
    ("whole dwords", lambda b, m: b.write(m[0], [0], offset=1)),
]


@pytest.mark.parametrize(("says", "do"), WRONG)
def test_what_cannot_run_is_refused_when_recorded(says: str, do: Any, memory: list[GpuMemory]) -> None:
    batch = CommandList()
    with pytest.raises(BackendError, match=says) as caught:
        do(batch, memory)
    assert "\n" not in str(caught.value)
    assert not batch.items


def test_freed_memory_is_refused(memory: list[GpuMemory]) -> None:
    memory[0].freed = True
    with pytest.raises(BackendError, match="freed"):
        CommandList().write(memory[0], [1])


def test_a_submission_has_a_longest_length(memory: list[GpuMemory]) -> None:
    batch = CommandList("too much")
    for _ in range(90):
        batch.copy(memory[0], memory[1], MAX_COPY)
    with pytest.raises(BackendError, match=r"too much takes \d+ dwords of packets.*split it"):
        lower(batch, GFX12)
