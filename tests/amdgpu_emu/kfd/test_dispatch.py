"""From the request's number to the call: tables, sizes, copying back, opening (section 0)."""

from __future__ import annotations

import ctypes
import errno
import os

import pytest

from amdgpu_emu.abi import kfd as u
from amdgpu_emu.abi import requests as r
from amdgpu_emu.abi.requests import READ_WRITE, WRITE, request_value
from amdgpu_emu.kfd.file import table_end
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, KernelProfile
from tests.amdgpu_emu.kfd import stage as s
from tests.amdgpu_emu.kfd.stage import Stage, refused, sized

KERNELS = (LINUX_6_12, LINUX_6_17, LINUX_7_3)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("number", [0, "end", 0x40, 0xFF])
def test_numbers_outside_the_table(kernel: KernelProfile, number: int | str) -> None:
    with Machine(kernel) as machine:
        stage = Stage(machine)
        value = table_end(kernel) if number == "end" else int(number)
        with refused(errno.ENOTTY):
            stage.process.ioctl(stage.kfd, request_value(READ_WRITE, ord("K"), value, 8), u.GetVersionArgs())
        stage.close()


def test_the_table_ends_where_the_kernels_own_does() -> None:
    """The newest call of 6.12 is DBG_TRAP (0x26), of 7.3 PROFILER (0x28)."""
    assert [table_end(kernel) for kernel in KERNELS] == [0x27, 0x27, 0x29]


@pytest.mark.parametrize("number", [0x0D, 0x0E, 0x0F, 0x10])
def test_old_debugger_calls(stage: Stage, number: int) -> None:
    with refused(errno.EPERM):
        stage.process.ioctl(stage.kfd, request_value(WRITE, ord("K"), number, 8), u.GetVersionArgs())


def test_checkpointing_needs_a_capability(stage: Stage) -> None:
    with refused(errno.EACCES):
        stage.process.ioctl(stage.kfd, request_value(READ_WRITE, ord("K"), 0x22, 56), (ctypes_bytes(56)))


def ctypes_bytes(n: int) -> ctypes.Structure:
    kind = type("Bytes", (ctypes.Structure,), {"_fields_": (("bytes", ctypes.c_uint8 * n),)})
    return kind()


def test_the_type_byte_is_not_looked_at(stage: Stage) -> None:
    args = u.GetVersionArgs()
    stage.process.ioctl(stage.kfd, request_value(r.KFD_GET_VERSION.direction, 0, 1, 8), args)
    assert (args.major_version, args.minor_version) == (1, 18)


def test_the_kernels_directions_count_not_the_callers(stage: Stage) -> None:
    args = u.GetVersionArgs()
    stage.process.ioctl(stage.kfd, request_value(WRITE, ord("K"), 1, 8), args)
    assert args.major_version == 1


def test_a_short_argument_is_completed_with_zeros_and_only_its_bytes_come_back(stage: Stage) -> None:
    args = u.GetClockCountersArgs(gpu_id=stage.gpu_id, system_clock_freq=77)
    stage.process.ioctl(stage.kfd, sized(r.KFD_GET_CLOCK_COUNTERS, 24), args)
    assert args.gpu_clock_counter == 0, "gpu_id lay beyond what was given: no GPU"
    assert args.cpu_clock_counter > 0
    assert args.system_clock_freq == 77


def test_a_longer_argument_is_taken(stage: Stage) -> None:
    class Longer(ctypes.Structure):
        _fields_ = (("args", u.GetVersionArgs), ("more", ctypes.c_uint64))

    args = Longer(more=5)
    stage.process.ioctl(stage.kfd, sized(r.KFD_GET_VERSION, 16), args)
    assert args.args.major_version == 1


