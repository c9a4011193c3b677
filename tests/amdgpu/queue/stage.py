"""Rings over each interface on emulated machines, and kernels in Python that stand in for machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from amdgpu_emu.machine import Machine
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import LINUX_7_3_USERQ
from amdgpu_emu.shader import Dispatch, RecordingShader
from amdgpu_emu.shader_memory import ShaderMemory
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.interface import Interface
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.amdgpu.umq.interface import UserQueueInterface
from zinc_rt.utils.linux import Linux

NODE = "/dev/dri/renderD128"
INTERFACES: dict[str, Callable[..., Interface]] = {"cs": CsInterface, "kfd": KfdInterface, "umq": UserQueueInterface}
Body = Callable[[Dispatch, ShaderMemory], None]


def machine(**how: Any) -> Machine:
    """A kernel that has all three interfaces; a hang is noticed a hundred times sooner."""
    return Machine(**{"profile": LINUX_7_3_USERQ, "time_scale": 0.01, **how})


def opened(interface: str, linux: Linux, **how: Any) -> GpuQueue:
    """A queue over the interface of that name."""
    return GpuQueue(INTERFACES[interface](NODE, linux=linux), **how)


@contextmanager
def queue_of(
    interface: str, machine_how: dict[str, Any] | None = None, **how: Any
) -> Iterator[tuple[GpuQueue, Process]]:
    """A queue on a machine of its own; books that do not add up and leaks raise at the end."""
    with machine(**(machine_how or {})) as made:
        linux = made.process()
        with opened(interface, linux, **how) as queue:
            yield queue, linux
            queue.check_integrity()


def install(queue: GpuQueue, linux: Process, name: str, body: Body, n_user_data: int = 5) -> LoadedKernel:
    """A program whose work is done by a Python function."""
    code = name.encode().ljust(64, b"\0")
    program = queue.load_code(
        name, code, rsrc1=0xC00F0001, rsrc2=n_user_data << 1, threads=(32, 1, 1), n_user_data=n_user_data
    )
    shader = linux.machine.shader
    assert isinstance(shader, RecordingShader)
    shader.add(program.va, body, wave32=True)
    return program


def u64(low: int, high: int) -> int:
    """An address of two registers."""
    return low | high << 32


def words_of(memory: ShaderMemory, va: int, n: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """u32[n] as the waves see them."""
    return memory.read(va, 4 * n).view(np.uint32).copy()


def affine(dispatch: Dispatch, memory: ShaderMemory) -> None:
    """y[i] = x[i] * 3 + 1 for 32 dwords per group; user data: x (2), y (2), first group."""
    data = dispatch.user_data
    n, first = 32 * dispatch.groups[0], 32 * data[4]
    x = words_of(memory, u64(data[0], data[1]) + 4 * first, n)
    memory.write(u64(data[2], data[3]) + 4 * first, (x * np.uint32(3) + np.uint32(1)).astype(np.uint32).view(np.uint8))


def pointers(*addresses: int) -> tuple[int, ...]:
    """User data of addresses."""
    return tuple(half for va in addresses for half in (va & 0xFFFFFFFF, va >> 32))
