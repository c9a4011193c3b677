"""The share of the bandwidth that products reach, by the distance at which weights are prefetched.

    python benchmarks/prefetch.py [--isa avx2] [--rows 1] [--kinds Q8_0,Q4_K] [--distances 0,8192,8192:2] [--mb 256]

The distances take turns with reading the same number of bytes, so a machine that slows down slows all of them. 0: the
processor reads ahead by itself. 8192:2 asks for weights into the second-level cache, where --rows are several.
`zinc_rt/backends/cpu/choice.py` has the distances that are used.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

from zinc_rt.backends.cpu.bandwidth import read_bandwidth
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.program import Runner
from zinc_rt.backends.cpu.selftest import ProductTrial
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu import layout
from zinc_rt.kernels.cpu.tiles import Ahead
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target


def main() -> None:
    """Print a line for each format: the bandwidth, then median, least and greatest share by distance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", help="instruction-set level; default: the best of this machine")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kinds", default="Q8_0,Q4_0,Q4_K,Q6_K,IQ3_S,Q2_0")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--distances", default="0,2048,8192,16384")
    parser.add_argument("--mb", type=int, default=256, help="10^6 bytes of weights, more than any cache holds")
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    library = Library(host_target(options.isa))
    runner = Runner(library, options.threads)
    for name in options.kinds.split(","):
        kind = GGMLType[name]
        n_out = options.mb * 10**6 // layout.tile_bytes(kind, options.columns) * layout.TILE_ROWS
        n_bytes = layout.matrix_bytes(kind, n_out, options.columns)
        trial = ProductTrial(library, kind, n_out, options.columns, options.rows, threads=options.threads)
        programs = {}
        for distance in options.distances.split(","):
            number, _, level = distance.partition(":")
            ahead = Ahead(int(number), int(number), 1024 if int(number) > 1024 else 0, level == "2")
            tuning = replace(TargetTuning.of(library.target), ahead=ahead)
            programs[distance], _ = trial.program(tuning, options.rows)
            trial.runner.run(programs[distance])
        reads: list[float] = []
        shares: dict[str, list[float]] = {distance: [] for distance in programs}
        for _ in range(options.rounds):
            reads.append(read_bandwidth(n_bytes, library, runner))
            for distance, program in programs.items():
                begin = time.perf_counter()
                trial.runner.run(program)
                shares[distance].append(n_bytes / (time.perf_counter() - begin) / 1e9 / reads[-1])
        trial.runner.close()
        words = (f"{d}: {statistics.median(s):.0%} ({min(s):.0%} to {max(s):.0%})" for d, s in shares.items())
        print(f"{name:8} {statistics.median(reads):5.1f} GB/s; {', '.join(words)}", flush=True)
    runner.close()


if __name__ == "__main__":
    main()
