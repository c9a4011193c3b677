"""The verifier's program, built by the machine's C compiler, and receipts for it."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.source import ROOT
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.serving.records.canonical import tensor_digest
from zinc_rt.serving.records.receipt import certificate
from zinc_rt.serving.records.record import ModelIdentity, RequestRecord

SOURCE = ROOT / "verifier" / "verifier.c"


class Program:
    """The program that `build` made."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self._path, *words], capture_output=True, text=True, timeout=250, check=False)

    def logits(self, model: Path, tokens: Sequence[int], kv: str = "f16") -> F32:
        """Logits after each token, f32[n, n_vocab]."""
        option = "--logits" if kv == "f16" else f"--logits-{kv}"
        done = self.run(model, option, ",".join(map(str, tokens)))
        assert (done.returncode, done.stderr) == (0, "")
        rows = [np.array([int(word, 16) for word in line.split()], np.uint32) for line in done.stdout.splitlines()]
        return np.array(rows).view(np.float32)

    def verdicts(self, model: Path, folder: Path, receipts: Sequence[dict[str, Any]]) -> list[str]:
        """What it says about each receipt, which are written to the folder."""
        paths = [folder / f"{i}.json" for i in range(len(receipts))]
        for path, receipt in zip(paths, receipts, strict=True):
            path.write_text(json.dumps(receipt), encoding="utf-8")
        done = self.run(model, *paths)
        assert done.stderr == ""
        said = [line.partition(": ")[2] for line in done.stdout.splitlines()]
        assert done.returncode == any(not line.startswith("equal") for line in said)
        return said


def build(folder: Path, *flags: str, compiler: str | None = None) -> Program:
    """Skips the test where there is no compiler."""
    found = shutil.which(compiler or os.environ.get("CC") or "cc")
    if found is None:
        pytest.skip(f"there is no C compiler {compiler or 'cc'}")
    path = folder / "verifier"
    words = [found, "-std=c11", "-ffp-contract=off", *flags, "-o", str(path), str(SOURCE), "-lm"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return Program(path)


def record_of(
    sha256: str, prompt: Sequence[int], output: Sequence[int], params: SamplingParams, *,
    given: Sequence[int] = (), kv: str = "f16",
) -> RequestRecord:  # fmt: skip
    """The record of an answer, as a server keeps it."""
    identity, seed = ModelIdentity("tiny", sha256, kv), params.seed or 0
    return RequestRecord(
        "r", 1.75e9, "t", "chat", identity, tuple(prompt), params, seed, tuple(output), "stop", given=tuple(given)
    )


def certified(receipt: dict[str, Any]) -> dict[str, Any]:
    """The receipt with a certificate of its manifest, whatever that says."""
    return receipt | {"certificate": certificate(receipt["manifest"])}


def with_output(receipt: dict[str, Any], output: Sequence[int]) -> dict[str, Any]:
    """The receipt for other tokens, all its digests made anew, as a forger would."""
    made = copy.deepcopy(receipt)
    made["opened"]["output"] = list(output)
    tokens = np.array(output, np.int32)
    made["manifest"]["output"] = {"digest": tensor_digest(tokens), "shape": [len(output)]}
    return certified(made)
