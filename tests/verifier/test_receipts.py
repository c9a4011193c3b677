"""100 receipts of answers that the engine gave, and as many that somebody changed."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from tests.helpers import T
from tests.models.families import CASES
from tests.models.families.build import write_case
from tests.verifier.program import Program, build, certified, record_of, with_output
from zinc_rt.lang.cache import default_cache_dir
from zinc_rt.llm.load import built_in_model
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import Submit, Token
from zinc_rt.serving.records.canonical import canonical, collection_digest, digest, tensor_digest
from zinc_rt.serving.records.receipt import bytes_tensor
from zinc_rt.serving.records.replay import answered

pytestmark = pytest.mark.slow
N_TOKENS = 12


def parameters(rng: np.random.Generator) -> SamplingParams:
    """Whatever a request may ask for, with weights that let many tokens be drawn."""
    return SamplingParams(
        temperature=float(rng.choice([0.0, 0.7, 1.0, 1.6])),
        top_k=int(rng.choice([0, 1, 40, 1500])),
        top_p=float(rng.choice([0.3, 0.9, 1.0])),
        min_p=float(rng.choice([0.0, 0.05])),
        repetition_penalty=float(rng.choice([1.0, 1.1])),
        presence_penalty=float(rng.choice([0.0, 0.3])),
        frequency_penalty=float(rng.choice([0.0, -0.2])),
        repeat_last_n=int(rng.choice([-1, 0, 5, 64])),
        logit_bias=({}, {7: -math.inf, 9: 2.5})[int(rng.integers(2))],
        seed=int(rng.integers(2**64, dtype=np.uint64)),
        max_tokens=N_TOKENS,
        logprobs=0,
        ignore_eos=True,
    )


def answer(core: EngineCore, prompt: list[int], params: SamplingParams, given: list[int]) -> list[Token]:
    assert params.seed is not None
    request = Submit("r", tuple(prompt), params, params.seed, resume=tuple(given))
    return [event for event in answered(core, request) if isinstance(event, Token)]


def receipts(path: Path, n: int, kv: str, seed: int) -> Iterator[dict[str, Any]]:
    """Answers of the engine, with the log-probability of each token."""
    rng = np.random.default_rng(seed)
    with zinc_rt.load(path, n_ctx=128, device="cpu", kv=kv) as model:
        sha256, core = model.file.sha256(default_cache_dir()), model.make_core()
        for i in range(n):
            prompt = rng.integers(0, model.tokenizer.n_vocab, int(rng.integers(1, 30))).tolist()
            given, params = prompt[:3] if i % 5 == 0 else [], parameters(rng)
            tokens = answer(core, prompt, params, given)
            record = record_of(sha256, prompt, [t.token_id for t in tokens], params, given=given, kv=kv)
            made = record.opened_receipt()
            made["opened"]["logprobs"] = [t.logprob.hex() for t in tokens if t.logprob is not None]
            assert len(made["opened"]["logprobs"]) == len(tokens) == N_TOKENS - len(given)
            yield made


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return build(tmp_path_factory.mktemp("verifier"), "-O2")


def changed(receipt: dict[str, Any], which: int, rng: np.random.Generator) -> dict[str, Any]:
    """A receipt that says something else; from 4 on a forger made its digests and certificate anew."""
    made = copy.deepcopy(receipt)
    inner, manifest = made["opened"], made["manifest"]
    at = int(rng.integers(len(inner["output"])))
    place = int(rng.integers(7, 71))
    if which in (0, 4):
        inner["output"][at] ^= 1
        return made if which == 0 else with_output(made, inner["output"])
    if which == 1:
        value = float.fromhex(inner["logprobs"][at])
        inner["logprobs"][at] = math.nextafter(value, (-math.inf, math.inf)[int(rng.integers(2))]).hex()
        return made
    if which == 2:
        holder, key = [(made, "certificate"), *((manifest[k], "digest") for k in ("model", "input", "output"))][at % 4]
        old = holder[key]
        holder[key] = old[:place] + "0123456789abcdef"[int(old[place], 16) ^ 1] + old[place + 1 :]
        return made
    if which == 3:
        inner["seed"] ^= 1
        return made
    inner["prompt"][-1] ^= 1
    tensors = {
        "prompt": np.array(inner["prompt"], np.int32),
        "seed": np.array([inner["seed"]], np.uint64),
        "parameters": bytes_tensor(canonical(inner["parameters"])),
    }
    if "given" in inner:
        tensors["given"] = np.array(inner["given"], np.int32)
    manifest["input"]["digest"] = collection_digest(tensors)
    return certified(made)


@pytest.mark.parametrize(("name", "kv"), [("story", "f16"), ("story", "q8_0"), ("qwen35moe", "f16")])
def test_true_and_changed(program: Program, name: str, kv: str, tmp_path: Path) -> None:
    n = 100 if (name, kv) == ("story", "f16") else 20
    path = built_in_model() if name == "story" else write_case(tmp_path / "m.gguf", CASES[name], T.Q8_0).path
    made = list(receipts(path, n, kv, seed=n))
    assert program.verdicts(path, tmp_path, made) == [f"equal: {len(r['opened']['output'])} tokens" for r in made]
    rng = np.random.default_rng(3)
    said = program.verdicts(path, tmp_path, [changed(receipt, i % 6, rng) for i, receipt in enumerate(made)])
    assert [line for line in said if not line.startswith("different: ")] == []
    assert sum("when computed" in line for line in said) >= n // 3


def test_another_seed(program: Program, tmp_path: Path) -> None:
    """With all digests made for it, only what is drawn tells."""
    params = SamplingParams(
        temperature=1.6, top_k=0, top_p=1.0, min_p=0.0, seed=1, max_tokens=N_TOKENS, ignore_eos=True
    )
    with zinc_rt.load(built_in_model(), n_ctx=64, device="cpu") as model:
        sha256, core = model.file.sha256(tmp_path), model.make_core()
        output = [token.token_id for token in answer(core, [5, 6], params, [])]
    forged = [record_of(sha256, [5, 6], output, replace(params, seed=seed)).opened_receipt() for seed in range(1, 30)]
    said = program.verdicts(built_in_model(), tmp_path, forged)
    assert said[0] == f"equal: {N_TOKENS} tokens"
    assert all("when computed" in line for line in said[1:])


def chained(receipts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The receipts with digests of their log-probabilities, and entries of a chain."""
    before, out = "sha256:" + "0" * 64, []
    for number, receipt in enumerate(receipts):
        inner, manifest = receipt["opened"], receipt["manifest"]
        values = np.array([float.fromhex(text) for text in inner.pop("logprobs")])
        outputs = {"logprobs": tensor_digest(values)}
        entry = {
            "inputs": {"prompt": manifest["input"]["digest"]},
            "outputs": {**outputs, "tokens": manifest["output"]["digest"]},
            "receipt": receipt["certificate"],
            "number": number,
            "prev_chain": before,
        }
        seal = digest(canonical(entry))
        before = digest((before + seal).encode())
        whole = {"manifest": entry, "certificate": seal, "chain": before}
        out.append({**receipt, "outputs": outputs, "entry": whole})
    return out


