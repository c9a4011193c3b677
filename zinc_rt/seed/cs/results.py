"""What the page's functions return."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE


@dataclass(frozen=True)
class ArgmaxRangeResult:
    """token: absolute; ordered_score: its score as sortable u32 key."""

    token: int
    ordered_score: int


@dataclass(frozen=True)
class DmmvArgmaxResult:
    """row: within the range; score: f32."""

    row: int
    score: float


class SmokeStatus(StrEnum):
    """Where the smoke test ended; each names one step."""

    ok = "ok"
    unsupported_os = "unsupported_os"
    render_node_open_failed = "render_node_open_failed"
    hw_ip_query_failed = "hw_ip_query_failed"
    no_rings = "no_rings"
    ctx_alloc_failed = "ctx_alloc_failed"
    va_reservation_failed = "va_reservation_failed"
    ib_bo_failed = "ib_bo_failed"
    ib_map_failed = "ib_map_failed"
    ib_va_failed = "ib_va_failed"
    signal_bo_failed = "signal_bo_failed"
    signal_map_failed = "signal_map_failed"
    signal_va_failed = "signal_va_failed"
    bo_list_failed = "bo_list_failed"
    cs_submit_failed = "cs_submit_failed"
    wait_cs_failed = "wait_cs_failed"
    wait_timeout = "wait_timeout"
    signal_check_failed = "signal_check_failed"


@dataclass
class SmokeResult:
    """What was seen on the way. errno: of the failing call, None when none failed; ib_bytes: of one submission;
    fence handles: of the first and the latest; wait_status: of the latest wait, 0 retired, 1 not.
    """

    status: SmokeStatus
    render_node: str = DEFAULT_RENDER_NODE
    ip_type: int = AMDGPU_HW_IP_COMPUTE
    available_rings: int = 0
    ctx_id: int = 0
    bo_list_handle: int = 0
    ib_va: int = 0
    ib_bytes: int = 0
    signal_va: int = 0
    signal_value: int = 0
    submit_count: int = 0
    first_fence_handle: int = 0
    fence_handle: int = 0
    wait_status: int = 0
    errno: int | None = None

    def ok(self) -> bool:
        """Both submissions retired and left their sentinel."""
        return self.status is SmokeStatus.ok
