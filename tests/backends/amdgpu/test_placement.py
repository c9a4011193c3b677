"""Places and barriers of random operations: nothing that is alive is overwritten, and no barrier is too light."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.backends.gpu.lowering import GpuLowered
from zinc_rt.backends.gpu.operations import GpuOperation, Room, StepShape
from zinc_rt.backends.gpu.placement import ALIGNMENT, arena_bytes, phases, placed
from zinc_rt.backends.stages import into_phases

ROWS = st.integers(1, 20)


@st.composite
def lowerings(draw: st.DrawFn) -> GpuLowered:
    """Operations that write names of their own and read some of those before; "in" is there from the start."""
    out = GpuLowered()
    known: list[str] = ["in"]
    for i in range(draw(st.integers(1, 14))):
        reads = tuple(draw(st.lists(st.sampled_from(known[-5:]), min_size=1, max_size=3, unique=True)))
        writes = tuple(f"t{i}{part}" for part in "ab"[: draw(st.integers(1, 2))])
        for name in writes:
            out.rooms[name] = Room("n_rows", draw(st.sampled_from([4, 100, 1024, 5000])))
        known += writes
        out.operations.append(GpuOperation(f"op{i}", _unused, _unused, (), "n_rows", reads, writes))
    into_phases(out.operations)
    return out


def _unused(shape: StepShape) -> Any:
    raise AssertionError("placing runs nothing")


def graph() -> Any:
    """A graph without outputs of its own."""
    return SimpleNamespace(of_kind=lambda *kinds: ())


def lives(lowered: GpuLowered) -> dict[Any, tuple[int, int]]:
    """First and last phase of each name."""
    found: dict[Any, tuple[int, int]] = {}
    for op in lowered.operations:
        for key in (*op.reads, *op.writes):
            if key in lowered.rooms:
                found[key] = (found.get(key, (op.phase, 0))[0], op.phase)
    return found


@given(lowerings(), ROWS, ROWS)
@settings(max_examples=60, deadline=None)
def test_what_is_alive_shares_no_memory(lowered: GpuLowered, n_rows: int, most: int) -> None:
    shape, largest = StepShape(min(n_rows, most), 0, 1), StepShape(most, 0, 1)
    capacity = arena_bytes(graph(), lowered, largest)  # type: ignore[arg-type]
    where, alive = placed(graph(), lowered, shape, capacity), lives(lowered)
    for a, at in where.items():
        end = at + lowered.rooms[a].size(shape)
        assert at % ALIGNMENT == 0
        assert end <= capacity
        for b, other in where.items():
            if a != b and at < other + lowered.rooms[b].size(shape) and other < end:
                assert alive[a][1] < alive[b][0] or alive[b][1] < alive[a][0], f"{a} and {b}"


@given(lowerings(), ROWS)
@settings(max_examples=50, deadline=None)
def test_a_step_of_one_row_needs_no_full_barrier(lowered: GpuLowered, most: int) -> None:
    """However small the arena is that the largest step needs."""
    one = StepShape(1, 0, 1)
    capacity = arena_bytes(graph(), lowered, StepShape(most, 0, 1))  # type: ignore[arg-type]
    where = placed(graph(), lowered, one, capacity)

    def stretch(key: Any) -> tuple[int, int] | None:
        return (where[key], where[key] + lowered.rooms[key].size(one)) if key in where else None

    assert not any(full for _, full in phases(lowered.operations, stretch))


@given(lowerings(), ROWS)
@settings(max_examples=60, deadline=None)
def test_a_light_barrier_rewrites_nothing_that_was_loaded(lowered: GpuLowered, n_rows: int) -> None:
    shape = StepShape(n_rows, 0, 1)
    where = placed(graph(), lowered, shape, 0)  # no room: shared as far as lives allow

    def stretch(key: Any) -> tuple[int, int] | None:
        return (where[key], where[key] + lowered.rooms[key].size(shape)) if key in where else None

    loaded: list[tuple[int, int]] = []
    done: list[GpuOperation] = []
    for part, full in phases(lowered.operations, stretch):
        touched = {key for op in part for key in op.writes}
        assert all(not touched & set(op.reads) for op in part), "one of them reads what another one writes"
        stored = [stretch(key) for key in touched]
        hit = any(s and s[0] < b and a < s[1] for s in stored for a, b in loaded)
        assert full == hit, "the full barrier where it is needed, and nowhere else"
        if full:
            loaded.clear()
        loaded += [s for op in part for key in op.reads if (s := stretch(key)) is not None]
        done += part
    assert done == lowered.operations
