"""Every status of the queue smoke, and that nothing stays behind."""

from __future__ import annotations

import errno

import pytest

from amdgpu_emu.machine import DeviceFile, Machine
from amdgpu_emu.models import R9700, RAPHAEL, RX7900XTX, RX9060XT, RX9070, GpuModel
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import PROFILES, KernelProfile
from tests.amdgpu.kfd.tamper import NotLinux, after
from tests.seed.kfd import test_bring_up as bring_up
from zinc_rt.amdgpu.abi.kfd import CreateQueueArgs
from zinc_rt.seed.kfd import (
    DEFAULT_RENDER_NODE,
    ComputeQueueSmokeStatus,
    create_compute_queue_smoke_default,
    create_compute_queue_smoke_path,
    last_errno,
)

S = ComputeQueueSmokeStatus

# status, what is injected (call, errno, calls that pass first), how the system answers oddly, machine, errno
CASES = [
    (S.topology_node_missing, None, None, {"models": []}, None),
    (S.kfd_open_failed, None, None, {"has_kfd": False}, errno.ENOENT),
    (S.kfd_open_failed, None, None, {"device_file": DeviceFile(mode=0o600)}, errno.EACCES),
    (S.topology_node_missing, None, None, {"has_dri": False}, None),
    (S.render_node_open_failed, ("open", errno.EACCES, 1), None, {}, errno.EACCES),
    (S.get_version_failed, ("KFD_GET_VERSION", errno.ENOTTY, 0), None, {}, errno.ENOTTY),
    (S.kfd_version_too_old, None, bring_up.too_old, {}, None),
    (S.acquire_vm_failed, ("KFD_ACQUIRE_VM", errno.EBUSY, 0), None, {}, errno.EBUSY),
    (S.apertures_failed, ("KFD_GET_PROCESS_APERTURES_NEW", errno.EFAULT, 0), None, {}, errno.EFAULT),
    (S.aperture_missing, None, bring_up.no_aperture, {}, None),
    (S.va_reservation_failed, ("mmap", errno.ENOMEM, 0), None, {}, errno.ENOMEM),
    (S.va_reservation_failed, None, bring_up.high_addresses, {}, None),
    (S.bo_alloc_failed, ("KFD_ALLOC_MEMORY_OF_GPU", errno.ENOMEM, 4), None, {}, errno.ENOMEM),
    (S.bo_map_failed, ("KFD_MAP_MEMORY_TO_GPU", errno.EINVAL, 3), None, {}, errno.EINVAL),
    (S.bo_map_failed, ("mmap", errno.EACCES, 3), None, {}, errno.EACCES),
    (S.bo_map_failed, None, bring_up.none_mapped, {}, None),
    (S.create_queue_failed, ("KFD_CREATE_QUEUE", errno.EINVAL, 0), None, {}, errno.EINVAL),
    (S.destroy_queue_failed, ("KFD_DESTROY_QUEUE", errno.ETIME, 0), None, {}, errno.ETIME),
]


def test_every_status_has_a_case() -> None:
    assert {case[0] for case in CASES} | {S.ok, S.unsupported_os} == set(S)


@pytest.mark.parametrize(("status", "fault", "tamper", "options", "code"), CASES, ids=lambda case: str(case)[:24])
def test_failures(status, fault, tamper, options, code) -> None:  # type: ignore[no-untyped-def]
    with Machine(**options) as machine:
        process = machine.process()
        if fault:
            machine.inject(fault[0], fault[1], skip=fault[2])
        if tamper:
            tamper(process)
        result = create_compute_queue_smoke_path(DEFAULT_RENDER_NODE, linux=process)
        assert (result.status, result.errno) == (status, code)
        assert result.destroy_errno == (code if status is S.destroy_queue_failed else None)
        assert not result.ok()


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_ok(profile: KernelProfile) -> None:
    with Machine(profile) as machine:
        process = machine.process()
        result = create_compute_queue_smoke_default(linux=process)
        assert result.ok(), result
        assert (result.gpu_id, result.gfx_target_version) == (machine.gpus[0].gpu_id, 120001)
        assert (result.ring_size, result.eop_size, result.cwsr_bo_size) == (0x10000, 4096, 0x1D57000)
        assert (result.ctx_save_restore_size, result.ctl_stack_size) == (0x1D47000, 0x7000)
        assert (result.queue_id, result.doorbell_offset) == (0, 3 << 62 | result.gpu_id << 46)
        assert (result.nop_dwords_staged, result.wptr_value, result.rptr_value) == (6, 0, 0)
        assert result.create_queue_arg_size == 88
        places = [result.ring_va, result.wptr_va, result.rptr_va, result.eop_va, result.cwsr_va]
        assert all(va and va % 4096 == 0 for va in places)
        assert len(set(places)) == 5


