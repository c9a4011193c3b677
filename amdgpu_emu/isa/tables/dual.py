"""Opcodes of the halves of VOPD; y: the second half only. Lines: see `isa.opcodes`."""

from __future__ import annotations

from typing import Final

VOPD: Final = """
b32:b32 xy
    8 v_dual_mov_b32
b32:b32,b32 y
    16 v_dual_add_nc_u32 17 v_dual_lshlrev_b32 18 v_dual_and_b32
b32:b32,b32,m xy
    9 v_dual_cndmask_b32
b32:f32,f32 xy
    0 v_dual_fmac_f32 3 v_dual_mul_f32 4 v_dual_add_f32 5 v_dual_sub_f32 6 v_dual_subrev_f32 7 v_dual_mul_dx9_zero_f32
    10 v_dual_max_num_f32 11 v_dual_min_num_f32
b32:f32,f32,kf32 xy
    1 v_dual_fmaak_f32
b32:f32,kf32,f32 xy
    2 v_dual_fmamk_f32
"""
