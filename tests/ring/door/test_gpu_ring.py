"""`GpuRing` over all three doors: the same batch gives the same memory; bad input, faults, loss."""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lang.gpu_kernels import rms_norm
from tests.ring.door.fake import FACTS, FakeDoor
from tests.ring.door.stage import DOORS, affine, install, machine, opened, pointers, ring_of
from zinc_rt.emu.errors import GpuHang
from zinc_rt.emu.models import R9700, RX7900XTX, SMALL_BAR
from zinc_rt.emu.shader import RecordingShader
from zinc_rt.lang import Spec
from zinc_rt.lang.gpu import gpu_kernel
from zinc_rt.ring.base import Fence
from zinc_rt.ring.door.base import DeviceBuffer
from zinc_rt.ring.door.batch import Batch
from zinc_rt.ring.door.gpu_ring import GpuRing
from zinc_rt.ring.errors import DeviceLost, DoorError, FenceTimeout, RingClosed, RingError, SignalMismatch

N = 1024  # dwords of the buffers below

door = pytest.mark.parametrize("door", DOORS)


def u32(data: bytes) -> list[int]:
    return np.frombuffer(data, np.uint32).tolist()


@door
def test_a_pipeline_of_kernels(door: str) -> None:
    with ring_of(door) as (ring, linux):
        kernel = install(ring, linux, "affine", affine)
        a, b, c = (ring.alloc(4 * N, label=name) for name in "abc")
        ring.write(a, np.arange(N, dtype=np.uint32))
        batch = Batch("pipeline")
        batch.dispatch(kernel, N // 32, user_data=(*pointers(a.va, b.va), 0)).barrier()
        batch.dispatch(kernel, N // 32, user_data=(*pointers(b.va, c.va), 0)).barrier()
        batch.copy(c, a, 64).write(a, [7, 8], offset=64)
        for round_ in range(3):
            fence = ring.submit(batch)
            assert fence.sequence == round_ + 1
            ring.wait(fence)
            assert fence.retired
        x = np.arange(N, dtype=np.uint32)
        for _ in range(2):
            x[:16] = x[:16] * 9 + 4
            x[16:18] = 7, 8
        assert u32(ring.read(c)) == (x * 9 + 4).tolist()
        x[:16] = x[:16] * 9 + 4
        x[16:18] = 7, 8
        assert u32(ring.read(a)) == x.tolist()
        assert ring.retired() == 3


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


@settings(max_examples=25, deadline=None)
@given(submissions=st.lists(programs(), min_size=1, max_size=4))
def test_random_batches_give_the_same_memory_through_every_door(submissions: list[list[tuple[Any, ...]]]) -> None:
    truth = [np.arange(N, dtype=np.uint32) + 1000 * i for i in range(3)]
    start = [x.copy() for x in truth]
    for program in submissions:
        expected(program, truth)
    for name in DOORS:
        with ring_of(name) as (ring, linux):
            kernel = install(ring, linux, "affine", affine)
            buffers = [ring.alloc(4 * N) for _ in range(3)]
            for buffer, values in zip(buffers, start, strict=True):
                ring.write(buffer, values)
            for program in submissions:
                batch = Batch()
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
                fence = ring.submit(batch)
            ring.wait(fence)
            for buffer, values in zip(buffers, truth, strict=True):
                assert u32(ring.read(buffer)) == values.tolist(), name


@door
def test_without_a_barrier_the_second_kernel_reads_what_was_there_before(door: str) -> None:
    with ring_of(door) as (ring, linux):
        kernel = install(ring, linux, "affine", affine)
        a, b, c = (ring.alloc(128) for _ in range(3))
        for memory in (a, b, c):
            ring.write(memory, bytes(128))
        for between, wanted in ((False, 1), (True, 4)):
            ring.write(b, bytes(128))
            batch = Batch().dispatch(kernel, 1, user_data=(*pointers(a.va, b.va), 0))
            if between:
                batch.barrier(light=True)
            batch.dispatch(kernel, 1, user_data=(*pointers(b.va, c.va), 0))
            ring.wait(ring.submit(batch))
            assert u32(ring.read(c)) == [wanted] * 32


@door
def test_what_a_dispatch_says(door: str) -> None:
    with ring_of(door) as (ring, linux):
        shader = linux.machine.shader
        assert isinstance(shader, RecordingShader)
        program = ring.load_code(
            "k", b"\1\2\3\4", rsrc1=0xC00F0005, rsrc2=0x390, rsrc3=0x30, threads=(64, 2, 1), n_user_data=3
        )
        assert program.va % 256 == 0
        batch = (
            Batch()
            .dispatch(program, (3, 4, 5), user_data=(1, 2, 3))
            .dispatch(replace(program, wave32=False), 9, user_data=range(16), threads=(128, 1, 1))
        )
        ring.wait(ring.submit(batch))
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


@door
def test_a_compiled_kernel(door: str) -> None:
    compiled = gpu_kernel(Spec(rms_norm))
    with ring_of(door) as (ring, linux):
        shader = linux.machine.shader
        assert isinstance(shader, RecordingShader)
        kernel = ring.load_kernel(compiled)
        assert ring.load_kernel(compiled) is kernel, "uploaded once"
        seen = []
        shader.add(
            kernel.va, lambda dispatch, memory: seen.append(memory.code(kernel.va, compiled.size + 384).tobytes())
        )
        x, w, y = (ring.alloc(4096) for _ in range(3))
        ring.wait(ring.submit(Batch().dispatch(kernel, 4, x, w, y, 256, 1e-6)))
        (dispatch,) = shader.dispatches
        assert dispatch.user_data[: compiled.dwords] == compiled.user_data(x.va, w.va, y.va, 256, 1e-6)
        assert (dispatch.rsrc1, dispatch.rsrc2, dispatch.rsrc3) == (compiled.rsrc1, compiled.rsrc2, compiled.rsrc3)
        assert dispatch.threads == (compiled.workgroup, 1, 1)
        assert seen[0][: compiled.size] == compiled.code[: compiled.size]
        assert set(seen[0][compiled.size :]) == {0, 0x9F, 0xBF}
        with pytest.raises(RingError, match="scratch"):
            ring.load_kernel(replace(compiled, rsrc2=compiled.rsrc2 | 1, tmpring=0x21000))
    with ring_of("cs", {"models": [RX7900XTX]}) as (ring, _), pytest.raises(RingError, match="gfx1201"):
        ring.load_kernel(compiled)


# Memory.


@door
def test_memory(door: str) -> None:
    with ring_of(door) as (ring, linux):
        assert ring.default_heap == "vram"
        pieces = [ring.alloc(1000, label=str(i)) for i in range(50)]
        assert len({piece.buffer for piece in pieces}) == 1
        for i, piece in enumerate(pieces):
            ring.write(piece, bytes([i]) * 1000)
        assert all(ring.read(piece) == bytes([i]) * 1000 for i, piece in enumerate(pieces))
        assert ring.read(pieces[3], 4, 8) == b"\3" * 4
        ring.map(pieces[3])[10] = 99
        assert ring.read(pieces[3], 1, 10) == b"c"
        hidden = ring.alloc(1 << 20, visible=False)
        with pytest.raises(RingError, match="visible=True"):
            ring.map(hidden)
        staged = ring.alloc(64, heap="gtt")
        ring.write(staged, bytes(range(64)))
        back = ring.alloc(64, heap="gtt")
        ring.wait(ring.submit(Batch().copy(staged, hidden, 64).barrier().copy(hidden, back, 64)))
        assert ring.read(back) == bytes(range(64))
        for piece in pieces:
            ring.free(piece)
        with pytest.raises(RingError, match="freed before"):
            ring.free(pieces[0])
        for wrong in (lambda: ring.map(pieces[0]), lambda: ring.read(pieces[0]), lambda: ring.write(pieces[0], b"x")):
            with pytest.raises(RingError, match="freed"):
                wrong()
        with pytest.raises(RingError, match="do not fit"):
            ring.write(staged, bytes(65))
        with pytest.raises(RingError, match="not all in"):
            ring.read(staged, 8, 60)
        with pytest.raises(RingError, match="at least 1"):
            ring.alloc(0)
        del linux


@door
def test_freed_memory_waits_for_what_uses_it(door: str) -> None:
    with ring_of(door) as (ring, linux):
        linux.machine.gpus[0].fence_delay = 0.1
        a, b = ring.alloc(4096), ring.alloc(4096)
        ring.write(a, b"\7" * 4096)
        fence = ring.submit(Batch().copy(a, b, 4096))
        ring.free(a)
        assert ring.retired() == 0
        assert ring.alloc(4096).va != a.va, "the copy may still read it"
        with pytest.raises(RingError, match="freed"):
            ring.submit(Batch().copy(a, b, 4) if not a.freed else _with(a, b))
        ring.wait(fence)
        assert ring.read(b) == b"\7" * 4096
        ring.retired()
        assert ring.alloc(4096).va == a.va


def _with(a: Any, b: Any) -> Batch:
    batch = Batch()
    batch.memory += [a, b]
    return batch


@door
def test_arrays_outlive_the_ring(door: str) -> None:
    with machine() as made:
        linux = made.process()
        ring = opened(door, linux)
        memory = ring.alloc(64)
        array = ring.map(memory)[8:16]
        array[:] = 5
        ring.close()
        assert array.tolist() == [5] * 8
        assert any(bo is not None for _, bo in linux._maps.values()), "the map is there as long as the array"
        del array
        gc.collect()
        assert set(linux._maps) <= linux._kept


@door
def test_arrays_outlive_their_buffer(door: str) -> None:
    with ring_of(door) as (ring, _):
        a, b = ring.alloc(40 << 20), ring.alloc(40 << 20)
        array = ring.map(a)[:8]
        array[:] = 5
        ring.free(b)
        ring.free(a)
        assert [buffer for pool in ring._heaps for buffer in pool.buffers].count(a.buffer) == 0, (
            "the driver has it back"
        )
        assert array.tolist() == [5] * 8
        del array


def test_a_batch_may_grow_between_submissions() -> None:
    with ring_of("cs") as (ring, _):
        memory = ring.alloc(8)
        batch = Batch().write(memory, [1])
        ring.wait(ring.submit(batch))
        batch.write(memory, [2], offset=4)
        ring.wait(ring.submit(batch))
        assert u32(ring.read(memory)) == [1, 2]
        batch.items[1] = replace(batch.items[1], values=(3,))
        ring.wait(ring.submit(batch))
        assert u32(ring.read(memory)) == [1, 3]


def test_a_refused_submission_holds_nothing() -> None:
    class Full(FakeDoor):
        def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
            raise DoorError("submitting", 16, "the ring is full")

    with GpuRing(Full()) as ring:
        for _ in range(3):
            with pytest.raises(DoorError, match="the ring is full"):
                ring.submit(Batch())
        assert {pool.label: pool.used for pool in ring._heaps} == {"kernels": 0, "packets": 0, "signals": 256}
        assert ring.retired() == 0


def test_small_bar_goes_to_system_memory() -> None:
    with ring_of("cs", {"models": [SMALL_BAR]}) as (ring, linux):
        assert ring.default_heap == "gtt"
        assert ring.alloc(64).buffer.heap == "gtt"
        assert ring.alloc(64, heap="vram", visible=False).buffer.heap == "vram"
        with pytest.raises(DoorError, match="resizable BAR"):
            ring.alloc(512 << 20, heap="vram")
        assert ring.alloc(16 << 20, heap="vram").buffer.address is not None
        del linux


# Waiting.


@door
def test_many_submissions_at_once(door: str) -> None:
    with ring_of(door) as (ring, _):
        counter = ring.alloc(4)
        fences = [ring.submit(Batch().write(counter, [i])) for i in range(100)]
        ring.wait(fences[-1])
        assert all(fence.retired for fence in fences)
        assert u32(ring.read(counter)) == [99]
        ring.wait(fences[3])


@door
def test_a_timeout_says_what_is_late(door: str) -> None:
    with ring_of(door) as (ring, linux):
        kernel = install(ring, linux, "slow_kernel", lambda dispatch, memory: None)
        ring.wait(ring.submit(Batch("first")))
        linux.machine.gpus[0].fence_delay = 0.15
        fence = ring.submit(Batch("decode").dispatch(kernel, 1, user_data=range(5)))
        with pytest.raises(FenceTimeout) as caught:
            ring.wait(fence, 0.02)
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
        ring.wait(fence, 5)
        assert fence.retired


@door
def test_bad_waits(door: str) -> None:
    with ring_of(door) as (ring, _):
        for timeout in (-1, float("inf"), float("nan")):
            with pytest.raises(RingError, match="finite"):
                ring.wait(Fence(1), timeout)
        with pytest.raises(RingError, match="not of this ring"):
            ring.wait(Fence(1))
    with pytest.raises(RingClosed, match=r"renderD128 .* was closed"):
        ring.submit(Batch())
    for call in (lambda: ring.alloc(1), ring.retired, lambda: ring.wait(Fence(1))):
        with pytest.raises(RingClosed):
            call()
    ring.close()


# Loss.


def hang(dispatch: object, memory: object) -> None:
    raise GpuHang("the shader never ends")


@door
@pytest.mark.parametrize("marks", [False, True])
def test_a_hang_names_the_kernel_and_stays(door: str, marks: bool) -> None:
    with machine() as made:
        linux = made.process()
        ring = opened(door, linux, marks=marks, timeout=0.3 if door == "kfd" else 2)
        good = install(ring, linux, "good_kernel", lambda dispatch, memory: None)
        bad = install(ring, linux, "bad_kernel", hang)
        ring.wait(ring.submit(Batch().dispatch(good, 1, user_data=range(5))))
        batch = Batch("step 7")
        for program in (good, bad, good):
            batch.dispatch(program, 1, user_data=range(5)).barrier()
        with pytest.raises((DeviceLost, FenceTimeout)) as caught:
            ring.wait(ring.submit(batch))
        text = str(caught.value)
        assert "submission 2 (step 7: kernels good_kernel, bad_kernel, good_kernel)" in text
        assert ("hangs in kernel 2 of 3, bad_kernel" in text) == marks
        assert "dmesg" in text
        if isinstance(caught.value, FenceTimeout):  # amdkfd lets a queue run as long as it likes
            assert door == "kfd"
            with pytest.raises(FenceTimeout, match=r"submission 3 .*last one that retired is 1, 2 are waiting"):
                ring.wait(ring.submit(Batch()), 0.01)
        else:
            for call in (lambda: ring.alloc(1 << 20), lambda: ring.submit(Batch()), ring.retired):
                with pytest.raises(DeviceLost, match="step 7"):
                    call()
        ring.close()


@door
def test_a_page_fault_is_a_loss(door: str) -> None:
    with machine() as made:
        linux = made.process()
        ring = opened(door, linux, timeout=2)
        wild = install(ring, linux, "wild_kernel", lambda dispatch, memory: memory.write(0x7000_0000_0000, b"x"))
        with pytest.raises((DeviceLost, FenceTimeout), match="wild_kernel"):
            ring.wait(ring.submit(Batch().dispatch(wild, 1, user_data=range(5))))
        with pytest.raises(DeviceLost):
            ring.submit(Batch())
        ring.close()


@door
def test_the_device_leaves_the_bus(door: str) -> None:
    with machine() as made:
        linux = made.process()
        ring = opened(door, linux, timeout=0.5)
        made.gpus[0].lost = True
        with pytest.raises((DeviceLost, FenceTimeout, DoorError)):
            ring.wait(ring.submit(Batch().write(ring.alloc(64 << 20), [1])))
        ring.close()
        made.findings[:] = [f for f in made.findings if f.kind != "leak"]  # the driver takes nothing back any more


def test_a_signal_that_does_not_come() -> None:
    ring = GpuRing(FakeDoor())
    fence = ring.submit(Batch("step"))
    with pytest.raises(SignalMismatch, match=r"submission 1 \(step: no kernels\) retired, but its last"):
        ring.wait(fence)
    with pytest.raises(DeviceLost, match="did not run"):
        ring.submit(Batch())
    ring.close()


def test_packets_are_not_overwritten_before_their_fence() -> None:
    fake = FakeDoor()
    with GpuRing(fake) as ring:
        memory = ring.alloc(64)
        fences = [ring.submit(Batch().write(memory, [i])) for i in range(200)]
        flying = [flight.packets.va for flight in ring._flights]
        assert len(set(flying)) == 200
        assert all(
            fake.submissions[i][12:17] == [0xC0033700, 0x00100500, memory.va & 0xFFFFFFFF, 1, i] for i in range(200)
        )
        # Fences say nothing without the signal, which the GPU would have written.
        ring._signal[0], fake.done = 150, 150
        assert ring.retired() == 150
        assert [fence.retired for fence in fences] == [True] * 150 + [False] * 50
        again = ring.submit(Batch())
        assert [flight.packets.va for flight in ring._flights if flight.fence is again] == flying[:1]
        ring.check_integrity()


def test_memory_of_another_ring() -> None:
    with GpuRing(FakeDoor()) as one, GpuRing(FakeDoor()) as two:
        memory = one.alloc(64)
        for wrong in (two.map, two.free, two.read):
            with pytest.raises(RingError, match="not this ring's"):
                wrong(memory)
        one.write(memory, b"")
        one.write(memory, np.ones((2, 4), np.float32), 32)
        assert np.frombuffer(one.read(memory, offset=32), np.float32).tolist() == [1] * 8


def test_another_generation_is_refused() -> None:
    fake = FakeDoor(facts=replace(FACTS, gfx_target_version=100306))
    with pytest.raises(RingError, match="gfx11 and gfx12"):
        GpuRing(fake)
    assert fake.closed
    fake = FakeDoor()
    with pytest.raises(RingError, match="finite"):
        GpuRing(fake, timeout=float("inf"))
    assert fake.closed


# Threads, processes, several at once.


@door
def test_two_threads(door: str) -> None:
    with ring_of(door) as (ring, _):
        wrong: list[object] = []

        def work(base: int) -> None:
            try:
                for i in range(base, base + 20):
                    memory = ring.alloc(64)
                    ring.wait(ring.submit(Batch().write(memory, [i, i + 1])))
                    if u32(ring.read(memory))[:2] != [i, i + 1]:
                        wrong.append(i)
                    ring.free(memory)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        ring.check_integrity()


@door
def test_a_forked_child_is_refused(door: str) -> None:
    with ring_of(door) as (ring, _):
        memory = ring.alloc(4)
        child = os.fork()
        if not child:
            code = 1
            try:
                ring.submit(Batch().write(memory, [1]))
            except RingError as error:
                code = 0 if "forked child" in str(error) else 2
            ring.close()
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        ring.wait(ring.submit(Batch().write(memory, [6])))
        assert u32(ring.read(memory)) == [6]


@door
def test_two_gpus(door: str) -> None:
    with machine(models=[R9700, R9700]) as made:
        linux = made.process()
        with (
            GpuRing(DOORS[door]("/dev/dri/renderD128", linux=linux)) as a,
            GpuRing(DOORS[door]("/dev/dri/renderD129", linux=linux)) as b,
        ):
            x, y = a.alloc(64), b.alloc(64)
            fences = [(a, a.submit(Batch().write(x, [1]))), (b, b.submit(Batch().write(y, [2])))]
            for ring, fence in fences:
                ring.wait(fence)
            assert (u32(a.read(x))[0], u32(b.read(y))[0]) == (1, 2)


def test_all_doors_of_one_gpu_at_once() -> None:
    with machine() as made:
        rings = {name: opened(name, made.process()) for name in DOORS}
        pieces = {name: ring.alloc(64) for name, ring in rings.items()}
        fences = {name: ring.submit(Batch().write(pieces[name], [i])) for i, (name, ring) in enumerate(rings.items())}
        for i, (name, ring) in enumerate(rings.items()):
            ring.wait(fences[name])
            assert u32(ring.read(pieces[name]))[0] == i
            ring.close()
