"""Apertures, clocks, policies, the runtime's handshake, SMI files, SVM."""

from __future__ import annotations

import ctypes
import errno
import mmap

import pytest

from amdgpu_emu.abi import kfd as u
from amdgpu_emu.abi import requests as r
from amdgpu_emu.abi.requests import READ_WRITE, request_value
from amdgpu_emu.kfd.smi import SmiFile
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL, RX9070
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.kfd import pm4, test_running
from tests.amdgpu_emu.kfd.stage import BASE, CWSR, CWSR_BO, DATA, PAGE, Stage, refused

THREE = pytest.mark.parametrize("machine", [{"models": (R9700, RX9070, RAPHAEL)}], indirect=True)


def apertures(stage: Stage, n: int, room: int = 16) -> tuple[int, list[u.ProcessDeviceApertures]]:
    array = (u.ProcessDeviceApertures * room)()
    args = stage.call(
        r.KFD_GET_PROCESS_APERTURES_NEW, kfd_process_device_apertures_ptr=ctypes.addressof(array), num_of_nodes=n
    )
    return args.num_of_nodes, list(array)


@THREE
def test_apertures_are_counted_and_filled(machine: Machine) -> None:
    stage = Stage(machine)
    assert apertures(stage, 0)[0] == 3
    for n in (1, 2, 3):
        count, array = apertures(stage, n)
        assert count == n
        assert [a.gpu_id for a in array[:4]] == [gpu.gpu_id for gpu in machine.gpus[:n]] + [0] * (4 - n)
    stage.close()


def test_ranges_of_a_gfx12(stage: Stage) -> None:
    first = apertures(stage, 1)[1][0]
    assert (first.lds_base, first.lds_limit) == (0x1000000000000, 0x10000FFFFFFFF)
    assert (first.scratch_base, first.scratch_limit) == (0x2000000000000, 0x20000FFFFFFFF)
    assert (first.gpuvm_base, first.gpuvm_limit) == (0x10000, 0x7FFFFFFFFFFF)


@pytest.mark.parametrize("machine", [LINUX_6_17], indirect=True)
def test_an_old_kernel_takes_more_room_than_there_are_nodes(machine: Machine) -> None:
    stage = Stage(machine)
    assert apertures(stage, 16)[0] == 1
    stage.close()


@pytest.mark.parametrize("machine", [LINUX_6_12, LINUX_7_3], ids=lambda k: k.name, indirect=True)
def test_processors_count_as_nodes(machine: Machine) -> None:
    stage = Stage(machine)
    assert apertures(stage, 2)[0] == 1
    stage.close()


@THREE
def test_the_old_call_for_apertures(machine: Machine) -> None:
    stage = Stage(machine)
    args = stage.call(r.KFD_GET_PROCESS_APERTURES)
    assert args.num_of_nodes == 3
    assert args.process_apertures[2].gpu_id == machine.gpus[2].gpu_id
    stage.close()


def test_acquiring_again_changes_nothing(stage: Stage) -> None:
    assert stage.process.kfd is not None
    device = stage.process.kfd.device(stage.gpu_id)
    stage.buffer(DATA, PAGE)
    before, mapped = device.vm, device.vm.starting_at(DATA)
    for _ in range(2):
        stage.call(r.KFD_ACQUIRE_VM, drm_fd=stage.drm, gpu_id=stage.gpu_id)
        assert device.vm is before
        assert device.vm.starting_at(DATA) is mapped is not None


def test_the_render_node_may_be_closed(stage: Stage) -> None:
    stage.process.close(stage.drm)
    stage.fds.remove(stage.drm)
    stage.buffer(DATA, PAGE)


def test_clocks(stage: Stage) -> None:
    first = stage.call(r.KFD_GET_CLOCK_COUNTERS, gpu_id=stage.gpu_id)
    assert first.system_clock_freq == 10**9
    stage.process.sleep(0.01)
    second = stage.call(r.KFD_GET_CLOCK_COUNTERS, gpu_id=stage.gpu_id)
    assert second.gpu_clock_counter - first.gpu_clock_counter >= 10**6, "100 MHz"
    assert stage.call(r.KFD_GET_CLOCK_COUNTERS, gpu_id=0xDEAD).gpu_clock_counter == 0


@pytest.mark.parametrize("policy", [0, 1])
def test_memory_policies(stage: Stage, policy: int) -> None:
    stage.call(r.KFD_SET_MEMORY_POLICY, gpu_id=stage.gpu_id, default_policy=policy, alternate_policy=1 - policy)
    assert stage.process.kfd is not None
    assert stage.process.kfd.device(stage.gpu_id).policy == (policy, 1 - policy)


