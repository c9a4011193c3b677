"""Why a folder is not converted."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class ConvertError(ZincError):
    """A folder cannot be converted: a file is missing, damaged or says what contradicts another one."""


class UnsupportedModel(ConvertError):
    """The folder holds a model, or a variant of one, that is not converted."""
