"""Opcodes that only the VOP3 formats have. Lines: see `isa.opcodes`."""

from __future__ import annotations

from typing import Final

VOP3: Final = """
b128:b64,b32,vb128 c
    573 v_mqsad_u32_u8
b16:b16,b16 cd
    771 v_add_nc_u16 772 v_sub_nc_u16 781 v_add_nc_i16 782 v_sub_nc_i16
b16:b16,b16 d
    773 v_mul_lo_u16 777 v_max_u16 778 v_max_i16 779 v_min_u16 780 v_min_i16 824 v_lshlrev_b16 825 v_lshrrev_b16
    826 v_ashrrev_i16 866 v_and_b16 867 v_or_b16 868 v_xor_b16
b16:b16,b16,b16 cd
    577 v_mad_u16 586 v_min3_i16 587 v_min3_u16 589 v_max3_i16 590 v_max3_u16 592 v_med3_i16 593 v_med3_u16
    595 v_mad_i16
b16:f16,f16 cod
    871 v_minimum_f16 872 v_maximum_f16
b16:f16,f16,f16 cod
    555 v_min3_num_f16 556 v_max3_num_f16 559 v_minimum3_f16 560 v_maximum3_f16 562 v_med3_num_f16 584 v_fma_f16
    596 v_div_fixup_f16 618 v_minmax_num_f16 619 v_maxmin_num_f16 622 v_minimummaximum_f16 623 v_maximumminimum_f16
b16:f16,f16,m d
    605 v_cndmask_b16
b16:h32,h32,f16 d
    614 v_dot2_f16_f16
b16:y32,y32,y16 d
    615 v_dot2_bf16_bf16
b32:b16,b16,b32 cd
    601 v_mad_u32_u16 602 v_mad_i32_i16
b32:b32,b32 -
    812 v_mul_lo_u32 813 v_mul_hi_u32 814 v_mul_hi_i32
b32:b32,b32 cd
    805 v_sub_nc_i32 806 v_add_nc_i32
b32:b32,b32 d
    797 v_bfm_b32 798 v_bcnt_u32_b32 799 v_mbcnt_lo_u32_b32 800 v_mbcnt_hi_u32_b32 803 v_cvt_pk_u16_u32
    804 v_cvt_pk_i16_i32
b32:b32,b32,b32 cd
    522 v_mad_i32_i24 523 v_mad_u32_u24 546 v_sad_u8 547 v_sad_hi_u8 548 v_sad_u16 549 v_sad_u32 569 v_msad_u8
b32:b32,b32,b32 d
    528 v_bfe_u32 529 v_bfe_i32 530 v_bfi_b32 533 v_lerp_u8 534 v_alignbit_b32 535 v_alignbyte_b32 538 v_min3_i32
    539 v_min3_u32 541 v_max3_i32 542 v_max3_u32 544 v_med3_i32 545 v_med3_u32 576 v_xor3_b32 580 v_perm_b32
    581 v_xad_u32 582 v_lshl_add_u32 583 v_add_lshl_u32 597 v_add3_u32 598 v_lshl_or_b32 599 v_and_or_b32
    600 v_or3_b32 610 v_maxmin_u32 611 v_minmax_u32 612 v_maxmin_i32 613 v_minmax_i32
b32:f16,f16 cd
    785 v_pack_b32_f16 786 v_cvt_pk_norm_i16_f16 787 v_cvt_pk_norm_u16_f16
b32:f32,f32 cd
    774 v_cvt_pk_i16_f32 775 v_cvt_pk_u16_f32 801 v_cvt_pk_norm_i16_f32 802 v_cvt_pk_norm_u16_f32
b32:f32,f32 cod
    869 v_minimum_f32 870 v_maximum_f32
b32:f32,f32 d s8
    873 v_cvt_pk_fp8_f32 874 v_cvt_pk_bf8_f32
b32:f32,b32 cod
    796 v_ldexp_f32
b32:f32,b32 d sc
    875 v_cvt_sr_fp8_f32 876 v_cvt_sr_bf8_f32
b32:f32,b32,b32 cd
    550 v_cvt_pk_u8_f32
b32:f32,f32,f32 co
    521 v_fma_dx9_zero_f32 551 v_div_fixup_f32 567 v_div_fmas_f32
b32:f32,f32,f32 cod
    524 v_cubeid_f32 525 v_cubesc_f32 526 v_cubetc_f32 527 v_cubema_f32 531 v_fma_f32 536 v_mullit_f32
    553 v_min3_num_f32 554 v_max3_num_f32 557 v_minimum3_f32 558 v_maximum3_f32 561 v_med3_num_f32
    616 v_minmax_num_f32 617 v_maxmin_num_f32 620 v_minimummaximum_f32 621 v_maximumminimum_f32
b32:sb32,sb32 -
    865 v_writelane_b32
b32:vb32,sb32,sb32 - s3
    603 v_permlane16_b32 604 v_permlanex16_b32
b32:vb32,vb32 - s3
    783 v_permlane16_var_b32 784 v_permlanex16_var_b32
b64:b32,b64 -
    829 v_lshrrev_b64
b64:b32,i64 -
    830 v_ashrrev_i64
b64:b64,b32,b64 c
    570 v_qsad_pk_u16_u8 571 v_mqsad_pk_u16_u8
b64:f64,b32 co
    811 v_ldexp_f64 815 v_trig_preop_f64
b64:f64,f64 co
    833 v_minimum_f64 834 v_maximum_f64
b64:f64,f64,f64 co
    532 v_fma_f64 552 v_div_fixup_f64 568 v_div_fmas_f64
sb16:sf16 co
    641 v_s_exp_f16 643 v_s_log_f16 645 v_s_rcp_f16 647 v_s_rsq_f16 649 v_s_sqrt_f16
sb32:sf32 co
    640 v_s_exp_f32 642 v_s_log_f32 644 v_s_rcp_f32 646 v_s_rsq_f32 648 v_s_sqrt_f32
sb32:vb32,sb32 -
    864 v_readlane_b32
"""

