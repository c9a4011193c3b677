"""The host's part of sampling on a GPU: parameters go from a sequence's `Sampler` to the GPU, and tokens come back.

`kernels.gpu.sampling_plan` plans the dispatches; before each submission `fill` writes a row's parameters, and behind
it `accept` turns the row's result into what `Sampler.sample` would have given, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.gpu.sampling_draw import CHOSEN, DEGENERATE, MOST
from zinc_rt.kernels.gpu.sampling_plan import MOST_TOKENS, SamplingShape
from zinc_rt.sampling.arithmetic import step_bits
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import RowTokens, SamplingRequest
from zinc_rt.sampling.sampler import DegenerateLogits, Sampled, Sampler, count_nan


class GpuRows(Protocol):
    """Memory with which a GPU chooses the tokens of some rows."""

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


def shape_of(params: SamplingParams, n_vocab: int, n_context: int) -> SamplingShape | None:
    """The plan that these parameters need; None where only the host can choose: with log-probabilities, with
    top-k above 1024, with a vocabulary above 2^20. n_context: tokens that a text can have.
    """
    keep = _kept(params, n_vocab)
    if params.logprobs is not None or n_vocab > MOST_TOKENS:
        return None
    whole = not params.greedy and keep > MOST
    if whole and keep < n_vocab:
        return None
    recent = n_context if params.repeat_last_n < 0 else min(params.repeat_last_n, n_context)
    touched = len(params.logit_bias) + (recent if params.has_penalties else 0)
    if params.greedy or (whole and params.top_p == 1.0):
        candidates = 1
    else:
        candidates = MOST if whole else 1 << (keep - 1).bit_length()
    return SamplingShape(candidates, whole, min(touched, n_vocab))


def common_shape(
    requests: Sequence[SamplingRequest], n_context: int, n_logits: int
) -> tuple[int, SamplingShape] | None:
    """Tokens to choose from and a plan's shape that serve all requests of a step; None where only the host can choose,
    as it does with masks and processors.

    n_context: tokens that a text can have. n_logits: of a row; several rows are chosen from all of them or not here.
    """
    n_vocab = requests[0].sampler.n_vocab if requests else 0
    if not requests or (len(requests) > 1 and any(r.sampler.n_vocab != n_logits for r in requests)):
        return None
    found: SamplingShape | None = None
    for request in requests:
        host = request.mask is not None or request.processors
        shape = None if host else shape_of(request.sampler.params, n_vocab, n_context)
        if shape is None:
            return None
        found = shape if found is None else found | shape
    assert found is not None
    return n_vocab, found


class DeviceSampled(RowTokens):
    """Tokens that the device chose. logits: the host's view of the rows' logits, which `fetch` fills."""

    def __init__(
        self,
        requests: Sequence[SamplingRequest],
        logits: npt.NDArray[np.float32],
        device: GpuRows,
        fetch: Callable[[], None],
    ) -> None:
        super().__init__(requests)
        self._logits, self._device = logits, device
        self._fetch: Callable[[], None] | None = fetch

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """See `SampledStep`. Raises `DeviceLost`."""
        if self._fetch is not None:
            self._fetch()
            self._fetch = None
        return self._logits

    def _choose(self, row: int) -> Sampled:
        request, device = self._requests[row], self._device
        n_vocab = request.sampler.n_vocab
        if not request.sampler.step:  # NaN is looked for in the first row alone: each that comes here takes a copy
            request.sampler.n_nan = count_nan(self.logits[row, :n_vocab])
        return accept(
            request.sampler,
            int(device.tokens[row]),
            int(device.status[row]),
            lambda: self.logits[row, :n_vocab],
            request.history,
        )


def write_requests(device: GpuRows, requests: Sequence[SamplingRequest]) -> None:
    """Write what the device reads for a step: each row's parameters and recent tokens."""
    for row, request in enumerate(requests):
        fill(device.shape, device.rows, device.touched, row, request.sampler, request.history)


def fill(
    shape: SamplingShape,
    rows: npt.NDArray[Any],
    touched: npt.NDArray[Any],
    row: int,
    sampler: Sampler,
    history: Sequence[int],
) -> None:
    """Write a row's parameters for the sampler's next token, in place. shape: the plan's; rows: ROW[rows]; touched:
    TOUCHED[rows, shape.touched]; history: as for `Sampler.sample`. Raises `ValueError` where the plan is not made for
    them.
    """
    p = sampler.params
    needs = shape_of(p, sampler.n_vocab, len(history))
    if needs is None or needs | shape != shape:
        raise ValueError(f"these parameters need a plan of {needs}; this one is of {shape}")
    changes = sampler.touched(history)
    rows[row] = (
        p.temperature, p.top_p, p.min_p, p.repetition_penalty, p.frequency_penalty, p.presence_penalty,
        sampler.seed, sampler.step, _kept(p, sampler.n_vocab), len(changes),
    )  # fmt: skip
    touched[row, : len(changes)] = [(bias, token, count) for token, (bias, count) in changes.items()]


def accept(
    sampler: Sampler, token: int, status: int, logits: Callable[[], npt.NDArray[Any]], history: Sequence[int]
) -> Sampled:
    """Turn a row's result into a token and advance the sampler. logits: fetches the row where the GPU could not finish.
    Raises `DegenerateLogits`.
    """
    if status == DEGENERATE:
        raise DegenerateLogits(sampler.n_vocab)
    if status != CHOSEN:
        return sampler.sample(logits(), history)
    sampler.step += 1
    return Sampled(token)


def exp_table() -> npt.NDArray[np.uint64]:
    """The contents of the memory `table`, u64[128], written once."""
    return step_bits().view(np.uint64)


def _kept(params: SamplingParams, n_vocab: int) -> int:
    """Number of tokens that top-k keeps."""
    return min(params.top_k or n_vocab, n_vocab)
