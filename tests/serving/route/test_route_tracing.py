"""Spans of a router: what they say, and that servers' spans are inside them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.serving.api.test_tracing import EXPORTER, PARENT, TRACE, collector
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.route.backends import RouteBackends
from zinc_rt.serving.route.router import Router, make_client

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


async def told(endpoint: str | None) -> list[str]:
    """The `traceparent` that servers get of a stream that the first one breaks off. Then no server takes a request."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        heads.append(head.partition("\r\ntraceparent: ")[2].partition("\r\n")[0])
        writer.write(HEAD + (b"id: x.1\ndata: a\n\n" if len(heads) == 1 else b"id: x.2\ndata: [DONE]\n\n"))
        writer.close()

    made = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(2)]
    http, log = make_client(), make_logger()
    backends = RouteBackends([f"http://127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in made], http, log)
    for backend in backends.all:
        backend.wrong = None
    tracer = None
    if endpoint is not None:
        from zinc_rt.serving.route.tracing import RouteTracer

        tracer = RouteTracer(endpoint, log)
    router = Router(backends, http, log, tracer=tracer)
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=router), base_url="http://localhost") as client:
        body = {"messages": [], "stream": True}
        answer = await client.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.text == "id: x.1\ndata: a\n\nid: x.2\ndata: [DONE]\n\n"
        await client.get("/health")
        for backend in backends.all:
            backend.wrong = "gone"
        assert (await client.get("/v1/models", headers=headers)).status_code == 503
    await router.close()
    for one in made:
        one.close()
    await http.aclose()
    return heads


def test_a_span_of_each_request_with_the_servers_inside() -> None:
    pytest.importorskip(EXPORTER, reason="needs the extra otel")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with collector() as found:
        first, second = asyncio.run(told(found.url))
    sent = [ExportTraceServiceRequest.FromString(body).resource_spans[0] for _, body in found.got]
    assert {a.key: a.value.string_value for a in sent[0].resource.attributes}["service.name"] == "zinc-route"
    moved, refused = (span for one in sent for span in one.scope_spans[0].spans)
    assert first == second == f"00-{TRACE}-{moved.span_id.hex()}-01"
    assert (moved.name, moved.kind) == ("POST", 2)  # SPAN_KIND_SERVER
    for span in (moved, refused):
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    of_moved, of_refused = ({a.key: _plain(a.value) for a in span.attributes} for span in (moved, refused))
    assert str(of_moved.pop("zinc.route.backend")).startswith("http://127.0.0.1:")
    assert of_moved == {
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "server.address": "localhost",
        "http.response.status_code": 200,
        "zinc.route.attempts": 2,
        "zinc.route.migrations": 1,
    }
    assert (of_refused["error.type"], of_refused["http.response.status_code"]) == ("no_backend", 503)
    assert (moved.status.code, refused.status.code) == (0, 2)


def _plain(value: Any) -> object:
    return value.string_value or value.int_value


def test_without_traces_the_callers_own_is_passed_on() -> None:
    assert asyncio.run(told(None)) == [f"00-{TRACE}-{PARENT}-01"] * 2
