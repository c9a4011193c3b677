"""Counts of a dispatch: instructions by class, bytes read and written, and the cache lines in which they lie."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

import numpy as np

from amdgpu_emu.core.state import Array
from amdgpu_emu.isa.instruction import Encoding, Instruction

_CLASSES = {
    Encoding.SOP1: "salu",
    Encoding.SOP2: "salu",
    Encoding.SOPK: "salu",
    Encoding.SOPC: "salu",
    Encoding.SMEM: "smem",
    Encoding.DS: "lds",
    Encoding.FLAT: "flat",
    Encoding.GLOBAL: "global",
    Encoding.SCRATCH: "scratch",
    Encoding.BUFFER: "buffer",
    Encoding.VOPD: "vopd",
}
_TRANSCENDENTAL = ("v_rcp", "v_rsq", "v_sqrt", "v_exp", "v_log", "v_sin", "v_cos")
_CHUNK = 20  # bits: bytes of one map of touched bytes
LINE = 128
"""Bytes of a line of the L2 and of the vector caches (Mesa's ac_gpu_info.c, for gfx10 and later)."""
HALF = 64
"""Bytes that a vector cache hands over at once, and of a full write to memory (GL2C_EA_WRREQ_64B of AMD's profiler)."""


def class_of(ins: Instruction) -> str:
    """The class of an instruction: salu, valu, trans, vopd, dot, wmma, branch, wait, message, smem, lds, global, ..."""
    name = ins.name
    if ins.format in _CLASSES:
        if ins.format in (Encoding.GLOBAL, Encoding.FLAT) and name.rpartition("_")[2] in ("inv", "wb", "wbinv"):
            return "cache"
        return _CLASSES[ins.format]
    if ins.format is Encoding.SOPP:
        if name.startswith(("s_branch", "s_cbranch", "s_call")):
            return "branch"
        if name.startswith(("s_wait", "s_delay", "s_nop", "s_sleep", "s_clause")):
            return "wait"
        return "barrier" if "barrier" in name else "message"
    if name.startswith(("v_wmma", "v_swmmac")):
        return "wmma"
    if name.startswith("v_dot"):
        return "dot"
    if name.replace("v_s_", "v_", 1).startswith(_TRANSCENDENTAL):
        return "trans"
    return "fma64" if "_f64" in name else "valu"


class Places(Protocol):
    """What follows where the lines lie that are read and written; see `residency`."""

    def read(self, addresses: Array, waves: Array, n: int) -> Array:
        """Note a read of n bytes at each address; the share of the waves that wait for each level or beyond it."""

    def write(self, addresses: Array, n: int) -> None:
        """Note a write of n bytes at each address."""


class Counters:
    """The counts of one dispatch. instructions: waves that executed each class; lane_instructions: lanes of vector
    instructions, on or off; bytes_read, bytes_written: of vector memory, each byte once per wave and request; lines:
    cache lines, each once per wave and request; stray: half lines that requests touch beyond those that would hold the
    bytes of all lanes; alone: the address of the first atomic by which workgroups count themselves; late: names of
    instructions behind it that fewer waves executed than there are workgroups: what the last one does alone;
    scalar_bytes: of s_load; unique_*, *_lines: the distinct bytes, lines and half lines of all. Bytes and lines are
    counted when `measure` is set. places: told of every access; reach: what it said of the reads since this was None.
    """

    def __init__(self, measure: bool = False, places: Places | None = None) -> None:
        self.measure, self.places = measure, places
        self.reach: Array | None = None
        self.instructions: Counter[str] = Counter()
        self.names: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self.alone = float("inf")
        self.wave_instructions = self.lane_instructions = 0
        self.bytes_read = self.bytes_written = self.scalar_bytes = 0
        self.lines = self.stray = 0
        self.waves = self.workgroups = self.vgprs = self.lds_bytes = 0
        self._touched: dict[str, dict[int, Array]] = {"read": {}, "write": {}}

    @property
    def unique_read(self) -> int:
        """Number of distinct bytes that were read."""
        return self._distinct("read", 1)

    @property
    def unique_written(self) -> int:
        """Number of distinct bytes that were written."""
        return self._distinct("write", 1)

    @property
    def read_lines(self) -> int:
        """Number of distinct lines that were read from."""
        return self._distinct("read", LINE)

    @property
    def written_halves(self) -> int:
        """Number of distinct half lines that were written to."""
        return self._distinct("write", HALF)

    def _distinct(self, access: str, unit: int) -> int:
        chunks = self._touched[access].values()
        if unit == 1:
            return sum(int(np.count_nonzero(chunk)) for chunk in chunks)
        return sum(int(np.count_nonzero(chunk.reshape(-1, unit).any(axis=1))) for chunk in chunks)

    def request(self, access: str, addresses: Array, waves: Array, n: int, lanes: int = 0) -> None:
        """Count an access of n bytes by each of several lanes. waves: i64[k], ascending. lanes: of a wave; 0: its lines
        were counted already.
        """
        key = np.stack([waves.astype(np.uint64), addresses.astype(np.uint64)])
        order = np.lexsort((key[1], key[0]))
        wave, start = key[0][order], key[1][order]
        same = wave[1:] == wave[:-1]
        apart = np.minimum(start[1:] - start[:-1], np.uint64(n))
        total = n + int(np.where(same, apart, np.uint64(n)).sum()) if len(start) else 0
        if access == "read":
            self.bytes_read += total
            self.follow(addresses, waves, n)
        else:
            self.bytes_written += total
            if self.places is not None:
                self.places.write(addresses, n)
        if lanes and len(start):
            self.lines += int(_units(start, same, n, LINE).sum())
            first = np.flatnonzero(np.concatenate([[True], ~same]))
            halves = np.add.reduceat(_units(start, same, n, HALF), first)
            self.stray += int(np.maximum(halves - -(-lanes * n // HALF), 0).sum())
        self.touch(access, start, n)

    def follow(self, addresses: Array, waves: Array, n: int) -> None:
        """Note how far waves reach for n bytes at each address. waves: i64[k], ascending."""
        if self.places is not None and len(addresses):
            share = self.places.read(addresses, waves, n)
            self.reach = share if self.reach is None else np.maximum(self.reach, share)

    def touch(self, access: str, addresses: Any, n: int) -> None:
        """Mark bytes as read or written, for the counts of distinct bytes."""
        chunks = self._touched[access]
        every: Array = (np.asarray(addresses, np.uint64)[:, None] + np.arange(n, dtype=np.uint64)).reshape(-1)
        if not len(every):
            return
        first, last = int(every.min()) >> _CHUNK, int(every.max()) >> _CHUNK
        numbers = every >> np.uint64(_CHUNK) if first < last else None  # all in one, as a rule
        for number in [first] if numbers is None else np.unique(numbers).tolist():
            chunk = chunks.get(number)
            if chunk is None:
                chunk = chunks[number] = np.zeros(1 << _CHUNK, np.bool_)
            here = every if numbers is None else every[numbers == number]
            chunk[(here & np.uint64((1 << _CHUNK) - 1)).astype(np.intp)] = True


def _units(start: Array, same: Array, n: int, unit: int) -> Array:
    """The units, 128 or 64 bytes, that each access is the first of its wave to touch. start: ascending in a wave;
    same: whether an access is of the same wave as the one before."""
    first, last = (
        (start // np.uint64(unit)).astype(np.int64),
        ((start + np.uint64(n - 1)) // np.uint64(unit)).astype(np.int64),
    )
    fresh = last - first + 1
    fresh[1:] = np.where(same, last[1:] - np.maximum(first[1:] - 1, last[:-1]), fresh[1:])
    return fresh
