"""Two engines side by side, native and reference, driven by random commands: they never differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.backends.cpu.both import assert_same
from tests.helpers import LLAMA, QWEN3, T, write_model
from zinc_rt.engine.engine import Engine, EngineError, Options, SequenceChunk
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define

N_CTX, N_BATCH, N_SLOTS, N_VOCAB = 40, 12, 3, 61
SPECS = {
    "qwen3": replace(QWEN3, weights=T.Q4_0, formats={"output": T.Q8_0}),
    "llama": replace(LLAMA, weights=T.F16, n_kv_heads=1),
}


class TwoEngines(RuleBasedStateMachine):
    """Sequences come, grow, shrink and go on both engines; refusals are the same refusals."""

    path: ClassVar[Path]
    threads: ClassVar[int] = 2

    @initialize()
    def start(self) -> None:
        options = Options(n_ctx=N_CTX, n_batch=N_BATCH, n_slots=N_SLOTS)
        self.file = GGUFFile.open(self.path)
        self.engines = [Engine(replace(options, threads=self.threads)), Engine(replace(options, kernels="reference"))]
        for engine in self.engines:
            engine.load(self.file, define(self.file))
        self.lengths: dict[int, int] = {}

    def both(self, action: object) -> list[object]:
        """The results on both engines, or both refusals' texts."""
        out: list[object] = []
        for engine in self.engines:
            try:
                out.append(action(engine))  # type: ignore[operator]
            except EngineError as error:
                out.append(f"{type(error).__name__}: {error}")
        return out

    @rule()
    def open(self) -> None:
        a, b = self.both(lambda e: e.open_sequence())
        assert a == b
        if isinstance(a, int):
            self.lengths[a] = 0

    @precondition(lambda self: self.lengths)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.lengths)))
        assert self.both(lambda e: e.close_sequence(slot)) == [None, None]
        del self.lengths[slot]

    @precondition(lambda self: self.lengths)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.lengths)))
        n = data.draw(st.integers(0, self.lengths[slot]))
        assert self.both(lambda e: e.truncate(slot, n)) == [n, n]
        self.lengths[slot] = n

    @precondition(lambda self: self.lengths)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        rows = []
        for slot in data.draw(st.permutations(sorted(self.lengths))):
            n = data.draw(st.integers(0, 7))
            if n:
                tokens = data.draw(st.lists(st.integers(0, N_VOCAB - 1), min_size=n, max_size=n))
                wanted = data.draw(st.lists(st.integers(0, n - 1), unique=True))
                rows.append(SequenceChunk(slot, self.lengths[slot], tokens, logits_indices=wanted))
        results = self.both(lambda e: e.step(rows))
        if isinstance(results[1], str):
            assert results[0] == results[1]
            return
        got, want = results
        assert_same(got.logits.view(np.uint32), want.logits.view(np.uint32), "logits")  # type: ignore[attr-defined]
        assert got.tokens.tolist() == want.tokens.tolist()  # type: ignore[attr-defined]
        for part in rows:
            self.lengths[part.seq_id] += len(part.tokens)

    @invariant()
    def books_add_up(self) -> None:
        for engine in getattr(self, "engines", []):
            engine.cache.check_integrity()

    def teardown(self) -> None:
        for engine in getattr(self, "engines", []):
            engine.close()
        if hasattr(self, "file"):
            self.file.close()


def run(tmp_path: Path, name: str, threads: int, examples: int, steps: int) -> None:
    path = write_model(tmp_path / "model.gguf", SPECS[name]).path
    machine = type("Machine", (TwoEngines,), {"path": path, "threads": threads})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=examples < 100,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.mark.parametrize(("name", "threads"), [("qwen3", 2), ("llama", 1)])
def test_random_commands(name: str, threads: int, tmp_path: Path) -> None:
    run(tmp_path, name, threads, 4, 16)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("name", SPECS)
def test_many_random_commands(name: str, threads: int, tmp_path: Path) -> None:
    run(tmp_path, name, threads, 200, 40)
