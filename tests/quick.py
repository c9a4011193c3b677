"""The modules of the inner loop, `python -m pytest --jobs auto -m quick`: something of every area.

Meant to take half a minute on two cores. Nothing else is collected.
"""

from __future__ import annotations

QUICK = (
    "adapters/test_adapters.py",
    "amdgpu/abi/test_layout.py", "amdgpu/cs/test_interface.py", "amdgpu/kfd/test_sizes.py",
    "amdgpu/pm4/test_builder.py", "amdgpu/queue/test_pool.py", "amdgpu/umq/test_preflight.py",
    "amdgpu_emu/core/test_core.py", "amdgpu_emu/cp/test_ordering.py", "amdgpu_emu/drm/test_submission.py",
    "amdgpu_emu/kfd/test_queues.py",
    "backends/test_fusion.py", "backends/amdgpu/test_placement.py",
    "backends/cpu/test_cores.py",
    "benchmarks/test_serving.py",
    "certify/test_ladder.py",
    "cli/test_command.py",
    "converting/test_refusals.py",
    "cuda/test_device.py",
    "dialects/test_families.py", "dialects/test_tools.py",
    "engine/test_options.py", "engine/test_page_tables.py",
    "formats/test_table.py",
    "gguf/test_reader.py", "gguf/test_writer.py",
    "grammar/test_matcher.py",
    "hub/test_choose.py",
    "ir/test_graph.py", "ir/test_verify.py",
    "kernels/gpu/test_code.py", "kernels/test_arith.py", "kernels/test_norm_rope.py",
    "lang/test_cache.py", "lang/test_language_values.py",
    "llm/test_model.py",
    "mem/test_arena.py", "mem/test_plan.py",
    "models/test_errors.py", "models/test_rope_config.py",
    "charts/test_charts.py",
    "opencl/test_device.py",
    "quantizing/test_rows.py",
    "sampling/test_parameters.py", "sampling/test_stop.py",
    "scheduler/test_fair_share.py", "scheduler/test_preemption.py",
    "seed/cs/test_exports.py", "seed/kernels/test_projection.py",
    "serving/test_wire.py",
    "serving/api/test_chat.py", "serving/api/test_limits.py",
    "speculation/test_core.py", "speculation/test_ngram.py",
    "text/test_detokenizer.py", "text/test_shipped.py",
    "test_golden.py", "test_layers.py",
    "utils/test_checks.py",
    "verifier/test_verifier.py",
    "vision/test_picture.py",
)  # fmt: skip
"""Paths below `tests`, in the order of the folders."""
