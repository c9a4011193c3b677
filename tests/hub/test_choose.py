"""Names of models, and which file of a repository is meant."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path

import pytest
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.hub.cached import cached_models, find_one
from zinc_rt.hub.choose import RemoteFile, choose, models_of, projector_for, projectors_for, quant_of
from zinc_rt.hub.errors import HubError, NoSuchFile, UnknownModel
from zinc_rt.hub.known import KNOWN
from zinc_rt.hub.reference import REPOSITORY, HubModel, is_known, parse
from zinc_rt.hub.resolve import model_path


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("UD-Q4_K_XL/Qwen3-235B-A22B-UD-Q4_K_XL-00001-of-00003.gguf", "UD-Q4_K_XL"),
        ("gemma-3-1b-it-BF16.gguf", "BF16"),
        ("nomic-embed-text-v1.5.f16.gguf", "F16"),
        ("model-IQ3_XXS.gguf", "IQ3_XXS"),
        ("Q8_0-of-nothing.gguf", "Q8_0"),
        ("story.gguf", ""),
    ],
)
def test_the_format_in_a_name(name: str, quant: str) -> None:
    assert quant_of(name) == quant


def files(*names: str) -> list[RemoteFile]:
    return [RemoteFile(name, 100 * len(name)) for name in names]


def test_the_usual_format_where_none_is_wanted() -> None:
    there = files("a-Q8_0.gguf", "a-Q4_K_M.gguf", "a-Q2_K.gguf", "mmproj-a-Q4_K_M.gguf", "a-imatrix.gguf", "README.md")
    assert [file.path for file in choose(HubModel("x/a"), there)] == ["a-Q4_K_M.gguf"]
    assert [file.path for file in choose(HubModel("x/a", "Q2_K"), there)] == ["a-Q2_K.gguf"]
    with pytest.raises(NoSuchFile, match=r"x/a has no Q5_0; it has Q2_K, Q4_K_M, Q8_0"):
        choose(HubModel("x/a", "Q5_0"), there)
    with pytest.raises(NoSuchFile, match="no GGUF file"):
        choose(HubModel("x/a"), files("model.safetensors"))


def test_parts_come_in_order_and_whole() -> None:
    parts = files("a-Q8_0-00002-of-00002.gguf", "a-Q8_0-00001-of-00002.gguf", "a-Q4_0-00001-of-00002.gguf")
    assert list(models_of(parts)) == ["a-Q8_0-00001-of-00002.gguf"]
    assert [file.path[7:12] for file in choose(HubModel("x/a", "Q8_0"), parts)] == ["00001", "00002"]
    with pytest.raises(NoSuchFile, match="it has Q8_0; a-Q4_0 has 1 of 2 parts"):
        choose(HubModel("x/a", "Q4_0"), parts)
    with pytest.raises(NoSuchFile, match="x/a has no whole model: a-Q4_0 has 1 of 2 parts"):
        choose(HubModel("x/a"), parts[2:])


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("a-IQ1_S.gguf", "a-Q5_K_S.gguf"), "a-Q5_K_S.gguf"),
        (("a-IQ1_S.gguf", "a-Q2_K.gguf", "a-BF16.gguf", "a-Q3_K_L.gguf"), "a-Q3_K_L.gguf"),
        (("a-TQ1_0.gguf", "a-IQ4_XS.gguf", "a-Q5_1.gguf"), "a-IQ4_XS.gguf"),
        (("a-UD-IQ1_M.gguf", "a-UD-Q4_K_XL.gguf", "a-UD-Q8_K_XL.gguf"), "a-UD-Q4_K_XL.gguf"),
        (("a-UD-Q4_K_M.gguf", "a-Q8_0.gguf"), "a-UD-Q4_K_M.gguf"),
        (("a-IQ1_S.gguf", "a-TQ2_0.gguf"), "a-TQ2_0.gguf"),
        (("a-Q3_0.gguf", "model.gguf"), "model.gguf"),
        (("mtp-a-Q4_K_M.gguf", "a-MTP-Q8_0.gguf"), "a-MTP-Q8_0.gguf"),
    ],
)
def test_where_no_usual_format_is_there(names: tuple[str, ...], taken: str) -> None:
    """The runnable one with about as many bits; never the smallest because it is the smallest."""
    assert [file.path for file in choose(HubModel("x/a"), files(*names))] == [taken]


def test_formats_with_a_prefix_and_single_files() -> None:
    there = files("a-UD-Q4_K_XL.gguf", "a-Q4_K_M.gguf", "mtp-a-Q8_0.gguf", "b-00001-of-00002.gguf")
    for quant in ("Q4_K_XL", "UD-Q4_K_XL"):
        assert choose(HubModel("x/a", quant), there)[0].path == "a-UD-Q4_K_XL.gguf"
    assert choose(HubModel("x/a", file="mtp-a-Q8_0.gguf"), there)[0].path == "mtp-a-Q8_0.gguf"
    with pytest.raises(NoSuchFile, match=r"x/a has no file c.gguf"):
        choose(HubModel("x/a", file="c.gguf"), there)


def test_a_format_without_a_name_of_its_own_is_looked_for_in_the_file_name() -> None:
    there = files("Phi-3-mini-4k-instruct-fp16.gguf", "Phi-3-mini-4k-instruct-q4.gguf")
    assert choose(HubModel("x/a", "Q4"), there)[0].path == "Phi-3-mini-4k-instruct-q4.gguf"


def test_names() -> None:
    assert parse("qwen3-8b") == HubModel("Qwen/Qwen3-8B-GGUF", "", "Q4_K_M", "qwen3-8b")
    assert parse("Qwen3-8B:q8_0") == HubModel("Qwen/Qwen3-8B-GGUF", "Q8_0", "Q4_K_M", "qwen3-8b")
    assert parse("a/b") == HubModel("a/b")
    assert str(parse("a/b:Q4_0")) == "a/b:Q4_0"
    assert is_known("qwen3-8b:Q8_0")
    assert not is_known("a/b")
    with pytest.raises(UnknownModel, match=r"did you mean .*qwen3-8b"):
        parse("qwen3-8")
    with pytest.raises(UnknownModel, match=r"did you mean qwen3-0.6b, qwen3-1.7b, .*zinc pull qwen3-0.6b"):
        parse("qwen3")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("qwen3:0.6b", "qwen3-0.6b"),
        ("Qwen3:0.6B-q8_0", "qwen3-0.6b:Q8_0"),
        ("qwen3-0.6b-q4_k_m", "qwen3-0.6b:Q4_K_M"),
        ("gemma4:e2b", "gemma-4-e2b"),
        ("llama3.2:1b-q4_0", "llama-3.2-1b:Q4_0"),
        ("phi4", "phi-4"),
        ("https://huggingface.co/a/b", "a/b"),
        ("http://hf.co/a/b/", "a/b"),
        ("https:/huggingface.co/a/b", "a/b"),
        ("hf.co/a/b:q4_0", "a/b:Q4_0"),
        ("huggingface.co/a/b/tree/main", "a/b"),
        ("https://huggingface.co/a/b/blob/main/c-Q8_0.gguf", "a/b/c-Q8_0.gguf"),
        ("https://huggingface.co/a/b/resolve/main/c/d.gguf?download=true", "a/b/c/d.gguf"),
        ("HTTPS://HuggingFace.co/a/b?not-for-all-audiences=true#files", "a/b"),
    ],
)
def test_names_of_other_programs_and_addresses(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://example.com/a/b", "another host"),
        ("https://huggingface.co/a", "no address of a model"),
        ("https://huggingface.co/datasets/a/b", "no address of a model"),
        ("https://huggingface.co/a/b/tree/v2", "branch main"),
        ("hf.co/../b", "no address of a model"),
        ("", "list --known"),
    ],
)
def test_addresses_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(UnknownModel, match=words):
        parse(text)


CACHED = [
    f"{repo}/{name}{ending}.gguf"
    for repo in ("Qwen/Qwen3-0.6B-GGUF", "a/b", "a/c-GGUF")
    for name in ("m", "n", "sub/m")
    for ending in ("", "-Q4_K_M", "-UD-Q4_K_M", "-Q8_0", "-Q8_0-00001-of-00001", "-f16")
]


@given(st.sets(st.sampled_from(CACHED), max_size=6))
@settings(max_examples=25, deadline=None)
def test_each_name_that_list_shows_is_that_model(paths: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", folder)
        for path in paths:
            owner, repo, file = path.split("/", 2)
            made = Path(folder) / f"models--{owner}--{repo}" / "snapshots" / "1" / file
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(b"x")
        models = cached_models()
        assert len(models) == len(paths)
        for model in models:
            assert model_path(model.name) == str(model.path)
            assert find_one(parse(model.name)) == model


def test_what_is_a_path_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    for name in ("qwen3-8b", "a/b"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(b"")
        assert model_path(name) == name
    for name in ("missing.gguf", "a/c/missing.gguf", "./qwen", "/x", "~/x", "..", "a\0b"):
        assert model_path(name) == name
    for name, words in {
        "qwen3-4b": "qwen3-4b is not downloaded: zinc pull qwen3-4b",
        "c/d": "c/d is not downloaded: zinc pull c/d",
        "https:/hf.co/c/d/blob/main/e.gguf": "c/d/e.gguf is not downloaded: zinc pull c/d/e.gguf",
    }.items():
        with pytest.raises(HubError, match=words):
            model_path(name)
    with pytest.raises(UnknownModel, match=r"did you mean qwen3-0\.6b"):
        model_path("qwen3")


def test_the_table_is_well_formed() -> None:
    for name, model in KNOWN.items():
        assert name == name.lower()
        assert REPOSITORY.fullmatch(model.repo)
        assert quant_of(f"x-{model.quant}.gguf") == model.quant
        assert 0 < model.gigabytes < 100
    assert len({model.repo for model in KNOWN.values()}) == len(KNOWN)


@given(st.text(st.sampled_from(string.ascii_letters + "/.:-_ \x00é"), max_size=30))
def test_any_text_is_a_model_or_refused(text: str) -> None:
    try:
        wanted = parse(text)
    except UnknownModel:
        return
    assert REPOSITORY.fullmatch(wanted.repo)
    assert ".." not in wanted.repo


def test_the_likeliest_projector_is_first() -> None:
    files = [
        RemoteFile(name, 1)
        for name in (
            "mmproj-F32.gguf", "mmproj-F16.gguf", "mmproj-Other-VL-8B-Q8_0.gguf", "mmproj-Some-VL-4B-BF16.gguf",
            "mmproj-Some-VL-8B-BF16.gguf", "b/mmproj-Some-VL-8B-F16.gguf", "Some-VL-8B-Q8_0.gguf",
        )
    ]  # fmt: skip
    assert [file.path for file in projectors_for("Some-VL-8B-Q4_K_M-00001-of-00002.gguf", files)] == [
        "mmproj-Some-VL-8B-BF16.gguf", "mmproj-Some-VL-4B-BF16.gguf", "mmproj-Other-VL-8B-Q8_0.gguf", "mmproj-F16.gguf",
        "mmproj-F32.gguf", "b/mmproj-Some-VL-8B-F16.gguf",
    ]  # fmt: skip
    assert projector_for("plain.gguf", files[-1:]) is None
