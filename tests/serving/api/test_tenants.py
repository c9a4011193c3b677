"""Keys, tenants and their files; who may see what."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from tests.serving.api.conftest import SAYS, Bench, MakeBench
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.scheduler.messages import MAX_TENANTS, QoS
from zinc_rt.serving.api.admission import TokenBucket
from zinc_rt.serving.api.config import (
    ServerConfig,
    TenantConfig,
    TenantConfigs,
    read_tenants,
)
from zinc_rt.serving.api.keys import ApiKeys, add_key, new_key, read_keys
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.server import Server, check_exposure, listen


def test_the_file_of_keys_has_digests_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    made = [add_key(path, "acme"), add_key(path, "acme"), add_key(path, "zoo")]
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(set(made)) == 3
    text = path.read_text()
    assert not any(key in text or key[-32:] in text for key in made)
    keys = read_keys(path)
    assert [keys.tenant(key) for key in made] == ["acme", "acme", "zoo"]


@pytest.mark.parametrize("before", ["", "# ours", "# ours\n", "zoo " + "0" * 64])
def test_a_key_is_added_behind_whatever_the_file_ends_with(tmp_path: Path, before: str) -> None:
    path = tmp_path / "keys"
    path.write_text(before)
    key = add_key(path, "acme")
    assert read_keys(path).tenant(key) == "acme"
    assert path.read_text().startswith(before)
    assert path.read_text().count("\n") == 1 + bool(before)


def test_many_keys_of_a_tenant_are_read_in_linear_time(tmp_path: Path) -> None:
    def seconds(n: int) -> float:
        path = tmp_path / str(n)
        path.write_text("".join(f"acme {i:064x}\n" for i in range(n)))
        started = time.process_time()
        assert len(read_keys(path).digests["acme"]) == n
        return time.process_time() - started

    few, many = (min(seconds(n) for _ in range(3)) for n in (2_000, 16_000))
    assert many < 30 * few  # 8 times as many; a quadratic reader takes 64 times as long


@pytest.mark.parametrize("content", ["", "# none\n", "acme zk_acme_x\n", "acme " + "0" * 63 + "\n", "\x00\xff"])
def test_bad_files_of_keys_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content, "latin-1")
    with pytest.raises(UsageError, match="keys"):
        read_keys(path)
    with pytest.raises(UsageError, match="No such file"):
        read_keys(tmp_path / "missing")


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a" * 33, "a b"])
def test_names_that_tenants_cannot_have(name: str) -> None:
    with pytest.raises(UsageError, match="tenant"):
        new_key(name)


def test_a_key_is_asked_for(bench: MakeBench, tmp_path: Path) -> None:
    async def go() -> None:
        path = tmp_path / "keys"
        acme, boss = add_key(path, "acme"), add_key(path, "boss")
        b = bench(keys=read_keys(path), tenants=TenantConfigs({"boss": TenantConfig(admin=True, qos=QoS.interactive)}))

        async def status(key: str | None, where: str = "/v1/models") -> int:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            return (await b.http.get(where, headers=headers)).status_code

        assert [await status(k) for k in (None, "", "x", new_key("acme"), acme[:-1], acme)] == [401] * 5 + [200]
        assert (await b.http.get("/v1/models", headers={"X-Api-Key": acme})).status_code == 200
        assert (await b.http.get("/v1/models", headers={"Authorization": f"Basic {acme}"})).status_code == 401
        assert [await status(None, p) for p in ("/health", "/health/live", "/health/ready")] == [200] * 3
        assert (await status(acme, "/metrics"), await status(boss, "/metrics")) == (403, 200)
        wrong = await b.http.post("/v1/messages", json={}, headers={"X-Api-Key": "x"})
        assert wrong.json()["error"]["type"] == "authentication_error"
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        answer = await b.http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {boss}"})
        request = b.client.submitted[-1]
        assert (request.tenant, request.qos) == ("boss", QoS.interactive)
        where = f"/v1/zinc/requests/{answer.json()['id']}"
        assert (await status(acme, where), await status(boss, where)) == (404, 200)

    asyncio.run(go())


def test_each_tenant_has_a_prefix_cache_of_its_own(bench: MakeBench) -> None:
    one, two = bench().service, bench().service
    salts = [one.salt("a"), one.salt("b"), two.salt("a")]
    assert len(set(salts)) == 3
    assert one.salt("a") == salts[0]


GOOD = """
[limits]
queue = 5
body_bytes = 1000
[tenants.acme]
weight = 2.5
qos = "interactive"
requests_per_minute = 10
[tenants.default]
max_tokens = 7
"""


def test_the_file_of_tenants(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(GOOD)
    tenants = read_tenants(path)
    assert tenants.limits == Limits(queue=5, body_bytes=1000)
    assert tenants.get("acme") == TenantConfig(weight=2.5, qos=QoS.interactive, requests_per_minute=10)
    assert tenants.get("anyone").max_tokens == 7
    assert tenants.get("acme").share("acme").weight == 2.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tenants = [", "no TOML"),
        ("[tenant.a]", "unknown table 'tenant'"),
        ("[tenants.a]\nwight = 1", "wight"),
        ("[tenants.a]\nweight = 0", "tenants.a.weight is 0"),
        ("[tenants.a]\nweight = inf", "tenants.a.weight is inf"),
        ("[tenants.a]\nseconds = nan", "tenants.a.seconds is nan"),
        ("".join(f"[tenants.t{i}]\n" for i in range(MAX_TENANTS)), "4096 tenants; it must be fewer than 4096"),
        ("a = " + "[" * 10_000, "no TOML"),
        ("[tenants.a]\nactive = " + "9" * 5_000, "no TOML"),
        ("[tenants.a]\nactive = " + "9" * 4_000, "tenants.a.active is 9999"),
        ("[tenants.a]\nweight = 0x" + "f" * 5_000, "weight"),
        ("[limits]\nqueue = 0x" + "f" * 5_000, "limits.queue is a huge int"),
        ("[tenants.a]\nactive = 1\0", "no TOML"),
        ("[limits]\nheader_seconds = inf", "limits.header_seconds is inf"),
        ("[tenants.a]\nkv_share = 1.5", "kv_share is 1.5"),
        ("[tenants.a]\nqos = 'fast'", "fast"),
        ("[tenants.A]\nweight = 1", "tenant 'A'"),
        ("[limits]\nqueue = 0", "limits.queue is 0"),
        ("[limits]\nqueues = 1", "queues"),
        ("[limits]\nqueue = 'x'", "queue"),
    ],
)
def test_bad_files_of_tenants_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        read_tenants(path)
    assert len(str(refused.value)) < len(str(path)) + 300


@pytest.mark.parametrize("text", ["[tenants.{}]", "[{}]", "[tenants.a]\nqos = '{}'", "[limits]\n{} = 1", "{} = 1"])
def test_messages_about_files_of_tenants_are_short(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(text.format("a" * 100_000))
    with pytest.raises(UsageError, match=re.escape(str(path))) as refused:
        read_tenants(path)
    assert len(str(refused.value)) < len(str(path)) + 300


def test_what_cannot_be_used_changes_nothing_when_files_are_read_again(bench: MakeBench, tmp_path: Path) -> None:
    tenants, keys = tmp_path / "tenants.toml", tmp_path / "keys"
    tenants.write_text(GOOD)
    acme = add_key(keys, "acme")
    b = bench(config=ServerConfig(tenants=tenants, keys=keys), keys=read_keys(keys), tenants=read_tenants(tenants))
    sock = listen(ServerConfig(port=0))
    server = Server(b.service, sock)
    keys.write_text("garbage")
    tenants.write_text(GOOD.replace("10", "20"))
    server.reload()
    assert b.log[-1]["event"] == "not reloaded"
    assert b.service.tenants.get("acme").requests_per_minute == 10
    assert b.service.keys is not None
    assert b.service.keys.tenant(acme) == "acme"
    keys.unlink()
    zoo = add_key(keys, "zoo")
    server.reload()
    assert b.log[-1]["event"] == "reloaded"
    assert b.service.tenants.get("acme").requests_per_minute == 20
    assert b.service.keys.tenant(zoo) == "zoo"
    assert [share.tenant for share in b.client.shares] == ["acme", "default"]
    sock.close()


def test_other_machines_are_not_served_without_keys(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        check_exposure(ServerConfig(host=host))
    for host in ("0.0.0.0", "::", "example.org", "10.0.0.1"):
        with pytest.raises(UsageError, match="--no-auth"):
            check_exposure(ServerConfig(host=host))
        check_exposure(ServerConfig(host=host, no_auth=True))
        check_exposure(ServerConfig(host=host, keys=tmp_path / "keys"))


def test_an_address_that_is_taken() -> None:
    with listen(ServerConfig(port=0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ZincError, match=f"127.0.0.1:{port}: Address already in use"):
            listen(ServerConfig(port=port))


def test_prompts_are_logged_where_the_tenant_allows_it(bench: MakeBench) -> None:
    async def go() -> None:
        quiet: Bench = bench()
        assert (await quiet.chat("The secret word is Xyzzy")).status_code == 200
        assert (await quiet.chat("The secret word is Xyzzy", n=99)).status_code == 400
        assert "Xyzzy" not in str(quiet.log)
        assert SAYS not in str(quiet.log)
        loud = bench(tenants=TenantConfigs({"default": TenantConfig(may_log_prompts=True)}))
        await loud.chat("The secret word is Xyzzy")
        assert loud.log[-1]["prompt"] == [{"role": "user", "content": "The secret word is Xyzzy"}]

    asyncio.run(go())


def test_a_bucket_refills_evenly_and_never_holds_more_than_a_minute() -> None:
    bucket = TokenBucket(60, now=0.0)
    assert bucket.wait(60, 0.0) == 0
    assert bucket.wait(61, 0.0) == float("inf")
    bucket.take(60, 0.0)
    assert bucket.wait(1, 0.0) == 1.0
    assert bucket.wait(30, 10.0) == 20.0
    bucket.take(70, 10.0)
    assert bucket.wait(1, 10.0) == 61.0
    assert bucket.wait(60, 1000.0) == 0
    assert bucket.wait(60, 500.0) == 0  # a clock that goes back gives nothing and takes nothing
    assert ApiKeys().digests == {}
