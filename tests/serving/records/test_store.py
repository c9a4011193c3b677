"""The ledger and the records: what is written is read again, to the bit, and a failing disk costs no request."""

from __future__ import annotations

import base64
import json
import math
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.engine.pictures import PlacedPicture
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import Grammar, Usage
from zinc_rt.serving.records import store as store_module
from zinc_rt.serving.records.receipt import malformed
from zinc_rt.serving.records.record import BadRecord, ModelIdentity, RecordedAdapter, RequestRecord
from zinc_rt.serving.records.replay import Difference, NotReplayable, check_replayable, whole, with_adapters_here
from zinc_rt.serving.records.replay import at as at_place
from zinc_rt.serving.records.store import LedgerEntry, RecordStore, RecordWriter, StoreError, UnknownRecord
from zinc_rt.vision.shown import PixelTile, ShownPicture

MODEL = ModelIdentity("tiny", "ab" * 32, "q8_0")


def record(request_id: str = "r1", **changes: Any) -> RequestRecord:
    values: dict[str, Any] = {
        "id": request_id, "created": 1.75e9, "tenant": "t", "endpoint": "chat", "model": MODEL, "prompt": (1, 2, 3),
        "params": SamplingParams(temperature=0.7, logit_bias={5: -math.inf, 2: 0.1}, stop=("x",)), "seed": 2**64 - 1,
        "output": (4, 5), "finish_reason": "stop", "grammar": Grammar("g", (9,)),
    }  # fmt: skip
    return RequestRecord(**values | changes)


def entry(request_id: str = "r1", tenant: str = "t", created: float = 1.75e9) -> LedgerEntry:
    return LedgerEntry(request_id, created, tenant, "chat", "tiny", Usage(3, 1, 2, engine_seconds=0.5), "stop")


numbers = st.floats(0, 1e300)


@settings(deadline=None)
@given(
    st.builds(
        SamplingParams,
        temperature=numbers,
        top_k=st.integers(0, 9),
        top_p=st.floats(0, 1),
        presence_penalty=st.floats(-1e9, 1e9),
        logit_bias=st.dictionaries(st.integers(0, 99), st.floats(allow_nan=False)),
        max_tokens=st.none() | st.integers(1, 9),
        stop=st.lists(st.text(min_size=1), max_size=2),
        stop_token_ids=st.lists(st.integers(0, 9), max_size=2),
        logprobs=st.none() | st.integers(0, 5),
        ignore_eos=st.booleans(),
    )
)
def test_records_keep_every_bit(params: SamplingParams) -> None:
    made = record(params=params)
    assert RequestRecord.from_json(made.to_json()) == made
    assert malformed(made.receipt()) is None


def test_receipts_bind_everything_that_tokens_depend_on() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"prompt": (1, 2)},
        {"seed": 1},
        {"output": (4,)},
        {"grammar": None},
        {"grammar": Grammar("g")},
        {"params": SamplingParams()},
        {"model": ModelIdentity("tiny", "cd" * 32, "q8_0")},
        {"model": ModelIdentity("tiny", "ab" * 32, "f16")},
        {"adapters": (RecordedAdapter("a", "ab" * 32, 1.0),)},
        {"adapters": (RecordedAdapter("a", "ab" * 32, math.nextafter(1.0, 2.0)),)},
        {"adapters": (RecordedAdapter("a", "ab" * 31 + "ac", 1.0),)},
    ]
    certificates = [record(**change).receipt()["certificate"] for change in changes]
    assert len(set(certificates)) == len(changes)
    assert record("other", created=1.0).receipt()["certificate"] == certificates[0]


