"""Profiles of a GPU by its own clock: what each kernel took, one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.lang.launch import LaunchTime


@dataclass(frozen=True)
class GpuProfile:
    """See `StepProfile`. name: the card's."""

    name: str
    spans: Sequence[LaunchTime]

    @property
    def n_events(self) -> int:
        """Spans of the trace."""
        return len(self.spans)

    def lines(self) -> Iterator[str]:
        """A table of kernels, the longest first."""
        if not self.spans:
            yield "no step ran"
            return
        total, lists = sum(s.seconds for s in self.spans), len({s.step for s in self.spans})
        yield f"measured on {self.name}: {total / lists * 1e3:.3f} ms a list of {lists}, each kernel by itself"
        times: dict[str, list[float]] = {}
        for span in self.spans:
            times.setdefault(span.name, []).append(span.seconds)
        wide = max(map(len, ("kernel", *times)))
        yield f"  {'kernel':<{wide}}{'us a list':>11}{'share':>8}{'calls':>8}{'us a call':>11}"
        for name, seconds in sorted(times.items(), key=lambda item: -sum(item[1])):
            us = sum(seconds) * 1e6
            calls = len(seconds)
            yield f"  {name:<{wide}}{us / lists:>11.2f}{us / total / 1e6:>8.1%}{calls / lists:>8.4g}{us / calls:>11.2f}"

    def chrome_trace(self) -> str:
        """JSON that chrome://tracing and Perfetto read: the lists one after the other."""
        spans: list[tuple[str, float, float, dict[str, Any]]] = []
        begun, end, step = 0.0, 0.0, 0
        for span in self.spans:
            if span.step != step:
                begun, step = end, span.step
            at = begun + span.start
            end = at + span.seconds
            spans.append((span.name, at, span.seconds, {"groups": list(span.groups), "list": span.step}))
        return trace_of(spans)


def trace_of(spans: Iterable[tuple[str, float, float, Mapping[str, Any]]]) -> str:
    """A chrome trace of one GPU. spans: name, start and length in seconds, and what else is known."""
    events = [
        {
            "name": name,
            "ph": "X",
            "ts": round(at * 1e6, 3),
            "dur": round(seconds * 1e6, 3),
            "pid": 1,
            "tid": 1,
            "args": about,
        }
        for name, at, seconds, about in spans
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
