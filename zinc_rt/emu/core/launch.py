"""The registers that waves start with, and how many workgroups run together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from zinc_rt.emu.core.state import EXEC, TTMP, Group
from zinc_rt.emu.shader import Dispatch

_RESIDENT = 2048  # waves: what 64 compute units hold
_STATE_BYTES = 512 << 20  # of vector registers at a time
_TTMP_Y_Z, _TTMP_X = TTMP + 7, TTMP + 9


def waves_of(dispatch: Dispatch, lanes: int) -> int:
    """Waves of a workgroup."""
    x, y, z = dispatch.threads
    return -(-(x * y * z) // lanes)


def chunks(dispatch: Dispatch, n_vgprs: int, lanes: int) -> Iterator[tuple[int, int]]:
    """First workgroup and number of workgroups of each part that runs at once."""
    x, y, z = dispatch.groups
    total = x * y * z
    waves = waves_of(dispatch, lanes)
    limit = min(_RESIDENT, max(1, _STATE_BYTES // (n_vgprs * lanes * 5)))
    if dispatch.scratch is not None and dispatch.scratch.waves:
        limit = min(limit, dispatch.scratch.waves)
    step = max(1, limit // waves)
    for first in range(0, total, step):
        yield first, min(step, total - first)


def launch(dispatch: Dispatch, n_vgprs: int, lanes: int, first: int, count: int) -> Group:
    """The waves of `count` workgroups from number `first` on, x fastest."""
    waves = waves_of(dispatch, lanes)
    index = np.arange(count * waves)
    group = Group(n_vgprs, lanes, index + first * waves, index // waves)
    number = first + index // waves
    gx, gy, _ = dispatch.groups
    ids = np.stack([number % gx, number // gx % gy, number // (gx * gy)]) + np.array(dispatch.start)[:, None]
    for k in range(min(dispatch.n_user_sgprs, 16)):
        group.put_s(k, np.uint32(dispatch.user_data[k] if k < len(dispatch.user_data) else 0))
    group.put_s(_TTMP_X, ids[0].astype(np.uint32))
    group.put_s(_TTMP_Y_Z, ((ids[1] & 0xFFFF) | (ids[2] << 16)).astype(np.uint32))
    tx, ty, tz = dispatch.threads
    item = (index % waves)[:, None] * lanes + np.arange(lanes)[None, :]
    x, y, z = item % tx, item // tx % ty, item // (tx * ty)
    group.v[0] = (x | y << 10 | z << 20).astype(np.uint32)
    group.define(0)
    on = item < tx * ty * tz
    for local, start, size, whole in zip((x, y, z), ids, dispatch.grid, dispatch.threads, strict=True):
        on &= start[:, None] * whole + local < size
    group.put_bits(EXEC, on)
    if lanes == 32:
        group.put_s(EXEC + 1, np.uint32(0))
    group.mode = dispatch.rsrc1 >> 12 & 0xFF
    group.pc = dispatch.address
    return group
