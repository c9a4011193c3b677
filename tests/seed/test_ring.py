"""Packets, lists and batches on the CPU ring: order, barriers, errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import zinc_rt
from tests.kernels.material import packed_rows
from zinc_rt import kernels
from zinc_rt.backends.base import Backend, Capacity, StepFence
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.op import Op
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.seed.cpu_ring import CpuRing
from zinc_rt.seed.kernels.errors import EmptyInput, ShapeMismatch
from zinc_rt.seed.ring import (
    ArgmaxParams,
    EmbedParams,
    LmHeadParams,
    Packet,
    PacketBatch,
    PacketList,
    RmsNormParams,
    SwigluParams,
)


@pytest.fixture
def ring() -> Iterator[CpuRing]:
    with CpuRing.init() as made:
        yield made


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32)


def argmax(logits: list[float], output: np.ndarray) -> Packet:
    return Packet.argmax(ArgmaxParams(np.float32(logits), output))


def test_the_page() -> None:
    page = zinc_rt.ring
    assert (page.Ring, page.Sizes, page.Fence) == (Backend, Capacity, StepFence)
    assert (page.Packet, page.PacketBatch, page.PacketList) == (Packet, PacketBatch, PacketList)
    assert page.Fence(3).retired is False


def test_the_five_packets_are_their_kernels(ring: CpuRing) -> None:
    rng = np.random.default_rng(1)
    raw = packed_rows(GGMLType.Q8_0, rng, 40, 64)
    weight = rng.standard_normal(64).astype(np.float32)
    x, normed, act = (np.empty(64, np.float32) for _ in range(3))
    logits, token, scratch = np.empty(40, np.float32), np.empty(1, np.int32), np.zeros(64, np.float32)
    packets = PacketList.init()
    packets.append(Packet.embed(EmbedParams(raw, GGMLType.Q8_0, 7, 64, 40, x)))
    packets.append(Packet.rms_norm(RmsNormParams(x, weight, normed, 1e-5)))
    packets.append_barrier()
    packets.append(Packet.swiglu(SwigluParams(normed, x, act)))
    packets.append(Packet.lm_head(LmHeadParams(raw, GGMLType.Q8_0, act, scratch, logits)))
    packets.append(Packet.argmax(ArgmaxParams(logits, token)))
    ring.submit_and_wait(PacketBatch(packets.slice()))

    a, b, c, d = (np.empty(n, np.float32) for n in (64, 64, 64, 40))
    kernels.embed(raw, GGMLType.Q8_0, 7, 64, 40, a)
    kernels.rms_norm(a, weight, b, 1e-5)
    kernels.swiglu(b, a, c)
    kernels.lm_head(raw, GGMLType.Q8_0, c, scratch, d)
    for got, want in ((x, a), (normed, b), (act, c), (logits, d)):
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
    assert token[0] == d.argmax()


def test_packets_know_their_operation() -> None:
    assert Packet.barrier() == Packet(Op.BARRIER, None)
    assert argmax([1.0], np.zeros(1, np.int32)).op is Op.ARGMAX
    assert Packet.swiglu(SwigluParams(ones(2), ones(2), ones(2))).op is Op.SWIGLU
    assert Packet.rms_norm(RmsNormParams(ones(2), ones(2), ones(2), 0.0)).op is Op.RMS_NORM


def test_lists_grow_and_clear() -> None:
    packets, token = PacketList.init(), np.zeros(1, np.int32)
    assert (len(packets), packets.len(), packets.slice()) == (0, 0, ())
    packets.append(argmax([1.0], token))
    packets.append_barrier()
    kept = packets.slice()
    assert [p.op for p in packets] == [Op.ARGMAX, Op.BARRIER]
    packets.append(argmax([2.0], token))
    assert packets.len() == len(packets) == 3
    assert len(kept) == 2  # a slice is what there was
    packets.clear()
    assert packets.len() == 0
    packets.append_barrier()
    packets.deinit()
    assert packets.slice() == ()
    assert len(kept) == 2


def test_packets_run_in_order_and_barriers_do_nothing(ring: CpuRing) -> None:
    token = np.zeros(1, np.int32)
    order = [argmax([0.0] * i + [1.0], token) for i in (3, 1, 0, 2)]
    ring.submit_and_wait(PacketBatch([order[0], Packet.barrier(), Packet.barrier(), *order[1:], Packet.barrier()]))
    assert token[0] == 2
    ring.submit_and_wait(PacketBatch([*order, order[1]]))
    assert token[0] == 1
    ring.submit_and_wait(PacketBatch([Packet.barrier()]))
    ring.submit_and_wait(PacketBatch([]))
    assert token[0] == 1


def test_a_batch_may_run_again_on_new_data(ring: CpuRing) -> None:
    logits, token = np.float32([1.0, 2.0]), np.zeros(1, np.int32)
    batch = PacketBatch([Packet.argmax(ArgmaxParams(logits, token))])
    for values, want in (([1.0, 2.0], 1), ([3.0, 2.0], 0)):
        logits[:] = values
        ring.submit_and_wait(batch)
        assert token[0] == want


@pytest.mark.parametrize(
    ("packet", "error"),
    [
        (argmax([], np.zeros(1, np.int32)), EmptyInput),
        (argmax([1.0], np.zeros(2, np.int32)), ShapeMismatch),
        (Packet.embed(EmbedParams(bytes(34), GGMLType.Q8_0, 1, 32, 1, ones(32))), TokenOutOfRange),
        (Packet.rms_norm(RmsNormParams(ones(2), ones(3), ones(2), 0.0)), ShapeMismatch),
        (Packet.swiglu(SwigluParams(ones(1), ones(0), ones(1))), EmptyInput),
        (Packet.lm_head(LmHeadParams(bytes(34), GGMLType.Q8_0, ones(32), ones(31), ones(1))), ShapeMismatch),
    ],
    ids=["empty", "shape", "token", "rms_norm", "swiglu", "lm_head"],
)
def test_kernel_errors_propagate(packet: Packet, error: type[Exception], ring: CpuRing) -> None:
    before, after = np.full(1, -1, np.int32), np.full(1, -1, np.int32)
    with pytest.raises(error):
        ring.submit_and_wait(PacketBatch([argmax([0.0, 1.0], before), packet, argmax([0.0, 1.0], after)]))
    assert (before[0], after[0]) == (1, -1)
    ring.submit_and_wait(PacketBatch([argmax([0.0, 1.0], after)]))  # the ring lives on
    assert after[0] == 1


def test_a_closed_ring_runs_nothing(ring: CpuRing) -> None:
    token = np.full(1, -1, np.int32)
    ring.deinit()
    ring.deinit()
    with pytest.raises(BackendError, match="closed"):
        ring.submit_and_wait(PacketBatch([argmax([1.0], token)]))
    assert token[0] == -1