def test_addresses_that_are_only_kept(stage: Stage) -> None:
    stage.call(r.KFD_SET_SCRATCH_BACKING_VA, gpu_id=stage.gpu_id, va_addr=3)
    stage.call(r.KFD_SET_TRAP_HANDLER, gpu_id=stage.gpu_id, tba_addr=5, tma_addr=7)
    assert stage.process.kfd is not None
    device = stage.process.kfd.device(stage.gpu_id)
    assert (device.scratch_va, device.trap_handler) == (3, (5, 7))


def test_xnack_is_off(stage: Stage) -> None:
    assert stage.call(r.KFD_SET_XNACK_MODE, xnack_enabled=-1).xnack_enabled == 0
    stage.call(r.KFD_SET_XNACK_MODE, xnack_enabled=0)
    stage.queue_buffers()
    stage.create_queue()
    assert stage.call(r.KFD_SET_XNACK_MODE, xnack_enabled=-1).xnack_enabled == 0, "asking is always allowed"


def test_runtime_on_and_off(stage: Stage) -> None:
    kfd = stage.process.kfd
    assert kfd is not None
    for _ in range(2):
        stage.call(r.KFD_RUNTIME_ENABLE, mode_mask=1)
        assert kfd.runtime_enabled
        with refused(errno.EBUSY):
            stage.call(r.KFD_RUNTIME_ENABLE, mode_mask=1)
        stage.call(r.KFD_RUNTIME_ENABLE, mode_mask=0)
        assert not kfd.runtime_enabled
    stage.queue_buffers()
    stage.create_queue()
    stage.call(r.KFD_RUNTIME_ENABLE, mode_mask=0)
    assert len(kfd.queues) == 1


def test_tile_tables_are_cut_to_what_there_is(stage: Stage) -> None:
    words = (ctypes.c_uint32 * 40)(*[9] * 40)
    args = stage.call(
        r.KFD_GET_TILE_CONFIG, gpu_id=stage.gpu_id, tile_config_ptr=ctypes.addressof(words), num_tile_configs=40
    )
    assert (args.num_tile_configs, args.num_macro_tile_configs) == (32, 0)
    assert list(words) == [0] * 32 + [9] * 8


def test_smi_files_hear_of_faults(stage: Stage) -> None:
    fd = stage.call(r.KFD_SMI_EVENTS, gpuid=stage.gpu_id).anon_fd
    stage.fds.append(fd)
    file = stage.process.file(fd)
    assert isinstance(file, SmiFile)
    ring = test_running.Ring(stage)
    ring.submit(pm4.release(BASE + 0x90_0000, 1))
    test_running.until(lambda: file.lines == ["vmfault"])


# SVM.

NUMBER = request_value(READ_WRITE, ord("K"), 0x20, 0)
SET, GET = 0, 1
PREFERRED_LOC, ACCESS, SET_FLAGS, CLR_FLAGS, GRANULARITY = 0, 2, 5, 6, 7
UNDEFINED = 0xFFFFFFFF
ALWAYS_MAPPED = 64


def svm(
    stage: Stage, start: int, size: int, op: int, *attributes: tuple[int, int], count: int | None = None
) -> list[int]:
    """Values that came back."""
    n = len(attributes)

    class Args(ctypes.Structure):
        _fields_ = (
            ("start", ctypes.c_uint64),
            ("size", ctypes.c_uint64),
            ("op", ctypes.c_uint32),
            ("n", ctypes.c_uint32),
            ("attributes", ctypes.c_uint32 * 2 * n),
        )

    args = Args(start, size, op, n if count is None else count)
    for i, (kind, value) in enumerate(attributes):
        args.attributes[i][0], args.attributes[i][1] = kind, value
    stage.process.ioctl(stage.kfd, NUMBER | ctypes.sizeof(Args) << 16, args)
    return [args.attributes[i][1] for i in range(n)]


@pytest.fixture
def range_(stage: Stage) -> int:
    memory = mmap.mmap(-1, 4 * PAGE)
    _kept.append(memory)
    return ctypes.addressof(ctypes.c_uint8.from_buffer(memory))


_kept: list[mmap.mmap] = []


