"""A server with a real engine: the model in the package behind sockets, in this process but for the engine's."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx

from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.adapters import lora_requests
from zinc_rt.llm.chat import ChatFormat
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define
from zinc_rt.scheduler.messages import StepReport, Token
from zinc_rt.serving.api.config import ServerConfig, TenantConfigs
from zinc_rt.serving.api.keys import ApiKeys
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.media import MediaRule
from zinc_rt.serving.api.metrics import Metrics
from zinc_rt.serving.api.pictures import RequestPictures, shown_part
from zinc_rt.serving.api.recording import RequestRecorder
from zinc_rt.serving.api.served_adapters import ServedAdapters
from zinc_rt.serving.api.served_model import ServedModel, fingerprint
from zinc_rt.serving.api.server import Server, listen
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.start import EngineChoice, make_client, open_records, sha256_of
from zinc_rt.serving.process import ProcessClient
from zinc_rt.serving.wire import Start
from zinc_rt.text import ChatTemplate, Tokenizer
from zinc_rt.vision.projector import with_projector

TEMPLATE = """{% for t in tools or [] %}{{ t.function.name }} {% endfor %}
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{# <tool_call> #}assistant: """
"""A template whose model calls tools, as the one in the package does not."""
_OWN = re.compile(rb"(?:chatcmpl|cmpl)-[0-9A-Za-z]{24}(\.\d+)?|\"created\":\d+")
SECONDS = 120
"""What a test waits at the most for what is bound to come."""


@dataclass(frozen=True)
class Ask:
    """A request that streams."""

    path: str
    body: dict[str, Any]

    @property
    def json(self) -> bytes:
        """The body."""
        return json.dumps({**self.body, "stream": True}).encode()

    @property
    def raw(self) -> bytes:
        """The whole request."""
        head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(self.json)}\r\n\r\n"
        return head.encode() + self.json


def told(body: bytes) -> bytes:
    """A stream without what tells two answers apart: ids, times, and signs of life while it waits."""
    assert body.endswith(b"data: [DONE]\n\n"), body[-300:]
    return _OWN.sub(b"", body.replace(b": ping\n\n", b""))


@cache
def _model() -> ServedModel:
    with GGUFFile.open(built_in_model()) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        read = ServedModel.read(file, tokenizer, 0, ["story"])
    template = ChatTemplate({"default": TEMPLATE}, {}, None)
    chat = ChatFormat(tokenizer, template)
    assert chat.dialect.name == "hermes"
    return dataclasses.replace(read, chat=chat, template=template)


def _with_pictures(model: ServedModel, projector: Path, media: MediaRule | None) -> ServedModel:
    """The model with a projector, as `make_service` gives it one."""
    with GGUFFile.open(built_in_model()) as file, GGUFFile.open(projector) as shown:
        pictures = RequestPictures(with_projector(define(file), file, shown)[0], fingerprint(projector).encode(), media)
    assert model.template is not None
    chat = ChatFormat(model.tokenizer, model.template, pictures=shown_part)
    return dataclasses.replace(model, chat=chat, pictures=pictures)


def stamps_of(path: Path) -> list[list[int]]:
    """`GGUFFile.stamps` of a file."""
    with GGUFFile.open(path) as file:
        return file.stamps


class Cold(Service):
    """A service none of whose requests begins like another, as its prefix cache sees them."""

    def salt(self, tenant: str) -> bytes:
        """Another one each time."""
        return os.urandom(16)


