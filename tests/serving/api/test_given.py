"""Tokens that a client gives for a stream's beginning: never the model's answer, by whatever way they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest

from tests.serving.api.conftest import SAYS, Bench
from tests.serving.api.test_audit import auditor, audits, until
from tests.serving.api.test_records import kept, replay, server
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.records.store import RecordStore
from zinc_rt.serving.route.backends import RouteBackends
from zinc_rt.serving.route.router import Router

HERE = "http://127.0.0.1:9"
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "stream": True,
    "seed": 5,
    "max_tokens": 12,
    "stream_options": {"include_usage": True},
}


def before(bench: Bench, way: str) -> Any:
    """An ASGI application by which clients reach the server."""
    if way == "router":
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(bench.app), timeout=30)
        backends = RouteBackends([HERE], http, make_logger())
        backends.all[0].wrong = None
        return Router(backends, http, make_logger())
    if way == "ray":
        pytest.importorskip("ray.serve")
        from zinc_rt.ray.front import Front
        from zinc_rt.ray.settings import Settings

        return Front(_Replica(bench), Settings()).answer  # type: ignore[arg-type]
    return bench.app


class _Replica:
    """A handle of one replica, as `zinc_rt.ray.replica` answers."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def options(self, **_: Any) -> _Replica:
        return self

    def remote(self, passed: Any) -> Any:
        return _Answer(self._bench, passed)


class _Answer(SimpleNamespace):
    def __init__(self, bench: Bench, passed: Any) -> None:
        super().__init__(bench=bench, passed=passed)

    def cancel(self) -> None:
        """It is over by then."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        from zinc_rt.ray.passed import Taken

        body, left, sent = [self.passed.body], asyncio.Event(), []

        async def receive() -> dict[str, Any]:
            if body:
                return {"type": "http.request", "body": body.pop(), "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        yield Taken("a")
        await self.bench.app(self.passed.scope(), receive, send)
        yield sent


@pytest.mark.parametrize("way", ["server", "router", "ray"])
def test_given_tokens_are_the_clients_word(served: ServedModel, tmp_path: Path, way: str) -> None:
    ids = served.tokenizer.encode(SAYS, add_special=False)
    invented = tuple(served.tokenizer.encode("I was bought.", add_special=False))
    n_new = 12 - len(invented)

    async def test() -> None:
        async with server(served, tmp_path / "r") as bench:
            looks = auditor(bench, 1)
            app = before(bench, way)
            event = f"chatcmpl-{'a' * 24}.1.{served.fingerprint}.5.1"
            headers = {"last-event-id": event, "x-zinc-resume": ",".join(map(str, invented))}
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE, timeout=30) as http:
                answer = await http.post("/v1/chat/completions", json=BODY, headers=headers)
            assert answer.status_code == 200, answer.text
            assert f'"resumed_tokens":{len(invented)}' in answer.text
            await kept(bench)
            store = RecordStore(tmp_path / "r")
            (name,) = [row[0] for row in store._db.execute("select id from ledger")]
            record = store.record(name)
            assert (record.given, record.output) == (invented, tuple(ids[len(invented) : 12]))
            assert [day.completion_tokens for day in store.days()] == [n_new]
            receipt = store.receipt(name)["manifest"]
            assert (receipt["output"]["shape"], receipt["input"]["n_tensors"]) == ([n_new], 4)
            found = (await replay(bench, name)).json()
            assert (found["equal"], found["tokens"]) == (True, n_new)
            await until(lambda: bool(audits(bench)))
            assert audits(bench)[0] == {"level": "info", "id": name, "equal": True, "tokens": n_new}
            line = next(line for line in bench.log if line["event"] == "request" and "completion_tokens" in line)
            assert line["completion_tokens"] == n_new
            await looks.close()

    asyncio.run(test())


def test_tokens_that_a_client_gave_once_stay_its_word(served: ServedModel, tmp_path: Path) -> None:
    """It leaves the stream that it resumed with them, and resumes it again without a token."""
    given = ",".join(map(str, served.tokenizer.encode("I was bought.", add_special=False)))
    n_given = given.count(",") + 1

    async def test() -> None:
        async with server(served, tmp_path / "r") as bench:
            bench.client.gate = asyncio.Semaphore(2)
            headers = {"last-event-id": f"chatcmpl-{'a' * 24}.1.{served.fingerprint}.5.1", "x-zinc-resume": given}
            post = bench.http.post("/v1/chat/completions", json=BODY, headers=headers)
            reading = asyncio.create_task(post)
            await until(
                lambda: any(call.choices and call.choices[0].n_resumed for call in bench.service.running.values())
            )
            await until(lambda: len(next(iter(bench.service.running.values())).choices[0].tokens) == n_given + 2)
            next(iter(bench.service.running.values())).leave()
            await asyncio.gather(reading, return_exceptions=True)
            bench.client.gate = None
            again = await bench.http.post(
                "/v1/chat/completions", json=BODY, headers={"last-event-id": headers["last-event-id"]}
            )
            assert again.status_code == 200
            await kept(bench)
            store = RecordStore(tmp_path / "r")
            names = [row[0] for row in store._db.execute("select id from records order by number")]
            assert [len(store.record(name).given) for name in names] == [n_given] * len(names)
            assert sum(day.completion_tokens for day in store.days()) == 12 - n_given

    asyncio.run(test())
