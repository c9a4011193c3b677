"""Opcodes of VOP1, VOP2, VOPC (v_cmp_*; v_cmpx_* is 128 further on). Lines: see `isa.opcodes`."""

from __future__ import annotations

from typing import Final

VOP1: Final = """
: -
    0 v_nop 27 v_pipeflush
b16:b16 cod
    80 v_cvt_f16_u16 81 v_cvt_f16_i16
b16:b16 d
    28 v_mov_b16 105 v_not_b16
b16:b32 d
    98 v_sat_pk_u8_i16
b16:f16 cod
    82 v_cvt_u16_f16 83 v_cvt_i16_f16 84 v_rcp_f16 85 v_sqrt_f16 86 v_rsq_f16 87 v_log_f16 88 v_exp_f16
    89 v_frexp_mant_f16 90 v_frexp_exp_i16_f16 91 v_floor_f16 92 v_ceil_f16 93 v_trunc_f16 94 v_rndne_f16
    95 v_fract_f16 96 v_sin_f16 97 v_cos_f16 99 v_cvt_norm_i16_f16 100 v_cvt_norm_u16_f16
b16:f32 cod
    10 v_cvt_f16_f32
b32:b16 d
    106 v_cvt_i32_i16 107 v_cvt_u32_u16
b32:b32 cod
    5 v_cvt_f32_i32 6 v_cvt_f32_u32 14 v_cvt_off_f32_i4 17 v_cvt_f32_ubyte0 18 v_cvt_f32_ubyte1 19 v_cvt_f32_ubyte2
    20 v_cvt_f32_ubyte3
b32:b32 d
    1 v_mov_b32 55 v_not_b32 56 v_bfrev_b32 57 v_clz_i32_u32 58 v_ctz_i32_b32 59 v_cls_i32 66 v_movreld_b32
b32:b32 d s3
    108 v_cvt_f32_fp8 109 v_cvt_f32_bf8
b32:f16 cod
    11 v_cvt_f32_f16
b32:f32 cd
    12 v_cvt_nearest_i32_f32 13 v_cvt_floor_i32_f32 63 v_frexp_exp_i32_f32
b32:f32 cod
    7 v_cvt_u32_f32 8 v_cvt_i32_f32 32 v_fract_f32 33 v_trunc_f32 34 v_ceil_f32 35 v_rndne_f32 36 v_floor_f32
    37 v_exp_f32 39 v_log_f32 42 v_rcp_f32 43 v_rcp_iflag_f32 46 v_rsq_f32 51 v_sqrt_f32 53 v_sin_f32 54 v_cos_f32
    64 v_frexp_mant_f32
b32:f64 co
    3 v_cvt_i32_f64 15 v_cvt_f32_f64 21 v_cvt_u32_f64 60 v_frexp_exp_i32_f64
b32:vb32 1
    101 v_swap_b32 103 v_permlane64_b32 104 v_swaprel_b32
b32:vb32 d
    67 v_movrels_b32 68 v_movrelsd_b32 72 v_movrelsd_2_b32
b64:b32 co
    4 v_cvt_f64_i32 22 v_cvt_f64_u32
b64:b32 co s1
    110 v_cvt_pk_f32_fp8 111 v_cvt_pk_f32_bf8
b64:f32 co
    16 v_cvt_f64_f32
b64:f64 co
    23 v_trunc_f64 24 v_ceil_f64 25 v_rndne_f64 26 v_floor_f64 47 v_rcp_f64 49 v_rsq_f64 52 v_sqrt_f64
    61 v_frexp_mant_f64 62 v_fract_f64
sb32:vb32 1
    2 v_readfirstlane_b32
"""

