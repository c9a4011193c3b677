"""The speed of the emulated shader core: lane-instructions per second on a dispatch of 256 waves.

python benchmarks/shader_core.py
"""

# The names of the language all at once; annotations may name a kernel's constants.
# ruff: noqa: F403, F405

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from amdgpu_emu.core.counters import Counters
from tests.amdgpu_emu.core.stage import Stage
from tests.lang import gpu_kernels as g
from zinc_rt.lang import *
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu import gpu_kernel

WAVES = 256
RUNS = 9


@kernel
def integers(x: ptr[u32], n: u32):
    """Shifts, logic and sums in a loop."""
    at = workgroup_id(0) * 32 + lane_id()
    v = x[at]
    w = v ^ 5
    for i in range(n):
        v = (v << 3) + (w ^ i)
        w = (w >> 1) | (v & 255)
        v = v + w * 7
    x[at] = v + w


@kernel
def floats(x: ptr[f32], n: u32):
    """Products, sums and fused steps in a loop."""
    at = workgroup_id(0) * 32 + lane_id()
    v = x[at]
    total: f32 = 0.0
    for _i in range(n):
        total = fma(v, total, v)
        v = v * f32(0.99) + total * f32(0.001)
    x[at] = v + total


def measured(name: str, spec: Spec, *arguments: Any, stage: Stage, groups: int = WAVES) -> None:
    """The median of some runs of the same code: its instructions are compiled when they are reached first."""
    made = gpu_kernel(spec, "gfx1201")
    address = stage.code(made.code[: made.size])

    def run() -> Counters:
        return stage.dispatch(
            address,
            (groups, 1, 1),
            (made.workgroup, 1, 1),
            made.user_data(*arguments),
            rsrc1=made.rsrc1,
            n_user=made.dwords,
            lds=made.lds_bytes,
            scratch=made.scratch_bytes,
        )

    counters, times = run(), []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    rate = counters.wave_instructions * 32 / seconds / 1e6
    print(
        f"{name:14} {counters.wave_instructions:9} wave instructions {seconds * 1e3:8.1f} ms {rate:8.1f} M lane-instr/s"
    )


def main() -> None:
    """Print a line per kernel."""
    rng = np.random.default_rng(1)
    stage = Stage()
    words = stage.buffer(rng.integers(0, 2**32, WAVES * 32, np.uint32))
    measured("integers", Spec(integers), words, 200, stage=stage)
    numbers = stage.buffer(rng.normal(size=WAVES * 32).astype(np.float32))
    measured("floats", Spec(floats), numbers, 200, stage=stage)
    blocks = 1024
    rows = WAVES
    w = stage.buffer(rng.integers(0, 60, (rows, blocks, 34)).astype(np.uint8))
    xq = stage.buffer(rng.integers(-127, 128, (blocks, 32)).astype(np.int8))
    xd, y = stage.buffer(rng.normal(size=blocks).astype(np.float32)), stage.buffer(4 * rows)
    measured("q8_0_matvec", Spec(g.q8_0_matvec), w, xq, xd, y, blocks, stage=stage)
    w4 = stage.buffer(rng.integers(0, 60, (rows, blocks, 18)).astype(np.uint8))
    measured("q4_0_matvec", Spec(g.q4_0_matvec), w4, xq, xd, y, blocks, stage=stage)
    x = stage.buffer(rng.normal(size=(rows, 1024)).astype(np.float32))
    z = stage.buffer(4 * rows * 1024)
    gain = stage.buffer(np.ones(1024, np.float32))
    measured("rms_norm", Spec(g.rms_norm), x, gain, z, 1024, 1e-5, stage=stage)
    measured("workgroup_sum", Spec(g.workgroup_sum), x, y, 1024, stage=stage, groups=WAVES // 8)


if __name__ == "__main__":
    main()