@pytest.mark.parametrize(
    ("shift", "size", "op", "attribute", "count", "code"),
    [
        (1, PAGE, SET, (SET_FLAGS, 1), 1, errno.EINVAL),
        (0, 100, SET, (SET_FLAGS, 1), 1, errno.EINVAL),
        (0, 0, SET, (SET_FLAGS, 1), 1, errno.EINVAL),
        (0, PAGE, SET, (SET_FLAGS, 1), 2, errno.EINVAL),
        (0, PAGE, 2, (SET_FLAGS, 1), 1, errno.EINVAL),
        (0, PAGE, SET, (8, 1), 1, errno.EINVAL),
        (0, PAGE, SET, (ACCESS, 0xDEAD), 1, errno.EINVAL),
    ],
)
def test_svm_refusals(
    stage: Stage, range_: int, shift: int, size: int, op: int, attribute: tuple[int, int], count: int, code: int
) -> None:
    with refused(code):
        svm(stage, range_ + shift, size, op, attribute, count=count)


def test_svm_of_nothing(stage: Stage) -> None:
    with refused(errno.EINVAL):
        svm(stage, 0, PAGE, SET)
    with refused(errno.EFAULT):
        svm(stage, PAGE, PAGE, SET)


def test_svm_attributes_are_kept_by_page(stage: Stage, range_: int) -> None:
    assert svm(stage, range_, PAGE, GET, (SET_FLAGS, 0)) == [3], "host access and coherent"
    svm(stage, range_, 2 * PAGE, SET, (SET_FLAGS, 16), (GRANULARITY, 5))
    svm(stage, range_ + PAGE, 2 * PAGE, SET, (SET_FLAGS, 32), (CLR_FLAGS, 2))
    flags = [svm(stage, range_ + i * PAGE, PAGE, GET, (SET_FLAGS, 0))[0] for i in range(3)]
    assert flags == [3 | 16, 1 | 16 | 32, 1 | 32]
    assert svm(stage, range_, 3 * PAGE, GET, (SET_FLAGS, 0), (GRANULARITY, 0)) == [1, 5]
    svm(stage, range_, PAGE, SET, (GRANULARITY, 100), (PREFERRED_LOC, stage.gpu_id), (ACCESS, stage.gpu_id))
    assert svm(stage, range_, PAGE, GET, (GRANULARITY, 0), (PREFERRED_LOC, 0)) == [63, stage.gpu_id]
    assert svm(stage, range_, 2 * PAGE, GET, (PREFERRED_LOC, 0)) == [UNDEFINED], "the pages differ"


def test_svm_fills_gaps_before_and_behind(stage: Stage, range_: int) -> None:
    svm(stage, range_ + PAGE, PAGE, SET, (SET_FLAGS, 32))
    svm(stage, range_, 3 * PAGE, SET, (SET_FLAGS, 16))
    flags = [svm(stage, range_ + i * PAGE, PAGE, GET, (SET_FLAGS, 0))[0] for i in range(4)]
    assert flags == [3 | 16, 3 | 16 | 32, 3 | 16, 3]
    assert stage.process.kfd is not None
    assert [stage.process.kfd.svm.overlaps(range_ + i * PAGE, PAGE) for i in range(4)] == [True] * 3 + [False]


def test_memory_cannot_be_allocated_over_svm(stage: Stage, range_: int) -> None:
    svm(stage, range_, PAGE, SET, (SET_FLAGS, 1))
    for flags, fields in (
        (u.KFD_IOC_ALLOC_MEM_FLAGS_GTT, {}),
        (u.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, {"mmap_offset": range_}),
    ):
        with refused(errno.EADDRINUSE):
            stage.alloc(range_ if not fields else DATA, PAGE, flags, **fields)
    stage.alloc(0, PAGE, u.KFD_IOC_ALLOC_MEM_FLAGS_VRAM)


def test_a_save_area_in_svm(stage: Stage) -> None:
    """Instead of a buffer: a range that stays mapped on the GPU."""
    memory = mmap.mmap(-1, CWSR_BO)
    _kept.append(memory)
    at = ctypes.addressof(ctypes.c_uint8.from_buffer(memory))
    stage.queue_buffers(cwsr=0)
    with refused(errno.EINVAL):
        stage.create_queue(ctx_save_restore_address=at)
    svm(stage, at, CWSR_BO, SET, (SET_FLAGS, ALWAYS_MAPPED))
    stage.create_queue(ctx_save_restore_address=at)
    with refused(errno.EINVAL):
        stage.create_queue(ctx_save_restore_address=CWSR)
