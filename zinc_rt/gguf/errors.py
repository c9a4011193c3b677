"""Errors of GGUF files. Every error of this package is a one-line `GGUFError`."""

from __future__ import annotations

from typing import Final

from zinc_rt.errors import ZincError

# Advice that many errors end with.
DAMAGED: Final = "the file is damaged or was converted wrongly"
HOSTILE: Final = "the file is damaged or hostile"
OTHER_FORMAT: Final = "what would run: this model's Q4_K_M or Q8_0 file"
INCOMPLETE: Final = "the file is incomplete or damaged; fetch it again"


class GGUFError(ZincError):
    """A GGUF file cannot be read or written as asked.

    `path` is the file, `offset` the byte in it where the trouble starts; either may be None.
    """

    def __init__(self, problem: str, *, path: str | None = None, offset: int | None = None, hint: str = "") -> None:
        where = f" (at byte {offset})" if offset is not None else ""
        before = f"{path}: " if path else ""
        super().__init__(f"{before}{problem}{where}{'; ' + hint if hint else ''}")
        self.problem = problem
        self.path = path
        self.offset = offset
        self.hint = hint

    def __str__(self) -> str:
        return str(self.args[0])


class FileAccessError(GGUFError):
    """The operating system refuses: missing, a directory, no permission, a read error."""


class FileChanged(GGUFError):
    """The file was rewritten or replaced after it was opened, or was closed."""


class MissingKey(GGUFError, KeyError):
    """The file has no such metadata key or tensor. Also a `KeyError`, as mappings promise."""


class UnsupportedTensorType(GGUFError):
    """The tensor's element type is known by name at most, but cannot be computed with."""


class InvalidBlocks(GGUFError):
    """Raw bytes or floats of a shape, dtype or value that the block format cannot hold."""
