"""Golden tokens of the model in the package: every tier must give exactly these, with every kind of kernels.

`python -m tests.test_golden` writes the file anew; do so only when the model or docs/how/numerics.md changes. Other
bits for the same model need another `numerics.VERSION`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from zinc_rt import numerics
from zinc_rt.backends.select import KERNELS, Kernels
from zinc_rt.engine.engine import Engine, Options
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.llm.model import Model
from zinc_rt.models import define
from zinc_rt.text import Tokenizer

FILE = Path(__file__).parent / "golden.json"

CASES: dict[str, dict[str, Any]] = {
    "greedy": {"prompt": "Once upon a time", "temperature": 0.0, "max_tokens": 64},
    "sampled": {"prompt": "One winter morning a brave robot", "temperature": 0.8, "seed": 42, "max_tokens": 64},
    "penalties": {
        "prompt": "The old lighthouse keeper wanted",
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.1,
        "seed": 7,
        "max_tokens": 48,
    },
}
LOGIT_PROMPT = "Once upon a time there was a little fox named Hazel. She lived by the river and wanted to see the sea."


def logits_digest(model: zinc_rt.Model) -> str:
    """SHA-256 over the bits of the prompt's logits, little endian."""
    logits = model.logits(model.tokenize(LOGIT_PROMPT))
    return hashlib.sha256(np.ascontiguousarray(logits, "<f4").tobytes()).hexdigest()


def run(model: zinc_rt.Model, case: dict[str, Any]) -> list[int]:
    return list(model.generate(**case).token_ids)


def golden() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@contextmanager
def story(kernels: Kernels) -> Iterator[Model]:
    """The model in the package with a context of 256 tokens."""
    file = GGUFFile.open(built_in_model())
    definition, engine = define(file), Engine(Options(n_ctx=256, kernels=kernels))
    engine.load(file, definition)
    with Model(file, definition, Tokenizer.from_metadata(file.metadata), engine) as model:
        yield model


@pytest.fixture(scope="module", params=KERNELS)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    with story(request.param) as made:
        yield made


@pytest.mark.parametrize(
    ("model", "name"),
    [
        # Tokens are drawn by the same code from the same logits.
        pytest.param(kernels, name, marks=() if kernels == "native" or name == "greedy" else pytest.mark.slow)
        for kernels in KERNELS
        for name in CASES
    ],
    indirect=["model"],
)
def test_tokens(model: zinc_rt.Model, name: str) -> None:
    assert run(model, CASES[name]) == golden()["tokens"][name], "see the module's docstring before changing the file"


def test_logits_to_the_last_bit(model: zinc_rt.Model) -> None:
    assert logits_digest(model) == golden()["logits_sha256"]


def test_the_file_is_for_these_numerics() -> None:
    assert golden()["numerics"] == numerics.VERSION


def test_the_file_is_for_this_model() -> None:
    assert hashlib.sha256(built_in_model().read_bytes()).hexdigest() == golden()["model_sha256"]


def write() -> None:
    with story("reference") as model:
        content = {
            "numerics": numerics.VERSION,
            "model_sha256": hashlib.sha256(built_in_model().read_bytes()).hexdigest(),
            "logits_sha256": logits_digest(model),
            "tokens": {name: run(model, case) for name, case in CASES.items()},
        }
    before = golden()
    if content != before and all(content[key] == before[key] for key in ("numerics", "model_sha256")):
        raise SystemExit("the bits are others than before: raise numerics.VERSION, so that replays and receipts say so")
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
