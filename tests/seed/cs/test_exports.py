"""The page's names, values and layouts, against the table of exports."""

from __future__ import annotations

import ctypes
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdgpu_emu.abi import requests
from zinc_rt.errors import ZincError
from zinc_rt.seed import cs
from zinc_rt.seed.cs import errors, sentinels
from zinc_rt.seed.cs.errors import BUFFER_ERRORS, CsError
from zinc_rt.seed.cs.sentinels import BoundaryOperation, sentinel, smoke_sentinel

CONSTANTS = {
    "DEFAULT_RENDER_NODE": "/dev/dri/renderD128",
    "AMDGPU_HW_IP_GFX": 0,
    "AMDGPU_HW_IP_COMPUTE": 1,
    "AMDGPU_CTX_OP_ALLOC_CTX": 1,
    "AMDGPU_CTX_OP_FREE_CTX": 2,
    "AMDGPU_BO_LIST_OP_CREATE": 0,
    "AMDGPU_BO_LIST_OP_DESTROY": 1,
    "AMDGPU_CHUNK_ID_IB": 1,
    "AMDGPU_CHUNK_ID_BO_HANDLES": 6,
    "AMDGPU_IB_FLAG_EMIT_MEM_SYNC": 64,
}
STRUCTS = {  # bytes, and fields in order
    "DrmAmdgpuCtxIn": (16, "op flags ctx_id priority"),
    "DrmAmdgpuCtxOutAlloc": (8, "ctx_id _pad"),
    "DrmAmdgpuCtxOutState": (16, "flags hangs reset_status"),
    "DrmAmdgpuBoListIn": (24, "operation list_handle bo_number bo_info_size bo_info_ptr"),
    "DrmAmdgpuBoListOut": (8, "list_handle _pad"),
    "DrmAmdgpuBoListEntry": (8, "bo_handle bo_priority"),
    "DrmAmdgpuCsChunk": (16, "chunk_id length_dw chunk_data"),
    "DrmAmdgpuCsIn": (24, "ctx_id bo_list_handle num_chunks flags chunks"),
    "DrmAmdgpuCsOut": (8, "handle"),
    "DrmAmdgpuCsChunkIb": (32, "_pad flags va_start ib_bytes ip_type ip_instance ring"),
    "DrmAmdgpuWaitCsIn": (32, "handle timeout ip_type ip_instance ring ctx_id"),
    "DrmAmdgpuWaitCsOut": (8, "status"),
}
UNIONS = {
    "DrmAmdgpuCtx": 0xC0106442,
    "DrmAmdgpuBoList": 0xC0186443,
    "DrmAmdgpuCs": 0xC0186444,
    "DrmAmdgpuWaitCs": 0xC0206449,
}
OTHERS = {
    "ArgmaxRangeResult", "DmmvArgmaxResult", "SmokeStatus", "SmokeResult", "TokenBoundary", "last_errno",
    "setup_smoke_default", "setup_smoke_path", "submit_nop_smoke_default", "submit_nop_smoke_path",
}  # fmt: skip


def test_all_thirty_six_names_are_exported() -> None:
    names = {*CONSTANTS, *STRUCTS, *UNIONS, *OTHERS}
    assert len(names) == 36
    assert set(cs.__all__) == names
    assert all(hasattr(cs, name) for name in names)


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants(name: str) -> None:
    assert getattr(cs, name) == CONSTANTS[name]


@pytest.mark.parametrize("name", STRUCTS)
def test_structs(name: str) -> None:
    kind, (size, fields) = getattr(cs, name), STRUCTS[name]
    assert (ctypes.sizeof(kind), [field[0] for field in kind._fields_]) == (size, fields.split())


@pytest.mark.parametrize("name", UNIONS)
def test_unions_make_the_requests(name: str) -> None:
    kind = getattr(cs, name)
    assert UNIONS[name] in {r.value for r in requests.REQUESTS if r.argument is kind}
    assert UNIONS[name] >> 16 & 0x3FFF == ctypes.sizeof(kind)


