"""The cost of a stolen core: decode steps while another process keeps a core busy that a worker needs.

    python benchmarks/stolen_core.py [--model FILE] [--steps 200] [--rounds 5]

Prints milliseconds a step (median of the rounds): one thread on a free core, all threads on free cores, all threads
while a busy loop is pinned to one of the cores, and while two are. A step waits for no thread, and others do again what
a late one had claimed of a product; so the last two should cost no more than one thread does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zinc_rt.engine.engine import Engine, Options, SequenceChunk
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define

_BURN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"


@contextmanager
def stolen(cpu: int, burners: int) -> Iterator[None]:
    """Run busy loops pinned to a processor."""
    started = [
        subprocess.Popen([sys.executable, "-c", _BURN, str(cpu)], stdout=subprocess.PIPE) for _ in range(burners)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def milliseconds(path: Path, threads: int, steps: int) -> float:
    """A decode step's time, mean over the steps behind 16 positions."""
    with GGUFFile.open(path) as file, Engine(Options(threads=threads, n_ctx=steps + 32)) as engine:
        engine.load(file, define(file))
        seq_id = engine.open_sequence()
        engine.step([SequenceChunk(seq_id, 0, [1] * 16)])
        start = time.perf_counter()
        for i in range(steps):
            engine.step([SequenceChunk(seq_id, 16 + i, [1], (0,))])
        return (time.perf_counter() - start) / steps * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--model", type=Path, default=built_in_model())
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise SystemExit("there is one processor: nothing can be stolen and anything be left")
    kinds = {"1 thread": (1, 0), f"{len(cpus)} threads": (len(cpus), 0)}
    kinds |= {f"{len(cpus)} threads, {n} busy loop{'s' * (n > 1)} on one core": (len(cpus), n) for n in (1, 2)}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(chosen.rounds):
        for name, (threads, burners) in kinds.items():
            with stolen(cpus[-1], burners):
                times[name].append(milliseconds(chosen.model, threads, chosen.steps))
    alone = statistics.median(times["1 thread"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:40} {middle:8.3f} ms a step  x {middle / alone:.2f}  ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
