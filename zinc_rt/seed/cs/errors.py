"""Errors of the page `cs`, one class for each name of the page's error set.

The driver has one class for its steps, `StepFailed`, with the step's word; `named` gives them these names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zinc_rt.amdgpu import errors as driver_errors
from zinc_rt.amdgpu import pm4
from zinc_rt.amdgpu.errors import BufferFailed, StepFailed
from zinc_rt.errors import BackendError
from zinc_rt.kernels.errors import ShapeMismatch

__all__ = [
    "BUFFER_ERRORS",
    "ArgmaxRangeInvalidToken",
    "ArgmaxTop2InvalidToken",
    "BackendError",
    "BoListFailed",
    "BufferFailed",
    "CsError",
    "CtxAllocFailed",
    "HwIpQueryFailed",
    "IbBoFailed",
    "IbMapFailed",
    "IbVaFailed",
    "InputBoFailed",
    "InputMapFailed",
    "InputTooLarge",
    "InputVaFailed",
    "NoComputeRings",
    "OutOfSpace",
    "OutputBoFailed",
    "OutputMapFailed",
    "OutputTooLarge",
    "OutputVaFailed",
    "RenderNodeOpenFailed",
    "ShaderBoFailed",
    "ShaderMapFailed",
    "ShaderVaFailed",
    "ShapeMismatch",
    "SignalBoFailed",
    "SignalMapFailed",
    "SignalMismatch",
    "SignalVaFailed",
    "SubmitFailed",
    "UnsupportedComputeIp",
    "UnsupportedOs",
    "VaReservationFailed",
    "WaitFailed",
    "WaitTimedOut",
]

CsError = StepFailed
OutOfSpace = pm4.OutOfSpace
SignalMismatch = driver_errors.SignalMismatch


class UnsupportedOs(CsError):
    """This is not Linux; nothing was opened."""


class RenderNodeOpenFailed(CsError):
    """The render node could not be opened, or is not amdgpu's."""


class HwIpQueryFailed(CsError):
    """The driver did not describe its compute engine."""


class NoComputeRings(CsError):
    """The driver offers no compute ring."""


class UnsupportedComputeIp(CsError):
    """The compute engine is of another generation than the kernels in the shader buffer."""


class CtxAllocFailed(CsError):
    """No submission context could be had."""


class VaReservationFailed(CsError):
    """The fixed GPU addresses are outside of what this GPU can address."""


class BoListFailed(CsError):
    """The list of buffers could not be made."""


class SubmitFailed(CsError):
    """The driver did not take the indirect buffer."""


class WaitFailed(CsError):
    """Waiting for the fence failed: the submission hung or was lost with others."""


class WaitTimedOut(CsError):
    """The fence did not retire in time."""


def _buffer_errors(buffer: str) -> tuple[type[BufferFailed], ...]:
    """`IbBoFailed` (no memory), `IbMapFailed` (not mapped here), `IbVaFailed` (no GPU address) for "ib"."""
    doc = f"The {buffer} buffer could not be made, mapped, or given an address; see `BufferFailed`."
    names = (f"{buffer.capitalize()}{part}Failed" for part in ("Bo", "Map", "Va"))
    return tuple(type(name, (BufferFailed,), {"__doc__": doc, "__module__": __name__}) for name in names)


IbBoFailed, IbMapFailed, IbVaFailed = _buffer_errors("ib")
InputBoFailed, InputMapFailed, InputVaFailed = _buffer_errors("input")
OutputBoFailed, OutputMapFailed, OutputVaFailed = _buffer_errors("output")
SignalBoFailed, SignalMapFailed, SignalVaFailed = _buffer_errors("signal")
ShaderBoFailed, ShaderMapFailed, ShaderVaFailed = _buffer_errors("shader")

BUFFER_ERRORS: Final = {
    ("ib", "bo"): IbBoFailed, ("ib", "map"): IbMapFailed, ("ib", "va"): IbVaFailed,
    ("input", "bo"): InputBoFailed, ("input", "map"): InputMapFailed, ("input", "va"): InputVaFailed,
    ("output", "bo"): OutputBoFailed, ("output", "map"): OutputMapFailed, ("output", "va"): OutputVaFailed,
    ("signal", "bo"): SignalBoFailed, ("signal", "map"): SignalMapFailed, ("signal", "va"): SignalVaFailed,
    ("shader", "bo"): ShaderBoFailed, ("shader", "map"): ShaderMapFailed, ("shader", "va"): ShaderVaFailed,
}  # fmt: skip
"""By buffer and part."""
_STEPS: Final[dict[str, type[StepFailed]]] = {
    "unsupported_os": UnsupportedOs,
    "render_node_open_failed": RenderNodeOpenFailed,
    "hw_ip_query_failed": HwIpQueryFailed,
    "no_rings": NoComputeRings,
    "unsupported_compute_ip": UnsupportedComputeIp,
    "ctx_alloc_failed": CtxAllocFailed,
    "va_reservation_failed": VaReservationFailed,
    "bo_list_failed": BoListFailed,
    "cs_submit_failed": SubmitFailed,
    "wait_cs_failed": WaitFailed,
    "wait_timeout": WaitTimedOut,
}


@contextmanager
def named() -> Iterator[None]:
    """Steps of the driver that fail inside raise the error of their name."""
    try:
        yield
    except BufferFailed as error:
        kind = BUFFER_ERRORS.get((error.buffer, error.part), BufferFailed)
        raise kind(
            error.buffer, error.part, error.errno, error.step, error.advice, call=error.call
        ) from error.__cause__
    except StepFailed as error:
        named_kind = _STEPS.get(error.word)
        if named_kind is None or isinstance(error, named_kind):
            raise
        raise named_kind(error.word, error.errno, error.step, error.advice) from None


class InputTooLarge(BackendError):
    """The operands do not fit into the input buffer."""


class OutputTooLarge(BackendError):
    """The result does not fit into the output buffer."""


class ArgmaxTop2InvalidToken(BackendError):
    """The kernel chose neither of the two tokens: it did not run, or wrote something else."""


class ArgmaxRangeInvalidToken(BackendError):
    """The kernel chose a token or row outside of the range: it did not run, or wrote something else."""
