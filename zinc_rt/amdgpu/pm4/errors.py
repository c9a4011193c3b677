"""Errors of the packet builder."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class OutOfSpace(ZincError):
    """The caller's buffer cannot hold the packet. The builder's cursor has not moved."""


class InvalidField(ZincError, ValueError):
    """A value does not fit its field, or its packet."""
