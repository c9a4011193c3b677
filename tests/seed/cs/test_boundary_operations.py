"""The compute operations of `TokenBoundary` with stand-ins for its kernels: what is dispatched, staged, read."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from amdgpu_emu.process import Process
from amdgpu_emu.shader import Dispatch, RecordingShader
from amdgpu_emu.shader_memory import ShaderMemory
from tests.amdgpu.cs.machines import NODE, Before, calls_of, failing, gives_back, process
from tests.seed.cs.boundary_cases import CHECKS, retired
from tests.seed.cs.stand_ins import install
from zinc_rt.amdgpu.abi.requests import AMDGPU_CS
from zinc_rt.amdgpu.errors import SignalMismatch
from zinc_rt.errors import BackendError
from zinc_rt.lang.launch import Argument
from zinc_rt.lang.types import u32
from zinc_rt.seed.cs import TokenBoundary, errors
from zinc_rt.seed.cs.boundary_programs import NAMES, built_in
from zinc_rt.seed.cs.sentinels import BoundaryOperation, sentinel
from zinc_rt.utils.linux import Argument


@contextmanager
def made() -> Iterator[tuple[TokenBoundary, RecordingShader]]:
    """A boundary whose kernels are the stand-ins, and what records the dispatches."""
    shader = RecordingShader()
    with process(shader=shader) as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        install(shader, boundary)
        yield boundary, shader


@pytest.mark.parametrize("name", CHECKS)
def test_answers(name: str) -> None:
    with made() as (boundary, _):
        CHECKS[name](boundary)


X = np.ones(64, np.float32)
ROW_Q4, ROW_Q8, ROW_F32 = bytes(36), bytes(68), bytes(256)
OUT = 0x1_0221_0000
IN = 0x1_0201_0000

Call = Callable[[TokenBoundary], Any]
OPERATIONS: dict[str, tuple[Call, BoundaryOperation, tuple[int, ...]]] = {  # the call, its sentinel, its user data
    "argmax_top2": (
        lambda b: b.argmax_top2(3, 1.0, 4, -1.0),
        BoundaryOperation.argmax_top2,
        (0, 0, OUT & 0xFFFFFFFF, 1, 0xBF800000, 0x407FFFFF, 3, 4),
    ),
    "argmax_keys": (
        lambda b: b.argmax_f32_range([1.0, 2.0, 0.5], 40),
        BoundaryOperation.argmax_range,
        (IN & 0xFFFFFFFF, 1, OUT & 0xFFFFFFFF, 1, 3, 40, 0, 0),
    ),
    "rms_norm_element0": (
        lambda b: b.rms_norm_element0(1.0, 2.0, 3.0),
        BoundaryOperation.rms_norm,
        (IN & 0xFFFFFFFF, 1, OUT & 0xFFFFFFFF, 1, 0, 0, 0, 0),
    ),
    **{
        name: (call, operation, (IN & 0xFFFFFFFF, 1, OUT & 0xFFFFFFFF, 1, IN + at & 0xFFFFFFFF, 1, cols, rows))
        for name, operation, at, cols, rows, call in (
            ("dmmv_serial_f32", BoundaryOperation.dmmv_f32, 256, 64, 2,
             lambda b: b.dmmv_f32_row_range(X, ROW_F32 * 2, 2, 64, out(2))),
            ("dmmv_serial_q4_0", BoundaryOperation.dmmv_q4_0, 128, 32, 2,
             lambda b: b.dmmv_q4_0_row_range(X[:32], ROW_Q4, 2, 32, out(2))),
            ("dmmv_rows_q4_0", BoundaryOperation.dmmv_q4_0_parallel, 256, 64, 64,
             lambda b: b.dmmv_q4_0_row_range_parallel(X, ROW_Q4 * 64, 64, 64, out(64))),
            ("dmmv_serial_q4_0 of two rows", BoundaryOperation.dmmv_q4_0_two_rows, 256, 64, 2,
             lambda b: b.dmmv_q4_0_two_rows(X, ROW_Q4, ROW_Q4, 64, out(2))),
            ("dmmv_argmax_q4_0", BoundaryOperation.dmmv_q4_0_argmax, 256, 64, 3,
             lambda b: b.dmmv_q4_0_argmax_row_range(X, ROW_Q4 * 3, 3, 64)),
            ("dmmv_serial_q8_0", BoundaryOperation.dmmv_q8_0, 256, 64, 3,
             lambda b: b.dmmv_q8_0_row_range(X, ROW_Q8 * 3, 3, 64, out(3))),
            ("dmmv_serial_q8_0 of two ranges", BoundaryOperation.dmmv_q8_0_two_ranges, 256, 64, 3,
             lambda b: b.dmmv_q8_0_two_row_ranges(X, ROW_Q8, 1, ROW_Q8 * 2, 2, 64, out(3))),
            ("dmmv_rows_q8_0", BoundaryOperation.dmmv_q8_0_two_ranges_parallel64, 256, 64, 64,
             lambda b: b.dmmv_q8_0_two_row_ranges_parallel64(X, ROW_Q8 * 32, 32, ROW_Q8 * 32, 32, 64, out(64))),
        )
    },
}  # fmt: skip


def out(rows: int) -> Any:
    """An output of so many rows."""
    return np.zeros(rows, np.float32)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_dispatched(name: str) -> None:
    call, operation, user_data = OPERATIONS[name]
    with made() as (boundary, shader):
        call(boundary)
        (dispatch,) = shader.dispatches
        program = boundary.programs[name.split(maxsplit=1)[0]]
        assert dispatch.user_data[:8] == user_data
        assert dispatch.address == program.va
        assert (dispatch.groups, dispatch.threads) == ((1, 1, 1), (program.kernel.workgroup, 1, 1))
        assert dispatch.wave32 is (program.kernel.wave == 32)
        assert (dispatch.rsrc1, dispatch.rsrc2, dispatch.rsrc3) == (
            program.kernel.rsrc1,
            program.kernel.rsrc2,
            program.kernel.rsrc3,
        )
        assert dispatch.n_user_sgprs == program.kernel.dwords <= 8
        retired(boundary, operation)
        assert (boundary.submit_count, boundary.last_ib_bytes) == (1, 256)


def test_the_packets_of_a_dispatch() -> None:
    with made() as (boundary, _):
        boundary.argmax_top2(3, 1.0, 4, -1.0)
        words = boundary.ib_map[:128].tolist()
        program, proof = boundary.programs["argmax_top2"], sentinel(BoundaryOperation.argmax_top2, 1)
        kernel = program.kernel
        assert words[:2] == [0xC0001000, 0]
        assert words[2:6] == [0xC0027600, 0x20C, program.va >> 8 & 0xFFFFFFFF, program.va >> 40]
        assert words[6:10] == [0xC0027600, 0x212, kernel.rsrc1, kernel.rsrc2]
        assert words[10:17] == [0xC0057600, 0x224, 0, 0, 0, 0, kernel.rsrc3]
        assert words[17:22] == [0xC0037600, 0x207, 1, 1, 1]
        assert words[22:27] == [0xC0037600, 0x215, 0, 0xFFFFFFFF, 0xFFFFFFFF]
        assert words[27:31] == [0xC0027600, 0x219, 0xFFFFFFFF, 0xFFFFFFFF]
        assert words[31:38] == [0xC0057600, 0x22B, *[0xFFFFFFFF] * 4, 64]
        assert words[38:41] == [0xC0017600, 0x27D, 0]
        assert words[41:51] == [0xC0087600, 0x240, 0, 0, 0x0221_0000, 1, 0xBF800000, 0x407FFFFF, 3, 4]
        assert words[51:56] == [0xC0031500, 1, 1, 1, 0x8005]
        assert words[56] == 0xC0064900, "a fence behind the shader's work"
        assert words[59:63] == [0x0221_8000, 1, proof & 0xFFFFFFFF, proof >> 32]


@pytest.mark.parametrize("name", OPERATIONS)
def test_words_before(name: str) -> None:
    """What the output holds when the kernel starts: ids are all ones, floats NaN. And a kernel that writes nothing."""
    with made() as (boundary, shader):
        seen: list[int] = []

        def look(dispatch: Dispatch, memory: ShaderMemory) -> None:
            seen.extend(memory.read(OUT, 12).view("<u4").tolist())

        boundary.output_map[:] = 0x1234
        program = boundary.programs[name.split(maxsplit=1)[0]]
        shader.add(program.va, look)
        if name in ("argmax_top2", "argmax_keys", "dmmv_argmax_q4_0"):
            kind = errors.ArgmaxTop2InvalidToken if name == "argmax_top2" else errors.ArgmaxRangeInvalidToken
            with pytest.raises(kind, match="the kernel chose"):
                OPERATIONS[name][0](boundary)
        else:
            OPERATIONS[name][0](boundary)
        nan, nothing = 0x7FC00000, 0xFFFFFFFF
        before = {"argmax_top2": [nothing], "argmax_keys": [nothing] * 2, "dmmv_argmax_q4_0": [nothing, nan]}
        n = len(before[name]) if name in before else 1
        assert seen[:n] == before.get(name, [nan])
        assert seen[2] in (nan, 0x1234)
        assert boundary.submit_count == 1


def test_answers_outside_of_the_range() -> None:
    answer = [0]

    def wrong(dispatch: Dispatch, memory: ShaderMemory) -> None:
        memory.write(OUT, np.array(answer * 2, np.uint32))

    with made() as (boundary, shader):
        for program in boundary.programs.values():
            shader.add(program.va, wrong)
        answer[:] = [4]
        assert boundary.argmax_top2(3, 1.0, 4, 2.0) == 4
        assert boundary.argmax_f32_range([1.0], 4).token == 4
        for token in (0, 5, 0xFFFFFFFF):
            answer[:] = [token]
            with pytest.raises(errors.ArgmaxTop2InvalidToken, match=str(token)):
                boundary.argmax_top2(3, 1.0, 4, 2.0)
        for token in (9, 13):
            answer[:] = [token]
            with pytest.raises(errors.ArgmaxRangeInvalidToken, match="10 to 12"):
                boundary.argmax_f32_range([1.0, 2.0, 3.0], 10)
        answer[:] = [3]
        with pytest.raises(errors.ArgmaxRangeInvalidToken, match="row 3; the range has 3"):
            boundary.dmmv_q4_0_argmax_row_range(X, ROW_Q4 * 3, 3, 64)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_wrong_signal_leaves_the_output_alone(name: str) -> None:
    shader = RecordingShader()
    with process(shader=shader) as linux:

        def spoil(argument: Argument) -> None:
            if len(spoilt) == 0:
                spoilt.append(1)
                boundary.ib_map[56] = 0xC0061000  # RELEASE_MEM becomes a NOP

        spoilt: list[int] = []
        with TokenBoundary.init_path(NODE, linux=Before(linux, AMDGPU_CS.value, spoil)) as boundary:
            install(shader, boundary)
            with pytest.raises(SignalMismatch, match="the signal is 0x0"):
                OPERATIONS[name][0](boundary)
            assert boundary.submit_count == 1
            OPERATIONS[name][0](boundary)
            assert boundary.copy_u32(5) == 5


def test_results_come_after_the_proof() -> None:
    with made() as (boundary, shader):
        output = np.full(2, 7.0, np.float32)

        def faults(dispatch: Dispatch, memory: ShaderMemory) -> None:
            memory.read(0x1000, 4)

        shader.add(boundary.programs["dmmv_serial_q4_0"].va, faults)
        with pytest.raises(errors.WaitFailed, match="dmesg"):
            boundary.dmmv_q4_0_row_range(X, ROW_Q4 * 2, 2, 64, output)
        assert output.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_call_may_fail(name: str) -> None:
    def run(linux: Process) -> None:
        shader = linux.machine.shader if isinstance(linux, Process) else recording
        with TokenBoundary.init_path(NODE, linux=linux) as boundary:
            assert isinstance(shader, RecordingShader)
            install(shader, boundary)
            OPERATIONS[name][0](boundary)

    recording = RecordingShader()
    for call, n in calls_of(run, shader=recording).items():
        for skip in range(n) if call in ("AMDGPU_CS", "AMDGPU_WAIT_CS") or name == "argmax_top2" else ():
            giving = gives_back(call, skip, n)
            with failing(call, errno.EFAULT, skip, lenient=giving, shader=RecordingShader()) as linux:
                if giving:
                    run(linux)
                else:
                    with pytest.raises(errors.CsError):
                        run(linux)


def test_a_late_fence() -> None:
    with made() as (boundary, shader):
        boundary.timeout = 0.05
        gpu = boundary._session.linux.machine.gpus[0]  # type: ignore[attr-defined]
        gpu.fence_delay = 0.2
        output = np.zeros(2, np.float32)
        with pytest.raises(errors.WaitTimedOut):
            boundary.dmmv_q4_0_row_range(X, ROW_Q4 * 2, 2, 64, output)
        gpu.fence_delay, boundary.timeout = 0, 10
        assert boundary.argmax_top2(1, 2.0, 3, 4.0) == 3
        assert len(shader.dispatches) == 2


def test_after_the_end() -> None:
    with made() as (boundary, _):
        boundary.close()
        for call, _operation, _words in OPERATIONS.values():
            with pytest.raises(BackendError, match="was closed"):
                call(boundary)


def test_threads_take_turns() -> None:
    with made() as (boundary, _):
        wrong: list[object] = []

        def work(n: int) -> None:
            for i in range(20):
                output = np.zeros(n, np.float32)
                row = np.full((n, 64), i, np.float32)
                boundary.dmmv_f32_row_range(X, row, n, 64, output)
                if output.tolist() != [64.0 * i] * n or boundary.argmax_top2(n, 1.0, i, 0.0) != n:
                    wrong.append((n, i, output))

        threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_kernels_that_cannot_be_launched() -> None:
    good = built_in()
    serial = good["dmmv_serial_q4_0"]
    for wrong, text in (
        ({}, "kernel argmax_top2 is missing; there are none"),
        ({**good, "dmmv_serial_q4_0": replace(serial, target="gfx1100")}, "compiled for gfx1100"),
        (
            {**good, "dmmv_serial_q4_0": replace(serial, arguments=(*serial.arguments, Argument("more", u32, 8)))},
            "9 dwords",
        ),
        (
            {**good, "dmmv_serial_q4_0": replace(serial, rsrc2=serial.rsrc2 | 1, tmpring=1 << 12)},
            "256 bytes of scratch",
        ),
        ({**good, "dmmv_serial_q4_0": replace(serial, code=bytes(40000))}, "the shader buffer has 32768"),
    ):
        with process() as linux:
            with pytest.raises(BackendError, match=text):
                TokenBoundary.init_path(NODE, linux=linux, kernels=wrong)
            assert not linux._files
            assert not linux._maps


def test_kernels_are_compiled_once_and_complete() -> None:
    assert tuple(built_in()) == NAMES
    assert built_in() is built_in()
    assert sum(-(-len(kernel.code) // 256) * 256 for kernel in built_in().values()) <= 32 << 10
