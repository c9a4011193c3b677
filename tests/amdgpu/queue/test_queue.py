"""`GpuQueue` over all three interfaces: the same batch gives the same memory; bad input, faults, loss."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amdgpu_emu.errors import GpuHang
from amdgpu_emu.models import R9700, RX7900XTX, SMALL_BAR, GpuModel
from amdgpu_emu.process import Process
from amdgpu_emu.shader import RecordingShader
from tests.amdgpu.queue.fake import DEVICE, FakeInterface
from tests.amdgpu.queue.stage import INTERFACES, affine, install, machine, opened, pointers, queue_of
from tests.compiled import gpu_kernel
from tests.lang.gpu_kernels import rms_norm
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.errors import InterfaceError, SignalMismatch
from zinc_rt.amdgpu.fence import QueueFence
from zinc_rt.amdgpu.interface import DeviceBuffer
from zinc_rt.amdgpu.pool import GpuMemory
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.errors import BackendError, DeviceLost, FenceTimeout
from zinc_rt.lang import Spec

N = 1024  # dwords of the buffers below

interface = pytest.mark.parametrize("interface", INTERFACES)


def u32(data: bytes) -> list[int]:
    return np.frombuffer(data, np.uint32).tolist()


@interface
def test_a_pipeline_of_kernels(interface: str) -> None:
    with queue_of(interface) as (queue, linux):
        kernel = install(queue, linux, "affine", affine)
        a, b, c = (queue.alloc(4 * N, label=name) for name in "abc")
        queue.write(a, np.arange(N, dtype=np.uint32))
        batch = CommandList("pipeline")
        batch.dispatch(kernel, N // 32, user_data=(*pointers(a.va, b.va), 0)).barrier()
        batch.dispatch(kernel, N // 32, user_data=(*pointers(b.va, c.va), 0)).barrier()
        batch.copy(c, a, 64).write(a, [7, 8], offset=64)
        for round_ in range(3):
            fence = queue.submit(batch)
            assert fence.sequence == round_ + 1
            queue.wait(fence)
            assert fence.retired
        x = np.arange(N, dtype=np.uint32)
        for _ in range(2):
            x[:16] = x[:16] * 9 + 4
            x[16:18] = 7, 8
        assert u32(queue.read(c)) == (x * 9 + 4).tolist()
        x[:16] = x[:16] * 9 + 4
        x[16:18] = 7, 8
        assert u32(queue.read(a)) == x.tolist()
        assert queue.retired() == 3


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Items over three buffers of `N` dwords, each followed by a barrier."""
    buffers = st.integers(0, 2)
    groups = N // 32
    out: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("dispatch", "copy", "write")))
        if kind == "dispatch":
            first = draw(st.integers(0, groups - 1))
            out.append((kind, draw(buffers), draw(buffers), first, draw(st.integers(1, groups - first))))
        elif kind == "copy":
            source, target = draw(st.permutations(range(3)))[:2]
            n = draw(st.integers(1, 40))
            out.append((kind, source, target, draw(st.integers(0, N - n)), draw(st.integers(0, N - n)), n))
        else:
            values = draw(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=20))
            out.append((kind, draw(buffers), draw(st.integers(0, N - len(values))), values))
    return out


def expected(program: list[tuple[Any, ...]], memory: list[np.ndarray[Any, Any]]) -> None:
    for kind, *how in program:
        if kind == "dispatch":
            x, y, first, n = how
            span = slice(32 * first, 32 * (first + n))
            memory[y][span] = memory[x][span] * np.uint32(3) + np.uint32(1)
        elif kind == "copy":
            source, target, at, to, n = how
            memory[target][to : to + n] = memory[source][at : at + n]
        else:
            target, at, values = how
            memory[target][at : at + len(values)] = values


