"""Traces: what the spans of a request say, what a collector gets of them, and collectors that fail."""

from __future__ import annotations

import asyncio
import io
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.serving.api.conftest import Bench, MakeBench
from zinc_rt.errors import UsageError
from zinc_rt.scheduler.messages import Failed, Fault
from zinc_rt.serving.api import tracing
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.tracing import RequestSpan, RequestTracer, span_of

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class NotedSpans(list[RequestSpan]):
    """A tracer that keeps the spans in place of sending them."""

    def add(self, service: Service, call: Call, outcome: str) -> str:
        self.append(span_of(service, call, outcome, time.monotonic()))
        return TRACE


def noted(bench: Bench) -> NotedSpans:
    bench.service.tracer = spans = NotedSpans()  # type: ignore[assignment]
    return spans


def test_the_spans_of_a_chat(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        spans = noted(b)
        answer = await b.chat(seed=7, max_tokens=5, temperature=0.5, n=2)
        (span,) = spans
        prompt = answer.json()["usage"]["prompt_tokens"]
        assert (span.name, span.failed) == ("chat story", False)
        assert 0 < span.facts.pop("gen_ai.response.time_to_first_chunk") < span.end - span.start
        assert span.facts == {
            "http.request.method": "POST",
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 200,
            "server.address": "localhost",
            "zinc.tenant": "default",
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "zinc_rt",
            "gen_ai.request.model": "story",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 0.95,
            "gen_ai.request.top_k": 40,
            "gen_ai.request.max_tokens": 5,
            "gen_ai.request.seed": 7,
            "gen_ai.request.choice.count": 2,
            "gen_ai.response.id": answer.json()["id"],
            "gen_ai.response.model": "story",
            "gen_ai.response.finish_reasons": ["length", "length"],
            "gen_ai.usage.input_tokens": prompt,
            "gen_ai.usage.cache_read.input_tokens": 0,
            "gen_ai.usage.output_tokens": 10,
            "gen_ai.usage.reasoning.output_tokens": 0,
        }
        assert [part.name for part in span.parts] == ["queue", "prefill", "decode"] * 2
        for parts in (span.parts[:3], span.parts[3:]):
            times = [span.start, *(moment for part in parts for moment in (part.start, part.end)), span.end]
            assert times == sorted(times)
            assert all(one.end == two.start for one, two in itertools.pairwise(parts))
        assert b.log[-1]["trace_id"] == TRACE

    asyncio.run(go())


def test_the_spans_of_other_requests(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        spans = noted(b)
        await b.http.get("/health")
        assert not spans
        await b.http.get("/nothing")
        await b.http.post("/v1/completions", json={"prompt": "Hi", "model": "other"})
        await b.http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 3})
        b.client.fail = Failed("", Fault.engine_error, "no")
        await b.chat()
        told = [(s.name, s.facts.get("error.type"), s.facts["http.response.status_code"], s.failed) for s in spans]
        assert told == [
            ("GET", "not_found", 404, False),
            ("POST /v1/completions", "model_not_found", 404, False),
            ("text_completion story", None, 200, False),
            ("chat story", "engine_error", 500, True),
        ]

    asyncio.run(go())


def test_what_is_not_asked_for_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys, zinc_rt.ray, zinc_rt.cli.main, zinc_rt.serving.api.start; print(*sys.modules)",
    ]
    loaded = {*subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()}
    assert "zinc_rt.serving.api.service" in loaded
    assert not loaded & {"opentelemetry", "ray", "zinc_rt.serving.api.tracing"}
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    with pytest.raises(UsageError, match=r"pip install 'zinc-rt\[otel\]'"):
        RequestTracer("http://127.0.0.1:1", make_logger(io.StringIO()))


class Collector(HTTPServer):
    """A collector on this machine: headers and bodies of what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Export)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Export(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Collector)
        self.server.got.append(({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}}, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def collector() -> Iterator[Collector]:
    with Collector() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def test_a_collector_gets_spans_below_the_callers(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(EXPORTER, reason="needs the extra otel")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    monkeypatch.setenv("OTEL_SERVICE_NAME", "stories")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")

    async def go(url: str) -> Bench:
        b = bench()
        tracer = b.service.tracer = RequestTracer(url, b.service.log)
        for flags in ("01", "00"):  # the caller has traces of the first alone
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}
            await b.http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 3}, headers=headers)
        tracer.close()
        return b

    with collector() as found:
        b = asyncio.run(go(found.url))
    ((headers, body),) = found.got
    assert (headers["path"], headers["x-key"]) == ("/v1/traces", "abc")
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "stories"
    spans = {span.name: span for span in resource.scope_spans[0].spans}
    assert set(spans) == {"queue", "prefill", "decode", "text_completion story"}
    root = spans.pop("text_completion story")
    assert (root.trace_id.hex(), root.parent_span_id.hex(), root.kind) == (TRACE, PARENT, 2)  # SPAN_KIND_SERVER
    assert abs(root.end_time_unix_nano / 1e9 - time.time()) < 60
    assert all((one.trace_id, one.parent_span_id) == (root.trace_id, root.span_id) for one in spans.values())
    assert {a.key: a.value.int_value for a in root.attributes}["gen_ai.usage.output_tokens"] == 3
    assert [line.get("trace_id") for line in b.log if line["event"] == "request"] == [TRACE, None]


@pytest.mark.parametrize("listens", [False, True])
def test_a_collector_that_is_gone_delays_nothing(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    """It refuses connections, or takes them and never answers. What could not be sent is counted."""
    pytest.importorskip(EXPORTER, reason="needs the extra otel")
    monkeypatch.setattr(tracing, "_QUEUE", 8)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")

    async def go(url: str) -> Bench:
        b = bench()
        tracer = b.service.tracer = RequestTracer(url, b.service.log)
        for _ in range(5):
            started = time.monotonic()
            assert (await b.chat(max_tokens=2)).status_code == 200
            assert time.monotonic() - started < 5
        await asyncio.to_thread(tracer.close)
        tracer.tell_lost()
        return b

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if listens:
            sock.listen()
        b = asyncio.run(go(f"http://127.0.0.1:{sock.getsockname()[1]}/v1/traces"))
    dropped = [line for line in b.log if line["event"] == "traces dropped"]
    assert dropped[-1]["spans"] == 5 * 4
    assert dropped[-1]["level"] == "warning"
    assert dropped[-1]["message"]
    assert len(dropped) <= 2
