"""Finds out, by the self-test, how a GPU has to wait for waves."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.gpu import selftest
from zinc_rt.errors import release_frames


def prove(backend: AmdBackend, notify: Callable[[str], None] | None = None) -> None:
    """Run the self-test; where results are wrong, once more with barriers that do not count on CS_PARTIAL_FLUSH.

    notify: gets a line when those are needed. Raises what the self-test raises, of wrong results the first ones.
    """
    try:
        selftest.check_results(backend)
        return
    except selftest.WrongResults as error:
        if not backend.gpu.device.partial_flush:
            raise
        release_frames(error)
        first = error.with_traceback(None)
    backend.gpu.wait_by_release()
    try:
        selftest.check_results(backend)
    except selftest.WrongResults:
        raise first from None
    if notify is not None:
        notify(f"{backend.gpu.device.render_node}: CS_PARTIAL_FLUSH does not wait there; barriers use RELEASE_MEM")
