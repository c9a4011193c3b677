"""The adapters of an engine: room for some in a model's graph, their names, and what is in the room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.adapters.errors import AdapterError, UnknownAdapter
from zinc_rt.adapters.file import EMBEDDING, AdapterFile
from zinc_rt.adapters.graph import PAIRS, AdapterShape, PairGroup, arrays_of, grouped, with_adapters
from zinc_rt.adapters.targets import AdapterTarget, Part, check_targets, part_of, targets
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.adapters import TILE, in_tiles
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.utils.checks import show

MAX_DEPTH: Final = 8
"""Adapters that a row may have at once."""
MAX_SLOTS: Final = 1024
FREE_RANK: Final = 16
"""The rank that free room has, unless adapters or the caller want more."""

Write = Callable[[str, npt.NDArray[np.generic], int | None], None]
"""Brings an entry of a constant that was changed to the device, or all of it: name, array, entry."""


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """An adapter as a row has it. slot: its number in the engine. scale: of what it adds."""

    slot: int
    scale: float


@dataclass(frozen=True)
class AdapterInfo:
    """An adapter that is loaded. default_scale: where a caller names none and wants what is applied to all; 0 for one
    that acts only where it is named.
    """

    name: str
    path: str
    rank: int
    default_scale: float
    task_name: str
    prompt_prefix: str
    identity: bytes


@dataclass(frozen=True)
class AdapterRequest:
    """An adapter to load. name: None for the file's own. scale: see `AdapterInfo.default_scale`."""

    path: Path
    name: str | None = None
    scale: float = 1.0


@dataclass
class _Slot:
    """What is in it, and how many requests use it. leaving: whether it goes when the last one ends."""

    info: AdapterInfo
    users: int = 0
    leaving: bool = False


