"""A server over a fake engine, with the tokenizer and the chat template of the model in the package."""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.serving.api.fake import FakeClient
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.scheduler.messages import Submit
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.config import ServerConfig, TenantConfigs
from zinc_rt.serving.api.keys import ApiKeys
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.text import Tokenizer

SAYS = "Once there was a small grey owl. Zoë fed it — every day 🦉!"
N_CTX = 64


@pytest.fixture(scope="session")
def served() -> Iterator[ServedModel]:
    """The model in the package, with a context of 64 tokens."""
    with GGUFFile.open(built_in_model()) as file:
        model = ServedModel.read(file, Tokenizer.from_metadata(file.metadata), N_CTX, ["story", "alias"])
    yield model
    model.close()


class Bench:
    """A server under test."""

    def __init__(self, service: Service, client: FakeClient, log: io.StringIO) -> None:
        self.service, self.client, self._log = service, client, log
        self.app = App(service)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), base_url="http://localhost", timeout=30
        )

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    async def chat(self, content: str = "Hi", **fields: Any) -> httpx.Response:
        """A chat completion."""
        body = {"model": "story", "messages": [{"role": "user", "content": content}], **fields}
        return await self.http.post("/v1/chat/completions", json=body)


MakeBench = Callable[..., Bench]


@pytest.fixture
def bench(served: ServedModel) -> MakeBench:
    """Makes a server. says: the text of every answer; the rest as for `FakeClient` and `Service`."""

    def make(
        says: str = SAYS,
        *,
        config: ServerConfig | None = None,
        tenants: TenantConfigs | None = None,
        keys: ApiKeys | None = None,
        **engine: Any,
    ) -> Bench:
        ids = served.tokenizer.encode(says, add_special=False)

        def script(request: Submit) -> list[int]:
            return ids

        client, log = FakeClient(script, **engine), io.StringIO()
        return Bench(Service(config or ServerConfig(), client, served, make_logger(log), tenants, keys), client, log)

    return make


def without_ids(text: str) -> str:
    """A stream as it is without the ids of its events, which differ from request to request."""
    return re.sub(r"^id: \S+\n", "", text, flags=re.MULTILINE)


def events(text: str) -> list[Any]:
    """The data of a stream's events; the last one must be [DONE]."""
    lines = [line for line in without_ids(text).split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@asynccontextmanager
async def opened(bench: Bench) -> AsyncIterator[Bench]:
    """Closes the client at the end."""
    async with bench.http:
        yield bench
