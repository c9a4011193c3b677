"""Several models behind one server: names, loads, unloads, memory."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from tests.serving.api.conftest import MakeBench, events
from tests.serving.api.fake import FakeClient
from zinc_rt.errors import ZincError
from zinc_rt.scheduler.messages import EngineInfo
from zinc_rt.serving.api import model_table
from zinc_rt.serving.api.auditing import Auditor
from zinc_rt.serving.api.config import TenantConfig, TenantConfigs
from zinc_rt.serving.api.fitting import FittedModel
from zinc_rt.serving.api.keys import add_key, read_keys
from zinc_rt.serving.api.metrics import Metrics
from zinc_rt.serving.api.model_table import Admit, ModelTable
from zinc_rt.serving.api.recording import RequestRecorder, ServerRecords
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.records.chain import check_chain
from zinc_rt.serving.records.store import RecordStore
from zinc_rt.serving.wire import Planned

SIZE = 100


class Asking(FakeClient):
    """Tells its plan before it loads. opens: loads once it is set."""

    def __init__(
        self, admit: Admit, opens: asyncio.Event, fails: bool, plan: Callable[[], Planned], **more: Any
    ) -> None:
        super().__init__(**more)
        self._admit, self._open, self._fails, self._plan = admit, opens, fails, plan
        self.ended = False

    async def start(self) -> EngineInfo:
        await self._admit(self._plan())
        await self._open.wait()
        if self._fails:
            raise ZincError("the file is damaged")
        return await super().start()

    async def close(self) -> None:
        self.ended = True


class Several:
    """A server of three models, a, b and c, of which two fit; c cannot be loaded where `fails`."""

    def __init__(
        self, make: MakeBench, tenants: TenantConfigs | None = None, records: Path | None = None, **table: Any
    ) -> None:
        self.bench = make(tenants=tenants)
        self.front, self.http = self.bench.service, self.bench.http
        if records is not None:
            self.front.records = ServerRecords(records, 1 << 20, self.front.log)
        self.gate = asyncio.Event()
        self.gate.set()
        self.step: asyncio.Semaphore | None = None
        self.hashed = threading.Event()  # hashes of files are there
        self.hashed.set()
        self.clients: dict[str, list[Asking]] = {"a": [], "b": [], "c": []}
        self.fails: set[str] = set()
        self.card: int | None = None  # memory of a GPU, where models run on one
        self.now = 0.0
        models = [FittedModel((name,)) for name in self.clients]
        self.table = ModelTable(
            self.front, models, self._open, **{"budget": 2 * SIZE, "clock": lambda: self.now, **table}
        )

    def _open(self, fitted: FittedModel, admit: Admit, metrics: Metrics) -> Service:
        front, name = self.front, fitted.names[0]
        ids = front.model.tokenizer.encode(f"I am {name}.", add_special=False)
        client: Any = Asking(admit, self.gate, name in self.fails, self._plan, script=lambda _: ids, gate=self.step)
        self.clients[name].append(client)
        model = dataclasses.replace(front.model, names=fitted.names, pool=ThreadPoolExecutor(1), template=None)
        hashed = partial(self._hash, name)
        kept = None if front.records is None else RequestRecorder(front.records, name, hashed)
        return Service(front.config, client, model, front.log, front.tenants, front.keys, kept, metrics, front=front)

    def _plan(self) -> Planned:
        if self.card is None:
            return Planned(SIZE, None, False)
        return Planned(SIZE, self.card - SIZE * len(self.states), True)

    def _hash(self, name: str) -> str:
        assert self.hashed.wait(10)
        return f"{name}0" * 32

    @property
    def states(self) -> str:
        """Which models are loaded."""
        return "".join(one.name for one in self.table.models if one.service is not None)

    async def says(self, name: str | None, **more: Any) -> Any:
        """The text of an answer, or the error."""
        body = {"model": name, "prompt": "Hi", "max_tokens": 40, **more}
        answer = await self.http.post("/v1/completions", json={k: v for k, v in body.items() if v is not None})
        made = answer.json()
        return made["choices"][0]["text"] if answer.status_code == 200 else (answer.status_code, made["error"])


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on an event loop of its own, for 20 seconds at the most."""

    @wraps(test)
    def run(**given: Any) -> None:
        async def limited() -> None:
            await asyncio.wait_for(test(**given), 20)

        asyncio.run(limited())

    return run


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.002)


