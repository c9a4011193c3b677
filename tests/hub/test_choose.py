"""Names of models, and which file of a repository is meant."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.hub.choose import RemoteFile, choose, models_of, quant_of
from zinc_rt.hub.errors import NoSuchFile, UnknownModel
from zinc_rt.hub.known import KNOWN
from zinc_rt.hub.reference import REPOSITORY, Wanted, is_known, parse


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("UD-Q4_K_XL/Qwen3-235B-A22B-UD-Q4_K_XL-00001-of-00003.gguf", "Q4_K_XL"),
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
    assert [file.path for file in choose(Wanted("x/a"), there)] == ["a-Q4_K_M.gguf"]
    assert [file.path for file in choose(Wanted("x/a", "Q2_K"), there)] == ["a-Q2_K.gguf"]
    with pytest.raises(NoSuchFile, match=r"x/a has no Q5_0; it has Q2_K, Q4_K_M, Q8_0"):
        choose(Wanted("x/a", "Q5_0"), there)
    with pytest.raises(NoSuchFile, match="no GGUF file"):
        choose(Wanted("x/a"), files("model.safetensors"))


def test_parts_come_in_order_and_whole() -> None:
    parts = files("a-Q8_0-00002-of-00002.gguf", "a-Q8_0-00001-of-00002.gguf", "a-Q4_0-00001-of-00002.gguf")
    assert list(models_of(parts)) == ["a-Q8_0-00001-of-00002.gguf"]
    assert [file.path[7:12] for file in choose(Wanted("x/a", "Q8_0"), parts)] == ["00001", "00002"]
    with pytest.raises(NoSuchFile, match="it has Q8_0"):
        choose(Wanted("x/a", "Q4_0"), parts)


def test_a_format_without_a_name_of_its_own_is_looked_for_in_the_file_name() -> None:
    there = files("Phi-3-mini-4k-instruct-fp16.gguf", "Phi-3-mini-4k-instruct-q4.gguf")
    assert choose(Wanted("x/a", "Q4"), there)[0].path == "Phi-3-mini-4k-instruct-q4.gguf"


def test_names() -> None:
    assert parse("qwen3-8b") == Wanted("Qwen/Qwen3-8B-GGUF", "Q4_K_M", "qwen3-8b")
    assert parse("Qwen3-8B:q8_0") == Wanted("Qwen/Qwen3-8B-GGUF", "Q8_0", "qwen3-8b")
    assert parse("a/b") == Wanted("a/b")
    assert str(parse("a/b:Q4_0")) == "a/b:Q4_0"
    assert is_known("qwen3-8b:Q8_0")
    assert not is_known("a/b")
    with pytest.raises(UnknownModel, match=r"did you mean .*qwen3-8b"):
        parse("qwen3-8")


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
