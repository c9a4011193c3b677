"""Why a model is not quantised."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class QuantizeError(ZincError):
    """A model cannot be quantised as asked: its tensors, the disk, the file that would be written."""
