"""`CudaDevice` against a strict fake of the driver: memory, lists, fences, faults."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.cuda.fake import FakeCuda, FakeGpu
from tests.cuda.opencl_cpu import device as processor
from tests.cuda.stage import ptx
from zinc_rt.cuda.calls import load
from zinc_rt.cuda.device import CudaDevice
from zinc_rt.cuda.devices import find_cards
from zinc_rt.cuda.errors import CudaCallFailed, CudaMissing, CudaOutOfMemory
from zinc_rt.errors import BackendError, DeviceLost, FenceTimeout
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.gpu import GpuKernel

WORDS = 2000


def move() -> GpuKernel:
    """Copies dwords: source, target, how many."""
    spec = DECODE["move"].spec
    return ptx({spec.symbol: spec})[spec.symbol]


@contextmanager
def opened(made: FakeCuda | None = None, **options: object) -> Iterator[tuple[CudaDevice, FakeCuda]]:
    """A device that breaks no rule and leaves nothing behind."""
    made = made or FakeCuda()
    with CudaDevice(find_cards(made.calls())[0][0], **options) as device:
        yield device, made
    assert (made.findings, made.leaks()) == ([], [])


def words(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, WORDS, np.uint32)


def test_lists_run_in_order_and_barriers_hold() -> None:
    """Four copies in three phases, again and again: a graph's nodes come in any order that its edges allow."""
    processor()
    for seed in range(4):
        with opened(FakeCuda(seed=seed)) as (device, fake):
            program = device.load_kernel(move())
            assert device.load_kernel(move()) is program
            source = device.alloc(4 * WORDS, heap="gtt", label="source")
            own = [device.alloc(4 * WORDS, label=f"piece {i}") for i in range(3)]
            out = device.alloc(8 * WORDS, heap="gtt", use="reads", label="out")
            commands = device.commands("copies").barrier()
            commands.dispatch(program, 2, source, own[0], WORDS).barrier().barrier()
            commands.dispatch(program, 2, own[0], own[1], WORDS).dispatch(program, 2, own[0], own[2], WORDS).barrier()
            commands.dispatch(program, 2, own[1], out, WORDS)
            commands.dispatch(program, 2, own[2], out.va + 4 * WORDS, WORDS)
            for run in range(4):
                device.write(source, words(run))
                fence = device.submit(commands)
                assert not fence.retired
                device.wait(fence)
                got = np.frombuffer(device.read(out), np.uint32)
                np.testing.assert_array_equal(got, np.tile(words(run), 2))
            assert (fake.graphs_launched, len(fake.launched)) == (3, 20)
            assert fake.calls_made["cuGraphAddEmptyNode"] == 2
            commands.barrier().dispatch(program, 2, own[1], own[2], WORDS)  # a longer list is another graph
            for _ in range(2):
                device.wait(device.submit(commands))
            assert fake.calls_made["cuGraphInstantiateWithFlags"] == 2
            mapped = device.map(out)
    assert (mapped.view(np.uint32)[:WORDS] == words(3)).all(), "good after the end"


def test_memory() -> None:
    with opened() as (device, _):
        piece = device.alloc(1000)
        assert (piece.va % 256, piece.size) == (0, 1000)
        device.write(piece, bytes(range(100)), 300)
        assert device.read(piece, 100, 300) == bytes(range(100))
        with pytest.raises(BackendError, match="does not reach the GPU's memory; use read and write"):
            device.map(piece)
        for call in (lambda: device.write(piece, bytes(8), 996), lambda: device.read(piece, 8, 996)):
            with pytest.raises(BackendError, match="8 bytes at 996 are not all in its 1000"):
                call()
        device.free(piece)
        for call in (lambda: device.free(piece), lambda: device.read(piece)):
            with pytest.raises(BackendError, match="not in use on Fake 4090"):
                call()
        with pytest.raises(BackendError, match="0 bytes of memory"):
            device.alloc(0)
        with pytest.raises(CudaOutOfMemory, match=r"cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY.*smaller context"):
            device.alloc(1 << 30, label="weights")
        assert device.memory_info() == (1 << 28, 1 << 28)


def test_what_is_freed_stays_until_its_work_has_run() -> None:
    processor()
    with opened() as (device, fake):
        program, a, b = device.load_kernel(move()), device.alloc(4 * WORDS), device.alloc(4 * WORDS)
        device.write(a, words(1))
        commands = device.commands("copy").dispatch(program, 2, a, b, WORDS)
        fence = device.submit(commands)
        device.free(a)
        assert a.va in fake._memory
        with pytest.raises(BackendError, match="copy names memory: 8000 bytes that were freed"):
            device.submit(commands)
        with pytest.raises(BackendError, match="that were freed"):
            device.commands("again").dispatch(program, 2, a, b, WORDS)
        device.wait(fence)
        assert a.va not in fake._memory
        assert device.read(b) == words(1).tobytes()


