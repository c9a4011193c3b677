"""The checker of llama.cpp's vocabulary files, on a folder of the same form made from the recorded cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.text.llamacpp_fixtures import SEPARATOR, check, main, read_cases
from tests.text.vocabularies import bpe_metadata, recorded, spm_metadata
from zinc_rt.gguf import GGUFWriter


def write(folder: Path, name: str, metadata: dict[str, Any], ids: list[list[int]]) -> Path:
    path = folder / f"ggml-vocab-{name}.gguf"
    writer = GGUFWriter(path)
    writer.add("general.architecture", "llama")
    for key, value in metadata.items():
        writer.add(key, value)
    writer.write()
    path.with_name(path.name + ".inp").write_bytes(SEPARATOR.join(recorded()["texts"]).encode())
    path.with_name(path.name + ".out").write_text("".join(f" {' '.join(map(str, line))}\n" for line in ids))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "qwen2", bpe_metadata("qwen2"), recorded()["bpe"]["ids"]["qwen2"]["plain"])
    write(tmp_path, "spm", spm_metadata(), recorded()["spm"]["ids"]["prefix"]["plain"])
    write(tmp_path, "bird", bpe_metadata(model="rwkv"), [[] for _ in recorded()["texts"]])
    return tmp_path


def test_a_folder_that_agrees(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(str(folder)) == 0
    cases = len(recorded()["texts"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("bird: not supported: tokenizer.ggml.model: unknown tokenizer 'rwkv'")
    assert lines[1:] == [f"qwen2: {cases} of {cases} cases agree", f"spm: {cases} of {cases} cases agree"]


def test_a_difference_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "ggml-vocab-qwen2.gguf.out"
    lines = out.read_text().splitlines()
    at = recorded()["texts"].index("a    b")
    lines[at] += " 0"
    out.write_text("\n".join(lines) + "\n")
    assert check(folder / "ggml-vocab-qwen2.gguf").different == ("a    b",)
    assert main(str(folder)) == 1
    assert "different: 'a    b'" in capsys.readouterr().out


def test_a_vocabulary_without_cases_and_an_empty_folder(folder: Path, tmp_path: Path) -> None:
    for end in (".inp", ".out"):
        (folder / f"ggml-vocab-qwen2.gguf{end}").unlink()
    assert read_cases(folder / "ggml-vocab-qwen2.gguf") == []
    (tmp_path / "empty").mkdir()
    assert main(str(tmp_path / "empty")) == 1


FOLDER_ENV = "ZINC_LLAMACPP_VOCABS"
"""Names llama.cpp's folder `models`, where its `ggml-vocab-*.gguf` files are."""

WITHOUT_CASES = {"aquila", "baichuan", "gpt-neox", "nomic-bert-moe"}
"""Vocabularies beside which llama.cpp has no texts: only that their tokenizers can be made is seen."""

NOT_SUPPORTED: dict[str, str] = {}
"""Vocabularies that have no tokenizer here, by name, and why."""


@pytest.mark.slow
def test_every_vocabulary_of_llamacpp() -> None:
    if FOLDER_ENV not in os.environ:
        pytest.skip(f"{FOLDER_ENV} names no folder of ggml-vocab-*.gguf files")
    results = {r.name: r for r in map(check, sorted(Path(os.environ[FOLDER_ENV]).glob("ggml-vocab-*.gguf")))}
    assert results
    assert {name for name, r in results.items() if r.unsupported} == NOT_SUPPORTED.keys() & results.keys()
    assert {name for name, r in results.items() if not r.cases} == WITHOUT_CASES & results.keys()
    assert {name: r.different for name, r in results.items() if r.different} == {}