@settings(max_examples=12, deadline=None)
@given(submissions=st.lists(programs(), min_size=1, max_size=4))
def test_random_batches_give_the_same_memory_through_every_interface(submissions: list[list[tuple[Any, ...]]]) -> None:
    truth = [np.arange(N, dtype=np.uint32) + 1000 * i for i in range(3)]
    start = [x.copy() for x in truth]
    for program in submissions:
        expected(program, truth)
    for name in INTERFACES:
        with queue_of(name) as (queue, linux):
            kernel = install(queue, linux, "affine", affine)
            buffers = [queue.alloc(4 * N) for _ in range(3)]
            for buffer, values in zip(buffers, start, strict=True):
                queue.write(buffer, values)
            for program in submissions:
                batch = CommandList()
                for kind, *how in program:
                    if kind == "dispatch":
                        x, y, first, n = how
                        batch.dispatch(kernel, n, user_data=(*pointers(buffers[x].va, buffers[y].va), first))
                    elif kind == "copy":
                        source, target, at, to, n = how
                        batch.copy(buffers[source], buffers[target], 4 * n, source_offset=4 * at, target_offset=4 * to)
                    else:
                        target, at, values = how
                        batch.write(buffers[target], values, offset=4 * at)
                    batch.barrier()
                fence = queue.submit(batch)
            queue.wait(fence)
            for buffer, values in zip(buffers, truth, strict=True):
                assert u32(queue.read(buffer)) == values.tolist(), name


@interface
def test_without_a_barrier_the_second_kernel_reads_what_was_there_before(interface: str) -> None:
    with queue_of(interface) as (queue, linux):
        kernel = install(queue, linux, "affine", affine)
        a, b, c = (queue.alloc(128) for _ in range(3))
        for memory in (a, b, c):
            queue.write(memory, bytes(128))
        for between, wanted in ((False, 1), (True, 4)):
            queue.write(b, bytes(128))
            batch = CommandList().dispatch(kernel, 1, user_data=(*pointers(a.va, b.va), 0))
            if between:
                batch.barrier(light=True)
            batch.dispatch(kernel, 1, user_data=(*pointers(b.va, c.va), 0))
            queue.wait(queue.submit(batch))
            assert u32(queue.read(c)) == [wanted] * 32


@interface
def test_what_a_dispatch_says(interface: str) -> None:
    with queue_of(interface) as (queue, linux):
        shader = linux.machine.shader
        assert isinstance(shader, RecordingShader)
        program = queue.load_code(
            "k", b"\1\2\3\4", rsrc1=0xC00F0005, rsrc2=0x390, rsrc3=0x30, threads=(64, 2, 1), n_user_data=3
        )
        assert program.va % 256 == 0
        batch = (
            CommandList()
            .dispatch(program, (3, 4, 5), user_data=(1, 2, 3))
            .dispatch(replace(program, wave32=False), 9, user_data=range(16), threads=(128, 1, 1))
        )
        queue.wait(queue.submit(batch))
        one, two = shader.dispatches
        assert (one.address, one.groups, one.threads, one.start) == (program.va, (3, 4, 5), (64, 2, 1), (0, 0, 0))
        assert (one.wave32, one.user_data[:3], one.rsrc1, one.rsrc2, one.rsrc3) == (
            True,
            (1, 2, 3),
            0xC00F0005,
            0x390,
            0x30,
        )
        assert (one.lds_bytes, one.scratch) == (0, None)
        assert (two.wave32, two.groups, two.threads, two.user_data) == (False, (9, 1, 1), (128, 1, 1), tuple(range(16)))


@pytest.mark.parametrize(
    ("interface", "model", "bit"),
    [
        *(("kfd", RX7900XTX, 1), ("cs", RX7900XTX, 0), ("umq", RX7900XTX, 0)),
        *(("kfd", R9700, 0), ("cs", R9700, 0), ("umq", R9700, 0)),
    ],
)
def test_kernels_have_the_whole_card_and_are_privileged_where_gfx11_saves_waves(
    interface: str, model: GpuModel, bit: int
) -> None:
    with queue_of(interface, {"models": [model]}) as (queue, linux):
        shader = linux.machine.shader
        assert isinstance(shader, RecordingShader)
        program = queue.load_code("k", b"\1\2\3\4", rsrc1=5, rsrc2=0x390, threads=(64, 1, 1), n_user_data=3)
        queue.wait(queue.submit(CommandList().dispatch(program, 1, user_data=(1, 2, 3))))
        assert [(found.rsrc1, found.compute_units) for found in shader.dispatches] == [(5 | bit << 20, model.cu)]


