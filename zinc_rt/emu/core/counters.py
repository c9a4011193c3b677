"""What a dispatch did: instructions by class, and bytes read and written."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from zinc_rt.emu.core.state import Array
from zinc_rt.emu.isa.instruction import Format, Instruction

_CLASSES = {
    Format.SOP1: "salu", Format.SOP2: "salu", Format.SOPK: "salu", Format.SOPC: "salu", Format.SMEM: "smem",
    Format.DS: "lds", Format.FLAT: "flat", Format.GLOBAL: "global", Format.SCRATCH: "scratch", Format.BUFFER: "buffer",
    Format.VOPD: "vopd",
}  # fmt: skip
_TRANSCENDENTAL = ("v_rcp", "v_rsq", "v_sqrt", "v_exp", "v_log", "v_sin", "v_cos")
_CHUNK = 20  # bits: bytes of one map of touched bytes


def class_of(ins: Instruction) -> str:
    """salu, valu, trans, vopd, dot, wmma, branch, wait, message, smem, lds, global, flat, scratch, ..."""
    name = ins.name
    if ins.format in _CLASSES:
        if ins.format in (Format.GLOBAL, Format.FLAT) and name.rpartition("_")[2] in ("inv", "wb", "wbinv"):
            return "cache"
        return _CLASSES[ins.format]
    if ins.format is Format.SOPP:
        if name.startswith(("s_branch", "s_cbranch", "s_call")):
            return "branch"
        if name.startswith(("s_wait", "s_delay", "s_nop", "s_sleep", "s_clause")):
            return "wait"
        return "barrier" if "barrier" in name else "message"
    if name.startswith("v_wmma"):
        return "wmma"
    if name.startswith("v_dot"):
        return "dot"
    if name.startswith(_TRANSCENDENTAL):
        return "trans"
    return "fma64" if "_f64" in name else "valu"


class Counters:
    """instructions: waves that executed each class; lane_instructions: lanes of vector instructions, on or off;
    bytes_read, bytes_written: of vector memory, each byte once per wave and request; scalar_bytes: of s_load;
    read, written: the distinct bytes of all. Bytes are counted when `measure` is set.
    """

    def __init__(self, measure: bool = False) -> None:
        self.measure = measure
        self.instructions: Counter[str] = Counter()
        self.names: Counter[str] = Counter()
        self.wave_instructions = self.lane_instructions = 0
        self.bytes_read = self.bytes_written = self.scalar_bytes = 0
        self.waves = self.workgroups = self.vgprs = self.lds_bytes = 0
        self._touched: dict[str, dict[int, Array]] = {"read": {}, "write": {}}

    @property
    def unique_read(self) -> int:
        """Distinct bytes that were read."""
        return sum(int(np.count_nonzero(chunk)) for chunk in self._touched["read"].values())

    @property
    def unique_written(self) -> int:
        """Distinct bytes that were written."""
        return sum(int(np.count_nonzero(chunk)) for chunk in self._touched["write"].values())

    def request(self, access: str, addresses: Array, waves: Array, n: int) -> None:
        """Lanes of several waves access n bytes each. waves: i64[k], ascending."""
        key = np.stack([waves.astype(np.uint64), addresses.astype(np.uint64)])
        order = np.lexsort((key[1], key[0]))
        wave, start = key[0][order], key[1][order]
        apart = np.minimum(start[1:] - start[:-1], np.uint64(n))
        total = n + int(np.where(wave[1:] == wave[:-1], apart, np.uint64(n)).sum()) if len(start) else 0
        if access == "read":
            self.bytes_read += total
        else:
            self.bytes_written += total
        self.touch(access, start, n)

    def touch(self, access: str, addresses: Any, n: int) -> None:
        """Note distinct bytes."""
        chunks = self._touched[access]
        every: Array = (np.asarray(addresses, np.uint64)[:, None] + np.arange(n, dtype=np.uint64)).reshape(-1)
        numbers = every >> np.uint64(_CHUNK)
        for number in np.unique(numbers).tolist():
            chunk = chunks.setdefault(number, np.zeros(1 << _CHUNK, np.bool_))
            chunk[(every[numbers == number] & np.uint64((1 << _CHUNK) - 1)).astype(np.intp)] = True
