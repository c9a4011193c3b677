"""The opcode table against the reference text, typed here a second time on purpose."""

from __future__ import annotations

import pytest

from zinc_rt.seed import ir_op as opcodes
from zinc_rt.seed.ir_op import Milestone, Op, Stage

TABLE = """
0 embed decode m0
1 rms_norm both m0
2 rms_norm_fused_qkv decode m2
3 rms_norm_fused_mlp_gate_up decode m2
4 rope both m0
5 rms_norm_fused_rope_kv_write decode m2
6 flash_attn decode m0
7 flash_attn_batched prefill m2
8 moe_gate_topk decode m0
9 moe_gate_up decode m0
10 moe_swiglu decode m0
11 moe_down_acc decode m0
12 shared_expert decode m0
13 ssm_conv1d decode m0
14 ssm_delta_net decode m0
15 ssm_gated_norm decode m0
16 residual_rms_norm decode m0
17 lm_head decode m0
18 argmax decode m0
19 sample decode m2
20 kv_write_batched prefill m2
21 matmul_wmma_f16 prefill m4
22 matmul_wmma_q4k prefill m4
23 barrier both m0
24 stream_out decode m3
25 load_request_state decode m3
26 store_request_state decode m3
27 verify_k decode m6
"""
EXTENSION = """
28 matmul both m0
29 bias_add both m0
30 swiglu both m0
31 kv_write both m0
32 residual_add both m0
33 sigmoid_mul both m0
34 mul both m0
35 scale both m0
36 softcap both m0
37 position_scale both m0
38 group_matmul both m0
39 layer_norm both m0
40 activate both m0
41 add_position both m0
42 rotate both m0
43 row_attn both m0
44 given_rows both m0
45 clamp both m0
46 lora_a both m0
47 lora_b both m0
48 ssm_scan both m0
49 join_heads both m0
50 index_scores both m0
51 index_choice both m0
52 stream_norm both m0
53 stream_sum both m0
54 stream_add both m0
55 stream_gate both m0
56 ngram_ids both m0
57 stream_mix both m0
58 pool_blocks both m0
59 block_attn both m0
"""
ROWS = [line.split() for line in (TABLE + EXTENSION).split("\n") if line]


def test_the_table_has_28_opcodes_and_ours_follow() -> None:
    assert len(TABLE.split("\n")) - 2 == 28
    assert [int(op) for op in Op] == list(range(60)) == [int(row[0]) for row in ROWS]


@pytest.mark.parametrize(("number", "enum_name", "stage", "milestone"), ROWS)
def test_every_row(number: str, enum_name: str, stage: str, milestone: str) -> None:
    op = Op(int(number))
    assert opcodes.info(op) == opcodes.Info(enum_name.upper(), Stage(stage), Milestone(milestone))
    assert opcodes.name(op) == enum_name.upper()
    assert opcodes.is_m0(op) is (milestone == "m0")
    for spelling in (enum_name, enum_name.upper(), enum_name.title()):
        assert opcodes.from_name(spelling) is op


@pytest.mark.parametrize("text", ["", "nope", " embed", "embed ", "embed\n", "name", "__class__", "\u017fample", "0"])
def test_from_name_of_something_else_is_none(text: str) -> None:
    assert opcodes.from_name(text) is None


def test_opcodes_fit_a_byte() -> None:
    assert all(0 <= op <= 255 for op in Op)


def test_stages_and_milestones() -> None:
    assert [stage.value for stage in Stage] == ["decode", "prefill", "both"]
    assert [milestone.value for milestone in Milestone] == ["m0", "m2", "m3", "m4", "m6"]