@interface
def test_a_compiled_kernel(interface: str) -> None:
    compiled = gpu_kernel(Spec(rms_norm))
    with queue_of(interface) as (queue, linux):
        shader = linux.machine.shader
        assert isinstance(shader, RecordingShader)
        kernel = queue.load_kernel(compiled)
        assert queue.load_kernel(compiled) is kernel, "uploaded once"
        seen = []
        shader.add(
            kernel.va, lambda dispatch, memory: seen.append(memory.code(kernel.va, compiled.size + 384).tobytes())
        )
        x, w, y = (queue.alloc(4096) for _ in range(3))
        queue.wait(queue.submit(CommandList().dispatch(kernel, 4, x, w, y, 256, 1e-6)))
        (dispatch,) = shader.dispatches
        assert dispatch.user_data[: compiled.dwords] == compiled.user_data(x.va, w.va, y.va, 256, 1e-6)
        assert (dispatch.rsrc1, dispatch.rsrc2, dispatch.rsrc3) == (compiled.rsrc1, compiled.rsrc2, compiled.rsrc3)
        assert dispatch.threads == (compiled.workgroup, 1, 1)
        assert seen[0][: compiled.size] == compiled.code[: compiled.size]
        assert set(seen[0][compiled.size :]) == {0, 0x9F, 0xBF}
        with pytest.raises(BackendError, match="scratch"):
            queue.load_kernel(replace(compiled, rsrc2=compiled.rsrc2 | 1, tmpring=0x21000))
    with queue_of("cs", {"models": [RX7900XTX]}) as (queue, _), pytest.raises(BackendError, match="gfx1201"):
        queue.load_kernel(compiled)


# Memory.


@interface
def test_memory(interface: str) -> None:
    with queue_of(interface) as (queue, linux):
        assert queue.default_heap == "vram"
        pieces = [queue.alloc(1000, label=str(i)) for i in range(50)]
        assert len({piece.buffer for piece in pieces}) == 1
        for i, piece in enumerate(pieces):
            queue.write(piece, bytes([i]) * 1000)
        assert all(queue.read(piece) == bytes([i]) * 1000 for i, piece in enumerate(pieces))
        assert queue.read(pieces[3], 4, 8) == b"\3" * 4
        queue.map(pieces[3])[10] = 99
        assert queue.read(pieces[3], 1, 10) == b"c"
        hidden = queue.alloc(1 << 20, visible=False)
        with pytest.raises(BackendError, match="visible=True"):
            queue.map(hidden)
        staged = queue.alloc(64, heap="gtt")
        queue.write(staged, bytes(range(64)))
        back = queue.alloc(64, heap="gtt")
        queue.wait(queue.submit(CommandList().copy(staged, hidden, 64).barrier().copy(hidden, back, 64)))
        assert queue.read(back) == bytes(range(64))
        for piece in pieces:
            queue.free(piece)
        with pytest.raises(BackendError, match="freed before"):
            queue.free(pieces[0])
        for wrong in (
            lambda: queue.map(pieces[0]),
            lambda: queue.read(pieces[0]),
            lambda: queue.write(pieces[0], b"x"),
        ):
            with pytest.raises(BackendError, match="freed"):
                wrong()
        with pytest.raises(BackendError, match="are not all in its 64"):
            queue.write(staged, bytes(65))
        with pytest.raises(BackendError, match="not all in"):
            queue.read(staged, 8, 60)
        with pytest.raises(BackendError, match="at least 1"):
            queue.alloc(0)
        del linux


@interface
def test_freed_memory_waits_for_what_uses_it(interface: str) -> None:
    with queue_of(interface) as (queue, linux):
        linux.machine.gpus[0].fence_delay = 0.1
        a, b = queue.alloc(4096), queue.alloc(4096)
        queue.write(a, b"\7" * 4096)
        fence = queue.submit(CommandList().copy(a, b, 4096))
        queue.free(a)
        assert queue.retired() == 0
        assert queue.alloc(4096).va != a.va, "the copy may still read it"
        with pytest.raises(BackendError, match="freed"):
            queue.submit(CommandList().copy(a, b, 4) if not a.freed else _with(a, b))
        queue.wait(fence)
        assert queue.read(b) == b"\7" * 4096
        queue.retired()
        assert queue.alloc(4096).va == a.va


def _with(a: Any, b: Any) -> CommandList:
    batch = CommandList()
    batch.memory += [a, b]
    return batch


