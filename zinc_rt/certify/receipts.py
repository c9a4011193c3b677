"""Level 5: the server's receipts of this run. Their chain is checked, and with the model's file they are made again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from zinc_rt.certify.answers import ProbeAnswer, first_difference
from zinc_rt.certify.ladder import Ladder, LadderVerdict, LevelResult
from zinc_rt.certify.server import CHAT, RefusedRequest
from zinc_rt.certify.workload import ProbeRequest
from zinc_rt.errors import ZincError
from zinc_rt.serving.records.canonical import digest, tensor_digest
from zinc_rt.serving.records.chain import ChainCheck, check_chain

TAIL: Final = "/worldline/tail"
_ENTRIES: Final = 100
_WAIT: Final = 20.0
"""Seconds that a server gets to write its receipts."""

CertificateOf = Callable[[ProbeRequest], str]
"""The certificate of the receipt that a request must have, computed here."""


def check_receipts(ladder: Ladder, again: CertificateOf | None) -> LevelResult:
    """Ask each request once more and look for its receipt. again: makes receipts from the model's file, None to make
    none.
    """
    ladder.told("L5: receipts")
    server, level = ladder.server, LevelResult("L5")
    first = server.get(f"{TAIL}?n=1")
    if first.status_code != 200:
        ladder.offered["receipts"] = "not offered"
        needs = first.status_code in (401, 403)
        level.given = LadderVerdict.not_tried if needs else LadderVerdict.not_offered
        said = "the chain needs the key of an administrator" if needs else "the server has no chain of receipts"
        level.why = f"{said} (HTTP {first.status_code})"
        return level
    ladder.offered["receipts"] = "offered"
    answers = [server.ask(request) for request in ladder.observed]
    ids = {answer.id for answer in answers if isinstance(answer, ProbeAnswer)}
    entries = _tail(ladder, ids)
    found = check_chain(entries, None)
    known = {_request_of(entry): entry for entry in entries}
    for (request, expected), answer in zip(ladder.observed.items(), answers):
        count = level.of(request)
        if isinstance(answer, RefusedRequest):
            count.add(request, expected, answer, "receipts")
            continue
        wrong = _wrong_receipt(request, answer, known.get(answer.id), again)
        difference = first_difference(expected, answer)
        count.note(request.prompt, difference, answer, "receipts")
        if wrong is not None and difference is None:
            count.equal, count.different = count.equal - 1, count.different + 1
            count.first = count.first or f"{wrong} ({request.prompt[-30:]!r})"
    level.why = "; ".join([*found.faults[:3], _said(found), "" if again is None else "computed again"]).strip("; ")
    if again is None:
        level.why += "; not computed again: give -m FILE"
    if found.faults:
        level.given = LadderVerdict.fails
    return level


def _tail(ladder: Ladder, ids: set[str]) -> list[Any]:
    """The end of the chain, once it has these requests, or after a while."""
    end = time.monotonic() + _WAIT
    while True:
        try:
            entries = ladder.server.get(f"{TAIL}?n={_ENTRIES}").json()["entries"]
        except (ValueError, KeyError, TypeError):
            raise ZincError(f"{ladder.server.base}{TAIL} has no entries; it is no chain of receipts") from None
        if not isinstance(entries, list):
            raise ZincError(f"{ladder.server.base}{TAIL} has no list of entries")
        if ids <= {_request_of(entry) for entry in entries} or time.monotonic() > end:
            return entries
        time.sleep(0.2)


def _request_of(entry: Any) -> str:
    try:
        return str(entry["manifest"]["computation"]["request"])
    except (KeyError, TypeError):
        return ""


def _wrong_receipt(
    request: ProbeRequest, answer: ProbeAnswer, entry: Mapping[str, Any] | None, again: CertificateOf | None
) -> str | None:
    """Why an entry is not of this answer; None where it is."""
    if entry is None:
        return "the chain has no entry for the request"
    outputs = entry["manifest"].get("outputs") or {}
    if outputs.get("text") != digest(answer.text.encode(errors="surrogatepass")):
        return "the receipt is of another text"
    if answer.logprobs:
        numbers = np.array([float(json.loads(one)[1]) for one in answer.logprobs], np.float64)
        if outputs.get("logprobs") != tensor_digest(numbers):
            return "the receipt is of other log-probabilities"
    if again is not None and entry["manifest"].get("receipt") != again(request):
        return "computed here, the receipt is another one"
    return None


def _said(found: ChainCheck) -> str:
    """What is known of the signatures, in words."""
    parts = [f"signed by {' and '.join(found.keys)[:80]}"] if found.signed else []
    parts += ["not signed"] if found.unsigned else []
    parts += ["signatures not checked: pip install 'zinc-rt[receipts]'"] if found.unchecked else []
    return ", ".join(parts)


class LocalReceipts:
    """Makes the receipts of requests from a model's file, as a server of it does with default options."""

    def __init__(self, path: Path | None, body: Callable[[ProbeRequest], dict[str, Any]], chat: bool) -> None:
        """path: of the model, None for the one in the package. body: of a request as it is sent. chat: whether requests
        are chats. Raises what `zinc_rt.load` raises.
        """
        from zinc_rt.lang.cache import default_cache_dir
        from zinc_rt.llm.load import load
        from zinc_rt.serving.api.served_model import ServedModel
        from zinc_rt.serving.records.record import ModelIdentity

        self._model = load(path, n_slots=1)
        self._served = ServedModel.read(self._model.file, self._model.tokenizer, self._model.n_ctx)
        self._core, self._body, self._chat = self._model.make_core(), body, chat
        self._identity = ModelIdentity(
            "", self._model.file.sha256(default_cache_dir()), str(self._model.engine.options.kv)
        )

    def certificate(self, request: ProbeRequest) -> str:
        """The certificate of a request's receipt. Raises `UsageError` where the model cannot answer the request."""
        from zinc_rt.scheduler.messages import Submit, Token
        from zinc_rt.serving.records.record import RequestRecord
        from zinc_rt.serving.records.replay import answered

        prompt, params = self._parameters(self._body(request))
        events = answered(self._core, Submit("again", prompt, params, request.seed))
        tokens = tuple(event.token_id for event in events if isinstance(event, Token))
        record = RequestRecord("again", 0.0, "", "", self._identity, prompt, params, request.seed, tokens, "length")
        return str(record.receipt()["certificate"])

    def _parameters(self, body: dict[str, Any]) -> tuple[tuple[int, ...], Any]:
        """A request's tokens and parameters."""
        from zinc_rt.sampling.params import Api
        from zinc_rt.serving.api.chat_common import ChatRequest, make_prompt
        from zinc_rt.serving.api.completions import CompletionRequest
        from zinc_rt.serving.api.requests import given_sampling, sampling_params

        if self._chat:
            chat = msgspec.convert(body, ChatRequest)
            top = (chat.top_logprobs or 0) if chat.logprobs else None
            given = given_sampling(chat, Api.openai)
            return make_prompt(self._served, chat).ids, sampling_params(given, self._served, chat.max_tokens, top)
        text = msgspec.convert(body, CompletionRequest)
        ids = tuple(self._model.tokenizer.encode(str(text.prompt)))
        given = given_sampling(text, Api.openai)
        return ids, sampling_params(given, self._served, text.max_tokens, text.logprobs)

    def close(self) -> None:
        """Free the model."""
        self._served.close()
        self._model.close()


def local_receipts(ladder: Ladder, path: Path | None) -> LocalReceipts:
    """What makes the receipts of a ladder's requests."""
    return LocalReceipts(path, ladder.server.body, ladder.server.path == CHAT)