@in_loop
async def test_a_request_chooses_its_model(bench: MakeBench) -> None:
    server = Several(bench)
    assert server.states == ""
    assert await server.says("b") == "I am b."
    assert server.states == "b"
    assert await server.says(None) == "I am a."
    status, error = await server.says("z")
    assert (status, error["code"]) == (404, "model_not_found")
    assert "a, b, c" in error["message"]
    listed = (await server.http.get("/v1/models")).json()["data"]
    assert [(m["id"], m["status"]["value"]) for m in listed] == [("a", "loaded"), ("b", "loaded"), ("c", "unloaded")]
    assert [m["root"] for m in listed] == ["a", "b", "c"]
    assert (await server.http.get("/v1/models/c")).json()["status"] == {"value": "unloaded"}
    assert (await server.http.get("/health")).json()["models"] == {"a": "loaded", "b": "loaded", "c": "unloaded"}
    text = (await server.http.get("/metrics")).text
    assert 'zinc_tokens_total{kind="prompt",model="b",tenant="default"} ' in text
    assert text.count("# TYPE zinc_tokens_total counter") == 1
    lines = [line for line in server.bench.log if line["event"] == "request"]
    assert [line.get("model") for line in lines] == ["b", "a", None]


@in_loop
async def test_clients_of_ollama_see_all_models(bench: MakeBench) -> None:
    server = Several(bench)
    answer = await server.http.post("/api/generate", json={"model": "b:latest", "prompt": "Hi", "stream": False})
    assert answer.json()["response"] == "I am b."
    names = [
        [model["name"] for model in (await server.http.get(path)).json()["models"]] for path in ("/api/tags", "/api/ps")
    ]
    assert names == [["a:latest", "b:latest", "c:latest"], ["b:latest"]]


@in_loop
async def test_the_least_recently_used_model_makes_room(bench: MakeBench) -> None:
    server = Several(bench)
    for server.now, name in enumerate("aba"):
        await server.says(name)
    assert await server.says("c") == "I am c."
    assert server.states == "ac"
    assert server.clients["b"][0].ended
    assert await server.says("b") == "I am b."
    assert len(server.clients["b"]) == 2


@in_loop
async def test_models_make_room_on_a_card(bench: MakeBench) -> None:
    """Its memory is not what the server may use of the machine's."""
    server = Several(bench, budget=1)
    server.card = 2 * SIZE + SIZE // 2
    for server.now, name in enumerate("aba"):
        assert await server.says(name) == f"I am {name}."
    assert await server.says("c") == "I am c."
    assert server.states == "ac"
    server.card = SIZE // 2
    status, error = await server.says("b")
    assert (status, error["code"]) == (503, "no_room")
    assert server.states == ""


@in_loop
async def test_models_that_load_at_once_do_not_count_on_the_same_room(bench: MakeBench) -> None:
    server = Several(bench)
    server.card = SIZE + SIZE // 2  # free as long as none of them has loaded
    server.gate.clear()
    asked = [asyncio.create_task(server.says(name)) for name in "ab"]
    await until(lambda: any(task.done() for task in asked))
    server.gate.set()
    said = [await task for task in asked]
    assert sorted(isinstance(one, str) for one in said) == [False, True], said
    assert len(server.states) == 1


