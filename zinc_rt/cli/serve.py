"""`zinc serve`: models for many callers over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.adapter_options import ServedAdapterOptions
from zinc_rt.cli.agent_lines import agent_lines
from zinc_rt.cli.embed import PoolingName
from zinc_rt.cli.engine_options import ContextOptions, Files, GeneratingOptions
from zinc_rt.cli.files import model_file
from zinc_rt.cli.option_records import OptionRecord, takes_records
from zinc_rt.cli.options import completes, downloaded, size_bytes
from zinc_rt.cli.sampling_options import ServerSampling
from zinc_rt.cli.server_options import SERVER, ServerOptions
from zinc_rt.cli.several import devices_of, serve_each
from zinc_rt.cli.terminal import write
from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show
from zinc_rt.utils.durations import seconds_of

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
    o.option(
        o.MODEL,
        "--kv-memory",
        metavar="SIZE",
        help="Memory of the KV cache, as 4G or 512M; what requests do not need keeps prefixes. Default: a context for"
        " each of -np.",
    ),
]
StateMemory = Annotated[
    str | None,
    o.option(
        o.MODEL,
        "--state-memory",
        metavar="SIZE",
        help="Memory for copies of recurrent layers' states, to which edited texts go back. Default: a copy for 512"
        " positions, within half of what the rest leaves.",
    ),
]
MaxStep = Annotated[
    float | None,
    o.option(
        o.MODEL,
        "--max-step-ms",
        metavar="MS",
        help="Milliseconds of a step while texts are generated, which bounds how long a long prompt stops them.",
    ),
]
Embeddings = Annotated[
    bool, o.option(o.MODEL, "--embeddings", help="Serve vectors of texts (/v1/embeddings) in place of text.")
]


Models = Annotated[
    list[Path] | None,
    o.option(
        o.MODEL,
        "-m",
        "--model",
        metavar="FILE|FOLDER",
        autocompletion=completes(downloaded),
        help="GGUF model file, or a downloaded model by its name (`zinc list`). Several, or a folder of files: requests"
        " choose by name, and each is loaded when it is asked for. Default: the small story model inside the package.",
    ),
]
ServedMmproj = Annotated[
    list[str] | None,
    o.option(
        o.MODEL,
        "--mmproj",
        metavar="[MODEL=]FILE",
        help="A projector (mmproj-*.gguf), with which a model reads pictures; of several models, those that it fits, or"
        " MODEL; once for each. Default: the one beside a model's file.",
    ),
]
ServedDraft = Annotated[
    list[str] | None,
    o.option(
        o.MODEL,
        "-md",
        "--model-draft",
        metavar="[MODEL=]FILE",
        help="GGUF file of a small model with the same vocabulary, which guesses for --spec draft; or of a model's own"
        " block or assistant, for --spec mtp. Of several models, for those that it fits, or MODEL; once for each.",
    ),
]
IdleUnload = Annotated[
    str | None,
    o.option(
        o.MODEL,
        "--idle-unload",
        metavar="TIME",
        help="Unload a model that had no request for so long, as 10m, 90s or 2h; the next request loads it. Default:"
        " only when its memory is needed.",
    ),
]
ModelsMemory = Annotated[
    str | None,
    o.option(
        o.MODEL,
        "--models-memory",
        metavar="SIZE",
        help="Memory that all loaded models may take together, as 24G. Default: what the machine has when the server"
        " starts.",
    ),
]
AgentLines = Annotated[
    bool,
    o.option(
        SERVER,
        "--agent",
        help="Print the lines that point Codex, Claude Code, OpenCode and Aider at this server, once it answers.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ServedOptions(GeneratingOptions):
    """What runs the models of a server, and which ones these are."""

    model: Models = None  # type: ignore[assignment]  # lists, where other verbs take one
    mmproj: ServedMmproj = None  # type: ignore[assignment]
    model_draft: ServedDraft = None  # type: ignore[assignment]
    idle_unload: IdleUnload = None
    models_memory: ModelsMemory = None

    def projector(self) -> Files:
        """What --mmproj gives. Raises `UsageError`."""
        return self._given_files("--mmproj", self.mmproj or [])

    def draft(self) -> Files:
        """What --model-draft gives. Raises `UsageError`, and what `model_file` raises."""
        found = self._given_files("--model-draft", self.model_draft or [])
        return found if isinstance(found, list) else str(model_file(Path(found), None))

    def _given_files(self, option: str, given: list[str]) -> Files:
        if self.several:
            return given
        if len(given) > 1:
            raise UsageError(f"{option} is given {len(given)} times; where there is one model it is given once")
        return given[0]

    @cached_property
    def files(self) -> list[Path]:
        """The files that are named, and the models of folders in the order of their names. Raises `UsageError`."""
        found: list[Path] = []
        given: list[Path] = self.model or []
        for path in given:
            if path.is_dir():
                inside = sorted(filter(_is_model, path.rglob("*.gguf")))
                if not inside:
                    raise UsageError(f"{path} has no model files (*.gguf)")
                found += inside
            else:
                found += filter(None, [model_file(path)])
        return list(dict.fromkeys(found))

    @property
    def several(self) -> bool:
        """Whether models are loaded when asked for: so is a single one where an option says when it is unloaded."""
        return len(self.files) > 1 or self.idle_unload is not None or self.models_memory is not None

    def idle(self) -> float | None:
        """Seconds after which an idle model is unloaded. Raises `UsageError`."""
        if self.idle_unload is None:
            return None
        seconds = seconds_of(self.idle_unload)
        if seconds is None or seconds <= 0:
            raise UsageError(f"--idle-unload is {show(self.idle_unload)}; it must be a time above 0, as 10m, 90s or 2h")
        return seconds


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
    engine: ServedOptions,
    context: ContextOptions,
    sharing: SharingOptions,
    adapters: ServedAdapterOptions,
    server: ServerOptions,
    sampling: ServerSampling,
    ctx: typer.Context,
    agent: AgentLines = False,
    debug: o.Debug = False,
) -> int:
    """Serve models to many callers, with the interfaces of OpenAI, Anthropic and Ollama.

    A line on standard output says when requests are answered, and where; the log goes to standard error. Options
    about choosing tokens are for requests that do not say. Ctrl-C lets running requests finish; a second one ends at
    once. `--device cuda:0,cuda:1` runs an engine on each device and shares requests out among them. Each option may
    come from the environment: ZINC_SERVE_PORT=9000 is --port 9000.
    """
    server.check()
    paths = engine.files
    if engine.hub is not None and paths:
        raise UsageError(f"models given by -m {paths[0]} and by -hf {engine.hub}; pass only one of the options")
    if several := engine.several:
        _check_several(engine, server)
    defaults = sampling.params()

    def first() -> Path | None:
        return paths[0] if paths else model_file(None, engine.hub)

    def told(url: str) -> None:
        write(f"zinc: {url}/v1 answers now; {url}/health says how it is\n")
        if agent:
            write(agent_lines(url, server.names or (_name(first(), several),)))

    if devices := devices_of(engine.device):
        return serve_each(devices, ctx, server.config(defaults), told)
    options = {**engine.load_options(), **context.load_options(), **sharing.load_options()}
    embeds = sharing.embeddings or sharing.pooling is not None
    if embeds and engine.mmproj is not None:
        raise UsageError("--mmproj is for texts about pictures, --embeddings serves vectors of texts; give one")
    options |= adapters.load_options(options.pop("lora", []))
    from zinc_rt.llm.load import built_in_model
    from zinc_rt.serving.api.start import EngineChoice, Several, start_server

    choice = EngineChoice(
        path=first(),
        options={name: value for name, value in options.items() if value is not None},
        core={} if sharing.max_step_ms is None else {"max_step_ms": sharing.max_step_ms},
        one_process=server.one_process,
        embeddings=embeds,
        pooling=sharing.pooling,
    )
    if not several:
        return start_server(server.config(defaults), choice, told)
    memory = None if engine.models_memory is None else size_bytes("--models-memory", engine.models_memory)
    return start_server(
        server.config(defaults),
        choice,
        told,
        Several(paths or [choice.path or built_in_model()], memory, engine.idle()),
    )


def _is_model(path: Path) -> bool:
    """Whether a file in a folder is a model: not another part, nor what its name or itself says is something else.

    Raises `GGUFError` for one that cannot be read.
    """
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.hub.choose import begins_model

    if not begins_model(path.name):
        return False
    with GGUFFile.open(path) as file:
        return bool(file.metadata.get("general.type", "model") == "model")


def _name(path: Path | None, several: bool) -> str:
    """The name by which a server without aliases knows a file; None is the one in the package."""
    from zinc_rt.llm.load import built_in_model
    from zinc_rt.utils.part_name import whole_stem

    path = path or built_in_model()
    return whole_stem(path.name) if several else path.stem


def _check_several(engine: ServedOptions, server: ServerOptions) -> None:
    """Raises `UsageError` for options that are of a single model."""
    given = {
        "--one-process": server.one_process,
        "--alias": bool(set(server.names) - {"*"}),
        "a list of --device": bool(devices_of(engine.device)),
    }
    if wrong := [name for name, there in given.items() if there]:
        raise UsageError(f"{wrong[0]} is for a server of one model; leave it out with several models")
