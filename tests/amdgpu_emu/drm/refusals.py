"""Every refusal of the emulated DRM driver: which check, what is done, which errno, and in which kernels."""

from __future__ import annotations

from tests.amdgpu_emu.drm import refusals_buffers as buffers
from tests.amdgpu_emu.drm import refusals_work as work
from tests.amdgpu_emu.drm.checks import covers
from tests.amdgpu_emu.drm.refusals_userq import USERQ

REFUSALS = [
    *buffers.DISPATCH, *buffers.MMAP, *buffers.CREATE, *buffers.VA, *buffers.OPS, *buffers.INFO, *work.CTX,
    *work.LISTS, *work.SUBMIT, *work.WAITS, *work.SYNC, *USERQ,
]  # fmt: skip
for _row in REFUSALS:
    covers(_row.check)
