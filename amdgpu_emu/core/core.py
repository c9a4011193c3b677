"""`ShaderCore`: runs the machine code of dispatches, all waves that are at the same instruction together.

Waves that part at a branch become several groups. The group that is furthest behind runs first, until it meets another
one, so waves come together again behind loops and branches. A group that has run for long, or sleeps, lets the others
run, so waves may wait for each other through memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from amdgpu_emu.core.counters import Counters
from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.events import END, REST, WAIT, Split, Targets
from amdgpu_emu.core.gfx11 import check_dispatch
from amdgpu_emu.core.launch import check_fit, chunks, launch
from amdgpu_emu.core.program import CompiledInstruction, Program
from amdgpu_emu.core.shared_state import SharedState
from amdgpu_emu.core.state import SCC, Group
from amdgpu_emu.core.waits import conflict
from amdgpu_emu.errors import GpuFault, GpuHang
from amdgpu_emu.isa.instruction import UnknownInstruction
from amdgpu_emu.isa.printer import text
from amdgpu_emu.shader import Dispatch, Shader

if TYPE_CHECKING:
    from amdgpu_emu.shader_memory import ShaderMemory

LIMIT = 4_000_000
"""Instructions of a wave after which its program counts as an endless loop."""
ARRIVALS = ("global_atomic_add_u32", "global_atomic_inc_u32")
"""Atomics by which workgroups count themselves."""
_SLICE = 20_000  # instructions that a group may go on for while others could
_PROGRAMS = 64
_RESTS = 1000  # of every wave, with nothing stored between, after which they wait for what never comes


class ShaderCore(Shader):
    """A shader core that executes machine code of gfx12 and gfx11.

    Args:
        limit: instructions of a wave after which it counts as an endless loop.
        measure: count bytes, too.
        keep: how many of the last dispatches' `counters` to keep.
        name_of: gives the name of the kernel at an address, for messages.

    Raises (in `run`): `GpuHang` for a broken rule, `GpuFault` for an access that the page tables refuse; both say
    where.
    """

    def __init__(
        self,
        *,
        limit: int = LIMIT,
        measure: bool = False,
        keep: int = 256,
        name_of: Callable[[int], str | None] | None = None,
    ) -> None:
        self.limit, self.measure, self.keep, self.name_of = limit, measure, keep, name_of
        self.counters: list[Counters] = []
        self._programs: dict[tuple[int, int, int, int], Program] = {}

    def run(self, dispatch: Dispatch, memory: ShaderMemory) -> None:
        """Execute a dispatch to its end. Raises `GpuHang` for a broken rule, `GpuFault` for a refused access."""
        counters = self.new_counters()
        self.counters = [*self.counters[-self.keep + 1 :], counters] if self.keep else []
        with np.errstate(all="ignore"):
            _Run(self, dispatch, memory, counters).go()

    def new_counters(self) -> Counters:
        """Counters of a dispatch that begins."""
        return Counters(self.measure)

    def parts(self, dispatch: Dispatch, n_vgprs: int, lanes: int) -> Iterable[tuple[int, int]]:
        """The workgroups to run, as many at a time as fit: the first one's number, and how many."""
        return chunks(dispatch, n_vgprs, lanes)

    def batch(self, first: int, count: int, waves: int) -> None:
        """Note that `count` workgroups from number `first` on are started, of `waves` waves each."""

    def program(self, dispatch: Dispatch, memory: ShaderMemory, n_vgprs: int, lanes: int) -> Program:
        """The compiled program of a dispatch, kept as long as the code at its address stays the same."""

        def fetch(va: int, n: int) -> bytes:
            return memory.code(va, n).tobytes()

        gfx = dispatch.gfx[0]
        found, key = Program(fetch, n_vgprs, lanes, gfx), (dispatch.address, n_vgprs, lanes, gfx)
        old = self._programs.pop(key, None)
        if old is not None:
            found.take(old)
        while len(self._programs) >= _PROGRAMS:
            del self._programs[next(iter(self._programs))]
        self._programs[key] = found
        return found


