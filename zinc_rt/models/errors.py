"""Errors of the model layer."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class ModelError(ZincError):
    """The file cannot be run as a model."""
