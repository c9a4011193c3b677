"""Embeddings: what the vectors are, what they do not depend on, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.cli.tiny import write_tiny_model
from zinc_rt.engine.batch import EngineError
from zinc_rt.errors import UsageError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.llm.embedding import Pooling
from zinc_rt.models.errors import ModelError

TEXTS = ["Once upon a time", "the dog", "a", "There was a little girl who had a red ball. " * 12, "the dog"]


@pytest.fixture(scope="module")
def reference() -> zinc_rt.Model:
    with zinc_rt.load(device="cpu", kernels="reference", embeddings=True, pooling="mean") as model:
        yield model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="module")
def hidden(tiny: Path) -> list[np.ndarray]:
    """Rows before the head, solved for from logits of the model as it generates: f64[n_tokens, n_embd] a text."""
    with zinc_rt.load(tiny, device="cpu") as model:
        head = model.file.raw("output.weight").view("<f4").astype(np.float64)
        logits = [model.logits(model.tokenize(text[:200])).astype(np.float64) for text in TEXTS]
        return [np.linalg.lstsq(head, rows.T, rcond=None)[0].T for rows in logits]


@pytest.mark.parametrize("pooling", list(Pooling))
def test_vectors_are_pooled_rows_of_length_1(tiny: Path, hidden: list[np.ndarray], pooling: Pooling) -> None:
    pick = {Pooling.MEAN: lambda h: h.mean(0), Pooling.CLS: lambda h: h[0], Pooling.LAST: lambda h: h[-1]}
    want = np.stack([pick[pooling](rows) / np.linalg.norm(pick[pooling](rows)) for rows in hidden])
    with zinc_rt.load(tiny, device="cpu", embeddings=True, pooling=str(pooling)) as model:
        got = model.embed([text[:200] for text in TEXTS])
    assert got.dtype == np.float32
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 1e-5
    for other in set(Pooling) - {pooling}:
        wrong = np.stack([pick[other](rows) / np.linalg.norm(pick[other](rows)) for rows in hidden])
        assert np.abs(got - wrong).max() > 1e-2


@pytest.mark.parametrize("n_batch", [7, 64, None])
def test_a_vector_depends_on_its_text_alone(reference: zinc_rt.Model, n_batch: int | None) -> None:
    want = reference.embed(TEXTS, normalize=False)
    assert (want[1] == want[4]).all()
    with zinc_rt.load(device="cpu", embeddings=True, pooling="mean", n_batch=n_batch) as model:
        assert (model.embed(TEXTS, normalize=False) == want).all()
        assert (model.embed(TEXTS[::-1], normalize=False)[::-1] == want).all()
        for text, vector in zip(TEXTS, want, strict=True):
            assert (model.embed([text], normalize=False)[0] == vector).all()
        model.engine.cache.check_integrity()


@pytest.mark.slow  # takes long; `tests/models/test_embedders.py` has a small embedder
def test_the_emulated_gpu_gives_the_same(reference: zinc_rt.Model) -> None:
    texts = [[5, 6, 7], [8]]
    with zinc_rt.load(device="emu", embeddings=True, pooling="mean") as model:
        assert (model.embed(texts) == reference.embed(texts)).all()


def test_fewer_dimensions(reference: zinc_rt.Model) -> None:
    whole, cut = reference.embed(TEXTS[:2], normalize=False), reference.embed(TEXTS[:2], dimensions=8)
    assert cut.shape == (2, 8)
    short = whole[:, :8].astype(np.float64)
    assert np.abs(cut - short / np.linalg.norm(short, axis=1, keepdims=True)).max() < 1e-7
    assert (reference.embed([reference.tokenize(TEXTS[0])], normalize=False) == whole[:1]).all()
    assert reference.embed([]).shape == (0, reference.info.n_embd)


def test_what_is_refused(reference: zinc_rt.Model) -> None:
    for dimensions in (0, reference.info.n_embd + 1, True):
        with pytest.raises(UsageError, match="from 1 to"):
            reference.embed(["a"], dimensions=dimensions)
    for texts in (None, 5, b"ab", {"a": 1}):
        with pytest.raises(UsageError, match="give a list of texts"):
            reference.embed(texts)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="text 1"):
        reference.embed(["a", 1])  # type: ignore[list-item]
    with pytest.raises(TokenOutOfRange, match="text 0: token id -1"):
        reference.embed([[1, -1]])
    with pytest.raises(UsageError, match="text 0 has no tokens"):
        reference.embed([[]])
    with pytest.raises(EngineError, match=r"text 1 has \d+ tokens, the context holds"):
        reference.embed(["a", "word " * 5000])
    with pytest.raises(UsageError, match="embeddings=False"):
        reference.generate("a")
    with pytest.raises(UsageError, match="embeddings=False"):
        reference.logits([1])
    with pytest.raises(UsageError, match="embeddings=False"):
        reference.cached_tokens([1, 2])
    with pytest.raises(UsageError, match="it must be mean, cls, last"):
        zinc_rt.load(embeddings=True, pooling="max")
    with pytest.raises(UsageError, match="add embeddings=True"):
        zinc_rt.load(pooling="mean")
    with zinc_rt.load(device="cpu") as model, pytest.raises(UsageError, match="embeddings=True"):
        model.embed(["a"])


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    with zinc_rt.load(write_tiny_model(tmp_path / "m.gguf", pooling=3), device="cpu") as model:
        assert model.embedder is not None
        assert model.embedder.pooling is Pooling.LAST
    with zinc_rt.load(write_tiny_model(tmp_path / "m.gguf", pooling=3), device="cpu", embeddings=False) as model:
        assert model.embedder is None
    with zinc_rt.load(write_tiny_model(tmp_path / "n.gguf", pooling=0), device="cpu") as model:
        assert model.embedder is None
    with pytest.raises(ModelError, match="pooling_type is 9; known are"):
        zinc_rt.load(write_tiny_model(tmp_path / "u.gguf", pooling=9))
