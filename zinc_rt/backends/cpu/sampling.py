"""Choosing tokens behind a step with native code: parameters go to the kernel's memory, and tokens come back."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import address_of, table
from zinc_rt.backends.cpu.choice import Kernel
from zinc_rt.backends.cpu.program import CpuOperation, UnitsPer
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.kernels.cpu.sampling import (
    DEGENERATE,
    HOST,
    MOST_TOP,
    SampleArgs,
    SampleRow,
    SampleScratch,
)
from zinc_rt.kernels.cpu.sampling_select import GROUP, PAD
from zinc_rt.lang.types import layout_of
from zinc_rt.numerics import EXP_LOWEST, SUM_BLOCK
from zinc_rt.sampling.arithmetic import step_bits
from zinc_rt.sampling.request import HostSampled, SamplingRequest
from zinc_rt.sampling.sampler import DegenerateLogits, Sampled, Sampler

_ROW: Final = struct.Struct("<9dQQ4Q6i")
_SLACK: Final = 1e-9
"""What bounds are lowered by; see `kernels.cpu.sampling_nucleus`."""


def wants_native(request: SamplingRequest) -> bool:
    """Whether the kernel chooses a request's token: not where the likeliest token is all that is wanted, which is known
    already, not with more log-probabilities than it has room for, and not behind functions of the caller.
    """
    sampler = request.sampler
    return (
        not request.processors
        and not (sampler.plain and request.mask is None)
        and (sampler.params.logprobs or 0) <= MOST_TOP
    )


@dataclass
class _Recent:
    """A text's tokens as the kernel reads them. history: the list that they are copied from; it only grows."""

    history: Sequence[int]
    ids: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    n: int = 0

    def follow(self, history: Sequence[int]) -> None:
        """Take the tokens that came since."""
        n = len(history)
        if history is not self.history or n < self.n or (self.n and history[self.n - 1] != self.ids[self.n - 1]):
            self.history, self.n = history, 0
        if n > len(self.ids):
            grown = np.empty(2 * n + 64, np.int32)
            grown[: self.n] = self.ids[: self.n]
            self.ids = grown
        if n > self.n:
            self.ids[self.n : n] = history[self.n :]
        self.n = n


class CpuSampling:
    """Memory for choosing the tokens of up to as many rows as there are logits; `DeviceSampling` says how it is used.

    operation: the last operation of a step whose rows went to `write`.
    """

    def __init__(
        self, threads: int, kernel: Kernel, n_vocab: int, logits: npt.NDArray[Any], tokens: npt.NDArray[Any]
    ) -> None:
        most, width = logits.shape
        self.n_rows = 0
        self._n_vocab = n_vocab
        self._rows = table(SampleRow, most)
        assert self._rows.itemsize == _ROW.size == layout_of(SampleRow).size
        self._recent: WeakKeyDictionary[Sampler, _Recent] = WeakKeyDictionary()
        self._tokens, self._status, self._nans = (np.zeros(most, np.int32) for _ in range(3))
        self._logprobs = np.zeros(most)
        self._begun, self._ended = np.zeros(most, np.int64), np.zeros(most, np.int64)
        self._clock = TickClock()
        self._top_ids, self._top_logprobs = np.zeros((most, MOST_TOP), np.int32), np.zeros((most, MOST_TOP))
        n_scratch = min(threads, most)
        lanes = kernel[1]["W"]
        assert isinstance(lanes, int)
        scratch, self._held = _scratch(n_vocab, n_scratch, lanes)
        arguments = {
            "rows": self._rows, "scratch": scratch, "free": np.zeros(n_scratch, np.uint32), "logits": logits,
            "likeliest": tokens if n_vocab == width else 0, "table": step_bits(), "tokens": self._tokens,
            "status": self._status, "nans": self._nans, "logprobs": self._logprobs, "top_ids": self._top_ids,
            "top_logprobs": self._top_logprobs, "begun": self._begun, "ended": self._ended,
            "stride": width, "n": n_vocab, "n_scratch": n_scratch,
        }  # fmt: skip
        self.operation = CpuOperation("sample", "sample", kernel, SampleArgs, arguments, 1, UnitsPer.SAMPLED)

    def write(self, requests: Sequence[SamplingRequest]) -> None:
        """See `DeviceSampling.write`."""
        self.n_rows = len(requests)
        memory, rows = self._rows.view(np.uint8).data, self._rows.itemsize
        for row, request in enumerate(requests):
            _ROW.pack_into(memory, row * rows, *self._fields(request))

    def _fields(self, request: SamplingRequest) -> tuple[float | int, ...]:
        sampler, p = request.sampler, request.sampler.params
        recent, n_recent = 0, 0
        if p.has_penalties:
            if (known := self._recent.get(sampler)) is None:
                known = self._recent[sampler] = _Recent(request.history)
            known.follow(request.history)
            n_recent = known.n if p.repeat_last_n < 0 else min(known.n, p.repeat_last_n)
            recent = address_of(known.ids) + 4 * (known.n - n_recent)
        ids, bias = sampler.bias
        biased = (address_of(ids), address_of(bias)) if len(ids) else (0, 0)  # which takes longer than all else here
        least = math.log(p.min_p) - _SLACK if p.min_p > 0.0 else -math.inf
        return (
            p.temperature, p.top_p, p.min_p, least, max(least, (EXP_LOWEST - 1.0) * p.temperature), least + 2 * _SLACK,
            p.repetition_penalty, p.frequency_penalty, p.presence_penalty, sampler.seed, sampler.step,
            0 if request.mask is None else address_of(request.mask), recent, *biased,
            n_recent, len(ids), min(p.top_k or self._n_vocab, self._n_vocab), -1 if p.logprobs is None else p.logprobs,
            wants_native(request), sampler.plain,
        )  # fmt: skip

    def sampled(
        self,
        requests: Sequence[SamplingRequest],
        logits: npt.NDArray[np.float32],
        likeliest: npt.NDArray[np.int32],
        fetch: Callable[[], None],
    ) -> CpuSampled:
        """See `DeviceSampling.sampled`."""
        n = len(requests)
        results = zip(*(a[:n].tolist() for a in (self._status, self._tokens, self._nans, self._logprobs)), strict=True)
        seconds = self._clock.seconds(int(self._begun[:n].min()), int(self._ended[:n].max()))
        return CpuSampled(requests, logits, likeliest, list(results), self._top_ids, self._top_logprobs, seconds)


