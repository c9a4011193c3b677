"""The smoke test: every status is reached, nothing leaks, nothing is raised."""

from __future__ import annotations

import ctypes
import errno
import itertools

import pytest

from amdgpu_emu.machine import DeviceFile
from amdgpu_emu.models import R9700, RX7900XTX
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu.cs.machines import NODE, Before, calls_of, failing, gives_back, process
from zinc_rt.amdgpu.abi.requests import AMDGPU_CS
from zinc_rt.seed import cs
from zinc_rt.seed.cs import DrmAmdgpuCs, SmokeStatus, submit_nop_smoke_path
from zinc_rt.seed.cs.sentinels import smoke_sentinel
from zinc_rt.utils.linux import Argument, Linux


@pytest.mark.parametrize("profile", [LINUX_6_12, LINUX_6_17, LINUX_7_3], ids=lambda p: p.name)
def test_two_submissions_retire(profile: object) -> None:
    with process(profile=profile) as linux:
        result = submit_nop_smoke_path(NODE, linux=linux)
    assert (result.status, result.errno) == (SmokeStatus.ok, None)
    assert result.ok()
    assert (result.render_node, result.ip_type, result.available_rings) == (NODE, 1, 0xF)
    assert (result.ib_va, result.signal_va) == (0x1_0000_0000, 0x1_0001_0000)
    assert (result.ib_bytes, result.submit_count, result.wait_status) == (256, 2, 0)
    assert (result.first_fence_handle, result.fence_handle) == (1, 2)
    assert result.signal_value == smoke_sentinel(2)
    assert result.ctx_id == result.bo_list_handle == 1


def test_the_four_names_do_the_same() -> None:
    with process(models=[RX7900XTX, R9700]) as linux:
        for smoke in (cs.setup_smoke_default, cs.submit_nop_smoke_default):
            assert smoke(linux=linux).render_node == NODE
            assert smoke(linux=linux).ok()
        for smoke_path in (cs.setup_smoke_path, cs.submit_nop_smoke_path):
            assert smoke_path("/dev/dri/renderD129", linux=linux).ok()