@dataclass
class AdapterSlots:
    """Room for `shape.n_adapters` adapters of a model. Belongs to the engine's thread.

    definition: the model's with the products of adapters. groups, arrays: of its constants. write: how an entry reaches
    the device once the model is there; None before.
    """

    model: GGUFFile
    definition: ModelDefinition
    shape: AdapterShape
    groups: Sequence[PairGroup]
    arrays: Mapping[str, npt.NDArray[np.generic]]
    write: Write | None = None
    _slots: dict[int, _Slot] = field(default_factory=dict)

    @classmethod
    def make(
        cls, definition: ModelDefinition, model: GGUFFile, given: Iterable[AdapterRequest], *,
        free: int = 0, max_rank: int | None = None,
    ) -> AdapterSlots:  # fmt: skip
        """Read the adapters, and make room for them and for `free` more.

        Free room takes adapters of the matrices of attention and feed-forward of all rows, and of those that an adapter
        given here names, up to max_rank (None: the greatest rank of these, at least 16).

        Raises `AdapterError`, `GGUFError`, `UsageError`.
        """
        wanted = list(given)
        if len(wanted) + free > MAX_SLOTS:
            raise UsageError(f"{len(wanted) + free} adapters, at most {MAX_SLOTS} can be loaded")
        files = list[AdapterFile]()
        try:
            for request in wanted:
                files.append(AdapterFile.open(request.path))
                files[-1].check_fits(model)
            made = cls._with_room(definition, model, files, free, max_rank)
            for request, file in zip(wanted, files, strict=True):
                made.put(file, request)
            return made
        finally:
            for file in files:
                file.close()

    @classmethod
    def _with_room(
        cls, definition: ModelDefinition, model: GGUFFile, files: Sequence[AdapterFile], free: int, max_rank: int | None
    ) -> AdapterSlots:
        found = dict[tuple[int, int, int], tuple[AdapterTarget, Part]]()
        for target in targets(definition.graph):
            part = part_of(definition, model, target.weight)
            of_embedding = part is not None and part.tensor == EMBEDDING
            if part is not None and of_embedding is (target.node.op is Op.EMBED):
                found.setdefault((target.weight, target.node.id, target.output), (target, part))
        known = {part.tensor for _, part in found.values()}
        for file in files:
            check_targets(file, known)
        rooms = dict[str, int]()
        least = max((file.rank for file in files), default=FREE_RANK) if max_rank is None else max_rank
        for target, part in found.values():
            ranks = [file.pairs[part.tensor].rank for file in files if part.tensor in file.pairs]
            if free and target.node.op is Op.MATMUL:
                ranks.append(least)
            if ranks:
                rooms[part.tensor] = -(-max(ranks) // TILE) * TILE
        groups = grouped([each for each in found.values() if each[1].tensor in rooms], rooms)
        plain = free == 0 and all(
            tensor.type is GGMLType.F16 for file in files for pair in file.pairs.values() for tensor in (pair.a, pair.b)
        )
        n = len(files) + free
        shape = AdapterShape(n, min(n, MAX_DEPTH), DType.F16 if plain else DType.F32)
        arrays = {
            name: _zeros(dims, np.dtype(np.float32 if name == PAIRS else shape.numpy))
            for name, dims in arrays_of(groups, definition.graph, shape).items()
        }
        return cls(model, with_adapters(definition, groups, shape, arrays), shape, groups, arrays)

    # -- what is loaded

    @property
    def loaded(self) -> list[AdapterInfo]:
        """The adapters that requests may name, by number."""
        return [slot.info for _, slot in sorted(self._slots.items()) if not slot.leaving]

    def defaults(self) -> tuple[tuple[str, float], ...]:
        """Names and scales of those that act on texts whose callers name none."""
        return tuple((info.name, info.default_scale) for info in self.loaded if info.default_scale)

    def info(self, slot: int) -> AdapterInfo:
        """The adapter in a slot."""
        return self._slots[slot].info

    def find(self, name: str) -> int:
        """The number of an adapter by name. Raises `UnknownAdapter`."""
        for number, slot in self._slots.items():
            if slot.info.name == name and not slot.leaving:
                return number
        names = ", ".join(info.name for info in self.loaded) or "none"
        raise UnknownAdapter(f"no adapter {show(name)} is loaded; there are {names}")

    def load(self, request: AdapterRequest) -> AdapterInfo:
        """Put an adapter into free room, between steps. Raises `AdapterError`, `GGUFError`, `UsageError`."""
        with AdapterFile.open(request.path) as file:
            file.check_fits(self.model)
            check_targets(file, {pair.part.tensor for group in self.groups for pair in group.pairs})
            return self.put(file, request)

    def put(self, file: AdapterFile, request: AdapterRequest) -> AdapterInfo:
        """Put an open file, which was checked, into free room."""
        name = request.name or file.name
        if any(slot.info.name == name for slot in self._slots.values()):
            raise UsageError(f"an adapter {show(name)} is loaded already; unload it, or give this one another name")
        if not np.isfinite(request.scale):
            raise UsageError(f"the scale of adapter {show(name)} is {request.scale}, a finite number is needed")
        number = next((i for i in range(self.shape.n_adapters) if i not in self._slots), None)
        if number is None:
            raise UsageError(
                f"there is room for {self.shape.n_adapters} adapters, and that many are loaded; unload one, or start"
                " with more lora_slots"
            )
        self._check_room(file)
        self._fill(number, file)
        info = AdapterInfo(
            name, str(request.path), file.rank, request.scale, file.task_name, file.prompt_prefix, file.identity
        )
        self._slots[number] = _Slot(info)
        return info

    def unload(self, name: str) -> None:
        """Forget an adapter, once the requests that use it have ended; no new one gets it. Raises `UnknownAdapter`."""
        number = self.find(name)
        self._slots[number].leaving = True
        self._forget(number)

    # -- requests

    def acquire(self, wanted: Iterable[tuple[str, float]]) -> tuple[AdapterUse, ...]:
        """The adapters of a request by name and scale, in the order in which they are added; a scale of 0 is none.

        They stay until `release`. Raises `UnknownAdapter`, `UsageError`.
        """
        uses = dict[int, float]()
        for name, scale in wanted:
            number = self.find(name)
            if number in uses:
                raise UsageError(f"adapter {show(name)} is named twice")
            if not np.isfinite(np.float32(scale)):
                raise UsageError(f"the scale of adapter {show(name)} is {scale}, a finite number is needed")
            if scale:
                uses[number] = float(scale)
        if len(uses) > self.shape.depth:
            raise UsageError(f"{len(uses)} adapters for one request, at most {self.shape.depth} are supported")
        for number in uses:
            self._slots[number].users += 1
        return tuple(AdapterUse(number, uses[number]) for number in sorted(uses))

    def release(self, uses: Iterable[AdapterUse]) -> None:
        """The request of these adapters has ended."""
        for use in uses:
            self._slots[use.slot].users -= 1
            self._forget(use.slot)

    def salt(self, salt: bytes, uses: Sequence[AdapterUse]) -> bytes:
        """The salt of the prefix cache for texts with these adapters: keys and values depend on their scales, too."""
        if not uses:
            return salt
        parts = [(self.info(use.slot).identity, np.float32(use.scale).tobytes()) for use in uses]
        return b"".join([len(salt).to_bytes(8, "little"), salt, *(part for pair in parts for part in pair)])

    def _forget(self, number: int) -> None:
        slot = self._slots[number]
        if slot.leaving and not slot.users:
            del self._slots[number]

    # -- the constants

    def _check_room(self, file: AdapterFile) -> None:
        for group in self.groups:
            for pair in group.pairs:
                own = file.pairs.get(pair.part.tensor)
                if own is not None and own.rank > group.room:
                    raise AdapterError(
                        f"{file.file.path}: {own.b.name} has rank {own.rank}, there is room for rank {group.room};"
                        " start with a larger max_lora_rank"
                    )

    def _fill(self, number: int, file: AdapterFile) -> None:
        table = self.arrays[PAIRS]
        for group in self.groups:
            a = self.arrays[group.a][number]
            a[...] = 0
            for pair in group.pairs:
                own, b = file.pairs.get(pair.part.tensor), self.arrays[pair.b][number]
                table[pair.number, number] = (0, 0) if own is None else (own.rank, float(file.factor(own)))
                if own is None:
                    continue
                if pair.target.node.op is Op.EMBED:
                    down, up = file.values(own.a), file.values(own.b).T
                else:
                    down, up = pair.part.a(file, own), pair.part.b(file, own)
                first, tiles = pair.start // TILE, in_tiles(down)
                a[..., first : first + tiles.shape[-3], :, :] = tiles
                b[...] = 0
                b[..., : own.rank, :] = in_tiles(up)
                self._bring(pair.b, number)
            self._bring(group.a, number)
        self._bring(PAIRS, None)

    def _bring(self, name: str, number: int | None) -> None:
        if self.write is not None:
            self.write(name, self.arrays[name], number)


def _zeros(dims: tuple[int, ...], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Zeroed memory, which nothing touches before it is used, with room behind it for reads of whole vectors."""
    from zinc_rt.backends.host_memory import huge_bytes

    n_bytes = int(np.prod(dims, dtype=np.int64)) * dtype.itemsize
    return huge_bytes(n_bytes).view(dtype).reshape(dims)
