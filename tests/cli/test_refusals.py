"""Files that this version cannot run are refused in two lines, before weights are read or a device is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zinc_rt
from tests.cli.conftest import Outcome
from tests.cli.tiny import write_tiny_model
from tests.gguf.parts import split
from zinc_rt.errors import ZincError
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.gguf.errors import UnsupportedTensorType
from zinc_rt.models.errors import ModelError
from zinc_rt.text import TokenizerError

Zinc = Callable[..., Outcome]


def replaced(tiny: Path, folder: Path, old: bytes, new: bytes, count: int = 1) -> Path:
    """The model with bytes of its header changed."""
    content = tiny.read_bytes()
    assert len(old) == len(new)
    assert content.count(old) == count
    path = folder / "changed.gguf"
    path.write_bytes(content.replace(old, new))
    return path


def text(value: str) -> bytes:
    return len(value).to_bytes(8, "little") + value.encode()


def typed(name: str, shape: tuple[int, ...], kind: int) -> bytes:
    dims = b"".join(n.to_bytes(8, "little") for n in reversed(shape))
    return text(name) + len(shape).to_bytes(4, "little") + dims + kind.to_bytes(4, "little")


REFUSALS: list[tuple[bytes, bytes, type[ZincError], str, str]] = [
    (
        text("gpt2"), text("bird"), TokenizerError,
        "tokenizer.ggml.model: unknown tokenizer 'bird'",
        "what would run: a model with a tokenizer of kind gpt2, llama, gemma4, t5, bert",
    ),
    (
        text("gpt-2"), text("gpt-9"), TokenizerError,
        "tokenizer.ggml.pre: unknown pre-tokenizer 'gpt-9'",
        "what would run: a model with the pre-tokenizer llama-bpe, dbrx, glm4, qwen2",
    ),
    (
        text("tokenizer.ggml.model"), text("tokenizer.ggml.mode_"), TokenizerError,
        "tokenizer.ggml.model: missing; the file has no tokenizer",
        "",
    ),
    (
        typed("output_norm.weight", (32,), GGMLType.F32), typed("output_norm.weight", (32,), GGMLType.I32),
        UnsupportedTensorType,
        "tensor 'output_norm.weight' is of type I32, which is not supported here yet; supported: F32",
        "what would run: this model's Q4_K_M or Q8_0 file",
    ),
    (
        typed("output_norm.weight", (32,), GGMLType.F32), typed("output_norm.weight", (32,), 99),
        UnsupportedTensorType,
        "tensor 'output_norm.weight' has type number 99",
        "what would run: this model's Q4_K_M or Q8_0 file",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "kind", "says", "advice"), REFUSALS)
def test_refused_in_two_lines_before_anything_is_loaded(
    old: bytes, new: bytes, kind: type[ZincError], says: str, advice: str, tiny: Path, tmp_path: Path, zinc: Zinc,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = replaced(tiny, tmp_path, old, new)
    outcome = zinc("run", "-m", path, "abc")
    lines = outcome.err.splitlines()
    assert (outcome.code, outcome.out) == (1, "")
    assert says in lines[0]
    assert [line.startswith(f"zinc: {advice}") for line in lines[1:]] == ([True] if advice else [])

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the file was refused too late")

    monkeypatch.setattr("zinc_rt.llm.load.Engine", never)
    monkeypatch.setattr(GGUFFile, "raw", never)
    with pytest.raises(kind, match=says.replace("(", r"\(")) as caught:
        zinc_rt.load(path, device="cpu")
    assert caught.value.advice.startswith(advice)


def test_an_unknown_architecture(foreign: Path, zinc: Zinc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.llm.load.Engine", None)
    lines = zinc("run", "-m", foreign, "abc").err.splitlines()
    assert lines[0] == "zinc: error: architecture 'weird' is not supported"
    assert lines[1].startswith("zinc: what would run: a model of architecture llama, qwen2")
    assert len(lines) == 2
    with pytest.raises(ModelError, match="architecture 'weird' is not supported"):
        zinc_rt.load(foreign, device="cpu")


def test_show_says_why_a_tokenizer_does_not_run(tiny: Path, tmp_path: Path, zinc: Zinc) -> None:
    outcome = zinc("show", replaced(tiny, tmp_path, text("gpt-2"), text("gpt-9")))
    assert "no: tokenizer.ggml.pre: unknown pre-tokenizer 'gpt-9'; what would run" in " ".join(outcome.out.split())


def test_show_says_that_an_unknown_reranker_does_not_run(tmp_path: Path, zinc: Zinc) -> None:
    write_tiny_model(tmp_path / "m.gguf", pooling=4)
    assert "what makes scores of architecture 'llama' is not known here" in zinc("show", tmp_path / "m.gguf").out


def test_show_counts_the_parts_of_a_split_model(tmp_path: Path, zinc: Zinc) -> None:
    first, second, _ = split(write_tiny_model(tmp_path / "tiny.gguf"), tmp_path / "parts")
    outcome = " ".join(zinc("show", first).out.split())
    assert " in 3 parts)" in outcome
    assert "runs here yes" in outcome
    lines = zinc("run", "-m", second, "abc").err.splitlines()
    assert len(lines) == 1
    assert "tiny-00002-of-00003.gguf: is part 2 of 3 of a split model; open the first part, tiny-00001" in lines[0]
