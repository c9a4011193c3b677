"""Describes a lost GPU for messages: a page fault with its buffer, or a reset."""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.amdgpu.abi.kfd import (
    KFD_HW_EXCEPTION_ECC,
    KFD_HW_EXCEPTION_PER_ENGINE_RESET,
    HsaHwExceptionData,
    HsaMemoryExceptionData,
)
from zinc_rt.amdgpu.address_range import AddressRange, place


def fault_text(fault: HsaMemoryExceptionData, ranges: Iterable[AddressRange]) -> str:
    """A page fault. amdkfd tells the page, not the byte."""
    why = fault.failure
    reasons = [
        text
        for flag, text in (
            (why.NotPresent, "nothing is mapped there"),
            (why.ReadOnly, "it may not be written"),
            (why.NoExecute, "it may not be executed"),
            (why.imprecise, "the address is imprecise"),
        )
        if flag
    ]
    reason = ", ".join(reasons) or "no reason given"
    return f"page fault at {fault.va:#x} ({reason}), {place(fault.va, ranges)}"


def reset_text(reset: HsaHwExceptionData) -> str:
    """A reset."""
    kind = "an engine was reset" if reset.reset_type == KFD_HW_EXCEPTION_PER_ENGINE_RESET else "the GPU was reset"
    cause = "an ECC error" if reset.reset_cause == KFD_HW_EXCEPTION_ECC else "a hang"
    return f"{kind} after {cause}{', its memory is lost' if reset.memory_lost else ''}"
