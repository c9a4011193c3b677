"""What is kept of requests that are over, and what receipts and replays of them say."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.adapters.files import story_adapters
from tests.serving.api.conftest import SAYS, Bench
from tests.serving.api.fake import FakeClient
from zinc_rt.adapters.slots import AdapterRequest
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.scheduler.messages import CancelReason, EngineInfo
from zinc_rt.serving.api.config import ServerConfig, TenantConfig, TenantConfigs
from zinc_rt.serving.api.keys import ApiKeys, add_key, read_keys
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.recording import RequestRecorder, ServerRecords
from zinc_rt.serving.api.served_adapters import ServedAdapters
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.records.chain import check_chain
from zinc_rt.serving.records.receipt import malformed
from zinc_rt.serving.records.store import KeepRecords, RecordStore

SHA = "ab" * 32
INFO = EngineInfo("a fake", 64, 4, 8, "f16", 256)


@asynccontextmanager
async def server(
    served: ServedModel,
    path: Path,
    tenants: TenantConfigs | None = None,
    keys: ApiKeys | None = None,
    sha: str | Callable[[], str] = SHA,
) -> AsyncIterator[Bench]:
    """A server that keeps records. Its engine says SAYS, and after `bench.client.script` is replaced something else."""
    ids = served.tokenizer.encode(SAYS, add_special=False)
    client, log = FakeClient(lambda request: ids), io.StringIO()
    logger = make_logger(log)
    records = ServerRecords(path, 1 << 20, logger)
    recorder = RequestRecorder(records, "story", sha if callable(sha) else lambda: sha)
    service = Service(ServerConfig(), client, served, logger, tenants, keys, recorder)  # type: ignore[arg-type]
    service.loaded(INFO)
    service.model = served  # of its own context, for all tests alike
    bench = Bench(service, client, log)
    yield bench
    await records.close()


async def kept(bench: Bench) -> None:
    """Wait until everything is written."""
    recorder = bench.service.recorder
    assert recorder is not None
    while recorder.identity is None:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(recorder.records._writer.close, 30)


def replay(bench: Bench, request_id: str, **headers: str) -> asyncio.Future[httpx.Response]:
    return asyncio.ensure_future(bench.http.post("/v1/zinc/replay", json={"id": request_id}, headers=headers))


def test_a_request_is_kept_and_replayed(served: ServedModel, tmp_path: Path) -> None:
    async def test() -> None:
        async with server(served, tmp_path / "r") as bench:
            answer = (await bench.chat(seed=5, n=2, max_tokens=6)).json()
            streamed = await bench.chat(stream=True, stop="owl")
            await kept(bench)
            for name in (answer["id"], answer["id"] + "-1"):
                found = (await replay(bench, name)).json()
                assert found == {"id": name, "object": "replay", "equal": True, "tokens": 6, "difference": None}
            stopped = streamed.text.partition('"id":"')[2].partition('"')[0]
            assert (await replay(bench, stopped)).json()["equal"] is True
            receipt = (await bench.http.get(f"/v1/zinc/receipts/{answer['id']}")).json()
            assert malformed(receipt) is None
            assert receipt["manifest"]["output"]["shape"] == [6]
            assert receipt["manifest"]["arithmetic"]["order_independent"] is False
            assert receipt["entry"]["manifest"]["receipt"] == receipt["certificate"]
            tail = (await bench.http.get("/v1/worldline/tail?n=2")).json()
            length = (await bench.http.get("/v1/worldline")).json()
            assert length == {"entries": 3, "tip": tail["tip"]}
            assert check_chain(tail["entries"], None).faults == ()
            text = sha256(answer["choices"][0]["message"]["content"].encode()).hexdigest()
            assert receipt["entry"]["manifest"]["outputs"]["text"] == f"sha256:{text}"
            assert (await bench.http.get("/v1/worldline/tail?n=0")).status_code == 400
            assert 'zinc_replay_total{result="equal"} 3.0' in (await bench.http.get("/metrics")).text
        store = RecordStore(tmp_path / "r")
        assert store.record(answer["id"] + "-1").seed == 6
        assert store.record(answer["id"]).model.sha256 == SHA
        assert [day[1:3] for day in store.days()] == [("default", 3)]

    asyncio.run(test())


def test_answers_with_adapters_are_kept_with_the_hashes_of_their_files(served: ServedModel, tmp_path: Path) -> None:
    files = story_adapters(tmp_path, "xy")

    def named(*names: str) -> ServedModel:
        with GGUFFile.open(built_in_model()) as file:
            requests = [AdapterRequest(path, name, 0.0) for path, name in zip(files, names, strict=False)]
            return replace(served, adapters=ServedAdapters.read(file, requests, kept=tmp_path))

    async def test() -> None:
        async with server(served, tmp_path / "r") as bench:
            bench.service.model = named("x", "y")
            ids = [
                (await bench.chat(**fields)).json()["id"]
                for fields in ({"model": "x"}, {"lora": [{"id": 1, "scale": 0.5}]})
            ]
            await kept(bench)
            receipt = (await bench.http.get(f"/v1/zinc/receipts/{ids[1]}")).json()
            assert receipt["manifest"]["model"]["n_tensors"] == 2
            bench.service.model = named("of another name", "y")
            for name, used in zip(ids, (("of another name", 1.0), ("y", 0.5)), strict=True):
                assert (await replay(bench, name)).json()["equal"] is True
                assert bench.client.submitted[-1].adapters == (used,)
            bench.service.model = named("x")
            gone = await replay(bench, ids[1])
            assert (gone.status_code, gone.json()["error"]["code"]) == (409, "not_replayable")
            assert "the adapter 'y'" in gone.json()["error"]["message"]
        record = RecordStore(tmp_path / "r").record(ids[1])
        assert [(one.sha256, one.scale) for one in record.adapters] == [
            (sha256(files[1].read_bytes()).hexdigest(), 0.5)
        ]

    asyncio.run(test())


def test_a_replay_that_differs_says_where_and_by_how_much(served: ServedModel, tmp_path: Path) -> None:
    async def test() -> None:
        async with server(served, tmp_path / "r") as bench:
            answer = (await bench.chat(max_tokens=8)).json()
            await kept(bench)
            ids = served.tokenizer.encode(SAYS, add_special=False)
            bench.client.script = lambda request: [*ids[:3], ids[3] + 1]
            found = (await replay(bench, answer["id"])).json()
            assert found["equal"] is False
            assert found["difference"] == {
                "position": 3,
                "recorded": ids[3],
                "replayed": ids[3] + 1,
                "logprob_recorded": None,
                "logprob_replayed": -0.5,
            }

    asyncio.run(test())


def test_tenants_choose_what_is_kept_and_see_only_their_own(served: ServedModel, tmp_path: Path) -> None:
    names = ("full", "digests", "nothing")
    file = tmp_path / "keys"
    made = [add_key(file, name) for name in names]
    keys = read_keys(file)
    tenants = TenantConfigs(
        {
            "full": TenantConfig(),
            "digests": TenantConfig(records=KeepRecords.receipt),
            "nothing": TenantConfig(records=KeepRecords.none),
        }
    )

    async def test() -> None:
        async with server(served, tmp_path / "r", tenants, keys) as bench:
            ids = {}
            for name, key in zip(names, made, strict=True):
                bench.http.headers["authorization"] = f"Bearer {key}"
                ids[name] = (await bench.chat(max_tokens=4)).json()["id"]
            await kept(bench)
            expected = {"full": (200, 200), "digests": (409, 200), "nothing": (404, 404)}
            for name, key in zip(names, made, strict=True):
                bench.http.headers["authorization"] = f"Bearer {key}"
                for other in names:
                    codes = (
                        (await replay(bench, ids[other])).status_code,
                        (await bench.http.get(f"/v1/zinc/receipts/{ids[other]}")).status_code,
                    )
                    assert codes == (expected[name] if other == name else (404, 404))

    asyncio.run(test())


def test_what_a_client_asserted_is_marked(served: ServedModel, tmp_path: Path) -> None:
    """The beginning of an answer that it wrote; the chain is for administrators."""
    begun = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Once upon a time"}]}

    async def test() -> None:
        keys = tmp_path / "keys"
        key = add_key(keys, "full")
        async with server(served, tmp_path / "r", TenantConfigs({"full": TenantConfig()}), read_keys(keys)) as bench:
            bench.http.headers["authorization"] = f"Bearer {key}"
            answer = await bench.http.post("/v1/chat/completions", json={**begun, "max_tokens": 3})
            await kept(bench)
            receipt = (await bench.http.get(f"/v1/zinc/receipts/{answer.json()['id']}")).json()
            n_begun = len(served.tokenizer.encode("Once upon a time", add_special=False))
            assert receipt["asserted"] == receipt["entry"]["manifest"]["asserted"] == {"given": 0, "prefill": n_begun}
            assert [(await bench.http.get(f"/v1/worldline{end}")).status_code for end in ("", "/tail")] == [403, 403]

    asyncio.run(test())


def test_another_model_is_not_compared(served: ServedModel, tmp_path: Path) -> None:
    async def first() -> str:
        async with server(served, tmp_path / "r") as bench:
            answer = await bench.chat(max_tokens=4)
            return str(answer.json()["id"])

    async def second(name: str) -> None:
        async with server(served, tmp_path / "r", sha="cd" * 32) as bench:
            await kept(bench)
            found = await replay(bench, name)
            assert found.status_code == 409
            assert "another model" in found.json()["error"]["message"]

    asyncio.run(second(asyncio.run(first())))


@pytest.mark.parametrize("room", [1 << 20, 20, 0])
def test_closing_does_not_wait_for_a_hash_nor_do_requests_gather(
    served: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr("zinc_rt.serving.api.recording._HASH_SECONDS", 0.0)
    monkeypatch.setattr("zinc_rt.serving.api.recording._WAITING_TOKENS", room)
    late = threading.Event()

    def sha256() -> str:
        late.wait()
        return SHA

    async def test() -> None:
        async with server(served, tmp_path / "r", sha=sha256) as bench:
            for _ in range(4):
                await bench.chat(max_tokens=4)
            recorder = bench.service.recorder
            assert recorder is not None
            waits = len(recorder._waiting)
            assert waits == {1 << 20: 4, 20: 1, 0: 0}[room]
            assert sum(line["event"] == "no records" for line in bench.log) == (waits < 4)
        assert [line["level"] for line in bench.log if line["event"] == "no records"][-1] == "error"
        store = RecordStore(tmp_path / "r")
        assert [day.requests for day in store.days()] == [4]

    try:
        asyncio.run(test())
    finally:
        late.set()


def test_servers_without_records_say_so(bench: object, served: ServedModel) -> None:
    async def test() -> None:
        made = bench()  # type: ignore[operator]
        assert (await replay(made, "x")).json()["error"]["code"] == "no_records"

    asyncio.run(test())


def test_a_replay_counts_like_any_request(served: ServedModel, tmp_path: Path) -> None:
    async def test() -> None:
        limits = TenantConfigs({"default": TenantConfig(tokens_per_minute=120, requests_per_minute=60)})
        async with server(served, tmp_path / "r", limits) as bench:
            name = (await bench.chat(max_tokens=6)).json()["id"]
            await kept(bench)
            bench.client.gate = asyncio.Semaphore(0)
            running = replay(bench, name)
            while not bench.client.submitted[1:]:
                await asyncio.sleep(0)
            assert bench.client.submitted[1].tenant == "default"
            assert bench.service.admission.inside == 1
            assert len(bench.service.running) == 1  # so draining waits for it, and DELETE ends it
            bench.client.cancel(bench.client.submitted[1].id, CancelReason.deadline)
            late = await running
            assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")
            bench.client.gate = None
            codes = [(await replay(bench, name)).status_code for _ in range(9)]
            assert codes[0] == 200
            assert codes[-1] == 429
            bench.service.draining = True
            refused = await replay(bench, name)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
            bench.service.draining = False
            bench.service.tenants = TenantConfigs()
            bench.service.admission.replace(bench.service.tenants)
            await replay(bench, name, **{"x-request-timeout": "7"})
            assert bench.client.submitted[-1].seconds == 7
            assert bench.service.admission.inside == 0

    asyncio.run(test())


@pytest.mark.parametrize("body", ["{}", "[]", '{"id": 3}', '{"id": "x", "more": 1}', "\xff"])
def test_bad_replay_requests(served: ServedModel, tmp_path: Path, body: str) -> None:
    async def test() -> None:
        async with server(served, tmp_path / "r") as made:
            answer = await made.http.post("/v1/zinc/replay", content=body.encode("latin-1"))
            assert answer.status_code == 400

    asyncio.run(test())
