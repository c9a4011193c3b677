"""Sequences with recurrent layers: going back, beginning anew, breaking off, with the bits of a fresh run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.queue.stage import machine
from tests.helpers import T, engine_for, random_tokens, run_tokens, soon
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.engine.engine import Device, Engine, EngineError, Options, SequenceChunk
from zinc_rt.engine.recurrent_state import SNAPSHOTS, copies
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.models import define
from zinc_rt.models.hidden import hidden_states

TOKENS = random_tokens(3, 60, N_VOCAB - 2)
OTHER = random_tokens(4, 60, N_VOCAB - 2)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_case(tmp_path_factory.mktemp("hybrid") / "hybrid.gguf", CASES["qwen35"], T.Q8_0).path


@pytest.fixture(params=soon(("native",), ("reference", "native")))  # `test_prompt_cache_file.py` has both
def engine(request: pytest.FixtureRequest, path: Path) -> Iterator[Engine]:
    with engine_for(path, n_batch=16, n_slots=3, n_ctx=128, kernels=request.param) as made:
        yield made
        made.cache.check_integrity()


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


@pytest.fixture(scope="module")
def fresh(path: Path) -> dict[str, np.ndarray]:
    """Logits of both texts, each in an engine of its own, token by token."""
    out = {}
    for name, tokens in (("tokens", TOKENS), ("other", OTHER)):
        with engine_for(path, n_batch=1, n_ctx=128, threads=1) as made:
            out[name] = bits(run_tokens(made, made.open_sequence(), tokens, 1))
    return out


def same(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(bits(got), want)


def go_on(engine: Engine, slot: int, tokens: list[int], start: int) -> np.ndarray:
    out = []
    for at in range(start, len(tokens), 16):
        part = tokens[at : at + 16]
        out.append(engine.step([SequenceChunk(slot, at, part, logits_indices=range(len(part)))]).logits.copy())
    return np.concatenate(out)


def test_sequences_of_a_step_do_not_meet(engine: Engine, fresh: dict[str, np.ndarray]) -> None:
    """Three sequences at other positions, in pieces of other sizes, rows of one sequence apart in a step."""
    slots = [engine.open_sequence() for _ in range(3)]
    texts = (TOKENS, OTHER, TOKENS)
    at, sizes = [0, 0, 0], [(3, 2), (1, 4), (5, 0)]
    got: list[list[np.ndarray]] = [[], [], []]
    while min(at[i] + sum(sizes[i]) <= 60 for i in range(3)):
        rows, order = [], []
        for piece in range(2):
            for i in range(3):
                if n := sizes[i][piece]:
                    rows.append(SequenceChunk(slots[i], at[i], texts[i][at[i] : at[i] + n], logits_indices=range(n)))
                    order += [i] * n
                    at[i] += n
        for i, row in zip(order, engine.step(rows).logits.copy(), strict=True):
            got[i].append(row)
    for i, name in enumerate(("tokens", "other", "tokens")):
        assert len(got[i]) >= 55
        same(np.array(got[i]), fresh[name][: len(got[i])])


def test_going_back_to_a_checkpoint(engine: Engine, fresh: dict[str, np.ndarray]) -> None:
    slot = engine.open_sequence()
    run_tokens(engine, slot, TOKENS[:20], 7)
    engine.cache.checkpoint(slot)
    run_tokens(engine, slot, TOKENS[20:], 9, 20)
    assert [engine.cache.resumable(slot, n) for n in (60, 59, 20, 19, 0, 99)] == [60, 20, 20, 0, 0, 60]
    assert engine.truncate(slot, 41) == 20
    same(go_on(engine, slot, TOKENS, 20), fresh["tokens"][20:])
    assert engine.truncate(slot, 20) == 20  # the same copy again
    branch = TOKENS[:20] + OTHER[20:40]
    got = go_on(engine, slot, branch, 20)
    assert (bits(got) != fresh["tokens"][20:40]).any()
    assert engine.truncate(slot, 19) == 0
    same(go_on(engine, slot, OTHER, 0), fresh["other"])


def test_few_copies_are_kept(engine: Engine, fresh: dict[str, np.ndarray]) -> None:
    slot = engine.open_sequence()
    for at in range(0, 60, 10):
        run_tokens(engine, slot, TOKENS[at : at + 10], 10, at)
        for _ in range(2):  # a second one of a position changes nothing
            engine.cache.checkpoint(slot)
    kept = [n for n in range(10, 60, 10) if engine.cache.resumable(slot, n) == n]
    assert SNAPSHOTS == 3
    assert kept == [40, 50]  # and that of the last position, where the sequence is
    assert engine.truncate(slot, 55) == 50
    same(go_on(engine, slot, TOKENS, 50), fresh["tokens"][50:])


def test_copies_of_all_sequences_are_few(engine: Engine) -> None:
    """The oldest of all goes, of any sequence."""
    slots = [engine.open_sequence() for _ in range(3)]
    for at in range(3):
        for slot in slots:
            engine.step([SequenceChunk(slot, at, TOKENS[at : at + 1])])
            engine.cache.checkpoint(slot)
    for slot in slots:
        engine.step([SequenceChunk(slot, 3, TOKENS[3:4])])
    assert copies(3) == 5
    assert [[n for n in (1, 2, 3) if engine.cache.resumable(slot, n) == n] for slot in slots] == [[3], [2, 3], [2, 3]]


def test_rows_must_follow(engine: Engine, fresh: dict[str, np.ndarray]) -> None:
    slot = engine.open_sequence()
    run_tokens(engine, slot, TOKENS[:20], 10)
    for start, message in (
        (21, "holds 20 positions, rows cannot start at 21"),
        (19, "after 20 positions.*at 19.*trunc"),
    ):
        with pytest.raises(EngineError, match=message):
            engine.step([SequenceChunk(slot, start, TOKENS[start : start + 2])])
    with pytest.raises(EngineError, match="holds 22 positions, rows cannot start at 23"):
        engine.step([SequenceChunk(slot, 20, TOKENS[20:22]), SequenceChunk(slot, 23, TOKENS[23:25])])
    with pytest.raises(TokenOutOfRange):
        engine.step([SequenceChunk(slot, 20, [N_VOCAB])])
    same(go_on(engine, slot, TOKENS, 20), fresh["tokens"][20:])  # what was refused has changed nothing


def test_a_slot_begins_anew(engine: Engine, fresh: dict[str, np.ndarray]) -> None:
    slot = engine.open_sequence()
    run_tokens(engine, slot, OTHER, 16)
    engine.cache.checkpoint(slot)
    same(go_on(engine, slot, TOKENS, 0), fresh["tokens"])  # from 0 without a word
    assert engine.cache.resumable(slot, 59) == 0  # copies of the other text are gone
    engine.cache.checkpoint(slot)
    engine.close_sequence(slot)
    assert engine.open_sequence() == slot
    assert engine.cache.resumable(slot, 60) == 0
    same(go_on(engine, slot, OTHER, 0), fresh["other"])
    with pytest.raises(EngineError, match="not open"):
        engine.cache.checkpoint(slot + 1)


def test_a_step_that_breaks_off(engine: Engine, fresh: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is not known then: the sequence goes back to a copy, or to 0."""
    slot = engine.open_sequence()
    run_tokens(engine, slot, TOKENS[:16], 16)
    engine.cache.checkpoint(slot)
    run_tokens(engine, slot, TOKENS[16:20], 4, 16)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(engine._backend, "wait", broken)
        with pytest.raises(KeyboardInterrupt):
            engine.step([SequenceChunk(slot, 20, TOKENS[20:25])])
    with pytest.raises(EngineError, match="a step broke off"):
        engine.step([SequenceChunk(slot, 20, TOKENS[20:25])])
    assert engine.truncate(slot, 20) == 16
    same(go_on(engine, slot, TOKENS, 16), fresh["tokens"][16:])


