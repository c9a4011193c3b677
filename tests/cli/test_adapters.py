"""Adapters on the command line: for texts, shown, and made of PEFT folders."""

from __future__ import annotations

import json

import pytest

from tests.adapters.files import story_adapters
from tests.converting import folders
from tests.converting.test_peft import drawn, write_peft
from zinc_rt.cli.adapter_options import ServedAdapterOptions, given_adapters
from zinc_rt.errors import UsageError


def test_a_text(zinc, tmp_path):
    a, b = story_adapters(tmp_path, "ab")

    def text(*options):
        outcome = zinc("run", "--raw", "-q", "-n", 8, "--seed", 1, "--device", "cpu", "-c", 64, *options, "Once upon")
        assert outcome.code == 0, outcome.err
        return outcome.out

    plain, whole = text(), text("--lora", a)
    assert plain != whole
    assert text("--lora", f"{a}:0") == plain
    assert text("--lora-scaled", f"{a}:1.0") == whole
    assert text("--lora", f"{a}:0.5,{b}:0.5") == text("--lora", f"{b}:0.5", "--lora", f"{a}:0.5") != whole
    refused = zinc("run", "--lora-scaled", a, "x")
    assert (refused.code, refused.error) == (2, f"zinc: error: --lora-scaled is {str(a)!r}; it must be FILE:SCALE")
    assert zinc("run", "--lora", tmp_path / "none.gguf", "x").code == 1
    model = zinc("show", a, "--json")
    assert json.loads(model.out)["figures"]["adapter"].startswith("lora of rank 4")
    assert zinc("run", "-m", a, "x").code == 1


def test_names_and_scales(tmp_path):
    (tmp_path / "a,b.gguf").touch()
    name = str(tmp_path / "a,b.gguf")
    assert given_adapters([name, "c.gguf:0.5,d"], ["e:f.gguf:-2"]) == [
        (name, 1.0, None), ("c.gguf", 0.5, None), ("d", 1.0, None), ("e:f.gguf", -2.0, None),
    ]  # fmt: skip
    for wrong in ("", ":2", "a,,b"):
        with pytest.raises(UsageError, match="it must be FILE or FILE:SCALE"):
            given_adapters([wrong], None)
    served = ServedAdapterOptions(lora_modules=["n=x.gguf"], lora_init_without_apply=True, lora_slots=2)
    options = served.load_options([("c.gguf", 0.5, None)])
    assert options["lora"] == [("c.gguf", 0.0, None), ("x.gguf", 0.0, "n")]
    with pytest.raises(UsageError, match="must be NAME=FILE"):
        ServedAdapterOptions(lora_modules=["x.gguf"]).load_options([])


def test_a_folder_of_peft(zinc, tmp_path):
    _, tensors = folders.write_folder(tmp_path / "base", "llama")
    peft, out = write_peft(tmp_path / "peft", drawn(tensors), None), tmp_path / "a.gguf"
    assert "give the model's folder with --base" in zinc("convert", peft, out).error
    done = zinc("convert", peft, out, "F16", "--base", tmp_path / "base")
    assert done.code == 0, done.err
    assert "pairs of matrices of rank 3, for llama, alpha 6" in done.out
    shown = zinc("show", out).out
    assert "lora of rank 3" in shown
    assert "attn_q" in shown
    assert "is there already" in zinc("convert", peft, out, "--base", tmp_path / "base").error
    assert "F32, F16, BF16" in zinc("convert", peft, out, "Q4_0", "--base", tmp_path / "base", "--force").error
    assert "--base is" in zinc("convert", tmp_path / "base", tmp_path / "m.gguf", "--base", tmp_path).error
