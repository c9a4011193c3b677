"""`WebRule`: which host names and which web pages are answered. The server, the router and Ray's replicas share it.

A browser sends the requests of every page that it shows, also to this machine. Where no key is asked for, a page of
another origin could have texts generated, and one that gives its own name the server's address could read them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from zinc_rt.errors import UsageError
from zinc_rt.serving.api.errors import ApiError, Headers

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d*)?")
_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://([^/?#@\s\"]*)")
_SLASH: Final = re.compile("(?<=[^/])/$")
_READABLE: Final = b"x-request-id, x-should-retry, retry-after, x-zinc-dropped, x-zinc-ignored, x-zinc-seed"
"""Headers of answers that pages may read beside those that every page may."""


@dataclass(frozen=True, slots=True)
class WebRule:
    """Which requests of browsers are answered.

    listens: the address that is listened on. hosts: names, in lower case, by which the server may be called beside
    those of this machine. origins: pages that may use the server and read its answers; "*" is every page.
    """

    listens: str = "127.0.0.1"
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, listens: str, hosts: Iterable[str], origins: Iterable[str]) -> WebRule:
        """The rule that a command line asks for. Raises `UsageError` for what is no name of a host, or no origin."""
        names, pages = [h.lower() for h in hosts], [_SLASH.sub("", o.lower()) for o in origins]
        for name in names:
            if not _NAME.fullmatch(name) and not _is_address(name):
                raise UsageError(f"--allow-host {name[:80]!r} must be a host's name or address, without a port")
        for page in pages:
            if page not in ("*", "null") and not _ORIGIN.fullmatch(page):
                raise UsageError(f"--cors {page[:80]!r} must be an origin, as https://chat.example:8443, or *")
        return cls(listens.lower(), frozenset(names), frozenset(pages))

    def check(self, header: Callable[[str], str], keyless: bool) -> Headers:
        """Headers of the answer that let the page read it, where it may.

        header: gives a header of the request, empty for none. keyless: a request needs no key; one that needs a key is
        never refused here. Raises `ApiError`.
        """
        origin, host = header("origin").lower(), header("host").lower()
        allowed = bool(origin) and (origin in self.origins or "*" in self.origins)
        if keyless:
            self._check_host(host)
            if not allowed:
                self._check_page(origin, host, header("sec-fetch-site").lower())
        if not allowed:
            return []
        shown = b"*" if origin not in self.origins else origin.encode("latin-1")
        return [
            (b"access-control-allow-origin", shown),
            (b"access-control-expose-headers", _READABLE),
            (b"vary", b"origin"),
        ]

    def _check_host(self, host: str) -> None:
        if host and is_loopback(self.listens) and not self._is_known(host):
            raise _forbidden(
                f"the server does not answer to the host name {host[:80]!r}; call it by 127.0.0.1 or localhost,"
                " or start it with --allow-host NAME, or with keys (--api-key-file)"
            )

    def _check_page(self, origin: str, host: str, site: str) -> None:
        own = _ORIGIN.fullmatch(origin)
        same = own is not None and own[1] == host
        if same and not self._is_known(host):
            raise _forbidden(
                f"web pages of {host[:80]!r} may not use the server without a key; start it with --allow-host NAME,"
                " or with keys (--api-key-file)"
            )
        if (origin and not same) or site not in ("", "same-origin", "none"):
            raise _forbidden(
                f"web pages of {origin[:80] or 'other sites'} may not use the server without a key; start it with"
                f" --cors ORIGIN to allow one"
            )

    def _is_known(self, host: str) -> bool:
        """Whether a page of another site cannot have this value of `Host`: a name of its own may get any address."""
        found = _HOST.fullmatch(host)
        name = found[1].strip("[]") if found else ""
        if name in self.hosts or name in ("localhost", self.listens):
            return True
        return is_loopback(name) if is_loopback(self.listens) else _is_address(name)


def preflight(method: str, header: Callable[[str], str], allowed: Headers) -> Headers | None:
    """Headers of the answer to a browser that asks, before a page's request, whether it may send it; None for all other
    requests. allowed: what `WebRule.check` returned.
    """
    wanted = header("access-control-request-method")
    if method != "OPTIONS" or not wanted or not allowed:
        return None
    named = header("access-control-request-headers") or "content-type"
    return [
        *allowed,
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", named.encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _forbidden(message: str) -> ApiError:
    return ApiError(403, message, code="foreign_page")
