"""The formulas of every family, and the package, against llama.cpp: log-probabilities of all tokens.

llama.cpp comes with the package `xllamacpp`. It runs in a process of its own, in the Python that ZINC_LLAMACPP_PYTHON
names, or in this one. CONTRIBUTING.md says how to install and run it.

Compared with version 2026.10.11549 of it (llama.cpp b11549).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import logits_of, random_tokens
from tests.models.families import CASES, JUDGED, judge
from tests.models.families.build import N_VOCAB, Case, write_case
from tests.models.families.common import Net
from tests.models.families.deepseek4 import AS_SOLD
from tests.models.families.embedders import EMBEDDERS, FIRST, LAST, MEAN, vector
from tests.models.families.rankers import RANKERS, score

PYTHON_ENV = "ZINC_LLAMACPP_PYTHON"
LENGTHS = (1, 2, 5, 9)
"""Prompts of these many tokens, and the whole text."""
EXACT, GELU_TABLE = 2e-4, 1e-2
"""Differences of log-probabilities: of float32 programs, and where one takes GELU from a table of float16."""

pytestmark = pytest.mark.slow


@cache
def interpreter() -> str:
    python = os.environ.get(PYTHON_ENV, sys.executable)
    found = subprocess.run([python, "-c", "import xllamacpp"], capture_output=True, text=True, check=False, timeout=60)
    if found.returncode:
        pytest.skip(f"{python} cannot import xllamacpp; {PYTHON_ENV} may name a Python that can")
    return python


def ask(path: Path, prompts: list[list[int]], **more: Any) -> np.ndarray:
    """What llama.cpp says of each prompt, f64[n_prompts, n]."""
    request = json.dumps({"prompts": prompts, "n_vocab": N_VOCAB, **more})
    command = [interpreter(), judge.__file__, str(path)]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False, timeout=120)
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert answers, f"llama.cpp did not run {path}: {done.stderr[-2000:]}"
    return np.array(json.loads(answers[0].removeprefix("ANSWER")))


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def assert_close(got: np.ndarray, want: np.ndarray, within: float) -> None:
    """The same log-probabilities, and the same best token where it is not a tie within the tolerance."""
    assert np.isfinite(want).all()
    assert np.abs(got - want).max() < within
    for mine, theirs in zip(got, want, strict=True):
        assert mine[theirs.argmax()] > mine.max() - within


def judged(tmp_path: Path, cases: Mapping[str, Case], name: str) -> tuple[Path, Net, list[int], list[int], np.ndarray]:
    """A case's file and formulas with a cache of float32, as llama.cpp has it here; its text, and what comes back."""
    case = cases[name]
    made = write_case(tmp_path / f"{name}.gguf", case)
    tokens = random_tokens(5, case.n_tokens, N_VOCAB - 2)
    ends = [*LENGTHS, len(tokens)]
    return made.path, Net(made, kv16=False), tokens, ends, ask(made.path, [tokens[:n] for n in ends])


@pytest.mark.parametrize("name", JUDGED)
def test_formulas(name: str, tmp_path: Path) -> None:
    _, net, tokens, ends, want = judged(tmp_path, JUDGED, name)
    mine = log_probabilities(net.logits(tokens)[[n - 1 for n in ends]])
    assert_close(mine, want, GELU_TABLE if JUDGED[name].gelu else EXACT)
    if JUDGED[name].gelu:  # with the same table nothing but rounding is left, at times an entry beside the right one
        net.gelu16 = True
        mine = log_probabilities(net.logits(tokens)[[n - 1 for n in ends]])
        assert np.median(np.abs(mine - want).max(axis=1)) < EXACT


@pytest.mark.parametrize("name", sorted({*CASES, *AS_SOLD} & set(JUDGED)))
def test_the_package(name: str, tmp_path: Path) -> None:
    """The package keeps float16 in its cache: one key or value in thousands is off by 5e-4 of itself."""
    path, net, tokens, ends, want = judged(tmp_path, JUDGED, name)
    mine = log_probabilities(logits_of(path, tokens, n_ctx=512, kernels="reference")[[n - 1 for n in ends]])
    rounded = net.logits(tokens), Net(net.made).logits(tokens)
    allowance = np.abs(log_probabilities(rounded[0]) - log_probabilities(rounded[1])).max()
    assert_close(mine, want, (GELU_TABLE if JUDGED[name].gelu else EXACT) + 2 * allowance)


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors(name: str, tmp_path: Path) -> None:
    """Elements of vectors of length 1."""
    case = EMBEDDERS[name]
    made = write_case(tmp_path / f"{name}.gguf", case)
    tokens = random_tokens(5, case.n_tokens, N_VOCAB - 2)
    prompts = [tokens[:n] for n in (*LENGTHS, len(tokens))]
    pooling = {MEAN: "MEAN", FIRST: "CLS", LAST: "LAST"}[case.keys["pooling_type"]]
    want = ask(made.path, prompts, embedding=pooling)
    for table, within in ((False, 5e-4 if case.gelu else 2e-6), (True, 5e-5)):
        mine = np.array([vector(Net(made, kv16=False, gelu16=table), prompt) for prompt in prompts])
        assert np.abs(mine - want).max() < within


@pytest.mark.parametrize("name", RANKERS)
def test_scores(name: str, tmp_path: Path) -> None:
    made = write_case(tmp_path / f"{name}.gguf", RANKERS[name])
    prompts = [random_tokens(seed, n, N_VOCAB - 2) for seed, n in enumerate((2, 5, 9, 24))]
    want = ask(made.path, prompts, embedding="RANK")[:, 0]
    exact, table = (np.array([score(Net(made, kv16=False, gelu16=g), prompt) for prompt in prompts]) for g in (0, 1))
    assert np.abs(exact - want).max() < (5e-2 if RANKERS[name].gelu else 1e-5)
    assert np.abs(table - want).max() < 2e-4