def test_results_have_the_fields_of_the_page() -> None:
    assert cs.ArgmaxRangeResult(7, 9) == cs.ArgmaxRangeResult(token=7, ordered_score=9)
    assert cs.DmmvArgmaxResult(7, 0.5) == cs.DmmvArgmaxResult(row=7, score=0.5)
    assert [status.value for status in cs.SmokeStatus] == [
        "ok",
        "unsupported_os",
        "render_node_open_failed",
        "hw_ip_query_failed",
        "no_rings",
        "ctx_alloc_failed",
        "va_reservation_failed",
        "ib_bo_failed",
        "ib_map_failed",
        "ib_va_failed",
        "signal_bo_failed",
        "signal_map_failed",
        "signal_va_failed",
        "bo_list_failed",
        "cs_submit_failed",
        "wait_cs_failed",
        "wait_timeout",
        "signal_check_failed",
    ]
    assert all(status.name == status.value for status in cs.SmokeStatus)
    assert list(vars(cs.SmokeResult(cs.SmokeStatus.ok))) == [
        "status",
        "render_node",
        "ip_type",
        "available_rings",
        "ctx_id",
        "bo_list_handle",
        "ib_va",
        "ib_bytes",
        "signal_va",
        "signal_value",
        "submit_count",
        "first_fence_handle",
        "fence_handle",
        "wait_status",
        "errno",
    ]
    assert cs.SmokeResult(cs.SmokeStatus.ok).ok()
    assert not any(cs.SmokeResult(status).ok() for status in cs.SmokeStatus if status is not cs.SmokeStatus.ok)


def test_every_buffer_has_an_error_for_each_step() -> None:
    for name in ("ib", "input", "output", "signal", "shader"):
        for step in ("bo", "map", "va"):
            kind = BUFFER_ERRORS[name, step]
            assert kind.__name__ == f"{name.capitalize()}{step.capitalize()}Failed"
            assert issubclass(kind, CsError)
    assert len(BUFFER_ERRORS) == len(set(BUFFER_ERRORS.values())) == 15


def test_the_error_set_is_whole() -> None:
    names = (
        "UnsupportedOs RenderNodeOpenFailed HwIpQueryFailed NoComputeRings UnsupportedComputeIp CtxAllocFailed"
        " BoListFailed SubmitFailed WaitFailed WaitTimedOut OutOfSpace SignalMismatch"
    )
    assert all(issubclass(getattr(errors, name), ZincError) for name in names.split())


# Sentinels.


def test_smoke_sentinels_are_the_originals() -> None:
    assert struct.pack(">Q", smoke_sentinel(1)) == b"ZINCRT\x00\x01"
    assert struct.pack(">Q", smoke_sentinel(2)) == b"ZINCRT\x00\x02"


@given(
    st.sampled_from(BoundaryOperation),
    st.integers(1, 1 << 40),
    st.sampled_from(BoundaryOperation),
    st.integers(1, 1 << 40),
)
def test_no_two_submissions_share_a_sentinel(a: BoundaryOperation, m: int, b: BoundaryOperation, n: int) -> None:
    assert (sentinel(a, m) == sentinel(b, n)) == (a is b and m == n)
    assert struct.pack(">Q", sentinel(a, m))[:3] == bytes((ord("Z"), ord("R"), a))


def test_the_originals_count_would_have_run_over() -> None:
    # 16 bits for both: the 4097th copy and the first of another operation were the same number.
    assert 0x1000 | 0x2001 == 0x3000 | 0x0001
    assert sentinel(BoundaryOperation.copy, 0x2001) != sentinel(BoundaryOperation.argmax_top2, 1)


# Sortable keys.


def float_of(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF))
def test_keys_sort_as_floats_do(a: int, b: int) -> None:
    x, y, ka, kb = float_of(a), float_of(b), sentinels.key_of_bits(a), sentinels.key_of_bits(b)
    assert sentinels.bits_of_key(ka) == a
    if math.isnan(x) or math.isnan(y):
        return
    if x != y:
        assert (ka < kb) == (x < y)
    else:
        assert (ka < kb) == (math.copysign(1, x) < math.copysign(1, y))


def test_keys_of_the_ends() -> None:
    negative_nan, minus_inf, minus_zero = 0xFFC00000, 0xFF800000, 0x80000000
    order = [negative_nan, minus_inf, 0xFF7FFFFF, 0x80000001, minus_zero, 0, 1, 0x3F800000, 0x7F800000, 0x7FC00000]
    keys = [sentinels.key_of_bits(bits) for bits in order]
    assert keys == sorted(keys)
    assert sentinels.sortable_key(1.0) == 0xBF800000
    assert sentinels.sortable_key(-1.0) == 0x407FFFFF
    assert sentinels.value_of_key(sentinels.sortable_key(-2.5)) == -2.5
