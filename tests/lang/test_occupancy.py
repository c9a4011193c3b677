"""Waves that a SIMD holds, against the published tables for RDNA 3 with 1536 registers."""

from __future__ import annotations

import pytest

from zinc_rt.lang.occupancy import waves_per_simd


@pytest.mark.parametrize(
    ("vgprs", "waves"),
    [(0, 16), (8, 16), (96, 16), (97, 12), (120, 12), (144, 10), (168, 9), (192, 8), (216, 7), (240, 6), (256, 5)],
)
def test_registers(vgprs: int, waves: int) -> None:
    assert waves_per_simd(wave=32, vgprs=vgprs, lds_bytes=0, workgroup=32, wgp=True) == waves
    # A wave of 64 takes twice as much of the same file, in steps half as large.
    assert waves_per_simd(wave=64, vgprs=-(-vgprs // 2), lds_bytes=0, workgroup=64, wgp=False) == waves


@pytest.mark.parametrize(
    ("workgroup", "lds", "wgp", "waves"),
    [
        (32, 65536, False, 1),  # one wave in the compute unit, none on its other SIMD
        (256, 65536, False, 4),
        (256, 65536, True, 4),  # two groups of eight waves on four SIMDs
        (256, 32768, True, 8),
        (1024, 512, True, 16),
        (256, 512, True, 16),
        (64, 4096, True, 16),
    ],
)
def test_local_memory(workgroup: int, lds: int, wgp: bool, waves: int) -> None:
    assert waves_per_simd(wave=32, vgprs=32, lds_bytes=lds, workgroup=workgroup, wgp=wgp) == waves


def test_whole_workgroups() -> None:
    # 216 registers leave 7 waves to each of 4 SIMDs: three groups of eight, not three and a half.
    assert waves_per_simd(wave=32, vgprs=216, lds_bytes=0, workgroup=256, wgp=True) == 6
    assert waves_per_simd(wave=32, vgprs=256, lds_bytes=0, workgroup=1024, wgp=False) == 0
