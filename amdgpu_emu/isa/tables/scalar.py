"""Opcodes of SOP1, SOP2, SOPC, SOPK, SOPP and SMEM. Lines: see `isa.opcodes`."""

from __future__ import annotations

from typing import Final

SOP1: Final = """
:b32 -
    88 s_sleep_var
:jb32 -
    78 s_barrier_signal 79 s_barrier_signal_isfirst 81 s_barrier_init 82 s_barrier_join 87 s_wakeup_barrier
:rb64 -
    72 s_setpc_b64 74 s_rfe_b64
b16:f16 -
    107 s_ceil_f16 108 s_floor_f16 109 s_trunc_f16 110 s_rndne_f16
b16:f32 -
    104 s_cvt_f16_f32
b32:b32 -
    0 s_mov_b32 2 s_cmov_b32 4 s_brev_b32 8 s_ctz_i32_b32 10 s_clz_i32_u32 12 s_cls_i32 14 s_sext_i32_i8
    15 s_sext_i32_i16 16 s_bitset0_b32 18 s_bitset1_b32 21 s_abs_i32 22 s_bcnt0_i32_b32 24 s_bcnt1_i32_b32
    26 s_quadmask_b32 28 s_wqm_b32 30 s_not_b32 32 s_and_saveexec_b32 34 s_or_saveexec_b32 36 s_xor_saveexec_b32
    38 s_nand_saveexec_b32 40 s_nor_saveexec_b32 42 s_xnor_saveexec_b32 44 s_and_not0_saveexec_b32
    46 s_or_not0_saveexec_b32 48 s_and_not1_saveexec_b32 50 s_or_not1_saveexec_b32 52 s_and_not0_wrexec_b32
    54 s_and_not1_wrexec_b32 66 s_movreld_b32
    100 s_cvt_f32_i32 101 s_cvt_f32_u32 106 s_cvt_hi_f32_f16
b32:b64 -
    9 s_ctz_i32_b64 11 s_clz_i32_u64 23 s_bcnt0_i32_b64 25 s_bcnt1_i32_b64
b32:f16 -
    105 s_cvt_f32_f16
b32:f32 -
    96 s_ceil_f32 97 s_floor_f32 98 s_trunc_f32 99 s_rndne_f32 102 s_cvt_i32_f32 103 s_cvt_u32_f32
b32:i64 -
    13 s_cls_i32_i64
b32:jb32 -
    80 s_get_barrier_state
b32:msg -
    76 s_sendmsg_rtn_b32
b64: -
    71 s_getpc_b64
b64:b32 -
    17 s_bitset0_b64 19 s_bitset1_b64 20 s_bitreplicate_b64_b32
b64:b64 -
    1 s_mov_b64 3 s_cmov_b64 5 s_brev_b64 27 s_quadmask_b64 29 s_wqm_b64 31 s_not_b64 33 s_and_saveexec_b64
    35 s_or_saveexec_b64 37 s_xor_saveexec_b64 39 s_nand_saveexec_b64 41 s_nor_saveexec_b64 43 s_xnor_saveexec_b64
    45 s_and_not0_saveexec_b64 47 s_or_not0_saveexec_b64 49 s_and_not1_saveexec_b64 51 s_or_not1_saveexec_b64
    53 s_and_not0_wrexec_b64 55 s_and_not1_wrexec_b64 67 s_movreld_b64
b32:rb32 -
    64 s_movrels_b32 68 s_movrelsd_2_b32
b64:rb64 -
    65 s_movrels_b64 73 s_swappc_b64
b64:msg -
    77 s_sendmsg_rtn_b64
"""

SOP2: Final = """
b16:f16,f16 -
    73 s_add_f16 74 s_sub_f16 75 s_min_num_f16 76 s_max_num_f16 77 s_mul_f16 78 s_fmac_f16 81 s_minimum_f16
    82 s_maximum_f16
b32:b32,b32 -
    0 s_add_co_u32 1 s_sub_co_u32 2 s_add_co_i32 3 s_sub_co_i32 4 s_add_co_ci_u32 5 s_sub_co_ci_u32 6 s_absdiff_i32
    8 s_lshl_b32 10 s_lshr_b32 12 s_ashr_i32 14 s_lshl1_add_u32 15 s_lshl2_add_u32 16 s_lshl3_add_u32
    17 s_lshl4_add_u32 18 s_min_i32 19 s_min_u32 20 s_max_i32 21 s_max_u32 22 s_and_b32 24 s_or_b32 26 s_xor_b32
    28 s_nand_b32 30 s_nor_b32 32 s_xnor_b32 34 s_and_not1_b32 36 s_or_not1_b32 38 s_bfe_u32 39 s_bfe_i32 42 s_bfm_b32
    44 s_mul_i32 45 s_mul_hi_u32 46 s_mul_hi_i32 48 s_cselect_b32 50 s_pack_ll_b32_b16 51 s_pack_lh_b32_b16
    52 s_pack_hh_b32_b16 53 s_pack_hl_b32_b16
b32:f32,f32 -
    64 s_add_f32 65 s_sub_f32 66 s_min_num_f32 67 s_max_num_f32 68 s_mul_f32 71 s_fmac_f32 72 s_cvt_pk_rtz_f16_f32
    79 s_minimum_f32 80 s_maximum_f32
b32:f32,f32,kf32 -
    69 s_fmaak_f32
b32:f32,kf32,f32 -
    70 s_fmamk_f32
b64:b32,b32 -
    43 s_bfm_b64
b64:b64,b32 -
    9 s_lshl_b64 11 s_lshr_b64 40 s_bfe_u64
b64:b64,b64 -
    23 s_and_b64 25 s_or_b64 27 s_xor_b64 29 s_nand_b64 31 s_nor_b64 33 s_xnor_b64 35 s_and_not1_b64 37 s_or_not1_b64
    49 s_cselect_b64 83 s_add_nc_u64 84 s_sub_nc_u64 85 s_mul_u64
b64:i64,b32 -
    13 s_ashr_i64 41 s_bfe_i64
"""

