"""`RecordStore`: the ledger, the records of finished requests and the chain of their receipts, in one SQLite file.

The ledger has a row for every request, for ever, with counts and times alone. Records hold token ids and are kept up to
a limit of bytes, the oldest going first. What is kept of a tenant's requests is its own choice (`KeepRecords`). The
chain has an entry, for ever, for each request of which a record or a receipt was kept, written in one transaction
with it: a server that is killed loses both or none.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.scheduler.messages import Usage
from zinc_rt.serving.background import Background
from zinc_rt.serving.records.canonical import NotCanonical, canonical
from zinc_rt.serving.records.chain import GENESIS, chain_entry, entry_manifest
from zinc_rt.serving.records.record import MAX_PICTURE_BYTES, BadRecord, RequestRecord
from zinc_rt.serving.records.signing import ReceiptSigner

DEFAULT_BYTES: Final = 1 << 30
_BUSY_SECONDS: Final = 2.0
_LARGEST: Final = 1 << 28
"""Bytes of one record's JSON that are read; a request of a million tokens takes 8 MB."""
_AT_ONCE: Final = 500
"""Entries of the chain that are read together."""
_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
create table if not exists ledger (
    id text primary key, created real not null, tenant text not null, endpoint text not null, model text not null,
    prompt_tokens integer not null, cached_tokens integer not null, completion_tokens integer not null,
    engine_seconds real not null, status text not null) without rowid;
create index if not exists ledger_by_tenant on ledger (tenant, created);
create table if not exists records (
    number integer primary key, id text not null unique, n_bytes integer not null, kind text not null,
    body blob not null);
create table if not exists chain (
    number integer primary key, id text not null, manifest text not null, chain text not null, signature text);
