"""Computation receipts: documents that bind an output to a model, its inputs and the arithmetic, for anyone to check.

The form is Computation Receipt 0.1 with its addenda 0.1.1 (samples of the output) and 0.1.2 (chains), by Anomly
(CC-BY-4.0). A verifier computes again and compares. Our arithmetic gives the same bits everywhere because its order is
fixed; it is not independent of the order. Receipts say so, and the format's verdict about them is UNVERIFIABLE: it
keeps ACCEPT for arithmetic without rounding. `zinc replay` compares the bits themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt import numerics
from zinc_rt.serving.records.canonical import (
    ALGORITHMS,
    NotCanonical,
    canonical,
    collection_digest,
    digest,
    is_digest,
    tensor_digest,
)

PROFILE: Final = "zinc-rt-fixed-order"


def _quire(**more: int) -> dict[str, Any]:
    params = {"n": 16, "es": 3, "quire_bits": 256, "frac_bits": 96, **more}
    return {"accumulation": "exact", "order_independent": True, "params": params}


def _rounded(accumulation: str, **params: int) -> dict[str, Any]:
    return {"accumulation": accumulation, "order_independent": False, "params": params}


PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    "bposit16-quire256": _quire(),
    "bposit16-quire256-b48": _quire(regime_bound=48),
    "bposit16-quire256-b112": _quire(regime_bound=112),
    "bposit8-imma-int32": {
        "accumulation": "exact",
        "order_independent": True,
        "params": {"n": 8, "es": 2, "operand_scale_bits": 6, "accumulator": "int32"},
    },
    "float64": _rounded("rounded", bits=64),
    "float32": _rounded("rounded", bits=32),
    PROFILE: _rounded("fixed-order", numerics=numerics.VERSION),
}
"""The format's registry of arithmetic (its section 7), and ours."""

_SECTIONS: Final = {"0.1": None, "0.1.1": "sample", "0.1.2": "chunk"}
_RULE: Final = "sha256-ctr-reject-v1"


class Verdict(StrEnum):
    """The verdict of a verifier."""

    MALFORMED = "MALFORMED"
    REJECT = "REJECT"
    UNVERIFIABLE = "UNVERIFIABLE"
    ACCEPT = "ACCEPT"


@dataclass(frozen=True)
class Judgement:
    """A verdict, and why."""

    verdict: Verdict
    reason: str


