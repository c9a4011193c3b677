"""Refusals of user queues."""

from __future__ import annotations

import ctypes
import errno as e
from collections.abc import Callable
from typing import Any

from amdgpu_emu import profiles as p
from amdgpu_emu.abi import requests, userq
from tests.amdgpu_emu.drm.card import (
    ALWAYS_VALID,
    BAD_POINTER,
    COMPUTE,
    DMA,
    DOORBELL,
    GTT,
    VRAM,
    Card,
)
from tests.amdgpu_emu.drm.refusal import ENOTSUPP, SINCE_6_16, SINCE_7, USER_QUEUES, R

QUEUE_VA, WPTR_VA, RPTR_VA, EOP_VA = (0x2_0000_0000 + 0x1_0000 * i for i in range(4))
QUEUE_BYTES = 0x4000


def queue_fields(c: Card) -> dict[str, int]:
    """A compute queue that is created."""
    for va, size, domains in (
        (QUEUE_VA, QUEUE_BYTES, GTT),
        (WPTR_VA, 4096, GTT),
        (RPTR_VA, 4096, VRAM),
        (EOP_VA, 4096, VRAM),
    ):
        c.va(c.create(size, domains, ALWAYS_VALID), va, size)
    mqd = userq.DrmAmdgpuUserqMqdComputeGfx11(EOP_VA)
    return {
        "op": 1, "ip_type": COMPUTE, "doorbell_handle": c.create(4096, DOORBELL), "doorbell_offset": 4,
        "queue_va": QUEUE_VA, "queue_size": QUEUE_BYTES, "wptr_va": WPTR_VA, "rptr_va": RPTR_VA,
        "mqd": c.address_of(mqd), "mqd_size": ctypes.sizeof(mqd),
    }  # fmt: skip


def _queue(change: Callable[[Card, dict[str, int]], None] | None = None, **fields: int) -> Callable[[Card], Any]:
    def call(c: Card) -> int:
        given = queue_fields(c) | fields
        if change is not None:
            change(c, given)
        return c.userq(**given)

    return call


def _bare(**fields: int) -> Callable[[Card], Any]:
    return lambda c: c.userq(**{"op": 1, "ip_type": COMPUTE, **fields})


def _gtt_doorbell(c: Card, given: dict[str, int]) -> None:
    given["doorbell_handle"] = c.create()


def _large_wptr(c: Card, given: dict[str, int]) -> None:
    c.va(c.create(8192), given["wptr_va"] + 0x8000, 8192)
    given["wptr_va"] += 0x8000


def _eop_elsewhere(c: Card, given: dict[str, int]) -> None:
    given["mqd"] = c.address_of(userq.DrmAmdgpuUserqMqdComputeGfx11(0x5_0000_0000))


_OLD_QUEUES = p.KernelProfile("6.17-userq", "6.17.0", (6, 17), 64, 18, 10.0, 1)
_ODD_QUEUES = p.KernelProfile("6.18-userq", "6.18.0", (6, 18), 64, 18, 10.0, 1)
OLD, QUEUES = (_OLD_QUEUES,), (_OLD_QUEUES, _ODD_QUEUES, *USER_QUEUES)
LATER = (_ODD_QUEUES, *USER_QUEUES)
QUIET = (p.LINUX_6_17,)


def _signal(**fields: int) -> Callable[[Card], Any]:
    return lambda c: c.call(
        requests.AMDGPU_USERQ_SIGNAL,
        userq.DrmAmdgpuUserqSignal(
            **{
                "queue_id": c.userq(**queue_fields(c)),
                "syncobj_handles": c.array("I", [9]),
                "bo_read_handles": c.array("I", [99]),
                **fields,
            }
        ),
    )


def _wait(**fields: int) -> Callable[[Card], Any]:
    def call(c: Card) -> None:
        sync = c.syncobj(1)
        args = userq.DrmAmdgpuUserqWait(
            **{
                "waitq_id": c.userq(**queue_fields(c)),
                "syncobj_handles": c.array("I", [sync, sync]),
                "num_syncobj_handles": 2,
                "num_fences": 2,
                "out_fences": c.array("Q", [0] * 4),
                **fields,
            }
        )
        c.call(requests.AMDGPU_USERQ_WAIT, args)

    return call