VOP2: Final = """
b16:f16,f16 cod
    48 v_min_num_f16 49 v_max_num_f16 50 v_add_f16 51 v_sub_f16 52 v_subrev_f16 53 v_mul_f16 54 v_fmac_f16
b16:f16,b16 cod
    59 v_ldexp_f16
b16:f16,f16,kf16 1
    56 v_fmaak_f16
b16:f16,kf16,f16 1
    55 v_fmamk_f16
b32,m:b32,b32,m cd
    32 v_add_co_ci_u32 33 v_sub_co_ci_u32 34 v_subrev_co_ci_u32
b32:b32,b32 cd
    9 v_mul_i32_i24 11 v_mul_u32_u24 37 v_add_nc_u32 38 v_sub_nc_u32 39 v_subrev_nc_u32
b32:b32,b32 d
    10 v_mul_hi_i32_i24 12 v_mul_hi_u32_u24 17 v_min_i32 18 v_max_i32 19 v_min_u32 20 v_max_u32 24 v_lshlrev_b32
    25 v_lshrrev_b32 26 v_ashrrev_i32 27 v_and_b32 28 v_or_b32 29 v_xor_b32 30 v_xnor_b32
b32:f32,f32 cod
    3 v_add_f32 4 v_sub_f32 5 v_subrev_f32 7 v_mul_dx9_zero_f32 8 v_mul_f32 21 v_min_num_f32 22 v_max_num_f32
    43 v_fmac_f32 47 v_cvt_pk_rtz_f16_f32
b32:f32,f32,kf32 1
    45 v_fmaak_f32
b32:f32,f32,m d
    1 v_cndmask_b32
b32:f32,kf32,f32 1
    44 v_fmamk_f32
b32:h32,h32 1d
    60 v_pk_fmac_f16
b64:b32,b64 -
    31 v_lshlrev_b64
b64:f64,f64 co
    2 v_add_f64 6 v_mul_f64 13 v_min_num_f64 14 v_max_num_f64
"""

VOPC: Final = """
m:b16,b16 d
    49 v_cmp_lt_i16 50 v_cmp_eq_i16 51 v_cmp_le_i16 52 v_cmp_gt_i16 53 v_cmp_ne_i16 54 v_cmp_ge_i16 57 v_cmp_lt_u16
    58 v_cmp_eq_u16 59 v_cmp_le_u16 60 v_cmp_gt_u16 61 v_cmp_ne_u16 62 v_cmp_ge_u16
m:b32,b32 d
    65 v_cmp_lt_i32 66 v_cmp_eq_i32 67 v_cmp_le_i32 68 v_cmp_gt_i32 69 v_cmp_ne_i32 70 v_cmp_ge_i32 73 v_cmp_lt_u32
    74 v_cmp_eq_u32 75 v_cmp_le_u32 76 v_cmp_gt_u32 77 v_cmp_ne_u32 78 v_cmp_ge_u32
m:b64,b64 -
    89 v_cmp_lt_u64 90 v_cmp_eq_u64 91 v_cmp_le_u64 92 v_cmp_gt_u64 93 v_cmp_ne_u64 94 v_cmp_ge_u64
m:f16,b16 d
    125 v_cmp_class_f16
m:f16,f16 cd
    1 v_cmp_lt_f16 2 v_cmp_eq_f16 3 v_cmp_le_f16 4 v_cmp_gt_f16 5 v_cmp_lg_f16 6 v_cmp_ge_f16 7 v_cmp_o_f16
    8 v_cmp_u_f16 9 v_cmp_nge_f16 10 v_cmp_nlg_f16 11 v_cmp_ngt_f16 12 v_cmp_nle_f16 13 v_cmp_neq_f16 14 v_cmp_nlt_f16
m:f32,b32 d
    126 v_cmp_class_f32
m:f32,f32 cd
    17 v_cmp_lt_f32 18 v_cmp_eq_f32 19 v_cmp_le_f32 20 v_cmp_gt_f32 21 v_cmp_lg_f32 22 v_cmp_ge_f32 23 v_cmp_o_f32
    24 v_cmp_u_f32 25 v_cmp_nge_f32 26 v_cmp_nlg_f32 27 v_cmp_ngt_f32 28 v_cmp_nle_f32 29 v_cmp_neq_f32
    30 v_cmp_nlt_f32
m:f64,b32 -
    127 v_cmp_class_f64
m:f64,f64 c
    33 v_cmp_lt_f64 34 v_cmp_eq_f64 35 v_cmp_le_f64 36 v_cmp_gt_f64 37 v_cmp_lg_f64 38 v_cmp_ge_f64 39 v_cmp_o_f64
    40 v_cmp_u_f64 41 v_cmp_nge_f64 42 v_cmp_nlg_f64 43 v_cmp_ngt_f64 44 v_cmp_nle_f64 45 v_cmp_neq_f64
    46 v_cmp_nlt_f64
m:i64,i64 -
    81 v_cmp_lt_i64 82 v_cmp_eq_i64 83 v_cmp_le_i64 84 v_cmp_gt_i64 85 v_cmp_ne_i64 86 v_cmp_ge_i64
"""
