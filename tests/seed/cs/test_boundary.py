"""`TokenBoundary`: what it makes, what it refuses, what it gives back."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from amdgpu_emu.models import R9700, RX7900XTX
from amdgpu_emu.process import Process
from tests.amdgpu.cs.machines import NODE, Before, calls_of, failing, gives_back, process
from zinc_rt.amdgpu.abi.requests import AMDGPU_CS
from zinc_rt.amdgpu.errors import SignalMismatch
from zinc_rt.amdgpu.pm4 import OutOfSpace
from zinc_rt.errors import BackendError
from zinc_rt.seed.cs import TokenBoundary, errors
from zinc_rt.seed.cs.sentinels import BoundaryOperation, sentinel
from zinc_rt.utils.linux import Argument, Linux

SIZES = {"ib": 0x1_0000, "input": 0x20_0000, "output": 0x8000, "signal": 0x1000, "shader": 0x8000}


def test_what_it_makes() -> None:
    with process() as linux, TokenBoundary.init_default(linux=linux) as boundary:
        vas = [getattr(boundary, f"{name}_va") for name in SIZES]
        assert vas == [0x1_0200_0000, 0x1_0201_0000, 0x1_0221_0000, 0x1_0221_8000, 0x1_0221_9000]
        for name, size in SIZES.items():
            assert getattr(boundary, f"{name}_map").nbytes == size
        end = boundary.shader_va
        for program in boundary.programs.values():
            code = program.kernel.code
            at = program.va - boundary.shader_va
            assert program.va % 256 == 0
            assert 0 <= program.va - end < 256
            assert boundary.shader_map.tobytes()[at : at + len(code)] == code
            end = program.va + len(code)
        assert (boundary.shader_map[(end - boundary.shader_va) // 4 :] == 0xBFB00000).all()
        assert (boundary.ctx_id, boundary.bo_list_handle, boundary.ip_type) == (1, 1, 1)
        assert boundary.submit_count == boundary.last_fence_handle == boundary.last_wait_status == 0
        assert boundary.last_ib_bytes == 0
        assert linux.file(boundary.file) is not None
        (file,) = linux._files.values()
        rights = {m.va: (m.size, m.readable, m.writable, m.executable) for m in file.vm}  # type: ignore[attr-defined]
        executable = (True, False, False, False, True)
        assert rights == {
            va: (size, True, True, x) for va, size, x in zip(vas, SIZES.values(), executable, strict=True)
        }
        boundary.builder.write_nop(3)
        assert boundary.ib_map[:4].tolist() == [0xC0021000, 0, 0, 0]


def test_copies() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        for n, value in enumerate((0, 1, 42, 0x8000_0000, 0xFFFF_FFFF), 1):
            copy = boundary.copy_u32 if n % 2 else boundary.produce_token
            assert copy(value) == value
            assert (boundary.submit_count, boundary.last_fence_handle, boundary.last_ib_bytes) == (n, n, 256)
            signal = int(boundary.signal_map[0]) | int(boundary.signal_map[1]) << 32
            assert signal == sentinel(BoundaryOperation.copy, n)
        for value in (-1, 1 << 32):
            with pytest.raises(errors.BackendError, match="4294967295"):
                boundary.copy_u32(value)
        assert boundary.submit_count == 5


def test_the_packets_of_a_copy() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        boundary.copy_u32(7)
        words = boundary.ib_map[:64].tolist()
        proof = sentinel(BoundaryOperation.copy, 1)
        assert words[:2] == [0xC0001000, 0]
        assert words[2:8] == [0xC0044000, 0x00100501, 0x0201_0000, 1, 0x0221_0000, 1]
        assert words[8:14] == [0xC0043700, 0x00100500, 0x0221_8000, 1, proof & 0xFFFFFFFF, proof >> 32]
        assert words[14] == 0xC0001000 | 48 << 16
        assert words[15:] == [0] * 49


INIT = [  # error, failing call, calls before it
    ("RenderNodeOpenFailed", "open", 0),
    ("RenderNodeOpenFailed", "DRM_VERSION", 0),
    ("HwIpQueryFailed", "AMDGPU_INFO", 0),
    ("CtxAllocFailed", "AMDGPU_CTX", 0),
    ("BoListFailed", "AMDGPU_BO_LIST", 0),
    *(
        (f"{name.capitalize()}{step}Failed", call, i)
        for i, name in enumerate(SIZES)
        for step, call in (
            ("Bo", "AMDGPU_GEM_CREATE"),
            ("Map", "AMDGPU_GEM_MMAP"),
            ("Map", "mmap"),
            ("Va", "AMDGPU_GEM_VA"),
        )
    ),
]


@pytest.mark.parametrize(("name", "call", "skip"), INIT)
def test_what_fails_has_its_error(name: str, call: str, skip: int) -> None:
    with process() as linux:
        linux.machine.inject(call, errno.ENOMEM, skip=skip)
        with pytest.raises(getattr(errors, name)) as caught:
            TokenBoundary.init_path(NODE, linux=linux)
        assert type(caught.value).__name__ == name
        assert caught.value.errno == errno.ENOMEM
        assert NODE in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not linux._files
        assert not linux._maps


def test_the_wrong_machine() -> None:
    class Elsewhere(Linux):
        is_linux = False

    with pytest.raises(errors.UnsupportedOs):
        TokenBoundary.init_default(linux=Elsewhere())
    with process(models=[RX7900XTX]) as linux, pytest.raises(errors.UnsupportedComputeIp, match="generation 11"):
        TokenBoundary.init_default(linux=linux)
    none = replace(R9700, compute_rings=0)
    with process(models=[none]) as linux, pytest.raises(errors.NoComputeRings, match="user_queue"):
        TokenBoundary.init_default(linux=linux)


def test_every_call_may_fail() -> None:
    def run(linux: Process) -> int:
        with TokenBoundary.init_path(NODE, linux=linux) as boundary:
            return boundary.copy_u32(9) + boundary.copy_u32(1)

    for call, n in calls_of(run).items():
        for skip in range(n):
            giving = gives_back(call, skip, n)
            with failing(call, errno.EFAULT, skip, lenient=giving) as linux:  # raises when something leaks
                if giving:
                    assert run(linux) == 10, "giving back goes on without it"
                else:
                    with pytest.raises(errors.CsError):
                        run(linux)


@pytest.mark.parametrize(("call", "error"), [("AMDGPU_CS", "SubmitFailed"), ("AMDGPU_WAIT_CS", "WaitFailed")])
def test_a_failed_submission(call: str, error: str) -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        linux.machine.inject(call, errno.ENOMEM)
        with pytest.raises(getattr(errors, error)):
            boundary.copy_u32(1)
        assert boundary.submit_count == 0
        assert boundary.copy_u32(2) == 2
        assert boundary.submit_count == 1


def test_a_late_fence_is_waited_for_before_the_buffer_is_used_again() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, timeout=0.05, linux=linux) as boundary:
        linux.machine.gpus[0].fence_delay = 0.2
        with pytest.raises(errors.WaitTimedOut, match=r"fence 1 within 0\.05 s"):
            boundary.copy_u32(1)
        assert (boundary.last_wait_status, boundary.submit_count) == (1, 0)
        with pytest.raises(errors.WaitTimedOut):
            boundary.copy_u32(2)
        assert boundary.last_fence_handle == 1, "nothing was submitted meanwhile"
        linux.machine.gpus[0].fence_delay = 0
        boundary.timeout = 10
        assert boundary.copy_u32(3) == 3
        assert boundary.last_wait_status == 0


def test_a_wrong_signal() -> None:
    with process() as linux:
        skipped: list[int] = []

        def spoil(argument: Argument) -> None:
            skipped.append(1)
            if len(skipped) == 2:
                boundary.ib_map[8] = 0xC0041000  # WRITE_DATA becomes a NOP

        with TokenBoundary.init_path(NODE, linux=Before(linux, AMDGPU_CS.value, spoil)) as boundary:
            assert boundary.copy_u32(1) == 1
            with pytest.raises(SignalMismatch, match="the signal is 0x0"):
                boundary.copy_u32(1)
            assert boundary.submit_count == 2, "counted before the comparison"
            assert boundary.copy_u32(5) == 5


def test_an_indirect_buffer_is_finite() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        with pytest.raises(OutOfSpace):
            boundary.perform(
                BoundaryOperation.copy, lambda: None, lambda builder, va, value: builder.write_nop(SIZES["ib"] // 4 - 1)
            )
        assert boundary.last_fence_handle == 0
        assert boundary.copy_u32(1) == 1


def test_a_hang_names_itself() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        with pytest.raises(errors.WaitFailed, match="dmesg") as caught:
            # Waits for a value that nobody writes.
            boundary.perform(
                BoundaryOperation.copy,
                lambda: None,
                lambda builder, va, value: builder.wait_mem(boundary.output_va, 1 << 31),
            )
        assert caught.value.errno == errno.ETIME
        with pytest.raises(errors.CsError):
            boundary.copy_u32(1)


def test_after_the_end() -> None:
    with process() as linux:
        boundary = TokenBoundary.init_path(NODE, linux=linux)
        builder, signal = boundary.builder, boundary.signal_map
        boundary.copy_u32(3)
        boundary.close()
        boundary.deinit()
        assert int(signal[0]) == 1, "an array that was taken stays readable"
        with pytest.raises(BackendError, match="was closed"):
            boundary.copy_u32(1)
        with pytest.raises(OutOfSpace):
            builder.write_nop(1)
        del signal


def test_two_threads_take_turns() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        wrong: list[int] = []

        def work(base: int) -> None:
            wrong.extend(v for v in range(base, base + 25) if boundary.copy_u32(v) != v)

        threads = [threading.Thread(target=work, args=(base,)) for base in (0, 1000, 2000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert boundary.submit_count == 75


def test_a_forked_child_is_refused() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        child = os.fork()
        if not child:
            code = 1
            try:
                boundary.copy_u32(1)
            except BackendError as error:
                code = 0 if "forked child" in str(error) else 2
            Process.ioctl = Process.munmap = Process.close = lambda *_: os._exit(3)  # type: ignore[method-assign]
            boundary.close()  # must not touch what is the parent's
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert boundary.copy_u32(8) == 8


def test_two_at_once_do_not_meet() -> None:
    with process(models=[R9700, R9700]) as linux:
        with (
            TokenBoundary.init_path(NODE, linux=linux) as a,
            TokenBoundary.init_path(NODE, linux=linux) as b,
            TokenBoundary.init_path("/dev/dri/renderD129", linux=linux) as c,
        ):
            for boundary, value in itertools.product((a, b, c), range(3)):
                assert boundary.copy_u32(value) == value
        assert not linux._files


def test_maps_are_the_memory_itself() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        boundary.input_map[:4] = np.arange(4, dtype=np.uint32)
        (bo,) = (bo for _, bo in linux._maps.values() if bo is not None and bo.size == SIZES["input"])
        assert bo.words(0, 4).tolist() == [0, 1, 2, 3]
        assert ctypes.sizeof(ctypes.c_uint32) * len(boundary.input_map) == bo.size
