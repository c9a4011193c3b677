"""`Closing`: an object that is closed at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from zinc_rt.errors import ZincError


class Closing(ABC):
    """Something that holds memory, files or processes until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def closed_on_failure(close: Callable[[], None]) -> Iterator[None]:
    """Close what was opened where the `with` block fails. The block's error is the one to tell."""
    try:
        yield
    except BaseException:
        with suppress(ZincError):
            close()
        raise
