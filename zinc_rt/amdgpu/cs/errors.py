"""Errors of command submission, one class for each name of the original's error set.

`status` is the smoke test's word for the same failure.
"""

from __future__ import annotations

from zinc_rt.amdgpu import errors as driver_errors
from zinc_rt.amdgpu import pm4
from zinc_rt.amdgpu.errors import InterfaceError

OutOfSpace = pm4.OutOfSpace
SignalMismatch = driver_errors.SignalMismatch


class CsError(InterfaceError):
    """A step of bringing up or using the render node failed."""

    status = ""


class UnsupportedOs(CsError):
    """This is not Linux; nothing was opened."""

    status = "unsupported_os"


class RenderNodeOpenFailed(CsError):
    """The render node could not be opened, or is not amdgpu's."""

    status = "render_node_open_failed"


class HwIpQueryFailed(CsError):
    """The driver did not describe its compute engine."""

    status = "hw_ip_query_failed"


class NoComputeRings(CsError):
    """The driver offers no compute ring."""

    status = "no_rings"


class UnsupportedComputeIp(CsError):
    """The compute engine is of another generation than the kernels in the shader buffer."""


class CtxAllocFailed(CsError):
    """No submission context could be had."""

    status = "ctx_alloc_failed"


class VaReservationFailed(CsError):
    """The fixed GPU addresses are outside of what this GPU can address."""

    status = "va_reservation_failed"


class BufferFailed(CsError):
    """A buffer could not be made (`bo`), mapped into the process (`map`) or given a GPU address (`va`)."""


class IbBoFailed(BufferFailed):
    """No memory for the indirect buffer."""

    status = "ib_bo_failed"


class IbMapFailed(BufferFailed):
    """The indirect buffer could not be mapped into the process."""

    status = "ib_map_failed"


class IbVaFailed(BufferFailed):
    """The indirect buffer got no GPU address."""

    status = "ib_va_failed"


class InputBoFailed(BufferFailed):
    """No memory for the input."""


class InputMapFailed(BufferFailed):
    """The input could not be mapped into the process."""


class InputVaFailed(BufferFailed):
    """The input got no GPU address."""


class OutputBoFailed(BufferFailed):
    """No memory for the output."""


class OutputMapFailed(BufferFailed):
    """The output could not be mapped into the process."""


class OutputVaFailed(BufferFailed):
    """The output got no GPU address."""


class SignalBoFailed(BufferFailed):
    """No memory for the signal."""

    status = "signal_bo_failed"


class SignalMapFailed(BufferFailed):
    """The signal could not be mapped into the process."""

    status = "signal_map_failed"


class SignalVaFailed(BufferFailed):
    """The signal got no GPU address."""

    status = "signal_va_failed"


class ShaderBoFailed(BufferFailed):
    """No memory for the shaders."""


class ShaderMapFailed(BufferFailed):
    """The shader buffer could not be mapped into the process."""


class ShaderVaFailed(BufferFailed):
    """The shader buffer got no GPU address."""


class BoListFailed(CsError):
    """The list of buffers could not be made."""

    status = "bo_list_failed"


class SubmitFailed(CsError):
    """The driver did not take the indirect buffer."""

    status = "cs_submit_failed"


class WaitFailed(CsError):
    """Waiting for the fence failed: the submission hung or was lost with others."""

    status = "wait_cs_failed"


class WaitTimedOut(CsError):
    """The fence did not retire in time."""

    status = "wait_timeout"


BUFFER_ERRORS: dict[tuple[str, str], type[BufferFailed]] = {
    ("ib", "bo"): IbBoFailed, ("ib", "map"): IbMapFailed, ("ib", "va"): IbVaFailed,
    ("input", "bo"): InputBoFailed, ("input", "map"): InputMapFailed, ("input", "va"): InputVaFailed,
    ("output", "bo"): OutputBoFailed, ("output", "map"): OutputMapFailed, ("output", "va"): OutputVaFailed,
    ("signal", "bo"): SignalBoFailed, ("signal", "map"): SignalMapFailed, ("signal", "va"): SignalVaFailed,
    ("shader", "bo"): ShaderBoFailed, ("shader", "map"): ShaderMapFailed, ("shader", "va"): ShaderVaFailed,
}  # fmt: skip
"""By buffer and step; other buffers fail with `BufferFailed` itself."""