@interface
def test_arrays_outlive_the_queue(interface: str) -> None:
    with machine() as made:
        linux = made.process()
        queue = opened(interface, linux)
        memory = queue.alloc(64)
        array = queue.map(memory)[8:16]
        array[:] = 5
        queue.close()
        assert array.tolist() == [5] * 8
        assert any(bo is not None for _, bo in linux._maps.values()), "the map is there as long as the array"
        del array
        gc.collect()
        assert set(linux._maps) <= linux._kept


@interface
def test_arrays_outlive_their_buffer(interface: str) -> None:
    with queue_of(interface) as (queue, _):
        a, b = queue.alloc(40 << 20), queue.alloc(40 << 20)
        array = queue.map(a)[:8]
        array[:] = 5
        queue.free(b)
        queue.free(a)
        assert [buffer for pool in queue._heaps for buffer in pool.buffers].count(a.buffer) == 0, (
            "the driver has it back"
        )
        assert array.tolist() == [5] * 8
        del array


def test_a_batch_may_grow_between_submissions() -> None:
    with queue_of("cs") as (queue, _):
        memory = queue.alloc(8)
        batch = CommandList().write(memory, [1])
        queue.wait(queue.submit(batch))
        batch.write(memory, [2], offset=4)
        queue.wait(queue.submit(batch))
        assert u32(queue.read(memory)) == [1, 2]
        with pytest.raises(TypeError):
            batch.items[1] = replace(batch.items[1], values=(3,))  # type: ignore[index]


def test_a_refused_submission_holds_nothing() -> None:
    class Full(FakeInterface):
        def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
            raise InterfaceError("submitting", 16, "the queue is full")

    with GpuQueue(Full()) as queue:
        for _ in range(3):
            with pytest.raises(InterfaceError, match="the queue is full"):
                queue.submit(CommandList())
        assert {pool.label: pool.used for pool in queue._heaps} == {
            "kernels": 0,
            "packets": 0,
            "signals": 256,
            "times": 0,
        }
        assert queue.retired() == 0


def test_small_bar_goes_to_system_memory() -> None:
    with queue_of("cs", {"models": [SMALL_BAR]}) as (queue, linux):
        assert queue.default_heap == "gtt"
        assert queue.alloc(64).buffer.heap == "gtt"
        assert queue.alloc(64, heap="vram", visible=False).buffer.heap == "vram"
        with pytest.raises(InterfaceError, match="Resizable BAR"):
            queue.alloc(512 << 20, heap="vram")
        assert queue.alloc(16 << 20, heap="vram").buffer.address is not None
        del linux


# Waiting.


@interface
def test_many_submissions_at_once(interface: str) -> None:
    with queue_of(interface) as (queue, _):
        counter = queue.alloc(4)
        fences = [queue.submit(CommandList().write(counter, [i])) for i in range(100)]
        queue.wait(fences[-1])
        assert all(fence.retired for fence in fences)
        assert u32(queue.read(counter)) == [99]
        queue.wait(fences[3])


@interface
def test_a_timeout_says_what_is_late(interface: str) -> None:
    with queue_of(interface) as (queue, linux):
        kernel = install(queue, linux, "slow_kernel", lambda dispatch, memory: None)
        queue.wait(queue.submit(CommandList("first")))
        linux.machine.gpus[0].fence_delay = 0.15
        fence = queue.submit(CommandList("decode").dispatch(kernel, 1, user_data=range(5)))
        with pytest.raises(FenceTimeout) as caught:
            queue.wait(fence, 0.02)
        text = str(caught.value)
        for part in (
            "submission 2 (decode: kernels slow_kernel)",
            "0.02 s",
            "last one that retired is 1",
            "dmesg",
            "marks=True",
        ):
            assert part in text
        assert "\n" not in text
        assert not fence.retired
        queue.wait(fence, 5)
        assert fence.retired


def every_call(queue: GpuQueue, memory: GpuMemory) -> list[Callable[[], object]]:
    """All that can be asked of a queue."""
    return [
        lambda: queue.alloc(64 << 20),
        lambda: queue.free(memory),
        lambda: queue.map(memory),
        lambda: queue.write(memory, b"x"),
        lambda: queue.read(memory),
        lambda: queue.load_code("k", bytes(4), rsrc1=0, rsrc2=0, threads=(32, 1, 1), n_user_data=0),
        lambda: queue.submit(CommandList()),
        lambda: queue.wait(QueueFence(1)),
        queue.drain,
        queue.retired,
    ]


