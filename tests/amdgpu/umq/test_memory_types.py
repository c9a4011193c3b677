"""What happens to a user queue whose memory the GPU caches, or whose packets lack what user queues need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from amdgpu_emu.abi.gem import AMDGPU_VM_MTYPE_MASK, AMDGPU_VM_MTYPE_UC
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_7_3_USERQ
from tests.amdgpu.umq.test_interface import NODE, Packets, go_on, stall
from zinc_rt.amdgpu.abi.requests import AMDGPU_GEM_VA
from zinc_rt.amdgpu.drm_memory import GPU_READ_WRITE, RenderBuffers
from zinc_rt.amdgpu.errors import BackendError
from zinc_rt.amdgpu.submission_packets import SubmissionPackets
from zinc_rt.amdgpu.umq.interface import FENCE_VA, UserQueueInterface
from zinc_rt.amdgpu.umq.queue import QUEUE_VA, RPTR_VA, WPTR_VA
from zinc_rt.errors import FenceTimeout

PLACES = {"ring": QUEUE_VA, "write pointer": WPTR_VA, "read pointer": RPTR_VA, "fence": FENCE_VA}


@contextmanager
def opened(monkeypatch: pytest.MonkeyPatch, cached: str = "") -> Iterator[tuple[Machine, UserQueueInterface]]:
    """An interface of which one buffer has the default memory type, as everything else has."""
    make = RenderBuffers.make

    def default_type(self, label, *args, **how):
        return make(self, label, *args, **{**how, **({"access": GPU_READ_WRITE} if label == cached else {})})

    monkeypatch.setattr(RenderBuffers, "make", default_type)
    with Machine(LINUX_7_3_USERQ, time_scale=0.01, strict=False) as machine:
        interface = UserQueueInterface(NODE, linux=machine.process())
        interface.reset_grace = interface.drain_timeout = 0.05
        yield machine, interface
        interface.close()


def two_submissions(interface: UserQueueInterface) -> int:
    """The second one begins in the block that was fetched with the first."""
    packets = Packets(interface)
    for value in (1, 2):
        interface.wait(packets.write(value), 0.3)
    interface.linux.machine.settle()  # type: ignore[attr-defined]
    return packets.word()


def test_the_four_places_are_uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(monkeypatch) as (machine, interface):
        (process,) = machine.processes
        (file,) = (f for f in process._files.values() if f.path == NODE)
        uncached = {m.va for m in file.vm if m.bo.uncached}  # type: ignore[attr-defined]
        assert {va for va in uncached if va < 1 << 47} == set(PLACES.values())  # one of the kernel's own is above
        assert two_submissions(interface) == 2
        assert not machine.findings


@pytest.mark.parametrize(
    ("cached", "kinds", "error"),
    [
        ("ring", {"stale-ring"}, BackendError),
        ("write pointer", {"stale-write-pointer"}, None),
        ("fence", set(), FenceTimeout),
    ],
)
def test_a_cached_one_is_read_old(monkeypatch: pytest.MonkeyPatch, cached: str, kinds: set[str], error: type | None):
    with opened(monkeypatch, cached) as (machine, interface):
        if error is None:
            assert two_submissions(interface) == 2
        else:
            with pytest.raises(error):
                two_submissions(interface)
        assert {finding.kind for finding in machine.findings} == kinds


def test_a_read_pointer_that_the_l2_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor sees it stand still until something writes the L2 back."""
    seen = {}
    for cached in ("", "read pointer"):
        with opened(monkeypatch, cached) as (_, interface):
            packets = Packets(interface)
            stall(packets)
            with pytest.raises(FenceTimeout):
                interface.wait(1, 0.05)
            seen[cached] = interface._ring.read_pointer()
            go_on(packets)
            interface.wait(1, 1)
    assert seen[""] > seen["read pointer"]


def test_indirect_buffers_inherit_the_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SubmissionPackets.__init__
    monkeypatch.setattr(
        SubmissionPackets, "__init__", lambda self, *args, **how: real(self, *args, **{**how, "inherit_vmid": False})
    )
    with opened(monkeypatch) as (machine, interface):
        assert two_submissions(interface) == 2
        assert {finding.kind for finding in machine.findings} == {"address-space"}


def test_the_type_that_the_kernel_sees() -> None:
    """Bits of the ioctl, not of this project's names."""
    with Machine(LINUX_7_3_USERQ) as machine:
        process = machine.process()
        seen: dict[int, int] = {}
        ioctl = process.ioctl

        def noted(fd, request, argument):
            if request == AMDGPU_GEM_VA.value and argument.operation == 1:
                seen[argument.va_address] = argument.flags
            return ioctl(fd, request, argument)

        process.ioctl = noted  # type: ignore[method-assign]
        UserQueueInterface(NODE, linux=process).close()
    assert {va: seen[va] & AMDGPU_VM_MTYPE_MASK for va in PLACES.values()} == dict.fromkeys(
        PLACES.values(), AMDGPU_VM_MTYPE_UC
    )
    assert AMDGPU_VM_MTYPE_UC == 4 << 5
