"""A server with a certificate: what it answers, files that cannot be used, and a certificate that is renewed."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.serving.api.conftest import MakeBench
from zinc_rt.cli.main import main
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.server import Server, listen
from zinc_rt.serving.api.tls import BadCertificate, Certificate
from zinc_rt.serving.route.backends import RouteBackends
from zinc_rt.serving.route.router import make_client

FILES = Path(__file__).parents[1] / "tls"
"""Made by openssl for localhost, valid for 100 years; `other.pem` is another key, `locked.pem` needs a password."""


def test_a_server_with_a_certificate_answers_https_alone(bench: MakeBench, tmp_path: Path) -> None:
    for name in ("certificate.pem", "key.pem"):
        shutil.copy(FILES / name, tmp_path)
    pair = Certificate(tmp_path / "certificate.pem", tmp_path / "key.pem")

    async def go() -> None:
        b = bench(config=ServerConfig(certificate=pair))
        b.service.model = replace(b.service.model, pool=ThreadPoolExecutor(2))
        ready = asyncio.Event()
        server = Server(b.service, listen(ServerConfig(port=0)), lambda url: ready.set())
        task = asyncio.create_task(server.run(signals=False))
        await asyncio.wait_for(ready.wait(), 20)
        assert server.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(FILES / "certificate.pem"))
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}

        async def ask() -> int:
            async with httpx.AsyncClient(verify=trusted) as http:
                return (await http.post(f"{server.url}/v1/chat/completions", json=body)).status_code

        assert await ask() == 200
        with pytest.raises(httpx.TransportError):
            await httpx.AsyncClient().get(server.url.replace("https", "http") + "/health")
        shutil.copy(FILES / "other.pem", pair.key or "")
        server.reload()
        assert b.log[-1]["event"] == "not reloaded"
        assert await ask() == 200
        shutil.copy(FILES / "key.pem", pair.key or "")
        server.reload()
        assert b.log[-1]["event"] == "reloaded"
        assert await ask() == 200
        for issuers, state in ((FILES / "certificate.pem", None), (None, "it does not answer: ConnectError")):
            http = make_client(issuers)
            backends = RouteBackends([server.url], http, b.service.log)
            await backends.look()
            assert backends.all[0].wrong == state
            await http.aclose()
        server.stop()
        server.stop()
        assert await asyncio.wait_for(task, 20) == 0

    asyncio.run(go())


@pytest.mark.parametrize(
    ("file", "key", "said"),
    [
        ("certificate.pem", "other.pem", "is not that of the certificate in"),
        ("certificate.pem", "locked.pem", "needs a password"),
        ("certificate.pem", None, "no usable certificate and key in PEM"),
        ("key.pem", "key.pem", "no usable certificate and key in PEM"),
        ("missing.pem", "key.pem", "missing.pem: No such file"),
        ("certificate.pem", "missing.pem", "missing.pem: No such file"),
    ],
)
def test_files_that_cannot_be_used(file: str, key: str | None, said: str) -> None:
    with pytest.raises(BadCertificate, match=said):
        Certificate(FILES / file, None if key is None else FILES / key).context()


@pytest.mark.parametrize(("name", "said"), [("key.pem", "has no certificate"), ("missing.pem", "No such file")])
def test_issuers_that_cannot_be_used(name: str, said: str) -> None:
    with pytest.raises(BadCertificate, match=said):
        make_client(FILES / name)


@pytest.mark.parametrize("verb", [["serve"], ["route", "-b", "http://127.0.0.1:9"]])
def test_the_command_refuses_them_before_anything_else(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb, "--ssl-keyfile", str(FILES / "key.pem")]) == 2
    assert "give --ssl-certfile" in capsys.readouterr().err
    assert main([*verb, "--ssl-certfile", str(FILES / "locked.pem")]) == 2
    assert "locked.pem" in capsys.readouterr().err
