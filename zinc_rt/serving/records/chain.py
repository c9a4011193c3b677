"""The chain of receipts: each entry holds the hash of the one before, so that none can be changed, left out or moved.

An entry is a manifest with its certificate, as receipts are, and two members beside: `chain`, the hash of the entry
before and of this certificate, and `signature` over it. The manifest binds a receipt by its certificate. The names
are those of Anomly's worldline, so that its tools read ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zinc_rt.serving.records.canonical import NotCanonical, canonical, digest
from zinc_rt.serving.records.signing import SignatureState, signature_state

GENESIS: Final = "sha256:" + "0" * 64
"""What the first entry has in the place of the hash of one before."""


def chain_hash(before: str, certificate: str) -> str:
    """The hash of an entry: of the text of the hash before and of its certificate's text."""
    return digest((before + certificate).encode())


def entry_manifest(receipt: Mapping[str, Any], number: int, before: str) -> dict[str, Any]:
    """What an entry says of a receipt. number: its place, from 0; before: the hash of the entry before."""
    manifest, meta = receipt["manifest"], receipt["meta"]
    arithmetic = manifest["arithmetic"]
    return {
        "cr": manifest["cr"],
        "profile": arithmetic["profile"],
        "computation": {**manifest["computation"], "model_name": meta["model"], "request": meta["id"]},
        "inputs": {"prompt": manifest["input"]["digest"]},
        "outputs": {**receipt.get("outputs", {}), "tokens": manifest["output"]["digest"]},
        "asserted": receipt.get("asserted", {}),
        "receipt": receipt["certificate"],
        "number": number,
        "prev_chain": before,
        "unix_time": meta["created"],
    }


def chain_entry(manifest: Mapping[str, Any], signature: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An entry, whose hashes follow from its manifest. Raises `NotCanonical`."""
    certificate = digest(canonical(manifest))
    entry = {
        "manifest": dict(manifest),
        "certificate": certificate,
        "chain": chain_hash(manifest["prev_chain"], certificate),
    }
    return entry if signature is None else {**entry, "signature": dict(signature)}


@dataclass(frozen=True)
class ChainCheck:
    """What a look at entries found. faults: in words, none for a good chain. signed, unsigned, unchecked: entries;
    unchecked where the extra `receipts` is not installed. keys: ids of those that signed. tip: the last entry's hash.
    """

    entries: int
    faults: tuple[str, ...]
    signed: int
    unsigned: int
    unchecked: int
    keys: tuple[str, ...]
    tip: str


def check_chain(entries: Iterable[Any], before: str | None = GENESIS, key: str | None = None) -> ChainCheck:
    """Check certificates, links and signatures. before: the hash before the first entry; None takes it from there, for
    the end of a chain. key: the id of the only key that may sign, None for any; with one, all entries must be signed.
    """
    faults: list[str] = []
    states = dict.fromkeys(SignatureState, 0)
    keys: dict[str, None] = {}
    number: int | None = 0 if before == GENESIS else None
    count = 0
    for place, entry in enumerate(entries):
        count += 1
        wrong = _wrong_link(entry, before, number)
        if wrong is not None:
            faults.append(f"entry {place}: {wrong}")
        if not isinstance(entry, dict) or not isinstance(manifest := entry.get("manifest"), dict):
            before = number = None
            continue
        state = signature_state(entry)
        states[state] += 1
        signed_by = (entry.get("signature") or {}).get("key_id") if state is not SignatureState.wrong else None
        if state is SignatureState.wrong:
            faults.append(f"entry {place}: its signature is not of its key")
        elif key is not None and signed_by != key:
            faults.append(f"entry {place}: it is {'unsigned' if signed_by is None else 'signed by another key'}")
        if isinstance(signed_by, str):
            keys[signed_by] = None
        before = str(entry.get("chain"))
        number = manifest["number"] + 1 if type(manifest.get("number")) is int else None
    return ChainCheck(
        count,
        tuple(faults),
        states[SignatureState.valid],
        states[SignatureState.unsigned],
        states[SignatureState.unchecked],
        tuple(keys),
        before or "",
    )


def _wrong_link(entry: Any, before: str | None, number: int | None) -> str | None:
    """Why an entry does not follow the one before; None where it does."""
    if not isinstance(entry, dict) or not isinstance(manifest := entry.get("manifest"), dict):
        return "there is no manifest"
    previous = manifest.get("prev_chain")
    try:
        if not isinstance(previous, str):
            return "its manifest has no prev_chain"
        certificate = digest(canonical(manifest))
    except NotCanonical as error:
        return str(error)
    if entry.get("certificate") != certificate:
        return "the certificate is not its manifest's"
    if before is not None and previous != before:
        return "it does not follow the entry before"
    if entry.get("chain") != chain_hash(previous, certificate):
        return "its chain is not the hash of the entry before and its certificate"
    if number is not None and manifest.get("number") != number:
        return f"its number is {manifest.get('number')!r}, it must be {number}"
    return None