def make_receipt(
    computation: str,
    version: str,
    model: Mapping[str, npt.NDArray[Any]],
    inputs: Mapping[str, npt.NDArray[Any]],
    output: npt.NDArray[Any],
    *,
    profile: str = PROFILE,
    meta: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A receipt for one computation. meta: what no verifier looks at, as a time and a request's id."""
    manifest = {
        "cr": "0.1",
        "digest_alg": "sha256",
        "arithmetic": {"profile": profile, **PROFILES[profile]},
        "computation": {"id": computation, "version": version},
        "model": {"digest": collection_digest(model), "n_tensors": len(model)},
        "input": {"digest": collection_digest(inputs), "n_tensors": len(inputs)},
        "output": {"digest": tensor_digest(output), "shape": list(output.shape)},
    }
    return {"manifest": manifest, "certificate": certificate(manifest), "meta": dict(meta or {})}


def certificate(manifest: Mapping[str, Any]) -> str:
    """The digest of a manifest, by its own algorithm. Raises `NotCanonical`, `UsageError`."""
    return digest(canonical(manifest), manifest.get("digest_alg", "sha256"))


def sample_indices(manifest: Mapping[str, Any]) -> list[int]:
    """The rows of the output that a sampled receipt is about; they follow from everything else in the manifest."""
    sample = manifest["sample"]
    base = {key: value for key, value in manifest.items() if key != "sample"}
    seed = hashlib.sha256(canonical(base) + bytes.fromhex(sample["challenge"])).digest()
    n_units, found, count = sample["n_units"], set[int](), 0
    limit = (1 << 64) // n_units * n_units
    while len(found) < sample["size"]:
        drawn = int.from_bytes(hashlib.sha256(seed + count.to_bytes(8, "big")).digest()[:8], "big")
        count += 1
        if drawn < limit:
            found.add(drawn % n_units)
    return sorted(found)


def chain_digest(certificates: Sequence[str], alg: str = "sha256") -> str:
    """What a closing receipt says of the certificates of all chunks before it, in order."""
    return digest(b"".join(canonical({"certificate": c}) for c in certificates), alg)


def malformed(receipt: object) -> str | None:
    """Why a document is no receipt; None where it is one."""
    if not isinstance(receipt, dict) or not isinstance(manifest := receipt.get("manifest"), dict):
        return "there is no manifest"
    try:
        claimed = receipt.get("certificate")
        alg = manifest.get("digest_alg")
        if not isinstance(alg, str) or alg not in ALGORITHMS:
            return f"digest_alg is {alg!r}, it must be {' or '.join(ALGORITHMS)}"
        return (
            _wrong_arithmetic(manifest)
            or _wrong_sections(manifest, alg)
            or (None if claimed == certificate(manifest) else "the certificate is not the manifest's")
        )
    except NotCanonical as error:
        return str(error)


def _wrong_arithmetic(manifest: dict[str, Any]) -> str | None:
    if (version := manifest.get("cr")) not in _SECTIONS or not isinstance(version, str):
        return f"cr is {version!r}, it must be one of {', '.join(_SECTIONS)}"
    arithmetic = manifest.get("arithmetic")
    if not isinstance(arithmetic, dict) or not isinstance(arithmetic.get("profile"), str):
        return "there is no arithmetic profile"
    if type(arithmetic.get("order_independent")) is not bool or not isinstance(arithmetic.get("accumulation"), str):
        return "the arithmetic says no accumulation, or not whether it is independent of the order"
    if not isinstance(arithmetic.get("params"), dict):
        return "the arithmetic has no params"
    known = PROFILES.get(arithmetic["profile"])
    if known is not None:
        wrong = [key for key, value in known.items() if not _same(arithmetic[key], value)]
        if wrong:
            return f"{', '.join(wrong)} of profile {arithmetic['profile']!r} are not the registry's"
    return None


def _same(given: object, known: object) -> bool:
    """Equality that tells 1 from True."""
    if isinstance(given, dict) and isinstance(known, dict):
        return given.keys() == known.keys() and all(_same(given[key], known[key]) for key in known)
    return type(given) is type(known) and given == known


def _whole(value: object, minimum: int = 0) -> bool:
    return type(value) is int and value >= minimum


def _wrong_sections(manifest: dict[str, Any], alg: str) -> str | None:
    computation = manifest.get("computation")
    if not isinstance(computation, dict) or not all(isinstance(computation.get(k), str) for k in ("id", "version")):
        return "the computation has no id and version"
    for name in ("model", "input"):
        section = manifest.get(name)
        if not isinstance(section, dict) or not is_digest(section.get("digest"), alg):
            return f"{name} has no digest"
        if not _whole(section.get("n_tensors")):
            return f"{name}.n_tensors is {section.get('n_tensors')!r}, it must be a whole number"
    output = manifest.get("output")
    if not isinstance(output, dict) or not is_digest(output.get("digest"), alg):
        return "output has no digest"
    shape = output.get("shape")
    if not isinstance(shape, list) or not all(_whole(n) for n in shape):
        return f"output.shape is {shape!r}, it must be a list of whole numbers"
    own = _SECTIONS[manifest["cr"]]
    for name in ("sample", "chunk"):
        if (name in manifest) != (name == own):
            return f"version {manifest['cr']} {'needs' if name == own else 'has no'} section {name}"
    if own == "sample":
        return _wrong_sample(manifest["sample"], shape, alg)
    return _wrong_chunk(manifest["chunk"], alg) if own == "chunk" else None


def _wrong_sample(sample: object, shape: list[int], alg: str) -> str | None:
    if not isinstance(sample, dict) or sample.get("rule") != _RULE:
        return f"the sample's rule is not {_RULE}"
    n_units, size, challenge = (sample.get(key) for key in ("n_units", "size", "challenge"))
    if not _whole(n_units, 1) or not shape or n_units != shape[0]:
        return f"sample.n_units is {n_units!r}, the output has {shape[:1]} rows"
    if not _whole(size, 1) or size > n_units:
        return f"sample.size is {size!r}, it must be from 1 to {n_units}"
    if not isinstance(challenge, str) or len(challenge) % 2 or not set(challenge) <= set("0123456789abcdef"):
        return "sample.challenge is no even number of digits 0-9a-f"
    return None if is_digest(sample.get("digest"), alg) else "sample has no digest"


def _wrong_chunk(chunk: object, alg: str) -> str | None:
    if not isinstance(chunk, dict) or not _whole(chunk.get("index")) or type(chunk.get("closing")) is not bool:
        return "the chunk has no index, or does not say whether it closes the chain"
    before = chunk.get("prev_certificate")
    if not (is_digest(before, alg) if chunk["index"] else before == ""):
        return "chunk.prev_certificate must be a digest, and empty for the first chunk"
    if chunk["closing"]:
        if chunk.get("n_chunks") != chunk["index"] or not _whole(chunk.get("n_chunks"), 1):
            return f"chunk.n_chunks is {chunk.get('n_chunks')!r}, the chain has {chunk['index']} chunks"
        if not is_digest(chunk.get("chain_digest"), alg):
            return "the closing chunk has no chain_digest"
    return None


def judge(claimed: object, again: object) -> Judgement:
    """The verdict about a receipt, given one's own receipt for the same computation done again."""
    if (wrong := malformed(claimed)) is not None:
        return Judgement(Verdict.MALFORMED, wrong)
    if (wrong := malformed(again)) is not None:
        return Judgement(Verdict.MALFORMED, f"of the computation done again: {wrong}")
    assert isinstance(claimed, dict)
    assert isinstance(again, dict)
    same = claimed["certificate"] == again["certificate"]
    arithmetic = claimed["manifest"]["arithmetic"]
    if arithmetic["profile"] not in PROFILES:
        return Judgement(Verdict.UNVERIFIABLE, f"profile {arithmetic['profile']!r} is not known here")
    if not arithmetic["order_independent"]:
        found = "the certificates are equal" if same else "the certificates differ"
        return Judgement(Verdict.UNVERIFIABLE, f"{arithmetic['profile']} depends on the order of sums; {found}")
    if not same:
        differ = [
            key
            for key in claimed["manifest"].keys() | again["manifest"].keys()
            if claimed["manifest"].get(key) != again["manifest"].get(key)
        ]
        return Judgement(Verdict.REJECT, f"{', '.join(sorted(differ))} differ")
    return Judgement(Verdict.ACCEPT, "the computation done again gives the same certificate")


def bytes_tensor(data: bytes) -> npt.NDArray[np.uint8]:
    """Bytes as a tensor u8[n]."""
    return np.frombuffer(data, np.uint8)