def test_what_cannot_be_launched() -> None:
    with opened() as (device, _):
        program, piece = device.load_kernel(move()), device.alloc(4)
        with pytest.raises(BackendError, match=r"0, 1, 1\) workgroups; the three counts must be 1 to"):
            device.commands("x").dispatch(program, 0, piece, piece, 1)
        with pytest.raises(BackendError, match="workgroups"):
            device.commands("x").dispatch(program, (1, 65536, 1), piece, piece, 1)
        with pytest.raises(LangError, match="takes 3 arguments, got 2"):
            device.commands("x").dispatch(program, 1, piece, piece)
        with pytest.raises(LangError, match="takes"):
            device.commands("x").dispatch(program, 1, piece, piece, 1 << 32)
        foreign = ptx({"k": DECODE["move"].spec}, "spirv")["k"]
        with pytest.raises(BackendError, match="is compiled for spirv"):
            device.load_kernel(foreign)


def test_machine_code_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    made = [FakeCuda(), FakeCuda(), FakeCuda(version=13000), FakeCuda([FakeGpu()])]
    made[3].gpus[0].attributes[76] = 6
    for fake in made:
        with opened(fake, cache=CompileCache(folder)) as (device, _):
            device.compile(move())
            device.load_kernel(move())
    assert [fake.compiled for fake in made] == [1, 0, 1, 1]


def test_the_compilers_lines() -> None:
    fake = FakeCuda()
    fake.ptx_error = "ptxas application ptx input, line 9; fatal: unknown opcode"
    with opened(fake) as (device, _), pytest.raises(CudaCallFailed, match="line 9; fatal") as caught:
        device.load_kernel(move())
    assert str(caught.value).startswith("cuLinkAddData_v2 of move failed: CUDA_ERROR_INVALID_PTX: invalid ptx (218);")


def test_a_step_that_does_not_end() -> None:
    processor()
    with opened() as (device, fake):
        commands = device.commands("step of 3 rows").dispatch(device.load_kernel(move()), 1, *[device.alloc(4)] * 2, 1)
        fence = device.submit(commands)
        fake.hangs = True
        with pytest.raises(FenceTimeout, match=r"step of 3 rows \(submission 1\) did not retire within 0.05 s on Fake"):
            device.wait(fence, 0.05)
        fake.hangs = False
        device.drain()
        assert fence.retired
        with pytest.raises(BackendError, match="a timeout of inf s"):
            device.wait(fence, float("inf"))


def test_close_leaves_alone_what_hangs() -> None:
    fake = FakeCuda()
    device = CudaDevice(find_cards(fake.calls())[0][0], timeout=0.05)
    program, piece = device.load_kernel(move()), device.alloc(4)
    device.submit(device.commands("x").dispatch(program, 1, piece, piece, 1))
    fake.hangs = True
    device.close()
    device.close()
    assert fake.findings == []
    assert "memory" in fake.leaks()


def test_a_gpu_that_is_lost() -> None:
    processor()
    fake = FakeCuda()
    fake.lost_after = 1
    device = CudaDevice(find_cards(fake.calls())[0][0])
    program, piece = device.load_kernel(move()), device.alloc(8)
    commands = device.commands("x").dispatch(program, 1, piece, piece.va + 4, 1)
    device.wait(device.submit(commands))
    fence = device.submit(commands)
    with pytest.raises(DeviceLost, match=r"cuEventQuery failed: CUDA_ERROR_LAUNCH_FAILED: .*\(719\); .*Xid"):
        device.wait(fence)
    for call in (lambda: device.submit(commands), lambda: device.alloc(4), device.drain):
        with pytest.raises(DeviceLost, match="719"):
            call()
    device.close()
    assert fake.findings == []
    assert "context" not in fake.leaks()
    with pytest.raises(BackendError, match="was closed"):
        device.alloc(4)


def test_a_pointer_to_nowhere_is_a_loss() -> None:
    processor()
    fake = FakeCuda()
    with CudaDevice(find_cards(fake.calls())[0][0]) as device:
        commands = device.commands("x").dispatch(device.load_kernel(move()), 1, 4096, device.alloc(4), 1)
        fence = device.submit(commands)
        with pytest.raises(DeviceLost, match=r"ILLEGAL_ADDRESS.*\(700\)"):
            device.wait(fence)
    assert len(fake.findings) == 1


