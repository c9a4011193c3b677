"""Barriers that wait for a number that RELEASE_MEM stores, for cards on which CS_PARTIAL_FLUSH does not wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.queue.stage import INTERFACES, NODE, machine, queue_of
from tests.backends.amdgpu.stage import check, kernels
from tests.backends.cpu.test_graphs import short_case
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.gfx import GFX12
from zinc_rt.amdgpu.packets import lower
from zinc_rt.amdgpu.submission_packets import SubmissionPackets
from zinc_rt.backends.amdgpu import barriers
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.gpu import selftest

FLAG = 0x1_0000_0080
FLUSH = [0xC0004600, 0x407]
ACQUIRE = [0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 10]


@contextmanager
def backend_of(interface: str, *, partial_flush: bool, flush_waits: bool) -> Iterator[AmdBackend]:
    with machine(shader=ShaderCore(), time_scale=100.0) as made:
        made.gpus[0].flush_waits = flush_waits
        opened = INTERFACES[interface](NODE, linux=made.process(), partial_flush=partial_flush)
        with AmdBackend(opened, cache=kernels(), timeout=300.0) as backend:
            yield backend
            backend.gpu.check_integrity()


@pytest.mark.slow  # by default they do where they are taken, below
@pytest.mark.parametrize("interface", ["cs", "kfd", "umq"])
def test_they_order_the_same(interface: str) -> None:
    """On a card whose flush waits, and on one whose flush does not: the reference's bits, the same list twice."""
    case, want = short_case(101)
    with backend_of(interface, partial_flush=False, flush_waits=False) as backend:
        check(backend, case, want)
        check(backend, case, want)


def test_a_flush_that_does_not_wait_gives_wrong_results() -> None:
    case, want = short_case(101)
    with (
        backend_of("cs", partial_flush=True, flush_waits=False) as backend,
        pytest.raises(AssertionError),
    ):
        check(backend, case, want)


@pytest.mark.parametrize("interface", ["cs", *(pytest.param(n, marks=pytest.mark.slow) for n in ("kfd", "umq"))])
def test_they_are_taken_after_a_failed_proof(interface: str) -> None:
    case, want = short_case(101)
    said: list[str] = []
    with backend_of(interface, partial_flush=True, flush_waits=False) as backend:
        barriers.prove(backend, said.append)
        assert not backend.gpu.device.partial_flush
        assert said == [f"{NODE}: CS_PARTIAL_FLUSH does not wait there; barriers use RELEASE_MEM"]
        check(backend, case, want)


def test_what_is_wrong_either_way_stays_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is raised; a card that was switched already is not tried twice."""
    tried: list[bool] = []

    def wrong(backend: AmdBackend) -> None:
        tried.append(backend.gpu.device.partial_flush)
        raise selftest.WrongResults(f"attempt {len(tried)}")

    monkeypatch.setattr(selftest, "check_results", wrong)
    with backend_of("kfd", partial_flush=True, flush_waits=True) as backend:
        for attempt in (1, 3):
            with pytest.raises(selftest.WrongResults, match=f"attempt {attempt}"):
                barriers.prove(backend)
        assert tried == [True, False, False]


def test_a_list_that_ran_before_is_lowered_anew() -> None:
    with queue_of("kfd") as (queue, linux):
        memory = queue.alloc(4096)
        commands = CommandList("twice").write(memory, [1]).barrier().write(memory, [2])
        queue.wait(queue.submit(commands))
        queue.wait_by_release()
        linux.machine.gpus[0].flush_waits = False  # type: ignore[attr-defined]
        queue.wait(queue.submit(commands))
        words = queue._lists.of(commands, 0).words
        assert words.tolist() == lower(commands, GFX12, flag_va=queue._own.va + 128)
        assert FLUSH[0] not in words


def test_their_packets() -> None:
    """As kfdtest has them: the number of the barrier at the end of the pipe, and a wait until it is there."""

    def barrier(number: int, gcr: int) -> list[int]:
        release = [0xC0064900, 0x514, 0x20000000, 0x80, 1, number, 0, 0]
        return [*release, 0xC0053C00, 0x13, 0x80, 1, number, 0xFFFFFFFF, 4, *ACQUIRE, gcr]

    empty = CommandList()
    assert lower(empty, GFX12, flag_va=FLAG) == [
        0xC0001000, 0, 0xC0033700, 0x00100500, 0x80, 1, 0, *barrier(1, 0xC3B1),
    ]  # fmt: skip
    assert not any(lower(empty, GFX12, flag_va=FLAG)[i : i + 2] == FLUSH for i in range(20))


def test_a_submission_waits_for_the_fence_before() -> None:
    packets = SubmissionPackets(0x1_0000_0040, GFX12, flush_hdp=False, partial_flush=False)
    for sequence in (1, 7, 1 << 32):
        words = packets.build(0x1_2000_0000, 64, sequence).tolist()
        assert words[:7] == [0xC0053C00, 0x13, 0x40, 1, sequence - 1 & 0xFFFFFFFF, 0xFFFFFFFF, 4]
        assert words[7 : 7 + len(ACQUIRE)] == ACQUIRE
    assert FLUSH[0] not in words
