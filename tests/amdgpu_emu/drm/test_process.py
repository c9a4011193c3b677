"""What is left behind, forked children, injected faults, a device that is gone."""

from __future__ import annotations

import errno
import os

import pytest

from amdgpu_emu.abi import drm, requests
from amdgpu_emu.abi.requests import REQUESTS
from amdgpu_emu.errors import CallRefused, EmulatorFinding
from amdgpu_emu.faults import CALLS
from amdgpu_emu.machine import Machine
from tests.amdgpu_emu.drm.card import ALWAYS_VALID, DATA_VA, Card, nop


@pytest.mark.parametrize(
    ("leave", "what"),
    [
        (lambda c: c.create(), "GEM handles 1"),
        (lambda c: c.ctx(), "contexts 1"),
        (lambda c: c.bo_list(0), "lists of buffers 1"),
        (lambda c: c.syncobj(), "sync objects 1"),
        (lambda c: c.va(c.create(), DATA_VA), f"at {DATA_VA:#x}"),
        (lambda c: c.va(0, DATA_VA, flags=0x10), f"at {DATA_VA:#x}"),
    ],
)
def test_what_is_left_behind_is_named(leave: object, what: str) -> None:
    machine = Machine()
    card = Card(machine)
    assert callable(leave)
    leave(card)
    card.process.close(card.fd)
    (finding,) = machine.findings
    assert finding.kind == "leak"
    assert what in finding.text
    assert sum(machine.gpus[0].used.values()) == 0
    with pytest.raises(EmulatorFinding, match="leak"):
        machine.close()


def test_a_process_that_ends_closes_its_files() -> None:
    machine = Machine(strict=False)
    card = Card(machine).prepare()
    card.submit(nop(8))
    machine.close()
    kinds = [finding.kind for finding in machine.findings]
    assert kinds.count("leak") == 4  # the descriptor, what it held, two maps


def test_a_forked_child_is_refused_and_told_why(ready: Card) -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            ready.call(requests.DRM_GET_CAP, drm.DrmGetCap(capability=1))
            answer = "accepted"
        except CallRefused as error:
            answer = f"{errno.errorcode[error.errno or 0]} {error.why}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer.startswith("EBADF")
    assert "forked child" in answer
    assert ready.wait(ready.submit(nop(8))) == 0  # the parent goes on


DRM_CALLS = [request for request in REQUESTS if request.type == ord("d")]


@pytest.mark.parametrize("request_", DRM_CALLS, ids=lambda request: request.name)
def test_every_call_can_be_made_to_fail(card: Card, machine: Machine, request_: requests.Ioctl) -> None:
    assert request_.name in CALLS
    fault = machine.inject(request_.name, errno.ENOSPC)
    with pytest.raises(OSError) as refused:
        card.call(request_, request_.argument())
    assert (refused.value.errno, fault.seen) == (errno.ENOSPC, 1)


@pytest.mark.parametrize("request_", DRM_CALLS, ids=lambda request: request.name)
def test_a_device_that_is_gone(card: Card, request_: requests.Ioctl) -> None:
    card.file.gpu.lost = True
    with pytest.raises(OSError) as refused:
        card.call(request_, request_.argument())
    assert refused.value.errno == errno.ENODEV
    card.file.gpu.lost = False


@pytest.mark.parametrize("request_", DRM_CALLS, ids=lambda request: request.name)
def test_an_argument_of_zeros_is_answered(card: Card, request_: requests.Ioctl) -> None:
    """By success or an errno, never by anything else."""
    answers = [0]
    try:
        card.call(request_, request_.argument())
    except OSError as error:
        answers.append(error.errno or -1)
    assert answers[-1] in {0, 524, *errno.errorcode}


def test_two_processes_have_their_own_handles_and_addresses(machine: Machine, card: Card) -> None:
    other = Card(machine)
    mine, theirs = card.create(flags=ALWAYS_VALID), other.create(8192)
    assert (mine, theirs) == (1, 1)
    card.va(mine, DATA_VA)
    other.va(theirs, DATA_VA, 8192)
    assert [len(list(file.vm)) for file in (card.file, other.file)] == [1, 1]
    other.close_gem(theirs)
    assert card.file.vm.at(DATA_VA) is not None
    other.close()
