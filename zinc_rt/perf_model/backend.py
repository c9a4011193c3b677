"""`ForecastBackend`: the GPU backend on an emulated card that holds no weights, for what a step would take.

Graphs are lowered and their packets read as on the card. Weights and caches take addresses, but no memory: all of them
are 0. Of each kind of dispatch a few workgroups are executed, once, and counted; the counts are kept in the compile
cache. Results mean nothing.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import amdgpu_emu
from amdgpu_emu.constants import Interval, spread
from amdgpu_emu.cost import resident_seconds, step_seconds
from amdgpu_emu.models import GpuModel
from amdgpu_emu.profiler import DispatchRecord
from amdgpu_emu.residency import INFINITY, L2, MEMORY
from amdgpu_emu.sampler import DispatchKind, DispatchSampler
from amdgpu_emu.shader import Dispatch
from amdgpu_emu.shader_memory import ShaderMemory
from amdgpu_emu.work import SIMDS, Work
from zinc_rt.backends.amdgpu.emulated import EmulatedBackend, Idle, Prediction
from zinc_rt.backends.amdgpu.prefetch_resident import prefetch_ranges
from zinc_rt.backends.base import StepFence
from zinc_rt.backends.gpu.backend import SubmittedStep
from zinc_rt.backends.gpu.device import DeviceMemory
from zinc_rt.backends.gpu.memory import GraphMemory, Uploader
from zinc_rt.kernels.gpu.ahead import BYTES
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.kernels.gpu.expert_lists import TILE_WORDS
from zinc_rt.lang.amd import AmdKernel
from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.types import Ptr, Struct
from zinc_rt.mem.plan import kept_free

_WRITTEN: Final = 64 << 10
"""Bytes of an array that is written, at the most: more are weights and tables, on which no kernel's work depends."""
_ROOM: Final = 1 << 40
"""Bytes of addresses for a model."""
AHEAD: Final = DECODE["ahead"].spec.function.name
_POSITIONS: Final = "positions"
"""An argument of this name decides by its contents how much a kernel does."""
_TILES: Final = "tiles"
"""And one of this name how much a workgroup does, by its number in x."""


