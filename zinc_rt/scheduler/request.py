"""`Request`: the one record of a request in the scheduler. It alone knows how far the request is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from zinc_rt.adapters.slots import AdapterUse
from zinc_rt.errors import ZincError
from zinc_rt.lang.building import seconds_compiled
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.processors import Processors
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.scheduler.errors import GrammarMismatch, GrammarUnavailable
from zinc_rt.scheduler.messages import FinishReason, QoS, Submit, Usage
from zinc_rt.scheduler.options import CoreVocabulary, GrammarMatcher
from zinc_rt.scheduler.picture_spans import picture_spans
from zinc_rt.scheduler.tenants import TenantAccount
from zinc_rt.vision.shown import ShownPicture

LEVELS = {qos: level for level, qos in enumerate(QoS)}
"""A class's level: its place in `QoS`."""
_PATIENCE = 2
"""Preemptions after which a request is left alone until it has generated a page of tokens."""


@dataclass(eq=False, slots=True)
class Request:
    """One request between `Submit` and `Finished`.

    It waits, then runs: it has a sequence of the engine, which computes its tokens in order. `computed` counts those
    that the sequence holds. While `computed` is below `admitted_tokens` it is in prefill, then it decodes a token a
    step. A preempted request waits again, with all of its tokens. Example: a prompt of 5 tokens and 2 generated ones
    are `tokens` of 7; with `computed` 6 the next step computes the seventh and chooses the eighth.

    Attributes:
        number: in the order of arrival.
        level: of its class of service; 0 for the first.
        tokens: of the prompt, resumed ones and generated ones.
        seq_id: the engine's sequence; -1 while it waits.
        computed: tokens that the sequence holds; 0 while it waits.
        admitted_tokens: how many tokens there were when it was admitted last.
        longest: tokens at which it ends, by its own limit or the context's.
        free, bound: how its next token is chosen, without a grammar's mask and with it.
        queued: when it began to wait. All times are of the scheduler's clock, in seconds.
        compiled: seconds of compiling kernels: of the process when it was admitted, until its first token then.
        drafted, accepted: its draft tokens, and how many were right.
        echoed: positions of the prompt behind which the next token's log-probabilities were told.
        pictures: of the prompt, with the places from a picture's first row to its last one.
        words: the tokens without rows of pictures; the same list where there are none.
        adapters: of its rows. salt: of its part of the prefix cache, which adapters are part of.
    """

    submit: Submit
    id: str
    number: int
    tenant: TenantAccount
    level: int
    tokens: list[int]
    n_prompt: int
    longest: int
    stop_ids: frozenset[int]
    sampler: Sampler
    matcher: GrammarMatcher | None
    free: SamplingRequest
    bound: SamplingRequest | None
    queued: float
    seq_id: int = -1
    computed: int = 0
    preemptions: int = 0
    admitted_tokens: int = 0
    cached_tokens: int = 0
    queue_seconds: float = 0.0
    engine_ms: float = 0.0
    admitted: float | None = None
    first_token: float | None = None
    compiled: float = 0.0
    last_token: float | None = None
    told_nan: bool = False
    drafted: int = 0
    accepted: int = 0
    echoed: int = 0
    pictures: Sequence[tuple[ShownPicture, range]] = ()
    words: list[int] = field(default_factory=list)
    adapters: tuple[AdapterUse, ...] = ()
    salt: bytes = b""

    @classmethod
    def make(
        cls,
        submit: Submit,
        tenant: TenantAccount,
        vocabulary: CoreVocabulary,
        n_ctx: int,
        number: int,
        now: float,
        processors: Processors = (),
    ) -> Request:
        """A request that waits.

        Raises `InvalidSamplingParam`, `GrammarUnavailable`, `GrammarMismatch`, what compiling a grammar raises.
        """
        params = replace(submit.params, seed=submit.seed)
        tokens = words = [*submit.prompt, *submit.resume]
        if submit.pictures:
            words = [token for token in tokens if token >= 0]
        stops = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else vocabulary.stop_ids)
        sampler = Sampler(params, vocabulary.n_vocab)
        matcher, bound = None, None
        if submit.grammar is not None:
            if vocabulary.grammar is None:
                raise GrammarUnavailable("the request has a grammar, and this engine was opened without grammars")
            matcher = vocabulary.grammar(submit.grammar)
            for token in submit.resume:
                if not matcher.consume(token):
                    raise GrammarMismatch(f"the resumed token {token} does not fit the request's grammar")
            bound = SamplingRequest(sampler, words, np.zeros(-(-vocabulary.n_vocab // 32), np.uint32), processors)
        free = SamplingRequest(sampler, words, None, processors)
        n_prompt, limit = len(submit.prompt), submit.params.max_tokens
        longest = n_ctx + 1 if limit is None else min(n_prompt + limit, n_ctx + 1)
        return cls(
            submit=submit,
            id=submit.id,
            number=number,
            tenant=tenant,
            level=LEVELS[submit.qos],
            tokens=tokens,
            n_prompt=n_prompt,
            longest=longest,
            stop_ids=stops,
            sampler=sampler,
            matcher=matcher,
            free=free,
            bound=bound,
            queued=now,
            pictures=picture_spans(submit.prompt, submit.pictures),
            words=words,
            salt=submit.salt,
        )

    @property
    def n_generated(self) -> int:
        """Tokens behind the prompt."""
        return len(self.tokens) - self.n_prompt

    @property
    def known(self) -> list[int]:
        """The tokens that need no computing where a cache has them, with the one behind those."""
        telling = self.submit.echo is not None and self.echoed < self.n_prompt - 1
        return self.tokens[: self.echoed + 1] if telling else self.tokens

    @property
    def protected(self) -> bool:
        """Whether it was preempted so often that it shall generate something first."""
        return self.preemptions >= _PATIENCE and len(self.tokens) - self.admitted_tokens < PAGE_TOKENS

    def end_reason(self) -> FinishReason | None:
        """Why it may not have another token; None where it may."""
        if self.matcher is not None and self.matcher.is_done:
            return FinishReason.stop
        if len(self.tokens) < self.longest:
            return None
        limit = self.submit.params.max_tokens
        return FinishReason.context if limit is None or self.n_generated < limit else FinishReason.length

    def masked(self) -> SamplingRequest:
        """How to choose its next token: with the mask of its grammar, once that has begun. Raises what a matcher
        raises.
        """
        if self.bound is None or self.matcher is None or self.matcher.is_free:
            return self.free
        assert self.bound.mask is not None
        self.matcher.fill_mask(self.bound.mask)
        return self.bound

    def refusal(self, token_id: int) -> ZincError | None:
        """Go on in the grammar by a token that was chosen; why that cannot be, None where it can."""
        try:
            if self.matcher is None or self.matcher.consume(token_id):
                return None
        except ZincError as error:
            return error
        return GrammarMismatch(f"token {token_id} does not fit the request's grammar")

    def nan_line(self) -> str:
        """What is worth telling where its last row of logits had NaN."""
        sampler = self.sampler
        return (
            f"{sampler.n_nan} of {sampler.n_vocab} logits of token {sampler.step} are NaN; they count as -inf, so"
            " the text may be wrong; compare the model file with its source"
        )

    def admit(self, seq_id: int, held: int, now: float) -> None:
        """It runs from now on. held: of its first tokens, how many the sequence holds already."""
        self.seq_id, self.computed, self.admitted_tokens = seq_id, held, len(self.tokens)
        self.queue_seconds += now - self.queued
        if self.admitted is None:
            self.admitted, self.compiled = now, seconds_compiled()
            self.cached_tokens = min(held, self.n_prompt)

    def begin_text(self, now: float) -> None:
        """Its first token was chosen."""
        self.first_token, self.compiled = now, seconds_compiled() - self.compiled

    def usage(self) -> Usage:
        """What it has taken so far."""
        begun, first, last = self.admitted, self.first_token, self.last_token
        # Kernels that the first step lacked are no work of the prompt: the next one does not wait for them.
        prefill = 0.0 if begun is None or first is None else max(0.0, first - begun - self.compiled)
        return Usage(
            prompt_tokens=self.n_prompt,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.n_generated,
            queue_seconds=self.queue_seconds,
            prefill_seconds=prefill,
            decode_seconds=0.0 if first is None or last is None else last - first,
            engine_seconds=self.engine_ms / 1000,
            preemptions=self.preemptions,
            drafted_tokens=self.drafted,
            accepted_tokens=self.accepted,
        )