@interface
def test_bad_waits(interface: str) -> None:
    with queue_of(interface) as (queue, _):
        for timeout in (-1, float("inf"), float("nan")):
            with pytest.raises(BackendError, match="finite"):
                queue.wait(QueueFence(1), timeout)
        memory = queue.alloc(64)
        with pytest.raises(BackendError, match="not of this queue"):
            queue.wait(QueueFence(1))
    for call in every_call(queue, memory):
        with pytest.raises(BackendError, match=r"renderD128 .* was closed"):
            call()
    queue.close()


# Loss.


def hang(dispatch: object, memory: object) -> None:
    raise GpuHang("the shader never ends")


@interface
@pytest.mark.parametrize("marks", [False, True])
def test_a_hang_names_the_kernel_and_stays(interface: str, marks: bool) -> None:
    with machine() as made:
        linux = made.process()
        queue = opened(interface, linux, marks=marks, timeout=0.3 if interface == "kfd" else 2)
        good = install(queue, linux, "good_kernel", lambda dispatch, memory: None)
        bad = install(queue, linux, "bad_kernel", hang)
        queue.wait(queue.submit(CommandList().dispatch(good, 1, user_data=range(5))))
        batch = CommandList("step 7")
        for program in (good, bad, good):
            batch.dispatch(program, 1, user_data=range(5)).barrier()
        with pytest.raises((DeviceLost, FenceTimeout)) as caught:
            queue.wait(queue.submit(batch))
        text = str(caught.value)
        assert "submission 2 (step 7: kernels good_kernel, bad_kernel, good_kernel)" in text
        assert ("hangs in kernel 2 of 3, bad_kernel" in text) == marks
        assert "dmesg" in text
        if isinstance(caught.value, FenceTimeout):  # amdkfd lets a queue run as long as it likes
            assert interface == "kfd"
            with pytest.raises(FenceTimeout, match=r"submission 3 .*last one that retired is 1, 2 are waiting"):
                queue.wait(queue.submit(CommandList()), 0.01)
        else:
            for call in (lambda: queue.alloc(1 << 20), lambda: queue.submit(CommandList()), queue.retired):
                with pytest.raises(DeviceLost, match="step 7"):
                    call()
        queue.close()


@interface
def test_a_page_fault_is_a_loss(interface: str) -> None:
    with machine() as made:
        linux = made.process()
        queue = opened(interface, linux, timeout=2)
        memory = queue.alloc(64)
        wild = install(queue, linux, "wild_kernel", lambda dispatch, memory: memory.write(0x7000_0000_0000, b"x"))
        with pytest.raises((DeviceLost, FenceTimeout), match="wild_kernel"):
            queue.wait(queue.submit(CommandList().dispatch(wild, 1, user_data=range(5))))
        with pytest.raises(DeviceLost) as first:
            queue.submit(CommandList())
        for call in every_call(queue, memory):
            with pytest.raises(DeviceLost) as again:
                call()
            assert str(again.value) == str(first.value)
        queue.close()


@interface
def test_the_device_leaves_the_bus(interface: str) -> None:
    with machine() as made:
        linux = made.process()
        queue = opened(interface, linux, timeout=0.5)
        made.gpus[0].lost = True
        with pytest.raises((DeviceLost, FenceTimeout, InterfaceError)):
            queue.wait(queue.submit(CommandList().write(queue.alloc(64 << 20), [1])))
        queue.close()
        made.findings[:] = [f for f in made.findings if f.kind != "leak"]  # the driver takes nothing back any more


def test_a_signal_that_does_not_come() -> None:
    queue = GpuQueue(FakeInterface())
    fence = queue.submit(CommandList("step"))
    with pytest.raises(SignalMismatch, match=r"submission 1 \(step: no kernels\) retired, but its last"):
        queue.wait(fence)
    with pytest.raises(DeviceLost, match="did not run"):
        queue.submit(CommandList())
    queue.close()


