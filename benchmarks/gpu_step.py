"""Python time of one submission of a recorded decode step: what our side of a GPU's step costs, without a driver.

    python benchmarks/gpu_step.py [--rounds 15] [--steps 300]

The interface below keeps packets in this process and retires them at once. A list of commands has the dispatches,
barriers and memory of a dense model's decode step: 16 dispatches and 11 barriers a layer. Each step is submitted and
waited for. The table shows the median and the least of the rounds, in microseconds a step.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time

from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.interface import DeviceBuffer, DeviceInfo, Heap, HostUse, Interface
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.utils.linux import host

LAYERS = (6, 28)
DISPATCHES, BARRIERS, WEIGHTS = 16, 11, 11  # of a layer
USER_DWORDS = 12


class NullInterface(Interface):
    """Memory of this process; a submission has retired when `submit` returns."""

    name = "null"

    def __init__(self) -> None:
        self.linux = host()
        self.device = DeviceInfo("/dev/dri/renderD128", 120001, 64, 1 << 35, 1 << 35, "no driver")
        self._memory: dict[DeviceBuffer, object] = {}
        self._next, self._submitted = 0x1_0000_0000, 0

    def allocate(
        self,
        size: int,
        heap: Heap,
        label: str,
        *,
        executable: bool = False,
        visible: bool = True,
        use: HostUse = "writes",
    ) -> DeviceBuffer:
        """See `Interface`."""
        memory = (ctypes.c_uint8 * size)()
        buffer = DeviceBuffer(self._next, size, heap, ctypes.addressof(memory), len(self._memory) + 1, label)
        self._next += size + 4096
        self._memory[buffer] = memory
        return buffer

    def release(self, buffer: DeviceBuffer) -> None:
        """See `Interface`."""
        del self._memory[buffer]

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        """See `Interface`."""
        self._submitted += 1
        return self._submitted

    def retired(self) -> int:
        """See `Interface`."""
        return self._submitted

    def wait(self, sequence: int, timeout: float) -> None:
        """See `Interface`."""

    def close(self) -> None:
        """See `Interface`."""


def step_of(queue: GpuQueue, n_layers: int) -> CommandList:
    """A decode step's dispatches and barriers, over memory of its own."""
    kernel = queue.load_code("kernel", bytes(256), rsrc1=0, rsrc2=0, threads=(256, 1, 1), n_user_data=USER_DWORDS)
    step = CommandList("step of 1 rows")
    step.memory += [queue.alloc(4096) for _ in range(WEIGHTS * n_layers)]
    for i in range(n_layers * DISPATCHES):
        step.dispatch(kernel, 64, user_data=range(i, i + USER_DWORDS))
        if i * BARRIERS // DISPATCHES != (i + 1) * BARRIERS // DISPATCHES:
            step.barrier(light=True)
    return step


def microseconds(n_layers: int, rounds: int, steps: int) -> list[float]:
    """Of one step, for each round."""
    with GpuQueue(NullInterface()) as queue:
        queue._signal[0] = 1 << 62  # what the GPU would write: all fences have retired
        step = step_of(queue, n_layers)
        queue.wait(queue.submit(step))
        found = []
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(steps):
                queue.wait(queue.submit(step))
            found.append((time.perf_counter() - start) / steps * 1e6)
        return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=300, help="of a round")
    chosen = parser.parse_args()
    for n_layers in LAYERS:
        found = microseconds(n_layers, chosen.rounds, chosen.steps)
        print(f"{n_layers:3} layers: {statistics.median(found):8.1f} us a step, at the least {min(found):.1f}")


if __name__ == "__main__":
    main()
