"""Errors of the memory layer."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class MemoryPlanError(ZincError):
    """The model, or what is asked of it, does not fit into the memory that is available."""


class PagesExhausted(ZincError):
    """No free KV page is left for a sequence that needs one."""
