"""Texts with pictures in them: against float64 formulas, on every backend, in any pieces, from the prefix cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.queue.stage import machine
from tests.helpers import logits_of, random_tokens, run_tokens, soon
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, Made, write_case
from tests.models.families.common import Net
from tests.models.test_families import ROW, WHOLE
from tests.models.test_logits import quietest_row
from tests.models.truth import error
from zinc_rt.engine.engine import Device, Engine, EngineError, Options, SequenceChunk
from zinc_rt.engine.pictures import KEPT_BYTES, Pictures, PlacedPicture, picture_row
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define
from zinc_rt.models.definition import PictureInputs
from zinc_rt.models.errors import ModelError
from zinc_rt.models.pictures import with_pictures

KINDS = ("qwen3vl", "qwen2vl", "gemma3", "gemma4", "qwen35", "mistral3", "qwen3vlmoe")
"""Sections and deepstack, both ways on all layers and on some, a recurrent one, plain rows, experts."""
DEEP = {"qwen3vl": 3}
SECTIONED = ("qwen2vl", "qwen3vl", "qwen35", "qwen3vlmoe")
ONE, TWO = PlacedPicture(b"\1" * 32, 6, 3, 2), PlacedPicture(b"\2" * 32, 4, 2, 2)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


@cache
def made(folder: Path, name: str) -> Made:
    return write_case(folder / f"{name}.gguf", CASES[name])


def pictures_of(name: str) -> list[PlacedPicture]:
    """With lines and columns where positions have them."""
    return [p if name in SECTIONED else replace(p, columns=0, lines=0) for p in (ONE, TWO)]


def text_of(name: str) -> list[int]:
    """Words, a picture, words, another one, words."""
    words, (one, two) = random_tokens(3, 12, N_VOCAB - 2), pictures_of(name)
    return [*words[:4], *one.ids(0, 6), *words[4:7], *two.ids(0, 4), *words[7:]]


def rows_of(case: Made, picture: PlacedPicture) -> np.ndarray:
    """As large as embeddings behind their scale."""
    n = case.case.keys["embedding_length"]
    rng = np.random.default_rng(picture.n_rows)
    shape = picture.n_rows, n * (1 + DEEP.get(case.case.architecture, 0))
    return np.asarray(rng.standard_normal(shape), np.float32)


@contextmanager
def reading(case: Made, linux: Any = None, *, rows: bool = True, **options: Any) -> Iterator[Engine]:
    """An engine that reads pictures. rows: give it those of both."""
    with (
        GGUFFile.open(case.path) as file,
        Engine(replace(Options(n_ctx=320), **options), linux=linux) as engine,
    ):
        engine.load(file, with_pictures(define(file), file, DEEP.get(case.case.architecture, 0)))
        store = engine.cache.pictures
        assert store is not None
        for picture in pictures_of(case.case.architecture):
            store.register(picture)
            if rows:
                store.keep(picture, rows_of(case, picture))
        yield engine


class Lookup:
    """Rows of an embedding by token ids, and rows of pictures by negative ones."""

    def __init__(self, table: np.ndarray, given: dict[int, np.ndarray] | None) -> None:
        self.table, self.given = table, given

    def __getitem__(self, tokens: Sequence[int]) -> np.ndarray:
        if self.given is None:
            return self.table[[max(token, 0) for token in tokens]]
        return np.array([self.table[token] if token >= 0 else self.given[token] for token in tokens])


class PictureNet(Net):
    """The formulas of a text with pictures."""

    def __init__(self, case: Made, tokens: Sequence[int], **more: Any) -> None:
        super().__init__(case, **more)
        name, n = case.case.architecture, case.case.keys["embedding_length"]
        self.tokens, self.n = tokens, n
        scale = np.sqrt(n) if name.startswith("gemma") else 1.0
        self.rows: dict[int, np.ndarray] = {}
        self.spans: list[range] = []
        for picture in pictures_of(name):
            values = rows_of(case, picture).astype(np.float64)
            self.rows |= dict(zip(picture.ids(0, picture.n_rows), values, strict=True))
            start = tokens.index(picture.ids(0, 1)[0])
            self.spans.append(range(start, start + picture.n_rows))
        self.given = {token: row[:n] / scale for token, row in self.rows.items()}

    def __getitem__(self, name: str) -> Any:
        if name == "token_embd.weight":
            return Lookup(self.t[name], self.given)
        return Lookup(self.t[name], None) if name == "per_layer_token_embd.weight" else self.t[name]

    def behind(self, layer: int, x: np.ndarray) -> np.ndarray:
        if layer >= DEEP.get(self.made.case.architecture, 0) or not self.does("deepstack"):
            return x
        own = slice((layer + 1) * self.n, (layer + 2) * self.n)
        return x + np.array([self.rows[t][own] if t < 0 else np.zeros(self.n) for t in self.tokens])

    def places(self, n: int, pairs: int) -> np.ndarray:
        if self.made.case.architecture not in SECTIONED or not self.does("sections"):
            return np.arange(n)[:, None]
        places, at = [], 0
        for token in self.tokens:
            if token >= 0:
                places.append((at, at, at))
                at += 1
                continue
            picture = ONE if token in ONE.ids(0, 6) else TWO
            row = picture_row(token)[1]
            places.append((at, at + row // picture.columns, at + row % picture.columns))
            if row == picture.n_rows - 1:
                at += max(picture.columns, picture.lines)
        sections = self.keys["rope.dimension_sections"]
        axis = [d % 3 if d < 3 * sections[d % 3] else 0 for d in range(pairs)]
        if self.made.case.architecture == "qwen2vl":
            axis = [0] * sections[0] + [1] * sections[1] + [2] * sections[2]
        return np.array(places)[:, axis]

    def visible(self, n: int, window: int | None, *, causal: bool = True) -> np.ndarray:
        seen = super().visible(n, window, causal=causal)
        name = self.made.case.architecture
        if (name == "gemma3" or (name == "gemma4" and window is not None)) and self.does("both ways"):
            for span in self.spans:
                inside = slice(span.start, span.stop)
                seen[inside, inside] |= np.triu(np.ones((len(span), len(span)), bool))
        return seen


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint32)


@cache
def reference(folder: Path, name: str) -> np.ndarray:
    with reading(made(folder, name), kernels="reference", n_batch=32) as engine:
        return run_tokens(engine, engine.open_sequence(), text_of(name), 32)


@pytest.mark.parametrize("name", soon(KINDS[:5], KINDS))
def test_logits(name: str, folder: Path) -> None:
    case, tokens = made(folder, name), text_of(name)
    got = reference(folder, name)
    right = PictureNet(case, tokens)
    want = right.logits(tokens)
    assert error(got, want) < WHOLE
    assert quietest_row(got, want) < ROW
    wrong = {"deepstack"} if name in DEEP else set()
    wrong |= {"sections"} if name in SECTIONED else {"both ways"} if name.startswith("gemma") else set()
    for fault in wrong:
        assert error(PictureNet(case, tokens, wrong=(fault,)).logits(tokens), want) > 0.02, fault


@pytest.mark.parametrize("name", soon(("qwen3vl",), KINDS))
def test_texts_have_the_bits_that_they_have_without_pictures(name: str, folder: Path) -> None:
    case, tokens = made(folder, name), random_tokens(5, 24, N_VOCAB - 2)
    for kernels in ("reference", "native"):
        with reading(case, kernels=kernels, n_batch=32) as engine:
            got = run_tokens(engine, engine.open_sequence(), tokens, 24)
        want = logits_of(case.path, tokens, kernels=kernels)
        np.testing.assert_array_equal(bits(got), bits(want))


@pytest.mark.parametrize("name", soon(("qwen3vl", "gemma4", "qwen35"), KINDS))
def test_cpu(name: str, folder: Path) -> None:
    """Any threads; pieces that end in pictures, where rows do not see each other both ways."""
    case, tokens = made(folder, name), text_of(name)
    want = reference(folder, name)
    for threads, pieces in ((1, (len(tokens),)), (3, (10, 3, 9)), (3, (1,) * 4 + (6, 1, 1, 5, 5))):
        with reading(case, kernels="native", threads=threads, n_batch=32) as engine:
            seq, at, got = engine.open_sequence(), 0, []
            for n in pieces:
                got.append(run_tokens(engine, seq, tokens[at : at + n], n, at))
                at += n
        np.testing.assert_array_equal(bits(np.concatenate(got)), bits(want))
    if not name.startswith("gemma"):
        with reading(case, kernels="native", n_batch=32) as engine:
            got = [run_tokens(engine, engine.open_sequence(), tokens, 3)]
        np.testing.assert_array_equal(bits(got[0]), bits(want))


@pytest.mark.slow  # takes seconds for a model; `tests/kernels/test_rows.py` has what pictures add on the GPU
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("patience")
def test_gpu(name: str, folder: Path) -> None:
    case, tokens = made(folder, name), text_of(name)[:11]
    with (
        machine(shader=ShaderCore(), time_scale=100.0) as on,
        reading(case, on.process(), device=Device.gpu_kfd, n_ctx=32, n_batch=10) as engine,
    ):
        seq = engine.open_sequence()
        got = [run_tokens(engine, seq, tokens[:10], 10), run_tokens(engine, seq, tokens[10:], 1, 10)]
    np.testing.assert_array_equal(bits(np.concatenate(got)), bits(reference(folder, name)[:11]))


@pytest.mark.parametrize("name", ["qwen3vl", "gemma3"])
def test_beside_another_text_and_from_the_cache(name: str, folder: Path) -> None:
    case, tokens = made(folder, name), text_of(name)
    tokens = [*tokens[:16], *random_tokens(8, 6, N_VOCAB - 2), *tokens[16:]]  # the first picture within a page
    with reading(case, kernels="native", n_batch=64, n_slots=3) as engine:
        alone = engine.open_sequence()
        want = run_tokens(engine, alone, tokens, len(tokens))
        one, other = engine.open_sequence(None, b"own"), engine.open_sequence(None, b"other")
        half = [SequenceChunk(one, 0, tokens[:10]), SequenceChunk(one, 10, tokens[10:], range(len(tokens) - 10))]
        got = engine.step([SequenceChunk(other, 0, tokens[::-1][:5]), *half]).logits
        np.testing.assert_array_equal(bits(got), bits(want[10:]))
        engine.close_sequence(other)
        found = engine.open_sequence(tokens)
        assert engine.cache.length(found) == 16
        got = run_tokens(engine, found, tokens[16:], len(tokens) - 16, 16)
        np.testing.assert_array_equal(bits(got), bits(want[16:]))
        store = engine.cache.pictures
        assert store is not None
        engine.cache.check_integrity()
        changed = PlacedPicture(b"\3" * 32, 6, 3, 2)
        assert engine.cache.cached_prefix([*tokens[:4], *changed.ids(0, 6), *tokens[10:]]) == 0


def test_what_cannot_be(folder: Path) -> None:
    case = made(folder, "gemma3")
    tokens = text_of("gemma3")
    with reading(case, kernels="reference", n_batch=32, rows=False) as engine:
        store, seq = engine.cache.pictures, engine.open_sequence()
        assert store is not None
        with pytest.raises(EngineError, match="the rows of the picture at position 4 are gone"):
            engine.step([SequenceChunk(seq, 0, tokens)])
        one, two = pictures_of("gemma3")
        store.keep(one, rows_of(case, one))
        with pytest.raises(EngineError, match=r"a step takes all rows of a picture; .* end at 10, the chunk at 7"):
            engine.step([SequenceChunk(seq, 0, tokens[:7])])
        with pytest.raises(EngineError, match="a picture has 10 rows, the model takes up to 9"):
            store.register(PlacedPicture(b"\4" * 32, 10))
        with pytest.raises(EngineError, match="two pictures have the same number"):
            store.register(PlacedPicture(b"\1" * 31 + b"\0", 6))
        with pytest.raises(EngineError, match=r"rows of a picture are \(3, 64\), \(4, 64\) is needed"):
            store.keep(two, rows_of(case, two)[:3])
    refused = pytest.raises(EngineError, match="which one step has to take; n_batch is 5")
    with refused, reading(case, kernels="reference", n_batch=5, rows=False):
        pass


def test_rows_are_kept_within_a_bound() -> None:
    n = KEPT_BYTES // 4 // 3
    inputs = {"is_given": np.zeros(4, np.int32), "given": np.zeros((4, n), np.int32)}
    store = Pictures(PictureInputs(), 8, inputs)
    made_ = [PlacedPicture(bytes([i]) * 32, 1) for i in range(5)]
    for picture in made_:
        store.register(picture)
        store.keep(picture, np.zeros((1, n), np.float32), needed=(made_[0].number,))
    assert [store.has_rows(picture) for picture in made_] == [True, False, False, True, True]


def test_sizes_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.engine.pictures.KNOWN_PICTURES", 2)
    store = Pictures(PictureInputs(), 8, {"is_given": np.zeros(4, np.int32), "given": np.zeros((4, 1), np.int32)})
    made_ = [PlacedPicture(bytes([i]) * 32, 1) for i in range(3)]
    for picture in (*made_[:2], made_[0], made_[2]):
        store.register(picture)
    assert store.pictures_of([*made_[0].ids(0, 1), *made_[2].ids(0, 1), 5]) == (made_[0], made_[2])
    with pytest.raises(EngineError, match="rows of 1 pictures that were not shown"):
        store.pictures_of(made_[1].ids(0, 1))


def test_another_number_of_layers_is_refused(folder: Path) -> None:
    with GGUFFile.open(made(folder, "qwen3vl").path) as file, pytest.raises(ModelError, match="behind 3 layers"):
        with_pictures(define(file), file, 1)
