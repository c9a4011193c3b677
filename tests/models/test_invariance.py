"""The same rows give the same bits: however prompts are cut, whatever else is in a step, whichever pages they get.

With the native kernels, compared with the reference ones; those alone are slow, `test_families.py` cuts texts for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import LLAMA, QWEN2, QWEN3, Spec, T, Tiny, engine_for, random_tokens, run_tokens, soon, write_model
from zinc_rt.backends.select import KERNELS, Kernels
from zinc_rt.engine.engine import Engine, SequenceChunk

SPECS: dict[str, Spec] = {
    "qwen3-q8_0": replace(QWEN3, weights=T.Q8_0),
    "llama-q4_k-q6_k": replace(
        LLAMA, weights=T.Q4_K, formats=dict.fromkeys(("attn_v", "down", "output"), T.Q6_K), n_embd=256, n_ff=256,
        n_heads=2, n_kv_heads=1, head_dim=128, n_vocab=40,
    ),
    "qwen2-f16": replace(QWEN2, weights=T.F16, n_layers=1, n_embd=32, n_ff=40, n_heads=2, n_kv_heads=1, head_dim=16),
}  # fmt: skip
LENGTHS = (21, 66, 33, 5)


def assert_same(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


SLOW = pytest.param("llama-q4_k-q6_k", marks=pytest.mark.slow)
"""`tests/backends/cpu/test_whole_models.py` cuts a text of this kind in each run."""


@pytest.fixture(scope="module", params=[SLOW if name in SLOW.values else name for name in SPECS])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return write_model(tmp_path_factory.mktemp("models") / "tiny.gguf", SPECS[request.param])


@pytest.fixture(scope="module")
def prompts(tiny: Tiny) -> list[list[int]]:
    return [random_tokens(i, n, tiny.spec.n_vocab) for i, n in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def alone(tiny: Tiny, prompts: list[list[int]]) -> list[np.ndarray]:
    """The logits of each prompt run by itself in one step of the reference kernels, on an engine of its own."""
    out = []
    for prompt in prompts:
        with engine_for(tiny.path, n_batch=len(prompt), kernels="reference") as engine:
            out.append(run_tokens(engine, engine.open_sequence(), prompt, len(prompt)))
    return out


@pytest.fixture(params=[pytest.param(k, marks=pytest.mark.slow) if k == "reference" else k for k in KERNELS])
def engine(request: pytest.FixtureRequest, tiny: Tiny) -> Iterator[Engine]:
    with engine_for(tiny.path, n_batch=96, n_slots=4, n_ctx=96, kernels=request.param) as made:
        yield made
        made.cache.check_integrity()


@pytest.mark.parametrize("chunk", soon((7,), (1, 7, 16, 64)))  # `test_whole_models.py` has the others
def test_chunks(chunk: int, engine: Engine, prompts: list[list[int]], alone: list[np.ndarray]) -> None:
    for prompt, want in zip(prompts[: 1 if chunk == 1 else 2], alone, strict=False):
        slot = engine.open_sequence()
        assert_same(run_tokens(engine, slot, prompt, chunk), want)


def test_uneven_chunks(engine: Engine, prompts: list[list[int]], alone: list[np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(2):
        slot, at, parts = engine.open_sequence(), 0, []
        while at < len(prompts[1]):
            n = min(int(rng.integers(1, 30)), len(prompts[1]) - at)
            parts.append(run_tokens(engine, slot, prompts[1][at : at + n], n, start=at))
            at += n
        assert_same(np.concatenate(parts), alone[1])
        engine.close_sequence(slot)


def run_mixed(engine: Engine, prompts: list[list[int]], seed: int) -> list[np.ndarray]:
    """All prompts at once: random amounts of each in random order, step after step, some cut in two within a step."""
    rng = np.random.default_rng(seed)
    slots = [engine.open_sequence() for _ in prompts]
    done, rows = [0] * len(prompts), [[] for _ in prompts]
    while any(d < len(p) for d, p in zip(done, prompts, strict=True)):
        step, owners, room = [], [], 96
        for i in rng.permutation(np.repeat(np.arange(len(prompts)), 2)):
            n = min(int(rng.integers(0, 14)), len(prompts[i]) - done[i], room)
            if n > 0:
                step.append(SequenceChunk(slots[i], done[i], prompts[i][done[i] : done[i] + n], range(n)))
                owners += [i] * n
                done[i], room = done[i] + n, room - n
        if step:
            for owner, logits in zip(owners, engine.step(step).logits, strict=True):
                rows[owner].append(logits.copy())
    for slot in slots:
        engine.close_sequence(slot)
    return [np.array(r) for r in rows]


def test_sequences_in_one_step(engine: Engine, prompts: list[list[int]], alone: list[np.ndarray]) -> None:
    """Several rounds on one engine: pages that earlier sequences gave back hold their old keys and values."""
    for seed in range(2):
        for got, want in zip(run_mixed(engine, prompts, seed), alone, strict=True):
            assert_same(got, want)
        engine.cache.check_integrity()


def test_pages_come_back(engine: Engine, prompts: list[list[int]], alone: list[np.ndarray]) -> None:
    """Sequences end and begin while others live on, so that page tables are in no order."""
    long = engine.open_sequence()
    first = run_tokens(engine, long, prompts[1][:40], 40)
    for i in (0, 2, 3, 0):
        slot = engine.open_sequence()
        assert_same(run_tokens(engine, slot, prompts[i], 16), alone[i])
        other = engine.open_sequence()
        run_tokens(engine, other, prompts[3], 5)
        engine.close_sequence(slot)
        engine.close_sequence(other)
    rest = run_tokens(engine, long, prompts[1][40:], 7, start=40)
    assert_same(np.concatenate([first, rest]), alone[1])


def test_truncate_and_go_on(engine: Engine, prompts: list[list[int]], alone: list[np.ndarray]) -> None:
    """What was cut off leaves nothing behind, wherever in a page the cut is."""
    slot = engine.open_sequence()
    run_tokens(engine, slot, prompts[1], 64)
    for cut in (65, 33, 16, 0):
        engine.truncate(slot, cut)
        engine.cache.check_integrity()
        run_tokens(engine, slot, prompts[2][:20], 20, start=cut)  # other tokens in the place of those cut off
        engine.truncate(slot, cut)
        rest = run_tokens(engine, slot, prompts[1][cut:], 32, start=cut)
        assert_same(rest, alone[1][cut:])


def test_wanted_rows_do_not_matter(engine: Engine, prompts: list[list[int]], alone: list[np.ndarray]) -> None:
    slot = engine.open_sequence()
    for wanted in ((0,), (20, 3, 11), (), tuple(range(21))):
        result = engine.step([SequenceChunk(slot, 0, prompts[0], logits_indices=wanted)])
        assert result.logits.shape == (len(wanted), alone[0].shape[1])
        assert_same(result.logits.copy(), alone[0][list(wanted)])
        assert result.tokens.tolist() == [int(alone[0][i].argmax()) for i in wanted]


@pytest.mark.parametrize("kernels", KERNELS)
def test_across_the_splits_of_attention(kernels: Kernels, tmp_path: Path) -> None:
    """270 positions: a split of 256 and the start of the next, in chunks that straddle the seam or not."""
    tiny = write_model(
        tmp_path / "long.gguf", replace(QWEN3, weights=T.Q8_0, n_layers=1, n_heads=2, n_kv_heads=1, head_dim=16)
    )
    tokens = random_tokens(9, 270, tiny.spec.n_vocab)
    with engine_for(tiny.path, n_batch=270, n_slots=2, kernels=kernels) as engine:
        whole = run_tokens(engine, engine.open_sequence(), tokens, 270)
        slot = engine.open_sequence()
        run_tokens(engine, slot, tokens[:250], 100)
        parts = [
            run_tokens(engine, slot, tokens[250:258], 1, start=250),
            run_tokens(engine, slot, tokens[258:], 7, start=258),
        ]
    assert_same(np.concatenate(parts), whole[250:])
