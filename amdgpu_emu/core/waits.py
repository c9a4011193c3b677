"""Results that have not arrived yet, and the s_wait_* and s_waitcnt* instructions.

Loads of one counter return in order, scalar loads in any. gfx11 counts scalar loads and LDS with one counter, lgkmcnt:
what of several kinds is under way arrives in any order, so that only waiting for all of it is enough.
"""

from __future__ import annotations

from typing import Final

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.state import Group, Pending, Step
from amdgpu_emu.isa.instruction import Encoding, Instruction, OperandKind

IN_ANY_ORDER: Final = ("kmcnt",)
COUNTERS: Final = ("loadcnt", "storecnt", "samplecnt", "bvhcnt", "expcnt", "dscnt", "kmcnt")
OLDER: Final = ("vmcnt", "vscnt", "expcnt", "lgkmcnt")
"""Of gfx11."""
_LOCAL: Final = ("dscnt", "lgkmcnt")
_FIELDS: Final = (("vmcnt", 10, 63), ("expcnt", 0, 7), ("lgkmcnt", 4, 63))
_NO_COUNTER: Final = (
    "global_inv",
    "buffer_gl0_inv",
    "buffer_gl1_inv",
    "global_wb",
    "global_wbinv",
    "global_prefetch_b8",
    "flat_prefetch_b8",
    "ds_nop",
)


def counters_of(ins: Instruction, gfx: int = 12) -> tuple[str, ...]:
    """The counters that an instruction with a result, or a store to LDS, raises. gfx: 12 or 11."""
    if ins.name == "global_inv":  # counts as a load and keeps its place among them, though it brings nothing
        return ("loadcnt",)
    if ins.name in _NO_COUNTER:
        return ()
    if gfx == 11:
        return tuple(_OLDER[counter] for counter in counters_of(ins))
    if ins.format is Encoding.SMEM:
        return ("kmcnt",) if ins.dst else ()
    if ins.format is Encoding.DS:
        return ("dscnt",)
    if ins.format in (Encoding.GLOBAL, Encoding.SCRATCH, Encoding.BUFFER):
        return ("loadcnt",) if ins.dst else ()
    if ins.format is Encoding.FLAT:
        return ("loadcnt", "dscnt") if ins.dst else ()
    return ()


_OLDER: Final = {"kmcnt": "lgkmcnt", "dscnt": "lgkmcnt", "loadcnt": "vmcnt"}


def _in_any_order(counter: str, queue: list[Pending]) -> bool:
    """Whether results come in any order: scalar loads, and on gfx11 what may take one of two ways."""
    if counter not in OLDER:
        return counter in IN_ANY_ORDER
    return any(pending.scalar or pending.kind.startswith("flat_") for pending in queue)


def stores_under_way(g: Group) -> Pending | None:
    """A store to LDS that has not been waited for, or None."""
    return next((p for counter in _LOCAL for p in g.queues.get(counter, ()) if not p.registers), None)


def issue(g: Group, counter: str, registers: int, scalar: bool, at: int, kind: str) -> None:
    """Note a result that arrives later."""
    g.queues.setdefault(counter, []).append(Pending(registers, scalar, at, kind))
    if scalar:
        g.pend_s |= registers
    else:
        g.pend_v |= registers


def arrive(g: Group, counter: str, left: int) -> None:
    """Wait until at most `left` results of a counter are outstanding."""
    queue = g.queues.get(counter)
    if not queue or len(queue) <= left or (left and _in_any_order(counter, queue)):
        return
    del queue[: len(queue) - left]
    g.pend_v = g.pend_s = 0
    for other in g.queues.values():
        for pending in other:
            if pending.scalar:
                g.pend_s |= pending.registers
            else:
                g.pend_v |= pending.registers


def wait_of(counter: str) -> str:
    """The instruction that waits for a counter, for messages."""
    return f"s_waitcnt {counter}" if counter in OLDER else f"s_wait_{counter}"


def compile_wait(ins: Instruction) -> Step | None:
    """Compile an s_wait_* or s_waitcnt* instruction; None for any other."""
    name, n = ins.name, ins.modifiers.get("simm16", 0) & 0xFFFF
    if name == "s_waitcnt":

        def older(g: Group) -> None:
            for counter, shift, most in _FIELDS:
                arrive(g, counter, n >> shift & most)

        return older
    if name.removeprefix("s_waitcnt_") in OLDER:
        if any(op.kind is not OperandKind.NULL for op in (*ins.src, *ins.dst)):
            raise Unsupported(f"{name} with a register beside null")
        older_counter = name.removeprefix("s_waitcnt_")
        if older_counter == "vscnt":
            return lambda g: _released(g, n & 0x3F, "vscnt")
        return lambda g: arrive(g, older_counter, n & 0x3F)
    if name == "s_wait_idle":

        def idle(g: Group) -> None:
            for counter in COUNTERS:
                arrive(g, counter, 0)
            _released(g, 0)

        return idle
    if name in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        first = name.split("_")[2]

        def both(g: Group) -> None:
            arrive(g, first, n >> 8 & 0x3F)
            arrive(g, "dscnt", n & 0x3F)
            if first == "storecnt":
                _released(g, n >> 8 & 0x3F)

        return both
    counter = name.removeprefix("s_wait_")
    if counter == "storecnt":
        return lambda g: _released(g, n & 0x3F)
    if name.startswith("s_wait_") and counter in COUNTERS:
        return lambda g: arrive(g, counter, n & 0x3F)
    return None


def _released(g: Group, left: int, counter: str = "storecnt") -> None:
    """Wait until at most `left` stores are outstanding; when none is, they all are in the L2."""
    arrive(g, counter, left)
    if not left:
        g.shared.memory.order.released(g.ids)


def conflict(g: Group, use: tuple[int, int], touch: tuple[int, int], counters: tuple[str, ...]) -> None:
    """Raise `ShaderError` if an instruction uses or overwrites a register whose result has not arrived.

    A load may overwrite what an earlier load of the same counter brings, for they return in order.
    """
    for counter, queue in g.queues.items():
        for pending in queue:
            kind = 1 if pending.scalar else 0
            hit = pending.registers & (use[kind] | touch[kind])
            if hit and not pending.registers & use[kind] and counter in counters and not _in_any_order(counter, queue):
                continue
            if hit:
                register = (hit & -hit).bit_length() - 1
                name = f"{'s' if pending.scalar else 'v'}{register}"
                verb = "used" if pending.registers & use[kind] else "overwritten"
                raise ShaderError(
                    f"{name} is {verb} before {pending.kind} at {pending.at:#x} has brought it: {wait_of(counter)} is"
                    " missing or waits for too few"
                )
