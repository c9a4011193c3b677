"""Chooses how this machine computes products of many rows: by a measurement that is kept with the compiled kernels.

Matrix registers and vectors give the same bits, but their speeds differ between processors, formats and numbers of
rows. So each way is tried once on a product of the format. A way with other bits than vectors is refused, and the
fastest of the others is taken. The result is a note in the compile cache. Its name has the processor, the level and the
code of all ways, so another machine or other kernels are measured anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from zinc_rt.backends.cpu.choice import VECTORS, TargetTuning, Ways
from zinc_rt.backends.cpu.contest import Timer, clocked, medians, winner
from zinc_rt.backends.cpu.selftest import ProductTrial
from zinc_rt.errors import UsageError
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, PANEL_ROWS
from zinc_rt.lang.cache import cache_key
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_processor
from zinc_rt.utils.environment import MATRIX_ROWS

_FORCED: Final = {"": None, "0": VECTORS, "16": Ways(1, 1), "32": Ways(1, 2)}
_TRIED: Final = {1: Ways(1, 1), 2: Ways(1, 2)}
"""By blocks at once."""
_FEW, _MANY = (0, 1), (0, 1, 2)
_N_OUT, _N_IN = 2048, 2048  # a few MB of weights: more than a core's second-level cache
_IDENTITY: Final = {"vendor_id", "cpu family", "model", "model name", "stepping", "CPU part"}


@dataclass(frozen=True)
class WaysFound:
    """The measurement of one format.

    small, large: seconds of products of 16 and of 64 rows, for each way: how many blocks of 16 rows it computes at
    once, 0 for vectors. wrong: the ways whose products were not those of vectors.
    """

    ways: Ways
    small: dict[int, float]
    large: dict[int, float]
    wrong: tuple[int, ...]

    @classmethod
    def of(cls, small: dict[int, float], large: dict[int, float], wrong: Iterable[int]) -> WaysFound:
        """The fastest of what was measured."""
        return cls(Ways(winner(small), winner(large)), small, large, tuple(wrong))

    def note(self) -> dict[str, Any]:
        """For the cache."""
        return {"few": list(self.small.items()), "many": list(self.large.items()), "wrong": list(self.wrong)}

    @classmethod
    def from_note(cls, tree: dict[str, Any]) -> WaysFound | None:
        """The result that `note` stored; None for anything else."""
        try:
            few, many = ({int(k): float(v) for k, v in tree[name]} for name in ("few", "many"))
            wrong = [int(k) for k in tree["wrong"]]
        except (KeyError, TypeError, ValueError):
            return None
        known = _known(few, _FEW, wrong) and _known(many, _MANY, wrong) and set(wrong) <= set(_TRIED)
        return cls.of(few, many, wrong) if known else None


def _known(times: dict[int, float], names: tuple[int, ...], wrong: list[int]) -> bool:
    return list(times) == [name for name in names if name not in wrong] and all(0 < t < 60 for t in times.values())


class WaysOfProducts:
    """Chooses ways of products. timer: for tests."""

    def __init__(self, library: Library, notify: Callable[[str], None] | None = None, timer: Timer = clocked) -> None:
        self.measured = 0
        self._library, self._notify, self._timer = library, notify, timer
        self._found: dict[GGMLType, WaysFound] = {}

    def kept(self, tuning: TargetTuning, kinds: Iterable[GGMLType], rows: int) -> TargetTuning:
        """The tuning with the known ways of these formats; nothing is measured. rows: of the largest step."""
        return self._with(tuning, [k for k in _open(tuning, kinds, rows) if self.recall(tuning, k) is not None])

    def chosen(self, tuning: TargetTuning, kinds: Iterable[GGMLType], rows: int) -> TargetTuning:
        """The tuning with the ways of all of these formats; those that are not known are measured.

        Raises `UsageError` for a value of the variable `MATRIX_ROWS` that there is not.
        """
        kinds = _open(tuning, kinds, rows)
        forced = forced_ways()
        if forced is not None:
            return self._forced(tuning, kinds, forced)
        missing = [k for k in kinds if self.recall(tuning, k) is None]
        if missing:  # all at once: they are compiled side by side
            self._library.load([kernel for k in missing for kernel in _kernels(tuning, k)])
        for kind in missing:
            found = self._found[kind] = self._measure(tuning, kind)
            self._library.cache.put_note(self._key(tuning, kind), found.note())
        for blocks in _TRIED:
            self._refuse(blocks, [k for k in kinds if blocks in self._found[k].wrong])
        return self._with(tuning, kinds)

    def recall(self, tuning: TargetTuning, kind: GGMLType) -> WaysFound | None:
        """What was found before, in this process or another."""
        if kind not in self._found:
            note = self._library.cache.note(self._key(tuning, kind))
            found = None if note is None else WaysFound.from_note(note)
            if found is None:
                return None
            self._found[kind] = found
        return self._found[kind]

    def _with(self, tuning: TargetTuning, kinds: Iterable[GGMLType]) -> TargetTuning:
        return replace(tuning, ways=tuple((k.name, self._found[k].ways) for k in kinds))

    def _forced(self, tuning: TargetTuning, kinds: list[GGMLType], ways: Ways) -> TargetTuning:
        """Tried at every start: what was found out about the ways of choice says nothing of each."""
        tried = kinds if any(ways) else []
        wrong = [k for k in tried if not ProductTrial.small(self._library, k).agrees(_one(tuning, k, ways))]
        self._refuse(ways.large, wrong)
        return replace(tuning, ways=tuple((k.name, VECTORS if k in wrong else ways) for k in kinds))

    def _refuse(self, blocks: int, kinds: list[GGMLType]) -> None:
        if kinds and self._notify is not None:
            self._notify(
                f"matrix registers gave wrong products of {', '.join(k.name for k in kinds)}, {blocks * BLOCK_ROWS}"
                " rows at once, and are not used for them so"
            )

    def _measure(self, tuning: TargetTuning, kind: GGMLType) -> WaysFound:
        self.measured += 1
        small = ProductTrial.small(self._library, kind)
        wrong = [b for b, ways in _TRIED.items() if not small.agrees(_one(tuning, kind, ways))]
        trial = ProductTrial(self._library, kind, _N_OUT, _N_IN, PANEL_ROWS)
        few = self._contest(trial, tuning, BLOCK_ROWS, [b for b in _FEW if b not in wrong])
        many = self._contest(trial, tuning, PANEL_ROWS, [b for b in _MANY if b not in wrong])
        return WaysFound.of(few, many, wrong)

    def _contest(self, trial: ProductTrial, tuning: TargetTuning, rows: int, names: list[int]) -> dict[int, float]:
        def run_of(blocks: int) -> Callable[[], None]:
            program, _ = trial.program(_one(tuning, trial.kind, _TRIED.get(blocks, VECTORS)), rows)
            return lambda: trial.runner.run(program)

        return medians({blocks: run_of(blocks) for blocks in names}, self._timer)

    def _key(self, tuning: TargetTuning, kind: GGMLType) -> str:
        keys = [self._library.key(*kernel) for kernel in _kernels(tuning, kind)]
        return cache_key(["ways of products", processor_identity(), *keys])


def _open(tuning: TargetTuning, kinds: Iterable[GGMLType], rows: int) -> list[GGMLType]:
    """Formats of which there is something to choose."""
    if not tuning.tiles or rows < BLOCK_ROWS:
        return []
    return sorted({k for k in kinds if FORMATS[k.name].quantized}, key=lambda k: k.name)


def _one(tuning: TargetTuning, kind: GGMLType, ways: Ways) -> TargetTuning:
    return replace(tuning, ways=((kind.name, ways),))


def _kernels(tuning: TargetTuning, kind: GGMLType) -> list[Any]:
    return [_one(tuning, kind, ways).matmul(kind) for ways in (VECTORS, *_TRIED.values())]


def forced_ways() -> Ways | None:
    """What the variable `MATRIX_ROWS` says; None: they are measured. Raises `UsageError`."""
    value = os.environ.get(MATRIX_ROWS.name, "")
    if value not in _FORCED:
        raise UsageError(f"{MATRIX_ROWS.name} is {value!r}; it must be 0, 16 or 32 (unset: what is fastest here)")
    return _FORCED[value]


def processor_identity() -> str:
    """Which processor this is; empty where the system does not say."""
    return "; ".join(f"{name}={value}" for name, value in host_processor().items() if name in _IDENTITY)


def in_words(found: WaysFound) -> str:
    """For people: what is used, and how it compares with vectors."""
    parts = [
        f"{rows} in {_way(blocks)}{_compared(times, blocks)}"
        for rows, blocks, times in (
            ("16 rows", found.ways.small, found.small),
            ("32 and more", found.ways.large, found.large),
        )
    ]
    if found.wrong:
        counts = " and ".join(str(blocks * BLOCK_ROWS) for blocks in found.wrong)
        parts.append(f"matrix registers give wrong products of {counts} rows at once")
    return "; ".join(parts)


def _way(blocks: int) -> str:
    return f"matrix registers, {blocks * BLOCK_ROWS} at once" if blocks else "vectors"


def _compared(times: dict[int, float], blocks: int) -> str:
    others = [times[b] for b in times if (b == 0) != (blocks == 0)]
    if not others:
        return ""
    return f" ({min(others) / times[blocks]:.2f} x as fast as {'vectors' if blocks else 'matrix registers'})"
