"""Describes a lost GPU for messages: resets, and the last page fault with its buffer."""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.amdgpu.abi import cs as uapi
from zinc_rt.amdgpu.address_range import AddressRange, place
from zinc_rt.amdgpu.cs import calls
from zinc_rt.amdgpu.cs.session import CsSession

GUILTY = "a submission of this context caused it"
_FLAGS = {
    uapi.AMDGPU_CTX_QUERY2_FLAGS_RESET: "the GPU was reset",
    uapi.AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST: "the contents of VRAM are lost",
    uapi.AMDGPU_CTX_QUERY2_FLAGS_GUILTY: GUILTY,
    uapi.AMDGPU_CTX_QUERY2_FLAGS_RAS_CE: "memory errors were corrected",
    uapi.AMDGPU_CTX_QUERY2_FLAGS_RAS_UE: "memory errors could not be corrected",
    uapi.AMDGPU_CTX_QUERY2_FLAGS_RESET_IN_PROGRESS: "a reset is under way",
}


def account(session: CsSession, ranges: Iterable[AddressRange]) -> str:
    """All that the driver says, in brackets behind a space; "" when it says nothing."""
    said = [*_resets(session), *_fault(session, ranges)]
    return f" ({', '.join(said)})" if said else ""


def _resets(session: CsSession) -> list[str]:
    try:
        flags = int(calls.context_state(session.linux, session.fd, session.ctx_id).flags)
    except OSError:
        return []
    return [text for bit, text in _FLAGS.items() if flags & bit]


def _fault(session: CsSession, ranges: Iterable[AddressRange]) -> list[str]:
    """The driver tells the page of this address space's last fault, not the byte. Old kernels do not know it."""
    try:
        va = int(calls.query_fault(session.linux, session.fd).addr)
    except OSError:
        return []
    return [f"page fault in the page at {va:#x}, {place(va, ranges)}"] if va else []
