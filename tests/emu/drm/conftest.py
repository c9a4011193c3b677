"""An open render node on the emulated machine of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emu.drm.card import Card
from zinc_rt.emu.machine import Machine


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
