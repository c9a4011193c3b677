"""`ServedAdapters`: the adapters of a server: their numbers, names and scales, and those that a request has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from zinc_rt.adapters.file import AdapterFile
from zinc_rt.adapters.slots import AdapterRequest
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.serving.api.errors import invalid
from zinc_rt.utils.checks import show

Chosen = tuple[tuple[str, float], ...]
"""Names and scales, as `Submit.adapters` has them."""


class LoraScale(msgspec.Struct):
    """An adapter by its number, and the scale of what it adds."""

    id: int
    scale: float


@dataclass(slots=True)
class ServedAdapter:
    """One adapter. id: its number. scale: for requests that choose none. sha256: see `ServedAdapters.sha256`."""

    id: int
    name: str
    path: str
    scale: float
    task_name: str
    prompt_prefix: str
    sha256: str = ""

    @classmethod
    def of(cls, number: int, file: AdapterFile, request: AdapterRequest, sha256: str) -> Self:
        """That of an open file."""
        name = request.name or file.name
        return cls(number, name, str(request.path), request.scale, file.task_name, file.prompt_prefix, sha256)


class ServedAdapters:
    """Belongs to the event loop's thread. slots: room for more, which may be loaded while the server runs. kept: the
    folder of files' hashes, None where nobody asks for these.
    """

    def __init__(self, entries: Iterable[ServedAdapter] = (), slots: int = 0, kept: Path | None = None) -> None:
        self._by_id = {entry.id: entry for entry in entries}
        self.slots, self._kept = slots, kept

    @classmethod
    def read(
        cls, model: GGUFFile, requests: Iterable[AdapterRequest], slots: int | None = 0, kept: Path | None = None
    ) -> Self:
        """Those of a command line, in its order. slots, kept: see the class.

        Raises `AdapterError`, `GGUFError`, `UsageError`.
        """
        made, found = cls((), slots or 0, kept), list[ServedAdapter]()
        for number, request in enumerate(requests):
            with AdapterFile.open(request.path) as file:
                file.check_fits(model)
                found.append(ServedAdapter.of(number, file, request, made.sha256(file)))
        names = [entry.name for entry in found]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"two adapters have the name {show(twice)}; --lora-modules NAME=FILE gives another one")
        made._by_id = {entry.id: entry for entry in found}
        return made

    @property
    def entries(self) -> Sequence[ServedAdapter]:
        """All, by number."""
        return [self._by_id[number] for number in sorted(self._by_id)]

    def find(self, name: str | None) -> ServedAdapter | None:
        """The adapter of a name."""
        return next((entry for entry in self._by_id.values() if entry.name == name), None)

    def sha256(self, file: AdapterFile) -> str:
        """The hash of a file's bytes; empty where records need none. For another thread: it reads all of the file."""
        return "" if self._kept is None else file.file.sha256(self._kept)

    def hashes(self, chosen: Chosen) -> dict[str, str]:
        """The hashes of chosen adapters by name: later another file may have the name."""
        return {entry.name: entry.sha256 for name, _ in chosen if (entry := self.find(name)) is not None}

    def add(self, file: AdapterFile, request: AdapterRequest, sha256: str) -> ServedAdapter:
        """One more, with the next number."""
        made = ServedAdapter.of(max(self._by_id, default=-1) + 1, file, request, sha256)
        self._by_id[made.id] = made
        return made

    def remove(self, name: str) -> None:
        """No request gets it any more."""
        self._by_id = {number: entry for number, entry in self._by_id.items() if entry.name != name}

    def rescale(self, scales: Iterable[LoraScale]) -> None:
        """Other scales for requests that choose none; 0 for those that are not named. Raises `ApiError`."""
        wanted = self._scales(scales)
        for entry in self._by_id.values():
            entry.scale = wanted.get(entry.id, 0.0)

    def chosen(self, model: str | None, lora: Sequence[LoraScale] | None) -> Chosen:
        """The adapters of a request: those that it names by number, else that whose name it gives as its model, else
        those that are for all. Raises `ApiError`.
        """
        if lora:
            wanted = self._scales(lora)
            return tuple((self._by_id[number].name, scale) for number, scale in sorted(wanted.items()) if scale)
        if (own := self.find(model)) is not None:
            return ((own.name, 1.0),)
        return tuple((entry.name, entry.scale) for entry in self.entries if entry.scale)

    def _scales(self, scales: Iterable[LoraScale]) -> dict[int, float]:
        wanted: dict[int, float] = {}
        for one in scales:
            if one.id not in self._by_id:
                numbers = ", ".join(map(str, sorted(self._by_id))) or "none"
                raise invalid(f"lora names adapter {one.id}; there are {numbers}", "lora")
            wanted[one.id] = one.scale
        return wanted

    def shown(self) -> list[dict[str, Any]]:
        """As llama.cpp's server lists them."""
        return [
            {
                "id": entry.id,
                "path": entry.path,
                "scale": entry.scale,
                "task_name": entry.task_name,
                "prompt_prefix": entry.prompt_prefix,
            }
            for entry in self.entries
        ]
