"""Messages between callers and an engine that serves several of them: plain data that a socket can carry.

A caller sends `Submit` and `Cancel`. The engine answers with one `StepReport` a step, which holds the events of all
requests in order. Of a request come `Admitted`, then `PromptLogprobs` where `Submit.echo` asks for them, then a `Token`
for each generated token, then `Finished`; or `Failed` at any point. Text is not known here: clients of the engine turn
tokens into text and cancel at stop strings (`scheduler.output`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from zinc_rt.sampling.generation import TopLogprobs
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.vision.shown import ShownPicture

MAX_TENANTS: Final = 4096
"""Names of tenants that an engine knows at once."""


class QoS(StrEnum):
    """Class of service. Of two requests that wait, the one of the earlier class goes first."""

    interactive = "interactive"
    standard = "standard"
    batch = "batch"


class FinishReason(StrEnum):
    """Why a request ended."""

    stop = "stop"
    """The model chose a stop token, or the grammar is complete."""
    length = "length"
    """`max_tokens` were generated."""
    context = "context"
    """The context has no room for another token."""
    cancelled = "cancelled"
    """`Cancel` or a deadline; `Finished.cancelled` says which."""


class CancelReason(StrEnum):
    """The reason for which a request was ended."""

    caller = "caller"
    stop_string = "stop_string"
    deadline = "deadline"


class Fault(StrEnum):
    """Why a request cannot go on: the kind of error behind `Failed`. The value is its code in the API."""

    empty_prompt = "empty_prompt"
    prompt_too_long = "prompt_too_long"
    token_out_of_range = "token_out_of_range"
    prompt_never_fits = "prompt_never_fits"
    invalid_sampling_param = "invalid_sampling_param"
    grammar_error = "grammar_error"
    grammar_unavailable = "grammar_unavailable"
    grammar_mismatch = "grammar_mismatch"
    """A token does not fit the grammar: one that is resumed, as a rule."""
    pictures_unavailable = "pictures_unavailable"
    unknown_adapter = "unknown_adapter"
    """No adapter of this name is loaded."""
    wrong_kind_of_model = "wrong_kind_of_model"
    duplicate_request = "duplicate_request"
    too_many_tenants = "too_many_tenants"
    degenerate_logits = "degenerate_logits"
    engine_error = "engine_error"
    """Any other error of the engine."""
    poisoned = "poisoned"
    """Engines ended over it again and again."""
    engine_lost = "engine_lost"
    """There is no engine, for a while or for good."""
    shutting_down = "shutting_down"
    """The server ends."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The grammar that a request's tokens must follow.

    text: a grammar as llguidance reads it (a JSON object with "grammars", or Lark). after: token ids; the grammar
    begins behind the first of them in the generated tokens, and everything before is free. Empty: at once.
    """

    text: str
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Submit:
    """A request for tokens after a prompt.

    id: unique among those that run. tenant: its name. prompt: token ids, special ones included. params: `stop` is not
    looked at. seed: of the random numbers; the same request with the same seed gives the same tokens, whatever else
    runs. salt: of the tenant's part of the prefix cache. resume: tokens generated before, by an engine that is gone:
    they are not sent again, and the tokens after them are those that would have followed there. seconds: limit of the
    time until the last token, None for none. echo: N reports log-probabilities of the prompt's tokens, and of the N
    likeliest tokens at each position; the whole prompt is computed then. None: no report. pictures: whose rows the
    prompt has. adapters: names and scales.
    """

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    tenant: str = "default"
    qos: QoS = QoS.standard
    salt: bytes = b""
    grammar: Grammar | None = None
    resume: tuple[int, ...] = ()
    seconds: float | None = None
    echo: int | None = None
    pictures: tuple[ShownPicture, ...] = ()
    adapters: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a request at the next step. Unknown ids are ignored: the request may have ended meanwhile."""

    id: str
    reason: CancelReason = CancelReason.caller


