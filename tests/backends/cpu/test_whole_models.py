"""Whole models: the native kernels give the reference's logits, however a text is cut, whatever shares a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.backends.cpu.both import LEVELS, assert_same, on_levels
from tests.helpers import LLAMA, QKV, QWEN2, QWEN3, Spec, T, engine_for, random_tokens, run_tokens, soon, write_model
from zinc_rt.engine.engine import Engine, SequenceChunk, StepResult

# "llama-mixed" and "qwen2-short-rows" mix formats as files do that are made for a size: sensitive matrices have more
# bits, and rows that are no multiple of 256 fall back to blocks of 32.
WIDE = {"n_embd": 256, "n_ff": 512, "head_dim": 64}
SPECS: dict[str, Spec] = {
    "llama-q4_0": replace(LLAMA, weights=T.Q4_0, biases=(*QKV, "attn_output", "ffn_gate", "ffn_down")),
    "llama-q4_k_m": replace(
        LLAMA, weights=T.Q4_K, formats=dict.fromkeys(("attn_v", "down", "output", "embd"), T.Q6_K), **WIDE
    ),
    "qwen2-q5_1-bf16": replace(QWEN2, weights=T.Q5_1, formats={"attn_k": T.BF16, "output": T.F16}, n_kv_heads=1),
    "qwen2-q5_k": replace(QWEN2, weights=T.Q5_K, formats={"embd": T.Q4_1, "output": T.Q5_0}, **WIDE),
    "qwen3-q8_0": replace(QWEN3, weights=T.Q8_0, tied=True, n_kv_heads=4),
    "llama-mixed": replace(
        LLAMA,
        weights=T.IQ4_XS,
        formats={"attn_v": T.Q5_K, "attn_k": T.Q2_K, "attn_output": T.MXFP4, "down": T.Q3_K, "output": T.Q6_K,
                 "embd": T.Q2_K},
        n_layers=1, **WIDE,
    ),
    "qwen2-short-rows": replace(
        QWEN2,
        weights=T.Q3_K,
        formats={"down": T.IQ4_NL, "gate": T.IQ4_XS, "embd": T.IQ4_NL, "attn_v": T.NVFP4, "attn_k": T.IQ2_XS,
                 "attn_q": T.IQ3_S, "attn_output": T.IQ3_XXS, "output": T.Q8_0},
        n_layers=1, n_embd=256, n_ff=352, head_dim=64,
    ),
    "qwen3-f32": replace(QWEN3, n_embd=48, n_ff=100, n_vocab=67),
    "llama-partial": replace(LLAMA, weights=T.Q4_1, rope_dim=8, n_layers=1, n_heads=8, n_kv_heads=1),
}  # fmt: skip
SOON = ("llama-q4_k_m", "qwen3-q8_0")
"""The others are slow tests: their kernels take long to compile. `test_products.py` tries each format's products,
`test_heads.py` rotations of a part of a head, and tests of architectures have float32 throughout.
"""
LEAST = ("qwen3-q8_0",)
"""Also on the least level."""
LENGTH = 70
CHUNKS = (1, 7, 16, 64, LENGTH)


@pytest.fixture(scope="module", params=soon(SOON, SPECS))
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", SPECS[request.param]).path


@contextmanager
def pair(path: Path, **options: object) -> Iterator[tuple[Engine, Engine]]:
    """A native engine and one with reference kernels."""
    native = {name: options.pop(name) for name in ("isa", "threads") if name in options}
    with ExitStack() as stack:
        first = stack.enter_context(engine_for(path, **native, **options))
        yield first, stack.enter_context(engine_for(path, kernels="reference", **options))


def same(got: StepResult, want: StepResult, where: str) -> None:
    assert_same(got.logits.view(np.uint32), want.logits.view(np.uint32), where)
    assert got.tokens.tolist() == want.tokens.tolist(), where


@cache
def reference_logits(path: Path) -> tuple[list[int], np.ndarray]:
    tokens = random_tokens(1, LENGTH, 61)
    with engine_for(path, n_ctx=96, n_batch=LENGTH, kernels="reference") as engine:
        return tokens, run_tokens(engine, engine.open_sequence(), tokens, LENGTH)


@pytest.mark.parametrize(("path", "isa"), on_levels(SPECS, LEAST, SOON), indirect=["path"])
def test_chunks(path: Path, isa: str) -> None:
    tokens, want = reference_logits(path)
    for threads, chunks in ((1, CHUNKS), (3, (7, LENGTH)), (4, (16,))):
        with engine_for(path, n_ctx=96, n_batch=LENGTH, isa=isa, threads=threads, n_slots=len(chunks)) as engine:
            for chunk in chunks:
                got = run_tokens(engine, engine.open_sequence(), tokens, chunk)
                assert_same(got.view(np.uint32), want.view(np.uint32), f"{isa}, {threads} threads, chunks of {chunk}")


@pytest.mark.parametrize("path", soon(LEAST, SPECS), indirect=True)
def test_mixtures_of_sequences(path: Path) -> None:
    """Up to 16 sequences at all stages of their texts, ends and beginnings included, pages taken and given back."""
    rng = np.random.default_rng(3)
    with pair(path, n_ctx=48, n_batch=40, n_slots=16, threads=2) as engines:
        lengths: dict[int, int] = {}
        for number in range(14):
            if len(lengths) < 16:
                for _ in range(int(rng.integers(1, 6))):
                    if len(lengths) < 16:
                        a, b = (e.open_sequence() for e in engines)
                        assert a == b
                        lengths[a] = 0
            rows, room = [], 40
            for slot in rng.permutation(list(lengths)):
                n = min(int(rng.choice([0, 1, 1, 1, 5, 17])), 48 - lengths[slot], room)
                if n:
                    wanted = rng.permutation(n)[: rng.integers(0, n + 1)]
                    rows.append(SequenceChunk(int(slot), lengths[slot], rng.integers(0, 61, n), wanted.tolist()))
                    lengths[slot] += n
                    room -= n
            if rows:
                same(*(e.step(rows) for e in engines), f"step {number}")
            for slot in list(lengths):
                if rng.random() < 0.15:
                    for engine in engines:
                        engine.close_sequence(slot)
                    del lengths[slot]
                elif rng.random() < 0.15:
                    lengths[slot] = int(rng.integers(0, lengths[slot] + 1))
                    for engine in engines:
                        engine.truncate(slot, lengths[slot])
            for engine in engines:
                engine.cache.check_integrity()


@pytest.mark.parametrize("threads", soon((2,), (1, 2, 4)))
def test_across_the_seams_of_attention(threads: int, tmp_path: Path) -> None:
    """Past 256 and 512 positions, in runs and one by one, split up among threads and not."""
    spec = replace(QWEN3, weights=T.Q8_0, n_layers=1, n_heads=4, n_kv_heads=2, head_dim=16)
    tokens = random_tokens(9, 600, spec.n_vocab)
    with pair(write_model(tmp_path / "long.gguf", spec).path, n_ctx=600, n_batch=300, threads=threads) as engines:
        slots = [e.open_sequence() for e in engines]
        at = 0
        for n in (250, 3, 1, 1, 1, 1, 1, 4, 240, *[1] * 12, 80):
            part = SequenceChunk(slots[0], at, tokens[at : at + n], logits_indices=range(n))
            assert slots[0] == slots[1]
            same(*(e.step([part]) for e in engines), f"{n} rows at {at}")
            at += n


@pytest.mark.slow
@pytest.mark.parametrize("isa", LEVELS)
def test_every_number_of_threads_and_chunk(path: Path, isa: str) -> None:
    tokens, want = reference_logits(path)
    for threads in (1, 2, 3, 4, 7, 16):
        with engine_for(path, n_ctx=96, n_batch=LENGTH, isa=isa, threads=threads) as engine:
            for chunk in range(1, LENGTH + 1):
                slot = engine.open_sequence()
                got = run_tokens(engine, slot, tokens, chunk)
                assert_same(got.view(np.uint32), want.view(np.uint32), f"{isa}, {threads} threads, chunks of {chunk}")
                engine.close_sequence(slot)