class TickClock:
    """Seconds of the processor's cycle counter, from how far it and the system's clock went since the first step."""

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None

    def seconds(self, begun: int, ended: int) -> float:
        """Between two counts, the second of which has just been; 0 at the first call, when nothing is known yet."""
        now = time.perf_counter_ns()
        if self._first is None:
            self._first = now, ended
        since, ticks = now - self._first[0], ended - self._first[1]
        return (ended - begun) * since / ticks / 1e9 if ticks > 0 else 0.0


class CpuSampled(HostSampled):
    """Tokens that the kernel chose, and those that it left to the host. results: status, token, number of NaN and
    log-probability of each row. seconds: that the kernel took.
    """

    def __init__(
        self,
        requests: Sequence[SamplingRequest],
        logits: npt.NDArray[np.float32],
        likeliest: npt.NDArray[np.int32],
        results: list[tuple[int, int, int, float]],
        top_ids: npt.NDArray[np.int32],
        top_logprobs: npt.NDArray[np.float64],
        seconds: float,
    ) -> None:
        super().__init__(requests, logits, likeliest)
        self.seconds = seconds
        self._results, self._top_ids, self._top_logprobs = results, top_ids, top_logprobs

    def _choose(self, row: int) -> Sampled:
        status, token, nans, logprob = self._results[row]
        if status == HOST:
            return super()._choose(row)
        request = self._requests[row]
        sampler = request.sampler
        sampler.n_nan = nans
        if status == DEGENERATE:
            raise DegenerateLogits(sampler.n_vocab, request.mask is not None)
        sampler.step += 1
        if (n := sampler.params.logprobs) is None:
            return Sampled(token)
        n = min(n, sampler.n_vocab)
        top = zip(self._top_ids[row, :n].tolist(), self._top_logprobs[row, :n].tolist(), strict=True)
        return Sampled(token, logprob, tuple(top))


def _scratch(n_vocab: int, count: int, lanes: int) -> tuple[npt.NDArray[np.void], list[npt.NDArray[np.uint8]]]:
    """`SampleScratch` for so many rows at once, and the memory that they point at, which is used from the first on."""
    n = -(-n_vocab // PAD) * PAD
    sizes = {
        "scores": 8 * n,
        "pool": 8 * (n + PAD),
        "ids": 4 * (n + PAD),
        "list": 8 * (n + PAD),
        "weights": 8 * (n + PAD),
        "maxima": 8 * lanes * (n // GROUP),
        "ends": 8 * (n // SUM_BLOCK),
        "counts": 4 * n,
    }
    scratch = table(SampleScratch, count)
    held = []
    for i in range(count):
        memory = huge_bytes(sum(sizes.values()))
        at = address_of(memory)
        for name, size in sizes.items():
            scratch[i][name] = at
            at += size
        held.append(memory)
    return scratch, held