def test_copies_go_to_any_slot_of_their_graph(engine: Engine, path: Path) -> None:
    backend, lowered = engine._backend, engine._lowered
    assert lowered is not None
    one, other = engine.open_sequence(), engine.open_sequence()
    run_tokens(engine, one, TOKENS[:5], 5)
    run_tokens(engine, other, OTHER[:5], 5)
    before = {name: array.copy() for name, array in lowered.states.items()}
    assert all((array[one] != array[other]).any() for array in before.values())
    copy = backend.save_state(lowered, one)
    assert copy.n_bytes == sum(array[one].nbytes for array in before.values())
    backend.load_state(lowered, other, copy)
    for name, array in lowered.states.items():
        np.testing.assert_array_equal(array[[one, other]].view(np.uint32), before[name][[one, one]].view(np.uint32))
    copy.close()
    with pytest.raises(BackendError, match="another graph, or was closed"):
        backend.load_state(lowered, one, copy)
    with engine_for(path, n_ctx=128, kernels="reference") as foreign:
        assert foreign._lowered is not None
        with pytest.raises(BackendError, match=r"another (graph|kind)"):
            backend.load_state(lowered, one, foreign._backend.save_state(foreign._lowered, 0))


def test_memory_is_planned(engine: Engine) -> None:
    assert engine.plan is not None
    assert engine._lowered is not None
    n_bytes = sum(array.nbytes for array in engine._lowered.states.values())
    assert (engine.plan.recurrent, engine.plan.snapshots) == (n_bytes, copies(3) * n_bytes // 3)
    assert "recurrent state" in str(engine.plan)
    assert engine._definition is not None
    (kv,) = (s for s in engine._definition.states if s.name == "kv")
    assert engine.step_bytes(10) - engine.step_bytes(9) == kv.read_bytes
    (delta,) = (s for s in engine._definition.states if s.name == "delta net")
    assert delta.sequence_bytes * 3 == n_bytes


def test_embedding_keeps_no_copies(path: Path) -> None:
    with GGUFFile.open(path) as file, Engine(Options(kernels="reference", n_ctx=32, n_slots=2)) as made:
        plan = made.load(file, hidden_states(define(file)))
        slot = made.open_sequence()
        first = made.hidden([SequenceChunk(slot, 0, TOKENS[:9])]).copy()
        made.cache.checkpoint(slot)
        made.hidden([SequenceChunk(slot, 9, TOKENS[9:12])])
        assert plan.recurrent > 0 == plan.snapshots
        assert made.truncate(slot, 9) == 0
        same(made.hidden([SequenceChunk(slot, 0, TOKENS[:9])]), bits(first))


def test_a_conversation(path: Path) -> None:
    """What is reused changes no token, whichever way a prompt leaves the one before."""

    def texts(model: zinc_rt.Model, prompt: list[int]) -> list[int]:
        return [c.token_id for c in model.stream(prompt, temperature=0, max_tokens=6) if c.token_id is not None]

    first = TOKENS[:45]
    with zinc_rt.load(path, device="cpu", n_ctx=256, n_batch=16) as model:
        answers = {}
        cached = []
        turns = [first]
        answers[0] = texts(model, first)
        turns += [first + answers[0] + OTHER[:20], first + OTHER[:30], first + OTHER[:30], OTHER[:10], first]
        for i, prompt in enumerate(turns[1:], 1):
            cached.append(model.cached_tokens(prompt))
            answers[i] = texts(model, prompt)
    # The whole text so far; back to the last step of the first prompt, twice; nothing in common; the first again.
    assert cached[0] >= 50
    assert cached[1:] == [32, 64, 0, 32]
    for i, prompt in enumerate(turns):
        with zinc_rt.load(path, device="cpu", n_ctx=256, n_batch=3) as alone:
            assert texts(alone, prompt) == answers[i]


@pytest.mark.slow
@pytest.mark.usefixtures("patience")
def test_on_an_emulated_gpu(path: Path, fresh: dict[str, np.ndarray]) -> None:
    """Rows in pieces, back to a checkpoint, and a slot that begins anew: copies stay in the GPU's memory."""
    with (
        machine(shader=ShaderCore(), time_scale=100.0) as on,
        engine_for(path, linux=on.process(), device=Device.gpu_kfd, n_ctx=128, n_batch=3, n_slots=2) as engine,
    ):
        slot, other = engine.open_sequence(), engine.open_sequence()
        same(run_tokens(engine, slot, TOKENS[:4], 2), fresh["tokens"][:4])
        engine.cache.checkpoint(slot)
        run_tokens(engine, slot, OTHER[:2], 1, 4)
        run_tokens(engine, other, OTHER[:3], 3)
        assert engine.truncate(slot, 5) == 4
        same(run_tokens(engine, slot, TOKENS[4:9], 3, 4), fresh["tokens"][4:9])
        engine.close_sequence(other)
        assert engine.open_sequence() == other
        same(run_tokens(engine, other, TOKENS[:3], 3), fresh["tokens"][:3])