def test_what_is_asked_for() -> None:
    with Machine() as machine:
        process = machine.process()
        asked: list[CreateQueueArgs] = []
        flags: list[int] = []
        after(process, "KFD_CREATE_QUEUE", lambda args: asked.append(CreateQueueArgs.from_buffer_copy(args)))
        after(process, "KFD_ALLOC_MEMORY_OF_GPU", lambda args: flags.append(args.flags))
        assert create_compute_queue_smoke_default(linux=process).ok()
        (args,) = asked
        assert (args.queue_type, args.queue_percentage, args.queue_priority) == (0, 100, 7)
        assert set(flags) == {1 << 1 | 1 << 31}
        assert len(flags) == 5


def test_staged_packets() -> None:
    """NOP(3) and NOP(1), as words of the packet format."""
    staged: list[list[int]] = []
    with Machine() as machine:
        process = machine.process()
        ring: list[int] = []
        after(process, "KFD_CREATE_QUEUE", lambda args: ring.append(args.ring_base_address))
        real = process.ioctl

        def ioctl(fd, request, argument):  # type: ignore[no-untyped-def]
            if request & 0xFF == 0x03:
                staged.append([process.load32(ring[0] + 4 * i) for i in range(8)])
            return real(fd, request, argument)

        process.ioctl = ioctl  # type: ignore[method-assign]
        assert create_compute_queue_smoke_default(linux=process).nop_dwords_staged == 6
    assert staged == [[0xC0021000, 0, 0, 0, 0xC0001000, 0, 0, 0]]


def test_not_linux() -> None:
    assert create_compute_queue_smoke_default(linux=NotLinux()).status is S.unsupported_os


@pytest.mark.parametrize("model", [R9700, RX9070, RX9060XT, RX7900XTX, RAPHAEL], ids=lambda model: model.name)
def test_sizes_of_other_cards_are_accepted(model: GpuModel) -> None:
    with Machine(models=[model]) as machine:
        result = create_compute_queue_smoke_default(linux=machine.process())
        assert result.ok(), result


def test_a_wrong_save_area_is_what_the_kernel_refuses() -> None:
    """The figures must come from the topology: any others are EINVAL."""

    def smaller(process: Process) -> None:
        real = process.read_text
        process.read_text = lambda path: real(path).replace("28672", "24576")  # type: ignore[method-assign]

    with Machine() as machine:
        process = machine.process()
        smaller(process)
        result = create_compute_queue_smoke_default(linux=process)
        assert (result.status, result.errno, result.ctl_stack_size) == (S.create_queue_failed, errno.EINVAL, 24576)


def test_a_topology_without_sizes() -> None:
    """Kernels that do not tell them: computed ones are accepted."""
    with Machine() as machine:
        process = machine.process()
        real = process.read_text

        def read_text(path: str) -> str:
            lines = real(path).splitlines()
            return "\n".join(line for line in lines if not line.startswith(("cwsr_size", "ctl_stack_size")))

        process.read_text = read_text  # type: ignore[method-assign]
        result = create_compute_queue_smoke_default(linux=process)
        assert result.ok(), result
        assert (result.ctx_save_restore_size, result.ctl_stack_size) == (0x1D47000, 0x7000)


def test_failing_cleanup_leaves_the_first_errno() -> None:
    with Machine() as machine:
        machine.inject("KFD_CREATE_QUEUE", errno.ENOSPC)
        machine.inject("KFD_UNMAP_MEMORY_FROM_GPU", errno.EBUSY)
        result = create_compute_queue_smoke_default(linux=machine.process())
        assert (result.status, result.errno) == (S.create_queue_failed, errno.ENOSPC)
        assert last_errno() is None  # of the last ioctl of the cleanup
