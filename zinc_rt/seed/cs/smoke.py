"""The smoke test: can this machine retire PM4 through command submission? Two submissions prove it."""

from __future__ import annotations

import ctypes

from zinc_rt.amdgpu.cs.session import CsSession
from zinc_rt.amdgpu.errors import SignalMismatch, StepFailed
from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.pm4 import OutOfSpace, PacketBuilder
from zinc_rt.seed.cs.results import SmokeResult, SmokeStatus
from zinc_rt.seed.cs.sentinels import smoke_sentinel
from zinc_rt.utils.linux import Linux, host

IB_VA = 0x1_0000_0000
IB_BYTES = 64 << 10
SIGNAL_VA = IB_VA + IB_BYTES
SIGNAL_BYTES = 4096
TIMEOUT = 10.0
_PAD_DWORDS = 64  # more than any kernel asks of an indirect buffer's size


def setup_smoke_default(*, linux: Linux | None = None) -> SmokeResult:
    """`setup_smoke_path` of the first render node."""
    return setup_smoke_path(DEFAULT_RENDER_NODE, linux=linux)


def setup_smoke_path(node: str, *, linux: Linux | None = None) -> SmokeResult:
    """The same as `submit_nop_smoke_path`."""
    return submit_nop_smoke_path(node, linux=linux)


def submit_nop_smoke_default(*, linux: Linux | None = None) -> SmokeResult:
    """`submit_nop_smoke_path` of the first render node."""
    return submit_nop_smoke_path(DEFAULT_RENDER_NODE, linux=linux)


def submit_nop_smoke_path(node: str, *, timeout: float = TIMEOUT, linux: Linux | None = None) -> SmokeResult:
    """Open a render node, submit NOPs and a write of a sentinel twice, wait for both, look at the sentinels.

    timeout: seconds for each wait. Never raises: the result's status names the step that failed, its errno the
    kernel's answer. Nothing is left open.
    """
    linux = linux or host()
    result = SmokeResult(SmokeStatus.ok, node)

    def seen(session: CsSession) -> None:
        result.available_rings, result.ctx_id = session.rings, session.ctx_id

    try:
        session = CsSession.open(node, linux, seen)
        try:
            _prepare_and_submit(session, result, timeout)
        finally:
            result.wait_status = session.last_wait_status
            session.close()
    except StepFailed as error:
        result.status, result.errno = SmokeStatus(error.word), error.errno
    except SignalMismatch:
        result.status = SmokeStatus.signal_check_failed
    except OutOfSpace:
        result.status = SmokeStatus.cs_submit_failed
    return result


def _prepare_and_submit(session: CsSession, result: SmokeResult, timeout: float) -> None:
    linux = session.linux
    session.check_addresses(IB_VA, SIGNAL_VA + SIGNAL_BYTES)
    ib = session.create("ib", IB_BYTES, IB_VA, executable=True)
    signal = session.create("signal", SIGNAL_BYTES, SIGNAL_VA)
    session.list_buffers([ib.handle, signal.handle])
    result.ib_va, result.signal_va = IB_VA, SIGNAL_VA
    result.bo_list_handle = session.list_handle or 0
    words = (ctypes.c_uint32 * (IB_BYTES // 4)).from_address(ib.mapped)
    for submission in (1, 2):
        expected = smoke_sentinel(submission)
        builder = PacketBuilder(words)
        builder.write_nop(3)
        builder.write_data64(SIGNAL_VA, expected)
        builder.write_nop(1)
        builder.pad_to_alignment(_PAD_DWORDS)
        linux.store64(signal.mapped, 0)
        result.ib_bytes = 4 * builder.cursor
        result.fence_handle = session.submit(IB_VA, result.ib_bytes)
        result.first_fence_handle = result.first_fence_handle or result.fence_handle
        session.wait(result.fence_handle, timeout)
        result.submit_count += 1
        result.signal_value = linux.load64(signal.mapped)
        if result.signal_value != expected:
            raise SignalMismatch(f"submission {submission} left {result.signal_value:#x}, {expected:#x} was expected")