def test_chains(program: Program, tmp_path: Path) -> None:
    made = chained(list(receipts(built_in_model(), 4, "f16", seed=5)))
    equal = [f"equal: {len(receipt['opened']['output'])} tokens" for receipt in made]
    assert program.verdicts(built_in_model(), tmp_path, made) == equal
    assert program.verdicts(built_in_model(), tmp_path, made[2:]) == equal[2:]
    foreign, cut, moved, ulp = (copy.deepcopy(made) for _ in range(4))
    foreign[1]["entry"] = made[2]["entry"]
    cut[1]["entry"]["manifest"]["number"] = 7
    moved[1]["entry"]["chain"] = made[2]["entry"]["chain"]
    ulp[1]["outputs"]["logprobs"] = ulp[1]["entry"]["manifest"]["outputs"]["logprobs"] = digest(b"")
    for wrong, words in (
        (foreign, "its entry is of another receipt"),
        (cut, "the certificate of its entry is not the entry's"),
        (moved, "the chain of its entry is not the hash of the entry before and the certificate"),
        (ulp, "the certificate of its entry is not the entry's"),
    ):
        assert program.verdicts(built_in_model(), tmp_path, wrong[:2])[1] == f"different: {words}"
    again = chained(
        [{**r, "opened": r["opened"] | {"logprobs": ["-0x1p+0"] * len(r["opened"]["output"])}} for r in made]
    )
    words = "different: the digest of the log-probabilities is not that of the computed ones"
    assert program.verdicts(built_in_model(), tmp_path, again) == [words] * 4
    skipped = [
        made[0],
        chained(
            [
                made[0] | {"opened": made[0]["opened"] | {"logprobs": []}},
                *(r | {"opened": r["opened"] | {"logprobs": []}} for r in made[1:]),
            ]
        )[1],
    ]
    assert (
        program.verdicts(built_in_model(), tmp_path, skipped)[1]
        == "different: its entry does not follow the one before"
    )
