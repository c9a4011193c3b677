"""The server's figures under the names that vLLM gives them, for dashboards and gateways that were made for it.

Only names whose meaning is ours, too, are here. Figures that we have by tenant or class are added up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from zinc_rt.numerics import PAGE_TOKENS

_LABELS: Final = ("model_name", "engine")
_ENGINE: Final = "0"


class _Of(NamedTuple):
    """A metric of ours: its name as samples have it, and the values of one label that count; all without a label."""

    name: str
    label: str = ""
    values: tuple[str, ...] = ()

    def has(self, labels: Mapping[str, str]) -> bool:
        """Whether a sample with these labels counts."""
        return not self.label or labels[self.label] in self.values


_GAUGES: Final = {
    "num_requests_running": (_Of("zinc_requests", "state", ("prefilling", "decoding")), "Requests being computed."),
    "num_requests_waiting": (_Of("zinc_requests", "state", ("queued",)), "Requests that wait."),
    "kv_cache_usage_perc": (_Of("zinc_kv_usage_ratio"), "KV cache in use; 1 is all of it."),
}
_COUNTERS: Final = {
    "prefix_cache_queries": (_Of("zinc_prefix_tokens_total"), "Prompt tokens looked up in the prefix cache."),
    "prefix_cache_hits": (_Of("zinc_prefix_tokens_total", "result", ("hit",)), "Prompt tokens found there."),
    "num_preemptions": (_Of("zinc_preemptions_total"), "Requests that gave up their pages."),
    "spec_decode_num_draft_tokens": (_Of("zinc_guesses_total", "result", ("all",)), "Tokens guessed."),
    "spec_decode_num_accepted_tokens": (_Of("zinc_guesses_total", "result", ("right",)), "Of these, right ones."),
    "prompt_tokens": (_Of("zinc_tokens_total", "kind", ("prompt",)), "Tokens of prompts."),
    "generation_tokens": (_Of("zinc_tokens_total", "kind", ("generated",)), "Tokens generated."),
}
_REASONS: Final = {"stop": ("stop", "tool_calls"), "length": ("length",), "abort": ("abort",)}
_HISTOGRAMS: Final = {
    "time_to_first_token_seconds": (_Of("zinc_ttft_seconds"), "From the request to its first token."),
    "inter_token_latency_seconds": (_Of("zinc_inter_token_seconds"), "From one token to the next."),
    "time_per_output_token_seconds": (_Of("zinc_inter_token_seconds"), "The same, by its name before vLLM 0.11."),
    "e2e_request_latency_seconds": (_Of("zinc_request_seconds"), "The whole request."),
    "request_queue_time_seconds": (_Of("zinc_queue_seconds"), "In the queue."),
    "request_prefill_time_seconds": (_Of("zinc_prefill_seconds"), "Computing the prompt."),
    "request_decode_time_seconds": (_Of("zinc_decode_seconds"), "Generating."),
    "request_prompt_tokens": (_Of("zinc_request_tokens", "kind", ("prompt",)), "Tokens of a request."),
    "request_generation_tokens": (_Of("zinc_request_tokens", "kind", ("generated",)), "Tokens of an answer."),
}


def vllm_text(own: CollectorRegistry, model: str) -> bytes:
    """What a registry has now, in Prometheus' text format, under vLLM's names. model: the value of `model_name`."""
    renamed = CollectorRegistry()
    renamed.register(_Renamed(own, model))
    return generate_latest(renamed)


class _Renamed(Collector):
    def __init__(self, own: CollectorRegistry, model: str) -> None:
        self._own, self._with = own, (model, _ENGINE)

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        found = {family.name: family for family in self._own.collect()}
        samples = [sample for family in found.values() for sample in family.samples]

        def total(source: _Of) -> float:
            return sum(s.value for s in samples if s.name == source.name and source.has(s.labels))

        for name, (source, said) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"vllm:{name}", said, labels=_LABELS)
            gauge.add_metric(self._with, total(source))
            yield gauge
        pages = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Pages of the KV cache, and tokens of one.",
            labels=(*_LABELS, "block_size", "num_gpu_blocks"),
        )
        pages.add_metric((*self._with, str(PAGE_TOKENS), f"{total(_Of('zinc_kv_pages')):.0f}"), 1)
        yield pages
        for name, (source, said) in _COUNTERS.items():
            counter = CounterMetricFamily(f"vllm:{name}", said, labels=_LABELS)
            counter.add_metric(self._with, total(source))
            yield counter
        ended = CounterMetricFamily(
            "vllm:request_success", "Answers by why they ended.", labels=(*_LABELS, "finished_reason")
        )
        for reason, ours in _REASONS.items():
            ended.add_metric((*self._with, reason), total(_Of("zinc_answers_total", "reason", ours)))
        yield ended
        for name, (source, said) in _HISTOGRAMS.items():
            histogram = HistogramMetricFamily(f"vllm:{name}", said, labels=_LABELS)
            buckets, summed = _added(found[source.name], source)
            if buckets:
                histogram.add_metric(self._with, buckets, summed)
            yield histogram


def _added(family: Metric, source: _Of) -> tuple[list[tuple[str, float]], float]:
    """The buckets of a histogram and the sum of its values, over all of its labels."""
    buckets: dict[str, float] = defaultdict(float)
    summed = 0.0
    for sample in family.samples:
        if not source.has(sample.labels):
            continue
        if sample.name.endswith("_bucket"):
            buckets[sample.labels["le"]] += sample.value
        elif sample.name.endswith("_sum"):
            summed += sample.value
    return list(buckets.items()), summed
