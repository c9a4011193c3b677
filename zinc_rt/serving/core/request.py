"""A request as the core has it: its tokens, where it stands, and what it has taken."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.sched.request import TenantId
from zinc_rt.serving.core.options import Vocabulary
from zinc_rt.serving.messages import QoS, Submit, Usage

LEVELS = {qos: level for level, qos in enumerate(QoS)}
"""A class's level: that of its place in `QoS`."""


@dataclass(eq=False, slots=True)
class Request:
    """One request between `Submit` and `Finished`.

    tokens: prompt, resumed and generated ones. computed: how many of them the sequence holds. slot: the engine's
    sequence, place: the scheduler's slot; -1 while it waits. Times are of the core's clock.
    """

    submit: Submit
    tenant: TenantId
    sampling: SamplingRequest
    tokens: list[int]
    stop_ids: frozenset[int]
    arrived: float
    queued: float
    slot: int = -1
    place: int = -1
    computed: int = 0
    last_start: int = 0  # of the prompt's last step, where a recurrent model's state is kept
    preemptions: int = 0
    admitted_tokens: int = 0  # how many there were when it was admitted last
    admissions: int = 0
    cached_tokens: int = 0
    queue_seconds: float = 0.0
    engine_seconds: float = 0.0
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    told_nan: bool = False

    @classmethod
    def make(cls, submit: Submit, tenant: TenantId, vocabulary: Vocabulary, now: float) -> Request:
        """Raises `InvalidSamplingParam`."""
        params: SamplingParams = replace(submit.params, seed=submit.seed)
        tokens = [*submit.prompt, *submit.resume]
        stops = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else vocabulary.stop_ids)
        sampling = SamplingRequest(Sampler(params, vocabulary.n_vocab), tokens)
        return cls(submit, tenant, sampling, tokens, stops, now, now)

    @property
    def id(self) -> str:
        """The caller's name for it."""
        return self.submit.id

    @property
    def level(self) -> int:
        """Of its class of service: 0 for the first."""
        return LEVELS[self.submit.qos]

    @property
    def missing(self) -> int:
        """Tokens that are not computed."""
        return len(self.tokens) - self.computed

    @property
    def n_generated(self) -> int:
        """Tokens behind the prompt."""
        return len(self.tokens) - len(self.submit.prompt)

    @property
    def remaining(self) -> int | None:
        """Tokens that may still be generated; None for no limit."""
        limit = self.submit.params.max_tokens
        return None if limit is None else limit - self.n_generated

    def usage(self) -> Usage:
        """What it has taken so far."""
        begun, first, last = self.admitted, self.first_token, self.last_token
        return Usage(
            len(self.submit.prompt),
            self.cached_tokens,
            self.n_generated,
            self.queue_seconds,
            0.0 if begun is None or first is None else first - begun,
            0.0 if first is None or last is None else last - first,
            self.engine_seconds,
            self.preemptions,
        )
