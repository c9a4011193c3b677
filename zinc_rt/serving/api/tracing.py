"""`CollectorTracer` sends spans to a collector of OpenTelemetry, by the extra `otel`; `RequestTracer` a server's.

A server's span is made when its request has ended, of the times that are known by then. So a request that runs costs
nothing more, and nothing here is imported where no traces are asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import zinc_rt
from zinc_rt.errors import UsageError
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.choice import AnswerChoice
from zinc_rt.serving.api.logs import tell
from zinc_rt.serving.api.service import Gives, Service
from zinc_rt.serving.api.usage import cached_tokens, prompt_tokens

_QUEUE: Final = 2048
"""Spans that wait for the collector at the most; what comes then is dropped."""
_TELL_SECONDS: Final = 60.0
"""Between two lines of the log about dropped spans."""
_CHATS: Final = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat")
_PARENT: Final = ("traceparent", "tracestate")
"""Headers of W3C Trace Context."""


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """A span before it is OpenTelemetry's. start, end: seconds of `time.monotonic`. parts: the spans inside."""

    name: str
    start: float
    end: float
    facts: dict[str, Any]
    failed: bool = False
    parts: tuple[RequestSpan, ...] = ()


def span_of(service: Service, call: Call, outcome: str, now: float) -> RequestSpan:
    """A request that is over now, by the semantic conventions for HTTP servers and generative AI. No text of a prompt
    or an answer is in it.
    """
    route = {} if call.endpoint == "unknown" else {"http.route": call.endpoint}
    facts: dict[str, Any] = {
        "http.request.method": call.method,
        **route,
        "http.response.status_code": call.status,
        "zinc.tenant": call.tenant,
    }
    address, port = call.scope.get("server") or ("", None)
    facts |= {"server.address": address} if port is None else {"server.address": address, "server.port": port}
    if outcome != "ok":
        facts["error.type"] = outcome
    failed = call.status >= 500 or (call.status < 400 and outcome not in ("ok", "client_gone", "cancelled"))
    embeds = service.gives is Gives.VECTORS and "prompt_tokens" in call.facts
    if not call.choices and not embeds:
        return RequestSpan(" ".join([call.method, *route.values()]), call.started, now, facts, failed)
    operation = "embeddings" if embeds else "chat" if call.endpoint in _CHATS else "text_completion"
    model = service.name_of(call)
    facts |= {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "zinc_rt",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": call.id,
        "gen_ai.usage.input_tokens": call.facts.get("prompt_tokens", 0),
        **_of_answers(call.choices, call.started),
    }
    parts = [part for choice in call.choices for part in _phases(choice, call.started, now)]
    return RequestSpan(f"{operation} {model}", call.started, now, facts, failed, tuple(parts))


def _of_answers(choices: Sequence[AnswerChoice], begin: float) -> dict[str, Any]:
    """What choices have asked for and got. begin: of the request."""
    if not choices:
        return {}
    request = choices[0].request
    asked = {
        "temperature": request.params.temperature,
        "top_p": request.params.top_p,
        "top_k": request.params.top_k,
        "max_tokens": request.params.max_tokens,
        "seed": request.seed,
        "choice.count": len(choices) if len(choices) > 1 else None,
    }
    first = min((a.first for a in choices if a.first is not None), default=None)
    return {
        **{f"gen_ai.request.{name}": value for name, value in asked.items() if value is not None},
        **({} if first is None else {"gen_ai.response.time_to_first_chunk": first - begin}),
        "gen_ai.usage.input_tokens": prompt_tokens(choices),
        "gen_ai.usage.cache_read.input_tokens": cached_tokens(choices),
        "gen_ai.usage.output_tokens": sum(a.n_tokens - a.n_resumed for a in choices),
        "gen_ai.usage.reasoning.output_tokens": sum(a.n_reasoning for a in choices),
        "gen_ai.response.finish_reasons": [a.finish or "abort" for a in choices],
    }


def _phases(choice: AnswerChoice, begin: float, now: float) -> list[RequestSpan]:
    """Queue, prefill and decode of a choice, around the time of its first token. begin, now: of the request.

    The engine's times are known when it has told of the end; a client that leaves does not wait for that.
    """
    usage, number = choice.usage, {"zinc.choice": choice.index}
    if usage is None:
        return [] if choice.first is None else [RequestSpan("decode", choice.first, choice.last, number)]
    first = now - usage.decode_seconds if choice.first is None else choice.first
    admitted = max(begin, first - usage.prefill_seconds)
    queued = max(begin, admitted - usage.queue_seconds)
    return [
        RequestSpan("queue", queued, admitted, number),
        RequestSpan("prefill", admitted, max(admitted, first), number),
        RequestSpan("decode", max(admitted, first), min(now, max(admitted, first) + usage.decode_seconds), number),
    ]


