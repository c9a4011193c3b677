"""`ModelGuard`: whether a loaded model may compute. It must be open, and its file must be what it was."""

from __future__ import annotations

import time
from typing import Final

from zinc_rt.engine.engine import EngineError
from zinc_rt.gguf import GGUFFile

_LOOK_SECONDS: Final = 0.01


class ModelClosed(EngineError):
    """The model was closed, before a call or while a generation ran."""


class ModelGuard:
    """One guard for a model, and for those that `Model.with_adapter` made of it.

    Attributes:
        closed: whether the model was closed.
    """

    def __init__(self, file: GGUFFile) -> None:
        self._file, self.closed = file, False
        self._looked = 0.0  # when the file was compared with what it was

    def check_open(self) -> None:
        """Before a call. Raises `ModelClosed`, and `FileChanged` when the model's file is another one by now."""
        if self.closed:
            raise ModelClosed("the model is closed; load it again")
        self._looked = time.perf_counter()
        self._file.check_unchanged()

    def check_running(self) -> None:
        """Before a step, with the model's lock held.

        Raises `ModelClosed`, and `FileChanged`, which is looked for no more often than every 10 ms: steps may read from
        the mapped file, where a page that was cut off ends the process.
        """
        if self.closed:
            raise ModelClosed("the model was closed while it generated; load it again")
        if (now := time.perf_counter()) - self._looked > _LOOK_SECONDS:
            self._looked = now
            self._file.check_unwritten()
