"""The server's metrics, in a registry of its own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

import zinc_rt
from zinc_rt.scheduler.messages import EngineStatus, StepReport
from zinc_rt.serving.api.vllm_names import vllm_text

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_GAPS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_ROWS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
_TOKENS: Final = tuple(float(n * 10**power) for power in range(6) for n in (1, 2, 5))
TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Their names as docs/use/serving.md lists them. status, restarts: of the engine, when they are asked for."""

    def __init__(self) -> None:
        self.status: Callable[[], EngineStatus] = EngineStatus
        self.restarts: Callable[[], int] = int
        self.registry = own = CollectorRegistry()
        self.requests = Counter(
            "zinc_requests", "Requests that ended.", ["tenant", "endpoint", "outcome"], registry=own
        )
        self.refused = Counter("zinc_refused", "Requests that were refused.", ["tenant", "reason"], registry=own)
        self.tokens = Counter(
            "zinc_tokens", "Tokens of prompts, from the cache, generated.", ["tenant", "kind"], registry=own
        )
        self.engine_seconds = Counter("zinc_engine_seconds", "Time in the engine.", ["tenant"], registry=own)
        self.cancelled = Counter("zinc_cancelled", "Requests that were cancelled.", ["reason", "phase"], registry=own)
        self.ttft = Histogram(
            "zinc_ttft_seconds", "From the request to its first token.", ["qos"], buckets=_SECONDS, registry=own
        )
        self.inter_token = _Histogram("zinc_inter_token_seconds", "From one token to the next.", own, _GAPS, "qos")
        self.queue = Histogram("zinc_queue_seconds", "In the queue.", ["qos"], buckets=_SECONDS, registry=own)
        self.prefill = Histogram(
            "zinc_prefill_seconds", "Computing the prompt.", ["qos"], buckets=_SECONDS, registry=own
        )
        self.seconds = Histogram("zinc_request_seconds", "The whole request.", ["qos"], buckets=_SECONDS, registry=own)
        self.replays = Counter("zinc_replay", "Requests computed again.", ["result"], registry=own)
        build = Gauge("zinc_build_info", "1; the label says which.", ["version"], registry=own)
        build.labels(zinc_rt.__version__).set(1)
        self.decode = Histogram("zinc_decode_seconds", "Generating.", ["qos"], buckets=_SECONDS, registry=own)
        self.lengths = Histogram(
            "zinc_request_tokens", "Tokens of a request, and of an answer.", ["kind"], buckets=_TOKENS, registry=own
        )
        self.answers = Counter("zinc_answers", "Answers by why they ended.", ["reason"], registry=own)
        self._grammar = Histogram(
            "zinc_grammar_seconds", "Compiling a grammar; all masks of a step.", ["kind"], buckets=_GAPS, registry=own
        )
        self._sampling = _Histogram("zinc_sampling_seconds", "Choosing a step's tokens.", own, _GAPS)
        self._step = _Histogram("zinc_step_seconds", "A step of the engine.", own, _GAPS)
        self._rows = _Histogram("zinc_step_rows", "Rows of a step.", own, _ROWS, "kind")
        own.register(_Engine(self))

    def step(self, report: StepReport) -> None:
        """A step has ended."""
        if report.prefill_rows or report.decode_rows:
            self._step.observe(report.seconds)
            self._rows.observe(report.prefill_rows, "prefill")
            self._rows.observe(report.decode_rows, "decode")
            self._sampling.observe(report.times.sampling)
        if report.times.masks:
            self._grammar.labels("mask").observe(report.times.masks)
        for seconds in report.times.compiles:
            self._grammar.labels("compile").observe(seconds)

    def text(self, vllm: str | None = None) -> bytes:
        """All metrics in Prometheus' text format. vllm: the model's name, to have them by vLLM's names, too."""
        own = generate_latest(self.registry)
        return own if vllm is None else own + vllm_text(self.registry, vllm)


class _Histogram(Collector):
    """A histogram of every token or step: one thread observes, so that a value takes a bisection and no lock.

    label: of its values, None for none.
    """

    def __init__(
        self, name: str, about: str, registry: CollectorRegistry, limits: tuple[float, ...], label: str | None = None
    ) -> None:
        self._name, self._about, self._limits, self._label = name, about, limits, label
        self._counts: dict[str, list[int]] = {} if label is not None else {"": [0] * (len(limits) + 1)}
        self._sums: dict[str, float] = dict.fromkeys(self._counts, 0.0)
        registry.register(self)

    def observe(self, value: float, label: str = "") -> None:
        """Count a value under its label."""
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = [0] * (len(self._limits) + 1)
            self._sums[label] = 0.0
        counts[bisect_left(self._limits, value)] += 1
        self._sums[label] += value

    def collect(self) -> Iterator[Metric]:
        found = HistogramMetricFamily(self._name, self._about, labels=[] if self._label is None else [self._label])
        limits = [*map(str, self._limits), "+Inf"]
        for label, counts in self._counts.items():
            buckets = list(zip(limits, accumulate(counts), strict=True))
            found.add_metric([] if self._label is None else [label], buckets, self._sums[label])
        yield found


def labelled_text(registries: Mapping[str, CollectorRegistry]) -> bytes:
    """The metrics of several models in Prometheus' text format: each sample has a label `model`, empty for what is of
    no model.
    """
    families: dict[str, Metric] = {}
    for model, registry in registries.items():
        for found in registry.collect():
            family = families.setdefault(
                f"{found.name} {found.type}", Metric(found.name, found.documentation, found.type)
            )
            family.samples += [s._replace(labels={**s.labels, "model": model}) for s in found.samples]

    class _All(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from families.values()

    made = CollectorRegistry()
    made.register(_All())
    return generate_latest(made)


class _Engine(Collector):
    """The engine's own figures, read when a client asks for metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        now = self._metrics.status()
        states = GaugeMetricFamily("zinc_requests", "Requests in the engine.", labels=["state"])
        for state in ("queued", "prefilling", "decoding"):
            states.add_metric([state], getattr(now, state))
        yield states
        pages = GaugeMetricFamily("zinc_kv_pages", "Pages of the KV cache.", labels=["state"])
        for state in ("free", "cached", "used"):
            pages.add_metric([state], getattr(now, f"pages_{state}"))
        yield pages
        total = now.pages_free + now.pages_cached + now.pages_used
        yield GaugeMetricFamily(
            "zinc_kv_usage_ratio", "Share of the pages that requests hold.", now.pages_used / total if total else 0.0
        )
        tokens = CounterMetricFamily("zinc_prefix_tokens", "Prompt tokens by where they came from.", labels=["result"])
        tokens.add_metric(["hit"], now.prefix_hit_tokens)
        tokens.add_metric(["miss"], now.prefix_miss_tokens)
        yield tokens
        yield CounterMetricFamily("zinc_preemptions", "Requests that gave up their pages.", now.preemptions)
        guesses = CounterMetricFamily("zinc_guesses", "Tokens guessed, and those that were right.", labels=["result"])
        guesses.add_metric(["all"], now.drafted_tokens)
        guesses.add_metric(["right"], now.accepted_tokens)
        yield guesses
        restarts = self._metrics.restarts()
        yield CounterMetricFamily("zinc_engine_restarts", "Engines started in the place of one that ended.", restarts)
        yield CounterMetricFamily("zinc_steps", "Steps of the engine.", now.steps)
