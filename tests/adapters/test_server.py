"""Adapters over HTTP: who gets which, the same answer whoever is beside, and changes while the server runs."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.files import story_adapters
from tests.helpers import soon
from tests.serving.api.conftest import MakeBench, bench, served  # noqa: F401  fixtures
from tests.serving.real import Ask, Real, real
from zinc_rt.serving.api.config import TenantConfig, TenantConfigs
from zinc_rt.serving.api.keys import ApiKeys, digest, new_key
from zinc_rt.serving.api.served_adapters import ServedAdapter, ServedAdapters

TEXT = "Once upon a time there was a little fox who lived by the river. "


def lora(paths: list[Path]) -> list[tuple[str, float, str | None]]:
    """Two by name, and the last for all requests that choose none, at half of its scale."""
    return [(str(paths[0]), 0.0, "a"), (str(paths[1]), 0.0, "b"), (str(paths[2]), 0.5, None)]


def asks(n: int) -> list[Ask]:
    """Requests that begin alike, with one adapter, another, several, or those that are for all.

    Every fourth one is long enough to be seen running.
    """
    draw = random.Random(3)
    chosen: list[dict[str, Any]] = [
        {"model": "a"}, {"model": "b"}, {}, {"model": "story"}, {"lora": [{"id": 0, "scale": 0.5}]},
        {"lora": [{"id": 2, "scale": -1}, {"id": 0, "scale": 1}, {"id": 1, "scale": 0}]},
        {"lora": [{"id": 1, "scale": 0}]},
    ]  # fmt: skip
    made = []
    for i in range(n):
        n_tokens = draw.randint(1, 16)
        body = {"prompt": (TEXT * 2)[: draw.randint(40, 120)], "max_tokens": 100 if i % 4 == 0 else n_tokens, "seed": i}
        made.append(Ask("/v1/completions", {**body, "ignore_eos": True, **chosen[i % len(chosen)]}))
    return made


def test_the_same_answer_whoever_is_beside(tmp_path: Path) -> None:
    """Alone with nothing cached, all at once, and again with an engine that is killed meanwhile."""
    given, paths = asks(9), story_adapters(tmp_path, "abc")

    async def alone() -> list[bytes]:
        async with real(cold=True, n_slots=1, lora=lora(paths)) as r:
            return [await r.say(ask) for ask in given]

    async def together() -> None:
        async with real(process=True, n_slots=8, kv_tokens=512, lora=lora(paths)) as r:
            assert await r.storm(given) == want
            task = asyncio.create_task(r.storm(given))
            await r.until(lambda: r.service.client.status.decoding > 2)
            assert r.engine.pid is not None
            os.kill(r.engine.pid, signal.SIGKILL)
            assert await task == want
            await r.settled()

    want = asyncio.run(alone())
    assert len(set(want)) > len(want) // 2
    asyncio.run(together())


async def _text(r: Real, **fields: Any) -> dict[str, Any]:
    body = {"prompt": TEXT, "max_tokens": 6, "temperature": 0, "ignore_eos": True, **fields}
    answer = await r.http.post("/v1/completions", json=body)
    return {"status": answer.status_code, **answer.json()}


def test_who_gets_which(tmp_path: Path) -> None:
    paths = story_adapters(tmp_path, "abc")

    async def go() -> None:
        async with real(lora=lora(paths)) as r:
            listed = (await r.http.get("/lora-adapters")).json()
            assert [(one["id"], one["scale"], one["path"]) for one in listed] == [
                (0, 0.0, str(paths[0])), (1, 0.0, str(paths[1])), (2, 0.5, str(paths[2])),
            ]  # fmt: skip
            models = (await r.http.get("/v1/models")).json()["data"]
            own = [(m["id"], m["parent"], m["root"]) for m in models if "parent" in m]
            assert own == [(n, "story", str(p)) for n, p in zip("abc", paths, strict=True)]
            assert (await r.http.get("/v1/models/a")).json()["parent"] == "story"
            a = await _text(r, model="a")
            assert a["model"] == "a"
            by_number = await _text(r, lora=[{"id": 0, "scale": 1.0}])
            assert (by_number["model"], by_number["choices"]) == ("story", a["choices"])
            usual = await _text(r)
            assert usual["choices"] == (await _text(r, lora=[{"id": 2, "scale": 0.5}]))["choices"]
            plain = await _text(r, lora=[{"id": 2, "scale": 0}])
            assert len({str(each["choices"]) for each in (a, usual, plain)}) == 3
            answer = await r.http.post("/lora-adapters", json=[{"id": 0, "scale": 1.0}])
            assert answer.json() == {"success": True}
            assert (await _text(r))["choices"] == a["choices"]
            assert [one["scale"] for one in (await r.http.get("/lora-adapters")).json()] == [1.0, 0.0, 0.0]
            assert (await r.http.post("/lora-adapters", json={"id": 0})).status_code == 400
            assert (await r.http.post("/lora-adapters", json=[{"id": 9, "scale": 1}])).status_code == 400
            unknown = await _text(r, lora=[{"id": 7, "scale": 1.0}])
            assert unknown["status"] == 400
            assert unknown["error"]["message"] == "lora names adapter 7; there are 0, 1, 2"
            assert (await _text(r, model="d"))["status"] == 404

    asyncio.run(go())


@pytest.mark.parametrize("process", soon((True,), (False, True)))  # the test above has a thread
def test_changes_while_it_runs(process: bool, tmp_path: Path) -> None:
    """Loading, unloading while a request has it, and an engine that is started anew with what was loaded."""
    paths = story_adapters(tmp_path, "ab")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")

    async def go() -> None:
        async with real(process=process, lora=[(str(paths[0]), 0.0, "a")], lora_slots=1) as r:

            async def change(verb: str, **body: str) -> tuple[int, str]:
                answer = await r.http.post(f"/v1/{verb}_lora_adapter", json={f"lora_{k}": v for k, v in body.items()})
                return answer.status_code, answer.text

            assert (await _text(r, model="b"))["status"] == 404
            assert await change("load", name="b", path=str(paths[1])) == (200, "Success: adapter 'b' is loaded.")
            b = (await _text(r, model="b"))["choices"]
            assert b != (await _text(r, model="a"))["choices"]
            assert (await change("load", name="b", path=str(paths[1])))[0] == 400
            assert "room for 2 adapters" in (await change("load", name="c", path=str(paths[1])))[1]
            assert (await change("load", name="c", path=str(tmp_path / "bad.gguf")))[0] == 400
            assert (await change("unload", name="c"))[0] == 404
            if process:
                assert r.engine.pid is not None
                os.kill(r.engine.pid, signal.SIGKILL)
                while (answer := await _text(r, model="b"))["status"] == 503:  # the engine starts again
                    await asyncio.sleep(0.02)
                assert answer["choices"] == b
            long = asyncio.create_task(_text(r, model="b", max_tokens=150))
            await r.until(lambda: r.service.client.status.decoding > 0)
            assert (await change("unload", name="b"))[0] == 200
            assert (await _text(r, model="b"))["status"] == 404
            assert len((await long)["choices"][0]["text"]) > 150
            assert (await change("load", name="c", path=str(paths[1])))[0] == 200
            assert (await _text(r, model="c"))["choices"] == b

    asyncio.run(go())


def test_only_administrators_change_adapters(bench: MakeBench) -> None:  # noqa: F811
    key, admin = new_key("one"), new_key("boss")
    keys = ApiKeys({"one": frozenset({digest(key)}), "boss": frozenset({digest(admin)})})
    tenants = TenantConfigs({"one": TenantConfig(), "boss": TenantConfig(admin=True)})

    async def go() -> None:
        b = bench(keys=keys, tenants=tenants)
        adapters = ServedAdapters([ServedAdapter(0, "a", "a.gguf", 1.0, "", "")])
        b.service.model = dataclasses.replace(b.service.model, adapters=adapters)
        changes = [
            ("/lora-adapters", [{"id": 0, "scale": 0.0}]),
            ("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": "b.gguf"}),
            ("/v1/unload_lora_adapter", {"lora_name": "a"}),
        ]
        for path, body in changes:
            assert (await b.http.post(path, json=body, headers={"x-api-key": key})).status_code == 403
        assert adapters.entries[0].scale == 1.0
        assert (await b.http.post(*changes[0][:1], json=changes[0][1], headers={"x-api-key": admin})).status_code == 200
        assert adapters.entries[0].scale == 0.0
        assert (await b.http.get("/lora-adapters", headers={"x-api-key": key})).status_code == 200
        refused = await b.http.post(changes[1][0], json=changes[1][1], headers={"x-api-key": admin})
        assert (refused.status_code, "--lora-slots" in refused.text) == (403, True)  # no file is looked at

    asyncio.run(go())
