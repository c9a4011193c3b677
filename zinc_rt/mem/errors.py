"""Errors of the memory layer."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class MemoryPlanError(ZincError):
    """The model, with the options that were given, does not fit into the available memory."""


class PagesExhausted(ZincError):
    """No free KV page is left for a sequence that needs one."""
