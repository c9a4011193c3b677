"""Texts that go on from cached pages: the bits of texts that were computed alone, on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.queue.stage import machine
from tests.helpers import T, engine_for, random_tokens, run_tokens
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.engine.engine import Device, Engine, EngineError, Options, SequenceChunk
from zinc_rt.errors import UsageError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.mem.errors import PagesExhausted

FAMILIES = ("qwen3", "qwen35")
ONE = random_tokens(3, 100, N_VOCAB - 2)
TWO = ONE[:70] + random_tokens(4, 30, N_VOCAB - 2)
OTHER = random_tokens(5, 100, N_VOCAB - 2)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("prefix")
    return {name: write_case(folder / f"{name}.gguf", CASES[name], T.Q8_0).path for name in FAMILIES}


@pytest.fixture(scope="module")
def alone(paths: dict[str, Path]) -> dict[tuple[str, int], np.ndarray]:
    """Logits of each text in an engine of its own."""
    out = {}
    for name, path in paths.items():
        for i, text in enumerate((ONE, TWO, OTHER)):
            with engine_for(path, n_batch=100, n_ctx=128, threads=1) as engine:
                out[name, i] = run_tokens(engine, engine.open_sequence(salt=None), text, 100).view(np.uint32)
    return out


def finish(engine: Engine, slot: int, text: list[int], chunk: int) -> tuple[int, np.ndarray]:
    """Compute what a sequence lacks of a text, in pieces, keeping states where prompts should; where it went on."""
    start = at = engine.cache.length(slot)
    out = []
    while at < len(text):
        cut = engine.cache.next_checkpoint(at, len(text)) or len(text)
        part = text[at : min(at + chunk, cut)]
        out.append(engine.step([SequenceChunk(slot, at, part, logits_indices=range(len(part)))]).logits.copy())
        at += len(part)
        if at == cut:
            engine.cache.checkpoint(slot)
        engine.cache.check_integrity()
    return start, np.concatenate(out).view(np.uint32)


LOADED = [pytest.param((name, "reference"), marks=pytest.mark.slow) for name in FAMILIES]
"""`test_recurrent_sequences.py` has the reference by default."""


@pytest.fixture(params=[*LOADED, *((name, "native") for name in FAMILIES)], ids="-".join)
def loaded(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Iterator[tuple[str, Engine]]:
    name, kernels = request.param
    with engine_for(paths[name], n_batch=64, n_slots=4, n_ctx=128, kernels=kernels, kv_tokens=224) as engine:
        yield name, engine
        engine.cache.check_integrity()


def test_the_bits_of_texts_alone(loaded: tuple[str, Engine], alone: dict[tuple[str, int], np.ndarray]) -> None:
    """Cold, warm, from another text's beginning, from a closed sequence, and again when all was evicted."""
    name, engine = loaded
    hybrid = engine.cache.keeps_recurrent_state
    own = 80 if hybrid else 96  # a prompt's last tokens have no copy
    shared = 0 if hybrid else 64  # of the second text only the first one's end has a copy
    seen = []
    for which, text, chunk in (
        (0, ONE, 13),
        (0, ONE, 7),
        (1, TWO, 32),
        (1, TWO, 5),
        (2, OTHER, 11),
        (3, ONE[::-1], 50),
        (0, ONE, 32),
    ):
        slot = engine.open_sequence(text)
        start, got = finish(engine, slot, text, chunk)
        if which < 3:
            np.testing.assert_array_equal(got, alone[name, which][start:])
        engine.close_sequence(slot)
        seen.append(start)
    assert seen == [0, own, shared, own, 0, 0, shared]  # the last pages of both were taken for others
    stats = engine.cache.stats()
    assert (stats.pages, stats.used, stats.free + stats.cached) == (18, 0, 18)
    assert (stats.hits, stats.hits + stats.misses) == (sum(seen), 700)
    assert stats.evictions >= 3


