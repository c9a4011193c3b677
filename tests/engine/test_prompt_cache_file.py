"""Texts in files: what one engine saved another goes on from, on any backend, with the bits of a text computed anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zinc_rt
from tests.helpers import QWEN3, T, engine_for, random_tokens, run_tokens, write_model
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.backends.base import CachePages
from zinc_rt.backends.cpu.cache_layout import cpu_layout
from zinc_rt.backends.gpu.state_io import GPU_LAYOUT
from zinc_rt.engine import prompt_cache_file
from zinc_rt.engine.engine import Device, Engine, SequenceChunk
from zinc_rt.engine.prompt_cache_file import EngineError
from zinc_rt.errors import BackendError

TEXT = random_tokens(3, 70, 60)
FULL = len(TEXT) // 16 * 16
WIDE = replace(QWEN3, weights=T.Q8_0, n_heads=4, n_kv_heads=2, head_dim=32)
MODELS = ("qwen3", "qwen35", "deepseek2", "wide", "shallow")
"""Dense, with recurrent layers, with one cache for keys and values, with heads that blocks divide; of a layer."""
SHA = "ab" * 32


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saved")
    made = {name: write_case(folder / f"{name}.gguf", CASES[name], T.Q8_0).path for name in MODELS[:3]}
    shallow = write_model(folder / "shallow.gguf", replace(WIDE, n_layers=1, n_ff=32)).path
    return {**made, "wide": write_model(folder / "wide.gguf", WIDE).path, "shallow": shallow}


def compute(engine: Engine, slot: int, start: int, end: int) -> np.ndarray:
    part = TEXT[start:end]
    return engine.step([SequenceChunk(slot, start, part, range(len(part)))]).logits.copy().view(np.uint32)


def saved(path: Path, file: Path, **options: object) -> tuple[int, np.ndarray]:
    """Save the text; how many tokens, and the logits behind them."""
    with engine_for(path, n_batch=100, n_ctx=128, **options) as engine:
        slot = engine.open_sequence()
        engine.step([SequenceChunk(slot, 0, TEXT[:FULL])])
        engine.cache.checkpoint(slot)
        rest = compute(engine, slot, FULL, len(TEXT))
        return prompt_cache_file.save(engine, slot, file, SHA, "a model"), rest


def went_on(path: Path, file: Path, again: Path | None = None, **options: object) -> np.ndarray:
    """Load the text into a new engine, forget the sequence, and go on in another one. again: where it is saved then."""
    with engine_for(path, n_batch=100, n_ctx=128, **options) as engine:
        text = prompt_cache_file.read(file)
        ids = prompt_cache_file.checked_tokens(text, engine, SHA, N_VOCAB)
        slot = engine.open_sequence()
        prompt_cache_file.load(engine, slot, text, ids)
        engine.cache.check_integrity()
        assert engine.cache.tokens(slot) == TEXT[:FULL]
        engine.close_sequence(slot)
        slot = engine.open_sequence(TEXT)
        assert engine.cache.length(slot) == FULL
        out = compute(engine, slot, FULL, len(TEXT))
        engine.cache.check_integrity()
        if again is not None:
            prompt_cache_file.save(engine, slot, again, SHA, "a model")
        return out


@pytest.mark.parametrize(
    ("name", "kv"),
    [
        ("qwen35", "f16"),
        pytest.param("deepseek2", "f16", marks=pytest.mark.slow),
        pytest.param("wide", "f16", marks=pytest.mark.slow),
        ("wide", "q8_0"),
    ],
)
def test_what_one_backend_saved_another_goes_on_from(
    paths: dict[str, Path], name: str, kv: str, tmp_path: Path
) -> None:
    files = {}
    for kernels in ("reference", "native"):
        files[kernels] = tmp_path / kernels
        count, rest = saved(paths[name], files[kernels], kernels=kernels, kv=kv)
        assert count == FULL
    assert files["reference"].read_bytes() == files["native"].read_bytes()
    for kernels in ("reference", "native"):
        assert np.array_equal(went_on(paths[name], files["native"], kernels=kernels, kv=kv), rest)


def test_a_gpu_goes_on_and_saves_the_same(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of a cache; its own steps write pages as it reads them here, or the logits would be others."""
    monkeypatch.setitem(globals(), "TEXT", TEXT[:17])  # steps of the emulator take long
    monkeypatch.setitem(globals(), "FULL", 16)
    files = [tmp_path / name for name in ("cpu", "gpu")]
    _, rest = saved(paths["shallow"], files[0], kv="q8_0")
    assert np.array_equal(went_on(paths["shallow"], *files, kv="q8_0", device=Device.emu), rest)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow  # steps of many rows on the emulator
