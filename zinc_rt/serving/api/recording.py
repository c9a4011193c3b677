"""`ServerRecords` and `RequestRecorder`: write requests that are over, with what their tenants let be kept."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from zinc_rt.errors import ZincError
from zinc_rt.scheduler.messages import FinishReason, Submit, Usage
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.choice import AnswerChoice
from zinc_rt.serving.api.logs import tell
from zinc_rt.serving.background import Background
from zinc_rt.serving.records.record import MAX_PICTURE_BYTES, ModelIdentity, RecordedAdapter, RequestRecord
from zinc_rt.serving.records.signing import ReceiptSigner
from zinc_rt.serving.records.store import KeepRecords, LedgerEntry, RecordStore, RecordWriter

_WAITING_TOKENS: Final = 4 << 20
"""Tokens of requests that wait for the hash of the model's file; of those that come then the ledger has the counts."""
_TOKEN_BYTES: Final = 40
"""Memory that a token takes while it waits."""
_HASH_SECONDS: Final = 1.0
"""What closing waits for the hash."""
_FINISH = {"stop": FinishReason.stop, "tool_calls": FinishReason.stop, "length": FinishReason.length}


class ServerRecords:
    """What a server keeps of requests: one store and one chain for all of its models.

    Belongs to the event loop's thread.

    Args:
        path, limit, signer: of the store; see `RecordStore`.
        log: for a disk that fails.
        background: of the server, None for one of its own.

    Raises:
        StoreError: the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        limit: int,
        log: logging.Logger,
        background: Background | None = None,
        signer: ReceiptSigner | None = None,
    ) -> None:
        self.store, self.log = RecordStore(path, limit=limit, signer=signer), log
        self.background = background or Background(log)
        self._writer = RecordWriter(self.store, failed=self._failed, background=self.background)
        self.unsettled: set[RequestRecorder] = set()
        """Those that wait for the hash of their model's file, also of models that were unloaded meanwhile."""
        self.kept: Callable[[str], None] | None = None
        """Told the id of each request whose tokens are kept."""

    def put(self, entry: LedgerEntry, record: RequestRecord | None, keep: KeepRecords) -> None:
        """Write a request soon. record: None where there is only its row in the ledger."""
        if record is None:
            self._writer.put(entry, None)
            return
        if keep is KeepRecords.full and record.picture_bytes > MAX_PICTURE_BYTES:
            said = f"its pictures have {record.picture_bytes} bytes of pixels, a record has up to {MAX_PICTURE_BYTES}"
            tell(self.log, "receipt alone", logging.WARNING, id=record.id, message=said)
            keep = KeepRecords.receipt
        self._writer.put(entry, record if keep is KeepRecords.full else record.receipt())
        if keep is KeepRecords.full and self.kept is not None:
            self.kept(record.id)

    def _failed(self, error: str | None) -> None:
        if error is None:
            tell(self.log, "records are written again", lost=self._writer.lost)
        else:
            tell(self.log, "records wait", logging.ERROR, message=error)

    async def close(self) -> None:
        """Write what waits and close the file. Hashes that are not there soon are not waited for."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(one.settled() for one in self.unsettled)), _HASH_SECONDS)
        for one in list(self.unsettled):
            one.identified(None, "the server ends before it is computed")
        await asyncio.to_thread(self._writer.close)
        self.store.close()


class RequestRecorder:
    """Writes the requests of one model while it is loaded. Belongs to the event loop's thread.

    Args:
        records: of the server.
        name: of the model. sha256: computes the hash of its file, which takes seconds at first: until it is there,
            what is over waits. projector_sha256: the same of the file that makes rows of pictures.
    """

    def __init__(
        self,
        records: ServerRecords,
        name: str,
        sha256: Callable[[], str],
        projector_sha256: Callable[[], str] = lambda: "",
    ) -> None:
        self.records = records
        self._name, self._sha256, self._projector_sha256 = name, sha256, projector_sha256
        self._waiting: list[tuple[LedgerEntry, Callable[[ModelIdentity], RequestRecord] | None, KeepRecords]] = []
        self._waiting_tokens = 0
        self._settled = asyncio.Event()
        self.identity: ModelIdentity | None = None

    async def settled(self) -> ModelIdentity | None:
        """The model's identity, once its hash is known; None where it has none."""
        await self._settled.wait()
        return self.identity

    def loaded(self, kv: str) -> None:
        """The engine has the model, its cache in this format: hash the file."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            identity, wrong = None, "it was not computed"
            try:
                identity = ModelIdentity(self._name, self._sha256(), kv, self._projector_sha256())
            except (ZincError, OSError) as error:
                wrong = str(error)
            finally:
                with suppress(RuntimeError):  # the loop is closed: the server has ended meanwhile
                    loop.call_soon_threadsafe(self.identified, identity, wrong)

        self.records.unsettled.add(self)
        self.records.background.thread("hash", work)  # not a worker of a pool, which a process that ends would wait for

    def identified(self, identity: ModelIdentity | None, wrong: str = "") -> None:
        """The model's hash is known, or will not be; then there is only the ledger. What waits is written."""
        if self._settled.is_set():
            return
        if identity is None:
            tell(
                self.records.log, "no records", logging.ERROR, message=f"the file of {self._name} has no hash: {wrong}"
            )
        self.identity = identity
        self._settled.set()
        self.records.unsettled.discard(self)
        for waiting in self._waiting:
            self._put(*waiting)
        self._waiting.clear()

    def add(self, call: Call, keep: KeepRecords, outcome: str) -> None:
        """Write the answers of a request that is over."""
        for answer in call.choices:
            unkept = keep is KeepRecords.none or answer.finish is None or answer.silent  # nothing to replay
            made = None if unkept else _record_of(call, answer)
            entry = LedgerEntry(
                id=_id(call, answer),
                created=time.time(),
                tenant=call.tenant,
                endpoint=call.endpoint,
                model=self._name,
                usage=_usage(answer),
                status=outcome if answer.finish is None else answer.finish,
            )
            if self._settled.is_set() or made is None:
                self._put(entry, made, keep)
            elif self._has_room(len(answer.request.prompt) + len(answer.tokens) + _weight(answer.request)):
                self._waiting.append((entry, made, keep))
            else:
                self._put(entry, None, keep)

    def _has_room(self, n_tokens: int) -> bool:
        """Whether one more request may wait for the model's hash."""
        fits = self._waiting_tokens + n_tokens <= _WAITING_TOKENS
        if not fits and self._waiting_tokens <= _WAITING_TOKENS:
            message = f"{len(self._waiting)} requests wait for the hash of the model's file; more have no records"
            tell(self.records.log, "no records", logging.WARNING, message=message)
        self._waiting_tokens = self._waiting_tokens + n_tokens if fits else _WAITING_TOKENS + 1
        return fits

    def _put(
        self, entry: LedgerEntry, make_record: Callable[[ModelIdentity], RequestRecord] | None, keep: KeepRecords
    ) -> None:
        record = None if make_record is None or self.identity is None else make_record(self.identity)
        self.records.put(entry, record, keep)


