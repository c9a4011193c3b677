"""`zinc serve`: one model for many callers over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from zinc_rt.cli import guessing as g
from zinc_rt.cli import options as o
from zinc_rt.cli.choosing import sampling_params
from zinc_rt.cli.embed import PoolingName
from zinc_rt.cli.files import model_file
from zinc_rt.cli.opening import guesses
from zinc_rt.cli.session import device_for_layers
from zinc_rt.cli.terminal import write
from zinc_rt.errors import UsageError
from zinc_rt.sampling.params import SamplingParams

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
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help="Keys of tenants, as `zinc keys new TENANT` writes them; read again on SIGHUP. Default: no keys, and only"
        " this machine is served.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY[,KEY]",
        help="Keys of the tenant `default`. Other users of this machine see them; --api-key-file hides them.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
TenantFile = Annotated[
    Path | None,
    typer.Option(
        "--tenants",
        metavar="FILE",
        help="Limits of the server and of its tenants, in TOML; read again on SIGHUP.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
NoAuth = Annotated[
    bool,
    typer.Option(
        "--no-auth",
        help="Serve everyone who reaches --host, without keys.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="A name by which browsers may call the server where no key is asked for, beside this machine's addresses;"
        " once for each.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
Cors = Annotated[
    list[str] | None,
    typer.Option(
        "--cors",
        metavar="ORIGIN",
        help="A web page that may use the server and read its answers, as https://chat.example; once for each; * for"
        " all.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
CertFile = Annotated[
    Path | None,
    typer.Option(
        "--ssl-certfile",
        metavar="FILE",
        help="Certificate for TLS in PEM, its issuers' behind it; read again on SIGHUP. Default: no TLS.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
CertKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--ssl-keyfile",
        metavar="FILE",
        help="The certificate's key in PEM, without a password. Default: it is in the certificate's file.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
Alias = Annotated[
    str | None,
    typer.Option(
        "-a",
        "--alias",
        metavar="NAME[,NAME]",
        help="Names of the model in requests and answers; '*': any name. Default: the file's.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse fields of requests that are not known or would be ignored.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
Records = Annotated[
    Path | None,
    typer.Option(
        "--records",
        metavar="FILE",
        help="Keep a ledger of all requests in FILE, and records to replay them by (`zinc replay`): token ids of"
        " prompts and answers, unless a tenant's limits say otherwise.",
        rich_help_panel=SERVER,
        show_default=False,
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
Parallel = Annotated[
    int,
    typer.Option(
        "-np",
        "--parallel",
        metavar="N",
        min=1,
        help="Requests computed at once; others wait.",
        rich_help_panel=o.MODEL,
    ),
]
KvMemory = Annotated[
    str | None,
    typer.Option(
        "--kv-memory",
        metavar="SIZE",
        help="Memory of the KV cache, as 4G or 512M; what requests do not need keeps prefixes. Default: a context for"
        " each of -np.",
        rich_help_panel=o.MODEL,
        show_default=False,
    ),
]
MaxStep = Annotated[
    float | None,
    typer.Option(
        "--max-step-ms",
        metavar="MS",
        help="Milliseconds of a step while texts are generated, which bounds how long a long prompt stops them.",
        rich_help_panel=o.MODEL,
        show_default=False,
    ),
]
LogFormat = Annotated[
    Literal["json", "text"] | None,
    typer.Option(
        "--log-format",
        metavar="json|text",
        help="The log: a JSON object a line, or lines for a person. Default: text on a terminal, else JSON.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
OneProcess = Annotated[
    bool,
    typer.Option(
        "--one-process",
        help="Run the engine in this process: nothing is started anew where it fails.",
        rich_help_panel=SERVER,
        show_default=False,
    ),
]
Embeddings = Annotated[
    bool,
    typer.Option(
        "--embeddings",
        help="Serve vectors of texts (/v1/embeddings) in place of text.",
        rich_help_panel=o.MODEL,
        show_default=False,
    ),
]


def size_bytes(option: str, text: str) -> int:
    """An option's size, as `parse_bytes` takes it, above 0. Raises `UsageError`."""
    from zinc_rt.mem.plan import parse_bytes

    try:
        size = parse_bytes(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None
    if not size:
        raise UsageError(f"{option} is {text!r}; it must be above 0")
    return size


def serve(
    *,
    model: o.ModelFile = None,
    hub: o.HubModel = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    api_key_file: KeyFile = None,
    api_key: ApiKey = None,
    tenants: TenantFile = None,
    no_auth: NoAuth = False,
    allow_host: AllowHost = None,
    cors: Cors = None,
    ssl_certfile: CertFile = None,
    ssl_keyfile: CertKeyFile = None,
    alias: Alias = None,
    strict: Strict = False,
    drain: Drain = 30.0,
    records: Records = None,
    records_size: RecordsSize = "1G",
    audit: Audit = 0,
    metrics_names: MetricsNames = "zinc",
    log_format: LogFormat = None,
    log_level: LogLevel = "info",
    one_process: OneProcess = False,
    max_tokens: o.MaxTokens = -1,
    temp: o.Temp = SamplingParams.temperature,
    top_k: o.TopK = SamplingParams.top_k,
    top_p: o.TopP = SamplingParams.top_p,
    min_p: o.MinP = SamplingParams.min_p,
    repeat_penalty: o.RepeatPenalty = SamplingParams.repetition_penalty,
    presence_penalty: o.PresencePenalty = SamplingParams.presence_penalty,
    frequency_penalty: o.FrequencyPenalty = SamplingParams.frequency_penalty,
    repeat_last_n: o.RepeatLastN = SamplingParams.repeat_last_n,
    seed: o.Seed = -1,
    ctx_size: o.CtxSize = None,
    batch_size: o.BatchSize = None,
    parallel: Parallel = 16,
    kv: o.CacheType = None,
    kv_memory: KvMemory = None,
    max_step_ms: MaxStep = None,
    spec: g.SpecName = None,
    model_draft: g.DraftModel = None,
    draft_max: g.DraftMax = None,
    draft_min: g.DraftMin = None,
    embeddings: Embeddings = False,
    pooling: PoolingName = None,
    threads: o.Threads = None,
    device: o.DeviceName = None,
    gpu_layers: o.GpuLayers = None,
    resident: o.Resident = None,
    kernels: o.KernelSet = None,
    isa: o.Isa = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> int:
    """Serve a model to many callers, with the interfaces of OpenAI, Anthropic and Ollama.

    A line on standard output says when requests are answered, and where; the log goes to standard error. Options
    about choosing tokens are for requests that do not say. Ctrl-C lets running requests finish; a second one ends at
    once. Each option may come from the environment: ZINC_SERVE_PORT=9000 is --port 9000.
    """
    names = tuple(name.strip() for name in alias.split(",")) if alias is not None else ()
    if not all(names):
        raise UsageError(f"--alias is {alias!r}; it must be names with commas between them")
    if audit and records is None:
        raise UsageError(f"--audit {audit} computes recorded requests again and there are no records; give --records")
    keys = tuple(key.strip() for key in api_key.split(",")) if api_key is not None else ()
    if not all(keys):
        raise UsageError("--api-key is empty, or has an empty key between its commas; give at least one character")
    defaults = sampling_params(
        max_tokens=max_tokens,
        stop=None,
        logit_bias=None,
        temperature=temp,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repeat_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        repeat_last_n=repeat_last_n,
        seed=0 if seed == -1 else seed,
    )
    given: dict[str, Any] = {
        "device": device if gpu_layers is None else device_for_layers(gpu_layers, device),
        "n_ctx": ctx_size,
        "n_batch": batch_size,
        "threads": threads,
        "resident": resident,
        "kernels": kernels,
        "isa": isa,
        "cache_dir": None if cache_dir is None else str(cache_dir),
        "kv": kv,
        "n_slots": parallel,
        "kv_memory": None if kv_memory is None else size_bytes("--kv-memory", kv_memory),
        **guesses(spec, model_draft, draft_max, draft_min),
    }
    from zinc_rt.serving.api.config import ServerConfig
    from zinc_rt.serving.api.start import EngineChoice, start_server
    from zinc_rt.serving.api.tls import Certificate
    from zinc_rt.serving.api.web import WebRule

    choice = EngineChoice(
        path=model_file(model, hub),
        options={key: value for key, value in given.items() if value is not None},
        core={} if max_step_ms is None else {"max_step_ms": max_step_ms},
        one_process=one_process,
        embeddings=embeddings or pooling is not None,
        pooling=pooling,
    )
    config = ServerConfig(
        host=host,
        port=port,
        keys=api_key_file,
        tenants=tenants,
        no_auth=no_auth,
        strict=strict,
        drain=drain,
        alias=names,
        records=records,
        records_bytes=size_bytes("--records-size", records_size),
        vllm_names=metrics_names == "vllm",
        audit=audit,
        api_keys=keys,
        defaults=replace(defaults, seed=None) if seed == -1 else defaults,
        log=log_format,
        web=WebRule.of(host, allow_host or (), cors or ()),
        certificate=Certificate.of(ssl_certfile, ssl_keyfile),
        log_level=log_level,
    )
    return start_server(config, choice, lambda url: write(f"zinc: {url}/v1 answers now; {url}/health says how it is\n"))
