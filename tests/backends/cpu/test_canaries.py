"""Native code writes nowhere but in its buffers: behind each lies a gap of known bytes, which every step must leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.helpers import T, engine_for, logits_of, random_tokens
from tests.models.families import CASES, ON_THE_CPU, soon
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.backends.cpu import backend, binding, few_rows
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.engine.engine import SequenceChunk
from zinc_rt.errors import BackendError
from zinc_rt.mem.arena import REACH, Lifetime, align_up

GAP = 8192
CANARY = 0xA5
ROWS = range(1, 17)
Area = npt.NDArray[np.uint8]


@dataclass
class Canaries:
    """Memory with gaps. own: bytes that may be written, by area, as (first, end) pairs."""

    areas: list[tuple[Area, list[tuple[int, int]]]] = field(default_factory=list)
    placed: list[list[tuple[int, int]]] = field(default_factory=list)

    def arena(self, n_bytes: int) -> Area:
        """Of temporaries, which were placed in the order in which their arenas are made."""
        area = huge_bytes(n_bytes)
        area[:] = CANARY
        self.areas.append((area, self.placed.pop(0)))
        return area

    def array(self, n_bytes: int, *, plain: int = 0) -> Area:
        """Of an input, an output or a state."""
        area = huge_bytes(n_bytes + GAP)
        area[n_bytes:] = CANARY
        self.areas.append((area, [(0, n_bytes + REACH)]))
        return area[:n_bytes]

    def place(self, lifetimes: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
        """Every temporary for itself for ever."""
        offsets, at = {}, GAP
        for item in lifetimes:
            offsets[item.key] = at
            at += align_up(item.size) + GAP
        self.placed.insert(0, [(offsets[item.key], offsets[item.key] + item.size) for item in lifetimes])
        return offsets, at

    def few_rows(self, found: few_rows.FewRows | None) -> few_rows.FewRows | None:
        if found is not None:
            starts = [*found.places.values(), found.n_bytes]
            self.placed.append([(at, end - GAP) for at, end in pairwise(starts)])
        return found

    def broken(self) -> list[tuple[int, int]]:
        """The first byte written in each area where none may be: its number and offset."""
        out = []
        for number, (area, own) in enumerate(self.areas):
            wrong = area != CANARY
            for first, end in own:
                wrong[first:end] = False
            if wrong.any():
                out.append((number, int(wrong.argmax())))
        return out


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Canaries]:
    found = Canaries()
    made: Callable[..., few_rows.FewRows | None] = backend.few_rows
    monkeypatch.setattr(few_rows, "align_up", lambda n_bytes: align_up(n_bytes) + GAP)
    monkeypatch.setattr(backend, "few_rows", lambda *args: found.few_rows(made(*args)))
    monkeypatch.setattr(backend, "huge_bytes", found.array)
    monkeypatch.setattr(binding, "huge_bytes", found.arena)
    monkeypatch.setattr(binding, "place", found.place)
    yield found
    assert found.areas


@pytest.mark.parametrize("name", soon(ON_THE_CPU))
def test_steps_write_in_their_buffers_alone(name: str, tmp_path: Path, canaries: Canaries) -> None:
    path = write_case(tmp_path / "model.gguf", CASES[name], T.F32).path
    tokens = random_tokens(7, max(ROWS), N_VOCAB - 2)
    want = logits_of(path, tokens, n_ctx=64, threads=1)  # whose bits are the reference's, as other tests say
    for threads, counts in ((1, ROWS), (3, (1, 5, 16))):
        canaries.areas.clear()
        with engine_for(path, n_ctx=64, n_batch=max(ROWS), threads=threads) as engine:
            slot = engine.open_sequence()
            for n in counts:
                engine.truncate(slot, 0)
                got = engine.step([SequenceChunk(slot, 0, tokens[:n], logits_indices=range(n))]).logits
                assert not canaries.broken(), f"{n} rows, {threads} threads"
                np.testing.assert_array_equal(got.view(np.uint32), want[:n].view(np.uint32))


@pytest.mark.parametrize("which", ["arena_bytes", "places", "few"])
def test_a_placement_without_room_is_refused(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any native code runs, by the operation's and the buffer's names."""
    path = write_case(tmp_path / "model.gguf", CASES["granite"], T.F32).path
    made = binding.bind_program

    def cut(layout: binding.CpuLayout, *args: Any) -> Any:
        if which == "arena_bytes":
            layout = replace(layout, arena_bytes=layout.arena_bytes - 2 * REACH)
        elif which == "places":
            layout = replace(layout, places=dict.fromkeys(layout.places, 0))
        else:
            assert layout.few_rows is not None
            layout = replace(layout, few_rows=replace(layout.few_rows, places=dict.fromkeys(layout.few_rows.places, 0)))
        return made(layout, *args)

    monkeypatch.setattr(backend, "bind_program", cut)
    with pytest.raises(BackendError, match=r"its buffer .* needs \d+ bytes in the largest step and has \d+"):  # noqa: SIM117
        with engine_for(path, threads=2):
            pass