VOP3SD: Final = """
b32,m:b32,b32 cd
    768 v_add_co_u32 769 v_sub_co_u32 770 v_subrev_co_u32
b32,m:f32,f32,f32 co
    764 v_div_scale_f32
b64,m:b32,b32,b64 c
    766 v_mad_co_u64_u32
b64,m:b32,b32,i64 c
    767 v_mad_co_i64_i32
b64,m:f64,f64,f64 co
    765 v_div_scale_f64
"""

VOP3P: Final = """
b128:vb128,vb128,ch128 - 7 7 0 0
    66 v_wmma_f16_16x16x16_f16
b128:vb128,vb128,cy128 - 7 7 0 0
    67 v_wmma_bf16_16x16x16_bf16
b128:vb128,vb256,vb32 - 3 3 1 0
    82 v_swmmac_f16_16x16x32_f16 83 v_swmmac_bf16_16x16x32_bf16
b256:vb128,vb128,cf256 - 7 7 0 0
    64 v_wmma_f32_16x16x16_f16 65 v_wmma_f32_16x16x16_bf16
b256:vb128,vb256,vb32 - 3 3 1 0
    80 v_swmmac_f32_16x16x32_f16 81 v_swmmac_f32_16x16x32_bf16
b256:vb32,vb32,cb256 c 3 0 0 0
    69 v_wmma_i32_16x16x16_iu4
b256:vb32,vb64,vb32 c 3 0 1 0
    85 v_swmmac_i32_16x16x32_iu4
b256:vb64,vb128,vb32 - 0 0 1 0
    87 v_swmmac_f32_16x16x32_fp8_fp8 88 v_swmmac_f32_16x16x32_fp8_bf8 89 v_swmmac_f32_16x16x32_bf8_fp8
    90 v_swmmac_f32_16x16x32_bf8_bf8
b256:vb64,vb128,vb32 c 3 0 0 0
    86 v_swmmac_i32_16x16x64_iu4
b256:vb64,vb128,vb32 c 3 0 1 0
    84 v_swmmac_i32_16x16x32_iu8
b256:vb64,vb64,cb256 c 3 0 0 0
    68 v_wmma_i32_16x16x16_iu8 74 v_wmma_i32_16x16x32_iu4
b256:vb64,vb64,cf256 - 4 4 0 0
    70 v_wmma_f32_16x16x16_fp8_fp8 71 v_wmma_f32_16x16x16_fp8_bf8 72 v_wmma_f32_16x16x16_bf8_fp8
    73 v_wmma_f32_16x16x16_bf8_bf8
b32:b32,b32,b32 c 0 0 0 0
    23 v_dot4_u32_u8 25 v_dot8_u32_u4
b32:b32,b32,b32 c 3 0 0 0
    22 v_dot4_i32_iu8 24 v_dot8_i32_iu4
b32:b32,b32,f32 d 4 4 0 0
    36 v_dot4_f32_fp8_bf8 37 v_dot4_f32_bf8_fp8 38 v_dot4_f32_fp8_fp8 39 v_dot4_f32_bf8_bf8
b32:h32,h32 c 3 3 3 3
    15 v_pk_add_f16 16 v_pk_mul_f16 27 v_pk_min_num_f16 28 v_pk_max_num_f16 29 v_pk_minimum_f16 30 v_pk_maximum_f16
b32:h32,h32,f32 cd 7 7 7 7
    19 v_dot2_f32_f16
b32:h32,h32,h32 c 7 7 7 7
    14 v_pk_fma_f16
b32:w32,w32 c 0 0 3 3
    1 v_pk_mul_lo_u16 2 v_pk_add_i16 3 v_pk_sub_i16 4 v_pk_lshlrev_b16 5 v_pk_lshrrev_b16 6 v_pk_ashrrev_i16
    7 v_pk_max_i16 8 v_pk_min_i16 10 v_pk_add_u16 11 v_pk_sub_u16 12 v_pk_max_u16 13 v_pk_min_u16
b32:w32,w32,w32 c 0 0 7 7
    0 v_pk_mad_i16 9 v_pk_mad_u16
b32:x32,x32,x32 cd 7 7 7 7
    32 v_fma_mix_f32 33 v_fma_mixlo_f16 34 v_fma_mixhi_f16
b32:y32,y32,f32 cd 7 7 7 7
    26 v_dot2_f32_bf16
"""