class Real:
    """A server that listens, and a client of it."""

    def __init__(self, service: Service, http: httpx.AsyncClient, port: int, log: io.StringIO) -> None:
        self.service, self.http, self.port, self._log = service, http, port, log
        self.ids: dict[int, str] = {}

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    @property
    def engine(self) -> ProcessClient:
        """The client of an engine in a process of its own."""
        assert isinstance(self.service.client, ProcessClient)
        return self.service.client

    async def say(self, ask: Ask) -> bytes:
        """The stream that answers."""
        answer = await self.http.post(ask.path, content=ask.json)
        assert answer.status_code == 200, answer.text
        self.ids[id(ask)] = answer.headers["x-request-id"]
        return told(answer.content)

    async def storm(self, asks: Sequence[Ask]) -> list[bytes]:
        """The streams of all, asked at once."""
        return await asyncio.gather(*map(self.say, asks))

    async def metric(self, name: str) -> float:
        """A value of /metrics."""
        text = (await self.http.get("/metrics")).text
        return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + " "))

    async def send(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has sent these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that is bound to come."""
        async with asyncio.timeout(SECONDS):
            while not true():
                await asyncio.sleep(0.005)

    async def settled(self) -> None:
        """Wait until nothing runs any more: no request, no place, no page that a request holds."""
        service = self.service

        def quiet() -> bool:
            now = service.client.status
            return not (service.running or now.queued or now.prefilling or now.decoding or now.pages_used)

        await self.until(quiet)
        assert service.admission.inside == 0
        now = service.client.status
        assert now.pages_free + now.pages_cached > 0


@asynccontextmanager
async def real(
    *,
    process: bool = False,
    cold: bool = False,
    records: Path | None = None,
    tenants: TenantConfigs | None = None,
    keys: ApiKeys | None = None,
    report: Callable[[StepReport], None] | None = None,
    restarts: int = 3,
    stuck: float = 10.0,
    model: Path | None = None,
    mmproj: Path | None = None,
    limits: Limits | None = None,
    media: MediaRule | None = None,
    factory: str = "zinc_rt.serving.load_engine:open_core",
    **options: Any,
) -> AsyncIterator[Real]:
    """Run a server.

    Args:
        process: the engine is in a process of its own. cold: nothing is reused from one request to the next.
        records: the file of records. model: a file in place of the one in the package. mmproj: of its projector; media:
            where its pictures may come from.
        report: gets what the engine tells of each step. restarts, stuck: see `ProcessClient`.
        factory: what opens the engine in its process. options: its own, or of `zinc_rt.load`.
    """
    log, metrics = io.StringIO(), Metrics()
    logger = make_logger(log)

    def reported(step: StepReport) -> None:
        metrics.step(step)
        if report is not None:
            report(step)

    options = {"device": "cpu", "n_ctx": 256, "threads": 2, **options}
    if mmproj is not None:
        options["mmproj"] = str(mmproj)
    choice = EngineChoice(model, options, one_process=not process)
    client = make_client(choice, lambda line: None, reported)
    if process:
        stamps = [stamp for path in filter(None, (model or built_in_model(), mmproj)) for stamp in stamps_of(path)]
        arguments = {"path": None if model is None else str(model), "stamps": stamps, **options}
        start = Start(factory, arguments)
        client = ProcessClient(start, report=reported, restarts=restarts, stuck=stuck)
    config = ServerConfig(port=0, records=records, drain=SECONDS)
    kept = open_records(config, logger)
    hashes = (partial(sha256_of, None, path) for path in (model or built_in_model(), mmproj))
    recorder = None if kept is None else RequestRecorder(kept, "story", *hashes)
    with GGUFFile.open(model or built_in_model()) as file:
        adapters = ServedAdapters.read(file, lora_requests(options.get("lora")), options.get("lora_slots"))
    made = dataclasses.replace(_model(), pool=ThreadPoolExecutor(2), adapters=adapters)
    if mmproj is not None:
        made = _with_pictures(made, mmproj, media)
    tenants = tenants or TenantConfigs(limits=limits or Limits(queue=4096))  # a storm of all is not to be refused
    service = (Cold if cold else Service)(config, client, made, logger, tenants, keys, recorder, metrics)
    ready, sock = asyncio.Event(), listen(config)
    port = sock.getsockname()[1]
    server = Server(service, sock, lambda url: ready.set())
    task = asyncio.create_task(server.run(signals=False))
    waits = asyncio.create_task(ready.wait())
    try:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS, limits=limits) as http:
            await asyncio.wait({task, waits}, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
            assert ready.is_set()
            yield Real(service, http, port, log)
    finally:
        waits.cancel()
        server.stop()
        server.stop()
        assert await asyncio.wait_for(task, SECONDS) == 0
        sock.close()


def tokens_in(report: StepReport) -> int:
    """How many tokens a step gave."""
    return sum(isinstance(event, Token) for event in report.events)