class _LastWords(logging.Handler):
    """Keeps the last thing that the library said, which is why an export failed."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()[:300]


class _CountedExporter:
    """An exporter that counts. `export` is called by the library's thread.

    made: spans that it was to send, and beside them refused: those that came when too many waited; both count the event
    loop's thread. over: of those made, the spans that it has sent or dropped. dropped: those not sent.
    """

    def __init__(self, exporter: Any, failure: object, log: logging.Logger) -> None:
        self._exporter, self._failure, self._log = exporter, failure, log
        self.made = self.refused = self.over = self.dropped = 0
        self._told, self._when = 0, -_TELL_SECONDS
        self._words = _LastWords()
        logger = logging.getLogger("opentelemetry")
        logger.handlers, logger.propagate = [self._words], False

    def export(self, spans: Sequence[Any]) -> Any:
        """See the library's `SpanExporter`."""
        result = self._failure
        try:
            result = self._exporter.export(spans)
        finally:
            self.over += len(spans)
            if result is self._failure:
                self.dropped += len(spans)
            self.tell()
        return result

    def tell(self, last: bool = False) -> None:
        """Log how many spans were dropped, if there are new ones, at most once a minute. last: the server ends."""
        lost, now = self.refused + self.dropped, time.monotonic()
        if lost > self._told and (last or now - self._when >= _TELL_SECONDS):
            self._told, self._when = lost, now
            tell(self._log, "traces dropped", logging.WARNING, spans=lost, message=self._words.text or None)

    def shutdown(self) -> None:
        """See the library's `SpanExporter`."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """See the library's `SpanExporter`."""
        return bool(self._exporter.force_flush(timeout_millis))


class CollectorTracer:
    """Makes spans, and has a thread send them. Belongs to the event loop's thread.

    A collector that does not answer delays nothing: `_QUEUE` spans wait for it, what comes then is dropped and counted
    in the log. The variables OTEL_* say all but where the collector is.
    """

    def __init__(self, endpoint: str, log: logging.Logger, name: str = "zinc") -> None:
        """endpoint: of a collector, with the path /v1/traces or without. name: of the service, unless OTEL_SERVICE_NAME
        says one.

        Raises `UsageError` for an address that is none, settings that the library refuses, and without the extra.
        """
        if not endpoint.startswith(("http://", "https://")):
            raise UsageError(f"--otlp-endpoint is {endpoint[:80]!r}; it must be like http://localhost:4318")
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            said = "--otlp-endpoint needs the OpenTelemetry library: pip install 'zinc-rt[otel]'"
            raise UsageError(said) from None
        path = "" if endpoint.endswith("/v1/traces") else "/v1/traces"
        try:
            exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + path)
            self._exporter = _CountedExporter(exporter, SpanExportResult.FAILURE, log)
            named = {"service.name": name, "service.version": zinc_rt.__version__}
            resource = Resource.create({**named, **OTELResourceDetector().detect().attributes})
            self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            processor = BatchSpanProcessor(self._exporter, max_queue_size=_QUEUE)
        except ValueError as error:
            raise UsageError(f"OpenTelemetry refuses its settings (OTEL_*): {error}") from None
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("zinc_rt", zinc_rt.__version__)
        self._trace, self._context = trace, TraceContextTextMapPropagator()

    def started(
        self, name: str, header: Callable[[str], str], facts: Mapping[str, Any], start: int | None = None
    ) -> Any:
        """A server's span, below the one that the headers of its request name. start: nanoseconds since 1970, None for
        now.
        """
        parent = self._context.extract({name: value for name in _PARENT if (value := header(name))})
        kind = self._trace.SpanKind.SERVER
        return self._tracer.start_span(name, parent, kind, attributes=dict(facts), start_time=start)

    def carried(self, span: Any) -> dict[str, str]:
        """The headers by which a further request is below a span."""
        made: dict[str, str] = {}
        self._context.inject(made, self._trace.set_span_in_context(span))
        return made

    def has_room(self, n: int) -> bool:
        """Whether so many spans more may wait; if not, they are counted as dropped."""
        counts = self._exporter
        full = counts.made - counts.over + n > _QUEUE
        counts.refused += n * full
        return not full

    def count(self, n: int) -> None:
        """So many spans will end."""
        self._exporter.made += n

    def mark_failed(self, span: Any) -> None:
        """Give a span the status of an error."""
        span.set_status(self._trace.StatusCode.ERROR)

    def close(self) -> None:
        """Send what waits. A collector that is gone holds the caller: a thread that nobody waits for long."""
        self._provider.shutdown()

    def tell_lost(self) -> None:
        """Log what will not be sent any more."""
        counts = self._exporter
        counts.dropped += counts.made - counts.over
        counts.tell(last=True)


class RequestTracer(CollectorTracer):
    """Spans of a server's requests that are over."""

    def add(self, service: Service, call: Call, outcome: str) -> str:
        """Have a request that is over sent as spans; returns the id of its trace, empty where nothing is sent."""
        now = time.monotonic()
        span = span_of(service, call, outcome, now)
        n, offset, trace = 1 + len(span.parts), time.time_ns() - int(now * 1e9), self._trace
        if not self.has_room(n):
            return ""
        made = self.started(span.name, call.header, span.facts, _nanoseconds(span.start, offset))
        if not made.is_recording():  # not sampled
            return ""
        self.count(n)
        if span.failed:
            self.mark_failed(made)
        inside = trace.set_span_in_context(made)
        for part in span.parts:
            start = _nanoseconds(part.start, offset)
            one = self._tracer.start_span(part.name, inside, attributes=part.facts, start_time=start)
            one.end(_nanoseconds(part.end, offset))
        made.end(_nanoseconds(span.end, offset))
        return str(trace.format_trace_id(made.get_span_context().trace_id))


def _nanoseconds(seconds: float, offset: int) -> int:
    """A time of `time.monotonic` as nanoseconds since 1970."""
    return int(seconds * 1e9) + offset
