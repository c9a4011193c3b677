"""Arguments that make no sense: every call answers with success or an errno, and the GPU goes on."""

from __future__ import annotations

import ctypes
import errno
import random

import pytest

from amdgpu_emu.abi.requests import REQUESTS, Ioctl
from amdgpu_emu.drm import syncobj_ioctls
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import PROFILES, KernelProfile
from tests.amdgpu_emu.drm.card import BAD_POINTER, Card, nop

ROUNDS = 200
DRM_CALLS = [request for request in REQUESTS if request.type == ord("d")]
WORDS = (0, 0, 0, 1, 1, 2, 3, 4, 5, 8, 64, 4096, 0xFFFFFFFF, 1 << 31, BAD_POINTER)


def nonsense(random_: random.Random, size: int, pointers: tuple[int, ...]) -> bytes:
    """Small numbers, pages, all ones and now and then a pointer that is good."""
    data = b""
    while len(data) < size:
        if random_.random() < 0.3 and len(data) % 8 == 0:
            data += random_.choice((*pointers, 0, 1 << 32, 1 << 63, (1 << 64) - 1)).to_bytes(8, "little")
        else:
            data += random_.choice(WORDS).to_bytes(4, "little")
    return data[:size]


@pytest.mark.parametrize("kernel", PROFILES.values(), ids=lambda kernel: kernel.name)
def test_nonsense_is_answered(kernel: KernelProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncobj_ioctls, "WAIT_FOR_SUBMIT_NS", 1000)
    random_ = random.Random(kernel.name)
    machine = Machine(kernel, time_scale=0.001, strict=False)
    card = Card(machine).prepare()
    room = ctypes.create_string_buffer(nonsense(random_, 65536, ()), 65536)
    pointers = (ctypes.addressof(room), ctypes.addressof(room) + 4096)
    answers: dict[str, set[int]] = {}
    for _ in range(ROUNDS):
        for request in DRM_CALLS:
            answers.setdefault(request.name, set()).add(_call(card, request, nonsense(random_, request.size, pointers)))
    unknown = {
        (name, code) for name, codes in answers.items() for code in codes if code not in (0, 524, *errno.errorcode)
    }
    assert unknown == set()
    assert sum(0 in codes for codes in answers.values()) > len(DRM_CALLS) // 3  # it is not all refused
    new = Card(machine).prepare()
    assert new.wait(new.submit(nop(8))) == 0
    machine.close()


def _call(card: Card, request: Ioctl, data: bytes) -> int:
    argument = request.argument.from_buffer_copy(data)
    try:
        card.call(request, argument)
    except OSError as error:
        return error.errno or -1
    return 0
