"""The twelve names of the page `lib`, and the exports that no other test names; in a fresh process too."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import zinc_rt
from tests.helpers import soon

PAGES = {
    "engine": """Engine Options Capabilities Tier parse_tier tier_from_env auto_tier UnknownZincRtTier
        SUPPORTS_MULTITENANT_BATCH_PLANNING SUPPORTS_MULTITENANT_BATCHED_EXECUTION""",
    "ir_op": "Op Stage Milestone Info info name from_name is_m0",
    "ir_graph": """BufferId NodeId MAX_BINDINGS BindingList TooManyBindings Node Graph verify EmptyGraph
        UnknownInputBuffer UnknownOutputBuffer NodeWithoutOutput""",
    "kmd": "QueryStatus query_compute_userq Bo last_errno",
    "ring": "Packet PacketBatch PacketList Ring",
    "cpu_ring": "CpuRing",
    "umq": "ProbeStatus SmokeStatus SmokeResult KernelVersion ProbeResult",
    "kfd": "BringUpStatus ComputeQueueSmokeStatus bring_up_path",
    "cs": "SmokeStatus TokenBoundary submit_nop_smoke_path",
    "pm4_packet": "Error PacketBuilder lo32 hi32",
    "kernels": """embed rms_norm residual_rms_norm rope flash_attn swiglu sigmoid_mul vadd moe_gate_topk lm_head argmax
        matvec dequant RoutingRule""",
    "fast_pool": "MAX_WORKERS Task FastPool InvalidWorkerCount",
}
DEQUANT = """row dot_row dot_f32_row dot_f16_row dot_bf16_row dot_q8_0_row dot_q4_0_row quantize_row_to_q4_0
    quantize_row_to_q8_0 dot_q4k_row fill_input_sum32 dot_q5k_row dot_q6k_row"""
METHODS = {
    "engine.Engine": "init deinit capabilities",
    "ir_graph.Graph": "init deinit add_buffer add_node verify",
    "ir_graph.BindingList": "init slice",
    "ring.PacketList": "init deinit append append_barrier slice len clear",
    "cpu_ring.CpuRing": "init deinit submit_and_wait",
    "fast_pool.FastPool": "init deinit dispatch_and_run executor_count",
    "kfd.BringUpResult": "ok",
    "kfd.ComputeQueueSmokeResult": "ok",
    "cs.SmokeResult": "ok",
    "umq.SmokeResult": "ok",
    "umq.ProbeResult": "preflight_ok",
}
STATUSES = {
    "umq.ProbeStatus": """preflight_ok unsupported_os kernel_too_old render_node_missing user_queue_param_missing
        user_queue_disabled""",
    "umq.SmokeStatus": """passed unsupported_os preflight_failed compute_userq_unavailable render_node_open_failed
        gem_create_failed gem_mmap_failed gem_va_failed userq_create_failed userq_free_failed""",
}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_its_names(page: str) -> None:
    module = getattr(zinc_rt, page)
    assert isinstance(module, ModuleType)
    assert [name for name in PAGES[page].split() if not hasattr(module, name)] == []


def test_the_page_lib_has_twelve_names() -> None:
    assert len(PAGES) == 12
    assert [page for page in PAGES if page not in zinc_rt.__all__] == []


def test_dequant() -> None:
    assert len(DEQUANT.split()) == 13
    assert [name for name in DEQUANT.split() if not callable(getattr(zinc_rt.kernels.dequant, name, None))] == []


@pytest.mark.parametrize("path", METHODS)
def test_methods(path: str) -> None:
    page, name = path.split(".")
    made = getattr(getattr(zinc_rt, page), name)
    assert [method for method in METHODS[path].split() if not callable(getattr(made, method, None))] == []


@pytest.mark.parametrize("path", STATUSES)
def test_statuses(path: str) -> None:
    page, name = path.split(".")
    assert [member.value for member in getattr(getattr(zinc_rt, page), name)] == STATUSES[path].split()


FIRST = ["zinc_rt", "zinc_rt.llm.model", "zinc_rt.kernels.reference.matmul", "zinc_rt.ir.graph"]


@pytest.mark.parametrize("first", soon(FIRST[3:], FIRST))
def test_the_names_do_not_depend_on_what_was_imported(first: str) -> None:
    names = ", ".join(f"{page}.__name__" for page in PAGES)
    code = f"import {first}\nfrom zinc_rt import {', '.join(PAGES)}\nprint([{names}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    runtime = ("engine", "kernels")  # modules of the runtime, which hand out the page's names
    assert done.stdout.strip() == str([f"zinc_rt.{p}" if p in runtime else f"zinc_rt.seed.{p}" for p in PAGES])
