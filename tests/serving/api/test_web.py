"""Without keys no web page of another origin is answered, by server and router alike; with keys nothing changes."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

import httpx
import pytest

from tests.serving.api.conftest import MakeBench
from zinc_rt.errors import UsageError
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.keys import ApiKeys, digest, new_key
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.web import WebRule
from zinc_rt.serving.route.backends import RouteBackends
from zinc_rt.serving.route.router import Router, make_client

OWN = WebRule.of("127.0.0.1", ["Box.lan"], ["https://chat.example:8443/", "null", "file://"])
OPEN = WebRule.of("0.0.0.0", ["box.lan"], [])
PAGE = {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}
HTTP = make_client()
CHAT = b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}'


@pytest.mark.parametrize(
    ("rule", "headers", "answered"),
    [
        (OWN, {}, True),  # a program of HTTP/1.0
        (OWN, {"host": "127.0.0.1:8080"}, True),
        (OWN, {"host": "localhost"}, True),
        (OWN, {"host": "LOCALHOST:99999"}, True),
        (OWN, {"host": "[::1]:8080"}, True),
        (OWN, {"host": "box.lan:8080"}, True),
        (OWN, {"host": "evil.example"}, False),
        (OWN, {"host": "evil.example:8080", "origin": "http://evil.example:8080"}, False),
        (OWN, {"host": "127.0.0.1.evil.example"}, False),
        (OWN, {"host": "localhost.evil.example"}, False),
        (OWN, {"host": "127.0.0.1:8080@evil.example"}, False),
        (OWN, {"host": "192.168.0.9:8080"}, False),
        (OWN, {**PAGE, "sec-fetch-site": "same-origin"}, True),
        (OWN, {"host": "box.lan:8080", "origin": "http://box.lan:8080"}, True),
        (OWN, {"host": "127.0.0.1:8080", "sec-fetch-site": "none"}, True),
        (OWN, {"host": "127.0.0.1:8080", "sec-fetch-site": "cross-site"}, False),
        (OWN, {"host": "127.0.0.1:8080", "sec-fetch-site": "same-site"}, False),
        (OWN, {"host": "127.0.0.1:8080", "sec-fetch-site": "CROSS-SITE"}, False),
        (OWN, {**PAGE, "origin": "http://127.0.0.1:9090"}, False),
        (OWN, {**PAGE, "origin": "http://localhost:8080"}, False),
        (OWN, {**PAGE, "origin": "http://evil.example"}, False),
        (OWN, {**PAGE, "origin": "http://127.0.0.1:8080.evil.example"}, False),
        (OWN, {**PAGE, "origin": "http://evil.example/127.0.0.1:8080"}, False),
        (OWN, {**PAGE, "origin": "http://evil.example@127.0.0.1:8080"}, False),
        (OWN, {**PAGE, "origin": "https://chat.example:8443", "sec-fetch-site": "cross-site"}, True),
        (OWN, {**PAGE, "origin": "http://chat.example:8443"}, False),
        (OWN, {"host": "evil.example", "origin": "https://chat.example:8443"}, False),
        (OWN, {**PAGE, "origin": "null"}, True),
        (OWN, {**PAGE, "origin": "file://"}, True),
        (OPEN, {"host": "", "origin": "file://"}, False),
        (OPEN, {**PAGE, "origin": "null"}, False),
        (OPEN, {"host": "gpu7:8080"}, True),  # programs call it by any name of the network
        (OPEN, {"host": "gpu7:8080", "origin": "http://gpu7:8080"}, False),
        (OPEN, {"host": "10.0.0.1:8080", "origin": "http://10.0.0.1:8080"}, True),
        (OPEN, {"host": "box.lan", "origin": "https://box.lan"}, True),
        (OPEN, {"host": "10.0.0.1:8080", "origin": "http://evil.example"}, False),
    ],
)
def test_which_requests_are_answered(bench: MakeBench, rule: WebRule, headers: dict[str, str], answered: bool) -> None:
    async def go() -> None:
        b = bench(config=ServerConfig(web=rule))
        found = RouteBackends(["http://127.0.0.1:9", "http://127.0.0.1:10"], HTTP, make_logger(io.StringIO()))
        router = Router(found, HTTP, make_logger(io.StringIO()), web=rule)
        for kind in ("text/plain", "application/json"):
            asked = {**headers, "content-type": kind}
            if "host" not in headers:
                asked["host"] = ""
            answer = await b.http.post("/v1/chat/completions", content=CHAT, headers=asked)
            assert answer.status_code == (200 if answered else 403), answer.text
            passed = await httpx.AsyncClient(transport=httpx.ASGITransport(router)).get(
                "http://localhost/health", headers=asked
            )
            assert passed.status_code == (503 if answered else 403)  # 503: there is no server behind it
            if not answered:
                said = answer.json()["error"]
                assert said["code"] == "foreign_page"
                assert "--allow-host" in said["message"] or "--cors" in said["message"]
        assert len(b.client.submitted) == (2 if answered else 0)
        locked = bench(config=ServerConfig(web=rule), keys=ApiKeys({"acme": (digest(key := new_key("acme")),)}))
        asked["authorization"] = f"Bearer {key}"
        assert (await locked.http.post("/v1/chat/completions", content=CHAT, headers=asked)).status_code == 200
        found.all[0].keyless = False
        assert (
            await httpx.AsyncClient(transport=httpx.ASGITransport(router)).get(
                "http://localhost/health", headers=headers
            )
        ).status_code == 503

    asyncio.run(go())


@pytest.mark.parametrize("keys", [None, ApiKeys({"acme": (digest(KEY := new_key("acme")),)})])
def test_pages_that_are_allowed_may_read(bench: MakeBench, keys: ApiKeys | None) -> None:
    async def go() -> None:
        rule = WebRule.of("127.0.0.1", [], ["https://chat.example"])
        b = bench(config=ServerConfig(web=rule), keys=keys)
        page = {"origin": "https://chat.example", "authorization": f"Bearer {KEY}"}
        asks = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        before = await b.http.options("/v1/chat/completions", headers={"origin": page["origin"], **asks})
        assert (before.status_code, before.content) == (204, b"")
        assert before.headers["access-control-allow-origin"] == "https://chat.example"
        assert before.headers["access-control-allow-headers"] == "authorization,content-type"
        assert "POST" in before.headers["access-control-allow-methods"]
        for answer in (
            await b.http.post("/v1/chat/completions", content=CHAT, headers=page),
            await b.http.post("/v1/chat/completions", content=b"{", headers=page),
        ):
            assert answer.headers["access-control-allow-origin"] == "https://chat.example"
            assert answer.headers["vary"] == "origin"
            assert "x-zinc-seed" in answer.headers["access-control-expose-headers"]
        other = await b.http.options("/v1/chat/completions", headers={"origin": "https://evil.example", **asks})
        assert other.status_code == (403 if keys is None else 405)
        assert "access-control-allow-origin" not in other.headers
        all_pages = bench(config=ServerConfig(web=replace(rule, origins=frozenset("*"))), keys=keys)
        answer = await all_pages.http.get("/v1/models", headers={**page, "origin": "https://any.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert len(b.client.submitted) == 1

    asyncio.run(go())


@pytest.mark.parametrize(
    ("hosts", "origins", "said"),
    [
        (["box:80"], [], "--allow-host 'box:80'"),
        ([""], [], "--allow-host ''"),
        (["a b"], [], "--allow-host 'a b'"),
        ([], ["chat.example"], "--cors 'chat.example'"),
        ([], ["https://a/b"], "--cors 'https://a/b'"),
    ],
)
def test_names_and_origins_are_checked(hosts: list[str], origins: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        WebRule.of("127.0.0.1", hosts, origins)


def test_a_stranger_is_told_of_progress_only_what_a_router_needs(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench(keys=ApiKeys({"acme": (digest(key := new_key("acme")),)}))
        told = (await b.http.get("/health/progress")).json()
        assert told == {"fingerprint": b.service.model.fingerprint, "requests": 0, "keyless": False}
        for wrong in ({"authorization": "Basic x"}, {"x-api-key": new_key("acme")}):
            assert (await b.http.get("/health/progress", headers=wrong)).json() == told
        known = (await b.http.get("/health/progress", headers={"x-api-key": key})).json()
        assert known.keys() > told.keys() | {"steps", "queued", "running"} - {"queued"}
        assert (await bench().http.get("/health/progress")).json()["slots"] == 4

    asyncio.run(go())