def test_packets_are_those_of_the_recipe() -> None:
    seen: list[list[int]] = []
    with process() as linux:

        def look(argument: Argument) -> None:
            assert isinstance(argument, DrmAmdgpuCs)
            chunk = cs.DrmAmdgpuCsChunk.from_address(ctypes.c_uint64.from_address(argument.in_.chunks).value)
            ib = cs.DrmAmdgpuCsChunkIb.from_address(chunk.chunk_data)
            assert (chunk.chunk_id, chunk.length_dw, argument.in_.flags) == (cs.AMDGPU_CHUNK_ID_IB, 8, 0)
            assert (ib.flags, ib.ip_type, ib.ip_instance, ib.ring) == (cs.AMDGPU_IB_FLAG_EMIT_MEM_SYNC, 1, 0, 0)
            bo = next(bo for _, bo in linux._maps.values() if bo is not None and bo.size == 64 << 10)
            seen.append(bo.words(0, ib.ib_bytes // 4).tolist())

        assert submit_nop_smoke_path(NODE, linux=Before(linux, AMDGPU_CS.value, look)).ok()
    for submission, words in enumerate(seen, 1):
        sentinel = smoke_sentinel(submission)
        nop3, write, nop1 = [0xC0021000, 0, 0, 0], [0xC0043700, 0x00100500, 0x00010000, 1], [0xC0001000, 0]
        assert words[:12] == nop3 + write + [sentinel & 0xFFFFFFFF, sentinel >> 32] + nop1
        assert words[12] == 0xC0001000 | 50 << 16
        assert words[13:] == [0] * 51
    assert len(seen) == 2


FAILURES = [  # status, failing call, calls before it that pass, errno
    ("render_node_open_failed", "open", 0, errno.EACCES),
    ("render_node_open_failed", "DRM_VERSION", 0, errno.ENOTTY),
    ("hw_ip_query_failed", "AMDGPU_INFO", 0, errno.EINVAL),
    ("ctx_alloc_failed", "AMDGPU_CTX", 0, errno.ENOMEM),
    ("va_reservation_failed", "AMDGPU_INFO", 1, errno.EFAULT),
    ("ib_bo_failed", "AMDGPU_GEM_CREATE", 0, errno.ENOMEM),
    ("ib_map_failed", "AMDGPU_GEM_MMAP", 0, errno.ENOENT),
    ("ib_map_failed", "mmap", 0, errno.EAGAIN),
    ("ib_va_failed", "AMDGPU_GEM_VA", 0, errno.EINVAL),
    ("signal_bo_failed", "AMDGPU_GEM_CREATE", 1, errno.ENOMEM),
    ("signal_map_failed", "AMDGPU_GEM_MMAP", 1, errno.EPERM),
    ("signal_map_failed", "mmap", 1, errno.ENODEV),
    ("signal_va_failed", "AMDGPU_GEM_VA", 1, errno.EINVAL),  # the third call takes the first one's map away
    ("bo_list_failed", "AMDGPU_BO_LIST", 0, errno.ENOENT),
    ("cs_submit_failed", "AMDGPU_CS", 0, errno.ECANCELED),
    ("cs_submit_failed", "AMDGPU_CS", 1, errno.EINVAL),
    ("wait_cs_failed", "AMDGPU_WAIT_CS", 0, errno.ETIME),
    ("wait_cs_failed", "AMDGPU_WAIT_CS", 1, errno.ECANCELED),
]


@pytest.mark.parametrize(("status", "call", "skip", "code"), FAILURES)
def test_a_failing_call_has_its_status(status: str, call: str, skip: int, code: int) -> None:
    with process() as linux:
        fault = linux.machine.inject(call, code, skip=skip)
        result = submit_nop_smoke_path(NODE, linux=linux)
        assert (result.status, result.errno) == (status, code)
        assert fault.seen > skip
        assert cs.last_errno() == (None if call in ("open", "mmap") else code)
        linux.machine.faults.clear()
        assert submit_nop_smoke_path(NODE, linux=linux).ok(), "the machine is as before"


def test_last_errno_is_cleared_by_what_succeeds_and_kept_by_giving_back() -> None:
    with process() as linux:
        linux.machine.inject("AMDGPU_GEM_CREATE", errno.ENOMEM)
        submit_nop_smoke_path(NODE, linux=linux)
        assert cs.last_errno() == errno.ENOMEM
        submit_nop_smoke_path(NODE, linux=linux)
        assert cs.last_errno() is None


def test_not_linux() -> None:
    class Elsewhere(Linux):
        is_linux = False

        def open(self, path: str, flags: int = 0) -> int:
            raise AssertionError("nothing may be opened")

    result = submit_nop_smoke_path(NODE, linux=Elsewhere())
    assert (result.status, result.errno) == (SmokeStatus.unsupported_os, None)


def test_no_rings() -> None:
    from dataclasses import replace

    with process(models=[replace(R9700, compute_rings=0)]) as linux:
        result = submit_nop_smoke_path(NODE, linux=linux)
    assert (result.status, result.available_rings, result.errno) == (SmokeStatus.no_rings, 0, None)


def test_wait_timeout() -> None:
    with process() as linux:
        linux.machine.gpus[0].fence_delay = 0.15
        result = submit_nop_smoke_path(NODE, timeout=0.02, linux=linux)
        assert (result.status, result.wait_status, result.submit_count) == (SmokeStatus.wait_timeout, 1, 0)
        linux.machine.settle()


def test_signal_check_failed() -> None:
    # A write that does not arrive: the packet is a NOP by the time the GPU reads it.
    with process() as linux:
        seen: list[int] = []

        def spoil(argument: Argument) -> None:
            seen.append(1)
            bo = next(bo for _, bo in linux._maps.values() if bo is not None and bo.size == 64 << 10)
            if len(seen) == 2:
                bo.words(16, 1)[:] = 0xC0041000

        result = submit_nop_smoke_path(NODE, linux=Before(linux, AMDGPU_CS.value, spoil))
    assert (result.status, result.signal_value, result.submit_count) == (SmokeStatus.signal_check_failed, 0, 2)


def test_every_status_is_reached_here() -> None:
    elsewhere = {"ok", "unsupported_os", "no_rings", "wait_timeout", "signal_check_failed"}
    assert {row[0] for row in FAILURES} | elsewhere == {status.value for status in SmokeStatus}


def test_refused_by_the_file() -> None:
    with process(device_file=DeviceFile(mode=0o600)) as linux:
        result = submit_nop_smoke_path(NODE, linux=linux)
        assert (result.status, result.errno) == (SmokeStatus.render_node_open_failed, errno.EACCES)
    with process(has_dri=False) as linux:
        result = submit_nop_smoke_path(NODE, linux=linux)
        assert (result.status, result.errno) == (SmokeStatus.render_node_open_failed, errno.ENOENT)
    with process() as linux:
        result = submit_nop_smoke_path("/dev/dri/\0renderD128", linux=linux)
        assert result.status is SmokeStatus.render_node_open_failed


def test_another_drivers_node_is_left_alone() -> None:
    from zinc_rt.amdgpu.abi.drm import DrmVersion
    from zinc_rt.amdgpu.abi.requests import DRM_VERSION

    asked: list[int] = []

    class Foreign(Linux):
        def open(self, path: str, flags: int = 0) -> int:
            return 77

        def close(self, fd: int) -> None:
            asked.append(-fd)

        def ioctl(self, fd: int, request: int, argument: Argument) -> int:
            asked.append(request)
            assert isinstance(argument, DrmVersion)
            ctypes.memmove(argument.name, b"i915", 4)
            argument.name_len = 4
            return 0

    result = submit_nop_smoke_path(NODE, linux=Foreign())
    assert (result.status, result.errno) == (SmokeStatus.render_node_open_failed, errno.ENODEV)
    assert asked == [DRM_VERSION.value, -77]


def test_every_call_may_fail() -> None:
    counted = calls_of(lambda linux: submit_nop_smoke_path(NODE, linux=linux))
    assert counted["AMDGPU_CS"] == counted["AMDGPU_WAIT_CS"] == 2
    for call, n in counted.items():
        for skip, code in itertools.product(range(n), (errno.EINVAL, errno.ENOMEM)):
            giving = gives_back(call, skip, n)
            with failing(call, code, skip, lenient=giving) as linux:  # raises when something leaks
                result = submit_nop_smoke_path(NODE, linux=linux)
            assert result.ok() == giving, (call, skip)
            assert result.errno == (None if giving else code)


def test_on_this_machine() -> None:
    result = submit_nop_smoke_path("/dev/dri/renderD255")
    assert (result.status, result.errno) == (SmokeStatus.render_node_open_failed, errno.ENOENT)
    assert isinstance(cs.submit_nop_smoke_default().status, SmokeStatus)
    result = submit_nop_smoke_path("/dev/null")
    assert (result.status, result.errno) == (SmokeStatus.render_node_open_failed, errno.ENOTTY)