def test_packets_are_not_overwritten_before_their_fence() -> None:
    fake = FakeInterface()
    with GpuQueue(fake) as queue:
        memory = queue.alloc(64)
        fences = [queue.submit(CommandList().write(memory, [i])) for i in range(200)]
        places = [submission.packets.memory.va for submission in queue._pending]
        assert len(set(places)) == 200
        assert all(
            fake.submissions[i][12:17] == [0xC0033700, 0x00100500, memory.va & 0xFFFFFFFF, 1, i] for i in range(200)
        )
        # Fences say nothing without the signal, which the GPU would have written.
        queue._signal[0], fake.done = 150, 150
        assert queue.retired() == 150
        assert [fence.retired for fence in fences] == [True] * 150 + [False] * 50
        again = queue.submit(CommandList())
        assert [submission.packets.memory.va for submission in queue._pending if submission.fence is again] == places[
            :1
        ]
        queue.check_integrity()


def test_memory_of_another_queue() -> None:
    with GpuQueue(FakeInterface()) as one, GpuQueue(FakeInterface()) as two:
        memory = one.alloc(64)
        for wrong in (two.map, two.free, two.read):
            with pytest.raises(BackendError, match="not this queue's"):
                wrong(memory)
        one.write(memory, b"")
        one.write(memory, np.ones((2, 4), np.float32), 32)
        assert np.frombuffer(one.read(memory, offset=32), np.float32).tolist() == [1] * 8


def test_another_generation_is_refused() -> None:
    fake = FakeInterface(device=replace(DEVICE, gfx_target_version=100306))
    with pytest.raises(BackendError, match=r"gfx11, gfx11\.5 and gfx12"):
        GpuQueue(fake)
    assert fake.closed
    fake = FakeInterface()
    with pytest.raises(BackendError, match="finite"):
        GpuQueue(fake, timeout=float("inf"))
    assert fake.closed


# Threads, processes, several at once.


@interface
def test_two_threads(interface: str) -> None:
    with queue_of(interface) as (queue, _):
        wrong: list[object] = []

        def work(base: int) -> None:
            try:
                for i in range(base, base + 20):
                    memory = queue.alloc(64)
                    queue.wait(queue.submit(CommandList().write(memory, [i, i + 1])))
                    if u32(queue.read(memory))[:2] != [i, i + 1]:
                        wrong.append(i)
                    queue.free(memory)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        queue.check_integrity()


@interface
def test_a_forked_child_is_refused_and_gives_nothing_back(interface: str) -> None:
    with queue_of(interface) as (queue, linux):
        memory = queue.alloc(4)
        with linux.machine.lock:  # so that the GPU's thread does not hold it in the child, where that thread is missing
            child = os.fork()
            if not child:
                code = 0
                for call in every_call(queue, memory):
                    try:
                        call()
                        code = 1
                    except BackendError as error:
                        code = code or 2 * ("a forked child has to open the device itself" not in str(error))
                Process.ioctl = Process.munmap = Process.close = lambda *_: os._exit(3)  # type: ignore[method-assign]
                queue.close()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        queue.wait(queue.submit(CommandList().write(memory, [6])))
        assert u32(queue.read(memory)) == [6]


@interface
def test_two_gpus(interface: str) -> None:
    with machine(models=[R9700, R9700]) as made:
        linux = made.process()
        with (
            GpuQueue(INTERFACES[interface]("/dev/dri/renderD128", linux=linux)) as a,
            GpuQueue(INTERFACES[interface]("/dev/dri/renderD129", linux=linux)) as b,
        ):
            x, y = a.alloc(64), b.alloc(64)
            fences = [(a, a.submit(CommandList().write(x, [1]))), (b, b.submit(CommandList().write(y, [2])))]
            for queue, fence in fences:
                queue.wait(fence)
            assert (u32(a.read(x))[0], u32(b.read(y))[0]) == (1, 2)


def test_all_interfaces_of_one_gpu_at_once() -> None:
    with machine() as made:
        queues = {name: opened(name, made.process()) for name in INTERFACES}
        pieces = {name: queue.alloc(64) for name, queue in queues.items()}
        fences = {
            name: queue.submit(CommandList().write(pieces[name], [i])) for i, (name, queue) in enumerate(queues.items())
        }
        for i, (name, queue) in enumerate(queues.items()):
            queue.wait(fences[name])
            assert u32(queue.read(pieces[name]))[0] == i
            queue.close()
