"""The one table of steps and remedies: it has every word that statuses and errors use."""

from __future__ import annotations

import ast
import errno
from enum import StrEnum
from pathlib import Path

import pytest

import zinc_rt
from zinc_rt.amdgpu.advice import KERNEL_LOG, STEPS, remedy
from zinc_rt.amdgpu.drm import QueryStatus
from zinc_rt.amdgpu.errors import BufferFailed, InterfaceError, StepFailed
from zinc_rt.amdgpu.umq.preflight import MIN_LINUX, ProbeStatus
from zinc_rt.seed.cs.errors import _STEPS as CS_STEPS
from zinc_rt.seed.kfd import BringUpStatus, ComputeQueueSmokeStatus
from zinc_rt.seed.umq import SmokeStatus

DRIVER = Path(zinc_rt.__file__).parent / "amdgpu"
# Not steps: that all went well, results of a comparison, and statuses that hand on to another one.
NO_STEPS = {
    "ok",
    "available",
    "passed",
    "preflight_ok",
    "roundtrip_mismatch",
    "preflight_failed",
    "compute_userq_unavailable",
}


@pytest.mark.parametrize("statuses", [BringUpStatus, ComputeQueueSmokeStatus, SmokeStatus, ProbeStatus, QueryStatus])
def test_every_status_has_its_words(statuses: type[StrEnum]) -> None:
    assert {status.value for status in statuses} - NO_STEPS <= set(STEPS)


def raised() -> set[str]:
    """The first arguments of `StepFailed` and of the context managers `step`, where they are written out."""
    words = set()
    for path in DRIVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in {"StepFailed", "step"}
            ):
                words |= {word.value for word in node.args[:1] if isinstance(word, ast.Constant)}
    return words


def test_every_step_that_fails_has_its_words() -> None:
    assert len(raised()) > 20
    assert raised() <= set(STEPS)
    assert set(CS_STEPS) <= set(STEPS)


def test_remedies() -> None:
    assert all(step.text and "\n" not in step.text + step.remedy for step in STEPS.values())
    assert all(remedy(word, None) for word in STEPS if word != "unsupported_os")
    assert "one per process" in remedy("acquire_vm_failed", errno.EBUSY)
    assert "ROCm" in remedy("acquire_vm_failed", errno.EINVAL)
    assert "memory is short" in remedy("bo_list_failed", errno.ENOMEM)
    assert remedy("no such step", errno.EFAULT) == KERNEL_LOG
    assert f"Linux {MIN_LINUX.major}.{MIN_LINUX.minor} " in STEPS["kernel_too_old"].remedy


def test_one_family_of_errors() -> None:
    made = BufferFailed("weights", "map", errno.ENOMEM, "weights: mapping 8 bytes", "free some", call="mmap")
    assert isinstance(made, StepFailed)
    assert isinstance(made, InterfaceError)
    assert (made.word, made.buffer, made.part, made.call) == ("weights_map_failed", "weights", "map", "mmap")
    assert str(made) == "weights: mapping 8 bytes failed: Cannot allocate memory (errno 12); free some"
    assert str(StepFailed("create_queue_failed", None)) == "CREATE_QUEUE failed"