create index if not exists chain_by_id on chain (id);
"""


class StoreError(ZincError):
    """The file of records cannot be opened, read or written."""


class UnknownRecord(ZincError):
    """No record of this id is kept."""


class KeepRecords(StrEnum):
    """The data that is kept of a tenant's requests, beside the ledger's row."""

    none = "none"
    receipt = "receipt"
    """Digests alone: enough to check tokens that the client kept."""
    full = "full"
    """Token ids of prompt and answer: enough to replay."""


@dataclass(frozen=True)
class LedgerEntry:
    """One request's row. status: a finish reason or an error's name; created: seconds since 1970."""

    id: str
    created: float
    tenant: str
    endpoint: str
    model: str
    usage: Usage
    status: str


class DaySum(NamedTuple):
    """What a tenant used on a day (UTC)."""

    day: str
    tenant: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    engine_seconds: float


class RecordStore:
    """The file. One thread writes; others may read through stores of their own."""

    def __init__(self, path: str | Path, *, limit: int = DEFAULT_BYTES, signer: ReceiptSigner | None = None) -> None:
        """Open or make the file. limit: bytes of records. signer: of new entries of the chain, None for no signatures.

        Raises `StoreError` where that cannot be done, or the file is another release's or no store.
        """
        if limit < 0:
            raise UsageError(f"the limit of records is {limit} bytes, it must be 0 or more")
        self.path, self._limit, self._signer = Path(path), limit, signer
        try:
            keep_private(self.path)
        except OSError as error:
            raise StoreError(f"the records in {self.path} cannot be opened: {error.strerror or error}") from None
        try:
            self._db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._error("opened", error) from None
        try:
            version = self._db.execute("pragma user_version").fetchone()[0]
            if version not in (0, _SCHEMA_VERSION):
                raise StoreError(f"{self.path} is a store of version {version}, this release has {_SCHEMA_VERSION}")
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"pragma user_version = {_SCHEMA_VERSION}")
            self._kept = self._db.execute("select coalesce(sum(n_bytes), 0) from records").fetchone()[0]
        except sqlite3.Error as error:
            self._db.close()
            raise self._error("opened", error) from None
        except StoreError:
            self._db.close()
            raise

    def _error(self, action: str, error: sqlite3.Error) -> StoreError:
        return StoreError(f"the records in {self.path} cannot be {action}: {error}")

    def add(self, entries: Sequence[tuple[LedgerEntry, RequestRecord | dict[str, Any] | None]]) -> None:
        """Write requests, each with its record, or receipt, or neither; all or nothing. An id that is there
        is replaced.

        Raises `StoreError`.
        """
        try:
            self._db.execute("begin immediate")
            try:
                kept = self._evict(self._kept + sum(self._add(entry, body) for entry, body in entries))
                self._db.execute("commit")
                self._kept = kept
            except BaseException:
                self._db.execute("rollback")
                raise
        except sqlite3.Error as error:
            raise self._error("written", error) from None

    def _add(self, entry: LedgerEntry, body: RequestRecord | dict[str, Any] | None) -> int:
        """Returns by how many bytes the records grow."""
        used = entry.usage
        self._db.execute(
            "insert or replace into ledger values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                entry.id, entry.created, entry.tenant, entry.endpoint, entry.model, used.prompt_tokens,
                used.cached_tokens, used.completion_tokens, used.engine_seconds, entry.status,
            ),
        )  # fmt: skip
        if body is None:
            return 0
        kind, data = ("full", body.to_json()) if isinstance(body, RequestRecord) else ("receipt", body)
        self._link(entry.id, body.receipt() if isinstance(body, RequestRecord) else body)
        packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 1)
        before = self._db.execute("select n_bytes from records where id = ?", (entry.id,)).fetchone()
        self._db.execute(
            "insert or replace into records (id, n_bytes, kind, body) values (?, ?, ?, ?)",
            (entry.id, len(packed), kind, packed),
        )
        return len(packed) - (before[0] if before else 0)

    def _link(self, request_id: str, receipt: dict[str, Any]) -> None:
        """Write the chain's next entry."""
        last = self._db.execute("select number, chain from chain order by number desc limit 1").fetchone()
        number, before = (0, GENESIS) if last is None else (last[0] + 1, last[1])
        entry = chain_entry(entry_manifest(receipt, number, before))
        signature = None if self._signer is None else json.dumps(self._signer.sign(entry["chain"]))
        self._db.execute(
            "insert into chain values (?, ?, ?, ?, ?)",
            (number, request_id, canonical(entry["manifest"]).decode(), entry["chain"], signature),
        )

    def entry(self, request_id: str) -> dict[str, Any] | None:
        """The chain's entry for a request, the last one; None for none. Raises `BadRecord`, `StoreError`."""
        found = self._entries("where id = ? order by number desc limit 1", request_id)
        return found[0][1] if found else None

    def tail(self, count: int) -> list[dict[str, Any]]:
        """The last entries of the chain, in order. Raises `BadRecord`, `StoreError`."""
        return [entry for _, entry in self._entries("order by number desc limit ?", count)][::-1]

    def chain(self) -> Iterator[dict[str, Any]]:
        """All entries of the chain, in order. Raises `BadRecord`, `StoreError`."""
        start = 0
        while found := self._entries(f"where number >= ? order by number limit {_AT_ONCE}", start):
            yield from (entry for _, entry in found)
            start = found[-1][0] + 1

    def chain_length(self) -> int:
        """How many entries the chain has. Raises `StoreError`."""
        try:
            return int(self._db.execute("select count(*) from chain").fetchone()[0])
        except sqlite3.Error as error:
            raise self._error("read", error) from None

    def _entries(self, which: str, value: str | int) -> list[tuple[int, dict[str, Any]]]:
        """Entries of the chain, with their places in it. which: the end of the query, with a place for the value."""
        try:
            rows = self._db.execute(
                f"select number, manifest, chain, signature from chain {which}", (value,)
            ).fetchall()
        except sqlite3.Error as error:
            raise self._error("read", error) from None
        found = []
        for number, manifest, chain, signature in rows:
            try:
                entry = chain_entry(json.loads(manifest), None if signature is None else json.loads(signature))
                found.append((number, entry | {"chain": chain}))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, NotCanonical) as error:
                raise BadRecord(f"an entry of the chain is damaged: {error}") from None
        return found

    def mismatch(self, entry: Mapping[str, Any]) -> str | None:
        """Why what is kept of an entry's request is not what the entry binds; None where it is, or where nothing is
        kept any more. Raises `StoreError`.
        """
        manifest = entry["manifest"]
        number, computation = manifest.get("number"), manifest.get("computation")
        request_id = str(computation.get("request")) if isinstance(computation, Mapping) else ""
        try:
            last = self._db.execute("select max(number) from chain where id = ?", (request_id,)).fetchone()[0]
        except sqlite3.Error as error:
            raise self._error("read", error) from None
        if last is None or (type(number) is int and number < last):
            return None  # what is kept under this id is of a later request
        try:
            expected = entry_manifest(self.receipt(request_id), last, manifest["prev_chain"])
        except UnknownRecord:
            return None
        except BadRecord as error:
            return str(error)
        except (KeyError, TypeError, AttributeError):
            return f"the receipt of request {request_id} cannot be read"
        wrong = [name for name, value in expected.items() if manifest.get(name) != value]
        return (
            f"{', '.join(wrong)} of what is kept of request {request_id} are not those of its entry" if wrong else None
        )

    def _evict(self, kept: int) -> int:
        """Delete the oldest of `kept` bytes of records down to the limit; returns the bytes that stay."""
        while kept > self._limit:
            number, n_bytes = self._db.execute("select number, n_bytes from records order by number limit 1").fetchone()
            self._db.execute("delete from records where number = ?", (number,))
            kept -= n_bytes
        return kept

    def record(self, request_id: str) -> RequestRecord:
        """The record of a request.

        Raises `UnknownRecord`, also where only a receipt is kept, `BadRecord`, `StoreError`.
        """
        found = self.full_record(request_id)
        if found is None:
            raise UnknownRecord(
                f"of request {request_id} only a receipt is kept, which has no tokens; replay needs full records"
            )
        return found

    def full_record(self, request_id: str) -> RequestRecord | None:
        """The record of a request, None where only a receipt is kept. Raises as `record` does."""
        kind, data = self._body(request_id)
        return RequestRecord.from_json(data) if kind == "full" else None

    def answered(self, request_id: str) -> tuple[str, str]:
        """The tenant and the model of a request in the ledger. Raises `UnknownRecord`, `StoreError`."""
        try:
            row = self._db.execute("select tenant, model from ledger where id = ?", (request_id,)).fetchone()
        except sqlite3.Error as error:
            raise self._error("read", error) from None
        if row is None:
            raise UnknownRecord(f"no request {request_id} in {self.path}")
        return str(row[0]), str(row[1])

    def receipt(self, request_id: str) -> dict[str, Any]:
        """The receipt of a request. Raises what `record` raises."""
        kind, data = self._body(request_id)
        if kind == "full":
            return RequestRecord.from_json(data).receipt()
        if not isinstance(data, dict):
            raise BadRecord(f"the receipt of request {request_id} cannot be read")
        return data

    def _body(self, request_id: str) -> tuple[str, Any]:
        try:
            row = self._db.execute("select kind, body from records where id = ?", (request_id,)).fetchone()
        except sqlite3.Error as error:
            raise self._error("read", error) from None
        if row is None:
            raise UnknownRecord(f"no record of request {request_id} in {self.path}; old ones are dropped at the limit")
        try:
            reader = zlib.decompressobj()
            text = reader.decompress(row[1], _LARGEST)
            if not reader.eof:
                raise ValueError(f"it is cut, or has more than {_LARGEST} bytes")
            return row[0], json.loads(text)
        except (zlib.error, TypeError, ValueError, RecursionError) as error:
            raise BadRecord(f"the record of request {request_id} is damaged: {error}") from None

    def days(self, tenant: str | None = None) -> list[DaySum]:
        """What tenants used by day, in order of day and tenant. Raises `StoreError`."""
        try:
            rows = self._db.execute(
                "select date(created, 'unixepoch'), tenant, count(*), sum(prompt_tokens), sum(cached_tokens),"
                " sum(completion_tokens), sum(engine_seconds) from ledger where ? is null or tenant = ?"
                " group by 1, 2 order by 1, 2",
                (tenant, tenant),
            ).fetchall()
        except sqlite3.Error as error:
            raise self._error("read", error) from None
        return [DaySum(*row) for row in rows]

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        self._db.close()


