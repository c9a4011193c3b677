"""The proof of resident programs, which `auto` asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from amdgpu_emu.models import R9700
from tests.backends.amdgpu.stage import amd_backend
from zinc_rt.backends.amdgpu import resident_proof
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.diagnostics.crash_log import Contacts, Situation
from zinc_rt.kernels.amd import resident

ABOUT = Situation("machine", "6.17", "card", (1, 2), "1", "cs")


@pytest.fixture
def backend() -> Iterator[AmdBackend]:
    with amd_backend("cs", models=[replace(R9700, cu=4)]) as (made, _):
        yield made


def test_a_card_that_runs_them(backend: AmdBackend, tmp_path: Path) -> None:
    """It is remembered for the next start, and of this interface alone."""
    contacts = Contacts(tmp_path, backend.gpu.interface.linux)
    resident_proof.bind(backend, contacts, ABOUT)
    assert not backend.resident.proven
    assert resident_proof.prove(backend, contacts, ABOUT) == ", as a resident program too"
    assert contacts.recall(ABOUT) is None
    (program,) = backend.resident.programs
    assert program.kernel is not None
    resident_proof.bind(backend, contacts, ABOUT)
    assert backend.resident.proven
    resident_proof.bind(backend, contacts, replace(ABOUT, interface="kfd"))
    assert not backend.resident.proven


def test_a_card_that_does_not(backend: AmdBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workgroups never come all, which is no failure of the interface."""
    contacts = Contacts(tmp_path, backend.gpu.interface.linux)
    resident_proof.bind(backend, contacts, ABOUT)
    fits, backend.resident.patience = backend.resident.fitting, 20
    monkeypatch.setattr(backend.resident, "fitting", lambda kernel: 2 * fits(kernel) + 2)
    assert "do not all run at once" in resident_proof.prove(backend, contacts, ABOUT)
    known = contacts.recall(resident_proof.situation_of(ABOUT))
    assert known is not None
    assert "its meeting 1 in time" in known.reason
    resident_proof.bind(backend, contacts, ABOUT)
    assert not backend.resident.proven
    assert contacts.recall(ABOUT) is None


def test_user_queues_have_none(tmp_path: Path) -> None:
    with amd_backend("umq") as (made, _):
        assert resident_proof.prove(made, Contacts(tmp_path, made.gpu.interface.linux), ABOUT) == ""


def test_patience_is_less_than_the_kernels() -> None:
    """At a sleep of 64 cycles and a way of 110 ns to the L2 a program ends before two seconds, and after 0.2."""
    assert 0.2 < resident.PATIENCE * (64 / 3e9 + 110e-9) < 2
    assert resident.PATIENCE * (64 / 2.3e9 + 160e-9) < 2
