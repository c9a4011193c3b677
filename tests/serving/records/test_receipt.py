"""Receipts against the format's published vectors (`cr_vectors.md`), and against documents that were tampered with."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.errors import UsageError
from zinc_rt.serving.records.canonical import NotCanonical, canonical, collection_digest, digest, parse, tensor_digest
from zinc_rt.serving.records.receipt import (
    PROFILE,
    Verdict,
    certificate,
    chain_digest,
    judge,
    make_receipt,
    malformed,
    sample_indices,
)

VECTORS = {v["name"]: v for v in json.loads((Path(__file__).parent / "cr_vectors.json").read_text(encoding="utf-8"))}
TENSORS = {
    "float64-2x3": np.arange(6.0).reshape(2, 3),
    "int32-4": np.arange(4, dtype=np.int32),
    "int8-6": np.arange(-3, 3, dtype=np.int8),
}


def named(kind: str) -> list[Any]:
    return [pytest.param(v, id=name) for name, v in VECTORS.items() if name.startswith(kind)]


def test_all_vectors_are_used() -> None:
    kinds = ("canonical/", "tensor/", "tensors/", "receipt/", "chain/", "refuse/")
    assert len(VECTORS) == 17
    assert sum(len(named(kind)) for kind in kinds) == 17


@pytest.mark.parametrize("vector", named("canonical/"))
def test_canonical(vector: dict[str, Any]) -> None:
    assert canonical(vector["input"]) == vector["canonical"].encode()
    assert digest(canonical(vector["input"])) == vector["digest"]


@pytest.mark.parametrize("vector", named("tensor/"))
def test_tensor(vector: dict[str, Any]) -> None:
    tensor = TENSORS[vector["name"].partition("/")[2]]
    assert tensor_digest(tensor) == vector["digest"]
    assert tensor_digest(tensor.astype(tensor.dtype.newbyteorder(">"))) == vector["digest"]
    assert tensor_digest(np.asfortranarray(tensor)) == vector["digest"]


@pytest.mark.parametrize("vector", named("tensors/"))
def test_collection(vector: dict[str, Any]) -> None:
    both = {"w2": TENSORS["int32-4"], "w1": TENSORS["float64-2x3"]}
    assert collection_digest(both) == vector["digest"]


@pytest.mark.parametrize("vector", named("receipt/") + named("chain/"))
def test_receipt(vector: dict[str, Any]) -> None:
    manifest = json.loads(vector["manifest_canonical"])
    assert canonical(manifest) == vector["manifest_canonical"].encode()
    assert certificate(manifest) == vector["certificate"]
    receipt = {"manifest": manifest, "certificate": vector["certificate"]}
    assert malformed(receipt) is None
    assert judge(receipt, copy.deepcopy(receipt)).verdict is Verdict.ACCEPT
    if "sample_indices" in vector:
        assert sample_indices(manifest) == vector["sample_indices"]


def test_the_exact_vector_is_what_make_receipt_makes() -> None:
    vector = VECTORS["receipt/exact-profile"]
    model, inputs = {"w": TENSORS["float64-2x3"]}, {"x": TENSORS["int32-4"]}
    made = make_receipt("conformance.identity", "1", model, inputs, TENSORS["float64-2x3"], profile="bposit16-quire256")
    assert made["certificate"] == vector["certificate"]


def test_chains() -> None:
    one = VECTORS["receipt/chunk-0"]
    assert chain_digest([one["certificate"]]) == one["chain_digest"]
    closing = VECTORS["chain/closing-2chunk"]
    assert json.loads(closing["manifest_canonical"])["chunk"]["chain_digest"] == closing["chain_digest"]


@pytest.mark.parametrize("vector", named("refuse/"))
def test_refusals(vector: dict[str, Any]) -> None:
    receipt = {"manifest": json.loads(vector["manifest_canonical"]), "certificate": vector["certificate"]}
    assert judge(receipt, copy.deepcopy(receipt)).verdict is Verdict[vector["expect_verdict"]]


def ours(output: list[int]) -> dict[str, Any]:
    tokens = np.array(output, np.int32)
    return make_receipt("test", "1", {"m": np.zeros(2, np.uint8)}, {"p": np.ones(3, np.int32)}, tokens)


def test_a_fixed_order_is_never_accepted() -> None:
    same, other = judge(ours([1, 2]), ours([1, 2])), judge(ours([1, 2]), ours([1, 3]))
    assert same.verdict is other.verdict is Verdict.UNVERIFIABLE
    assert "are equal" in same.reason
    assert "differ" in other.reason
    assert ours([1])["manifest"]["arithmetic"]["order_independent"] is False
    assert ours([1])["manifest"]["arithmetic"]["profile"] == PROFILE


def test_another_output_is_rejected_where_the_arithmetic_is_exact() -> None:
    exact = [
        make_receipt("c", "1", {}, {}, np.array(out, np.int32), profile="bposit8-imma-int32") for out in ([1], [2])
    ]
    judged = judge(*exact)
    assert judged.verdict is Verdict.REJECT
    assert judged.reason == "output differ"


SAMPLED = json.loads(VECTORS["receipt/sampled"]["manifest_canonical"])
CHUNK = json.loads(VECTORS["chain/closing-2chunk"]["manifest_canonical"])
WRONG: list[tuple[dict[str, Any], tuple[str, ...], Any]] = [
    (SAMPLED, ("cr",), "0.2"),
    (SAMPLED, ("cr",), 1),
    (SAMPLED, ("digest_alg",), "md5"),
    (SAMPLED, ("digest_alg",), None),
    (SAMPLED, ("arithmetic",), []),
    (SAMPLED, ("arithmetic", "order_independent"), 1),
    (SAMPLED, ("arithmetic", "params"), None),
    (SAMPLED, ("arithmetic", "params", "n"), True),
    (SAMPLED, ("computation", "id"), 7),
    (SAMPLED, ("model", "digest"), "sha256:00"),
    (SAMPLED, ("input", "n_tensors"), -1),
    (SAMPLED, ("output", "shape"), [16.0, 4]),
    (SAMPLED, ("output", "shape"), [True, 4]),
    (SAMPLED, ("sample", "rule"), "other"),
    (SAMPLED, ("sample", "size"), 0),
    (SAMPLED, ("sample", "size"), 17),
    (SAMPLED, ("sample", "challenge"), "be0"),
    (SAMPLED, ("sample", "challenge"), "BEEF"),
    (SAMPLED, ("sample", "digest"), None),
    (CHUNK, ("chunk", "index"), -1),
    (CHUNK, ("chunk", "closing"), 1),
    (CHUNK, ("chunk", "prev_certificate"), ""),
    (CHUNK, ("chunk", "n_chunks"), 3),
    (CHUNK, ("chunk", "chain_digest"), None),
]


@pytest.mark.parametrize(("base", "path", "value"), WRONG, ids=lambda x: "-".join(x) if isinstance(x, tuple) else None)
def test_malformed(base: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    manifest = copy.deepcopy(base)
    place = manifest
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    try:
        claimed = certificate(manifest)
    except (NotCanonical, UsageError):
        claimed = "sha256:" + "0" * 64
    assert judge({"manifest": manifest, "certificate": claimed}, ours([1])).verdict is Verdict.MALFORMED


@pytest.mark.parametrize("document", [None, 7, [], {}, {"manifest": 3}, {"manifest": {}, "certificate": 1}])
def test_any_document_gets_a_verdict(document: Any) -> None:
    assert judge(document, ours([1])).verdict is Verdict.MALFORMED


@given(st.binary() | st.text())
def test_reading_anything(text: str | bytes) -> None:
    try:
        value = parse(text)
    except NotCanonical:
        return
    assert parse(canonical(value)) == value


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "1.0", "NaN", "[" * 100 + "]" * 100, "[" * 100_000, '"\\ud800"'])
def test_what_is_not_canonical(text: str) -> None:
    with pytest.raises(NotCanonical):
        canonical(parse(text))
