"""The launch of waves: the registers that they start with, and how many workgroups run together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.gfx11 import places
from amdgpu_emu.core.state import EXEC, TTMP, Array, Group
from amdgpu_emu.models import vgprs_per_simd
from amdgpu_emu.shader import Dispatch, Triple

_WGP_MODE, _SIMDS, _MAX_WAVES = 1 << 29, 2, 16
_LDS = 64 << 10
_STATE_BYTES = 512 << 20  # of vector registers at a time
_TTMP_Y_Z, _TTMP_X = TTMP + 7, TTMP + 9
_ITEM_BITS = tuple(np.uint32((1 << bits) - 1) for bits in (10, 20, 30, 30))
"""Of v0, by RSRC2.TIDIG_COMP_CNT: x, y too, z too."""


def check_fit(dispatch: Dispatch, n_vgprs: int, lanes: int) -> None:
    """Raise `ShaderError` for a workgroup that no compute unit, or pair of them (WGP mode), holds at once: it would
    wait for ever.
    """
    room = _waves_of_units(dispatch, n_vgprs, lanes)
    if waves_of(dispatch, lanes) > room:
        raise ShaderError(
            f"a workgroup of {waves_of(dispatch, lanes)} waves with {n_vgprs} vector registers never starts: {room} of"
            f" them fit"
        )


def waves_of(dispatch: Dispatch, lanes: int) -> int:
    """Number of waves of a workgroup."""
    x, y, z = dispatch.threads
    return -(-(x * y * z) // lanes)


def chunks(dispatch: Dispatch, n_vgprs: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Cut a dispatch into parts that run at once: first workgroup and number of workgroups of each.

    No part is greater than what fits on the card, so workgroups can wait for each other in one part alone.
    """
    x, y, z = dispatch.groups
    total = x * y * z
    waves = waves_of(dispatch, lanes)
    limit = max(1, _STATE_BYTES // (n_vgprs * lanes * 5))
    if dispatch.scratch is not None and dispatch.scratch.waves:
        limit = min(limit, dispatch.scratch.waves)
    step = max(1, min(limit // waves, fitting(dispatch, n_vgprs, lanes)))
    for first in range(0, total, step):
        yield first, min(step, total - first)


def fitting(dispatch: Dispatch, n_vgprs: int, lanes: int) -> int:
    """Workgroups that the card holds at once, by registers, waves and LDS (LLVM, AMDGPUBaseInfo)."""
    units = _units(dispatch)
    groups = _waves_of_units(dispatch, n_vgprs, lanes) // waves_of(dispatch, lanes)
    if dispatch.lds_bytes:
        groups = min(groups, units * _LDS // dispatch.lds_bytes)
    return dispatch.compute_units // units * groups


def _units(dispatch: Dispatch) -> int:
    """Compute units that a workgroup may use."""
    return 2 if dispatch.rsrc1 & _WGP_MODE else 1


def _waves_of_units(dispatch: Dispatch, n_vgprs: int, lanes: int) -> int:
    """Waves that they hold at once, by registers."""
    registers = vgprs_per_simd(dispatch.gfx)
    granule = (24 if registers % 24 == 0 else 16) * 32 // lanes
    by_registers = registers * 32 // lanes // (-(-n_vgprs // granule) * granule)
    return _units(dispatch) * _SIMDS * min(_MAX_WAVES, by_registers)


def launch(dispatch: Dispatch, n_vgprs: int, lanes: int, first: int, count: int) -> Group:
    """Start the waves of `count` workgroups from number `first` on, x fastest."""
    ids, workgroup, x, y_z, items, on = _numbers(
        dispatch.groups, dispatch.threads, dispatch.grid, dispatch.start, lanes, first, count
    )
    group = Group(n_vgprs, lanes, ids, workgroup)
    for k in range(min(dispatch.n_user_sgprs, 16)):
        group.put_s(k, np.uint32(dispatch.user_data[k] if k < len(dispatch.user_data) else 0))
    if dispatch.gfx[0] == 11:
        _put_ids(group, dispatch, (x, y_z & 0xFFFF, y_z >> 16))
    else:
        group.put_s(_TTMP_X, x)
        group.put_s(_TTMP_Y_Z, y_z)
    group.v[0] = items & _ITEM_BITS[dispatch.rsrc2 >> 11 & 3]
    group.define(0)
    group.put_bits(EXEC, on)
    if lanes == 32:
        group.put_s(EXEC + 1, np.uint32(0))
    group.mode = dispatch.rsrc1 >> 12 & 0xFF
    group.pc = dispatch.address
    return group


def _put_ids(group: Group, dispatch: Dispatch, ids: tuple[Array, Array, Array]) -> None:
    """On gfx11: the workgroup's ids that RSRC2 asks for, in the scalar registers behind the user data."""
    at = dispatch.n_user_sgprs
    for value, is_wanted in zip(ids, places(dispatch), strict=True):
        if is_wanted:
            group.put_s(at, value)
            at += 1


@lru_cache(maxsize=64)
def _numbers(
    groups: Triple, threads: Triple, grid: Triple, start: Triple, lanes: int, first: int, count: int
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Numbers that depend on the dispatch's shape alone, [n] and [n, lanes]: the waves' numbers, their workgroups', the
    workgroups' x, and y with z, as TTMP has them; the lanes' work-items as v0 has them, and which lanes are on.
    """
    tx, ty, tz = threads
    waves = -(-(tx * ty * tz) // lanes)
    index = np.arange(count * waves)
    number = first + index // waves
    gx, gy, _ = groups
    ids = np.stack([number % gx, number // gx % gy, number // (gx * gy)]) + np.array(start)[:, None]
    item = (index % waves)[:, None] * lanes + np.arange(lanes)[None, :]
    x, y, z = item % tx, item // tx % ty, item // (tx * ty)
    on = item < tx * ty * tz
    for local, at, size, whole in zip((x, y, z), ids, grid, threads, strict=True):
        on &= at[:, None] * whole + local < size
    y_z = (ids[1] & 0xFFFF) | (ids[2] << 16)
    found = (
        index + first * waves,
        index // waves,
        ids[0].astype(np.uint32),
        y_z.astype(np.uint32),
        (x | y << 10 | z << 20).astype(np.uint32),
        on,
    )
    for array in found:
        array.flags.writeable = False
    return found