USERQ = [
    R("5.op", "3", e.EINVAL, _bare(op=3), (*QUIET, *QUEUES)),
    R("5.op", "without user queues", ENOTSUPP, _bare(op=3), SINCE_7),
    R("5.flags", "bit 3", e.EINVAL, _bare(flags=8), (*QUIET, *QUEUES)),
    R("5.free-fields", "ip_type", e.EINVAL, _bare(op=2), (*QUIET, *QUEUES)),
    R("5.free-fields", "mqd", e.EINVAL, _bare(op=2, ip_type=0, mqd=1), QUEUES),
    R("5.free-unknown", "queue 9", e.EINVAL, _bare(op=2, ip_type=0, queue_id=9), (*QUIET, _OLD_QUEUES)),
    R("5.free-unknown", "queue 9", e.ENOENT, _bare(op=2, ip_type=0, queue_id=9), USER_QUEUES),
    R("5.ip", "video", e.EINVAL, _bare(ip_type=7), (*QUIET, *QUEUES)),
    R("5.priority", "high", e.EACCES, _queue(flags=3), QUEUES),
    R("5.priority", "high, before the rest", e.EACCES, _bare(flags=3), QUIET),
    R("5.priority", "normal high", 0, _queue(flags=2), QUEUES),
    R("5.secure", "copies", e.EINVAL, _queue(flags=4, ip_type=DMA), QUEUES),
    R("5.unsupported", "compute", e.EINVAL, _bare(), QUIET),
    R("5.unsupported", "compute", ENOTSUPP, _bare(), SINCE_7),
    R("5.doorbell", "handle 99", e.EINVAL, _queue(doorbell_handle=99), QUEUES),
    R("5.doorbell-range", "system memory", e.EINVAL, _queue(_gtt_doorbell), QUEUES),
    R("5.doorbell-range", "offset 512", e.EINVAL, _queue(doorbell_offset=512), USER_QUEUES),
    R("5.doorbell-range", "offset 512", e.EINVAL, _queue(doorbell_offset=512), OLD, findings=("doorbell-outside",)),
    R("5.doorbell-range", "offset 511", 0, _queue(doorbell_offset=511), QUEUES),
    *(R("5.pointers", name, e.EINVAL, _queue(None, **{name: 0}), QUEUES)
      for name in ("queue_va", "queue_size", "wptr_va", "rptr_va")),
    R("5.mqd-size", "16", e.EINVAL, _queue(mqd_size=16), QUEUES),
    R("5.mqd-size", "null", e.EINVAL, _queue(mqd=0), QUEUES),
    R("5.mqd-read", "bad pointer", e.ENOMEM, _queue(mqd=BAD_POINTER), OLD),
    R("5.mqd-read", "bad pointer", e.EFAULT, _queue(mqd=BAD_POINTER), USER_QUEUES),
    R("5.wptr", "not mapped", e.EINVAL, _queue(wptr_va=0x6_0000_0000), QUEUES),
    R("5.wptr", "in two pages", e.EINVAL, _queue(_large_wptr), QUEUES),
    R("5.ring-mapped", "ring", e.EINVAL, _queue(queue_va=0x6_0000_0000), LATER),
    R("5.ring-mapped", "ring", 0, _queue(queue_va=0x6_0000_0000), OLD),
    R("5.ring-mapped", "longer ring", e.EINVAL, _queue(queue_size=2 * QUEUE_BYTES), LATER),
    R("5.ring-mapped", "read pointer", e.EINVAL, _queue(rptr_va=0x6_0000_0000), LATER),
    R("5.ring-mapped", "EOP", e.EINVAL, _queue(_eop_elsewhere), LATER),
    R("5.ring-mapped", "EOP", 0, _queue(_eop_elsewhere), OLD),
    R("5.all-ones", "ring", e.EINVAL, _queue(queue_va=(1 << 64) - 1), LATER),
    R("5.ring-size", "not a power of two", e.EINVAL, _queue(queue_size=0x3000), USER_QUEUES),
    R("5.ring-size", "not a power of two", 0, _queue(queue_size=0x3000), (_OLD_QUEUES, _ODD_QUEUES)),
    R("5.ring-size", "2048", e.EINVAL, _queue(queue_size=2048), USER_QUEUES),
    R("5.pointer-align", "write pointer", e.EINVAL, _queue(wptr_va=WPTR_VA + 4), USER_QUEUES),
    R("5.pointer-align", "read pointer", e.EINVAL, _queue(rptr_va=RPTR_VA + 4), USER_QUEUES),
    R("5.signal", "sync object", e.ENOENT, _signal(num_syncobj_handles=1), USER_QUEUES),
    R("5.signal", "buffer", e.ENOENT, _signal(num_bo_read_handles=1), USER_QUEUES),
    R("5.signal", "queue", e.ENOENT, _signal(queue_id=9), USER_QUEUES),
    R("5.signal", "without user queues", ENOTSUPP,
      lambda c: c.call(requests.AMDGPU_USERQ_SIGNAL, userq.DrmAmdgpuUserqSignal()), SINCE_6_16),
    R("5.wait-small", "one of two", e.EINVAL, _wait(num_fences=1), USER_QUEUES),
    R("5.wait-small", "queue 9", e.EINVAL, _wait(waitq_id=9), USER_QUEUES),
    R("5.wait-small", "room for all", 0, _wait(), USER_QUEUES),
]  # fmt: skip
