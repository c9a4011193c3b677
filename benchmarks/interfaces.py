"""Submissions per second through each interface to an emulated GPU: what our side of a submission costs.

    python benchmarks/interfaces.py [--seconds 1.0] [--rounds 5] [--batch 16]

The emulator interprets the packets in Python and shares the processor with the driver code, so these are no figures of
any GPU. They compare interfaces with each other and versions of this code with earlier ones. Rounds alternate between
the interfaces; the table shows medians, with the range in brackets.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_7_3_USERQ
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.interface import Interface
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.amdgpu.umq.interface import UserQueueInterface

NODE = "/dev/dri/renderD128"
INTERFACES: dict[str, Callable[..., Interface]] = {"cs": CsInterface, "kfd": KfdInterface, "umq": UserQueueInterface}


def commands_of(queue: GpuQueue, n_dispatches: int) -> CommandList:
    """Dispatches of an empty kernel with a barrier after each, as a decode step has them."""
    kernel = queue.load_code("empty", bytes(4), rsrc1=0xC00F0000, rsrc2=2 << 1, threads=(32, 1, 1), n_user_data=2)
    commands = CommandList("benchmark")
    for i in range(n_dispatches):
        commands.dispatch(kernel, 1, user_data=(i, 0)).barrier()
    return commands


def submissions_per_second(queue: GpuQueue, commands: CommandList, seconds: float, *, depth: int) -> float:
    """Submissions retired in a second; depth: how many may be under way, 1 to wait for each."""
    fences = [queue.submit(commands)]
    queue.wait(fences.pop())
    n, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        fences.append(queue.submit(commands))
        n += 1
        if len(fences) >= depth:
            queue.wait(fences.pop(0))
    for fence in fences:
        queue.wait(fence)
    return n / (time.perf_counter() - start)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round of one interface and kind")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16, help="dispatches of the larger batch")
    chosen = parser.parse_args()
    kinds = {
        "empty, waited for": (0, 1),
        "empty, 8 under way": (0, 8),
        f"{chosen.batch} dispatches, waited for": (chosen.batch, 1),
        f"{chosen.batch} dispatches, 8 under way": (chosen.batch, 8),
    }
    rates: dict[tuple[str, str], list[float]] = {(interface, kind): [] for interface in INTERFACES for kind in kinds}
    with Machine(profile=LINUX_7_3_USERQ) as machine:
        queues = {name: GpuQueue(interface(NODE, linux=machine.process())) for name, interface in INTERFACES.items()}
        try:
            lists = {(name, n): commands_of(queue, n) for name, queue in queues.items() for n, _ in kinds.values()}
            for _ in range(chosen.rounds):
                for (name, kind), found in rates.items():
                    n, depth = kinds[kind]
                    found.append(submissions_per_second(queues[name], lists[name, n], chosen.seconds, depth=depth))
        finally:
            for queue in queues.values():
                queue.close()
    print("submissions per second, through " + " / ".join(INTERFACES))
    for kind in kinds:
        parts = [rates[interface, kind] for interface in INTERFACES]
        cells = [f"{statistics.median(p):7.0f} ({min(p):.0f} to {max(p):.0f})" for p in parts]
        print(f"{kind:32}" + "".join(f"{cell:>26}" for cell in cells))


if __name__ == "__main__":
    main()
