"""The cost of the matrix-vector kernels for RDNA GPUs: counts of the emulated shader core and a model of the card.

python benchmarks/rdna_kernels.py [KIND]... [--rows 4096] [--columns 4096] [--batch 1] [--run ROWS] [--gpu r9700]

All kinds by default. `--batch`: rows of activations, up to 8. `--run` rows are executed and their counts multiplied,
since all rows do the same. For each byte of the weights: distinct bytes that are read, activations included; bytes of
weights that waves ask for; all bytes that they ask for, of which the caches answer those of the activations.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from amdgpu_emu.caches import Caches
from amdgpu_emu.cost import predict
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.models import MODELS
from amdgpu_emu.profiler import Profiler
from amdgpu_emu.shader import Dispatch
from amdgpu_emu.shader_memory import ShaderMemory
from amdgpu_emu.vm import GpuVm, Mapping
from amdgpu_emu.work import Work
from zinc_rt.formats.table import FORMATS
from zinc_rt.kernels.gpu.catalogue import FLOATS, QUANTIZED, matvec_rows
from zinc_rt.lang.gpu import GpuKernel, gpu_kernel

PAGE = 4096
ROWS_OF_A_GROUP = 4


class Memory:
    """Buffers of a GPU, a page apart."""

    def __init__(self) -> None:
        self.vm, self.caches, self._next = GpuVm("benchmark"), Caches(), 0x1_0000_0000

    def put(self, data: np.ndarray) -> int:
        """Copy an array to the GPU; returns its address."""
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        size = -(-raw.size // PAGE) * PAGE
        bo = BufferObject(size, Placement.VRAM, "buffer", uncached=True)
        bo.bytes[: raw.size] = raw
        va, self._next = self._next, self._next + size + PAGE
        self.vm.insert(Mapping(va, size, bo, 0, True, True, True))
        return va


def row_bytes(kind: str, columns: int) -> int:
    """Bytes of a row of weights."""
    f = FORMATS[kind]
    return columns // f.block * f.block_bytes


def measured(kernel: GpuKernel, kind: str, rows: int, columns: int, batch: int = 1) -> tuple[Work, int]:
    """Counts of a dispatch over `rows` rows and `batch` rows of activations, and the bytes that all rows share."""
    rng, memory = np.random.default_rng(1), Memory()
    w = memory.put(rng.integers(0, 60, (rows, row_bytes(kind, columns)), np.uint8))
    y = memory.put(np.zeros(batch * rows, np.float32))
    if kind in FLOATS:
        values = (w, memory.put(rng.normal(size=batch * columns).astype(np.float32)), y, columns, rows)
    else:
        groups, n = columns // 32, batch * columns
        q, d = rng.integers(-127, 128, n).astype(np.int8), rng.normal(size=n // 32).astype(np.float32)
        s = q.reshape(-1, 2, 16).sum(axis=2).astype(np.int16)
        values = (w, memory.put(q), memory.put(d), memory.put(s), y, groups, rows)
    count, threads = rows // ROWS_OF_A_GROUP, kernel.workgroup
    words = kernel.user_data(*values)
    dispatch = Dispatch(
        memory.put(np.frombuffer(kernel.code, np.uint8)), (count, 1, 1), (threads, 1, 1), (count * threads, 1, 1),
        (0, 0, 0), kernel.wave == 32, (*words, *[0] * (16 - len(words))), kernel.rsrc1, kernel.rsrc2, kernel.rsrc3,
        kernel.lds_bytes, None, 1, (12, 0, 1),
    )  # fmt: skip
    core = Profiler()
    core.run(dispatch, ShaderMemory(memory.caches, memory.vm))
    work = core.records[0].work
    # Activations, without the sums of their halves where the format does not need them, and what it reads of a table.
    return work, work.unique_read - rows * row_bytes(kind, columns)


def main() -> None:
    """Print a line per kernel."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=[*QUANTIZED, *FLOATS])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=1, choices=range(1, 9))
    parser.add_argument("--run", type=int, default=256)
    parser.add_argument("--gpu", default="r9700", choices=list(MODELS))
    args = parser.parse_args()
    if args.run % ROWS_OF_A_GROUP or args.rows % args.run:
        parser.error(f"--run must be a multiple of {ROWS_OF_A_GROUP} and divide --rows")
    print(f"{args.rows} x {args.columns} on {MODELS[args.gpu].name}; {args.run} rows executed, counts scaled")
    titles = (
        f"{'kernel':12}{'code':>7}{'VGPRs':>7}{'waves/SIMD':>12}{'distinct':>10}{'weights':>9}{'all':>7}"
        f"{'us':>9}{'bandwidth':>11}  {'bound':8} parts in us"
    )
    print(titles)
    start = time.perf_counter()
    for kind in args.kinds:
        kernel = gpu_kernel(matvec_rows(kind, args.batch).spec)
        part, shared = measured(kernel, kind, args.run, args.columns, args.batch)
        work = part.scaled(args.rows // args.run, shared)
        cost = predict(work, MODELS[args.gpu])
        weights = args.rows * row_bytes(kind, args.columns)
        own = (work.bytes_read - args.rows * shared) / weights
        parts = " ".join(f"{name} {seconds * 1e6:.2f}" for name, seconds in cost.parts.items())
        line = (
            f"{kind:12}{kernel.size:7}{kernel.vgprs:7}{work.occupancy:12}{work.unique_read / weights:10.4f}{own:9.4f}"
            f"{work.bytes_read / weights:7.2f}{cost.seconds * 1e6:9.2f}{cost.bandwidth:11.1%}  {cost.bound:8} {parts}"
        )
        print(line)
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