class ForecastBackend(EmulatedBackend):
    """As `EmulatedBackend`, without weights. A step computes nothing unless it is profiled."""

    def __init__(
        self, model: GpuModel, *, cache: CompileCache | None = None, notify: Callable[[str], None] | None = None
    ) -> None:
        self._notes = cache
        self._stored: set[str] = set()  # keys that lie in the cache
        self._positions = ""  # of the step under way
        self._ahead: dict[int, int] = {}  # bytes of each matrix, by address, that were brought into the L2
        self._matrices: list[int] = []  # addresses of what the graph under way holds
        self._card = model
        self._last: SubmittedStep | None = None
        # Places for what does not fit on the card, too.
        room: dict[str, Any] = {model.data_heap: max(model.memory, _ROOM)}
        super().__init__(replace(model, **room), cache=cache, notify=notify)
        self.machine.shader = Idle()
        self.resident.forecast = True

    @property
    def memory_available(self) -> int | None:
        """What the card has: only the part that stays free is used."""
        return self._card.memory - self.memory_kept_free

    @property
    def memory_kept_free(self) -> int:
        """Of the card."""
        return kept_free(self._card.memory)

    def _uploader(self) -> Uploader:
        return _Sparse(super()._uploader())

    def _submit(self, step: SubmittedStep) -> StepFence:
        if isinstance(self._profiler, DispatchSampler):
            batch, n_rows = step.graph, step.shape.n_rows
            positions = [] if batch.positions is None else batch.positions[:n_rows].tolist()
            self._positions = f"{n_rows}: {positions[:1]} {positions[-1:]}"
            share = n_rows / batch.limits[0]
            self._matrices = sorted(piece.va for piece in batch.recorded.memory.held)
            self._profiler.residency.held = _near(batch.recorded.memory, share, self.machine.gpus[0].model)
        self._last = step
        return super()._submit(step)

    def _measuring(self) -> DispatchSampler:
        return DispatchSampler([self.machine.gpus[0].model], self._key, self._note, self._busy)

    def finish_profile(self) -> Prediction:
        """What the dispatches since `start_profile` would take; their counts are kept."""
        sampler = self._profiler
        found = super().finish_profile()
        self.machine.shader = Idle()
        if self._notes is not None and isinstance(sampler, DispatchSampler):
            for key, work in sampler.known.items():
                if key not in self._stored:
                    self._notes.put_note(key, _tree(work))
                    self._stored.add(key)
        if found.steps != 1 or not isinstance(sampler, DispatchSampler):
            return found
        # One program brings weights ahead by itself.
        records = [
            replace(record, work=sampler.plain.get(id(record.work), record.work))
            for record in found.records
            if record.name != AHEAD
        ]
        return replace(found, resident=self._as_one(records))

    def _as_one(self, records: Sequence[DispatchRecord]) -> Interval | None:
        """Predicted seconds of the last step as one resident program; None where it cannot be one."""
        step, model = self._last, self.machine.gpus[0].model
        if step is None or not self.gpu.gfx.resident:
            return None
        phases = step.graph.recorded.phases(step.shape, step.sampling)
        groups = [list(part) for _, part in groupby(records, lambda record: record.phase)]
        counted = [([record.work for record in part], part[0].full) for part in groups]
        within, behind = counted[: len(phases)], counted[len(phases) :]
        if step.sampling is not None and step.sampling.inside is not None:
            # Smaller blocks are sorted there, in more rounds: each is taken to be like the last.
            rounds = max(0, len(phases) - len(counted))
            within, behind = [*counted[:-1], *counted[-2:-1] * rounds, counted[-1]], []
        program = None if any(full for _, full in within) else self.resident.program(phases)
        if program is None or program.kernel is None:
            return None
        n = self.resident.workgroups(program.kernel, phases)
        # The counts are of dispatches: a pair of compute units has room for their workgroups of 32 waves.
        occupancy = max(8, -(-n * (program.kernel.workgroup // 32) // (model.cu * SIMDS)))
        ahead = [(each.meeting, each.phase, each.size) for each in prefetch_ranges(phases, n)]
        return spread(
            lambda c: resident_seconds(within, occupancy, model, c, ahead) + step_seconds(behind, 0, model, c)
        )

    def _note(self, key: str) -> Work | None:
        """The counts in the compile cache."""
        tree = None if self._notes is None else self._notes.note(key)
        if tree is None:
            return None
        self._stored.add(key)
        return Work(**{**tree, "levels": {int(level): n for level, n in tree["levels"].items()}})

    def _key(self, dispatch: Dispatch, memory: ShaderMemory) -> DispatchKind | None:
        """What a dispatch is to be counted as; None for those that bring a step's inputs or choose experts."""
        kernel = self._kernel(dispatch)
        if kernel.name == DECODE["move"].spec.function.name:
            return None
        if kernel.name == DECODE["expert_lists"].spec.function.name:
            self._choose(kernel, dispatch, memory)
            return None
        addresses: set[int] = set()
        values = self._arguments(kernel, dispatch, memory, addresses)
        brings = kernel.name == AHEAD
        near = 0 if brings else sum(self._ahead.pop(address) for address in addresses & self._ahead.keys())
        if brings:
            start = dispatch.user_data[0] | dispatch.user_data[1] << 32
            matrix = self._matrices[bisect_right(self._matrices, start) - 1]
            self._ahead[matrix] = self._ahead.get(matrix, 0) + dispatch.groups[0] * BYTES
        model = self.machine.gpus[0].model
        caches = f"{model.l2} {model.infinity} {sorted({level for *_, level in self._held})}"
        key = cache_key([_counting(), kernel.code, f"{dispatch.groups} {dispatch.threads} {caches}", repr(values)])
        even = self._positions not in repr(values) and _TILES not in _given(kernel, dispatch)
        return DispatchKind(key, even, _counters(kernel, values), near, pieces_of(kernel.name, dispatch.groups))

    def _kernel(self, dispatch: Dispatch) -> AmdKernel:
        kernel = next(program.kernel for program in self.programs if program.va == dispatch.address)
        assert kernel is not None, "all programs were compiled here"
        return kernel

    def _choose(self, kernel: AmdKernel, dispatch: Dispatch, memory: ShaderMemory) -> None:
        """Let each row of a step choose experts by chance: without weights all would choose the same ones."""
        given = _given(kernel, dispatch)
        n_pairs, k, n_experts = given["n_pairs"], given["k"], dispatch.groups[0]
        chance = np.random.default_rng(n_experts).random((n_pairs // k, n_experts))
        memory.write(given["ids"], np.sort(np.argsort(chance, axis=1)[:, :k], axis=1).astype(np.int32))

    def _busy(self, dispatch: Dispatch, memory: ShaderMemory) -> list[int] | None:
        """The tiles of slots that are not empty, where a dispatch has a workgroup for each."""
        given = _given(self._kernel(dispatch), dispatch)
        if _TILES not in given:
            return None
        raw = memory.read(given[_TILES], dispatch.groups[0] * TILE_WORDS * 4).view(np.uint32)
        return [int(i) for i in np.flatnonzero(raw.reshape(-1, TILE_WORDS)[:, 2])]

    @property
    def _held(self) -> list[tuple[int, int, int]]:
        assert self._profiler is not None
        return self._profiler.residency.held

    def _arguments(self, kernel: AmdKernel, dispatch: Dispatch, memory: ShaderMemory, addresses: set[int]) -> list[Any]:
        """Values of arguments, those in structs too, without addresses. addresses: gets these."""
        found: list[Any] = []
        for argument in kernel.arguments:
            if not isinstance(argument.type, Ptr):
                found.append((argument.name, dispatch.user_data[argument.dword]))
                continue
            found.append((argument.name, self._positions if argument.name == _POSITIONS else None))
            low, high = dispatch.user_data[argument.dword : argument.dword + 2]
            addresses.add(low | high << 32)
            if isinstance(argument.type.elem, Struct):
                found.append(self._fields(argument.type.elem, low | high << 32, memory, addresses))
        return found

    def _fields(self, struct: Struct, va: int, memory: ShaderMemory, addresses: set[int]) -> list[Any]:
        found: list[Any] = []
        for (name, kind), at in zip(struct.fields, struct.offsets.values(), strict=True):
            if not isinstance(kind, Ptr):
                found.append((name, memory.read(va + at, kind.size).tobytes()))
                continue
            there = int.from_bytes(memory.read(va + at, 8).tobytes(), "little")
            addresses.add(there)
            found.append((name, self._positions if name == _POSITIONS else bool(there)))
            if isinstance(kind.elem, Struct) and there:
                found.append(self._fields(kind.elem, there, memory, addresses))
        return found


def _counters(kernel: AmdKernel, values: list[Any]) -> int:
    """How many counters the workgroups of one y and z have: products with heads one for each head."""
    if "_heads" not in kernel.name:
        return 1
    fields = next(value for value in values if isinstance(value, list))
    return int.from_bytes(next(raw for name, raw in fields if name == "n_heads"), "little")


def pieces_of(name: str, groups: Sequence[int]) -> int:
    """`Work.pieces` of a kernel of this name, 0 where experts are none of its business or where it reads the experts of
    many rows in their order. groups: workgroups in x, y and z.
    """
    if name.startswith(("gated_experts", "expert_rows")):
        return groups[0] * groups[1] * (2 if name.startswith("gated") else 1)
    chosen = re.search(r"^experts_down.*\bK=(\d+)", name)
    return groups[1] * int(chosen[1]) if chosen else 0


class _Sparse(Uploader):
    """Leaves memory as it is, which is all 0, but for small arrays."""

    def __init__(self, uploader: Uploader) -> None:
        self.__dict__.update(uploader.__dict__)

    def put(self, memory: DeviceMemory, data: npt.NDArray[Any], offset: int = 0) -> None:
        """Store a small array."""
        if data.nbytes <= _WRITTEN:
            super().put(memory, data, offset)

    def clear(self, memory: DeviceMemory) -> None:
        """Do nothing."""


def _given(kernel: AmdKernel, dispatch: Dispatch) -> dict[str, int]:
    """Numbers and addresses that a dispatch hands over, by argument."""
    words = dispatch.user_data
    return {
        a.name: words[a.dword] | (words[a.dword + 1] << 32 if isinstance(a.type, Ptr) else 0) for a in kernel.arguments
    }


def _near(memory: GraphMemory, share: float, model: GpuModel) -> list[tuple[int, int, int]]:
    """What a step has written itself before it reads it, and the level where that lies. share: of the rows that there
    is room for.
    """
    size = memory.arena_bytes * share
    level = L2 if size <= model.l2 else INFINITY if size <= model.infinity else MEMORY
    first, n_bytes = memory.input_block[1:]
    weights = sum(piece.size for piece in memory.held) - memory.arena_bytes
    held = [(0, 1 << 48, INFINITY)] if weights <= model.infinity else []  # each step finds what the last one read
    return [*held, (memory.arena, memory.arena + memory.arena_bytes, level), (first, first + n_bytes, L2)]


@cache
def _counting() -> bytes:
    """A digest of the emulator's code: other code may count otherwise."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(amdgpu_emu.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def _tree(work: Work) -> dict[str, Any]:
    """Counts as JSON can say them."""
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in asdict(work).items()}
