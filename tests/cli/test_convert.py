"""`zinc convert`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import os
import signal

import pytest

from tests.converting import folders
from zinc_rt.gguf import GGUFFile


@pytest.fixture
def folder(tmp_path):
    folders.write_folder(tmp_path / "m", "qwen3")
    (tmp_path / "qwen3.gguf").unlink()
    return tmp_path / "m"


def test_a_folder_becomes_a_file_that_runs(zinc, folder, tmp_path):
    out = tmp_path / "m.gguf"
    outcome = zinc("convert", folder, out, "q8_0", "--keep", "output.weight=F16", "-t", 1)
    assert outcome.code == 0
    (start,) = outcome.err.splitlines()
    assert start.startswith(f"zinc: {folder} (qwen3, 497.6 KiB) as Q8_0: ")
    rows = {line.split()[0]: line.split()[1:] for line in outcome.out.splitlines()}
    assert rows["attn_q"][:2] == ["Q8_0", "2"]
    assert rows["output"][0] == "F16"
    assert outcome.out.splitlines()[-1].startswith(f"{out}: ")
    with GGUFFile.open(out) as file:
        assert file.metadata["general.name"] == "m"
    assert zinc("show", out).out.count("runs here        yes") == 1
    assert zinc("run", "-m", out, "the", "-n", 4, "--kernels", "reference").code == 0


def test_a_dry_run_writes_nothing(zinc, folder, tmp_path):
    outcome = zinc("convert", folder, tmp_path / "m.gguf", "--dry-run")
    assert outcome.code == 0
    assert " as F32: " in outcome.err
    assert "attn_q" in outcome.out
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_refusals(zinc, folder, tmp_path):
    out = tmp_path / "m.gguf"
    assert "no format 'Q9'" in zinc("convert", folder, out, "Q9").error
    assert "is not there" in zinc("convert", tmp_path / "none", out).error
    assert "--threads is 0" in zinc("convert", folder, out, "-t", 0).error
    assert "is the model itself" in zinc("convert", folder, folder / "model.safetensors", "--force").error
    assert zinc("convert", folder, out).code == 0
    assert "is there already" in zinc("convert", folder, out).error
    assert zinc("convert", folder, out, "--force").code == 0


@pytest.mark.parametrize("verb", ["run", "chat", "show"])
def test_a_folder_given_as_a_model(zinc, folder, verb):
    model, text = (("-m",), ("hi",)) if verb == "run" else (("-m",) if verb == "chat" else (), ())
    refused = zinc(verb, *model, folder, *text)
    assert refused.code == 1
    assert f"{folder}: is a folder with a model as Hugging Face has them; `zinc convert {folder} OUT" in refused.error
    refused = zinc(verb, *model, folder / "model.safetensors", *text)
    assert f"is a safetensors file; `zinc convert {folder} OUT.gguf` makes a file of it that runs" in refused.error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing(zinc, folder, tmp_path, monkeypatch, number, code):
    def interrupt(out: object, part: object) -> None:
        assert not (tmp_path / "m.gguf").exists()
        os.kill(os.getpid(), number)

    monkeypatch.setattr("zinc_rt.gguf.writer._write_all", interrupt)
    handler = signal.getsignal(signal.SIGTERM)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
    try:
        if number == signal.SIGTERM:
            with pytest.raises(SystemExit) as caught:
                zinc("convert", folder, tmp_path / "m.gguf")
            assert caught.value.code == code
        else:
            assert zinc("convert", folder, tmp_path / "m.gguf").code == code
    finally:
        signal.signal(signal.SIGINT, before)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    assert signal.getsignal(signal.SIGTERM) is handler
