"""`Sampler`: from one row of logits to one token. The exact definition is docs/how/sampling.md.

Stages: logit bias, penalties, then the greedy choice (temperature 0) or top-k, min-p, top-p, temperature and one draw.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.sampling.arithmetic import (
    Floats,
    Ids,
    count_to_reach,
    exp,
    first_above,
    largest,
    log,
    running_sum,
    total,
    uniform,
)
from zinc_rt.sampling.params import InvalidSamplingParam, SamplingParams
from zinc_rt.utils.checks import show

_NAN_STEPS = 16

Mask = npt.NDArray[np.uint32]
"""Tokens that may be chosen: token i where bit i % 32 of word i // 32 is set."""


class NoToken(ZincError):
    """A row of logits has no token; the other rows of its step have theirs."""


class DegenerateLogits(NoToken):
    """No token can be chosen: every logit is NaN or -inf (after mask, bias and penalties)."""

    def __init__(self, n_vocab: int, masked: bool = False) -> None:
        what, check = ("NaN, -inf or masked", "the mask, logit_bias") if masked else ("NaN or -inf", "logit_bias")
        super().__init__(
            f"no token can be chosen: all {n_vocab} logits are {what}; check {check}, and the model file for damage"
        )


class Sampled(NamedTuple):  # made for every token, in a fraction of a dataclass's time
    """A chosen token. The log-probabilities (natural, of the model's own distribution) are None unless
    `SamplingParams.logprobs` is set; `top_logprobs` holds (token id, logprob), likeliest first.
    """

    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] | None = None


def check_token_ids(params: SamplingParams, n_vocab: int) -> None:
    """Raise `InvalidSamplingParam` where parameters name tokens that a vocabulary has not."""
    for name, given in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        if any(token_id >= n_vocab for token_id in given):
            raise InvalidSamplingParam(name, given, f"about token ids from 0 to {n_vocab - 1}")


def seed_of(params: SamplingParams) -> int:
    """The seed of the parameters, a fresh one where they have none."""
    return params.seed if params.seed is not None else int.from_bytes(os.urandom(8), "little")


class Sampler:
    """The sampler of one sequence, which chooses its tokens. The n-th call uses the n-th random number of `seed`, so a
    text depends on the logits and the seed alone, not on how steps are batched or chunked.

    `seed` is the one in use: that of the parameters, or a fresh one when they have none.
    """

    def __init__(self, params: SamplingParams, n_vocab: int) -> None:
        check_token_ids(params, n_vocab)
        self.params = params
        self.n_vocab = n_vocab
        self.seed = seed_of(params)
        self._scores = np.empty(n_vocab, dtype=np.float64)  # reused: fresh memory costs more than the sums
        self.step = 0  # how many tokens have been sampled
        self.n_nan = 0  # logits of the last row seen here that are NaN
        self._bias_ids = np.fromiter(params.logit_bias.keys(), dtype=np.intp)
        self._bias = np.fromiter(params.logit_bias.values(), dtype=np.float64)
        self.bias = self._bias_ids, self._bias
        self._adjusts = bool(params.logit_bias) or params.has_penalties
        self.plain = params.greedy and not self._adjusts and params.logprobs is None  # the highest logit is enough

    def ahead(self, n: int) -> Sampler:
        """A sampler for the token n places behind the next one, as if those between were chosen already."""
        other = copy(self)
        other.step = self.step + n
        return other

    def sample(
        self,
        logits: npt.NDArray[Any],
        history: Sequence[int],
        likeliest: int | None = None,
        mask: Mask | None = None,
        own: npt.NDArray[Any] | None = None,
    ) -> Sampled:
        """Choose the next token.

        Args:
            logits: f32[n_vocab], not changed.
            history: the token ids of prompt and text so far, all below n_vocab.
            likeliest: the first of the largest logits, if it is known.
            mask: the tokens that may be chosen, as `check_mask` wants it; None for all.
            own: the model's logits where `logits` were changed: log-probabilities and NaN are theirs. None: `logits`.

        Raises:
            DegenerateLogits: no token can be chosen.
        """
        if logits.shape != (self.n_vocab,):
            raise ValueError(f"logits have shape {logits.shape}, expected ({self.n_vocab},)")
        if (
            likeliest is not None
            and self.plain
            and (mask is None or allows(mask, likeliest))
            and logits[likeliest] > -math.inf
        ):
            if self.step % _NAN_STEPS == 0:  # nothing else here reads the row
                self.n_nan = count_nan(logits)
            self.step += 1
            return Sampled(likeliest)
        scores = self._scores
        n_nan = _load(logits, scores)
        self.n_nan = n_nan if own is None else count_nan(own)
        if mask is not None:
            scores[np.unpackbits(mask.view(np.uint8), count=self.n_vocab, bitorder="little") == 0] = -np.inf
        if self._adjusts:
            self._adjust(scores, history)
        best = int(np.argmax(scores))
        if scores[best] == -np.inf:
            raise DegenerateLogits(self.n_vocab, mask is not None)
        token_id = best if self.params.greedy else self._draw(scores)
        self.step += 1
        if self.params.logprobs is None:
            return Sampled(token_id)
        _load(logits if own is None else own, scores)
        logprob, top = logprobs(scores, token_id, self.params.logprobs)
        return Sampled(token_id, logprob, top)

    def _adjust(self, scores: Floats, history: Sequence[int]) -> None:
        """Logit bias, then penalties over the recent tokens, in place."""
        p = self.params
        with np.errstate(invalid="ignore", over="ignore"):
            if len(self._bias_ids):
                scores[self._bias_ids] = _ranked(scores[self._bias_ids] + self._bias)
            if p.has_penalties:
                counts = self._recent(history)
                ids = np.fromiter(counts.keys(), dtype=np.intp)
                times = np.fromiter(counts.values(), dtype=np.float64)
                s = scores[ids]
                s = np.where(s <= 0, s * p.repetition_penalty, s / p.repetition_penalty)
                scores[ids] = _ranked(s - (times * p.frequency_penalty + p.presence_penalty))

    def _recent(self, history: Sequence[int]) -> Counter[int]:
        """Number of occurrences of each recent token."""
        n = self.params.repeat_last_n
        return Counter(history if n < 0 else history[-n:])

    def touched(self, history: Sequence[int]) -> dict[int, tuple[float, int]]:
        """Bias, and occurrences that penalties count, of every token that has either; for a sampler elsewhere."""
        changes = {token: (bias, 0) for token, bias in self.params.logit_bias.items()}
        if self.params.has_penalties:
            for token, count in self._recent(history).items():
                changes[token] = (self.params.logit_bias.get(token, 0.0), count)
        return changes

    def _draw(self, scores: Floats) -> int:
        """One draw from the tokens that top-k, top-p and min-p leave."""
        p = self.params
        ids: Ids | None = largest(scores, p.top_k) if 0 < p.top_k < self.n_vocab else None
        pool = scores if ids is None else scores[ids]
        offsets = _below_top(pool)
        kept = _nucleus(pool, offsets, p.top_p, p.min_p) if p.top_p < 1.0 or p.min_p > 0.0 else None
        if kept is not None:
            offsets = offsets[kept]
        with np.errstate(over="ignore"):
            offsets /= p.temperature
        chosen = first_above(exp(offsets, out=offsets), uniform(self.seed, self.step), kept)
        if kept is not None:
            chosen = int(kept[chosen])
        return chosen if ids is None else int(ids[chosen])


