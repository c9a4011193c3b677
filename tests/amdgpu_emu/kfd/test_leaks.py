"""What a process still holds at its end is found, named, and taken back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amdgpu_emu.abi import requests as r
from amdgpu_emu.errors import EmulatorFinding
from amdgpu_emu.machine import Machine
from tests.amdgpu_emu.kfd.stage import DATA, PAGE, SIGNAL, Stage


def nothing(stage: Stage) -> None:
    """Leave nothing behind."""


def buffer(stage: Stage) -> None:
    stage.handles.remove(stage.alloc(DATA, PAGE).handle)


def mapped_buffer(stage: Stage) -> None:
    stage.handles.remove(stage.buffer(DATA, PAGE))


def event(stage: Stage) -> None:
    stage.events.remove(stage.event(SIGNAL).event_id)


def queue(stage: Stage) -> None:
    stage.queue_buffers()
    stage.queues.remove(stage.create_queue().queue_id)
    stage.handles.clear()


def doorbell_map(stage: Stage) -> None:
    stage.mmap(stage.kfd, 8192, 3 << 62 | stage.gpu_id << 46)
    stage.maps.clear()


def descriptor(stage: Stage) -> None:
    stage.fds.remove(stage.kfd)


def smi_file(stage: Stage) -> None:
    stage.call(r.KFD_SMI_EVENTS, gpuid=stage.gpu_id)


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (nothing, []),
        (buffer, ["buffer for 0x100300000, 4096 bytes, was not freed"]),
        (mapped_buffer, ["was not freed, mapped at 0x100300000"]),
        (event, ["event 0x1 was not destroyed"]),
        (queue, ["queue 0 on GPU", *["was not freed"] * 4]),
        (doorbell_map, ["map of doorbells"]),
        (descriptor, ["/dev/kfd was not closed"]),
        (smi_file, ["SMI events was not closed"]),
    ],
    ids=lambda x: x.__name__ if callable(x) else "",
)
def test_leaks(leave: Callable[[Stage], None], words: list[str]) -> None:
    machine = Machine(time_scale=0.01, strict=False)
    stage = Stage(machine)
    leave(stage)
    stage.close()
    machine.close()
    assert {finding.kind for finding in machine.findings} <= {"leak"}
    texts = [finding.text for finding in machine.findings]
    assert len(texts) == len(words)
    for text, word in zip(texts, words, strict=True):
        assert word in text
    assert all(not used for used in machine.gpus[0].used.values()), "all pages were given back"


def test_a_strict_machine_raises() -> None:
    machine = Machine(time_scale=0.01)
    stage = Stage(machine)
    buffer(stage)
    stage.close()
    with pytest.raises(EmulatorFinding, match="1 findings: leak: buffer for"):
        machine.close()


def test_the_event_page_is_no_leak() -> None:
    """The driver keeps it to the end: nobody could free it."""
    with Machine(time_scale=0.01) as machine:
        stage = Stage(machine)
        stage.event_page()
        stage.close()


def test_a_running_queue_ends_with_its_process() -> None:
    with Machine(time_scale=0.01, strict=False) as machine:
        stage = Stage(machine)
        stage.queue_buffers()
        stage.create_queue()
        stage.process.exit()
        assert not machine.gpus[0].busy()
        assert [f.kind for f in machine.findings].count("leak") == 1 + 4 + 2
