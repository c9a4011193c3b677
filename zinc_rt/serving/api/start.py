"""`start_server`: from a command line to a server that runs. The choice of the engine's client is made here alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import uvicorn

from zinc_rt.engine.options import DEFAULT_N_CTX, context_of
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.lang.cache import default_cache_dir
from zinc_rt.llm.adapters import lora_requests
from zinc_rt.llm.load import built_in_model, load, open_projector
from zinc_rt.mem.plan import available_memory
from zinc_rt.models import define
from zinc_rt.models.ranking import ranks
from zinc_rt.scheduler.messages import StepReport
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.embedder import EmbeddingClient
from zinc_rt.serving.api.fitting import FittedModel, fit_models
from zinc_rt.serving.api.latency import ask_for_short_turns, keep_what_is_loaded
from zinc_rt.serving.api.logs import make_logger, tell
from zinc_rt.serving.api.metrics import Metrics
from zinc_rt.serving.api.model_table import Admit, ModelTable
from zinc_rt.serving.api.pictures import RequestPictures
from zinc_rt.serving.api.recording import RequestRecorder, ServerRecords
from zinc_rt.serving.api.served_adapters import ServedAdapters
from zinc_rt.serving.api.served_model import ANY_NAME, ServedModel, fingerprint
from zinc_rt.serving.api.server import Files, Server, check_exposure, listen, read_files, tls_of
from zinc_rt.serving.api.service import Service, SpanSender
from zinc_rt.serving.background import Background
from zinc_rt.serving.client import EngineClient
from zinc_rt.serving.process import ProcessClient
from zinc_rt.serving.records.signing import ReceiptSigner
from zinc_rt.serving.wire import Planned, Start
from zinc_rt.text import Tokenizer, template_process

_CORE: Final = "zinc_rt.serving.load_engine:open_core"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine serves. options: of `zinc_rt.load`. core: options of the loop of steps. one_process: it runs on a
    thread of this process. embeddings: it embeds texts. ranks: the file's model ranks them. stamps: of the file, see
    `open_core`. admit: see `ProcessClient`.
    """

    path: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)
    core: dict[str, Any] = field(default_factory=dict)
    one_process: bool = False
    embeddings: bool = False
    ranks: bool = False
    pooling: str | None = None
    stamps: list[list[int]] | None = None
    admit: Callable[[Planned], Awaitable[None]] | None = None


def make_client(
    choice: EngineChoice,
    notify: Callable[[str], None],
    report: Callable[[StepReport], None],
    background: Background | None = None,
) -> EngineClient:
    """The engine's client; nothing is loaded yet."""
    if choice.embeddings or choice.ranks:
        others = ("n_slots", "kv_memory", "state_memory", "mmproj")
        one = {key: value for key, value in choice.options.items() if key not in others}
        return EmbeddingClient(
            partial(
                load, choice.path, embeddings=choice.embeddings or None, pooling=choice.pooling, notify=notify, **one
            )
        )
    path = None if choice.path is None else str(choice.path)
    arguments = {"path": path, "stamps": choice.stamps, **choice.options, **choice.core}
    if choice.one_process:
        from zinc_rt.serving.load_engine import open_core
        from zinc_rt.serving.thread import ThreadClient

        opening = partial(open_core, **arguments, notify=notify)
        return ThreadClient(opening, report=report, notify=notify, background=background)
    start = Start(_CORE, arguments, asks=choice.admit is not None)
    return ProcessClient(start, notify=notify, report=report, background=background, admit=choice.admit)


def start_server(
    config: ServerConfig,
    choice: EngineChoice,
    started: Callable[[str], None],
    several: Several | None = None,
) -> int:
    """Serve until a signal ends it; returns the exit code. started: gets the address once requests are answered.
    several: serves these models, each as `choice` says, in place of that of `choice`.

    Raises `ZincError` for files that cannot be used, an address that is taken, and a model that cannot be loaded.
    """

    def ready(url: str) -> None:
        keep_what_is_loaded()
        started(url)

    check_exposure(config)
    tls_of(config)
    ask_for_short_turns()
    service = make_service(config, choice) if several is None else several.service(config, choice)
    sock = None
    try:
        sock = listen(config)
        factory = uvicorn.Config(_nothing).get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(Server(service, sock, ready).run())
    finally:
        if sock is not None:
            sock.close()
        if service.table is None:
            service.model.close()


