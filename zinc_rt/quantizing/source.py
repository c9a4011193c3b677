"""The source of a new file: an open GGUF file, or an object like one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf.tensors import TensorInfo


class StoredValues(Protocol):
    """Metadata: values by key, and their bytes."""

    def __iter__(self) -> Iterator[str]:
        """The keys, in the order of the file."""

    def get(self, key: str, /) -> Any:
        """A value, None where there is none."""

    def stored(self, key: str) -> bytes:
        """The bytes of a value with its type, as `GGUFWriter.add_stored` takes them."""


class Source(Protocol):
    """A model's metadata and tensors. `GGUFFile` is one."""

    @property
    def path(self) -> str:
        """What messages call it."""

    @property
    def paths(self) -> Sequence[str]:
        """The files that it is read from."""

    @property
    def alignment(self) -> int:
        """Bytes; tensors start at multiples of it."""

    @property
    def metadata(self) -> StoredValues:
        """By key, in the order of the file."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """By name, in the order of the file."""

    def rows(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """Some rows of a tensor: uint8[stop - start, row_bytes]. Threads may call it at once."""

    def release(self, name: str) -> None:
        """Free the memory behind a tensor's bytes."""

    def check_unwritten(self) -> None:
        """Raise FileChanged when a file was written to since it was opened."""
