"""Pictures that a request names: hosts and folders that are allowed, and every way around that which is refused."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.serving.pictures import picture
from zinc_rt.errors import UsageError
from zinc_rt.serving.api import media
from zinc_rt.serving.api.media import MediaError, MediaRule, fetch, is_public, read_file

ONE = picture()
LIMIT = 1 << 20
Answer = Callable[[asyncio.StreamWriter, str], Awaitable[None]]


@asynccontextmanager
async def host(answer: Answer) -> AsyncIterator[tuple[int, list[str]]]:
    """A host on a port of this machine, and the paths that were asked for."""
    asked: list[str] = []

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            asked.append(head.split(" ")[1])
            await answer(writer, asked[-1])
            await writer.drain()
        except (ConnectionError, EOFError):
            pass
        writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


def plain(body: bytes, head: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


async def serve_one(writer: asyncio.StreamWriter, path: str) -> None:
    """One path for each way of answering."""
    match path.partition("?")[0]:
        case "/a.png":
            writer.write(plain(ONE))
        case "/chunks":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for part in (ONE[:100], ONE[100:]):
                writer.write(b"%x\r\n" % len(part) + part + b"\r\n")
            writer.write(b"0\r\n\r\n")
        case "/until-closed":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + ONE)
        case "/moved":
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /a.png\r\nContent-Length: 0\r\n\r\n")
        case "/elsewhere":
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://other.example/a.png\r\n\r\n")
        case "/inside":
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n")
        case "/round":
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /round\r\n\r\n")
        case "/missing":
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        case "/large":
            writer.write(plain(b"x" * (LIMIT + 1)))
        case "/endless":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(1 << 10):
                writer.write(b"x" * (1 << 16))
                await writer.drain()
        case "/headers":
            for _ in range(1 << 10):
                writer.write(b"HTTP/1.1 200 OK\r\n" if _ == 0 else b"X: %s\r\n" % (b"y" * 4000))
                await writer.drain()
        case "/half":
            writer.write(plain(ONE)[:-10])
        case "/words":
            writer.write(b"hello\r\n\r\n")
        case "/slow":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            for _ in range(100):
                writer.write(b"X: y\r\n")
                await writer.drain()
                await asyncio.sleep(0.1)


@pytest.fixture
def this_machine_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "is_public", lambda address: address == "127.0.0.1")


RULE = MediaRule(frozenset({"localhost"}))
REFUSED = {
    "/elsewhere": "redirects from localhost to other.example|is on 'other.example', which this server does not fetch",
    "/inside": "give http:// or https://",
    "/round": "redirects more than 3 times",
    "/missing": "localhost answers 404",
    "/large": f"has more than {LIMIT} bytes",
    "/endless": f"has more than {LIMIT} bytes",
    "/headers": "no HTTP|more than",
    "/half": "broke the answer off",
    "/words": "no HTTP",
    "/slow": "not fetched within 1 s",
}


@pytest.mark.usefixtures("this_machine_is_public")
def test_what_a_host_gives() -> None:
    async def go() -> None:
        async with host(serve_one) as (port, asked):
            for path in ("/a.png", "/chunks", "/until-closed", "/moved", "/a.png?size=1&x=%20"):
                assert await fetch(f"http://localhost:{port}{path}", RULE, LIMIT, 10) == ONE, path
            assert asked == ["/a.png", "/chunks", "/until-closed", "/moved", "/a.png", "/a.png?size=1&x=%20"]
            for path, words in REFUSED.items():
                with pytest.raises(MediaError, match=words):
                    await fetch(f"http://localhost:{port}{path}", RULE, LIMIT, 1 if path == "/slow" else 10)
            with pytest.raises(MediaError, match="not fetched within 1 s"):
                await fetch(f"https://localhost:{port}/a.png", RULE, LIMIT, 1)  # no TLS there

    asyncio.run(go())


def test_a_name_with_an_address_of_this_machine_is_not_asked() -> None:
    async def go() -> None:
        async with host(serve_one) as (port, asked):
            for name in ("localhost", "127.0.0.1", "[::1]", "0.0.0.0", "2130706433", "[::ffff:127.0.0.1]"):
                rule = MediaRule(frozenset({name.strip("[]")}))
                with pytest.raises(MediaError, match=r"not a public one|not reached"):
                    await fetch(f"http://{name}:{port}/a.png", rule, LIMIT, 10)
            assert asked == []

    asyncio.run(go())


def test_the_address_that_was_judged_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that has another address the second time changes nothing: it is looked up once."""
    looked: list[str] = []

    async def go() -> None:
        async with host(serve_one) as (port, asked):
            loop = asyncio.get_running_loop()

            async def once(name: str, *_: object, **__: object) -> list[object]:
                looked.append(name)
                address = "93.184.216.34" if len(looked) == 1 else "127.0.0.1"
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

            async def refused(address: str, *_: object, **__: object) -> None:
                assert address == "93.184.216.34"
                raise OSError("no network")

            monkeypatch.setattr(loop, "getaddrinfo", once)
            monkeypatch.setattr(asyncio, "open_connection", refused)
            with pytest.raises(MediaError, match=r"rebound\.example is not reached"):
                await fetch("http://rebound.example/", MediaRule(frozenset({"rebound.example"})), LIMIT, 10)
            assert (looked, asked) == (["rebound.example"], [])

    asyncio.run(go())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
        "2002:a00:1::1", "2001:0:a00:1::1", "64:ff9b:1::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_public_addresses() -> None:
    assert is_public("93.184.216.34")
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")


