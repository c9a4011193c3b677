"""Requests for the tokens of a step, and a step's answer: the same tokens wherever they are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from zinc_rt.sampling.sampler import Sampled, Sampler

if TYPE_CHECKING:
    from zinc_rt.kernels.rdna.sampling_plan import SamplingShape


@dataclass(frozen=True)
class SamplingRequest:
    """How to choose the token of one wanted row. history: the text's tokens so far, prompt included; it may grow
    between steps. Of a row's logits the first `sampler.n_vocab` count; the rest are padding of the embedding.
    """

    sampler: Sampler
    history: Sequence[int]


class SampledStep(Protocol):
    """A step that was asked for tokens. Valid until the next step."""

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """f32[n_logits, n_vocab]; fetched from the device if they are still there."""
        ...

    def token(self, row: int = 0) -> Sampled:
        """The token of a wanted row; its sampler is one token further then. Ask once. Raises `DegenerateLogits`."""
        ...


class HostSampled:
    """Tokens chosen here. likeliest: i32[n_logits], the first of the largest logits of each row."""

    def __init__(
        self,
        requests: Sequence[SamplingRequest],
        logits: npt.NDArray[np.float32],
        likeliest: npt.NDArray[np.int32],
    ) -> None:
        self.logits = logits
        self._requests, self._likeliest = requests, likeliest

    def token(self, row: int = 0) -> Sampled:
        """See `SampledStep`."""
        request, logits = self._requests[row], self.logits[row]
        n_vocab = request.sampler.n_vocab
        likeliest = int(self._likeliest[row]) if n_vocab == len(logits) else None
        return request.sampler.sample(logits[:n_vocab], request.history, likeliest)


class DeviceSampling(Protocol):
    """Memory with which a device chooses the tokens of some rows; `sampling.gpu` writes and reads it."""

    @property
    def shape(self) -> SamplingShape:
        """What rows may ask for."""
        ...

    @property
    def rows(self) -> npt.NDArray[Any]:
        """ROW[rows], written before a step."""
        ...

    @property
    def touched(self) -> npt.NDArray[Any]:
        """TOUCHED[rows, n], written before a step."""
        ...

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        """i32[rows], valid after a step."""
        ...

    @property
    def status(self) -> npt.NDArray[np.uint32]:
        """u32[rows], valid after a step."""
        ...
