"""`RouteTracer`: spans of the requests that a router passes on; the servers' spans are inside them."""

from __future__ import annotations

import logging
from typing import Any

from zinc_rt.serving.api.tracing import CollectorTracer
from zinc_rt.serving.route.router import Exchange


class RouteTracer(CollectorTracer):
    """Belongs to the event loop's thread."""

    def __init__(self, endpoint: str, log: logging.Logger) -> None:
        """See `CollectorTracer`."""
        super().__init__(endpoint, log, "zinc-route")

    def begin(self, exchange: Exchange) -> Any:
        """A span that begins now, below the caller's; servers get it as their caller's."""
        address, port = exchange.server
        facts = {"http.request.method": exchange.method, "url.path": exchange.path, "server.address": address}
        span = self.started(exchange.method, exchange.text, facts | ({} if port is None else {"server.port": port}))
        exchange.carried = self.carried(span)
        return span

    def end(self, span: Any, exchange: Exchange, outcome: str) -> None:
        """End the span of a request that is over. outcome: "ok", or the code of what went wrong."""
        if not span.is_recording() or not self.has_room(1):
            return
        self.count(1)
        facts: dict[str, Any] = {"zinc.route.attempts": exchange.attempts, "zinc.route.migrations": exchange.moves}
        if exchange.backend:
            facts["zinc.route.backend"] = exchange.backend
        if exchange.status:
            facts["http.response.status_code"] = exchange.status
        if outcome != "ok":
            facts["error.type"] = outcome
        span.set_attributes(facts)
        if exchange.status >= 500 or (exchange.status < 400 and outcome not in ("ok", "client_gone")):
            self.mark_failed(span)
        span.end()
