"""`PartName`: the file name of a part of a split model, `NAME-00001-of-00003.gguf`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

_NAME: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.ASCII | re.IGNORECASE | re.DOTALL)
_ENDING: Final = re.compile(r"\.gguf$", re.IGNORECASE)


class PartName(NamedTuple):
    """stem: the model's name, maybe with folders before it. number: of the part, from 1. n_parts: of the model."""

    stem: str
    number: int
    n_parts: int

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The parts of a file's name; None for one of a model in one file."""
        found = _NAME.fullmatch(name)
        return None if found is None else cls(found[1], int(found[2]), int(found[3]))

    @property
    def ending(self) -> str:
        """What follows the model's name."""
        return f"-{self.number:05d}-of-{self.n_parts:05d}.gguf"


def whole_stem(name: str) -> str:
    """A model's name by the name of its file, or of its first one."""
    part = PartName.parse(name)
    return _ENDING.sub("", name) if part is None else part.stem