class _Run:
    """The run of one dispatch."""

    def __init__(self, core: ShaderCore, dispatch: Dispatch, memory: ShaderMemory, counters: Counters) -> None:
        self.core, self.dispatch, self.memory, self.counters = core, dispatch, memory, counters
        self.lanes = 32 if dispatch.wave32 else 64
        self.n_vgprs = ((dispatch.rsrc1 & 0x3F) + 1) * (8 if dispatch.wave32 else 4)
        self.program = core.program(dispatch, memory, self.n_vgprs, self.lanes)
        self.not_started = 0  # workgroups for which there is no room yet

    def go(self) -> None:
        """Run all workgroups, as many at a time as fit."""
        try:
            check_fit(self.dispatch, self.n_vgprs, self.lanes)
            if self.program.gfx == 11:
                check_dispatch(self.dispatch)
        except ShaderError as error:
            raise GpuHang(f"{error}; {self.dispatch}") from error
        self.counters.vgprs, self.counters.lds_bytes = self.n_vgprs, self.dispatch.lds_bytes
        try:
            for first, count in self.core.parts(self.dispatch, self.n_vgprs, self.lanes):
                group = launch(self.dispatch, self.n_vgprs, self.lanes, first, count)
                self.not_started = self._workgroups() - first - count
                waves = group.n // count
                self.core.batch(first, count, waves)
                group.shared = SharedState(self.dispatch, self.memory, self.counters, count, waves)
                self.counters.waves += group.n
                self.counters.workgroups += count
                self._schedule(group)
        finally:
            self._count()

    def _workgroups(self) -> int:
        x, y, z = self.dispatch.groups
        return x * y * z

    def _count(self) -> None:
        kinds, names, kept = self.counters.instructions, self.counters.names, self.core.keep
        self.counters.alone = alone = self._alone()
        for address, op in self.program.ops.items():
            n = op.count
            if not n:
                continue
            op.count = 0
            if kept:  # otherwise nothing reports them
                kinds[op.kind] += n
                names[op.name] += n
                if address > alone and n < self.counters.workgroups:
                    self.counters.late[op.name] += n
                self.counters.wave_instructions += n
                if op.vector:
                    self.counters.lane_instructions += n * self.lanes

    def _alone(self) -> float:
        """The address behind which the last workgroup works alone: of the first atomic that counts workgroups."""
        found = (at for at, op in self.program.ops.items() if op.count and op.name in ARRIVALS)
        return min(found, default=float("inf"))

    def _schedule(self, group: Group) -> None:
        ready: list[Group] = [group]
        waiting: list[Group] = []
        shared = group.shared
        while ready or waiting:
            waiting = self._wake(shared, waiting, ready)
            if not ready:
                self._deadlock(waiting)
            first = min(ready, key=lambda g: (g.turn, g.pc))
            signature = first.signature()
            same = [g for g in ready if g.pc == first.pc and (g is first or g.signature() == signature)]
            ready = [g for g in ready if not any(g is other for other in same)]
            others = min((g.pc for g in ready if g.turn <= first.turn), default=None)
            parts, waits = self._advance(Group.joined(same), others, bool(ready or waiting))
            ready += parts
            if len(parts) == 1 and parts[0].rests >= _RESTS:
                self._all_rest(ready, waiting)
            waiting += waits

    def _wake(self, shared: SharedState, waiting: list[Group], ready: list[Group]) -> list[Group]:
        still = []
        for g in waiting:
            passing = shared.may_pass(g)
            if not passing.any():
                still.append(g)
                continue
            go = g if passing.all() else g.part(passing)
            if go is not g:
                still.append(g.part(~passing))
            go.waits += 1
            go.clock = None
            go.pc = self.program.at(go.pc).next
            ready.append(go)
        return still

    def _advance(self, g: Group, others: int | None, shared: bool) -> tuple[list[Group], list[Group]]:
        """Run until the group splits, waits, ends, or meets others.

        Returns the groups that are ready and those that wait.
        """
        ops, limit, started = self.program.ops, self.core.limit, 0
        budget = min(_SLICE if shared else limit, limit - int(g.steps.max()) + 1)
        pc = g.pc
        op: CompiledInstruction | None = None
        try:
            while True:
                g.pc = pc
                op = ops.get(pc)
                if op is None:
                    op = self.program.at(pc)
                if g.undef_v & op.use_v or g.undef_s & op.use_s or g.pend_v & op.touch_v or g.pend_s & op.touch_s:
                    _hazards(g, op)
                op.count += g.n
                started += 1
                result = op.fn(g)
                if result is None:
                    pc = op.next
                elif result.__class__ is int:
                    pc = result
                else:
                    g.steps += started
                    return self._event(g, op, result)
                if (others is not None and pc >= others) or started >= budget:
                    break
        except (ShaderError, GpuFault, UnknownInstruction) as error:
            self._fail(g, op, error)
        g.pc = pc
        g.steps += started
        if int(g.steps.max()) > limit:
            text_ = f"a wave has executed {limit} instructions: an endless loop"
            self._fail(g, op, ShaderError(text_, wave=int(np.argmax(g.steps))))
        if started >= budget:
            g.turn += 1
        return [g], []

    def _event(self, g: Group, op: CompiledInstruction, result: Any) -> tuple[list[Group], list[Group]]:
        if result is END:
            try:
                g.shared.end(g)
            except ShaderError as error:
                self._fail(g, op, error)
            return [], []
        if result is WAIT:
            return [], [g]
        if result is REST:
            g.turn += 1
            g.pc = op.next
            seen = self.memory.order.changes + g.shared.changes
            g.rests, g.seen = (g.rests + 1 if g.seen == seen else 1), seen
            return [g], []
        if isinstance(result, Split):
            g.pc = op.next
            behind, jumped = g.part(~result.taken), g.part(result.taken)
            jumped.pc = result.target
            return [behind, jumped], []
        assert isinstance(result, Targets)
        parts = []
        for target in np.unique(result.addresses).tolist():
            part = g.part(result.addresses == target)
            part.pc = target
            parts.append(part)
        return parts, []

    def _deadlock(self, waiting: list[Group]) -> NoReturn:
        g = waiting[0]
        shared = g.shared
        missing = int(shared.live[g.workgroup[0]] - shared.signalled[g.workgroup[0]])
        text_ = f"waits forever: {missing} waves of its workgroup never signal the barrier"
        self._fail(g, self.program.at(g.pc), ShaderError(text_, wave=0))

    def _all_rest(self, ready: list[Group], waiting: list[Group]) -> None:
        """Raises `GpuHang` where all waves that could go on have slept again and again, and nothing has changed."""
        g = ready[-1]
        if any(other.rests < _RESTS or other.seen != g.seen for other in ready):
            return
        n = len(np.unique(np.concatenate([other.workgroup for other in (*ready, *waiting)])))
        text_ = f"deadlock: {n} workgroups wait, {self.not_started} never started"
        if self.not_started:
            text_ += "; no more fit on the card at once"
        self._fail(g, None, ShaderError(text_, wave=0))

    def _fail(self, g: Group, op: CompiledInstruction | None, error: Exception) -> NoReturn:
        at = self._where(g, op)
        if isinstance(error, GpuFault):
            wave, lane = _lane_of(g, error.va)
            place = f"{at}{self._wave(g, wave)}{'' if lane is None else f', lane {lane}'}"
            raise GpuFault(error.va, error.access, f"{error.reason}; {place}", error.nearest) from error
        if isinstance(error, ShaderError):
            lane_text = "" if error.lane is None else f", lane {error.lane}"
            raise GpuHang(f"{error}; {at}{self._wave(g, error.wave)}{lane_text}") from error
        raise GpuHang(f"{error}; {at}{self._wave(g, None)}") from error

    def _where(self, g: Group, op: CompiledInstruction | None) -> str:
        name = self.core.name_of(self.dispatch.address) if self.core.name_of else None
        kernel = f"kernel {name + ' ' if name else ''}at {self.dispatch.address:#x}"
        what = (
            f"`{text(op.ins, self.program.gfx).strip()}`" if op is not None and op.address == g.pc else "an instruction"
        )
        return f"{what} at {g.pc:#x} (+{g.pc - self.dispatch.address:#x}) of {kernel}"

    def _wave(self, g: Group, wave: int | None) -> str:
        k = 0 if wave is None else wave
        per = g.shared.waves
        number = int(g.ids[k])
        return f", wave {number % per} of workgroup {number // per}"