@dataclass(frozen=True, slots=True)
class TenantShare:
    """How a tenant is served. weight: of its share of the engine's time; kv_share: of the KV pages at the most;
    max_active: requests computed at once, None for no limit beside the engine's.
    """

    tenant: str
    weight: float = 1.0
    kv_share: float = 1.0
    max_active: int | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks whether the engine's loop still runs; `StepReport.pong` is its number."""

    n: int


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Load an adapter into free room; an `AdapterReply` of the same id says whether it is there."""

    id: str
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class UnloadAdapter:
    """Forget an adapter, once the requests that use it have ended; answered as `LoadAdapter`."""

    id: str
    name: str


Message = Submit | Cancel | TenantShare | Ping | LoadAdapter | UnloadAdapter


class _Event(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One is made for every token: a struct takes a tenth of a dataclass's time, and `serving.wire` a call a step."""


class Admitted(_Event, frozen=True):
    """The request has a sequence and is being computed. A preempted one is admitted again, without a second event."""

    id: str
    cached_tokens: int
    queue_seconds: float


class Token(_Event, frozen=True):
    """One generated token; log-probabilities where `params.logprobs` asks for them."""

    id: str
    token_id: int
    logprob: float | None = None
    top_logprobs: TopLogprobs | None = None


class PromptLogprobs(_Event, frozen=True):
    """Log-probabilities of a prompt's next tokens: of those from index `start` on, 1 for the first that has any. An
    engine that takes another one's place begins with 1 again.
    """

    id: str
    start: int
    logprobs: tuple[float, ...]
    top_logprobs: tuple[TopLogprobs, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens and the time of a request. Times in seconds; engine_seconds: its part of the steps that it was in.
    drafted_tokens, accepted_tokens: draft tokens, and those that were right.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    completion_tokens: int = 0
    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    engine_seconds: float = 0.0
    preemptions: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


class Finished(_Event, frozen=True):
    """The request is over and its sequence is free. token_id: the stop token, if one ended it. cancelled: why, where
    it was.
    """

    id: str
    reason: FinishReason
    usage: Usage
    token_id: int | None = None
    cancelled: CancelReason | None = None


class Failed(_Event, frozen=True):
    """The request cannot go on. error: its kind; message: its one line."""

    id: str
    error: Fault
    message: str
    usage: Usage | None = None


class AdapterReply(_Event, frozen=True):
    """What became of a `LoadAdapter` or `UnloadAdapter`. error: why nothing has changed, empty where it is done."""

    id: str
    error: str = ""


Event = Admitted | PromptLogprobs | Token | Finished | Failed
"""Of one request."""
EngineEvent = Event | AdapterReply


class EngineStatus(msgspec.Struct, frozen=True, array_like=True):
    """The engine's state after a step: counts of requests and of KV pages, and running totals.

    pages_used: those of requests that run; pages_cached: those that only hold texts that a next one may begin with.
    encoded: turns that worked on a picture.
    drafted_tokens, accepted_tokens: draft tokens, and those that were right.
    """

    queued: int = 0
    prefilling: int = 0
    decoding: int = 0
    n_slots: int = 0
    pages_free: int = 0
    pages_cached: int = 0
    pages_used: int = 0
    steps: int = 0
    preemptions: int = 0
    prefix_hit_tokens: int = 0
    prefix_miss_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    encoded: int = 0

    @property
    def n_requests(self) -> int:
        """Requests that wait or run."""
        return self.queued + self.prefilling + self.decoding


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """An engine that has loaded its model. description: the device and its kernels in a line; n_ctx: tokens of a
    request, prompt and answer together; n_slots: requests computed at once; n_batch: rows of a step; kv_tokens:
    positions that all requests together may hold.
    """

    description: str
    n_ctx: int
    n_slots: int
    n_batch: int
    kv: str
    kv_tokens: int


class StepTimes(msgspec.Struct, frozen=True, array_like=True):
    """Parts of a turn, in seconds. masks: of grammars, all rows' together; sampling: choosing tokens on the processor;
    compiles: of each grammar that came since the last report.
    """

    masks: float = 0.0
    sampling: float = 0.0
    compiles: tuple[float, ...] = ()


class StepReport(msgspec.Struct, frozen=True, array_like=True):
    """The result of a turn of the engine's loop. seconds: of the step itself; rows: of prefill and of decode in it."""

    seq: int
    events: tuple[EngineEvent, ...] = ()
    status: EngineStatus = EngineStatus()
    seconds: float = 0.0
    prefill_rows: int = 0
    decode_rows: int = 0
    pong: int | None = None
    fatal: str | None = None
    times: StepTimes = StepTimes()
