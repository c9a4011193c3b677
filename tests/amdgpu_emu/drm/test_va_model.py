"""Random sequences of GEM_VA against a model that knows single pages only."""

from __future__ import annotations

import errno
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from amdgpu_emu.machine import Machine
from tests.amdgpu_emu.drm.card import DATA_VA, Card
from zinc_rt.utils.linux import PAGE

PAGES, BUFFER_PAGES = 12, 6
MAP, UNMAP, CLEAR, REPLACE = 1, 2, 3, 4
Run = dict[int, tuple[int, int]]  # page of the address space: buffer, page of it

operations = st.tuples(
    st.sampled_from([MAP, MAP, UNMAP, CLEAR, REPLACE, REPLACE]),
    st.sampled_from([1, 2]),
    st.integers(0, PAGES - 1),
    st.integers(1, 5),
    st.integers(0, BUFFER_PAGES - 1),
)


def without(runs: list[Run], pages: range) -> list[Run]:
    """The mappings with a hole, in as many pieces as are left."""
    left: list[Run] = []
    for run in runs:
        pieces: list[Run] = [{}]
        for page in sorted(run):
            if page in pages:
                pieces.append({})
            else:
                pieces[-1][page] = run[page]
        left += [piece for piece in pieces if piece]
    return left


def expected(runs: list[Run], op: int, handle: int, first: int, n: int, offset: int) -> tuple[int, list[Run]]:
    """Errno and the mappings afterwards."""
    pages = range(first, first + n)
    new = {page: (handle, offset + page - first) for page in pages}
    if op == UNMAP:
        found = [run for run in runs if min(run) == first and run[first][0] == handle]
        return (0, [run for run in runs if run not in found]) if found else (errno.ENOENT, runs)
    if op == CLEAR:
        return 0, without(runs, pages)
    if offset + n > BUFFER_PAGES:
        return errno.EINVAL, runs
    if op == MAP:
        taken = any(page in run for run in runs for page in pages)
        return (errno.EINVAL, runs) if taken else (0, [*runs, new])
    return 0, [*without(runs, pages), new]


@settings(max_examples=60, deadline=None)
@given(st.lists(operations, max_size=25))
def test_addresses_follow_the_model(steps: list[tuple[int, int, int, int, int]]) -> None:
    with Machine() as machine:
        card = Card(machine)
        handles = {card.create(BUFFER_PAGES * PAGE) for _ in range(2)}
        buffers = {card.file.gems.get(handle).bo: handle for handle in handles}  # type: ignore[union-attr]
        runs: list[Run] = []
        for op, handle, first, n, offset in steps:
            code, runs = expected(runs, op, handle, first, n, offset)
            try:
                card.va(handle, DATA_VA + first * PAGE, n * PAGE, op, offset * PAGE)
                answer = 0
            except OSError as error:
                answer = error.errno or -1
            assert answer == code
            mappings = list(card.file.vm)
            assert all(a.end <= b.va for a, b in pairwise(mappings))
            seen = [
                {(m.va - DATA_VA) // PAGE + i: (buffers[m.bo], m.offset // PAGE + i) for i in range(m.size // PAGE)}
                for m in mappings
            ]
            assert seen == sorted(runs, key=min)
        card.close()
