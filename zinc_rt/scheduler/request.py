"""A request as the core has it: its tokens, where it stands, and what it has taken."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from zinc_rt.errors import ZincError
from zinc_rt.lang.building import seconds_compiled
from zinc_rt.sampling.processors import Processors
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.scheduler.batch import MAX_U32, TenantId
from zinc_rt.scheduler.core_errors import GrammarMismatch, GrammarUnavailable
from zinc_rt.scheduler.messages import QoS, Submit, Usage
from zinc_rt.scheduler.options import Matcher, Vocabulary

LEVELS = {qos: level for level, qos in enumerate(QoS)}
"""A class's level: its place in `QoS`."""


@dataclass(eq=False, slots=True)
class Request:
    """One request between `Submit` and `Finished`.

    tokens: of the prompt, resumed ones and generated ones. computed: how many of them the sequence holds. slot: the
    engine's sequence; place: the scheduler's slot; -1 while it waits. Times are of the core's clock, in seconds.
    """

    submit: Submit
    tenant: TenantId
    sampler: Sampler
    tokens: list[int]
    stop_ids: frozenset[int]
    matcher: Matcher | None
    free: SamplingRequest
    bound: SamplingRequest | None  # with the grammar's mask
    number: int  # in the order of arrival
    queued: float
    slot: int = -1
    place: int = -1
    computed: int = 0
    preemptions: int = 0
    admitted_tokens: int = 0  # how many there were when it was admitted last
    cached_tokens: int = 0
    queue_seconds: float = 0.0
    engine_ms: float = 0.0
    admitted: float | None = None
    first_token: float | None = None
    compiled: float = 0.0  # seconds of compiling: of the process when it was admitted, until its first token then
    last_token: float | None = None
    told_nan: bool = False
    drafted: int = 0
    accepted: int = 0  # guesses that were right
    echoed: int = 0  # positions behind which the prompt's next token was told of

    @classmethod
    def make(
        cls,
        submit: Submit,
        tenant: TenantId,
        vocabulary: Vocabulary,
        number: int,
        now: float,
        processors: Processors = (),
    ) -> Request:
        """Raises `InvalidSamplingParam`, `GrammarUnavailable`, `GrammarMismatch`, what compiling a grammar raises."""
        params = replace(submit.params, seed=submit.seed)
        tokens = [*submit.prompt, *submit.resume]
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
            bound = SamplingRequest(sampler, tokens, np.zeros(-(-vocabulary.n_vocab // 32), np.uint32), processors)
        free = SamplingRequest(sampler, tokens, None, processors)
        return cls(submit, tenant, sampler, tokens, stops, matcher, free, bound, number, now)

    @property
    def id(self) -> str:
        """The caller's name for it."""
        return self.submit.id

    @property
    def level(self) -> int:
        """Of its class of service: 0 for the first."""
        return LEVELS[self.submit.qos]

    @property
    def n_generated(self) -> int:
        """Tokens behind the prompt."""
        return len(self.tokens) - len(self.submit.prompt)

    @property
    def known(self) -> list[int]:
        """The tokens that need no computing where a cache has them, with the one behind those."""
        telling = self.submit.echo is not None and self.echoed < len(self.submit.prompt) - 1
        return self.tokens[: self.echoed + 1] if telling else self.tokens

    @property
    def is_fresh(self) -> bool:
        """Whether it has no token since it was admitted."""
        return len(self.tokens) == self.admitted_tokens

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        limit = self.submit.params.max_tokens
        return MAX_U32 if limit is None else min(limit - self.n_generated, MAX_U32)

    def sampling(self) -> SamplingRequest:
        """How to choose its next token: with the mask of its grammar, once that has begun.

        The n-th token takes the n-th random number, also after an interrupted step. Raises what a matcher raises.
        """
        self.sampler.step = self.n_generated
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

    def begun(self, now: float, held: int) -> None:
        """It is admitted for the first time. held: tokens at its beginning that are in the cache."""
        self.admitted, self.compiled = now, seconds_compiled()
        self.cached_tokens = min(held, len(self.submit.prompt))

    def took(self, now: float) -> None:
        """A token was chosen."""
        if self.first_token is None:
            self.first_token, self.compiled = now, seconds_compiled() - self.compiled
        self.last_token = now

    def usage(self) -> Usage:
        """What it has taken so far."""
        begun, first, last = self.admitted, self.first_token, self.last_token
        # Kernels that the first step lacked are no work of the prompt: the next one does not wait for them.
        prefill = 0.0 if begun is None or first is None else max(0.0, first - begun - self.compiled)
        return Usage(
            prompt_tokens=len(self.submit.prompt),
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
