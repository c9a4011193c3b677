"""Every status of the bring-up, and that nothing stays behind."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from amdgpu_emu.machine import DeviceFile, Machine
from amdgpu_emu.models import R9700, RAPHAEL
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import PROFILES, KernelProfile
from tests.amdgpu.kfd.tamper import NotLinux, after
from zinc_rt.amdgpu.kfd.process import kept_state
from zinc_rt.seed.kfd import (
    DEFAULT_RENDER_NODE,
    BringUpStatus,
    bring_up_default,
    bring_up_path,
    create_compute_queue_smoke_default,
    last_errno,
)

S = BringUpStatus


@pytest.fixture
def machine() -> Iterator[Machine]:
    """One R9700; closing it fails the test when anything was left behind."""
    with Machine() as made:
        yield made


@dataclass
class Case:
    """How to reach a status. fault: call, errno and calls that pass first; tamper: changes a process."""

    status: BringUpStatus
    fault: tuple[str, int, int] | None = None
    match: str = ""
    tamper: Callable[[Process], None] | None = None
    node: str = DEFAULT_RENDER_NODE
    options: dict[str, Any] = field(default_factory=dict)
    errno: int | None = None

    @property
    def code(self) -> int | None:
        """What the result must hold."""
        return self.fault[1] if self.fault else self.errno


def too_old(process: Process) -> None:
    after(process, "KFD_GET_VERSION", lambda args: setattr(args, "major_version", 0))


def none_mapped(process: Process) -> None:
    after(process, "KFD_MAP_MEMORY_TO_GPU", lambda args: setattr(args, "n_success", 0))


def no_aperture(process: Process) -> None:
    after(process, "KFD_GET_PROCESS_APERTURES_NEW", lambda args: setattr(args, "num_of_nodes", 0))


def forgetful(process: Process) -> None:
    process.load64 = lambda address: 0  # type: ignore[method-assign]


def high_addresses(process: Process) -> None:
    real = process.mmap

    def mmap(address: int, length: int, *rest: int) -> int:
        at = real(address, length, *rest)
        if address == 0:
            process.munmap(at, length)
            return 1 << 60
        return at

    process.mmap, munmap = mmap, process.munmap  # type: ignore[method-assign]
    process.munmap = lambda at, n: munmap(at, n) if at < 1 << 60 else None  # type: ignore[method-assign]


CASES = [
    Case(S.kfd_open_failed, options={"has_kfd": False}, errno=errno.ENOENT),
    Case(S.kfd_open_failed, options={"device_file": DeviceFile(mode=0o600)}, errno=errno.EACCES),
    Case(S.render_node_open_failed, ("open", errno.EACCES, 0), "renderD"),
    Case(S.get_version_failed, ("KFD_GET_VERSION", errno.ENOTTY, 0)),
    Case(S.kfd_version_too_old, tamper=too_old),
    Case(S.topology_unreadable, node="/dev/dri/card0"),
    Case(S.topology_node_missing, node="/dev/dri/renderD200"),
    Case(S.topology_node_missing, options={"models": []}),
    Case(S.topology_node_missing, options={"has_dri": False}),  # a container without the card may not read its node
    Case(S.acquire_vm_failed, ("KFD_ACQUIRE_VM", errno.EBUSY, 0)),
    Case(S.apertures_failed, ("KFD_GET_PROCESS_APERTURES_NEW", errno.EFAULT, 0)),
    Case(S.apertures_failed, ("KFD_GET_PROCESS_APERTURES_NEW", errno.ENOMEM, 1)),
    Case(S.aperture_missing, tamper=no_aperture),
    Case(S.va_reservation_failed, ("mmap", errno.ENOMEM, 0)),
    Case(S.va_outside_aperture, tamper=high_addresses),
    Case(S.alloc_failed, ("KFD_ALLOC_MEMORY_OF_GPU", errno.ENOMEM, 0)),
    Case(S.map_failed, ("KFD_MAP_MEMORY_TO_GPU", errno.EINVAL, 0)),
    Case(S.map_incomplete, tamper=none_mapped),
    Case(S.mmap_failed, ("mmap", errno.EACCES, 1)),
    Case(S.roundtrip_mismatch, tamper=forgetful),
    Case(S.unmap_failed, ("KFD_UNMAP_MEMORY_FROM_GPU", errno.EBUSY, 0)),
    Case(S.free_failed, ("KFD_FREE_MEMORY_OF_GPU", errno.EBUSY, 0)),
]


def test_every_status_has_a_case() -> None:
    assert {case.status for case in CASES} | {S.ok, S.unsupported_os} == set(S)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.status.value)
def test_failures(case: Case) -> None:
    with Machine(**case.options) as machine:
        process = machine.process()
        if case.fault:
            call, code, skip = case.fault
            machine.inject(call, code, skip=skip, match=case.match)
        if case.tamper:
            case.tamper(process)
        result = bring_up_path(case.node, linux=process)
        assert (result.status, result.errno) == (case.status, case.code)
        assert not result.ok()
        assert result.render_node == case.node


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_ok(profile: KernelProfile) -> None:
    with Machine(profile) as machine:
        result = bring_up_default(linux=machine.process())
        assert result.ok(), result
        assert result.errno is None
        assert (result.kfd_version_major, result.kfd_version_minor) == (1, profile.kfd_minor)
        assert (result.gpu_id, result.gfx_target_version, result.simd_count) == (machine.gpus[0].gpu_id, 120001, 128)
        assert (result.cwsr_size, result.ctl_stack_size) == (0x1D47000, 0x7000)
        assert (result.gpuvm_base, result.gpuvm_limit) == (0x10000, 0x7FFFFFFFFFFF)
        assert result.gpuvm_base <= result.scratch_va <= result.gpuvm_limit
        assert result.scratch_va % 4096 == 0


def test_not_linux() -> None:
    result = bring_up_path("/dev/dri/renderD129", linux=NotLinux())
    assert (result.status, result.render_node, result.errno) == (S.unsupported_os, "/dev/dri/renderD129", None)


def test_the_second_card(machine: Machine) -> None:
    with Machine(models=[RAPHAEL, R9700]) as two:
        result = bring_up_path("/dev/dri/renderD129", linux=two.process())
        assert result.ok()
        assert result.gpu_id == two.gpus[1].gpu_id


def test_order_of_calls(machine: Machine) -> None:
    process = machine.process()
    machine.trace = []
    assert bring_up_default(linux=process).ok()
    names = [line.removesuffix(" -> 0") for line in machine.trace if line.startswith(("KFD_", "open"))]
    assert names == [
        "open /dev/kfd",
        "open /dev/dri/renderD128",
        "KFD_GET_VERSION",
        "KFD_ACQUIRE_VM",
        "KFD_GET_PROCESS_APERTURES_NEW",
        "KFD_GET_PROCESS_APERTURES_NEW",
        "KFD_ALLOC_MEMORY_OF_GPU",
        "KFD_MAP_MEMORY_TO_GPU",
        "KFD_UNMAP_MEMORY_FROM_GPU",
        "KFD_FREE_MEMORY_OF_GPU",
    ]


def test_again_in_the_same_process(machine: Machine) -> None:
    """amdkfd binds the process to one open render file for good: another one would be EBUSY."""
    process = machine.process()
    for _ in range(3):
        assert bring_up_default(linux=process).ok()
        assert create_compute_queue_smoke_default(linux=process).ok()


def test_threads(machine: Machine) -> None:
    """All at once, in one process: they share the render file and nothing else."""
    process = machine.process()
    results: list[bool] = []

    def work() -> None:
        for _ in range(5):
            results.append(bring_up_default(linux=process).ok())
            results.append(create_compute_queue_smoke_default(linux=process).ok())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 40


def test_last_errno_is_each_threads_own(machine: Machine) -> None:
    process = machine.process()
    machine.inject("KFD_GET_VERSION", errno.ENOTTY)
    bring_up_default(linux=process)
    seen: list[int | None] = []
    thread = threading.Thread(target=lambda: seen.append(last_errno()))
    thread.start()
    thread.join()
    assert (last_errno(), seen) == (errno.ENOTTY, [None])


def test_a_forked_child_starts_with_nothing(machine: Machine) -> None:
    """It may not use its parent's render file: amdkfd knows the child as another process."""
    process = machine.process()
    assert bring_up_default(linux=process).ok()
    kept = kept_state(process)
    assert kept.render_files
    assert kept_state(process) is kept
    process.pid = lambda: 4711  # type: ignore[method-assign]
    assert kept_state(process).render_files == {}
    assert kept_state(process).event_page is None


def test_another_process_is_another_address_space(machine: Machine) -> None:
    assert all(bring_up_default(linux=machine.process()).ok() for _ in range(3))


def test_last_errno(machine: Machine) -> None:
    process = machine.process()
    machine.inject("KFD_GET_VERSION", errno.ENOTTY)
    assert bring_up_default(linux=process).status is S.get_version_failed
    assert last_errno() == errno.ENOTTY
    assert bring_up_default(linux=process).ok()
    assert last_errno() is None


def test_paths_of_all_kinds_give_a_status(machine: Machine) -> None:
    process = machine.process()
    for path in ("", "\0", "renderD128\0", "/nowhere/renderD128", "renderD" + "9" * 5000, "\udcff/renderD128"):
        assert not bring_up_path(path, linux=process).ok()


def test_what_cannot_be_given_back_is_reported_once(machine: Machine) -> None:
    machine.strict = False
    machine.inject("KFD_FREE_MEMORY_OF_GPU", errno.EBUSY, times=None)
    result = bring_up_default(linux=machine.process())
    assert (result.status, result.errno) == (S.free_failed, errno.EBUSY)
    machine.close()
    assert [finding.kind for finding in machine.findings] == ["leak"]