def _id(call: Call, answer: AnswerChoice) -> str:
    return call.record_id if not answer.index else f"{call.record_id}-{answer.index}"


def _weight(request: Submit) -> int:
    """As how many tokens a request's pictures count, by the memory that they take."""
    return sum(shown.n_bytes for shown in request.pictures) // _TOKEN_BYTES


def _usage(answer: AnswerChoice) -> Usage:
    """What the request took, without tokens from before it."""
    used = answer.usage or Usage(len(answer.request.prompt), answer.cached, len(answer.tokens))
    return replace(used, completion_tokens=max(0, used.completion_tokens - len(answer.request.resume)))


def _record_of(call: Call, answer: AnswerChoice) -> Callable[[ModelIdentity], RequestRecord]:
    request, created = answer.request, time.time()
    finish = _FINISH.get(answer.finish or "", FinishReason.cancelled)
    adapters = tuple(RecordedAdapter(name, call.adapter_hashes[name], scale) for name, scale in request.adapters)
    content = hashlib.sha256("".join(answer.content or ()).encode()).hexdigest()

    def made(model: ModelIdentity) -> RequestRecord:
        return RequestRecord(
            id=_id(call, answer),
            created=created,
            tenant=call.tenant,
            endpoint=call.endpoint,
            model=model,
            prompt=request.prompt,
            params=request.params,
            seed=request.seed,
            given=tuple(answer.tokens[: answer.given]),
            output=tuple(answer.tokens[answer.given :]),
            finish_reason=finish,
            grammar=request.grammar,
            pictures=request.pictures,
            prefill=answer.prefill,
            logprobs=tuple(answer.logprobs[answer.given :]),
            text_sha256=content,
            adapters=adapters,
        )

    return made
