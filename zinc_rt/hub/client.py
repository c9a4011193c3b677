"""Requests to the hub, limited in time and size. The access token goes to the hub alone.

The hub library's settings count here, too: HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, and its two limits of time.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import httpx2
from huggingface_hub import constants, get_token

import zinc_rt
from zinc_rt.hub.errors import HubError, HubUnreachable
from zinc_rt.utils.checks import printable

Waiting = Callable[[str], None]
"""Gets the name of a host that has sent nothing for two seconds, on another thread."""

SILENCE: Final = 2.0
"""Seconds without a byte that are worth a word."""
_REDIRECTS: Final = 10
_TOKEN: Final = re.compile(r"[!-~]+")
_OK, _PARTIAL, _DENIED, _HIDDEN, _MISSING, _SLOW_DOWN, _BROKEN = 200, 206, 401, 403, 404, 429, 500


class HubResponse:
    """An answer whose body has not been read. size: the length that its headers give; None without one."""

    def __init__(self, response: httpx2.Response, host: str, silence: _Silence) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.host = host
        self._response, self._silence = response, silence
        length = response.headers.get("Content-Length", "")
        self.size = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives, in pieces of at most 64 KiB or so."""
        for chunk in self._response.iter_raw():
            self._silence.heard()
            yield chunk

    def read(self, limit: int, until: float) -> bytes:
        """The body. Raises `HubError` where it has more bytes than `limit`, or goes on after `until` (monotonic)."""
        body = bytearray()
        for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                raise HubError(f"{self.host} answers with more than {limit} bytes: try again, or name another mirror")
            if time.monotonic() > until:
                raise HubUnreachable(f"{self.host} answers too slowly: try again later")
        return bytes(body)


class Client:
    """A connection to the hub. waiting: see `Waiting`. Raises `HubError` where the settings cannot be used."""

    def __init__(self, waiting: Waiting | None = None) -> None:
        if constants.is_offline_mode():
            raise HubUnreachable("the model is not in the cache, and HF_HUB_OFFLINE forbids to ask the hub")
        token = get_token()
        if token is not None and not _TOKEN.fullmatch(token):
            raise HubError("the hub's token, in HF_TOKEN or its file, has characters that no token has: set it anew")
        self._waiting = waiting
        self._headers = {"User-Agent": f"zinc_rt/{zinc_rt.__version__}", "Accept-Encoding": "identity"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        limits = httpx2.Timeout(constants.HF_HUB_DOWNLOAD_TIMEOUT, connect=constants.HF_HUB_ETAG_TIMEOUT)
        try:
            self._http = httpx2.Client(timeout=limits, follow_redirects=False)
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            raise HubUnreachable(f"the proxy's address cannot be used: {error}; check HTTPS_PROXY") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._http.close()

    @contextmanager
    def about(self, repo: str) -> Iterator[HubResponse]:
        """What the hub knows of a repository. Raises as `file`."""
        with self._get(f"{constants.ENDPOINT}/api/models/{repo}?blobs=true", repo, {}) as answer:
            yield answer

    @contextmanager
    def file(self, repo: str, commit: str, path: str, first: int = 0, end: int | None = None) -> Iterator[HubResponse]:
        """A file's bytes from `first` on, up to `end`, or all of them where the server gives no parts: see the status.

        Raises, also while the body is read:
            HubUnreachable: no answer, or it broke off; another try may help.
            HubError: any other answer.
        """
        asked = {"Range": f"bytes={first}-{'' if end is None else end - 1}"} if first or end is not None else {}
        with self._get(f"{constants.ENDPOINT}/{repo}/resolve/{commit}/{quote(path)}", repo, asked) as answer:
            yield answer

    @contextmanager
    def _get(self, url: str, repo: str, headers: Mapping[str, str]) -> Iterator[HubResponse]:
        host = _host(constants.ENDPOINT)
        try:
            request = self._http.build_request("GET", url, headers={**self._headers, **headers})
            for _ in range(_REDIRECTS):
                host = request.url.host
                with _Silence(host, self._waiting) as silence:
                    response = self._http.send(request, stream=True)
                    try:
                        if response.next_request is None:
                            silence.heard()
                            _check(response, repo, "Authorization" in request.headers)
                            yield HubResponse(response, host, silence)
                            return
                    finally:
                        response.close()
                # The library took the token out where the next address is of another scheme, host or port.
                following = response.next_request
                if request.url.scheme == "https" and following.url.scheme != "https":
                    raise HubError(
                        f"{host} points to an address without TLS, {_host(str(following.url))}: not followed"
                    )
                request = following
            raise HubError(f"{host} points from address to address: try again later")
        except httpx2.TimeoutException as error:
            connecting = isinstance(error, httpx2.ConnectTimeout)
            seconds = constants.HF_HUB_ETAG_TIMEOUT if connecting else constants.HF_HUB_DOWNLOAD_TIMEOUT
            raise HubUnreachable(f"{host} does not answer: nothing came for {seconds} s; {_REMEDY}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = printable(str(error) or type(error).__name__)
            raise HubUnreachable(f"{host} does not answer ({reason}); {_REMEDY}") from None


_REMEDY: Final = "check the network and HTTPS_PROXY, or name a mirror in HF_ENDPOINT"


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0] or url


def _check(response: httpx2.Response, repo: str, authorized: bool) -> None:
    """Raise the error that an answer stands for; those of 206, and of 416 for a part that is too long, are none."""
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    host = response.request.url.host
    if status in (_OK, _PARTIAL, 416):
        return
    if code == "GatedRepo":
        where = f"{constants.ENDPOINT}/{repo}"
        raise HubError(
            f"{repo} wants its terms accepted: open {where}, accept, then set HF_TOKEN to a token of your account"
        )
    if code == "RepoNotFound" or (status == _DENIED and not authorized) or (status == _MISSING and not code):
        raise HubError(f"the hub shows no repository {repo}: check the name; a private one needs a token in HF_TOKEN")
    if status in (_DENIED, _HIDDEN):
        raise HubError(f"{host} denies {repo} ({status}): set HF_TOKEN to a token that may read it")
    if status == _SLOW_DOWN:
        wait = response.headers.get("Retry-After", "")
        later = f" in {wait} s" if wait.isascii() and wait.isdecimal() and len(wait) < 6 else " later"
        raise HubError(f"{host} asks to slow down (429): try again{later}, or set HF_TOKEN")
    if status >= _BROKEN:
        raise HubUnreachable(f"{host} answers {status} for {repo}: try again later")
    raise HubError(f"{host} answers {status} for {repo}: try again later")


class _Silence:
    """Tells of a host that sends nothing, once in each silence, while the `with` block waits for it."""

    def __init__(self, host: str, tell: Waiting | None) -> None:
        self._host, self._tell = host, tell
        self._over = threading.Event()
        self.heard()

    def heard(self) -> None:
        """Bytes came."""
        self._since, self._told = time.monotonic(), False

    def __enter__(self) -> Self:
        if self._tell is not None:
            threading.Thread(target=self._watch, args=(self._tell,), name="zinc-hub", daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()

    def _watch(self, tell: Waiting) -> None:
        while not self._over.wait(SILENCE / 8):
            if not self._told and time.monotonic() - self._since > SILENCE:
                self._told = True
                tell(self._host)
