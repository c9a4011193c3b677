"""A model's constants, as a backend asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt


class Constants(Mapping[str, npt.NDArray[np.float32]]):
    """A model's constants for a context, each made when the backend asks for it, which may be while weights load."""

    def __init__(self, makers: Mapping[str, Callable[[int], npt.NDArray[np.float32]]], n_ctx: int) -> None:
        self._makers, self._n_ctx = makers, n_ctx

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        return self._makers[name](self._n_ctx)

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
