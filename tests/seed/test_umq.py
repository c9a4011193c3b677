"""Asking the emulated kernel for user queues, and making one: every status, and nothing left behind any failure."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import replace

import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ
from zinc_rt.amdgpu.umq.queue import eop_bytes
from zinc_rt.seed import umq
from zinc_rt.seed.kmd import AMDGPU_INFO_UQ_FW_AREAS, DrmAmdgpuInfo, QueryStatus, query_compute_userq
from zinc_rt.seed.umq import ProbeStatus, SmokeResult, SmokeStatus
from zinc_rt.seed.umq.smoke import explain
from zinc_rt.utils.linux import Argument

NODE = "/dev/dri/renderD128"
BUFFERS, MAPS, ADDRESSES = 5, 3, 4  # of a queue: created, mapped into the process, put at GPU addresses


def smoke(machine: Machine) -> SmokeResult:
    """Run it on a machine, which then finds leaks."""
    with machine:
        return umq.create_free_smoke_path(NODE, linux=machine.process())


def test_passed() -> None:
    machine = Machine(LINUX_7_3_USERQ)
    result = smoke(machine)
    assert result == SmokeResult(
        SmokeStatus.passed, 1, ProbeStatus.preflight_ok, QueryStatus.available, None, 4, 2048, 256
    )
    assert result.ok()
    assert explain(result) == ("", "")


def test_again_and_again() -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        linux = machine.process()
        for _ in range(3):
            assert umq.create_free_smoke_default(linux=linux).ok()
            assert umq.admission_probe_default(linux=linux).ok()


def test_a_second_gpu() -> None:
    from amdgpu_emu.models import R9700

    with Machine(LINUX_7_3_USERQ, [R9700, R9700]) as machine:
        assert umq.create_free_smoke_path("/dev/dri/renderD129", linux=machine.process()).ok()


def test_admission_creates_nothing() -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        machine.trace = []
        result = umq.admission_probe_default(linux=machine.process())
        assert (result.status, result.queue_id, result.userq_slots) == (SmokeStatus.passed, 0, 4)
        assert [line.split()[0] for line in machine.trace] == ["open", "AMDGPU_INFO", "AMDGPU_INFO"]


@pytest.mark.parametrize(
    ("profile", "status"),
    [
        (LINUX_6_12, ProbeStatus.kernel_too_old),
        (replace(LINUX_7_3, user_queue=None), ProbeStatus.user_queue_param_missing),
        (replace(LINUX_7_3, user_queue=0), ProbeStatus.user_queue_disabled),
    ],
    ids=["old", "no parameter", "disabled"],
)
def test_preflight_failed(profile, status) -> None:
    result = smoke(Machine(profile))
    assert (result.status, result.preflight_status, result.query_status) == (SmokeStatus.preflight_failed, status, None)
    assert all(explain(result))


def test_preflight_failed_in_a_container() -> None:
    result = smoke(Machine(LINUX_7_3_USERQ, has_dri=False))
    assert result.preflight_status is ProbeStatus.render_node_missing
    assert "--device /dev/dri" in explain(result)[1]


@pytest.mark.parametrize("profile", [LINUX_6_17, LINUX_7_3])
def test_compute_userq_unavailable(profile) -> None:
    """The state of an R9700 with its default parameter: the kernel is new enough and there are no slots."""
    result = smoke(Machine(profile))
    assert result.status is SmokeStatus.compute_userq_unavailable
    assert result.query_status is QueryStatus.compute_userq_slots_missing
    assert result.errno is None
    assert "amdgpu.user_queue=1" in explain(result)[1]


def injected(call: str, code: int, skip: int = 0, match: str = "") -> SmokeResult:
    machine = Machine(LINUX_7_3_USERQ)
    fault = machine.inject(call, code, skip=skip, match=match)
    result = smoke(machine)
    assert fault.seen > skip, "the call was never made"
    assert not result.ok()
    assert result.errno == code
    assert all(explain(result))
    return result


def test_hw_ip_info_failed() -> None:
    assert injected("AMDGPU_INFO", errno.EACCES).query_status is QueryStatus.hw_ip_info_failed


def test_fw_metadata_failed() -> None:
    assert injected("AMDGPU_INFO", errno.EINVAL, skip=1).query_status is QueryStatus.fw_metadata_failed


def test_the_query_cannot_open_the_node() -> None:
    result = injected("open", errno.EACCES, match="renderD128")
    assert result.status is SmokeStatus.compute_userq_unavailable
    assert result.query_status is QueryStatus.render_node_open_failed


def test_render_node_open_failed() -> None:
    assert injected("open", errno.EMFILE, skip=1).status is SmokeStatus.render_node_open_failed


@pytest.mark.parametrize("i", range(BUFFERS))
def test_gem_create_failed(i: int) -> None:
    assert injected("AMDGPU_GEM_CREATE", errno.ENOMEM, skip=i).status is SmokeStatus.gem_create_failed


@pytest.mark.parametrize("i", range(MAPS))
@pytest.mark.parametrize("call", ["AMDGPU_GEM_MMAP", "mmap"])
def test_gem_mmap_failed(call: str, i: int) -> None:
    assert injected(call, errno.ENOMEM, skip=i).status is SmokeStatus.gem_mmap_failed


@pytest.mark.parametrize("i", range(ADDRESSES))
def test_gem_va_failed(i: int) -> None:
    assert injected("AMDGPU_GEM_VA", errno.EINVAL, skip=i).status is SmokeStatus.gem_va_failed


def test_userq_create_failed() -> None:
    result = injected("AMDGPU_USERQ", errno.EINVAL)
    assert (result.status, result.queue_id) == (SmokeStatus.userq_create_failed, 0)


def test_userq_free_failed() -> None:
    result = injected("AMDGPU_USERQ", errno.EIO, skip=1)
    assert (result.status, result.queue_id) == (SmokeStatus.userq_free_failed, 1)


@pytest.mark.parametrize("call", ["AMDGPU_GEM_VA", "DRM_GEM_CLOSE"])
def test_a_cleanup_that_fails_does_not_change_the_result(call: str) -> None:
    machine = Machine(LINUX_7_3_USERQ)
    machine.inject(call, errno.EIO, skip=ADDRESSES if call == "AMDGPU_GEM_VA" else 0, times=None)
    machine.strict = False  # what the kernel did not take back is left, and found
    assert smoke(machine).ok()


def test_a_gpu_that_is_gone() -> None:
    machine = Machine(LINUX_7_3_USERQ)
    machine.gpus[0].lost = True
    result = smoke(machine)
    assert not result.ok()
    assert result.errno == errno.ENODEV


# kmd on the emulated kernel.


@pytest.mark.parametrize(
    ("profile", "status", "code"),
    [
        (LINUX_7_3_USERQ, QueryStatus.available, None),
        (LINUX_6_12, QueryStatus.compute_userq_slots_missing, None),
        (LINUX_6_17, QueryStatus.compute_userq_slots_missing, None),
        # With user queues alone there are no kernel rings, and the query wants both.
        (replace(LINUX_7_3_USERQ, user_queue=2), QueryStatus.compute_userq_unsupported, None),
        # Before 7.2 the kernel tells the areas of graphics queues only.
        (replace(LINUX_6_17, user_queue=1), QueryStatus.fw_metadata_failed, errno.EINVAL),
    ],
    ids=["available", "6.12", "6.17", "user queues only", "6.17 with slots"],
)
def test_what_kernels_answer(profile, status: QueryStatus, code: int | None) -> None:
    with Machine(profile) as machine:
        result = query_compute_userq(NODE, linux=machine.process())
    assert (result.status, result.errno) == (status, code)


def test_a_process_without_the_group() -> None:
    with Machine(LINUX_7_3_USERQ, groups=(1000,)) as machine:
        result = query_compute_userq(NODE, linux=machine.process())
    assert (result.status, result.errno) == (QueryStatus.render_node_open_failed, errno.EACCES)


def test_invalid_fw_metadata_on_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        linux = machine.process()
        real = linux.ioctl

        def empty(fd: int, request: int, argument: Argument) -> int:
            done = real(fd, request, argument)
            if isinstance(argument, DrmAmdgpuInfo) and argument.query == AMDGPU_INFO_UQ_FW_AREAS:
                ctypes.memset(argument.return_pointer, 0, argument.return_size)
            return done

        monkeypatch.setattr(linux, "ioctl", empty)
        assert query_compute_userq(NODE, linux=linux).status is QueryStatus.invalid_fw_metadata


def test_query_on_the_emulator() -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        result = query_compute_userq(NODE, linux=machine.process())
        assert result.status is QueryStatus.available
        assert result.info is not None
        assert (result.info.userq_slots, result.info.eop_size, result.info.eop_alignment) == (4, 2048, 256)
    with Machine(LINUX_6_17) as machine:
        assert query_compute_userq(NODE, linux=machine.process()).status is QueryStatus.compute_userq_slots_missing
        assert query_compute_userq("/dev/dri/renderD7", linux=machine.process()).errno == errno.ENOENT


@pytest.mark.parametrize(
    ("size", "alignment", "n"), [(2048, 256, 4096), (5000, 256, 8192), (1, 1, 4096), (4097, 65536, 65536)]
)
def test_eop_bytes(size: int, alignment: int, n: int) -> None:
    assert eop_bytes(size, alignment) == n
