"""Whether the kernel would take a compute user queue: the preflight, then its own answer. Nothing is created."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.amdgpu.drm import QueryResult, query_compute_userq
from zinc_rt.amdgpu.umq.preflight import ProbeResult, probe_path
from zinc_rt.utils.linux import Linux


@dataclass(frozen=True)
class QueueAdmission:
    """preflight: the checks from outside; query: the kernel's answer, None if it was not asked."""

    preflight: ProbeResult
    query: QueryResult | None = None

    @property
    def word(self) -> str:
        """The step that failed, a word of `zinc_rt.amdgpu.advice.STEPS`; empty when the kernel reports slots."""
        if self.query is None:
            return self.preflight.status.value
        return "" if self.query.info is not None else self.query.status.value


def admission(render_node: str, linux: Linux) -> QueueAdmission:
    """Ask. A queue that retires a fence is still to be seen after it. Never raises."""
    preflight = probe_path(render_node, linux=linux)
    if not preflight.preflight_ok():
        return QueueAdmission(preflight)
    return QueueAdmission(preflight, query_compute_userq(render_node, linux=linux))
