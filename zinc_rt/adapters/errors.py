"""Errors of adapters."""

from __future__ import annotations

from zinc_rt.errors import UsageError, ZincError


class AdapterError(ZincError):
    """The file of an adapter cannot be used, or not with this model."""


class UnknownAdapter(UsageError):
    """No adapter of this name is loaded."""
