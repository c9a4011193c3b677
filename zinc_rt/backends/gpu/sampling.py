"""Memory for sampling at the end of a step: parameters that the host writes for each token, and its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.gpu.device import DeviceMemory, GpuDevice
from zinc_rt.backends.gpu.memory import Uploader
from zinc_rt.kernels.gpu.sampling_plan import INPUTS, OUTPUTS, ROW, TOUCHED, SamplingPlan, SamplingShape
from zinc_rt.sampling.gpu import DeviceSampled, write_requests
from zinc_rt.sampling.request import SamplingRequest

_PER_BATCH = ("logits", "args")
"""Where they lie depends on the step's shape."""
_TO_HOST = ("rows", "touched")


@dataclass(eq=False)
class GpuSampling:
    """host: what the processor reads and writes, by the plan's names: `rows` and `touched` before a step, `tokens` and
    `status` after it. addresses: on the GPU, by the plan's names; moves: what a step begins with, (from, to, bytes);
        inside: the plan of the same within a resident program, None where it has none.
    """

    plan: SamplingPlan
    inside: SamplingPlan | None = None
    host: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    moves: list[tuple[int, int, int]] = field(default_factory=list)
    held: list[DeviceMemory] = field(default_factory=list)

    @property
    def rows(self) -> npt.NDArray[Any]:
        """ROW[rows]."""
        return self.host["rows"]

    @property
    def touched(self) -> npt.NDArray[Any]:
        """TOUCHED[rows, n]."""
        return self.host["touched"].reshape(self.plan.rows, -1)

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        """i32[rows]."""
        return self.host["tokens"]

    @property
    def status(self) -> npt.NDArray[np.uint32]:
        """u32[rows]."""
        return self.host["status"]

    @property
    def shape(self) -> SamplingShape:
        """What rows may ask for."""
        return self.plan.shape

    def write(self, requests: Sequence[SamplingRequest]) -> None:
        """See `DeviceSampling.write`."""
        write_requests(self, requests)

    def sampled(
        self,
        requests: Sequence[SamplingRequest],
        logits: npt.NDArray[np.float32],
        likeliest: npt.NDArray[np.int32],
        fetch: Callable[[], None],
    ) -> DeviceSampled:
        """See `DeviceSampling.sampled`."""
        return DeviceSampled(requests, logits, self, fetch)


def make_sampling(
    backend: GpuDevice,
    up: Uploader,
    plan: SamplingPlan,
    table: npt.NDArray[np.uint64],
    inside: SamplingPlan | None = None,
) -> GpuSampling:
    """Memory for a plan, and for the one inside a resident program. table: `sampling.gpu.exp_table()`.

    Raises `InterfaceError` when there is too little.
    """
    out = GpuSampling(plan, inside)
    try:
        for name, (dtype, n) in _memory(plan, inside).items():
            if name in _PER_BATCH:
                continue
            size = dtype.itemsize * n
            if name in (*_TO_HOST, *OUTPUTS):
                there = backend.alloc(
                    size, heap="gtt", use="reads" if name in OUTPUTS else "writes", label=f"sampling: {name}"
                )
                out.held.append(there)
                out.host[name] = backend.map(there)[:size].view(dtype)
                out.host[name].view(np.uint8)[:] = 0
                out.addresses[name] = there.va
            if name not in OUTPUTS:
                own = up.room(size, f"sampling: {name}")
                out.held.append(own)
                if name in _TO_HOST:
                    out.moves.append((out.addresses[name], own.va, size))
                out.addresses[name] = own.va
                if name == "table":
                    up.put(own, table)
    except BaseException:
        for piece in out.held:
            backend.free(piece)
        raise
    return out


def _memory(plan: SamplingPlan, inside: SamplingPlan | None) -> dict[str, tuple[np.dtype[Any], int]]:
    """What both take, by name."""
    found = dict(plan.memory)
    for name, (dtype, n) in inside.memory.items() if inside is not None else ():
        found[name] = dtype, max(n, found.get(name, (dtype, 0))[1])
    return found


assert {*_TO_HOST, "logits", "table"} == set(INPUTS)
assert (ROW.itemsize % 4, TOUCHED.itemsize % 4) == (0, 0), "moved as dwords"
