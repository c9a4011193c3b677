"""`AskedServer`: an OpenAI-like server, asked as any client asks it, with a bound on what is asked at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from zinc_rt.certify.answers import ProbeAnswer, read_answer
from zinc_rt.certify.workload import ProbeRequest
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.utils.checks import show

CHAT: Final = "/chat/completions"
COMPLETIONS: Final = "/completions"
TOP: Final = 5
"""Likeliest tokens whose log-probabilities are asked for."""
_BUSY: Final = (429, 503)
_TRIES: Final = 6
_MOST_WAIT: Final = 20.0


class ServerUnreachable(ZincError):
    """No answer came from a server."""


@dataclass(frozen=True)
class RefusedRequest:
    """A request that was not answered. status: of HTTP; 0 where the connection broke."""

    status: int
    message: str

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.message}" if self.status else self.message


Answered = ProbeAnswer | RefusedRequest


@dataclass
class AskedServer:
    """A server. base: its address up to `/v1`. model: its name in requests. path: which endpoint answers.

    logprobs, seeds: whether requests ask for log-probabilities and send seeds; false once the server has refused them.
    """

    base: str
    model: str = ""
    path: str = ""
    logprobs: bool = True
    seeds: bool = True
    http: httpx2.Client = field(default_factory=httpx2.Client, repr=False)

    @classmethod
    def connect(
        cls, url: str, model: str | None, key: str | None, load: int, seconds: float, path: str | None = None
    ) -> AskedServer:
        """Find the server's model and the endpoint that answers. load: requests at once.

        Raises `UsageError` for what is no address, `ServerUnreachable`, and `ZincError` for a server that answers none
        of the requests.
        """
        address = url.rstrip("/")
        if not address.startswith(("http://", "https://")):
            raise UsageError(f"{show(url)} is no address; give http://HOST:PORT")
        base = address if address.endswith("/v1") else address + "/v1"
        limits = httpx2.Limits(max_connections=load, max_keepalive_connections=load)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            http = httpx2.Client(timeout=httpx2.Timeout(seconds, connect=10.0), limits=limits, headers=headers)
            server = cls(base, http=http)
            server.model = server._model(model)
        except (httpx2.InvalidURL, ValueError) as error:
            raise UsageError(f"{show(url)} is no address: {error}") from None
        server._find_endpoint([path] if path else [CHAT, COMPLETIONS], model)
        return server

    def _model(self, wanted: str | None) -> str:
        """The model's name: the wanted one, or the first that the server lists."""
        answer = self.get("/models")
        if answer.status_code == 401:
            raise ZincError(f"{self.base} asks for a key; give --api-key")
        names = _names(answer)
        if wanted is not None:
            return wanted
        if not names:
            raise UsageError(f"{self.base}/models lists no model (HTTP {answer.status_code}); give --name MODEL")
        return names[0]

    def _find_endpoint(self, paths: Sequence[str], wanted: str | None) -> None:
        """The first of the endpoints that answers, without what the server refuses. Raises `ZincError`."""
        refused: list[str] = []
        for self.path in paths:
            for self.logprobs, self.seeds in ((True, True), (False, True), (True, False), (False, False)):
                found = self.ask(ProbeRequest("Tell me of a cat.", 0.0, 1, 2))
                if isinstance(found, ProbeAnswer):
                    return
                if found.status in (401, 403):
                    raise ZincError(f"{self.base} refuses the key ({found}); give --api-key")
                if found.status in (404, 405) or not 400 <= found.status < 600:
                    break
            refused.append(f"{self.path}: {found}")
        names = _names(self.get("/models"))
        if wanted is not None and names and wanted not in names:
            raise UsageError(f"{self.base} has no model {show(wanted)}; it has {', '.join(names[:8])}")
        raise ZincError(f"{self.base} answers no request: {'; '.join(refused)}")

    def get(self, path: str) -> httpx2.Response:
        """The answer to a GET below the base. A server that is busy or loads is asked again, for a while.

        Raises `ServerUnreachable`.
        """
        try:
            return self._patiently(lambda: self.http.get(self.base + path))
        except httpx2.HTTPError as error:
            said = str(error) or type(error).__name__
            raise ServerUnreachable(f"{self.base} does not answer: {said}; is the server running?") from None

    def _patiently(self, send: Callable[[], httpx2.Response]) -> httpx2.Response:
        """The answer to a request, sent again while the server is busy. Raises `httpx2.HTTPError`."""
        for attempt in range(_TRIES - 1):
            answer = send()
            if answer.status_code not in _BUSY:
                return answer
            time.sleep(min(_MOST_WAIT, _seconds(answer.headers.get("retry-after"), 0.5 * 2**attempt)))
        return send()

    def body(self, request: ProbeRequest) -> dict[str, Any]:
        """A request as it is sent."""
        chat = self.path == CHAT
        text = {"messages": [{"role": "user", "content": request.prompt}]} if chat else {"prompt": request.prompt}
        made = {"model": self.model, **text, "max_tokens": request.max_tokens, "temperature": request.temperature}
        if self.seeds:
            made["seed"] = request.seed
        if self.logprobs:
            made |= {"logprobs": True, "top_logprobs": TOP} if chat else {"logprobs": TOP}
        return made

    def ask(self, request: ProbeRequest) -> Answered:
        """The answer to a request. A server that is busy is asked again, for a while. Raises `BadAnswer`."""
        content = json.dumps(self.body(request)).encode()
        try:
            answer = self._patiently(lambda: self.http.post(self.base + self.path, content=content, headers=_JSON))
        except httpx2.HTTPError as error:
            return RefusedRequest(0, f"{self.base}{self.path} broke off: {str(error) or type(error).__name__}")
        if answer.status_code != 200:
            return RefusedRequest(answer.status_code, _said(answer.content))
        return read_answer(answer.content)

    def ask_together(self, requests: Sequence[ProbeRequest]) -> list[Answered]:
        """The answers to all, asked at once."""
        pool = ThreadPoolExecutor(max(1, len(requests)))
        try:
            return list(pool.map(self.ask, requests))
        except BaseException:
            self.http.close()  # what runs breaks off
            raise
        finally:
            pool.shutdown(cancel_futures=True)


_JSON: Final = {"Content-Type": "application/json"}


def _names(answer: httpx2.Response) -> list[str]:
    """The models that a server lists."""
    try:
        listed: Iterable[Any] = answer.json()["data"]
        return [str(model["id"]) for model in listed]
    except (ValueError, KeyError, TypeError):
        return []


def _seconds(text: str | None, default: float) -> float:
    try:
        return default if text is None else max(0.0, float(text))
    except ValueError:
        return default


def _said(body: bytes) -> str:
    """An error's message, in one line."""
    try:
        error = json.loads(body)
        error = error.get("error", error.get("detail", error))
        text = str(error["message"] if isinstance(error, dict) and "message" in error else error)
    except (ValueError, AttributeError, RecursionError):
        text = body.decode(errors="replace")
    return " ".join(text.split())[:200]
