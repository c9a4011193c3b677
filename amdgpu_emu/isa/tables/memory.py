"""Opcodes of DS, of VFLAT, VGLOBAL and VSCRATCH (one table; f, g, s: which of them), and of VBUFFER.

Lines: see `isa.opcodes`.
"""

from __future__ import annotations

from typing import Final

DS: Final = """
: none
    20 ds_nop
:b32 addtid
    176 ds_store_addtid_b32
:b32,b128 one
    223 ds_store_b128
:b32,b32 one
    0 ds_add_u32 1 ds_sub_u32 2 ds_rsub_u32 3 ds_inc_u32 4 ds_dec_u32 5 ds_min_i32 6 ds_max_i32 7 ds_min_u32
    8 ds_max_u32 9 ds_and_b32 10 ds_or_b32 11 ds_xor_b32 13 ds_store_b32 18 ds_min_num_f32 19 ds_max_num_f32
    21 ds_add_f32 30 ds_store_b8 31 ds_store_b16 152 ds_cond_sub_u32 153 ds_sub_clamp_u32 154 ds_pk_add_f16
    155 ds_pk_add_bf16 160 ds_store_b8_d16_hi 161 ds_store_b16_d16_hi
:b32,b32,b32 one
    12 ds_mskor_b32 16 ds_cmpstore_b32
:b32,b32,b32 two
    14 ds_store_2addr_b32 15 ds_store_2addr_stride64_b32
:b32,b64 one
    64 ds_add_u64 65 ds_sub_u64 66 ds_rsub_u64 67 ds_inc_u64 68 ds_dec_u64 69 ds_min_i64 70 ds_max_i64 71 ds_min_u64
    72 ds_max_u64 73 ds_and_b64 74 ds_or_b64 75 ds_xor_b64 77 ds_store_b64 82 ds_min_num_f64 83 ds_max_num_f64
:b32,b64,b64 one
    76 ds_mskor_b64 80 ds_cmpstore_b64
:b32,b64,b64 two
    78 ds_store_2addr_b64 79 ds_store_2addr_stride64_b64
:b32,b96 one
    222 ds_store_b96
b128:b32 one
    255 ds_load_b128
b128:b32 two
    119 ds_load_2addr_b64 120 ds_load_2addr_stride64_b64
b128:b32,b64,b64 two
    110 ds_storexchg_2addr_rtn_b64 111 ds_storexchg_2addr_stride64_rtn_b64
b32: one
    61 ds_consume 62 ds_append 177 ds_load_addtid_b32
b32:b32 one
    54 ds_load_b32 57 ds_load_i8 58 ds_load_u8 59 ds_load_i16 60 ds_load_u16 162 ds_load_u8_d16 163 ds_load_u8_d16_hi
    164 ds_load_i8_d16 165 ds_load_i8_d16_hi 166 ds_load_u16_d16 167 ds_load_u16_d16_hi
b32:b32 swizzle
    53 ds_swizzle_b32
b32:b32,b32 one
    32 ds_add_rtn_u32 33 ds_sub_rtn_u32 34 ds_rsub_rtn_u32 35 ds_inc_rtn_u32 36 ds_dec_rtn_u32 37 ds_min_rtn_i32
    38 ds_max_rtn_i32 39 ds_min_rtn_u32 40 ds_max_rtn_u32 41 ds_and_rtn_b32 42 ds_or_rtn_b32 43 ds_xor_rtn_b32
    45 ds_storexchg_rtn_b32 50 ds_min_num_rtn_f32 51 ds_max_num_rtn_f32 121 ds_add_rtn_f32 168 ds_cond_sub_rtn_u32
    169 ds_sub_clamp_rtn_u32 170 ds_pk_add_rtn_f16 171 ds_pk_add_rtn_bf16 178 ds_permute_b32 179 ds_bpermute_b32
    205 ds_bpermute_fi_b32
b32:b32,b32,b32 one
    44 ds_mskor_rtn_b32 48 ds_cmpstore_rtn_b32
b64:b32 one
    118 ds_load_b64
b64:b32 two
    55 ds_load_2addr_b32 56 ds_load_2addr_stride64_b32
b64:b32,b32,b32 two
    46 ds_storexchg_2addr_rtn_b32 47 ds_storexchg_2addr_stride64_rtn_b32
b64:b32,b64 one
    96 ds_add_rtn_u64 97 ds_sub_rtn_u64 98 ds_rsub_rtn_u64 99 ds_inc_rtn_u64 100 ds_dec_rtn_u64 101 ds_min_rtn_i64
    102 ds_max_rtn_i64 103 ds_min_rtn_u64 104 ds_max_rtn_u64 105 ds_and_rtn_b64 106 ds_or_rtn_b64 107 ds_xor_rtn_b64
    109 ds_storexchg_rtn_b64 114 ds_min_num_rtn_f64 115 ds_max_num_rtn_f64 126 ds_condxchg32_rtn_b64
b64:b32,b64,b64 one
    108 ds_mskor_rtn_b64 112 ds_cmpstore_rtn_b64
b96:b32 one
    254 ds_load_b96
"""