@in_loop
async def test_a_model_with_requests_is_not_unloaded(bench: MakeBench) -> None:
    server = Several(bench, budget=SIZE, idle=0.0)
    server.step = asyncio.Semaphore(0)
    asked = asyncio.create_task(server.says("a"))
    await until(lambda: bool(server.clients["a"]) and bool(server.clients["a"][0].submitted))
    answer = await server.http.post("/v1/completions", json={"model": "b", "prompt": "Hi"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_room")
    assert int(answer.headers["retry-after"]) > 0
    assert (await server.http.post("/v1/models/a/unload")).status_code == 409
    server.table.watch(server.front.background)
    await asyncio.sleep(0.02)
    assert server.states == "a"
    for _ in range(40):
        server.step.release()
    assert await asked == "I am a."
    server.now = 1.0
    await until(lambda: server.states == "")
    await server.front.background.close()


async def asks(server: Several, name: str, keep_alive: object, **more: Any) -> Any:
    """What Ollama's interface answers to a request that says how long the model stays."""
    body = {"model": name, "stream": False, "keep_alive": keep_alive, **more}
    return (await server.http.post("/api/generate", json=body)).json()


async def expires(server: Several) -> dict[str, float]:
    """Seconds until loaded models are unloaded."""
    now = datetime.now(UTC)
    found = (await server.http.get("/api/ps")).json()["models"]
    return {one["model"]: (datetime.fromisoformat(one["expires_at"]) - now).total_seconds() for one in found}


@in_loop
async def test_a_request_says_how_long_its_model_stays(bench: MakeBench) -> None:
    server = Several(bench, idle=60.0)
    server.table.watch(server.front.background)
    for name, kept in (("a", "5m"), ("b", -1)):
        assert (await asks(server, name, kept, prompt="Hi"))["response"] == f"I am {name}."
    left = await expires(server)
    assert left["a:latest"] == pytest.approx(300, abs=5)
    assert left["b:latest"] > 1e9
    await asks(server, "a", None, prompt="Hi")  # it holds on
    assert (await expires(server))["a:latest"] == pytest.approx(300, abs=5)
    server.now = 299.0
    server.table._left_alone.set()
    await asyncio.sleep(0.01)
    assert server.states == "ab"
    server.now = 300.0
    server.table._left_alone.set()
    await until(lambda: server.states == "b")
    said = await asks(server, "b", 0)
    assert said["done_reason"] == "unload"
    await until(lambda: server.states == "")
    for more in ({}, {"unloads": False}):
        assert (await asks(server, "b", 0, **more))["done_reason"] == "unload"
    assert server.states == ""  # it is not loaded for that
    assert (await server.says("a", unloads=True)) == "I am a."  # a field of ours alone
    assert (await asks(server, "b", "3s"))["done_reason"] == "load"
    await server.says("a")
    assert (await expires(server))["a:latest"] == pytest.approx(60, abs=5)  # as the server was started
    assert "keep_alive is 'soon'" in (await asks(server, "b", "soon"))["error"]
    await server.front.background.close()


@in_loop
async def test_tenants_do_not_say_how_long_a_model_stays(bench: MakeBench, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add_key(file, "acme")
    server = Several(bench)
    server.front.keys = read_keys(file)
    server.table.watch(server.front.background)
    server.http.headers["authorization"] = f"Bearer {key}"
    body = {"model": "a", "prompt": "Hi", "stream": False, "keep_alive": 0}
    answer = await server.http.post("/api/generate", json=body)
    assert (answer.json()["response"], answer.headers["x-zinc-ignored"]) == ("I am a.", "keep_alive")
    await asyncio.sleep(0.01)
    assert server.states == "a"
    await server.front.background.close()


async def written(server: Several, n: int) -> list[str]:
    """The ids of the requests in the chain, once there are so many."""
    while len(found := (await server.http.get("/v1/worldline/tail?n=99")).json()["entries"]) < n:
        await asyncio.sleep(0.01)
    assert check_chain(found).faults == ()
    return [entry["manifest"]["computation"]["request"] for entry in found]


@in_loop
async def test_all_models_have_one_chain(bench: MakeBench, tmp_path: Path) -> None:
    server = Several(bench, records=tmp_path / "r")
    for name in "abab":
        await server.says(name)
    await server.http.post("/v1/models/a/unload")  # what it said is kept, and so it is where its hash comes late
    ids = await written(server, 4)
    entries = [(await server.http.get(f"/v1/zinc/receipts/{name}")).json()["entry"]["manifest"] for name in ids]
    assert [entry["computation"]["model_name"] for entry in entries] == list("abab")
    assert server.states == "b"
    for name in ids:
        found = await server.http.post("/v1/zinc/replay", json={"id": name})
        assert found.json()["equal"] is True, found.text
    assert server.states == "ab"  # a replay loads its model
    server.clients["a"][-1].script = lambda _: [1, 2]
    assert [(await server.http.post("/v1/zinc/replay", json={"id": name})).json()["equal"] for name in ids] == [
        False,
        True,
    ] * 2
    server.table.models = server.table.models[1:]
    gone = await server.http.post("/v1/zinc/replay", json={"id": ids[0]})
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
    assert server.front.records is not None
    await server.front.records.close()
    store = RecordStore(tmp_path / "r")
    assert [store.record(name).model.sha256[:2] for name in ids] == ["a0", "b0"] * 2
    assert [store.answered(name) for name in ids] == [("default", name) for name in "abab"]


@in_loop
async def test_what_a_model_said_is_kept_though_its_hash_comes_when_it_is_gone(
    bench: MakeBench, tmp_path: Path
) -> None:
    server = Several(bench, records=tmp_path / "r")
    server.hashed.clear()
    await server.says("a")
    await server.http.post("/v1/models/a/unload")
    assert (await server.http.get("/v1/worldline")).json()["entries"] == 0
    server.hashed.set()
    await written(server, 1)
    assert server.front.records is not None
    assert server.front.records.unsettled == set()
    await server.front.records.close()


@in_loop
async def test_audits_look_at_models_that_are_loaded(bench: MakeBench, tmp_path: Path) -> None:
    server = Several(bench, records=tmp_path / "r")
    assert server.front.records is not None
    looks = Auditor(server.front, server.front.records, 1, quiet=0.02)

    def told(event: str) -> list[dict[str, Any]]:
        return [line for line in server.bench.log if line["event"] == event]

    await server.says("a")
    await server.says("b")
    await until(lambda: len(told("audit")) == 2)
    assert all(line["equal"] for line in told("audit"))
    assert [model.users for model in server.table.models] == [0, 0, 0]
    await server.says("a")
    await server.http.post("/v1/models/a/unload")
    await until(lambda: bool(told("not audited")))
    assert "'a' is not loaded" in told("not audited")[0]["message"]
    await looks.close()
    await server.front.records.close()


@in_loop
async def test_an_adapter_stands_for_its_model(bench: MakeBench) -> None:
    server = Several(bench)
    server.table.models[1].fitted = FittedModel(("b",), adapters=("of b",))
    listed = (await server.http.get("/v1/models")).json()["data"]
    assert [(m["id"], m.get("parent")) for m in listed][1:3] == [("b", None), ("of b", "b")]
    await server.says("of b")  # the fake one has no such adapter, but it is loaded
    assert server.states == "b"
    for name, said in (("of b", "no adapter 'of b' is loaded"), ("of c", "the model 'of c' does not exist")):
        answer = await server.http.post("/v1/unload_lora_adapter", json={"lora_name": name})
        assert (answer.status_code, said in answer.json()["error"]["message"]) == (404, True), answer.text


@in_loop
async def test_streams_tell_of_a_load(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_table, "_QUICK", 0.005)
    server = Several(bench)
    server.gate.clear()
    body = {"model": "b", "prompt": "Hi", "max_tokens": 40, "stream": True}
    bad = {"model": "b", "prompt": [], "stream": True}
    asked = [asyncio.create_task(server.http.post("/v1/completions", json=json)) for json in (body, bad)]
    asked.append(asyncio.create_task(server.http.post("/v1/models/b/load")))
    await asyncio.sleep(0.03)
    server.gate.set()
    good, wrong, load = [await task for task in asked]
    assert good.text.startswith(": loading b\n\n")
    assert "".join(e["choices"][0]["text"] for e in events(good.text)) == "I am b."
    assert wrong.status_code == 200
    assert '"empty_prompt"' in wrong.text or '"error"' in wrong.text
    assert load.json()["status"] == {"value": "loaded"}
    assert len(server.clients["b"]) == 1


@in_loop
async def test_a_load_that_fails_takes_its_own_requests_alone(bench: MakeBench) -> None:
    server = Several(bench)
    server.fails = {"c"}
    await server.says("a")
    status, error = await server.says("c")
    assert (status, error["code"]) == (500, "model_not_loaded")
    assert "the file is damaged" in error["message"]
    assert server.clients["c"][0].ended
    assert await server.says("a") == "I am a."
    server.fails = set()
    assert await server.says("c") == "I am c."  # the next request tries again


@in_loop
async def test_rates_of_a_tenant_are_of_all_models(bench: MakeBench) -> None:
    server = Several(bench, TenantConfigs({"default": TenantConfig(requests_per_minute=2)}))
    assert await server.says("a") == "I am a."
    assert await server.says("b") == "I am b."
    assert (await server.says("a"))[0] == 429


@in_loop
async def test_a_server_that_ends_ends_loads(bench: MakeBench) -> None:
    server = Several(bench)
    server.gate.clear()
    await asyncio.sleep(0)
    asked = asyncio.create_task(server.says("a"))
    await until(lambda: bool(server.clients["a"]))
    await server.table.close()
    assert (await asked)[0] == 503
    assert server.clients["a"][0].ended


@in_loop
async def test_one_model_has_no_loads(bench: MakeBench) -> None:
    answer = await bench().http.post("/v1/models/story/unload")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "one_model")
