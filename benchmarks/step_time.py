"""Python's share of a decode step: microseconds per step with the kernels left out, on the CPU and on a GPU.

    python benchmarks/step_time.py                                  # this tree
    python benchmarks/step_time.py --tree ../before --tree . --rounds 9   # several, taking turns

The bundled model is loaded for real. Then, on the CPU, the call that runs a step's native program is replaced by one
that does nothing. A GPU is an interface that keeps memory and packets in this process and calls every submission
finished. What remains is the interpreter's work: scheduling, checks, inputs, submission, sampling, text. Each round
runs every tree once, in a process of its own; the figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = 400


def microseconds(work: Callable[[int], object], steps: int) -> float:
    """Time of the processor, the best of five runs of `work(steps)`, per step."""
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        work(steps)
        best = min(best, time.process_time() - started)
    return 1e6 * best / steps


def first(*places: str) -> Any:
    """The first `module:name` that exists: trees of other ages call things otherwise."""
    import importlib

    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(" or ".join(places))


def stepper(engine: Any) -> Callable[[int], object]:
    """Decode steps of one sequence from position 0 on."""
    chunk = first("zinc_rt.engine.engine:SequenceChunk", "zinc_rt.engine.engine:Rows", "zinc_rt.engine:Rows")
    seq_id = engine.open_sequence()

    def steps(n: int) -> None:
        engine.truncate(seq_id, 0)
        for i in range(n):
            engine.step([chunk(seq_id, i, [5], (0,))])

    return steps


def on_cpu() -> dict[str, float]:
    """Steps of the engine, and whole tokens of a greedy text."""
    import zinc_rt

    runner = first("zinc_rt.backends.cpu.program:Runner", "zinc_rt.ring.native.program:Runner")
    with zinc_rt.load(tier="t_cpu", n_ctx=2 * STEPS + 8, threads=1) as model:
        model.generate("Once upon a time", max_tokens=8, temperature=0)
        real = runner.run
        runner.run = lambda self, program: None
        try:
            text = microseconds(lambda n: model.generate([5], max_tokens=n, temperature=0, ignore_eos=True), STEPS)
            model.engine.close_sequence(0)
            return {"cpu step": microseconds(stepper(model.engine), STEPS), "cpu token": text}
        finally:
            runner.run = real


def fake_interface() -> Any:
    """An interface whose submissions are finished as soon as they are made, but never run."""
    interface = first("zinc_rt.amdgpu.interface:Interface", "zinc_rt.ring.door.base:Door")
    buffer = first("zinc_rt.amdgpu.interface:DeviceBuffer", "zinc_rt.ring.door.base:DeviceBuffer")
    info = first("zinc_rt.amdgpu.interface:DeviceInfo", "zinc_rt.ring.door.base:DeviceFacts")
    from zinc_rt.utils.linux import host

    class Finished(interface):  # type: ignore[misc,valid-type]
        name = "fake"

        def __init__(self) -> None:
            self.linux = host()
            self.device = self.facts = info("/dev/dri/renderD128", 120001, 64, 1 << 35, 1 << 35, "no driver")
            self._live: dict[Any, object] = {}
            self._next, self._count = 0x1_0000_0000, 0

        def allocate(self, size: int, heap: Any, label: str, **how: Any) -> Any:
            memory = (ctypes.c_uint8 * size)()
            made = buffer(self._next, size, heap, ctypes.addressof(memory), len(self._live) + 1, label)
            self._next += size + 4096
            self._live[made] = memory
            if label == "signals":
                self._signal = ctypes.c_uint64.from_buffer(memory)
            return made

        def release(self, buffer: Any) -> None:
            del self._live[buffer]

        def submit(self, buffer: Any, offset: int, n_dwords: int) -> int:
            self._count += 1
            self._signal.value = self._count  # as the last packet does
            return self._count

        def retired(self) -> int:
            return self._count

        def wait(self, sequence: int, timeout: float) -> None:
            pass

        def close(self) -> None:
            pass

    return Finished()


def on_gpu() -> dict[str, float]:
    """Steps that bring logits back, and tokens that the GPU would choose, over a fake interface."""
    import importlib

    import zinc_rt
    from zinc_rt.engine import engine as engines

    backend = first("zinc_rt.backends.amdgpu.backend:AmdBackend", "zinc_rt.ring.gpu.ring:AmdRing")
    cache = first("zinc_rt.lang.cache:CompileCache")(first("zinc_rt.lang.cache:default_cache_dir")())
    device = getattr(engines, "Device", None)
    taken = device.gpu_kfd if device is not None else engines.Tier.t1_pm4
    name = "open_backend" if hasattr(engines, "open_backend") else "open_ring"  # replaced in this process alone
    setattr(engines, name, lambda *_, **__: (taken, backend(fake_interface(), cache=cache)))
    sampled = first("zinc_rt.sampling.sampler:Sampled", "zinc_rt.sampler:Sampled")
    accept = first("zinc_rt.sampling.gpu:accept", "zinc_rt.sampling_gpu:accept")

    def accepted(sampler: Any, *_: object) -> Any:
        sampler.step += 1
        return sampled(5)

    importlib.import_module(accept.__module__).accept = accepted  # no kernel has written a token
    with zinc_rt.load(tier="t1_pm4", n_ctx=2 * STEPS + 8) as model:
        text = microseconds(lambda n: model.generate([5], max_tokens=n, seed=1, ignore_eos=True), 200)
        model.engine.close_sequence(0)
        return {"gpu step": microseconds(stepper(model.engine), 200), "gpu token": text}


def measured(tree: Path) -> dict[str, float]:
    """The figures of a tree, from a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    command = [sys.executable, str(Path(__file__).resolve()), "--once"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tree)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print a table: a line a figure, a column a tree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, action="append", help="a checkout; may be repeated. Default: this one.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--once", action="store_true", help="measure the importable zinc_rt and print JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps({**on_cpu(), **on_gpu()}))
        return
    trees = options.tree or [Path(__file__).resolve().parents[1]]
    rounds = [[measured(tree) for tree in trees] for _ in range(options.rounds)]
    print(f"microseconds of Python, medians of {options.rounds} rounds")
    print(f"{'':<12}" + "".join(f"{tree.resolve().name:>14}" for tree in trees))
    for what in rounds[0][0]:
        values = (statistics.median(r[i][what] for r in rounds) for i in range(len(trees)))
        print(f"{what:<12}" + "".join(f"{value:>14.2f}" for value in values))


if __name__ == "__main__":
    main()
