"""Machine code on an emulated GPU, and what it would cost: `zinc emu profile examples/gpu_kernel.py`.

A matrix of Q8_0 times a vector: a kernel quantises the vector, another one multiplies.
"""

from __future__ import annotations

import numpy as np

from zinc_rt.emu.machine import Machine
from zinc_rt.emu.process import Process
from zinc_rt.emu.profiler import Profiler
from zinc_rt.kernels.rdna.catalogue import KERNELS
from zinc_rt.lang.gpu import gpu_kernel
from zinc_rt.ring.cs.door import CsDoor
from zinc_rt.ring.door.batch import Batch
from zinc_rt.ring.door.gpu_ring import GpuRing

ROWS, COLUMNS = 64, 1024
GROUPS = COLUMNS // 32


def main(machine: Machine, linux: Process) -> None:
    """Prints the first products."""
    rng = np.random.default_rng(7)
    blocks = np.zeros((ROWS, GROUPS), np.dtype([("scale", "<f2"), ("weights", "i1", 32)]))
    blocks["scale"], blocks["weights"] = 0.01, rng.integers(-127, 128, (ROWS, GROUPS, 32))
    vector = rng.standard_normal(COLUMNS).astype(np.float32)
    with GpuRing(CsDoor(linux=linux)) as ring:
        programs = {name: ring.load_kernel(gpu_kernel(KERNELS[name].spec)) for name in ("quantize", "matvec_q8_0")}
        if isinstance(machine.shader, Profiler):
            machine.shader.names.update({program.va: name for name, program in programs.items()})
        w, x, y = ring.alloc(blocks.nbytes), ring.alloc(vector.nbytes), ring.alloc(4 * ROWS)
        q, d, s = ring.alloc(COLUMNS), ring.alloc(4 * GROUPS), ring.alloc(4 * GROUPS)
        ring.write(w, blocks)
        ring.write(x, vector)
        batch = Batch("product").dispatch(programs["quantize"], 1, x, q, d, s, COLUMNS).barrier()
        batch.dispatch(programs["matvec_q8_0"], ROWS // 4, w, q, d, s, y, GROUPS, ROWS)
        ring.wait(ring.submit(batch))
        print(np.frombuffer(ring.read(y), np.float32)[:4])