VMEM: Final = """
: cache g
    43 inv 44 wb 79 wbinv
:b1024 store gs
    84 store_block
:b128 store fgs
    29 store_b128
:b32 store addtid g
    41 store_addtid_b32
:b32 store fgs
    24 store_b8 25 store_b16 26 store_b32 36 store_d16_hi_b8 37 store_d16_hi_b16
:b64 store fgs
    27 store_b64
:b96 store fgs
    28 store_b96
b1024: load gs
    83 load_block
b128: load fgs
    23 load_b128
b128: load g
    87 load_tr_b128
b32: load addtid g
    40 load_addtid_b32
b32: load fgs
    16 load_u8 17 load_i8 18 load_u16 19 load_i16 20 load_b32 30 load_d16_u8 31 load_d16_i8 32 load_d16_b16
    33 load_d16_hi_u8 34 load_d16_hi_i8 35 load_d16_hi_b16
b32:b32 atomic fg
    51 atomic_swap_b32 53 atomic_add_u32 54 atomic_sub_u32 55 atomic_sub_clamp_u32 56 atomic_min_i32 57 atomic_min_u32
    58 atomic_max_i32 59 atomic_max_u32 60 atomic_and_b32 61 atomic_or_b32 62 atomic_xor_b32 63 atomic_inc_u32
    64 atomic_dec_u32 80 atomic_cond_sub_u32 81 atomic_min_num_f32 82 atomic_max_num_f32 86 atomic_add_f32
    89 atomic_pk_add_f16 90 atomic_pk_add_bf16
b32:b64 atomic fg
    52 atomic_cmpswap_b32
b64: load fgs
    21 load_b64
b64: load g
    88 load_tr_b64
b64:b128 atomic fg
    66 atomic_cmpswap_b64
b64:b64 atomic fg
    65 atomic_swap_b64 67 atomic_add_u64 68 atomic_sub_u64 69 atomic_min_i64 70 atomic_min_u64 71 atomic_max_i64
    72 atomic_max_u64 73 atomic_and_b64 74 atomic_or_b64 75 atomic_xor_b64 76 atomic_inc_u64 77 atomic_dec_u64
b64:b64 atomic return g
    115 atomic_ordered_add_b64
b96: load fgs
    22 load_b96
"""

BUFFER: Final = """
:b128 store
    7 buffer_store_format_xyzw 29 buffer_store_b128
:b32 store
    4 buffer_store_format_x 12 buffer_store_d16_format_x 13 buffer_store_d16_format_xy 24 buffer_store_b8
    25 buffer_store_b16 26 buffer_store_b32 36 buffer_store_d16_hi_b8 37 buffer_store_d16_hi_b16
    39 buffer_store_d16_hi_format_x
:b64 store
    5 buffer_store_format_xy 14 buffer_store_d16_format_xyz 15 buffer_store_d16_format_xyzw 27 buffer_store_b64
:b96 store
    6 buffer_store_format_xyz 28 buffer_store_b96
b128: load
    3 buffer_load_format_xyzw 23 buffer_load_b128
b32: load
    0 buffer_load_format_x 8 buffer_load_d16_format_x 9 buffer_load_d16_format_xy 16 buffer_load_u8 17 buffer_load_i8
    18 buffer_load_u16 19 buffer_load_i16 20 buffer_load_b32 30 buffer_load_d16_u8 31 buffer_load_d16_i8
    32 buffer_load_d16_b16 33 buffer_load_d16_hi_u8 34 buffer_load_d16_hi_i8 35 buffer_load_d16_hi_b16
    38 buffer_load_d16_hi_format_x
b32:b32 atomic
    51 buffer_atomic_swap_b32 53 buffer_atomic_add_u32 54 buffer_atomic_sub_u32 55 buffer_atomic_sub_clamp_u32
    56 buffer_atomic_min_i32 57 buffer_atomic_min_u32 58 buffer_atomic_max_i32 59 buffer_atomic_max_u32
    60 buffer_atomic_and_b32 61 buffer_atomic_or_b32 62 buffer_atomic_xor_b32 63 buffer_atomic_inc_u32
    64 buffer_atomic_dec_u32 80 buffer_atomic_cond_sub_u32 81 buffer_atomic_min_num_f32 82 buffer_atomic_max_num_f32
    86 buffer_atomic_add_f32 89 buffer_atomic_pk_add_f16 90 buffer_atomic_pk_add_bf16
b32:b64 atomic
    52 buffer_atomic_cmpswap_b32
b64: load
    1 buffer_load_format_xy 10 buffer_load_d16_format_xyz 11 buffer_load_d16_format_xyzw 21 buffer_load_b64
b64:b128 atomic
    66 buffer_atomic_cmpswap_b64
b64:b64 atomic
    65 buffer_atomic_swap_b64 67 buffer_atomic_add_u64 68 buffer_atomic_sub_u64 69 buffer_atomic_min_i64
    70 buffer_atomic_min_u64 71 buffer_atomic_max_i64 72 buffer_atomic_max_u64 73 buffer_atomic_and_b64
    74 buffer_atomic_or_b64 75 buffer_atomic_xor_b64 76 buffer_atomic_inc_u64 77 buffer_atomic_dec_u64
b96: load
    2 buffer_load_format_xyz 22 buffer_load_b96
"""
