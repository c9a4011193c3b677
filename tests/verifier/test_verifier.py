"""The verifier in C against the reference, to the bit: logits, golden tokens, files that are damaged."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import LLAMA, QWEN2, QWEN3, T, logits_of, random_tokens, soon, write_model
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from tests.source import ROOT
from tests.test_golden import CASES as GOLDEN
from tests.test_golden import LOGIT_PROMPT, golden
from tests.verifier.program import SOURCE, Program, build, certified, record_of, with_output
from zinc_rt import numerics
from zinc_rt.cli.main import main
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import Usage
from zinc_rt.serving.records.record import RecordedAdapter, RequestRecord
from zinc_rt.serving.records.store import LedgerEntry, RecordStore
from zinc_rt.text import Tokenizer

MODEL = built_in_model()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return build(tmp_path_factory.mktemp("verifier"), "-O1")


@pytest.fixture(scope="module")
def prompts() -> dict[str, list[int]]:
    with GGUFFile.open(MODEL) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        return {text: tokenizer.encode(text) for text in (LOGIT_PROMPT, *(case["prompt"] for case in GOLDEN.values()))}


@pytest.fixture(scope="module")
def records(prompts: dict[str, list[int]]) -> dict[str, RequestRecord]:
    """Those of the golden tokens."""
    made = {}
    for name, case in GOLDEN.items():
        params = SamplingParams(**{key: value for key, value in case.items() if key != "prompt"})
        made[name] = record_of(golden()["model_sha256"], prompts[case["prompt"]], golden()["tokens"][name], params)
    return made


@pytest.fixture(scope="module")
def receipts(records: dict[str, RequestRecord]) -> dict[str, dict[str, Any]]:
    return {name: record.opened_receipt() for name, record in records.items()}


def test_golden(
    program: Program, prompts: dict[str, list[int]], receipts: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """The numbers that all backends must give, and tokens drawn from them."""
    logits = program.logits(MODEL, prompts[LOGIT_PROMPT])
    assert hashlib.sha256(logits.astype("<f4").tobytes()).hexdigest() == golden()["logits_sha256"]
    expected = [f"equal: {len(golden()['tokens'][name])} tokens" for name in GOLDEN]
    assert program.verdicts(MODEL, tmp_path, list(receipts.values())) == expected


def test_what_was_tampered_with(program: Program, receipts: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    tokens = golden()["tokens"]["sampled"]
    other = [*tokens[:9], tokens[9] ^ 1, *tokens[10:]]
    forged = with_output(receipts["sampled"], other)
    touched = copy.deepcopy(receipts["sampled"])
    touched["opened"]["output"][9] ^= 1
    hashed, seeded = (copy.deepcopy(receipts["sampled"]) for _ in range(2))
    hashed["manifest"]["input"]["digest"] = "sha256:" + "0" * 64
    seeded["opened"]["seed"] += 1
    modelled = certified(hashed | {"manifest": hashed["manifest"] | {"model": hashed["manifest"]["input"]}})
    n = len(receipts["sampled"]["opened"]["prompt"])
    assert program.verdicts(MODEL, tmp_path, [forged, touched, hashed, certified(hashed), seeded, modelled]) == [
        f"different: token 10 of the answer, at position {n + 9}, is {other[9]} in the receipt and {tokens[9]} when"
        " computed",
        "different: the output's digest is not that of the opened tokens",
        "different: the certificate is not the manifest's",
        "different: the input's digest is not that of the opened tokens, seed and parameters",
        "different: the input's digest is not that of the opened tokens, seed and parameters",
        "different: it is of another model",
    ]


def test_from_a_file_of_records(
    program: Program, records: dict[str, RequestRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.sqlite"
    store = RecordStore(path)
    entries = [LedgerEntry(name, 1.0, "t", "chat", "m", Usage(1, 0, 1), "stop") for name in ("greedy", "closed")]
    record = replace(records["greedy"], id="greedy")
    store.add([(entries[0], record), (entries[1], record.receipt())])
    store.close()
    assert main(["replay", "greedy", "--opened", "--records", str(path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert program.verdicts(MODEL, tmp_path, [printed]) == ["equal: 64 tokens"]
    assert main(["replay", "closed", "--opened", "--records", str(path)]) == 1
    assert "only a receipt is kept" in capsys.readouterr().err


FORMATS = (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q5_0, T.MXFP4, T.Q4_K, T.Q5_K, T.Q6_K)
DENSE = {
    f"{spec.architecture}-{kind.name}": replace(
        spec, weights=kind, n_embd=256, n_ff=256, head_dim=32, n_heads=8, formats={"ffn_down": T.Q6_K}
    )
    for kind in FORMATS
    for spec in (LLAMA, QWEN2, QWEN3)
}
ROTATIONS: dict[str, dict[str, Any]] = {
    "linear": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    "yarn": {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64,
        "rope.scaling.yarn_log_multiplier": 0.5,
        "rope.scaling.attn_factor": 1.25,
    },
    "window": {"attention.sliding_window": 7},
    "partly": {"rope.dimension_count": 8},
}


def equal(program: Program, path: Path, tokens: list[int], kv: str = "f16") -> None:
    """NaN is a NaN, whatever its bits."""
    expected = logits_of(path, tokens, n_ctx=len(tokens) + 1, kernels="reference", kv=kv)
    got = program.logits(path, tokens, kv)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(got.view(np.uint32)[~np.isnan(got)], expected.view(np.uint32)[~np.isnan(expected)])


@pytest.mark.parametrize("name", soon(("llama-Q4_K",), DENSE))
def test_dense(program: Program, name: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", DENSE[name])
    equal(program, model.path, random_tokens(3, 20, model.spec.n_vocab))


KINDS = ("llama", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "qwen35", "qwen35moe", "qwen3next")
FAMILIES = {
    f"{name}-{kind.name}": (name, kind)
    for name, case in CASES.items()
    if case.architecture in KINDS
    for kind in (T.F32, T.F16, T.Q8_0, T.MXFP4)
}


@pytest.mark.parametrize("name", soon(("qwen3moe-MXFP4", "qwen35-Q8_0"), FAMILIES))
def test_families(program: Program, name: str, tmp_path: Path) -> None:
    """Experts, delta nets, and what files of a kind may have otherwise."""
    case, kind = FAMILIES[name]
    equal(program, write_case(tmp_path / "m.gguf", CASES[case], kind).path, random_tokens(3, 24, N_VOCAB))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [T.Q4_K, T.Q6_K], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["qwen3moe", "qwen35", "qwen35moe", "qwen3next"])
def test_super_blocks(program: Program, name: str, kind: GGMLType, tmp_path: Path) -> None:
    """Experts and delta nets that are wide enough for blocks of 256."""
    case = CASES[name]
    wide, lengths = {64: 256, 96: 256}, ("embedding_length", "feed_forward_length", "expert_shared_feed_forward_length")
    keys = dict(case.keys) | {key: wide[case.keys[key]] for key in lengths if key in case.keys}
    narrow = ("ssm_conv1d", "attn_q_norm", "attn_k_norm", "ssm_norm")
    shapes = {
        key: shape if any(part in key for part in narrow) else tuple(wide.get(n, n) for n in shape)
        for key, shape in case.shapes.items()
    }
    model = write_case(tmp_path / "m.gguf", replace(case, keys=keys, shapes=shapes), kind, {"exps": T.Q8_0})
    assert kind in model.formats.values()
    equal(program, model.path, random_tokens(3, 24, N_VOCAB))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROTATIONS)
def test_positions(program: Program, name: str, tmp_path: Path) -> None:
    """Over several splits, with extended contexts and windows."""
    spec = replace(LLAMA, weights=T.Q8_0, keys=ROTATIONS[name], rope_factors=name == "linear")
    model = write_model(tmp_path / "m.gguf", spec)
    equal(program, model.path, random_tokens(3, 600, spec.n_vocab))


@pytest.mark.slow
def test_cache_of_q8_0(program: Program, tmp_path: Path) -> None:
    spec = replace(QWEN3, weights=T.F16, head_dim=64)
    equal(program, write_model(tmp_path / "m.gguf", spec).path, random_tokens(3, 300, spec.n_vocab), "q8_0")


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["-O0", "-O2 -Wall -Wextra -pedantic -Wconversion -Wno-sign-conversion", "-O3"])
def test_any_compiler(flags: str, tmp_path: Path) -> None:
    """No warning, and the same bits, however it is built."""
    model = write_case(tmp_path / "m.gguf", CASES["qwen35moe"], T.Q8_0)
    equal(build(tmp_path, *flags.split()), model.path, random_tokens(3, 24, N_VOCAB))


def test_errors_are_one_line(
    program: Program, records: dict[str, RequestRecord], receipts: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    path, file = tmp_path / "m", tmp_path / "r.json"
    for content, words in (
        (None, "m: it cannot be opened: No such file"),
        (b"", "it is no GGUF file"),
        (MODEL.read_bytes()[:5000], "the file is cut: its header goes beyond its end"),
        (MODEL.read_bytes()[:-40], "the file is cut: tensor"),
        (MODEL.read_bytes().replace(b"qwen3", b"qwen9"), "architecture qwen9 is not known here"),
    ):
        if content is not None:
            path.write_bytes(content)
        done = program.run(path, file)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert words in done.stderr
    closed = {key: value for key, value in receipts["greedy"].items() if key != "opened"}
    adapted = replace(records["greedy"], adapters=(RecordedAdapter("mine", "ab" * 32, 0.5),))
    changed = copy.deepcopy(receipts["greedy"])
    changed["manifest"]["arithmetic"]["params"]["numerics"] = 2
    for document, words in (
        ("", "it is no JSON: it ends early"),
        ('{"a": 1, "a": 2}', "it has a twice"),
        ("[" * 99, "it has more than 64 levels"),
        ("{}", "there is no manifest"),
        (json.dumps(closed), "it has digests alone"),
        (json.dumps(adapted.opened_receipt()), "its answer has the adapter mine, and adapters are not known here"),
        (json.dumps(certified(changed)), "not zinc-rt-fixed-order with version 1"),
    ):
        file.write_text(document, encoding="utf-8")
        done = program.run(MODEL, file)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert words in done.stderr


def test_one_file_that_a_reader_can_take_in() -> None:
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 2500
    assert max(map(len, lines)) <= 120
    headers = {line.split()[1][1:-3] for line in lines if line.startswith("#include")}
    assert headers == {"errno", "float", "math", "stdarg", "stdbool", "stdint", "stdio", "stdlib", "string"}
    assert (ROOT / "verifier" / "README.md").is_file()


def test_the_page_has_the_constants() -> None:
    """Who writes another implementation has the page alone."""
    page = (ROOT / "docs" / "how" / "numerics.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", page.partition("## Constants")[2], re.MULTILINE))
    for names, values in (
        ("log2e, L1, L2", (numerics.LOG2_E, numerics.LN2_HIGH, numerics.LN2_LOW)),
        ("`EXP_POLY`", numerics.EXP_POLY),
        ("`SOFTPLUS_POLY`", numerics.SOFTPLUS_POLY),
        ("`TANH_POLY`", numerics.TANH_POLY),
        (
            "`GELU_LINEAR`, `GELU_CUBIC`, `GELU_QUICK`",
            (numerics.GELU_LINEAR, numerics.GELU_CUBIC, numerics.GELU_QUICK),
        ),
        ("`TAIL_STEP`, `TAIL_POLY`", (numerics.TAIL_STEP, *numerics.TAIL_POLY)),
    ):
        said = [float.fromhex(word) for word in re.findall(r"-?0x[0-9a-f.]+p-?\d+", rows[names])]
        assert said == [float(np.float32(value)) for value in values]
