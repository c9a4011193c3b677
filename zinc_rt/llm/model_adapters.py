"""What `Model` does with adapters."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Self

from zinc_rt.adapters.slots import AdapterInfo, AdapterSlots
from zinc_rt.llm.adapters import Adapters, chosen
from zinc_rt.llm.input_processor import InputProcessor
from zinc_rt.llm.logits import LogitsRows
from zinc_rt.scheduler.in_process import CoreLock, InProcessClient
from zinc_rt.utils.checks import path_text


class ModelAdapters:
    """The part of a model that chooses, loads and unloads adapters."""

    client: InProcessClient
    input_processor: InputProcessor
    _rows: LogitsRows
    _lock: CoreLock
    _adapters: AdapterSlots | None
    _origin: Self | None

    def check_ready(self) -> None:
        """See `Model.check_ready`."""
        raise NotImplementedError

    def with_adapter(self, adapters: Adapters, scale: float = 1.0) -> Self:
        """The same model for texts with other adapters: its `generate`, `chat`, `logits` and so on have them. Closing
        it closes the model.

        Args:
            adapters: a name, a list of names, or scales by name; None for the model without adapters.
            scale: of what those add that come without one; 0 for nothing.

        Raises:
            UnknownAdapter: no adapter of a name is loaded.
            UsageError: an argument is wrong.
            ModelClosed, FileChanged: as `generate`.
        """
        self.check_ready()
        wanted = chosen(adapters, scale)
        with self._lock, self.client.core.adapted(wanted):
            made = copy(self)
        made._origin = self if self._origin is None else self._origin
        for name in ("input_processor", "_rows"):
            own = copy(getattr(self, name))
            own.adapters = lambda: wanted
            setattr(made, name, own)
        return made

    @property
    def adapters(self) -> list[AdapterInfo]:
        """The adapters that are loaded."""
        return [] if self._adapters is None else self._adapters.loaded

    def load_adapter(self, path: str | Path, name: str | None = None, scale: float = 0.0) -> None:
        """Load an adapter into room that `lora_slots` made.

        Args:
            path: its file.
            name: None for that of the file.
            scale: of what it adds to texts for which no adapter is chosen; 0 for nothing.

        Raises:
            AdapterError, GGUFError: the file cannot be used, or not with this model.
            UsageError: there is no room, or the name is taken.
            ModelClosed, FileChanged: as `generate`.
        """
        self.check_ready()
        with self._lock:
            self.client.core.load_adapter(str(path_text("path", path)), name, scale)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter, once the texts that use it have ended. Raises `UnknownAdapter`, `UsageError`."""
        self.check_ready()
        with self._lock:
            self.client.core.unload_adapter(name)
