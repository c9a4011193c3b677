"""`Auditor`: computes one of so many recorded requests again while nothing else is asked for, and compares.

A text that comes out otherwise is an error line of the log, and counts in `zinc_replay_total{result="different"}`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from zinc_rt.errors import ZincError
from zinc_rt.serving.api.logs import tell
from zinc_rt.serving.api.recording import ServerRecords
from zinc_rt.serving.api.replays import check_same, compare
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.records.record import RequestRecord
from zinc_rt.serving.records.replay import NotReplayable
from zinc_rt.serving.records.store import UnknownRecord

TENANT: Final = "(audit)"
"""Who the engine's time is charged to; no key can have this name."""
_WAITING: Final = 256
"""Requests that wait to be computed again; of more the oldest are passed over."""
_WRITTEN: Final = 20
"""Looks for a record that is being written."""


class Auditor:
    """Audits on the event loop's thread.

    Args:
        service: the server whose requests are audited; of several models, those that are loaded.
        records: what it keeps of them.
        one_of: of so many requests that were kept with their tokens, the last one is computed again.
        quiet: seconds without any request before an audit starts.
    """

    def __init__(self, service: Service, records: ServerRecords, one_of: int, quiet: float = 1.0) -> None:
        self._service, self._records, self._one_of, self._quiet = service, records, one_of, quiet
        self._kept = 0
        self._chosen: deque[str] = deque(maxlen=_WAITING)
        self._some = asyncio.Event()
        records.kept = self._note
        self._task = service.background.task("audit", self._run())

    async def close(self) -> None:
        """End; what is being computed is cancelled."""
        self._records.kept = None
        await self._service.background.end(self._task)

    def _note(self, request_id: str) -> None:
        self._kept += 1
        if self._kept % self._one_of == 0:
            self._chosen.append(request_id)
            self._some.set()

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            await self._idle()
            name = self._chosen.popleft()
            if not self._chosen:
                self._some.clear()
            try:
                await self._audit(name)
            except ZincError as error:
                tell(self._service.log, "not audited", logging.WARNING, id=name, message=str(error))

    async def _idle(self) -> None:
        """Return once nobody has asked for anything for a while."""
        step, quiet = min(0.1, self._quiet), 0.0
        while self._busy() or quiet < self._quiet:
            await asyncio.sleep(step)
            quiet = 0.0 if self._busy() else quiet + step

    def _busy(self) -> bool:
        return self._service.draining or any(map(_has_work, self._service.engines))

    async def _audit(self, name: str) -> None:
        """Raises `ZincError` where the record cannot be read or the engine cannot compute it."""
        record = await self._record(name)
        if record is None or not record.output:
            return
        service = self._service.lend(record.model.name)
        if service is None:
            raise NotReplayable(f"the model {record.model.name!r} is not loaded any more")
        try:
            record = await check_same(service, record)
            found = await compare(service, record, TENANT)
        finally:
            service.left()
        if found["equal"]:
            tell(service.log, "audit", id=name, equal=True, tokens=found["tokens"])
        else:
            tell(service.log, "audit", logging.ERROR, id=name, equal=False, **found["difference"])

    async def _record(self, name: str) -> RequestRecord | None:
        """The record, which may not be in the file yet. None where the limit of bytes has taken it already."""
        for _ in range(_WRITTEN):
            try:
                return await asyncio.to_thread(self._records.store.full_record, name)
            except UnknownRecord:
                await asyncio.sleep(0.1)
        return None


def _has_work(service: Service) -> bool:
    """Whether an engine has something to do, or is not well."""
    client = service.client
    return bool(client.status.n_requests or service.admission.inside or client.healthy is not None)