@pytest.mark.parametrize(("name", "kv"), [("qwen35", "f16"), ("wide", "q8_0")])
def test_a_gpu_goes_on_from_what_the_processor_saved(
    paths: dict[str, Path], name: str, kv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TEXT", TEXT[:17])  # steps of the emulator take long
    monkeypatch.setitem(globals(), "FULL", 16)
    _, rest = saved(paths[name], tmp_path / "cpu", kv=kv)
    saved(paths[name], tmp_path / "gpu", kv=kv, device=Device.emu)
    assert (tmp_path / "cpu").read_bytes() == (tmp_path / "gpu").read_bytes()
    assert np.array_equal(went_on(paths[name], tmp_path / "cpu", kv=kv, device=Device.emu), rest)


CACHES = st.builds(
    CachePages,
    st.just("k"),
    st.just(0),
    values=st.booleans(),
    quantized=st.booleans(),
    n_heads=st.integers(1, 3),
    width=st.sampled_from([32, 64, 96]),
)


@settings(max_examples=40, deadline=None)
@given(CACHES, st.integers(1, 3), st.sampled_from([0, 0x80]), st.randoms(use_true_random=False))
def test_layouts_lose_nothing(cache: CachePages, n: int, flip: int, random) -> None:  # type: ignore[no-untyped-def]
    pages = np.frombuffer(random.randbytes(n * cache.page_bytes), np.uint8).reshape(n, cache.page_bytes)
    for layout in (cpu_layout(flip), GPU_LAYOUT):
        there = layout.own(pages, cache)
        assert there.shape == pages.shape
        assert np.array_equal(layout.declared(there, cache), pages)


@pytest.fixture(scope="module")
def file(paths: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "text"
    saved(paths["qwen3"], path, kernels="reference")
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: b"GGUF" + d[4:], "is no saved text"),
        (lambda d: d[:6], "is no saved text"),
        (lambda d: d[:8] + b"\x09" + d[9:], "has format 9, this version reads 1"),
        (lambda d: d[:12] + b"\xff\xff\xff\xff" + d[16:], "its header cannot be read"),
        (lambda d: d[:20] + b"{" + d[21:], "its header cannot be read"),
        (lambda d: d[:-1], "bytes, its header speaks of"),
        (lambda d: d + b"\0", "bytes, its header speaks of"),
        (lambda d: d[:-100] + bytes([d[-100] ^ 1]) + d[-99:], "have not the hash"),
        (lambda d: d.replace(b'"tokens": 64', b'"tokens": 65'), "its header cannot be read"),
        (lambda d: d.replace(b'"tokens": 64', b'"tokens": -1'), "its header cannot be read"),
    ],
)
def test_damaged_files_are_refused(file: Path, tmp_path: Path, change, says: str) -> None:  # type: ignore[no-untyped-def]
    broken = tmp_path / "broken"
    broken.write_bytes(change(file.read_bytes()))
    with pytest.raises(EngineError, match=says):
        prompt_cache_file.read(broken)


def test_texts_of_other_models_are_refused(paths: dict[str, Path], file: Path, tmp_path: Path) -> None:
    text = prompt_cache_file.read(file)
    with engine_for(paths["wide"], n_batch=16, n_ctx=128, kernels="reference", kv="q8_0") as engine:
        with pytest.raises(EngineError, match=r"another model \('a model', SHA-256 abababababababab"):
            prompt_cache_file.checked_tokens(text, engine, "cd" * 32, N_VOCAB)
        with pytest.raises(EngineError, match="a KV cache of 'f16', this one is q8_0; load with that format"):
            prompt_cache_file.checked_tokens(text, engine, SHA, N_VOCAB)
    with engine_for(paths["qwen3"], n_batch=16, n_ctx=64, kernels="reference") as engine:
        with pytest.raises(EngineError, match="64 tokens, which leaves no room in the context of 64"):
            prompt_cache_file.checked_tokens(text, engine, SHA, N_VOCAB)
        with pytest.raises(EngineError, match="nothing to save"):
            prompt_cache_file.save(engine, engine.open_sequence(), tmp_path / "none", SHA, "")
        with pytest.raises(BackendError, match="the graph has no KV cache 'x'"):
            engine.cache.read_pages("x", [0])
    with (
        engine_for(paths["qwen35"], n_batch=16, n_ctx=128, kernels="reference") as engine,
        pytest.raises(EngineError, match="other KV caches"),
    ):
        prompt_cache_file.checked_tokens(text, engine, SHA, N_VOCAB)