def test_sequences_of_one_step_share_pages(
    loaded: tuple[str, Engine], alone: dict[tuple[str, int], np.ndarray]
) -> None:
    """One reads the pages that another has just filled, beside it in the same steps."""
    name, engine = loaded
    first = engine.open_sequence()
    for end in (32, 64):
        engine.step([SequenceChunk(first, end - 32, ONE[end - 32 : end])])
    engine.cache.checkpoint(first)
    slots = {first: ONE, engine.open_sequence(TWO): TWO, engine.open_sequence(ONE): ONE, engine.cache.fork(first): TWO}
    assert [engine.cache.length(slot) for slot in slots] == [64] * 4
    assert engine.cache.stats().used == 4
    got: dict[int, list[np.ndarray]] = {slot: [] for slot in slots}
    for at in range(64, 100, 6):
        rows = [
            SequenceChunk(slot, at, text[at : at + 6], range(len(text[at : at + 6]))) for slot, text in slots.items()
        ]
        logits = engine.step(rows).logits.copy().view(np.uint32)
        for slot, part in zip(slots, np.split(logits, 4), strict=True):
            got[slot].append(part)
        engine.cache.check_integrity()
    for slot, text in slots.items():
        np.testing.assert_array_equal(np.concatenate(got[slot]), alone[name, int(text is TWO)][64:])
    assert engine.cache.stats().used == 4 + 2 * 2 + 4  # two texts of two more full pages, four parts of pages


def test_tenants_do_not_meet(loaded: tuple[str, Engine]) -> None:
    _, engine = loaded
    slot = engine.open_sequence(salt=b"a")
    finish(engine, slot, ONE, 32)
    hybrid = engine.cache.keeps_recurrent_state
    assert engine.cache.cached_prefix(ONE, b"a") == (80 if hybrid else 96)
    assert [engine.cache.cached_prefix(ONE, salt) for salt in (b"", b"b", b"a\0", None)] == [0] * 4
    for salt in (b"b", None):
        other = engine.open_sequence(ONE, salt)
        assert engine.cache.length(other) == 0
        engine.close_sequence(other)
    assert engine.cache.cached_prefix(ONE[:80], b"a") == (0 if hybrid else 64)  # never all of it
    assert engine.cache.cached_prefix([], b"a") == engine.cache.cached_prefix([1], b"a") == 0


def test_a_shared_page_is_not_written_to(loaded: tuple[str, Engine], alone: dict[tuple[str, int], np.ndarray]) -> None:
    name, engine = loaded
    slot = engine.open_sequence()
    finish(engine, slot, ONE, 32)
    other = engine.open_sequence(ONE)
    if not engine.cache.keeps_recurrent_state:
        with pytest.raises(EngineError, match=r"read the KV page of position 70.*truncate\(\) goes back to 64"):
            engine.step([SequenceChunk(other, 70, [1])])
    assert (
        engine.cache.resumable(other, 70)
        == engine.truncate(other, 70)
        == (0 if engine.cache.keeps_recurrent_state else 64)
    )
    start, got = finish(engine, other, TWO, 9)
    np.testing.assert_array_equal(got, alone[name, 1][start:])
    engine.close_sequence(other)
    if not engine.cache.keeps_recurrent_state:  # a page of its own can be cut anywhere
        assert engine.truncate(slot, 90) == 90
        start, got = finish(engine, slot, ONE, 3)
        np.testing.assert_array_equal(got, alone[name, 0][90:])


