"""`zinc quantize`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zinc_rt.cli.quantize import Type
from zinc_rt.gguf import GGUFFile
from zinc_rt.quantizing.presets import PRESETS


def test_a_model_in_a_smaller_format(zinc, tiny, tmp_path):
    out = tmp_path / "q.gguf"
    outcome = zinc("quantize", tiny, out, "q4_k_m", "--keep", "output.weight=F16", "-t", 1)
    assert outcome.code == 0
    (start,) = outcome.err.splitlines()
    assert start.startswith(f"zinc: {tiny} (106.9 KiB, 32.00 bits a weight) as Q4_K_M: ")
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["tensor", "format", "count", "size", "loss"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:11]}
    with GGUFFile.open(out) as file:
        types = {t.name: t for t in file.tensors.values()}
    assert rows["attn_q"][:2] == ["Q5_0", "1"]
    assert types["blk.0.attn_q.weight"].type.name == "Q5_0"
    assert rows["output"][0] == types["output.weight"].type.name == "F16"
    assert 0.03 < float(rows["attn_q"][-1].rstrip("%")) / 100 < 0.05
    assert rows["vectors"] == ["F32", "3", "384", "B", "-"]
    assert "ffn_down: Q8_0, rows of 64 are no whole number of Q6_K blocks" in lines
    assert "output: F16, as asked" in lines
    assert lines[-1].startswith(f"{out}: ")
    assert zinc("show", out).out.count("runs here        yes") == 1
    text = zinc("run", "-m", out, "-p", "the", "-n", "4", "--kernels", "reference")
    assert text.code == 0


def test_a_dry_run_writes_nothing(zinc, tiny, tmp_path):
    outcome = zinc("quantize", tiny, tmp_path / "q.gguf", "Q8_0", "--dry-run")
    assert outcome.code == 0
    assert list(tmp_path.iterdir()) == []
    promised = outcome.err.split(" as Q8_0: ")[1]
    assert zinc("quantize", tiny, tmp_path / "q.gguf", "Q8_0").err.endswith(promised)
    size = (tmp_path / "q.gguf").stat().st_size
    assert promised.startswith(f"{size / 1024:.1f} KiB")
    tree = json.loads(zinc("show", tmp_path / "q.gguf", "--json").out)
    assert tree["file_bytes"] == size
    assert tree["runs"] is True


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("none.gguf", "q.gguf", "Q8_0"), 1, "none.gguf"),
        (("tiny", "q.gguf", "Q9"), 2, "no format 'Q9'; there are F32, F16, BF16, Q8_0, Q6_K"),
        (("tiny", "q.gguf", "IQ2_XXS"), 2, "IQ2_XXS is not written"),
        (("tiny", "q.gguf", "Q8_0", "--keep", "x"), 2, "must look like"),
        (("tiny", "q.gguf", "Q8_0", "--keep", "x=Q4_0"), 1, "fits no matrix"),
        (("tiny", "q.gguf", "Q8_0", "-t", "0"), 2, "--threads is 0"),
        (("tiny", "tiny", "Q8_0"), 1, "is the model itself"),
        (("tiny", "no/q.gguf", "Q8_0"), 1, "there is no folder"),
        (("tiny", "q.gguf"), 2, "TYPE"),
    ],
)
def test_refusals(zinc, tiny, tmp_path, args, code, words):
    named = [str(tiny) if a == "tiny" else str(tmp_path / a) if a.endswith(".gguf") else a for a in args]
    outcome = zinc("quantize", *named)
    assert outcome.code == code
    assert words in outcome.error
    assert outcome.out == ""
    assert list(tmp_path.iterdir()) == []


def test_older_files_are_replaced_only_by_force(zinc, tiny, tmp_path):
    out = tmp_path / "q.gguf"
    assert zinc("quantize", tiny, out, "Q4_0").code == 0
    small = out.stat().st_size
    refused = zinc("quantize", tiny, out, "Q8_0")
    assert refused.code == 1
    assert "there already" in refused.error
    assert zinc("quantize", tiny, out, "Q8_0", "--force").code == 0
    assert out.stat().st_size > small


def test_what_is_quantised_already(zinc, tiny, tmp_path):
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    assert zinc("quantize", tiny, first, "Q4_1").code == 0
    assert "quantised already" in zinc("quantize", first, second, "Q5_0").error
    assert zinc("quantize", first, second, "Q5_0", "--requantize").code == 0


def test_an_interrupted_run(zinc, tiny, tmp_path, monkeypatch):
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zinc_rt.quantizing.convert._convert", interrupt)
    assert zinc("quantize", tiny, tmp_path / "q.gguf", "Q4_0").code == 130
    assert list(tmp_path.iterdir()) == []


def test_the_help_names_every_type():
    (argument,) = Type.__metadata__
    words = set(argument.help.rstrip(".").replace(",", "").split())
    assert words - {"or"} == set(PRESETS)


def test_the_documentation_names_every_type():
    text = (Path(__file__).parents[2] / "docs" / "how" / "gguf.md").read_text(encoding="utf-8")
    assert [name for name in PRESETS if f"`{name}`" not in text] == []