def test_texts_with_states_that_the_model_has_not_are_refused(paths: dict[str, Path], file: Path) -> None:
    text = prompt_cache_file.read(file)
    with engine_for(paths["qwen3"], n_batch=16, n_ctx=128, kernels="reference") as engine:
        with pytest.raises(EngineError, match="outside of the vocabulary of 3"):
            prompt_cache_file.checked_tokens(text, engine, SHA, 3)
        for states in ({"x": (1 << 30, 1 << 30)}, {"x": (2,)}):
            with pytest.raises(EngineError, match="other recurrent states"):
                prompt_cache_file.checked_tokens(replace(text, states=states), engine, SHA, N_VOCAB)


def test_what_a_file_calls_itself_is_shown_cut_and_escaped(paths: dict[str, Path], file: Path) -> None:
    text, odd = prompt_cache_file.read(file), "\x1b[31m" + "a" * 100_000
    with engine_for(paths["qwen3"], n_batch=16, n_ctx=128, kernels="reference") as engine:
        for change in ({"name": odd, "model": odd}, {"kv": odd}):
            with pytest.raises(EngineError) as refused:
                prompt_cache_file.checked_tokens(replace(text, **change), engine, SHA, N_VOCAB)  # type: ignore[arg-type]
            assert "\x1b" not in str(refused.value)
            assert len(str(refused.value)) < len(str(file)) + 300


def test_tokens_are_read_only_once_the_rest_fits(paths: dict[str, Path], file: Path, tmp_path: Path) -> None:
    """A header may speak of 2**31 of them."""
    data = bytearray(file.read_bytes().replace(b'"tokens": 64', b'"tokens": 2147483632'))
    data[12:16] = (int.from_bytes(data[12:16], "little") + 8).to_bytes(4, "little")
    (tmp_path / "many").write_bytes(data)
    with pytest.raises(EngineError, match="its header speaks of"):
        prompt_cache_file.read(tmp_path / "many")
    text = replace(prompt_cache_file.read(file), n_tokens=2**31 - 16, path=tmp_path / "none")
    with (
        engine_for(paths["qwen3"], n_batch=16, n_ctx=128, kernels="reference") as engine,
        pytest.raises(EngineError, match="holds 2147483632 tokens"),
    ):
        prompt_cache_file.checked_tokens(text, engine, SHA, N_VOCAB)


def test_a_failed_load_leaves_nothing(paths: dict[str, Path], file: Path, tmp_path: Path) -> None:
    text = prompt_cache_file.read(file)
    with engine_for(paths["qwen3"], n_batch=100, n_ctx=128, kernels="reference") as engine:
        free = engine.cache.free_pages
        slot = engine.open_sequence()
        Path(shorter := tmp_path / "shorter").write_bytes(file.read_bytes()[: text.contents + 10])
        with pytest.raises(EngineError, match="became shorter"):
            prompt_cache_file.load(engine, slot, replace(text, path=shorter), TEXT[:FULL])
        assert engine.cache.length(slot) == 0
        assert engine.cache.free_pages == free
        engine.cache.check_integrity()
        assert len(run_tokens(engine, slot, TEXT, 100)) == len(TEXT)


def test_a_file_that_cannot_be_written_leaves_nothing(paths: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be written: No such file or directory"):
        saved(paths["qwen3"], tmp_path / "no" / "file", kernels="reference")
    assert [*tmp_path.iterdir()] == []


def test_a_model_goes_on_from_a_file(tmp_path: Path) -> None:
    prompt = "Once upon a time there was a fox named Tim who lived at the edge of a small green wood. One day he"
    file = tmp_path / "fox.state"
    with zinc_rt.load() as model:
        text = model.generate(prompt, seed=3, max_tokens=20).text
        count = model.save_state(file, prompt)
        assert count == len(model.tokenize(prompt)) // 16 * 16 > 0
        ids = model.load_state(file)
        with pytest.raises(EngineError, match="nothing to save"):
            model.save_state(tmp_path / "short", "Once")
    with zinc_rt.load(threads=1, n_ctx=128) as model:
        assert model.cached_tokens(model.tokenize(prompt)) == 0
        assert model.load_state(file) == ids == model.tokenize(prompt)[:count]
        made = model.generate(prompt, seed=3, max_tokens=20)
        assert made.text == text
        assert made.stats.cached_tokens == count
    with zinc_rt.load(kv="q8_0") as model, pytest.raises(EngineError, match="load with that format"):
        model.load_state(file)
    with zinc_rt.load(n_ctx=count) as model, pytest.raises(EngineError, match="no room"):
        model.load_state(file)
    assert [*tmp_path.iterdir()] == [file]