def test_room(loaded: tuple[str, Engine]) -> None:
    """What is cached counts as free; a step that finds no room changes nothing."""
    _, engine = loaded
    slots = [engine.open_sequence() for _ in range(3)]
    finish(engine, slots[0], ONE, 32)
    finish(engine, slots[1], OTHER, 32)
    assert (engine.cache.free_pages, engine.cache.missing_pages(slots[2], 65)) == (4, 5)
    assert engine.cache.can_grow(slots[2], 64)
    assert not engine.cache.can_grow(slots[2], 65)
    engine.step(
        [SequenceChunk(slots[2], 0, ONE[:16]), SequenceChunk(slots[2], 16, ONE[16:19])]
    )  # its first page is one that is there
    assert engine.cache.free_pages == 3
    rows = [
        SequenceChunk(slots[0], 100, [1] * 13),
        SequenceChunk(slots[2], 19, [2] * 16),
        SequenceChunk(slots[2], 35, [2] * 14),
    ]
    with pytest.raises(PagesExhausted, match=f"sequence {slots[1]} needs 1 more KV pages for 113 tokens; 0 of 18"):
        engine.step([*rows, SequenceChunk(slots[1], 100, [3] * 13)])
    engine.step(rows)
    engine.cache.check_integrity()
    engine.close_sequence(slots[0])
    assert engine.cache.free_pages == 18 - 7 - 4
    with pytest.raises(EngineError, match="not open"):
        engine.cache.can_grow(slots[0], 1)
    with pytest.raises(TokenOutOfRange, match="outside every vocabulary"):
        engine.cache.attach_prefix(slots[2], [1 << 40] * 20)


def test_memory_in_bytes(paths: dict[str, Path]) -> None:
    with engine_for(paths["qwen35"], n_ctx=128, n_slots=2, n_batch=16) as engine:
        assert engine.plan is not None
        page, state = engine.plan.kv_cache // 16, engine.plan.recurrent // 2
    with engine_for(
        paths["qwen35"], n_ctx=128, n_slots=2, n_batch=16, kv_memory=page * 41 - 1, state_memory=state
    ) as engine:
        assert engine.plan is not None
        assert (engine.plan.kv_cache, engine.plan.snapshots) == (page * 40, state)
        assert engine.cache.stats().pages == engine.cache.free_pages == 40
        slot = engine.open_sequence()
        finish(engine, slot, ONE, 16)
        assert (engine.cache.stats().states, engine.cache.stats().state_bytes) == (1, state)
    with engine_for(paths["qwen35"], n_ctx=128, n_batch=16, state_memory=state - 1) as engine:
        finish(engine, engine.open_sequence(), ONE, 16)
        assert (engine.cache.stats().states, engine.cache.cached_prefix(ONE)) == (0, 0)
    few = engine_for(paths["qwen35"], n_ctx=128, kv_memory=page * 8 - 1)
    with pytest.raises(UsageError, match=r"kv_memory is .*, one sequence of n_ctx = 128 tokens needs"), few:
        pass
    with pytest.raises(UsageError, match="give one of them"):
        Options(kv_memory=1 << 20, kv_tokens=100)


@pytest.mark.slow
@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("name", FAMILIES)
def test_on_an_emulated_gpu(name: str, paths: dict[str, Path], alone: dict[tuple[str, int], np.ndarray]) -> None:
    """A page that another sequence filled, a copy of its state in the GPU's memory, and pages taken for other texts."""
    with (
        machine(shader=ShaderCore(), time_scale=100.0) as on,
        engine_for(
            paths[name], linux=on.process(), device=Device.gpu_kfd, n_ctx=64, n_batch=16, n_slots=2, kv_tokens=16
        ) as engine,
    ):
        assert engine.cache.stats().pages == 3
        # A prompt's last tokens have no copy of the state.
        n, evictions = (34, 7) if engine.cache.keeps_recurrent_state else (19, 4)
        for which, text, found in ((0, ONE, 0), (1, TWO, 16), (2, OTHER, 0), (0, ONE, 0)):
            slot = engine.open_sequence(text[:n])
            start, got = finish(engine, slot, text[:n], 16)
            assert start == found
            np.testing.assert_array_equal(got, alone[name, which][start:n])
            engine.close_sequence(slot)
            if which == 2:  # one page is left of three: a long text takes those of the first
                slot = engine.open_sequence()
                finish(engine, slot, OTHER[50:98], 16)
                engine.close_sequence(slot)
        assert engine.cache.stats().evictions == evictions
