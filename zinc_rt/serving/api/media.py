"""Pictures that a request names by an address: from hosts that the server's owner trusts, or from a folder.

Whoever writes a request chooses the address, so each is judged before anything is asked: the host must be listed, the
address that its name has must be a public one, and the connection goes to that very address. A redirect may lead to the
same host alone. Of a folder, no link is followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import httptools

from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

ANY_HOST: Final = "*"
_PORTS: Final = {"http": 80, "https": 443}
_REDIRECTS: Final = 3
_REDIRECTED: Final = (301, 302, 303, 307, 308)
_HEADERS: Final = 64 << 10
_CHUNK: Final = 1 << 16
_GONE: Final = "picture_unreachable"


class MediaError(Exception):
    """An address that is not read. Its text follows the place of the address: "is ...". code: a word for programs."""

    def __init__(self, message: str, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.code = code


def too_large(limit: int) -> MediaError:
    """The error of a file with more bytes."""
    return MediaError(f"has more than {limit} bytes; scale the picture down", "picture_too_large")


@dataclass(frozen=True, slots=True)
class MediaRule:
    """Where pictures may come from besides the request itself. hosts: names in lower case, "*" for any; folder: whose
    files may be named.
    """

    hosts: frozenset[str] = frozenset()
    folder: Path | None = None

    @classmethod
    def of(cls, hosts: str | None, folder: Path | None) -> MediaRule:
        """The rule of --media-hosts and --media-path. Raises `UsageError`."""
        names = frozenset(name.strip().lower() for name in hosts.split(",")) if hosts is not None else frozenset()
        for name in names:
            if name != ANY_HOST and (not name or set(name) & set("/:@* ")):
                raise UsageError(f"--media-hosts has {show(name)}; give names of hosts with commas between them, or *")
        if folder is not None and not folder.is_dir():
            raise UsageError(f"--media-path is {folder}, which is no folder")
        return cls(names, None if folder is None else folder.resolve())


async def fetch(url: str, rule: MediaRule, limit: int, seconds: float) -> bytes:
    """What a http or https address gives. limit: of bytes. seconds: for all of it. Raises `MediaError`."""
    try:
        async with asyncio.timeout(seconds):
            first: str | None = None
            for _ in range(_REDIRECTS + 1):
                parts, host = _judged(url, rule)
                if first is not None and host != first:
                    raise MediaError(f"redirects from {first} to {host}, another host", _GONE)
                first = host
                answer = await _get(parts, host, limit)
                if answer.status not in _REDIRECTED:
                    break
                url = urljoin(url, answer.location)
            else:
                raise MediaError(f"redirects more than {_REDIRECTS} times", _GONE)
    except TimeoutError:
        raise MediaError(f"was not fetched within {seconds:g} s", _GONE) from None
    if answer.status != 200:
        raise MediaError(f"cannot be fetched: {first} answers {answer.status}", _GONE)
    return bytes(answer.body)


def read_file(url: str, rule: MediaRule, limit: int) -> bytes:
    """What a file: address names within the folder. limit: of bytes. Raises `MediaError`."""
    if rule.folder is None:
        raise MediaError("is a file: URL, which this server does not read; send the picture as a data: URL")
    path = unquote(url.partition(":")[2].removeprefix("//"))
    path = path.removeprefix(f"{rule.folder}{os.sep}")
    names = [name for name in path.split("/") if name]
    if not names or ".." in names or "\0" in path:
        raise MediaError(f"is {show(url)}; give file:// and the name of a file in the server's folder")
    try:
        return _read_at(rule.folder, names, limit)
    except OSError as error:
        raise MediaError(f"is {show(url)}, which cannot be read: {error.strerror or error}") from None


def _read_at(folder: Path, names: Sequence[str], limit: int) -> bytes:
    """The bytes of a file, one more than the limit at the most. No name of the path may be a link."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        descriptor = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no file")
        return file.read(limit + 1)


def _judged(url: str, rule: MediaRule) -> tuple[SplitResult, str]:
    """The parts of an address that may be asked, and its host. Raises `MediaError`."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise MediaError(f"is {show(url)}, which is no URL") from None
    if parts.scheme not in _PORTS or not host or parts.username is not None or not url.isascii():
        raise MediaError(f"is {show(url)}; give http:// or https://, a host and a path")
    if host not in rule.hosts and ANY_HOST not in rule.hosts:
        raise MediaError(
            f"is on {show(host)}, which this server does not fetch from; send the picture as a data: URL, or start the"
            " server with --media-hosts"
        )
    if port is not None and port != _PORTS[parts.scheme] and ANY_HOST in rule.hosts:
        raise MediaError(f"names port {port}; with --media-hosts * the usual ports are asked alone")
    return parts, host


def is_public(address: str) -> bool:
    """Whether an IP address is one of the open internet, also where it stands within another one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _TRANSLATED or ip.sixtofour is not None or ip.teredo is not None:
            return False
        if ip.ipv4_mapped is not None:
            return is_public(str(ip.ipv4_mapped))
    return ip.is_global and not ip.is_multicast


_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/32")


class _Reply:
    """An answer while it is parsed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.body = bytearray()
        self.location, self.status = "", 0
        self.complete = self.framed = self.too_large = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        match name.lower():
            case b"location":
                self.location = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self.framed = True

    def on_body(self, data: bytes) -> None:
        """A part of its body."""
        self.too_large |= len(self.body) + len(data) > self._limit
        if not self.too_large:
            self.body += data

    def on_message_complete(self) -> None:
        """Its end."""
        self.complete = True


async def _get(parts: SplitResult, host: str, limit: int) -> _Reply:
    """The answer of a host. Raises `MediaError`."""
    port = parts.port or _PORTS[parts.scheme]
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    try:
        address = await _address(host, port)
        reader, writer = await asyncio.open_connection(
            address, port, ssl=tls, server_hostname=host if tls is not None else None, limit=_CHUNK
        )
    except (OSError, UnicodeError) as error:
        raise MediaError(f"cannot be fetched: {host} is not reached ({_reason(error)})", _GONE) from None
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        writer.write(
            f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: zinc\r\nAccept: image/*\r\n"
            "Accept-Encoding: identity\r\nConnection: close\r\n\r\n".encode("ascii")
        )
        return await _answer(reader, host, limit)
    except OSError as error:
        raise MediaError(f"cannot be fetched: the connection to {host} broke off ({_reason(error)})", _GONE) from None
    finally:
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            writer.transport.abort()


async def _answer(reader: asyncio.StreamReader, host: str, limit: int) -> _Reply:
    reply = _Reply(limit)
    parser = httptools.HttpResponseParser(reply)
    n_read = 0
    while not reply.complete:
        data = await reader.read(_CHUNK)
        n_read += len(data)
        try:
            parser.feed_data(data)
            reply.status = parser.get_status_code()
        except httptools.HttpParserError:
            raise MediaError(f"cannot be fetched: {host} answers with what is no HTTP", _GONE) from None
        if reply.too_large or n_read > limit + _HEADERS + limit // 4:
            raise too_large(limit)
        if not data:
            if reply.framed or not reply.status:
                raise MediaError(f"cannot be fetched: {host} broke the answer off", _GONE)
            break
        if reply.status in _REDIRECTED and reply.location:
            break
    return reply


async def _address(host: str, port: int) -> str:
    """The first public address of a name. Raises `MediaError`, `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    public = [str(entry[4][0]) for entry in found if is_public(str(entry[4][0]))]
    if not public:
        raise MediaError(f"is on {show(host)}, whose address is not a public one")
    return public[0]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