SOPC: Final = """
:b32,b32 -
    0 s_cmp_eq_i32 1 s_cmp_lg_i32 2 s_cmp_gt_i32 3 s_cmp_ge_i32 4 s_cmp_lt_i32 5 s_cmp_le_i32 6 s_cmp_eq_u32
    7 s_cmp_lg_u32 8 s_cmp_gt_u32 9 s_cmp_ge_u32 10 s_cmp_lt_u32 11 s_cmp_le_u32 12 s_bitcmp0_b32 13 s_bitcmp1_b32
:b64,b32 -
    14 s_bitcmp0_b64 15 s_bitcmp1_b64
:b64,b64 -
    16 s_cmp_eq_u64 17 s_cmp_lg_u64
:f16,f16 -
    81 s_cmp_lt_f16 82 s_cmp_eq_f16 83 s_cmp_le_f16 84 s_cmp_gt_f16 85 s_cmp_lg_f16 86 s_cmp_ge_f16 87 s_cmp_o_f16
    88 s_cmp_u_f16 89 s_cmp_nge_f16 90 s_cmp_nlg_f16 91 s_cmp_ngt_f16 92 s_cmp_nle_f16 93 s_cmp_neq_f16
    94 s_cmp_nlt_f16
:f32,f32 -
    65 s_cmp_lt_f32 66 s_cmp_eq_f32 67 s_cmp_le_f32 68 s_cmp_gt_f32 69 s_cmp_lg_f32 70 s_cmp_ge_f32 71 s_cmp_o_f32
    72 s_cmp_u_f32 73 s_cmp_nge_f32 74 s_cmp_nlg_f32 75 s_cmp_ngt_f32 76 s_cmp_nle_f32 77 s_cmp_neq_f32
    78 s_cmp_nlt_f32
"""

SOPK: Final = """
:imm
    1 s_version
b32:hwreg
    17 s_getreg_b32
b32:imm
    0 s_movk_i32 2 s_cmovk_i32 15 s_addk_co_i32 16 s_mulk_i32
b64:rel
    20 s_call_b64
hwreg:b32
    18 s_setreg_b32
hwreg:b32 k
    19 s_setreg_imm32_b32
"""

SOPP: Final = """
:dec
    0 s_nop 1 s_setkill 2 s_sethalt 3 s_sleep 16 s_trap 18 s_denorm_mode 53 s_setprio
    56 s_incperflevel 57 s_decperflevel
:delay
    7 s_delay_alu
:depctr
    8 s_wait_alu
:end
    48 s_endpgm
:hex
    5 s_clause 11 s_wait_event 17 s_round_mode 19 s_singleuse_vdst 59 s_ttracedata_imm 64 s_wait_loadcnt
    65 s_wait_storecnt 66 s_wait_samplecnt 67 s_wait_bvhcnt 68 s_wait_expcnt 70 s_wait_dscnt 71 s_wait_kmcnt
    72 s_wait_loadcnt_dscnt 73 s_wait_storecnt_dscnt
:msg
    54 s_sendmsg 55 s_sendmsghalt
:none
    10 s_wait_idle 21 s_barrier_leave 31 s_code_end 49 s_endpgm_saved 52 s_wakeup 58 s_ttracedata 60 s_icache_inv
:rel
    32 s_branch 33 s_cbranch_scc0 34 s_cbranch_scc1 35 s_cbranch_vccz 36 s_cbranch_vccnz 37 s_cbranch_execz
    38 s_cbranch_execnz
:signed
    20 s_barrier_wait
:waitcnt
    9 s_waitcnt
"""

SMEM: Final = """
: none
    33 s_dcache_inv
:b128 prefetch
    39 s_buffer_prefetch_data
:b64 prefetch
    36 s_prefetch_inst 38 s_prefetch_data
:pc prefetch
    37 s_prefetch_inst_pc_rel 40 s_prefetch_data_pc_rel
b128:b128 load
    18 s_buffer_load_b128
b128:b64 load
    2 s_load_b128
b256:b128 load
    19 s_buffer_load_b256
b256:b64 load
    3 s_load_b256
b32:b128 load
    16 s_buffer_load_b32 24 s_buffer_load_i8 25 s_buffer_load_u8 26 s_buffer_load_i16 27 s_buffer_load_u16
b32:b64 load
    0 s_load_b32 8 s_load_i8 9 s_load_u8 10 s_load_i16 11 s_load_u16
b512:b128 load
    20 s_buffer_load_b512
b512:b64 load
    4 s_load_b512
b64:b128 load
    17 s_buffer_load_b64
b64:b64 load
    1 s_load_b64
b96:b128 load
    21 s_buffer_load_b96
b96:b64 load
    5 s_load_b96
"""