def test_threads_and_children() -> None:
    """Each thread gets the context; a forked child is refused."""
    with opened() as (device, _):
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(device.alloc(4)))
        thread.start()
        thread.join()
        device.free(found[0])
        child = os.fork()
        if not child:
            try:
                device.drain()
            except BackendError as error:
                os._exit(7 if "a forked child" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        other = device.submit(device.commands("empty"))
        device.wait(other)
        other.retired = False
        with opened() as (second, _), pytest.raises(BackendError, match="is not of Fake 4090"):
            second.wait(other)


def test_times_of_launches() -> None:
    processor()
    with opened() as (device, fake):
        program, piece = device.load_kernel(move()), device.alloc(8)
        commands = device.commands("x").dispatch(program, 1, piece, piece.va + 4, 1)
        commands.barrier().dispatch(program, 1, piece, piece.va + 4, 1)
        device.start_times()
        for _ in range(2):
            device.wait(device.submit(commands))
        times = device.stop_times()
        assert [(t.name, t.step, t.start) for t in times] == [
            ("move", step, pytest.approx(at)) for step in (0, 1) for at in (0.0, 1e-3)
        ]
        assert all(t.seconds == pytest.approx(1e-3) for t in times)
        assert fake.graphs_launched == 0


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({75: 7, 76: 4}, "compute capability 7.4; kernels are for 7.5 and later"),
        ({10: 64}, "warps have 64 lanes"),
        ({41: 0}, "unified addresses"),
        ({20: 2}, "nvidia-smi -c DEFAULT"),
    ],
)
def test_what_a_card_lacks(attributes: dict[int, int], why: str) -> None:
    gpu = FakeGpu()
    gpu.attributes.update(attributes)
    (card,), reason = find_cards(FakeCuda([gpu]).calls())
    assert (reason, card.processor) == ("", False)
    assert why in card.refusal
    with pytest.raises(BackendError, match="kernels cannot run there"):
        CudaDevice(card)


def test_cards() -> None:
    (card, second), reason = find_cards(FakeCuda([FakeGpu(), FakeGpu("Other")]).calls())
    assert (card.name, card.architecture, card.driver, card.pci) == ("Fake 4090", "sm_89", "CUDA 12.4", "0000:0a:00.0")
    assert (card.memory, card.bandwidth, card.refusal, reason) == (1 << 28, 1_008_096_000_000, "", "")
    assert (second.number, second.name) == (1, "Other")
    assert card.uuid != second.uuid


def test_machines_without_one(tmp_path: Path) -> None:
    assert find_cards(FakeCuda([]).calls()) == (
        [],
        "cuInit failed: CUDA_ERROR_NO_DEVICE: no device (100); look at CUDA_VISIBLE_DEVICES, and whether nvidia-smi"
        " sees a card",
    )
    _, reason = find_cards(FakeCuda(version=11020).calls())
    assert reason == "NVIDIA's driver knows CUDA 11.2; 11.4 is needed: install a newer driver"
    fake = FakeCuda()
    fake.fail["cuDeviceGetCount"] = 999
    assert "999" in find_cards(fake.calls())[1]
    with pytest.raises(CudaMissing, match="NVIDIA's driver is not installed here"):
        load(str(tmp_path / "libcuda.so.1"))
    with pytest.raises(CudaMissing, match=r"has no cuGetErrorName: the driver is from before CUDA 11.4"):
        load("libc.so.6")


@pytest.mark.parametrize(
    "call", ["cuStreamCreate", "cuDevicePrimaryCtxRetain", "cuMemHostRegister_v2", "cuModuleLoadData", "cuGraphLaunch"]
)
def test_a_refused_call_is_an_error_and_nothing_is_lost(call: str) -> None:
    fake = FakeCuda()

    def use() -> None:
        with CudaDevice(find_cards(fake.calls())[0][0]) as device:
            program = device.load_kernel(move())
            piece = device.alloc(8, heap="gtt")
            commands = device.commands("x").dispatch(program, 1, piece, piece.va + 4, 1)
            for _ in range(2):
                device.wait(device.submit(commands))

    if call == "cuGraphLaunch":
        processor()
    fake.fail[call] = 1
    with pytest.raises(CudaCallFailed, match=rf"{call} failed: CUDA_ERROR_INVALID_VALUE"):
        use()
    assert (fake.findings, fake.leaks()) == ([], [])
