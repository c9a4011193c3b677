"""The chain of receipts: it goes on after a restart, and no change of an entry or of what is kept stays unseen."""

from __future__ import annotations

import copy
import json
import math
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serving.records.test_store import entry, record
from zinc_rt.cli.main import main
from zinc_rt.errors import UsageError
from zinc_rt.serving.records import signing
from zinc_rt.serving.records.chain import GENESIS, chain_entry, check_chain
from zinc_rt.serving.records.signing import ReceiptSigner, SignatureState, SigningError, key_id_of, signature_state
from zinc_rt.serving.records.store import RecordStore

SIGNED = pytest.mark.skipif(not signing.can_sign(), reason="needs the extra receipts: pip install cryptography")
KEPT = {"logprobs": (-0.5, -1 / 3), "text_sha256": "cd" * 32, "given": (9,), "prefill": 1}


def filled(path: Path, signer: ReceiptSigner | None = None) -> list[dict[str, Any]]:
    """A store with four requests, written by two servers, one of them a receipt alone."""
    for names in (("a", "b"), ("c", "d")):
        store = RecordStore(path, signer=signer)
        store.add([(entry(name), record(name, **KEPT) if name != "b" else record(name).receipt()) for name in names])
        store.close()
    return [*RecordStore(path).chain()]


def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    entries = filled(tmp_path / "s")
    found = check_chain(entries)
    assert (found.entries, found.faults, found.unsigned, found.tip) == (4, (), 4, entries[-1]["chain"])
    assert [one["manifest"]["number"] for one in entries] == [0, 1, 2, 3]
    assert entries[0]["manifest"]["prev_chain"] == GENESIS
    assert entries[0]["manifest"]["receipt"] == record("a", **KEPT).receipt()["certificate"]
    assert entries[0]["manifest"]["asserted"] == {"given": 1, "prefill": 1}
    store = RecordStore(tmp_path / "s")
    assert store.tail(2) == entries[2:]
    assert store.entry("b") == entries[1]
    assert store.entry("x") is None
    assert check_chain(entries[2:], None).faults == ()
    assert check_chain(entries[2:]).faults != ()


def test_entries_outlive_their_records(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "s", limit=2000)
    for i in range(20):
        store.add([(entry(str(i)), record(str(i)))])
    assert store.chain_length() == 20
    assert [store.mismatch(one) for one in store.chain()] == [None] * 20
    store.add([(entry("19"), record("19", output=(7,)))])  # an id that comes again has a second entry
    assert [store.mismatch(one) for one in store.chain()] == [None] * 21


@SIGNED
def test_no_change_stays_unseen(tmp_path: Path) -> None:
    signer = ReceiptSigner(tmp_path / "key")
    good = filled(tmp_path / "s", signer)
    assert check_chain(good, key=signer.key_id).signed == 4
    other = ReceiptSigner(tmp_path / "other")

    def resealed(entries: list[dict[str, Any]]) -> None:
        """All hashes are right again, signed by another key."""
        before = GENESIS
        for i, one in enumerate(entries):
            made = chain_entry({**one["manifest"], "prev_chain": before, "number": i})
            before = made["chain"]
            entries[i] = {**made, "signature": other.sign(before)}

    def swapped(entries: list[dict[str, Any]]) -> None:
        entries[1], entries[2] = entries[2], entries[1]

    changes: list[Callable[[list[dict[str, Any]]], object]] = [
        lambda es: es[1]["manifest"].update(unix_time=1),
        lambda es: es[1]["manifest"]["outputs"].update(tokens="sha256:" + "0" * 64),
        lambda es: es[1].update(certificate="sha256:" + "0" * 64),
        lambda es: es[1].update(chain="sha256:" + "0" * 64),
        lambda es: es[1].update(manifest=None),
        lambda es: es[1]["manifest"].update(number=1.5),
        lambda es: es.pop(1),
        lambda es: es.pop(0),
        lambda es: es.insert(1, es[0]),
        lambda es: es.__setitem__(1, 7),  # type: ignore[call-overload]
        lambda es: es[1]["signature"].update(sig=es[2]["signature"]["sig"]),
        lambda es: es[1]["signature"].update(pubkey_pem="no key"),
        lambda es: es[1].update(signature=[]),
        lambda es: es[1].pop("signature"),
        swapped,
        resealed,
    ]
    for change in changes:
        entries = copy.deepcopy(good)
        change(entries)
        assert check_chain(entries, key=signer.key_id).faults, change
    entries = copy.deepcopy(good)
    resealed(entries)
    assert check_chain(entries).keys == (other.key_id,)  # seen only by those who know the key