def test_tampering_with_an_adapter_is_found(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "s")
    made = record(adapters=(RecordedAdapter("a", "ab" * 32, 0.1), RecordedAdapter("b", "cd" * 32, -2.0)))
    store.add([(entry(), made)])
    assert store.record("r1") == made
    link = store.entry("r1")
    assert link is not None
    assert store.mismatch(link) is None
    here = with_adapters_here(made, {"ab" * 32: "x", "cd" * 32: "y"})
    assert here.submit("again").adapters == (("x", 0.1), ("y", -2.0))
    with pytest.raises(NotReplayable, match=r"with the adapter 'b', whose file's SHA-256 begins with cdcd.*--lora"):
        with_adapters_here(made, {"ab" * 32: "x"})
    (body,) = store._db.execute("select body from records").fetchone()
    for old, new in ((b"0x1.999999999999ap-4", b"0x1.999999999999bp-4"), (b"cd" * 32, b"cd" * 31 + b"ce")):
        text = zlib.decompress(body)
        assert old in text
        store._db.execute("update records set body = ?", [zlib.compress(text.replace(old, new))])
        assert store.mismatch(link) is not None
    bad = json.loads(json.dumps(made.to_json()))
    bad["adapters"][0]["sha256"] = "ab"
    with pytest.raises(BadRecord):
        RequestRecord.from_json(bad)


def shown(pixels: bytes = b"rgbRGB", digest: bytes = b"d" * 32, rows: int = 6) -> ShownPicture:
    return ShownPicture(PlacedPicture(digest, rows, 3, 2), (PixelTile(2, 1, pixels), PixelTile(1, 1, b"xyz")))


def with_picture(**changes: Any) -> RequestRecord:
    model = ModelIdentity("tiny", "ab" * 32, "q8_0", "ef" * 32)
    values: dict[str, Any] = {"model": model, "pictures": (shown(),), "prompt": (1, *shown().placed.ids(0, 6), 2)}
    return record(**values | changes)


def test_pictures_are_kept_and_bound(tmp_path: Path) -> None:
    made = with_picture()
    store = RecordStore(tmp_path / "s")
    store.add([(entry("r1"), made)])
    assert store.record("r1") == made
    assert made.submit("again").pictures == made.pictures
    assert made.picture_bytes == 9
    changes: list[dict[str, Any]] = [
        {},
        {"pictures": (shown(b"rgbRGC"),)},
        {"pictures": (shown(digest=b"e" * 32),)},
        {"pictures": (shown(), shown(digest=b"e" * 32))},
        {"model": ModelIdentity("tiny", "ab" * 32, "q8_0", "cd" * 32)},
        {"prompt": (1, 2)},
    ]
    assert len({with_picture(**change).receipt()["certificate"] for change in changes}) == len(changes)
    check_replayable(made, "ab" * 32, "q8_0", "ef" * 32)
    for other, words in (("cd" * 32, "this one's with cdcd"), ("", "there is none here")):
        with pytest.raises(NotReplayable, match=words):
            check_replayable(made, "ab" * 32, "q8_0", other)
    check_replayable(record(), "ab" * 32, "q8_0", "cd" * 32)


def test_pictures_that_are_damaged() -> None:
    def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        data = json.loads(json.dumps(with_picture().to_json()))
        change(data["pictures"][0])
        return dict(data)

    def pixels(data: bytes) -> Callable[[dict[str, Any]], None]:
        return lambda one: one["tiles"][0].update(pixels=base64.b64encode(data).decode())

    wrong: list[Callable[[dict[str, Any]], None]] = [
        pixels(b"no zlib"),
        pixels(zlib.compress(b"rgbRG")),
        pixels(zlib.compress(b"\0" * (1 << 20))),
        pixels(zlib.compress(b"rgbRGB")[:-4]),
        lambda one: one.update(digest="aGk="),
        lambda one: one.update(n_rows=1 << 20),
        lambda one: one["tiles"][0].update(width=0),
        lambda one: one["tiles"][0].update(width=60000, height=60000),
        lambda one: one["tiles"][0].update(pixels="@"),
    ]
    for change in wrong:
        with pytest.raises(BadRecord):
            RequestRecord.from_json(changed(change))


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    with_tokens, only_receipt = record("a"), record("b").receipt()
    store = RecordStore(tmp_path / "s")
    store.add([(entry("a"), with_tokens), (entry("b"), only_receipt), (entry("c", "u", 1.75e9 + 86400), None)])
    store.close()
    store = RecordStore(tmp_path / "s")
    assert store.record("a") == with_tokens
    assert store.receipt("a") == with_tokens.receipt()
    assert store.receipt("b") == only_receipt
    with pytest.raises(UnknownRecord, match="only a receipt"):
        store.record("b")
    with pytest.raises(UnknownRecord, match="no record of request c"):
        store.record("c")
    days = store.days()
    assert [(day.tenant, day.requests, day.prompt_tokens, day.engine_seconds) for day in days] == [
        ("t", 2, 6, 1.0),
        ("u", 1, 3, 0.5),
    ]
    assert store.days("u") == days[1:]


