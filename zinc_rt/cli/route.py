"""`zinc route`: one address before several servers of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.server_options import AllowHost, CertFile, CertKeyFile, Cors, Host, LogLevel, OtlpEndpoint, Port
from zinc_rt.cli.terminal import write

Servers = Annotated[
    list[str],
    typer.Option(
        "-b", "--backend", metavar="URL", help="A server, as http://host:port; once for each.", show_default=False
    ),
]

BackendCa = Annotated[
    Path | None,
    typer.Option(
        "--backend-ca",
        metavar="FILE",
        help="Certificates in PEM of the authorities behind the servers' own. Default: those that everyone trusts.",
        show_default=False,
    ),
]


def route(
    *,
    backend: Servers,
    backend_ca: BackendCa = None,
    host: Host = "127.0.0.1",
    port: Port = 8081,
    allow_host: AllowHost = None,
    cors: Cors = None,
    ssl_certfile: CertFile = None,
    ssl_keyfile: CertKeyFile = None,
    log_level: LogLevel = "info",
    otlp_endpoint: OtlpEndpoint = None,
    debug: o.Debug = False,
) -> int:
    """Spread requests over several servers of one model (`zinc serve`).

    Requests that begin alike go to the server that has their beginning in its cache. A server that ends is left out,
    and its streams go on with another one, byte for byte. Keys are checked by the servers, which need the same ones.
    Each option may come from the environment: ZINC_ROUTE_PORT=9000 is --port 9000.
    """
    from zinc_rt.serving.api.config import ServerConfig
    from zinc_rt.serving.api.tls import Certificate
    from zinc_rt.serving.api.web import WebRule
    from zinc_rt.serving.route.server import start_router

    config = ServerConfig(
        host=host,
        port=port,
        web=WebRule.of(host, allow_host or (), cors or ()),
        certificate=Certificate.of(ssl_certfile, ssl_keyfile),
        log_level=log_level,
        otlp_endpoint=otlp_endpoint,
    )
    return start_router(backend, config, lambda url: write(f"zinc: {url} passes requests on now\n"), backend_ca)