def keep_private(path: Path) -> None:
    """Make the file, and let nobody but its owner read or write it: it has the tokens of all tenants.

    SQLite gives its files beside it (-wal, -shm) the same mode; those of an earlier run keep theirs, so they are
    changed, too. Raises `OSError`.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for name in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        with suppress(FileNotFoundError):
            found = name.stat()
            if found.st_mode & 0o077 and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                name.chmod(0o600)


Entry = tuple[LedgerEntry, RequestRecord | dict[str, Any] | None]
_WAITING_PICTURES: Final = 8 * MAX_PICTURE_BYTES


def _picture_bytes(body: RequestRecord | dict[str, Any] | None) -> int:
    return body.picture_bytes if isinstance(body, RequestRecord) else 0


class RecordWriter:
    """Writes to a store on a second thread, so that no request waits for a disk.

    If the disk is full or the file is locked, entries wait, up to `max_waiting`; later ones are lost and counted in
    `lost`. So are records whose pictures would be more than `_WAITING_PICTURES` bytes with those that wait. failed:
    gets the first of a series of errors, and None when writing works again. background: of the server, None for one of
    its own.
    """

    def __init__(
        self,
        store: RecordStore,
        *,
        failed: Callable[[str | None], None],
        max_waiting: int = 10_000,
        retry: float = 1.0,
        background: Background | None = None,
    ) -> None:
        self._store, self._failed, self._retry = store, failed, retry
        self._waiting: queue.Queue[Entry] = queue.Queue(max_waiting)
        self._picture_bytes, self._counting = 0, threading.Lock()
        self._closing = threading.Event()
        self.lost = 0
        """Entries that could not be kept."""
        self._background = background or Background()
        self._thread = self._background.thread("records", self._run)

    def put(self, entry: LedgerEntry, body: RequestRecord | dict[str, Any] | None) -> None:
        """Have an entry written soon; returns at once."""
        with self._counting:
            if self._picture_bytes + _picture_bytes(body) > _WAITING_PICTURES:
                self.lost += 1
                body = None
            self._picture_bytes += _picture_bytes(body)
        try:
            self._waiting.put_nowait((entry, body))
        except queue.Full:
            self.lost += 1
            self._taken([(entry, body)])

    def _taken(self, entries: Sequence[Entry]) -> None:
        """These do not wait any more."""
        with self._counting:
            self._picture_bytes -= sum(_picture_bytes(body) for _, body in entries)

    def _run(self) -> None:
        entries: list[Entry] = []
        wrong = False
        while not (self._closing.is_set() and self._waiting.empty() and not entries):
            entries = entries or self._next(0.2)
            if not entries:
                continue
            try:
                self._store.add(entries)
            except StoreError as error:
                if not wrong:
                    self._failed(str(error))
                wrong = True
                if self._closing.is_set():  # one try more was made; a disk that stays full cannot be waited for
                    self.lost += len(entries) + self._waiting.qsize()
                    return
                self._closing.wait(self._retry)
                continue
            self._taken(entries)
            entries = []
            if wrong:
                wrong = False
                self._failed(None)

    def _next(self, seconds: float) -> list[Entry]:
        """What waits, at the most 256 entries; none where nothing came within the time."""
        found: list[Entry] = []
        try:
            found.append(self._waiting.get(timeout=seconds))
            while len(found) < 256:
                found.append(self._waiting.get_nowait())
        except queue.Empty:
            pass
        return found

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits and end the thread. The store stays open."""
        self._closing.set()
        self._background.join(self._thread, timeout)