def test_the_oldest_go_first(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "s", limit=3000)
    for i in range(40):
        store.add([(entry(str(i)), record(str(i)))])
    kept = [i for i in range(40) if _has(store, str(i))]
    assert 0 < len(kept) < 40
    assert kept == list(range(40 - len(kept), 40))
    assert sum(day.requests for day in store.days()) == 40
    store.add([(entry("39"), record("39"))])  # again: replaced, not counted twice
    assert [i for i in range(40) if _has(store, str(i))] == kept


def _has(store: RecordStore, request_id: str) -> bool:
    try:
        return store.record(request_id).id == request_id
    except UnknownRecord:
        return False


def test_files_that_are_no_store(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"no database at all, " * 100)
    with pytest.raises(StoreError, match="cannot be opened"):
        RecordStore(tmp_path / "junk")
    with pytest.raises(StoreError, match="cannot be opened"):
        RecordStore(tmp_path / "no" / "folder")
    other = sqlite3.connect(tmp_path / "other")
    other.execute("pragma user_version = 99")
    other.close()
    with pytest.raises(StoreError, match="version 99"):
        RecordStore(tmp_path / "other")
    with pytest.raises(UsageError, match="0 or more"):
        RecordStore(tmp_path / "s", limit=-1)


@pytest.mark.parametrize("key", ["prompt", "params", "model", "created", "grammar", "finish_reason"])
def test_damaged_records(key: str) -> None:
    data = record().to_json()
    for value in (None, 3, ["x"], {"y": 1}):
        if key == "grammar" and value is None:
            continue
        with pytest.raises(BadRecord):
            RequestRecord.from_json({**data, key: value})
    del data[key]
    with pytest.raises(BadRecord):
        RequestRecord.from_json(data)


ODD: list[Any] = [
    None, True, -1, 1 << 31, 1 << 64, 10**400, 1.5, math.nan, math.inf, "", "x", "nan", "inf", "0x1p99999", "\ud800",
    "9" * 5000, [], ["x"], [-1], [1 << 40], [None], {}, {"y": 1}, {"1": "0x1p99999"}, {"-1": "nan"},
    {"9" * 5000: "0x1p0"},
]  # fmt: skip


def _places(tree: dict[str, Any]) -> list[tuple[str, ...]]:
    below = [(key, *rest) for key, value in tree.items() if isinstance(value, dict) for rest in _places(value)]
    return [*((key,) for key in tree), *below]


@pytest.mark.parametrize("place", _places(record(given=(7,)).to_json()), ids="/".join)
def test_any_damage_is_an_error_of_ours(place: tuple[str, ...]) -> None:
    """Or none: a text may be any text."""
    for odd in ODD:
        data = json.loads(json.dumps(record(given=(7,)).to_json()))
        at = data
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = odd
        try:
            made = RequestRecord.from_json(data)
            made.receipt()
        except ZincError:
            continue
        whole(made, "again"), at_place(made, Difference(0, 1, 2), "again")
        assert made.least_context < 1000


def test_records_of_releases_without_given_tokens_are_read() -> None:
    data = record().to_json()
    del data["given"]
    assert RequestRecord.from_json(data) == record()


