"""An open render node on the emulated machine of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amdgpu_emu.machine import Machine
from tests.amdgpu_emu.drm.card import Card


@pytest.fixture
def card(machine: Machine) -> Iterator[Card]:
    """Closed before the machine is, so that only what a test leaks is found."""
    made = Card(machine)
    yield made
    made.close()


@pytest.fixture
def ready(card: Card) -> Card:
    """With buffers and a context."""
    return card.prepare()
