"""A dispatch on an emulated GPU: `zinc emu run examples/emulated_gpu.py`.

The example has no machine code: a Python function replaces the kernel, with the memory as shaders see it.
"""

from __future__ import annotations

import numpy as np

from amdgpu_emu.machine import Machine
from amdgpu_emu.process import Process
from amdgpu_emu.shader import Dispatch, RecordingShader
from amdgpu_emu.shader_memory import ShaderMemory
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.queue import GpuQueue

N = 1024


def double(dispatch: Dispatch, memory: ShaderMemory) -> None:
    """Double every u32 of the buffer whose address is in the first two words of user data."""
    address = dispatch.user_data[0] | dispatch.user_data[1] << 32
    values = memory.read(address, 4 * N).view(np.uint32)
    memory.write(address, (values * 2).tobytes())


def main(machine: Machine, linux: Process) -> None:
    """Run two dispatches with a barrier between; without it, the second would not see the writes of the first."""
    with GpuQueue(CsInterface(linux=linux)) as queue:
        program = queue.load_code(
            "double", bytes(64), rsrc1=0xC00F0001, rsrc2=2 << 1, threads=(32, 1, 1), n_user_data=2
        )
        assert isinstance(machine.shader, RecordingShader)
        machine.shader.add(program.va, double)
        buffer = queue.alloc(4 * N)
        queue.write(buffer, np.arange(N, dtype=np.uint32))
        words = (buffer.va & 0xFFFFFFFF, buffer.va >> 32)
        batch = (
            CommandList("twice").dispatch(program, 1, user_data=words).barrier().dispatch(program, 1, user_data=words)
        )
        queue.wait(queue.submit(batch))
        print(np.frombuffer(queue.read(buffer), np.uint32)[:5])
