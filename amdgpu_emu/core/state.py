"""The registers of a group of waves that are at the same instruction. Every group owns its arrays.

Scalar registers have their hardware numbers: 0 to 105, VCC 106 and 107, TTMP 108 to 123, M0 125, EXEC 126 and 127.
Unwritten registers are tracked: `undef_v` and `undef_s` hold a bit for each register that some wave or lane has not
written, and `v_defined`, `s_defined` say which. Writing one half makes the whole register count as written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
VCC: Final = 106
TTMP: Final = 108
NULL: Final = 124
M0: Final = 125
EXEC: Final = 126
SCC: Final = 128
N_SCALARS: Final = 129
POISON: Final = 0xFFA5C3E1
"""The contents of registers before they are written: a NaN, no small number, no address."""
NORMAL_MODE: Final = 0xF0
"""MODE at the start: round to nearest even, keep subnormals of every width."""


class Pending:
    """A result that is still to arrive. registers: bits; kind: the instruction's name; at: its address; reach: how far
    its waves reach for it, as `Counters.reach`, where that is followed.
    """

    __slots__ = ("at", "kind", "reach", "registers", "scalar")

    def __init__(self, registers: int, scalar: bool, at: int, kind: str) -> None:
        self.registers, self.scalar, self.at, self.kind = registers, scalar, at, kind
        self.reach: Array | None = None


class Group:
    """A group of n waves of `lanes` lanes at `pc`. ids: their numbers in the dispatch; workgroup: their workgroups'
    numbers.
    """

    def __init__(self, n_vgprs: int, lanes: int, ids: Array, workgroup: Array) -> None:
        self.n, self.lanes, self.ids, self.workgroup = len(ids), lanes, ids, workgroup
        self.n_vgprs = n_vgprs
        self.v: Array = np.full((n_vgprs, self.n, lanes), POISON, np.uint32)
        self.v_defined: Array = np.zeros((n_vgprs, self.n, lanes), np.bool_)
        self.s: Array = np.full((N_SCALARS, self.n), POISON, np.uint32)
        self.s_defined: Array = np.zeros((N_SCALARS, self.n), np.bool_)
        self.scc: Array = np.zeros(self.n, np.bool_)
        self.signals: Array = np.zeros(self.n, np.int64)  # barriers that each wave signalled, and that it waited for
        self.waits: Array = np.zeros(self.n, np.int64)
        self.steps: Array = np.zeros(self.n, np.int64)
        self.undef_v, self.undef_s = (1 << n_vgprs) - 1, (1 << N_SCALARS) - 1
        self.pend_v = self.pend_s = 0
        self.queues: dict[str, list[Pending]] = {}
        self.mask: Array | None = None  # bool[n, lanes] of EXEC; None: all of them
        self.mode = NORMAL_MODE
        self.pc = 0
        self.turn = 0
        self.rests, self.seen = 0, -1  # how often it slept while nothing changed, and the count of changes then
        self.dpp: Array | None = None
        self.on: tuple[Array, ...] | None = None  # a mask, and what `lane_data` made of it
        self.clock: Any = None  # what `local_memory` made of `signals` and `waits`
        self.shared: Any = None
        self.access: tuple[Any, ...] | None = None  # of the memory access under way: addresses, waves, lanes, bytes
        self._views()

    def _views(self) -> None:
        self.f: Array = self.v.view(np.float32)
        self.i: Array = self.v.view(np.int32)
        self.halves: Array = self.v.view(np.uint16).reshape(self.n_vgprs, self.n, self.lanes, 2)

    # Masks.

    def bits(self, index: int) -> Array:
        """The lane mask in scalar registers from `index` on, as bool[n, lanes]."""
        if self.lanes == 32:
            raw = np.ascontiguousarray(self.s[index]).view(np.uint8).reshape(self.n, 4)
        else:
            raw = np.ascontiguousarray(self.s[index : index + 2].T).view(np.uint8).reshape(self.n, 8)
        return np.unpackbits(raw, axis=1, bitorder="little").view(np.bool_)

    def put_bits(self, index: int, mask: Array) -> None:
        """Store a lane mask into scalar registers from `index` on."""
        if index == NULL:
            return
        if mask.shape != (self.n, self.lanes):
            mask = np.broadcast_to(mask, (self.n, self.lanes))
        packed = np.packbits(mask, axis=1, bitorder="little").view(np.uint32)
        for k in range(self.lanes // 32):
            self.put_s(index + k, packed[:, k])

    def exec_changed(self) -> None:
        """Note that EXEC was written."""
        mask = self.bits(EXEC)
        self.mask = None if np.count_nonzero(mask) == mask.size else mask

    def active(self) -> Array:
        """The active lanes, bool[n, lanes]."""
        return np.ones((self.n, self.lanes), np.bool_) if self.mask is None else self.mask

    # Registers.

    def put_s(self, index: int, value: Any) -> None:
        """Write a scalar register of every wave, u32."""
        if index == NULL:
            return
        self.s[index] = value
        if self.undef_s >> index & 1:
            self.s_defined[index] = True
            self.undef_s &= ~(1 << index)
        if index in (EXEC, EXEC + 1):
            self.exec_changed()

    def forget_s(self, index: int, which: Array) -> None:
        """Note that a scalar register of some waves, bool[n], holds what was never written."""
        if index != NULL and which.any():
            self.s_defined[index, which] = False
            self.undef_s |= 1 << index

    def put_scc(self, value: Any) -> None:
        """Write the condition code (SCC) of every wave."""
        self.scc[...] = value
        if self.undef_s >> SCC & 1:
            self.s_defined[SCC] = True
            self.undef_s &= ~(1 << SCC)

    def put(self, register: int, value: Any) -> None:
        """Write a vector register, u32, in the active lanes."""
        if self.mask is None:
            self.v[register] = value
        else:
            np.copyto(self.v[register], value, where=self.mask)
        if self.undef_v >> register & 1:
            self.define(register)

    def put_half(self, register: int, half: int, value: Any) -> None:
        """Write a half of a vector register, u16, in the active lanes."""
        place = self.halves[register, :, :, half]
        if self.mask is None:
            place[...] = value
        else:
            np.copyto(place, value, where=self.mask)
        if self.undef_v >> register & 1:
            self.define(register)

    def define(self, register: int, lanes: Array | None = None) -> None:
        """Note that a register was written in the active lanes, or in `lanes`."""
        defined, lanes = self.v_defined[register], self.mask if lanes is None else lanes
        if lanes is None:
            defined[...] = True
        else:
            defined |= lanes
        if lanes is None or np.count_nonzero(defined) == defined.size:
            self.undef_v &= ~(1 << register)

    # Splitting and joining.

    def part(self, which: Array) -> Group:
        """Split off the waves of bool[n] as a group of their own."""
        index = np.flatnonzero(which)
        other = Group.__new__(Group)
        other.n, other.lanes, other.n_vgprs = len(index), self.lanes, self.n_vgprs
        for name in ("ids", "workgroup", "scc", "signals", "waits", "steps"):
            setattr(other, name, getattr(self, name)[index])
        other.v, other.v_defined = self.v.take(index, axis=1), self.v_defined.take(index, axis=1)
        other.s, other.s_defined = self.s.take(index, axis=1), self.s_defined.take(index, axis=1)
        other.undef_v, other.undef_s = self.undef_v, self.undef_s
        other.pend_v, other.pend_s = self.pend_v, self.pend_s
        other.queues = {name: queue.copy() for name, queue in self.queues.items()}
        other.mode, other.pc, other.turn, other.dpp, other.on = self.mode, self.pc, self.turn, None, None
        other.clock = None
        other.rests, other.seen = self.rests, self.seen
        other.shared, other.access = self.shared, None
        other._views()
        other.exec_changed()
        return other

    @staticmethod
    def joined(groups: list[Group]) -> Group:
        """Join groups that are at the same instruction and wait for the same results."""
        first = groups[0]
        if len(groups) == 1:
            return first
        other = Group.__new__(Group)
        other.n, other.lanes, other.n_vgprs = sum(g.n for g in groups), first.lanes, first.n_vgprs
        for name in ("ids", "workgroup", "scc", "signals", "waits", "steps"):
            setattr(other, name, np.concatenate([getattr(g, name) for g in groups]))
        for name in ("v", "v_defined", "s", "s_defined"):
            setattr(other, name, np.concatenate([getattr(g, name) for g in groups], axis=1))
        other.undef_v = other.undef_s = 0
        for g in groups:
            other.undef_v |= g.undef_v
            other.undef_s |= g.undef_s
        other.pend_v, other.pend_s, other.queues = first.pend_v, first.pend_s, first.queues
        other.mode, other.pc, other.dpp, other.on = first.mode, first.pc, None, None
        other.clock = None
        other.turn = max(g.turn for g in groups)
        other.rests, other.seen = min((g.rests, g.seen) for g in groups)
        other.shared, other.access = first.shared, None
        other._views()
        other.exec_changed()
        return other

    def signature(self) -> tuple[Any, ...]:
        """A key: groups whose signatures are equal can be joined."""
        under_way = tuple(
            (name, tuple((p.registers, p.scalar) for p in queue))
            for name, queue in sorted(self.queues.items())
            if queue
        )
        return self.pc, self.mode, under_way


Step = Callable[[Group], Any]
"""A compiled instruction. Returns None, the address of the next instruction, or an event of `events`."""