@pytest.mark.parametrize("size", [88, 96])
@pytest.mark.parametrize("machine", KERNELS, ids=lambda k: k.name, indirect=True)
def test_create_queue_takes_both_sizes(machine: Machine, size: int) -> None:
    stage = Stage(machine)
    stage.queue_buffers()
    args = u.CreateQueueArgs96()
    args.base = stage.queue_args()
    stage.process.ioctl(stage.kfd, sized(r.KFD_CREATE_QUEUE, size), args)
    stage.queues.append(args.queue_id)
    assert args.doorbell_offset >> 62 == 3
    stage.close()


def test_the_argument_comes_back_when_the_call_failed(stage: Stage) -> None:
    handle = stage.alloc(s.DATA, s.PAGE).handle
    ids = (ctypes.c_uint32 * 2)(stage.gpu_id, 0xDEAD)
    args = u.MapMemoryToGpuArgs(handle=handle, device_ids_array_ptr=ctypes.addressof(ids), n_devices=2)
    with refused(errno.EINVAL):
        stage.call(r.KFD_MAP_MEMORY_TO_GPU, args)
    assert args.n_success == 1


def test_write_only_calls_give_nothing_back(stage: Stage) -> None:
    args = u.AcquireVmArgs(drm_fd=stage.drm, gpu_id=stage.gpu_id)
    before = bytes(args)
    stage.call(r.KFD_ACQUIRE_VM, args)
    assert bytes(args) == before


@pytest.mark.parametrize(("machine", "minor"), list(zip(KERNELS, (17, 18, 23), strict=True)), indirect=["machine"])
def test_version(machine: Machine, minor: int) -> None:
    stage = Stage(machine)
    args = stage.call(r.KFD_GET_VERSION)
    assert (args.major_version, args.minor_version) == (1, minor)
    stage.close()


def test_two_opens_share_one_process(stage: Stage) -> None:
    handle = stage.alloc(s.DATA, s.PAGE).handle
    second = stage.open("/dev/kfd")
    args = u.FreeMemoryOfGpuArgs(handle=handle)
    stage.process.ioctl(second, r.KFD_FREE_MEMORY_OF_GPU.value, args)
    stage.handles.remove(handle)


def test_the_process_outlives_its_descriptors(machine: Machine) -> None:
    """Closed and opened again, the address space is still the first render node's."""
    first = Stage(machine)
    process = first.process
    process.close(first.kfd)
    process.close(first.drm)
    kfd, drm = process.open("/dev/kfd"), process.open(machine.gpus[0].render_node)
    args = u.AcquireVmArgs(drm_fd=drm, gpu_id=first.gpu_id)
    with refused(errno.EBUSY):
        process.ioctl(kfd, r.KFD_ACQUIRE_VM.value, args)
    process.close(kfd)
    process.close(drm)


def test_another_process_has_its_own(machine: Machine) -> None:
    one, two = Stage(machine), Stage(machine)
    assert one.alloc(s.DATA, s.PAGE).handle == two.alloc(s.DATA, s.PAGE).handle
    one.map(one.handles[0])
    two.map(two.handles[0])
    one.close()
    two.close()


def test_a_forked_child_is_refused(stage: Stage) -> None:
    with stage.machine.lock:  # no other thread holds it in the child
        child = os.fork()
        if not child:
            try:
                stage.call(r.KFD_GET_VERSION)
                os._exit(0)
            except OSError as error:
                os._exit(error.errno or 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.EBADF
    assert stage.call(r.KFD_GET_VERSION).major_version == 1


@pytest.mark.parametrize(
    ("kernel", "code"), [(LINUX_6_12, errno.EAGAIN), (LINUX_6_17, errno.EAGAIN), (LINUX_7_3, errno.EINVAL)]
)
def test_open_while_a_gpu_is_reset(kernel: KernelProfile, code: int) -> None:
    with Machine(kernel) as machine:
        machine.gpus[0].in_reset = True
        with refused(code):
            machine.process().open("/dev/kfd")


def test_open_without_a_gpu() -> None:
    with Machine(LINUX_7_3, models=()) as machine, refused(errno.EINVAL):
        machine.process().open("/dev/kfd")
