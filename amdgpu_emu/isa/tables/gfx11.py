"""Opcodes of gfx11 (RDNA 3) with other numbers or names than in gfx12, and the numbers of gfx12 that it lacks.

Everything else is as in the tables for gfx12. The scalar float instructions are those of gfx1150 and later; gfx1100 has
none of them. Lines: see `isa.opcodes`.
"""

from __future__ import annotations

from typing import Final

GONE: Final[dict[str, tuple[range, ...]]] = {
    "SOP1": (range(78, 89),),
    "SOP2": (range(79, 86),),
    "SOPP": (range(20, 22), range(64, 74)),
    "VOP1": (range(108, 112),),
    "VOP2": (range(13, 15), range(21, 23), range(31, 32), range(48, 50)),
    "VOP3": (
        range(553, 563),
        range(616, 624),
        range(640, 650),
        range(783, 785),
        range(833, 835),
        range(869, 877),
    ),
    "VOP3P": (range(27, 31), range(36, 40), range(70, 91)),
    "DS": (range(152, 156), range(168, 172)),
}

SOP2: Final = """
b32:b32,b32 -
    0 s_add_u32 1 s_sub_u32 2 s_add_i32 3 s_sub_i32 4 s_addc_u32 5 s_subb_u32
b32:f32,f32 -
    66 s_min_f32 67 s_max_f32
b16:f16,f16 -
    75 s_min_f16 76 s_max_f16
"""

SOPK: Final = """
:b32,imm
    3 s_cmpk_eq_i32 4 s_cmpk_lg_i32 5 s_cmpk_gt_i32 6 s_cmpk_ge_i32 7 s_cmpk_lt_i32 8 s_cmpk_le_i32 9 s_cmpk_eq_u32
    10 s_cmpk_lg_u32 11 s_cmpk_gt_u32 12 s_cmpk_ge_u32 13 s_cmpk_lt_u32 14 s_cmpk_le_u32 24 s_waitcnt_vscnt
    25 s_waitcnt_vmcnt
b32:imm
    15 s_addk_i32
"""

SOPP: Final = """
:hex
    4 s_set_inst_prefetch_distance
:depctr
    8 s_waitcnt_depctr
:rel
    39 s_cbranch_cdbgsys 40 s_cbranch_cdbguser 41 s_cbranch_cdbgsys_or_user 42 s_cbranch_cdbgsys_and_user
:none
    61 s_barrier
"""

SMEM: Final = """
b32:b64 load
    0 s_load_b32
b64:b64 load
    1 s_load_b64
b128:b64 load
    2 s_load_b128
b256:b64 load
    3 s_load_b256
b512:b64 load
    4 s_load_b512
b32:b128 load
    8 s_buffer_load_b32
b64:b128 load
    9 s_buffer_load_b64
b128:b128 load
    10 s_buffer_load_b128
b256:b128 load
    11 s_buffer_load_b256
b512:b128 load
    12 s_buffer_load_b512
: none
    32 s_gl1_inv 33 s_dcache_inv
"""

VOP2: Final = """
b32:h32,h32 1d
    2 v_dot2acc_f32_f16
b32:f32,f32 cod
    6 v_fmac_dx9_zero_f32 15 v_min_f32 16 v_max_f32
b16:f16,f16 cod
    57 v_max_f16 58 v_min_f16
"""

VOPC: Final = """
m:f16,f16 cd
    0 v_cmp_f_f16 15 v_cmp_t_f16
m:f32,f32 cd
    16 v_cmp_f_f32 31 v_cmp_t_f32
m:f64,f64 c
    32 v_cmp_f_f64 47 v_cmp_t_f64
m:b32,b32 d
    64 v_cmp_f_i32 71 v_cmp_t_i32 72 v_cmp_f_u32 79 v_cmp_t_u32
m:i64,i64 -
    80 v_cmp_f_i64 87 v_cmp_t_i64
m:b64,b64 -
    88 v_cmp_f_u64 95 v_cmp_t_u64
"""

VOP3: Final = """
b32:f32,f32,f32 cod
    537 v_min3_f32 540 v_max3_f32 543 v_med3_f32 606 v_maxmin_f32 607 v_minmax_f32
b16:f16,f16,f16 cod
    585 v_min3_f16 588 v_max3_f16 591 v_med3_f16 608 v_maxmin_f16 609 v_minmax_f16
b64:f64,f64 co
    807 v_add_f64 808 v_mul_f64 809 v_min_f64 810 v_max_f64
b64:b32,b64 -
    828 v_lshlrev_b64
"""

VOP3SD: Final = """
b64,m:b32,b32,b64 c
    766 v_mad_u64_u32
b64,m:b32,b32,i64 c
    767 v_mad_i64_i32
"""

VOP3P: Final = """
b32:h32,h32 c 3 3 3 3
    17 v_pk_min_f16 18 v_pk_max_f16
b256:vb256,vb256,cf256 - 7 7 0 0
    64 v_wmma_f32_16x16x16_f16 65 v_wmma_f32_16x16x16_bf16
b256:vb256,vb256,ch256 - 7 7 4 0
    66 v_wmma_f16_16x16x16_f16
b256:vb256,vb256,cy256 - 7 7 4 0
    67 v_wmma_bf16_16x16x16_bf16
b256:vb128,vb128,cb256 c 3 0 0 0
    68 v_wmma_i32_16x16x16_iu8
b256:vb64,vb64,cb256 c 3 0 0 0
    69 v_wmma_i32_16x16x16_iu4
"""

VOPD: Final = """
b32:f32,f32 xy
    10 v_dual_max_f32 11 v_dual_min_f32
b32:h32,h32 xy
    12 v_dual_dot2acc_f32_f16
"""

DS: Final = """
:b32,b32,b32 one
    17 ds_cmpstore_f32
:b32,b32 one
    18 ds_min_f32 19 ds_max_f32
b32:b32,b32,b32 one
    49 ds_cmpstore_rtn_f32
b32:b32,b32 one
    50 ds_min_rtn_f32 51 ds_max_rtn_f32
:b32,b64,b64 one
    81 ds_cmpstore_f64
:b32,b64 one
    82 ds_min_f64 83 ds_max_f64
b64:b32,b64,b64 one
    113 ds_cmpstore_rtn_f64
b64:b32,b64 one
    114 ds_min_rtn_f64 115 ds_max_rtn_f64
"""
