"""The core between dispatches: code that changes, counters, the way workgroups are cut into parts."""

from __future__ import annotations

import numpy as np

from amdgpu_emu.core.counters import Counters
from amdgpu_emu.core.launch import chunks
from amdgpu_emu.shader import Dispatch
from tests.amdgpu_emu.core.stage import S_ENDPGM, Stage
from tests.amdgpu_emu.core.test_kernels import compiled

SHIFT, STORE = 0x30020082, (0xEE068000, 0, 1)  # v_lshlrev_b32 v1, 2, v0; global_store_b32 v1, v0, s[0:1]


def test_code_that_changes_between_dispatches_is_decoded_again() -> None:
    stage = Stage()
    out = stage.buffer(1024)
    where = (out & 0xFFFFFFFF, out >> 32)
    at = stage.code([SHIFT, 0x7E000281, *STORE, S_ENDPGM])  # v0 = 1
    stage.dispatch(at, user_data=where)
    assert (stage.read(out, np.uint32, 32) == 1).all()
    mapping = stage.vm.at(at)
    assert mapping is not None
    mapping.bo.bytes[4:8].view(np.uint32)[0] = 0x7E000283  # v0 = 3
    stage.dispatch(at, user_data=where)
    assert (stage.read(out, np.uint32, 32) == 3).all()


def test_code_that_was_the_same_for_a_while_may_change() -> None:
    stage = Stage(keep=1)
    out = stage.buffer(1024)
    where = (out & 0xFFFFFFFF, out >> 32)
    at = stage.code([SHIFT, 0x7E000281, *STORE, S_ENDPGM])
    mapping = stage.vm.at(at)
    assert mapping is not None
    for number in (1, 1, 1, 3, 3, 3, 3, 1, 5, 5, 1):
        mapping.bo.bytes[4:8].view(np.uint32)[0] = 0x7E000280 + number  # v0 = number
        counters = stage.dispatch(at, user_data=where)
        assert (stage.read(out, np.uint32, 32) == number).all()
        assert counters.wave_instructions == 4


def test_equal_instructions_of_two_cores_share_closures_and_no_counts() -> None:
    counted = []
    for at in (None, 0x40_0000):
        stage = Stage(keep=1)
        out = stage.buffer(1024)
        code = [SHIFT, 0x7E000283, *STORE, S_ENDPGM]
        address = stage.code(code) if at is None else stage.buffer(np.array(code, np.uint32), "kernel", at=at)
        counted.append(stage.dispatch(address, user_data=(out & 0xFFFFFFFF, out >> 32)).names)
        assert (stage.read(out, np.uint32, 32) == 3).all()
        ops = next(iter(stage.core._programs.values())).ops
        assert [op.ins.address for op in ops.values()] == list(ops)
        assert [op.next for op in ops.values()][:-1] == list(ops)[1:]
    assert counted[0] == counted[1]


def test_counters_of_a_dispatch() -> None:
    stage = Stage(measure=True, keep=2)
    out = stage.buffer(1024)
    at = stage.code([SHIFT, *STORE, *STORE, S_ENDPGM])
    for _ in range(3):
        found = stage.dispatch(at, threads=(64, 1, 1), user_data=(out & 0xFFFFFFFF, out >> 32))
    assert len(stage.core.counters) == 2
    assert dict(found.instructions) == {"valu": 2, "global": 4, "message": 2}
    assert (found.wave_instructions, found.lane_instructions) == (8, 6 * 32)
    assert (found.bytes_written, found.unique_written, found.bytes_read) == (512, 256, 0)


def lines_by_hand(requests: list[tuple[int, list[int]]], n: int, unit: int) -> list[int]:
    """Distinct units of each wave."""
    touched: dict[int, set[int]] = {}
    for wave, addresses in requests:
        touched.setdefault(wave, set()).update((a + k) // unit for a in addresses for k in range(n))
    return [len(units) for units in touched.values()]


def test_lines_of_requests() -> None:
    rng = np.random.default_rng(1)
    for n, spread in ((1, 300), (4, 100), (4, 5000), (8, 900), (16, 700), (16, 40)):
        counters = Counters(True)
        requests = [(wave, sorted(rng.integers(0, spread, 32).tolist())) for wave in range(5)]
        mixed = [(wave, rng.permutation(addresses)) for wave, addresses in requests]
        addresses = np.concatenate([a for _, a in mixed]).astype(np.uint64)
        counters.request("read", addresses, np.repeat(np.arange(5), 32), n, 32)
        assert counters.lines == sum(lines_by_hand(requests, n, 128))
        halves = lines_by_hand(requests, n, 64)
        assert counters.stray == sum(max(0, h - -(-32 * n // 64)) for h in halves)
        assert counters.read_lines == lines_by_hand([(0, a) for _, a in requests], n, 128)[0]
        counters.request("write", addresses, np.repeat(np.arange(5), 32), n)
        assert counters.lines == sum(lines_by_hand(requests, n, 128))  # an atomic's second half: counted already
        assert counters.written_halves == lines_by_hand([(0, a) for _, a in requests], n, 64)[0]


def test_overlapping_lanes_count_once_in_a_request() -> None:
    stage = Stage(measure=True)
    x = np.arange(64, dtype=np.float32)
    args, y = stage.buffer(64), stage.buffer(4096)
    block = np.zeros(6, np.uint32)
    block[:4] = np.array([stage.buffer(x), y], np.uint64).view(np.uint32)
    block[4:] = [64, np.float32(2).view(np.uint32)]
    mapping = stage.vm.at(args)
    assert mapping is not None
    mapping.bo.bytes[:24] = block.view(np.uint8)
    counters = stage.launch(compiled()["from_block"], 2, args, 0)
    assert (stage.read(y, np.float32, 64) == x * 2).all()
    assert (counters.bytes_read, counters.bytes_written) == (256, 256)
    assert counters.unique_read == 256 + 24
    sums = stage.launch(compiled()["lane_words"], 1, y, y)
    assert sums.bytes_read == 128


def test_workgroups_that_do_not_fit_together_run_in_parts() -> None:
    made = Dispatch(
        0, (100, 10, 5), (256, 1, 1), (25600, 10, 5), (0, 0, 0), True, (0,) * 16, 0, 0, 0, 0, None, 1, (12, 0, 1)
    )
    parts = list(chunks(made, 64, 32))
    assert sum(count for _, count in parts) == 5000
    assert [first for first, _ in parts] == list(np.cumsum([0, *[count for _, count in parts[:-1]]]))
    assert max(count for _, count in parts) == 256, "2048 waves"
    stage = Stage()
    out = stage.buffer(4 * 40 * 70)
    # s2 = ttmp7's low half (y); v1 = 4 * lane; the address moves by 4 (40 y + x) through s0: one lane stores y 100 + x
    code = [
        0x8B02FF73,
        0x0000FFFF,  # s_and_b32 s2, ttmp7, 0xffff
        0x9602A802,  # s_mul_i32 s2, s2, 40
        0x80027502,  # s_add_co_u32 s2, s2, ttmp9
        0x84038202,  # s_lshl_b32 s3, s2, 2
        0x7E020203,  # v_mov_b32 v1, s3
        0x7E000202,  # v_mov_b32 v0, s2
        *STORE,
        S_ENDPGM,
    ]
    stage.dispatch(stage.code(code), groups=(40, 70, 1), user_data=(out & 0xFFFFFFFF, out >> 32))
    assert (stage.read(out, np.uint32, 2800) == np.arange(2800)).all()