@dataclass(frozen=True, slots=True)
class Several:
    """The models of one server. budget: bytes for the plans of all that are loaded, None for what the machine has.
    idle: see `ModelTable`.
    """

    paths: Sequence[Path]
    budget: int | None = None
    idle: float | None = None

    def service(self, config: ServerConfig, choice: EngineChoice) -> Service:
        """The front of a table of them. Raises `ZincError` for files that cannot be used."""
        budget = available_memory() if self.budget is None else self.budget
        models = fit_models(self.paths, choice.options, choice.embeddings)
        shared = SharedParts.open(config)
        front = Service(
            config, None, None, shared.log, shared.files.tenants, shared.files.keys,
            background=shared.background, records=shared.records, tracer=shared.tracer,
        )  # fmt: skip

        def opened(model: FittedModel, admit: Admit, metrics: Metrics) -> Service:
            own = replace(
                choice, path=model.file.path, options=dict(model.options), embeddings=model.embeds, admit=admit
            )
            named = replace(config, alias=(*model.names, *(name for name in config.alias if name == ANY_NAME)))
            files = Files(front.tenants, front.keys)
            return make_service(named, own, replace(shared, files=files), front, metrics)

        ModelTable(front, models, opened, budget, self.idle)
        return front


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What all services of a server have."""

    files: Files
    log: logging.Logger
    background: Background
    records: ServerRecords | None
    tracer: SpanSender | None = None

    @classmethod
    def open(cls, config: ServerConfig) -> Self:
        """Those of a command line. Raises `UsageError`, and what `open_records` raises."""
        files, log = read_files(config), make_logger(form=config.log, level=config.log_level)
        template_process.prepare()
        background, tracer = Background(log), None
        if config.otlp_endpoint is not None:
            from zinc_rt.serving.api.tracing import RequestTracer

            tracer = RequestTracer(config.otlp_endpoint, log)
        return cls(files, log, background, open_records(config, log, background), tracer)


def make_service(
    config: ServerConfig,
    choice: EngineChoice,
    shared: SharedParts | None = None,
    front: Service | None = None,
    metrics: Metrics | None = None,
) -> Service:
    """What answers requests; its engine is not started yet. shared: None for a server of this model alone. front: see
    `Service`. metrics: counts that go on, None for new ones. Raises `ZincError` for files that cannot be used.
    """
    shared = shared or SharedParts.open(config)
    log, path = shared.log, choice.path or built_in_model()

    def notify(line: str) -> None:
        which: dict[str, Any] = {} if front is None else {"model": config.alias[0]}
        tell(log, "engine", message=line, **which)

    with GGUFFile.open(path) as file:
        tokenizer, stamps = Tokenizer.from_metadata(file.metadata), file.stamps
        choice = replace(choice, ranks=ranks(file.metadata))
        pictures, shown = _pictures(config, choice, path, file, notify)
        projector = None if shown is None else Path(shown.path)
        model = ServedModel.read(file, tokenizer, _context(choice, file), config.alias, pictures, projector)
        adapters = ServedAdapters.read(
            file,
            lora_requests(choice.options.get("lora")),
            choice.options.get("lora_slots"),
            None if shared.records is None else _hash_folder(choice.options.get("cache_dir")),
        )
        if taken := next((a.name for a in adapters.entries if a.name in model.names), None):
            raise UsageError(f"an adapter and the model are both called {taken!r}; --lora-modules gives another name")
        model = replace(model, defaults=config.defaults, adapters=adapters)
    options = {name: value for name, value in choice.options.items() if name != "mmproj"}
    if shown is not None:
        options, stamps = {**options, "mmproj": str(shown.path)}, [*stamps, *shown.stamps]
    choice = replace(choice, options=options, stamps=stamps)
    recorder = None
    if shared.records is not None:
        hashes = (partial(sha256_of, options.get("cache_dir"), of) for of in (path, projector))
        recorder = RequestRecorder(shared.records, model.name, *hashes)
    metrics = metrics or Metrics()
    client = make_client(choice, notify, metrics.step, shared.background)
    return Service(
        config, client, model, log, shared.files.tenants, shared.files.keys, recorder, metrics, shared.background,
        front, tracer=shared.tracer,
    )  # fmt: skip


def _context(choice: EngineChoice, file: GGUFFile) -> int:
    """Tokens of a context as the engine will have it, from the file's directory alone."""
    trained = file.metadata.get(f"{file.metadata.get('general.architecture')}.context_length")
    trained = trained if isinstance(trained, int) else DEFAULT_N_CTX
    return context_of(choice.options.get("n_ctx"), trained)


def sha256_of(cache_dir: str | None, path: Path | None) -> str:
    """The hash of a file's bytes, empty for no file. Raises `GGUFError`."""
    if path is None:
        return ""
    with GGUFFile.open(path) as file:
        return file.sha256(_hash_folder(cache_dir))


def _hash_folder(cache_dir: str | None) -> Path | None:
    """Where hashes of files are kept."""
    return Path(cache_dir) if cache_dir else default_cache_dir()


def _pictures(
    config: ServerConfig, choice: EngineChoice, path: Path, file: GGUFFile, notify: Callable[[str], None]
) -> tuple[RequestPictures | None, GGUFFile | None]:
    """What reads pictures, and the projector's file, closed; nothing where the model reads none.

    Raises `ZincError` for a projector that cannot be used.
    """
    mmproj = choice.options.get("mmproj")
    if mmproj is None or choice.embeddings or choice.ranks:
        return None, None
    found = open_projector(str(mmproj), str(path), file, define(file), notify)
    if found is None:
        return None, None
    shown, tower, _ = found
    with shown:
        return RequestPictures(tower, fingerprint(Path(shown.path)).encode(), config.media), shown


def open_records(
    config: ServerConfig, log: logging.Logger, background: Background | None = None
) -> ServerRecords | None:
    """What keeps requests that are over, where the command line asks for it. Raises `StoreError`, `SigningError`, and
    `UsageError` where receipts cannot be signed.
    """
    if config.records is None:
        return None
    signer = None if config.receipt_key is None else ReceiptSigner(config.receipt_key)
    said = (
        "not signed; --receipt-key gives the server a key" if signer is None else f"signed by the key {signer.key_id}"
    )
    tell(log, "receipts", message=f"receipts are {said}")
    return ServerRecords(config.records, config.records_bytes, log, background, signer)


async def _nothing(*_: object) -> None:
    """Only to ask uvicorn which event loop it would take."""
