"""`zinc serve`: one model for many callers over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.adapter_options import ServedAdapterOptions
from zinc_rt.cli.embed import PoolingName
from zinc_rt.cli.engine_options import ContextOptions, GeneratingOptions
from zinc_rt.cli.files import model_file
from zinc_rt.cli.option_records import OptionRecord, takes_records
from zinc_rt.cli.options import size_bytes
from zinc_rt.cli.sampling_options import ServerSampling
from zinc_rt.cli.server_options import ServerOptions
from zinc_rt.cli.several import devices_of, serve_each
from zinc_rt.cli.terminal import write
from zinc_rt.errors import UsageError

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
StateMemory = Annotated[
    str | None,
    typer.Option(
        "--state-memory",
        metavar="SIZE",
        help="Memory for copies of recurrent layers' states, to which edited texts go back. Default: a copy for 512"
        " positions, within half of what the rest leaves.",
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
Embeddings = Annotated[
    bool,
    typer.Option(
        "--embeddings",
        help="Serve vectors of texts (/v1/embeddings) in place of text.",
        rich_help_panel=o.MODEL,
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class SharingOptions(OptionRecord):
    """Options for the way in which requests share the engine, and for their kind."""

    parallel: Parallel = 16
    kv_memory: KvMemory = None
    state_memory: StateMemory = None
    max_step_ms: MaxStep = None
    embeddings: Embeddings = False
    pooling: PoolingName = None

    def load_options(self) -> dict[str, Any]:
        """It as keyword arguments of `zinc_rt.load`. Raises `UsageError`."""
        given = {"kv_memory": self.kv_memory, "state_memory": self.state_memory}
        memory = {
            name: size_bytes(f"--{name.replace('_', '-')}", size) for name, size in given.items() if size is not None
        }
        return {"n_slots": self.parallel, **memory}


@takes_records
def serve(
    *,
    engine: GeneratingOptions,
    context: ContextOptions,
    sharing: SharingOptions,
    adapters: ServedAdapterOptions,
    server: ServerOptions,
    sampling: ServerSampling,
    ctx: typer.Context,
    debug: o.Debug = False,
) -> int:
    """Serve a model to many callers, with the interfaces of OpenAI, Anthropic and Ollama.

    A line on standard output says when requests are answered, and where; the log goes to standard error. Options
    about choosing tokens are for requests that do not say. Ctrl-C lets running requests finish; a second one ends at
    once. `--device cuda:0,cuda:1` runs an engine on each device and shares requests out among them. Each option may
    come from the environment: ZINC_SERVE_PORT=9000 is --port 9000.
    """
    server.check()
    defaults = sampling.params()

    def told(url: str) -> None:
        write(f"zinc: {url}/v1 answers now; {url}/health says how it is\n")

    if devices := devices_of(engine.device):
        return serve_each(devices, ctx, server.config(defaults), told)
    options = {**engine.load_options(), **context.load_options(), **sharing.load_options()}
    embeds = sharing.embeddings or sharing.pooling is not None
    if embeds and engine.mmproj is not None:
        raise UsageError("--mmproj is for texts about pictures, --embeddings serves vectors of texts; give one")
    options |= adapters.load_options(options.pop("lora", []))
    from zinc_rt.serving.api.start import EngineChoice, start_server

    choice = EngineChoice(
        path=model_file(engine.model, engine.hub),
        options={name: value for name, value in options.items() if value is not None},
        core={} if sharing.max_step_ms is None else {"max_step_ms": sharing.max_step_ms},
        one_process=server.one_process,
        embeddings=embeds,
        pooling=sharing.pooling,
    )
    return start_server(server.config(defaults), choice, told)
