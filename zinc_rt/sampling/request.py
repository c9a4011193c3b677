"""Requests for the tokens of a step, and a step's answer: the same tokens wherever they are chosen."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from zinc_rt.sampling.processors import Processors, process
from zinc_rt.sampling.sampler import Mask, NoToken, Sampled, Sampler, check_mask


@dataclass(frozen=True)
class SamplingRequest:
    """How to choose the token of one wanted row. history: the text's tokens so far, prompt included; it may grow
    between steps. Of a row's logits the first `sampler.n_vocab` count; the rest are padding of the embedding.

    mask: u32[words], the tokens that may be chosen: token i where bit i % 32 of word i // 32 is set; it may change
    between steps. None: all. Raises `UsageError` for an array of another form.
    processors: functions that change the logits before all else. Only the host calls them.
    """

    sampler: Sampler
    history: Sequence[int]
    mask: Mask | None = None
    processors: Processors = ()

    def __post_init__(self) -> None:
        if self.mask is not None:
            check_mask(self.mask, self.sampler.n_vocab)


class SampledStep(Protocol):
    """A step that was asked for tokens. Valid until the next step."""

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """f32[n_logits, n_vocab]; fetched from the device if they are still there."""
        ...

    @property
    def seconds(self) -> float:
        """How long choosing tokens has taken so far, on the processor: what a GPU takes is a part of its step."""
        ...

    def token(self, row: int = 0) -> Sampled:
        """The token of a wanted row; its sampler is one token further then. Asked again, it is the same token.

        Raises `NoToken`: `DegenerateLogits` where the row's parameters and mask leave none, `ProcessorFailed`.
        """
        ...

    def tokens(self) -> list[Sampled]:
        """The tokens of all wanted rows. Where a row has none, its `NoToken` is raised after all others were chosen:
        `token` then has them.
        """
        ...


class RowTokens(ABC):
    """Tokens by row, each chosen once."""

    def __init__(self, requests: Sequence[SamplingRequest]) -> None:
        self._requests = requests
        self._chosen: dict[int, Sampled] = {}
        self.seconds = 0.0

    @abstractmethod
    def _choose(self, row: int) -> Sampled:
        """Choose the token of a row; its sampler goes on. Raises `NoToken`."""

    def token(self, row: int = 0) -> Sampled:
        """See `SampledStep`."""
        known = self._chosen.get(row)
        if known is None:
            began = time.perf_counter()
            try:
                known = self._chosen[row] = self._choose(row)
            finally:
                self.seconds += time.perf_counter() - began
        return known

    def tokens(self) -> list[Sampled]:
        """See `SampledStep`."""
        failed: NoToken | None = None
        began, chosen = time.perf_counter(), self._chosen
        for row in range(len(self._requests)):
            if row not in chosen:
                try:
                    chosen[row] = self._choose(row)
                except NoToken as error:
                    failed = failed or error
        self.seconds += time.perf_counter() - began
        if failed is not None:
            raise failed
        return [chosen[row] for row in range(len(self._requests))]


class HostSampled(RowTokens):
    """Tokens chosen here. likeliest: i32[n_logits], the first of the largest logits of each row."""

    def __init__(
        self,
        requests: Sequence[SamplingRequest],
        logits: npt.NDArray[np.float32],
        likeliest: npt.NDArray[np.int32],
    ) -> None:
        super().__init__(requests)
        self.logits = logits
        self._likeliest = likeliest

    def _choose(self, row: int) -> Sampled:
        request, logits = self._requests[row], self.logits[row]
        n_vocab = request.sampler.n_vocab
        if request.processors:
            own = logits[:n_vocab]
            changed = process(request.processors, request.history, own)
            return request.sampler.sample(changed, request.history, None, request.mask, own)
        likeliest = int(self._likeliest[row]) if n_vocab == len(logits) else None
        return request.sampler.sample(logits[:n_vocab], request.history, likeliest, request.mask)


class DeviceSampling(Protocol):
    """Chooses the tokens of some rows on the device that has their logits; a backend's `sampling_for` makes it."""

    def write(self, requests: Sequence[SamplingRequest]) -> None:
        """Take the rows' parameters and histories, before the step."""
        ...

    def sampled(
        self,
        requests: Sequence[SamplingRequest],
        logits: npt.NDArray[np.float32],
        likeliest: npt.NDArray[np.int32],
        fetch: Callable[[], None],
    ) -> SampledStep:
        """The step's answer, after it. logits: the host's view of them, which fetch fills; likeliest: as `HostSampled`
        takes it.
        """
        ...
