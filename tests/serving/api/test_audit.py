"""Recorded requests that the server computes again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.serving.api.conftest import SAYS, Bench
from tests.serving.api.test_records import server
from zinc_rt.scheduler.messages import Failed, Fault, QoS
from zinc_rt.serving.api.auditing import TENANT, Auditor
from zinc_rt.serving.api.config import TENANT_NAME, TenantConfig, TenantConfigs
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.records.store import KeepRecords


def audits(bench: Bench, event: str = "audit") -> list[dict[str, Any]]:
    """The lines of the log that tell of audits, without their times."""
    return [
        {k: v for k, v in line.items() if k not in ("time", "event")} for line in bench.log if line["event"] == event
    ]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


def auditor(bench: Bench, one_of: int) -> Auditor:
    assert bench.service.records is not None
    return Auditor(bench.service, bench.service.records, one_of, quiet=0.02)


def test_one_of_so_many_is_computed_again(served: ServedModel, tmp_path: Path) -> None:
    async def test() -> None:
        async with server(served, tmp_path / "r") as bench:
            looks = auditor(bench, 3)
            names = [(await bench.chat(seed=i, max_tokens=5)).json()["id"] for i in range(7)]
            await until(lambda: len(audits(bench)) == 2)
            assert audits(bench) == [{"level": "info", "id": names[i], "equal": True, "tokens": 5} for i in (2, 5)]
            first = bench.client.submitted[2]
            again = [request for request in bench.client.submitted if request.tenant == TENANT]
            assert len(again) == 2
            assert (again[0].prompt, again[0].seed, again[0].params.max_tokens) == (first.prompt, first.seed, 5)
            assert (again[0].qos, again[0].salt) == (QoS.batch, b"")
            text = (await bench.http.get("/metrics")).text
            assert 'zinc_replay_total{result="equal"} 2.0' in text
            assert 'result="different"' not in text
            await looks.close()
            for _ in range(3):
                await bench.chat(max_tokens=5)
            assert len(bench.client.submitted) == 12
        assert TENANT_NAME.fullmatch(TENANT) is None

    asyncio.run(test())


def test_a_difference_is_an_error_with_the_id(served: ServedModel, tmp_path: Path) -> None:
    ids = served.tokenizer.encode(SAYS, add_special=False)

    async def test() -> None:
        async with server(served, tmp_path / "r") as bench:
            looks = auditor(bench, 1)
            name = (await bench.chat(max_tokens=6)).json()["id"]
            bench.client.script = lambda request: [*ids[:4], ids[4] + 1, ids[5]]
            await until(lambda: bool(audits(bench)))
            assert audits(bench) == [
                {
                    "level": "error",
                    "id": name,
                    "equal": False,
                    "position": 4,
                    "recorded": ids[4],
                    "replayed": ids[4] + 1,
                    "logprob_recorded": None,
                    "logprob_replayed": -0.5,
                }
            ]
            assert 'zinc_replay_total{result="different"} 1.0' in (await bench.http.get("/metrics")).text
            await looks.close()

    asyncio.run(test())


def test_it_waits_while_requests_run(served: ServedModel, tmp_path: Path) -> None:
    async def test() -> None:
        async with server(served, tmp_path / "r") as bench:
            looks = auditor(bench, 1)
            await bench.chat(max_tokens=4)
            bench.client.gate = asyncio.Semaphore(0)
            running = asyncio.ensure_future(bench.chat(max_tokens=4))
            await until(lambda: len(bench.client.submitted) == 2)
            await asyncio.sleep(0.2)
            assert len(bench.client.submitted) == 2
            bench.client.gate.release()
            for _ in range(40):
                bench.client.gate.release()
            await running
            await until(lambda: len(audits(bench)) == 2)
            assert [line["equal"] for line in audits(bench)] == [True, True]
            await looks.close()

    asyncio.run(test())


def test_what_cannot_be_computed_is_said_and_the_next_one_is(served: ServedModel, tmp_path: Path) -> None:
    tenants = TenantConfigs({"default": TenantConfig(records=KeepRecords.full)})

    async def test() -> None:
        async with server(served, tmp_path / "r", tenants) as bench:
            looks = auditor(bench, 1)
            name = (await bench.chat(max_tokens=4)).json()["id"]
            bench.client.fail_at_once = Failed("", Fault.engine_error, "broken")
            await until(lambda: bool(audits(bench, "not audited")))
            said = {"level": "warning", "id": name, "message": "the engine failed: broken"}
            assert audits(bench, "not audited") == [said]
            bench.client.fail_at_once = None
            await bench.chat(max_tokens=4)
            await until(lambda: bool(audits(bench)))
            bench.service.tenants = TenantConfigs({"default": TenantConfig(records=KeepRecords.receipt)})
            await bench.chat(max_tokens=4)
            await asyncio.sleep(0.2)
            assert len(audits(bench)) == 1
            await looks.close()

    asyncio.run(test())
