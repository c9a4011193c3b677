"""A model with its projector, as the Python API and `zinc show` have it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.vision import towers
from tests.vision.test_towers import formula, picture
from zinc_rt.cli.summary import summarize
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.models.errors import ModelError
from zinc_rt.vision.picture import PictureError


@pytest.fixture(scope="module")
def width() -> int:
    """Elements of a row of the model in the package."""
    with zinc_rt.load() as model:
        return model.info.n_embd


def test_rows_of_a_picture(width: int, tmp_path: Path) -> None:
    tiny, shown = towers.write(tmp_path / "mmproj.gguf", "pixtral", n_out=width), picture(24, 32)
    with zinc_rt.load(mmproj=tiny.path) as model:
        before = model.generate("Once", max_tokens=4, temperature=0).text
        got = model.image_embeddings(shown.pixels)
        assert model.generate("Once", max_tokens=4, temperature=0).text == before
        with pytest.raises(PictureError, match="cannot read"):
            model.image_embeddings(tmp_path / "none.png")
    want = formula(tiny, shown)
    assert got.shape == (len(want), width)
    assert np.abs(got - want).max() / np.sqrt((want**2).mean()) < 1e-3


def test_wrong_projectors(width: int, tmp_path: Path) -> None:
    other = towers.write(tmp_path / "mmproj.gguf", "gemma3", n_out=width + 8).path
    with pytest.raises(ModelError, match=f"has {width}: it is the projector of another model"):
        zinc_rt.load(mmproj=other)
    deep = towers.write(tmp_path / "deep.gguf", "qwen3vl_merger", n_out=width).path
    with pytest.raises(ModelError, match="behind 0 layers, the projector has rows for 2"):
        zinc_rt.load(mmproj=deep)
    with pytest.raises(ModelError, match="is needed"):
        zinc_rt.load(mmproj=built_in_model())
    with zinc_rt.load() as model, pytest.raises(UsageError, match="load it with mmproj=FILE"):
        model.image_embeddings(b"")


def test_what_show_says(tmp_path: Path) -> None:
    path = towers.write(tmp_path / "mmproj.gguf", "qwen3vl_merger").path
    with GGUFFile.open(path) as file:
        summary = summarize(file)
    assert summary.runs
    assert (
        summary.figures["projector"] == "qwen3vl_merger, for text models with rows of 40 elements, 2 deepstack layers"
    )
