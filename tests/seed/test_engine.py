"""The page `engine`: tiers by the seed's names, and rings by theirs."""

from __future__ import annotations

import pytest

import zinc_rt
from zinc_rt import engine
from zinc_rt.backends.base import Backend
from zinc_rt.seed.engine import (
    Capabilities,
    Tier,
    UnknownZincRtTier,
    auto_tier,
    parse_tier,
    tier_from_env,
)


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
    assert tier_from_env({"ZINC_RT_TIER": "gpu:cs"}) is Tier.t1_pm4
    assert tier_from_env({"ZINC_RT_TIER": "gpu:umq@03:00.0"}) is Tier.t2_umq
    with pytest.raises(UnknownZincRtTier, match="ZINC_RT_TIER"):
        tier_from_env({"ZINC_RT_TIER": "gpu"})


def test_auto_tier_finds_no_gpu_and_says_so() -> None:
    lines: list[str] = []
    assert auto_tier(lines.append) is Tier.t_cpu
    assert len(lines) == 1


def test_the_runtime_takes_tiers() -> None:
    with zinc_rt.load(tier=Tier.t_cpu, n_ctx=32) as model:
        assert model.device is engine.Device.cpu
    with pytest.raises(engine.DeviceUnavailable, match="t_metal cannot run: not built"):
        engine.Options(tier=Tier.t_metal)


def test_the_module_engine_has_the_names() -> None:
    assert engine.Capabilities is Capabilities
    assert engine.Tier is zinc_rt.Tier is Tier
    assert engine.parse_tier is parse_tier
    assert (engine.SUPPORTS_MULTITENANT_BATCH_PLANNING, engine.SUPPORTS_MULTITENANT_BATCHED_EXECUTION) == (True, True)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = engine.no_such_name


def test_opening_and_closing_by_the_seeds_names() -> None:
    with engine.Engine.init(engine.Options(tier=Tier.t_cpu)) as made:
        assert made.capabilities() == Capabilities(True, True, True, True)
        made.deinit()
        with pytest.raises(engine.EngineError, match="no model"):
            made.open_sequence()
    ring = zinc_rt.cpu_ring.CpuRing.init()
    assert isinstance(ring, Backend)
    ring.deinit()
    ring.deinit()