def _lane_of(g: Group, va: int) -> tuple[int | None, int | None]:
    if g.access is None:
        return None, None
    addresses, waves, lanes, n = g.access
    hit = (addresses <= np.uint64(va & (1 << 48) - 1)) & (np.uint64(va & (1 << 48) - 1) < addresses + np.uint64(n))
    if not hit.any():
        return None, None
    k = int(np.argmax(hit))
    return int(waves[k]), int(lanes[k])


def _hazards(g: Group, op: CompiledInstruction) -> None:
    """Raise `ShaderError` if the instruction uses a register that was never written or is still to arrive."""
    if g.pend_v & op.touch_v or g.pend_s & op.touch_s:
        conflict(g, (op.use_v, op.use_s), (op.touch_v, op.touch_s), op.counters)
    undefined = g.undef_v & op.use_v
    while undefined:
        register = (undefined & -undefined).bit_length() - 1
        undefined &= undefined - 1
        defined = g.v_defined[register]
        bad = ~defined if g.mask is None else g.mask > defined
        if np.count_nonzero(bad):
            wave, lane = (int(k) for k in np.argwhere(bad)[0])
            raise ShaderError(f"v{register} is read and was never written", wave=wave, lane=lane)
    undefined = g.undef_s & op.use_s
    while undefined:
        register = (undefined & -undefined).bit_length() - 1
        undefined &= undefined - 1
        missing = ~g.s_defined[register]
        if missing.any():
            name = {106: "vcc_lo", 107: "vcc_hi", 125: "m0", SCC: "scc"}.get(register, f"s{register}")
            if 108 <= register < 124:
                name = f"ttmp{register - 108}"
            raise ShaderError(f"{name} is read and was never written", wave=int(np.argmax(missing)))
