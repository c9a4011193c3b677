"""Steps on a card that is slower than expected: the kernel's limit for jobs, with and without cutting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.machine import Machine
from tests.amdgpu.queue.stage import INTERFACES, NODE, machine
from tests.backends.amdgpu.stage import check, kernels
from tests.backends.cpu.test_graphs import short_case
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.errors import DeviceLost

SEED = 101
WORK_A_SECOND = 3e6
"""Of the card: dispatches of a million each, nearly."""


@contextmanager
def slow_card(interface: str) -> Iterator[tuple[AmdBackend, Machine]]:
    """A backend that has already found out how slow the card is, within a factor of two."""
    with machine(shader=ShaderCore(), time_scale=0.2, strict=False) as made:
        made.gpus[0].seconds_of = lambda d: (prod(d.groups) * (1 << 12) + (1 << 20)) / WORK_A_SECOND
        opened = INTERFACES[interface](NODE, linux=made.process())
        with AmdBackend(opened, cache=kernels(), timeout=60.0) as backend:
            backend.gpu.budget.rate = 2 * WORK_A_SECOND
            yield backend, made


def batches(backend: AmdBackend) -> int:
    """Most submissions of a step."""
    return max(len(r.batches) for r in backend._batches[-1].recorded._kept.values())


@pytest.mark.parametrize("interface", ["cs", "umq"])
def test_a_step_in_one_piece_is_reset(interface: str) -> None:
    case, want = short_case(SEED)
    with slow_card(interface) as (backend, made):
        backend.gpu.budget.longest = 1e6
        with pytest.raises(DeviceLost):
            check(backend, case, want)
        assert any("the kernel gives up after 2 s" in line for line in made.dmesg)


@pytest.mark.parametrize("interface", ["cs", pytest.param("umq", marks=pytest.mark.slow)])
def test_cut_it_runs(interface: str) -> None:
    case, want = short_case(SEED)
    with slow_card(interface) as (backend, made):
        check(backend, case, want)
        assert batches(backend) > 1
        assert made.gpus[0].elapsed > made.profile.job_timeout
        assert not made.dmesg
        assert not made.findings
        assert backend.gpu.budget.rate < 1.5 * WORK_A_SECOND


def test_a_queue_whose_waves_can_be_saved_has_no_limit() -> None:
    case, want = short_case(SEED)
    with slow_card("kfd") as (backend, made):
        backend.gpu.budget.longest = 1e6
        check(backend, case, want)
        assert batches(backend) == 1
        assert made.gpus[0].elapsed > made.profile.job_timeout


def test_what_was_recorded_in_large_pieces_is_recorded_anew() -> None:
    """The card turns out slower than it was."""
    case, want = short_case(SEED)
    with slow_card("kfd") as (backend, _):
        pace = backend.gpu.budget
        pace.longest, pace.rate = 0.5, 1e12
        check(backend, case, want)
        assert pace.rate < 1.5 * WORK_A_SECOND
        recorded = backend._batches[-1].recorded
        (key, first), *_ = recorded._kept.items()
        assert not first.suits(pace.most_work)
        assert len(recorded.of(*key)) > len(first.batches)
