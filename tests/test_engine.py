"""Tiers, options and the step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import zinc_rt
from zinc_rt.engine import (
    Capabilities,
    ContextFull,
    Engine,
    EngineError,
    Options,
    Rows,
    Tier,
    TierUnavailable,
    UnknownZincRtTier,
    auto_tier,
    parse_tier,
    probe_tiers,
    tier_from_env,
)
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.model import built_in_model
from zinc_rt.models import define


@pytest.mark.parametrize(
    ("text", "tier"),
    [
        ("auto", Tier.auto),
        ("t1", Tier.t1_pm4),
        ("t1_pm4", Tier.t1_pm4),
        ("t2", Tier.t2_umq),
        ("t2_umq", Tier.t2_umq),
        ("t_cpu", Tier.t_cpu),
        ("t_metal", Tier.t_metal),
        ("t_intel", Tier.t_intel),
        ("t_cuda", Tier.t_cuda),
    ],
)
def test_parse_tier(text: str, tier: Tier) -> None:
    assert parse_tier(text) is tier


@pytest.mark.parametrize("text", ["", "cpu", "T_CPU", "t3", "auto "])
def test_unknown_tiers(text: str) -> None:
    with pytest.raises(UnknownZincRtTier, match="t_cpu"):
        parse_tier(text)


def test_tier_from_env() -> None:
    assert tier_from_env({}) is Tier.auto
    assert tier_from_env({"ZINC_RT_TIER": ""}) is Tier.auto
    assert tier_from_env({"ZINC_RT_TIER": "t_cpu"}) is Tier.t_cpu
    with pytest.raises(UnknownZincRtTier, match="ZINC_RT_TIER"):
        tier_from_env({"ZINC_RT_TIER": "gpu"})


def test_auto_finds_no_gpu_and_says_so() -> None:
    lines: list[str] = []
    assert auto_tier(lines.append) is Tier.t_cpu
    assert len(lines) == 1
    assert "t2_umq" in lines[0]
    assert "t1_pm4" in lines[0]


def test_every_tier_is_reported_once() -> None:
    assert sorted(r.tier for r in probe_tiers()) == sorted(t for t in Tier if t is not Tier.auto)
    assert all(r.reason for r in probe_tiers())


@pytest.mark.parametrize("tier", [Tier.t1_pm4, Tier.t2_umq, Tier.t_cuda])
def test_an_explicit_tier_is_obeyed_or_refused(tier: Tier) -> None:
    with pytest.raises(TierUnavailable, match=tier.value):
        Engine(Options(tier=tier))


@pytest.mark.parametrize("bad", [{"n_batch": 0}, {"n_slots": -1}, {"n_ctx": 0}, {"threads": 0}])
def test_options_are_checked(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        Options(**bad)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def story() -> Iterator[GGUFFile]:
    with GGUFFile.open(built_in_model()) as file:
        yield file


@pytest.fixture
def engine(story: GGUFFile) -> Iterator[Engine]:
    with Engine(Options(n_ctx=64, n_batch=24, n_slots=3)) as made:
        made.load(story, define(story))
        yield made


def test_before_a_model_is_loaded() -> None:
    with Engine.init() as empty:
        assert empty.capabilities() == Capabilities()
        with pytest.raises(EngineError, match="no model"):
            empty.open_sequence()
        with pytest.raises(EngineError, match="no model"):
            empty.step([])


def test_a_second_model_is_refused(engine: Engine, story: GGUFFile) -> None:
    with pytest.raises(EngineError, match="already"):
        engine.load(story, define(story))


def test_mixed_steps_give_the_bits_of_lonely_ones(engine: Engine) -> None:
    rng = np.random.default_rng(5)
    texts = [rng.integers(0, 256, n).tolist() for n in (9, 17, 30)]
    alone = []
    for tokens in texts:
        slot = engine.open_sequence()
        rows = [engine.step([Rows(slot, i, tokens[i : i + 1], wanted=(0,))]).logits.copy() for i in range(len(tokens))]
        alone.append(np.concatenate(rows))
        engine.close_sequence(slot)
    slots = [engine.open_sequence() for _ in texts]
    done = [0, 0, 0]
    mixed: list[list[np.ndarray]] = [[], [], []]
    while any(d < len(t) for d, t in zip(done, texts, strict=True)):
        parts, owners = [], []
        for i in rng.permutation(3):
            n = min(int(rng.integers(0, 9)), len(texts[i]) - done[i])
            if n:
                parts.append(Rows(slots[i], done[i], texts[i][done[i] : done[i] + n], wanted=range(n)))
                owners += [i] * n
                done[i] += n
        if parts:
            for owner, row in zip(owners, engine.step(parts).logits, strict=True):
                mixed[owner].append(row.copy())
        engine.check_integrity()
    for one, rows in zip(alone, mixed, strict=True):
        assert (one.view(np.uint32) == np.array(rows).view(np.uint32)).all()


def test_sequences_run_out_and_come_back(engine: Engine) -> None:
    slots = [engine.open_sequence() for _ in range(3)]
    with pytest.raises(EngineError, match="all 3 sequences"):
        engine.open_sequence()
    engine.close_sequence(slots[1])
    for closed in (slots[1], -1, 3):
        with pytest.raises(EngineError, match="not open"):
            engine.close_sequence(closed)
        with pytest.raises(EngineError, match="not open"):
            engine.truncate(closed, 0)
    assert engine.open_sequence() == slots[1]


def test_rows_follow_what_the_sequence_holds(engine: Engine) -> None:
    slot = engine.open_sequence()
    with pytest.raises(EngineError, match="holds 0 positions, rows cannot start at 1"):
        engine.step([Rows(slot, 1, [1])])
    first = engine.step([Rows(slot, 0, [5, 6, 7]), Rows(slot, 3, [8], wanted=(0,))]).logits.copy()
    with pytest.raises(EngineError, match="holds 6 positions, rows cannot start at 5"):
        engine.step([Rows(slot, 4, [1, 2]), Rows(slot, 5, [3])])
    engine.truncate(slot, 3)
    with pytest.raises(EngineError, match="holds 3 positions"):
        engine.step([Rows(slot, 4, [1])])
    again = engine.step([Rows(slot, 3, [8], wanted=(0,))]).logits
    assert (first.view(np.uint32) == again.view(np.uint32)).all()


def test_bad_rows(engine: Engine) -> None:
    slot = engine.open_sequence()
    with pytest.raises(EngineError, match="at least one row"):
        engine.step([])
    with pytest.raises(EngineError, match="not open"):
        engine.step([Rows(slot + 1, 0, [1])])
    with pytest.raises(EngineError, match="n_batch is 24"):
        engine.step([Rows(slot, 0, [1] * 25)])
    with pytest.raises(ContextFull, match="context of 64"):
        engine.step([Rows(slot, 60, [1] * 5)])
    for wanted in ((2,), (-1,), (0, 0)):
        with pytest.raises(EngineError, match="wanted"):
            engine.step([Rows(slot, 0, [1, 2], wanted=wanted)])
    with pytest.raises(zinc_rt.ZincError, match="vocabulary"):
        engine.step([Rows(slot, 0, [1 << 20])])
    for token in (-1, 1 << 40):
        with pytest.raises(zinc_rt.ZincError, match="vocabulary"):
            engine.step([Rows(slot, 0, [token])])
    engine.check_integrity()


def test_a_plan_that_does_not_fit_is_refused_before_loading(story: GGUFFile) -> None:
    engine = Engine(Options(n_ctx=1 << 23, n_slots=4096))
    with pytest.raises(MemoryPlanError, match=r"KV cache .* GiB.*are available"):
        engine.load(story, define(story))
