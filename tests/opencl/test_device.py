"""The OpenCL driver: what devices lack, memory, programs, launch lists, fences, and faults."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.compiled import images
from tests.lang import gpu_kernels as g
from tests.opencl.conftest import kernels
from zinc_rt.backends.gpu import selftest
from zinc_rt.errors import BackendError, DeviceLost, FenceTimeout
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.lang import TARGETS, Spec, emit_module
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.gpu import GpuKernel, describe_kernel
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.lang.machines import spirv64
from zinc_rt.lang.types import Type
from zinc_rt.opencl import devices
from zinc_rt.opencl.devices import OpenClCard

pytest.importorskip("pyopencl", reason="pyopencl is not installed: pip install -e '.[gpu-test]'")
from zinc_rt.opencl import calls
from zinc_rt.opencl.device import OpenClDevice


def kernel() -> GpuKernel:
    return gpu_kernels({"move": DECODE["move"].spec}, "spirv-plain", cache=kernels())["move"]


@pytest.fixture(params=[True, False], ids=["command buffers", "launches"])
def device(request: pytest.FixtureRequest, card: OpenClCard) -> Any:
    made = OpenClDevice(card, cache=kernels(), buffers=request.param)
    yield made
    made.close()


def test_the_card_lacks_nothing(card: OpenClCard) -> None:
    assert card.refusal == ""
    assert card.processor
    assert card.memory > 1 << 30


def test_each_lack_is_named(card: OpenClCard) -> None:
    class Poor:
        """A device of OpenCL 1.2 with little of everything."""

        extensions = "cl_khr_icd"
        il_version = ""
        address_bits, endian_little = 32, True
        single_fp_config = double_fp_config = svm_capabilities = 0
        max_work_group_size, local_mem_size = 256, 32 << 10
        int_ptr = card.device.int_ptr

    import pyopencl as cl

    lacks = "; ".join(devices._lacking(cl, Poor()))
    for word in ("cl_khr_fp16", "SPIR-V 1.4", "64 bits", "float32", "float64", "memory that both", "1024", "48 KiB"):
        assert word in lacks
    with pytest.raises(BackendError, match="lacks sub-groups of 32: kernels cannot run there"):
        OpenClDevice(replace(card, lacks=("sub-groups of 32",)))


def test_a_list_runs_in_order_as_often_as_wanted(device: OpenClDevice) -> None:
    n = 5000
    memory = [device.alloc(4 * n, heap="gtt", label=name) for name in "abc"]
    program = device.load_kernel(kernel())
    data = np.arange(n, dtype=np.uint32)
    commands = device.commands("two moves")
    for source, target in pairwise(memory):
        commands.dispatch(program, -(-n // 1024), source, target, n).barrier(light=True)
    for turn in range(3):
        device.write(memory[0], data + turn)
        device.wait(device.submit(commands))
        np.testing.assert_array_equal(np.frombuffer(device.read(memory[2], 4 * n), np.uint32), data + turn)
    device.write(memory[0], data * 7)
    fences = [device.submit(commands) for _ in range(4)]  # none is waited for before the next
    for fence in (fences[-1], *fences):
        device.wait(fence, 1.0)
    assert device.load_kernel(kernel()) is program
    for piece in memory:
        device.free(piece)
    with pytest.raises(BackendError, match="a: freed"):
        device.map(memory[0])


def test_times_of_launches(device: OpenClDevice) -> None:
    piece, other = (device.alloc(4096, heap="gtt") for _ in range(2))
    program = device.load_kernel(kernel())
    commands = device.commands("moves")
    for _ in range(3):
        commands.dispatch(program, (1, 1, 1), piece, other, 1024)
    device.wait(device.submit(commands))
    device.start_times()
    device.write(piece, np.arange(1024, dtype=np.uint32))
    for _ in range(2):
        device.wait(device.submit(commands))
    times = device.stop_times()
    assert [(t.name, t.groups, t.step) for t in times] == [("move", (1, 1, 1), step) for step in (0, 0, 0, 1, 1, 1)]
    assert all(t.seconds > 0 and t.start >= 0 for t in times)
    assert times[0].start == 0 < times[1].start
    assert device.read(other) == device.read(piece), "what is measured is done"
    device.wait(device.submit(commands))
    assert len(device.stop_times()) == 6


def test_wrong_calls_say_what_is_wrong(device: OpenClDevice) -> None:
    piece = device.alloc(1024, heap="gtt", label="piece")
    program = device.load_kernel(kernel())
    commands = device.commands("wrong")
    with pytest.raises(BackendError, match="takes 3 arguments, got 1"):
        commands.dispatch(program, 1, piece)
    with pytest.raises(BackendError, match="the three counts must be 1 to"):
        commands.dispatch(program, 0, piece, piece, 4)
    with pytest.raises(LangError, match="n is u32 and takes 0 to 4294967295, got"):
        commands.dispatch(program, 1, piece, piece, -1)
    with pytest.raises(BackendError, match="1025 bytes at 0 are not all in its 1024"):
        device.write(piece, bytes(1025))
    with pytest.raises(BackendError, match=r"4 bytes at -1 are not all in its 1024"):
        device.read(piece, 4, -1)
    amd = gpu_kernels({"move": DECODE["move"].spec}, "gfx1201", cache=kernels())["move"]
    with pytest.raises(BackendError, match="is compiled for gfx1201"):
        device.load_kernel(amd)
    with pytest.raises(BackendError, match=r"huge: .* gives no \d+ bytes; .*--device cpu"):
        device.alloc(1 << 50, label="huge")


def test_a_kernel_that_the_driver_does_not_build(card: OpenClCard) -> None:
    device = OpenClDevice(card, options="-cl-what-is-this")
    with pytest.raises(BackendError, match=r"the driver Intel.* cannot build move: .*update it"):
        device.load_kernel(kernel())
    device.close()


def test_a_program_that_the_driver_does_not_take_back_is_built_again(card: OpenClCard) -> None:
    class Damaged:
        """A cache whose programs are of another version."""

        def __init__(self) -> None:
            self.stored = 0

        def get(self, key: str) -> Any:
            return type("Image", (), {"code": b"not a program of this driver"})

        def put(self, key: str, image: Any) -> None:
            self.stored += 1

    cache = Damaged()
    device = OpenClDevice(card, cache=cache, buffers=True)  # type: ignore[arg-type]
    device.load_kernel(kernel())
    assert cache.stored == 1
    device.close()


def held_up(device: OpenClDevice) -> tuple[Any, Any, Any]:
    """A list, its fence, and what the queue waits for before it runs."""
    import pyopencl as cl

    piece = device.alloc(1024, heap="gtt")
    commands = device.commands("move").dispatch(device.load_kernel(kernel()), 1, piece, piece, 4)
    gate = cl.UserEvent(device._context)
    cl.enqueue_marker(device._queue, wait_for=[gate])
    return commands, device.submit(commands), gate


def test_a_step_that_does_not_end(device: OpenClDevice) -> None:
    _, fence, gate = held_up(device)
    with pytest.raises(FenceTimeout, match=r"move: .* did not end within 0.01 s"):
        device.wait(fence, 0.01)
    gate.set_status(0)
    device.wait(fence)


def test_a_device_that_goes_away(device: OpenClDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    commands, fence, gate = held_up(device)
    gate.set_status(-36)
    monkeypatch.setattr(calls, "_wait", lambda *_: -36)  # the answer of drivers whose device is gone
    with pytest.raises(DeviceLost, match=r"move: .*does not answer any more"):
        device.wait(fence)
    with pytest.raises(DeviceLost):
        device.submit(commands)
    with pytest.raises(DeviceLost):
        device.alloc(1024)


def test_the_arithmetic_is_exact(card: OpenClCard) -> None:
    device = OpenClDevice(card, cache=kernels())
    selftest.check_arithmetic(device, kernels())
    device.close()


def test_wrong_arithmetic_is_found(card: OpenClCard) -> None:
    """A driver that may relax the rounding of subnormals."""
    device = OpenClDevice(card, options="-cl-denorms-are-zero", cache=kernels())
    with pytest.raises(selftest.WrongResults, match=r"is not exact on this device: .* results are wrong"):
        selftest.check_arithmetic(device, kernels())
    device.close()


@pytest.mark.parametrize(("kind", "lanes", "align"), g.ODD)
def test_loads_by_aligned_words_find_every_byte(
    device: OpenClDevice, kind: Type, lanes: int, align: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for PTX, from every place; what is run here is SPIR-V."""
    spec = Spec(g.words_from_odd_places, {"T": kind, "LANES": lanes, "ALIGN": align})
    monkeypatch.setattr(spirv64.MACHINE, "splits_loads", True)
    module = emit_module(spec.symbol, [spec], TARGETS[device.kernel_target])
    assert "llvm.fshr" in module.ir
    size = lanes * kind.size
    data = np.random.default_rng(7).integers(0, 256, 63 * align + size, np.uint8)
    x, y = (device.alloc(n, heap="gtt", label="numbers") for n in (data.size, 64 * size))
    device.write(x, data)
    program = device.load_kernel(describe_kernel(spec, images([module])[0]))
    device.wait(device.submit(device.commands("odd places").dispatch(program, 1, x, y)))
    rows = [data[i * align : i * align + size].tobytes() for i in range(64)]
    assert device.read(y, 64 * size) == b"".join(rows)


def test_dot_products(card: OpenClCard) -> None:
    """By the instruction that GPUs take, and byte by byte."""
    words = np.random.default_rng(1).integers(0, 256, (2, 64, 4), np.uint8)
    words[:, 0], words[0, 1], words[1, 1] = 128, 255, 128
    signed = words.view(np.int8).astype(np.int32)
    want = [3 + (x * signed[1]).sum(axis=1, dtype=np.int32) for x in (signed[0], words[0].astype(np.int32))]
    for target in ("spirv", "spirv-plain"):
        device = OpenClDevice(replace(card, target=target), cache=kernels())
        made = gpu_kernels({"dot": Spec(g.dot_products)}, target, cache=kernels())["dot"]
        a, b, out = (device.alloc(512, heap="gtt") for _ in range(3))
        device.write(a, words[0])
        device.write(b, words[1])
        device.wait(device.submit(device.commands("dots").dispatch(device.load_kernel(made), 2, a, b, out)))
        assert (np.frombuffer(device.read(out, 512), np.int32).reshape(2, 64) == want).all(), target
        device.close()