def test_one_token_and_one_ulp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Changes of what is kept, which the chain does not hold itself."""
    path = tmp_path / "s"
    filled(path)
    words = ["replay", "--chain", "--records", str(path)]
    assert main(words) == 0
    assert "4 entries, 4 not signed" in capsys.readouterr().out
    db = sqlite3.connect(path)
    kept = db.execute("select body from records where id = 'c'").fetchone()[0]

    def write(change: Callable[[dict[str, Any]], object]) -> None:
        tree = json.loads(zlib.decompress(kept))
        change(tree)
        db.execute("update records set body = ? where id = 'c'", (zlib.compress(json.dumps(tree).encode()),))
        db.commit()

    ulp = math.nextafter(-1 / 3, 0).hex()
    temperature = math.nextafter(0.7, 1).hex()
    changes: list[tuple[Callable[[dict[str, Any]], object], str]] = [
        (lambda tree: tree["output"].__setitem__(1, 6), "outputs, receipt"),
        (lambda tree: tree["prompt"].__setitem__(0, 6), "inputs, receipt"),
        (lambda tree: tree["logprobs"].__setitem__(1, ulp), "outputs"),
        (lambda tree: tree["params"].update(temperature=temperature), "inputs, receipt"),
        (lambda tree: tree.update(prefill=0), "asserted"),
        (lambda tree: tree.update(output=3), "cannot be read"),
    ]
    for change, said in changes:
        write(change)
        assert main(words) == 1
        assert said in capsys.readouterr().out
        assert main(["replay", "c", "--records", str(path)]) == 1
    write(lambda tree: None)
    db.execute("update records set body = ? where id = 'b'", (zlib.compress(b"{}"),))
    db.commit()
    assert main(words) == 1
    assert "the receipt of request b cannot be read" in capsys.readouterr().out
    db.execute(
        'update chain set manifest = replace(replace(manifest, \'"number"\', \'"n"\'), \'{"id"\', \'[],"x":{"id"\')'
    )
    db.commit()
    assert main(words) == 1
    assert "its chain is not the hash" in capsys.readouterr().out
    db.execute("update chain set manifest = replace(manifest, '\"number\":1', '\"number\":7')")
    db.commit()
    assert main(words) == 1
    db.execute("update chain set manifest = 'x'")
    db.commit()
    assert main(words) == 1
    capsys.readouterr()
    assert main([*words, "--usage"]) == 2
    assert main([*words, "c"]) == 2
    db.close()


@SIGNED
def test_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "key"
    signer = ReceiptSigner(folder)
    assert (folder / signing.KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert ReceiptSigner(folder).key_id == signer.key_id == key_id_of(folder / signing.PUBLIC_FILE)
    (folder / signing.KEY_FILE).chmod(0o644)
    with pytest.raises(SigningError, match="read by others"):
        ReceiptSigner(folder)
    (folder / signing.KEY_FILE).chmod(0o600)
    (folder / signing.KEY_FILE).write_text("no key")
    with pytest.raises(SigningError, match="no private key"):
        ReceiptSigner(folder)
    with pytest.raises(UsageError, match="no public key"):
        key_id_of(folder / signing.KEY_FILE)
    with pytest.raises(SigningError, match="cannot be used"):
        ReceiptSigner(folder / signing.KEY_FILE / "x")


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "can_sign", lambda: False)
    with pytest.raises(UsageError, match="pip install"):
        ReceiptSigner(tmp_path)
    made = {**filled(tmp_path / "s")[0], "signature": {}}
    assert signature_state(made) is SignatureState.unchecked
    assert check_chain([made]).unchecked == 1
