"""The options of a server beside those of its engine: addresses, keys, records, its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.option_records import OptionRecord
from zinc_rt.cli.options import size_bytes
from zinc_rt.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.sampling.params import SamplingParams
    from zinc_rt.serving.api.config import ServerConfig

SERVER: Final = "Server"

Host = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all.", rich_help_panel=SERVER),
]
Port = Annotated[
    int,
    typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 takes a free one.", rich_help_panel=SERVER),
]
KeyFile = Annotated[
    Path | None,
    o.option(
        SERVER,
        "--api-key-file",
        metavar="FILE",
        help="Keys of tenants, as `zinc keys new TENANT` writes them; read again on SIGHUP. Default: no keys, and only"
        " this machine is served.",
    ),
]
ApiKey = Annotated[
    str | None,
    o.option(
        SERVER,
        "--api-key",
        metavar="KEY[,KEY]",
        help="Keys of the tenant `default`. Other users of this machine see them; --api-key-file hides them.",
    ),
]
TenantFile = Annotated[
    Path | None,
    o.option(
        SERVER,
        "--tenants",
        metavar="FILE",
        help="Limits of the server and of its tenants, in TOML; read again on SIGHUP.",
    ),
]
NoAuth = Annotated[bool, o.option(SERVER, "--no-auth", help="Serve everyone who reaches --host, without keys.")]
AllowHost = Annotated[
    list[str] | None,
    o.option(
        SERVER,
        "--allow-host",
        metavar="NAME",
        help="A name by which browsers may call the server where no key is asked for, beside this machine's addresses;"
        " once for each.",
    ),
]
Cors = Annotated[
    list[str] | None,
    o.option(
        SERVER,
        "--cors",
        metavar="ORIGIN",
        help="A web page that may use the server and read its answers, as https://chat.example; once for each; * for"
        " all.",
    ),
]
CertFile = Annotated[
    Path | None,
    o.option(
        SERVER,
        "--ssl-certfile",
        metavar="FILE",
        help="Certificate for TLS in PEM, its issuers' behind it; read again on SIGHUP. Default: no TLS.",
    ),
]
CertKeyFile = Annotated[
    Path | None,
    o.option(
        SERVER,
        "--ssl-keyfile",
        metavar="FILE",
        help="The certificate's key in PEM, without a password. Default: it is in the certificate's file.",
    ),
]
Alias = Annotated[
    str | None,
    o.option(
        SERVER,
        "-a",
        "--alias",
        metavar="NAME[,NAME]",
        help="Names of the model in requests and answers; '*': any name. Default: the file's.",
    ),
]
Strict = Annotated[
    bool, o.option(SERVER, "--strict", help="Refuse fields of requests that are not known or would be ignored.")
]
Records = Annotated[
    Path | None,
    o.option(
        SERVER,
        "--records",
        metavar="FILE",
        help="Keep a ledger of all requests in FILE, and records to replay them by (`zinc replay`): token ids of"
        " prompts and answers, unless a tenant's limits say otherwise.",
    ),
]
ReceiptKey = Annotated[
    Path | None,
    o.option(
        SERVER,
        "--receipt-key",
        metavar="DIR",
        help="Sign receipts of recorded requests by the key in DIR, which is made at the first start; needs the extra"
        " `receipts`. Default: receipts are not signed.",
    ),
]
RecordsSize = Annotated[
    str,
    typer.Option("--records-size", metavar="SIZE", help="Room for records; the oldest go.", rich_help_panel=SERVER),
]
Audit = Annotated[
    int,
    typer.Option(
        "--audit",
        metavar="N",
        min=0,
        help="Compute one of N recorded requests again while nothing is asked for, and log an error where a token"
        " differs; 0: none.",
        rich_help_panel=SERVER,
    ),
]
MetricsNames = Annotated[
    Literal["zinc", "vllm"],
    typer.Option(
        "--metrics-names",
        metavar="zinc|vllm",
        help="Names of the figures at /metrics: ours, or vLLM's beside them, for dashboards made for it.",
        rich_help_panel=SERVER,
    ),
]
OtlpEndpoint = Annotated[
    str | None,
    o.option(
        SERVER,
        "--otlp-endpoint",
        metavar="URL",
        help="Send a trace of each request to the collector of OpenTelemetry there, as http://localhost:4318; needs the"
        " extra `otel`. OTEL_* variables say all else. Default: no traces.",
    ),
]
MediaHosts = Annotated[
    str | None,
    o.option(
        SERVER,
        "--media-hosts",
        metavar="HOST[,HOST]",
        help="Hosts from which pictures are fetched that a request names by http(s) URLs; '*': any of the open"
        " internet. Default: none.",
    ),
]
MediaPath = Annotated[
    Path | None,
    o.option(
        SERVER,
        "--media-path",
        metavar="DIR",
        help="Folder whose files a request may name by file: URLs as pictures. Default: none.",
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(
        "--log-level",
        metavar="debug|info|warning|error",
        help="Least level of a line of the log; requests are info.",
        rich_help_panel=SERVER,
    ),
]
Drain = Annotated[
    float,
    typer.Option(
        "--drain",
        metavar="SECONDS",
        min=0,
        help="Time that running requests get after the first signal to end; a second one ends at once.",
        rich_help_panel=SERVER,
    ),
]
LogFormat = Annotated[
    Literal["json", "text"] | None,
    o.option(
        SERVER,
        "--log-format",
        metavar="json|text",
        help="The log: a JSON object a line, or lines for a person. Default: text on a terminal, else JSON.",
    ),
]
AllowPull = Annotated[
    bool,
    o.option(
        SERVER,
        "--allow-pull",
        help="Download models of the hub where clients of Ollama's interface ask for it (administrators, with keys).",
    ),
]
AllowDelete = Annotated[
    bool,
    o.option(
        SERVER, "--allow-delete", help="Delete downloaded models that are not served, where such clients ask for it."
    ),
]
OneProcess = Annotated[
    bool,
    o.option(SERVER, "--one-process", help="Run the engine in this process: nothing is started anew where it fails."),
]


@dataclass(frozen=True, kw_only=True)
class ServerOptions(OptionRecord):
    """A server's addresses, its keys and tenants, and its records."""

    host: Host = "127.0.0.1"
    port: Port = 8080
    api_key_file: KeyFile = None
    api_key: ApiKey = None
    tenants: TenantFile = None
    no_auth: NoAuth = False
    allow_host: AllowHost = None
    cors: Cors = None
    ssl_certfile: CertFile = None
    ssl_keyfile: CertKeyFile = None
    alias: Alias = None
    strict: Strict = False
    drain: Drain = 30.0
    records: Records = None
    records_size: RecordsSize = "1G"
    receipt_key: ReceiptKey = None
    audit: Audit = 0
    media_hosts: MediaHosts = None
    media_path: MediaPath = None
    metrics_names: MetricsNames = "zinc"
    otlp_endpoint: OtlpEndpoint = None
    log_format: LogFormat = None
    log_level: LogLevel = "info"
    one_process: OneProcess = False
    allow_pull: AllowPull = False
    allow_delete: AllowDelete = False

    def check(self) -> None:
        """Raises `UsageError` for options that do not go together, and for empty names and keys."""
        if not all(self.names):
            raise UsageError(f"--alias is {self.alias!r}; it must be names with commas between them")
        if self.audit and self.records is None:
            raise UsageError(
                f"--audit {self.audit} computes recorded requests again and there are no records; give --records"
            )
        if self.receipt_key is not None and self.records is None:
            raise UsageError(f"--receipt-key {self.receipt_key} signs receipts and there are none; give --records")
        if not all(self.keys):
            raise UsageError("--api-key is empty, or has an empty key between its commas; give at least one character")

    @property
    def names(self) -> tuple[str, ...]:
        """The model's names."""
        return () if self.alias is None else tuple(name.strip() for name in self.alias.split(","))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the tenant `default`."""
        return () if self.api_key is None else tuple(key.strip() for key in self.api_key.split(","))

    def config(self, defaults: SamplingParams) -> ServerConfig:
        """It as the server takes it. defaults: what requests omit. Raises `UsageError`."""
        from zinc_rt.serving.api.config import ServerConfig
        from zinc_rt.serving.api.media import MediaRule
        from zinc_rt.serving.api.tls import Certificate
        from zinc_rt.serving.api.web import WebRule

        return ServerConfig(
            host=self.host,
            port=self.port,
            keys=self.api_key_file,
            tenants=self.tenants,
            no_auth=self.no_auth,
            strict=self.strict,
            drain=self.drain,
            alias=self.names,
            records=self.records,
            records_bytes=size_bytes("--records-size", self.records_size),
            receipt_key=self.receipt_key,
            vllm_names=self.metrics_names == "vllm",
            audit=self.audit,
            api_keys=self.keys,
            defaults=defaults,
            log=self.log_format,
            web=WebRule.of(self.host, self.allow_host or (), self.cors or ()),
            certificate=Certificate.of(self.ssl_certfile, self.ssl_keyfile),
            media=MediaRule.of(self.media_hosts, self.media_path),
            log_level=self.log_level,
            pulls=self.allow_pull,
            deletes=self.allow_delete,
            otlp_endpoint=self.otlp_endpoint,
        )