def test_urls_that_are_not_asked() -> None:
    for url, words in {
        "http://other.example/a": "does not fetch from",
        "http://localhost.evil.example/a": "does not fetch from",
        "http://user:pass@localhost/a": "give http:// or https://",
        "http://localhost@evil.example/a": "give http:// or https://",
        "http:///a": "give http:// or https://",
        "http://localhost:99999/a": "no URL",
        "http://[::1/a": "no URL",
        "http://loc\u0430lhost/a": "give http:// or https://",
        "gopher://localhost/a": "give http:// or https://",
    }.items():
        with pytest.raises(MediaError, match=words):
            asyncio.run(fetch(url, RULE, LIMIT, 10))
    with pytest.raises(MediaError, match="the usual ports"):
        asyncio.run(fetch("http://anything.example:22/", MediaRule(frozenset({"*"})), LIMIT, 10))


def test_rules() -> None:
    assert MediaRule.of("A.example, b.example", None).hosts == {"a.example", "b.example"}
    for hosts in ("", "a,,b", "http://a", "a:80", "a b"):
        with pytest.raises(UsageError, match="--media-hosts has"):
            MediaRule.of(hosts, None)
    with pytest.raises(UsageError, match="is no folder"):
        MediaRule.of(None, Path(__file__))


def test_files_of_the_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    (folder / "inner").mkdir(parents=True)
    (folder / "a b.png").write_bytes(ONE)
    (folder / "inner" / "c.png").write_bytes(ONE)
    secret = tmp_path / "secret.png"
    secret.write_bytes(ONE)
    (folder / "link.png").symlink_to(secret)
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    rule = MediaRule.of(None, folder)
    for name in ("file://a%20b.png", "file:///a b.png", "file:a%20b.png", f"file://{folder}/inner/c.png"):
        assert read_file(name, rule, LIMIT) == ONE
    assert read_file("file://inner/c.png", rule, 10) == ONE[:11]
    for name in (
        "file://../secret.png", "file://inner/../../secret.png", "file://%2e%2e/secret.png", f"file://{secret}",
        "file://link.png", "file://up/secret.png", "file://pipe", "file://inner", "file://", "file://missing.png",
        "file://a%00.png",
    ):  # fmt: skip
        with pytest.raises(MediaError):
            read_file(name, rule, LIMIT)
    with pytest.raises(MediaError, match="does not read"):
        read_file("file://a.png", MediaRule(), LIMIT)