def _nucleus(scores: Floats, offsets: Floats, top_p: float, min_p: float) -> Ids | None:
    """Indices of the f64[n] tokens that min-p and then top-p keep, rising; None: all. offsets: scores below the
    highest.
    """
    weights = exp(offsets)
    kept = np.flatnonzero(weights >= min_p) if min_p > 0.0 else None
    if top_p < 1.0:
        if kept is not None:
            scores, offsets = scores[kept], offsets[kept]
        best = largest(scores, count_to_reach(offsets, top_p * total(weights)))
        kept = best if kept is None else kept[best]
    return kept


def logprobs(scores: Floats, token_id: int, n_top: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """log-softmax of f64[n_vocab] logits (no NaN) at `token_id` and at the `n_top` most likely tokens,
    likeliest first, equal ones by lowest id."""
    offsets = _below_top(scores)
    log_total = log(float(running_sum(exp(offsets))[-1]))
    best = largest(scores, n_top) if n_top else np.empty(0, dtype=np.intp)
    best = best[np.argsort(-scores[best], kind="stable")]
    top = tuple((int(i), float(offsets[i] - log_total)) for i in best)
    return float(offsets[token_id] - log_total), top


def _below_top(scores: Floats) -> Floats:
    """scores - max(scores). Of several +inf each is at the top and nothing else counts; all -inf: all at
    the top."""
    top = float(scores.max())
    if math.isinf(top):
        return np.where(scores == top, 0.0, -np.inf)
    return scores - top


def check_mask(mask: object, n_vocab: int) -> None:
    """Raise `UsageError` unless a mask is u32[words] without gaps, with a bit for each of n_vocab tokens."""
    words = -(-n_vocab // 32)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.uint32 or mask.ndim != 1 or not mask.flags.c_contiguous:
        raise UsageError(f"a token mask is {show(mask)}; it must be a contiguous array of uint32 or None")
    if len(mask) < words:
        raise UsageError(f"a token mask has {len(mask)} words; {n_vocab} tokens need {words} of 32 bits")


def allows(mask: Mask, token: int) -> bool:
    """Whether a token may be chosen."""
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)


def count_nan(values: npt.NDArray[Any]) -> int:
    """Number of NaN in f32[n] or f64[n]. Where there is none, it costs one pass for the maximum, 6 us for 152,000."""
    return int(np.count_nonzero(np.isnan(values))) if math.isnan(values.max()) else 0


def _load(logits: npt.NDArray[Any], scores: Floats) -> int:
    """Copy the logits to float64; NaN, smaller than every number, becomes -inf. Returns how many were NaN."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is one like others
        np.copyto(scores, logits, casting="same_kind")
    if n_nan := count_nan(scores):
        _ranked(scores)
    return n_nan


def _ranked(scores: Floats) -> Floats:
    scores[np.isnan(scores)] = -np.inf
    return scores