@pytest.mark.parametrize("body", ["null", "zeroblob(9)", "'text'", "7", "bomb", "deep"])
def test_a_body_of_anything_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr("zinc_rt.serving.records.store._LARGEST", 1 << 20)
    store = RecordStore(tmp_path / "s")
    store.add([(entry(), record())])
    db = sqlite3.connect(tmp_path / "s")
    made = {"bomb": b" " * (1 << 22), "deep": b"[" * 100_000}.get(body)
    if made is not None:
        db.execute("update records set body = ?", (zlib.compress(made),))
    else:
        db.execute("drop table records")
        db.execute("create table records (number, id, n_bytes, kind, body)")
        db.execute(f"insert into records values (1, 'r1', 1, 'full', {body})")
    db.commit()
    db.close()
    with pytest.raises(BadRecord):
        store.record("r1")


def test_a_damaged_blob_is_told(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "s")
    store.add([(entry(), record())])
    db = sqlite3.connect(tmp_path / "s")
    db.execute("update records set body = x'00ff'")
    db.commit()
    with pytest.raises(BadRecord, match="damaged"):
        store.record("r1")
    db.close()


def test_the_writer_waits_for_a_locked_file(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "s")
    store._db.execute("pragma busy_timeout = 1")
    told: list[str | None] = []
    failed, again = threading.Event(), threading.Event()

    def tell(error: str | None) -> None:
        told.append(error)
        (again if error is None else failed).set()

    blocker = sqlite3.connect(tmp_path / "s", isolation_level=None)
    blocker.execute("begin immediate")
    writer = RecordWriter(store, failed=tell, retry=0.01)
    writer.put(entry("a"), record("a"))
    assert failed.wait(60)
    writer.put(entry("b"), record("b"))
    blocker.execute("rollback")
    assert again.wait(60)
    writer.close(60)
    assert (store.record("a").id, store.record("b").id) == ("a", "b")
    assert len(told) == 2
    assert "locked" in str(told[0])
    assert writer.lost == 0
    blocker.close()


def test_the_writer_counts_what_it_cannot_keep(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "s")
    store._db.execute("pragma busy_timeout = 1")
    blocker = sqlite3.connect(tmp_path / "s", isolation_level=None)
    blocker.execute("begin immediate")
    writer = RecordWriter(store, failed=lambda error: None, max_waiting=3, retry=0.01)
    for i in range(300):
        writer.put(entry(str(i)), None)
    writer.close(60)
    blocker.execute("rollback")
    assert writer.lost == 300 - sum(day.requests for day in store.days()) == 300
    blocker.close()


def test_pictures_that_wait_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records beyond it are lost, their ledger's rows are not; once they are written there is room again."""
    monkeypatch.setattr(store_module, "_WAITING_PICTURES", 20)
    store = RecordStore(tmp_path / "s")
    store._db.execute("pragma busy_timeout = 1")
    blocker = sqlite3.connect(tmp_path / "s", isolation_level=None)
    blocker.execute("begin immediate")
    writer = RecordWriter(store, failed=lambda error: None, retry=0.01)
    for name in ("a", "b", "c"):  # 9 bytes of pixels each
        writer.put(entry(name), with_picture(id=name))
    assert writer.lost == 1
    blocker.execute("rollback")
    while store.days() == [] or store.days()[0].requests < 3:
        time.sleep(0.01)
    writer.put(entry("d"), with_picture(id="d"))
    writer.close(60)
    assert [_has(store, name) for name in "abcd"] == [True, True, False, True]
    blocker.close()


def test_only_the_owner_reads_the_file(tmp_path: Path) -> None:
    def modes() -> set[int]:
        return {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

    before = os.umask(0)
    try:
        store = RecordStore(tmp_path / "s")
        store.add([(entry(), record())])
        assert len(list(tmp_path.iterdir())) == 3  # with -wal and -shm
        assert modes() == {0o600}
        for path in tmp_path.iterdir():
            path.chmod(0o644)  # as an older release left them
        other = RecordStore(tmp_path / "s")
        assert modes() == {0o600}
        assert other.record("r1") == record()
        other.close()
        store.close()
    finally:
        os.umask(before)
