"""Why a folder is not converted."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class ConvertError(ZincError):
    """A folder cannot be converted: a file is missing, damaged or says what contradicts another one."""
