"""Machine code on an emulated GPU, with its predicted cost: `zinc emu profile examples/gpu_kernel.py`.

A matrix of Q8_0 times a vector: a kernel quantises the vector, another one multiplies.
"""

from __future__ import annotations

import numpy as np

from amdgpu_emu.machine import Machine
from amdgpu_emu.process import Process
from amdgpu_emu.profiler import Profiler
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.lang.gpu import gpu_kernel

ROWS, COLUMNS = 64, 1024
GROUPS = COLUMNS // 32


def main(machine: Machine, linux: Process) -> None:
    """Run both kernels and print the first products."""
    rng = np.random.default_rng(7)
    blocks = np.zeros((ROWS, GROUPS), np.dtype([("scale", "<f2"), ("weights", "i1", 32)]))
    blocks["scale"], blocks["weights"] = 0.01, rng.integers(-127, 128, (ROWS, GROUPS, 32))
    vector = rng.standard_normal(COLUMNS).astype(np.float32)
    with GpuQueue(CsInterface(linux=linux)) as queue:
        programs = {name: queue.load_kernel(gpu_kernel(KERNELS[name].spec)) for name in ("quantize", "matvec_q8_0")}
        if isinstance(machine.shader, Profiler):
            machine.shader.names.update({program.va: name for name, program in programs.items()})
        w, x, y = queue.alloc(blocks.nbytes), queue.alloc(vector.nbytes), queue.alloc(4 * ROWS)
        q, d, s = queue.alloc(COLUMNS), queue.alloc(4 * GROUPS), queue.alloc(4 * GROUPS)
        queue.write(w, blocks)
        queue.write(x, vector)
        batch = CommandList("product").dispatch(programs["quantize"], 1, x, q, d, s, COLUMNS).barrier()
        batch.dispatch(programs["matvec_q8_0"], ROWS // 4, w, q, d, s, y, GROUPS, ROWS)
        queue.wait(queue.submit(batch))
        print(np.frombuffer(queue.read(y), np.float32)[:4])
