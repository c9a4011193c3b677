"""Metrics: what the engine spends on grammars and sampling, and the same figures by vLLM's names."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.serving.api.conftest import MakeBench
from zinc_rt.errors import UsageError
from zinc_rt.scheduler.messages import EngineStatus, StepReport, StepTimes
from zinc_rt.serving.api.config import ServerConfig, TenantConfigs, read_tenants
from zinc_rt.serving.api.metrics import Metrics
from zinc_rt.serving.api.vllm_names import vllm_text

DOCS = Path(__file__).parents[3] / "docs" / "use" / "serving.md"


def samples(text: str, prefix: str) -> dict[str, float]:
    """Values by name and labels but those that are the same for all, of metrics that begin with a prefix."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(prefix) and not sample.name.endswith("_created"):
                labels = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
                found[sample.name + (json.dumps(labels) if labels else "")] = sample.value
    return found


def test_times_of_steps() -> None:
    metrics = Metrics()
    metrics.step(StepReport(1, seconds=0.5, decode_rows=2, times=StepTimes(0.25, 0.125, (1.0, 2.0))))
    metrics.step(StepReport(2, seconds=0.5, decode_rows=2, times=StepTimes(0.0, 0.125)))
    metrics.step(StepReport(3, times=StepTimes(compiles=(4.0,))))
    found = samples(metrics.text().decode(), "zinc_")
    assert (found["zinc_sampling_seconds_sum"], found["zinc_sampling_seconds_count"]) == (0.25, 2)
    assert found['zinc_grammar_seconds_sum{"kind": "mask"}'] == 0.25
    assert found['zinc_grammar_seconds_count{"kind": "mask"}'] == 1
    assert found['zinc_grammar_seconds_sum{"kind": "compile"}'] == 7
    assert found['zinc_grammar_seconds_count{"kind": "compile"}'] == 3


def test_vllms_names() -> None:
    metrics = Metrics()
    metrics.status = lambda: EngineStatus(5, 2, 3, 8, 10, 20, 30, 100, 7, 64, 36, 50, 41)
    for tenant in ("a", "b"):
        metrics.tokens.labels(tenant, "prompt").inc(10)
        metrics.tokens.labels(tenant, "generated").inc(4)
    for reason in ("stop", "tool_calls", "length", "abort"):
        metrics.answers.labels(reason).inc()
    for qos, seconds in (("standard", 0.03), ("batch", 3.0), ("batch", 1000.0)):
        metrics.ttft.labels(qos).observe(seconds)
    metrics.lengths.labels("prompt").observe(7)
    metrics.lengths.labels("generated").observe(3)
    text = vllm_text(metrics.registry, 'the "model"').decode()
    found = samples(text, "vllm:")
    assert found["vllm:num_requests_running"] == 5
    assert found["vllm:num_requests_waiting"] == 5
    assert found["vllm:kv_cache_usage_perc"] == 0.5
    assert found['vllm:cache_config_info{"block_size": "16", "num_gpu_blocks": "60"}'] == 1
    assert found["vllm:prefix_cache_queries_total"] == 100
    assert found["vllm:prefix_cache_hits_total"] == 64
    assert found["vllm:num_preemptions_total"] == 7
    assert found["vllm:spec_decode_num_draft_tokens_total"] == 50
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == 41
    assert found["vllm:prompt_tokens_total"] == 20
    assert found["vllm:generation_tokens_total"] == 8
    reasons = {r: found[f'vllm:request_success_total{{"finished_reason": "{r}"}}'] for r in ("stop", "length", "abort")}
    assert reasons == {"stop": 2, "length": 1, "abort": 1}
    ttft = "vllm:time_to_first_token_seconds"
    assert found[f"{ttft}_count"] == 3
    assert found[f"{ttft}_sum"] == 0.03 + 3.0 + 1000.0
    assert [found[f'{ttft}_bucket{{"le": "{le}"}}'] for le in ("0.025", "0.05", "2.5", "5.0", "300.0", "+Inf")] == [
        0,
        1,
        1,
        2,
        2,
        3,
    ]
    assert found["vllm:request_prompt_tokens_sum"] == 7
    assert found["vllm:request_generation_tokens_sum"] == 3
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert (sample.labels["model_name"], sample.labels["engine"]) == ('the "model"', "0")
    told = DOCS.read_text().split("`--metrics-names vllm`")[1].split("\n## ")[0]
    names = {re.sub(r"_(total|bucket|sum|count)(\{.*)?$|\{.*$", "", name) for name in found}
    names |= {family.name for family in text_string_to_metric_families(text)}
    for name in names:
        word = name.removeprefix("vllm:")
        assert word in told or ("_" + word.split("_")[-1]) in told, name


def test_both_names_where_they_are_asked_for(bench: MakeBench) -> None:
    async def go() -> None:
        for config, tenants, told in (
            (ServerConfig(), TenantConfigs(), False),
            (ServerConfig(vllm_names=True), TenantConfigs(), True),
            (ServerConfig(), TenantConfigs(vllm_names=True), True),
        ):
            b = bench(config=config, tenants=tenants)
            whole, stopped = (await b.chat()).json(), (await b.chat(stop="owl")).json()
            usage = whole["usage"]
            assert [a["choices"][0]["finish_reason"] for a in (whole, stopped)] == ["length", "stop"]
            text = (await b.http.get("/metrics")).text
            ours, theirs = samples(text, "zinc_"), samples(text, "vllm:")
            assert ours['zinc_answers_total{"reason": "stop"}'] == 1
            assert ours['zinc_answers_total{"reason": "length"}'] == 1
            assert bool(theirs) is told
            if told:
                assert theirs["vllm:prompt_tokens_total"] == 2 * usage["prompt_tokens"]
                assert theirs["vllm:e2e_request_latency_seconds_count"] == 2
                assert theirs['vllm:request_success_total{"finished_reason": "stop"}'] == 1
                assert 'model_name="story"' in text

    asyncio.run(go())


def test_the_names_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    for text, told in (("", False), ('[metrics]\nnames = "vllm"', True), ('[metrics]\nnames = "zinc"', False)):
        path.write_text(text)
        assert read_tenants(path).vllm_names is told
    for wrong in ('[metrics]\nnames = "x"', '[metrics]\nname = "vllm"'):
        path.write_text(wrong)
        with pytest.raises(UsageError, match="name"):
            read_tenants(path)
