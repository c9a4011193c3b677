"""`Closing`: an object that is closed at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Something that holds memory, files or processes until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
