"""The opcodes of the IR and their numbers. What an operation takes, costs and computes stands in `zinc_rt.ir.ops`.

Numbers 0 to 27 are the table of ZINC (docs/how/seed.md) and never move; ours follow at its end. That table lets
the attention output projection, the residual additions and the dense SwiGLU ride inside kernels that no opcode names.
Here the graph is what runs, so it has to say what a dense model computes:

- `MATMUL`: a plain projection (attention output, FFN gate, up and down; q, k and v where nothing is fused).
- `BIAS_ADD`: the q, k and v biases of qwen2 and of some llama files.
- `SWIGLU`: the dense feed-forward activation; `MOE_SWIGLU` is the routed one.
- `KV_WRITE`: storing keys and values without a norm and a rotation fused in front
  (`RMS_NORM_FUSED_ROPE_KV_WRITE`) and for any mix of decode and prefill rows (`KV_WRITE_BATCHED` is prefill
  only).
- `SIGMOID_MUL`: the gate of an attention's output.
- `MUL`: a product of two activations.
- `RESIDUAL_ADD`: the last addition of a model, where no norm of the same sum follows (`RESIDUAL_RMS_NORM`).
- `SCALE`, `SOFTCAP`, `POSITION_SCALE`: rows times a number, held under a bound, or times a number of their position
  (Gemma's embedding and logits, Granite's multipliers, Ministral's queries).
- `GROUP_MATMUL`: a product whose parts have a matrix each (the projections of heads in latent attention).
- `LAYER_NORM`, `ACTIVATE`, `ADD_POSITION`: what encoders, and some decoders, have in place of an RMS norm, a gate and a
  rotation.
- `ROTATE`, `ROW_ATTN`: a rotation by angles of each row's own, and attention among rows of one step without a cache
  (the patches of a picture).
- `GIVEN_ROWS`: rows that the caller brings in place of those of token ids, or adds to them (pictures in a text).
- `CLAMP`: rows held between two numbers (around the products of Gemma 4's tower).
- `JOIN_HEADS`: heads of two parts, one of which may be that of all heads (keys made from a latent vector for each).
- `INDEX_SCORES`, `INDEX_CHOICE`: scores of earlier positions or blocks of them, and the choice of those that a row's
  attention sees (the lightning indexer of DeepSeek-V3.2).
- `STREAM_NORM`, `STREAM_SUM`, `STREAM_ADD`, `STREAM_GATE`: several residual streams (hyper-connections).
- `STREAM_MIX`: the weights with which streams are read, written and mixed (hyper-connections of DeepSeek-V4).
- `POOL_BLOCKS`, `BLOCK_ATTN`: one key for a block of positions, and attention over the last positions and over such
  keys (DeepSeek-V4).
- `NGRAM_IDS`: rows of a table by hashes of the last tokens (Qwen3.8's n-gram embedding).
- `LORA_A`, `LORA_B`: the two products of low rank that an adapter adds to a product, other adapters for each row.
- `SSM_SCAN`: the state of a selective state space model (Mamba 1 and 2), which `SSM_DELTA_NET` is not.
"""

from __future__ import annotations

import enum


class Op(enum.IntEnum):
    """Opcodes, an unsigned byte each. `name(op)` is the canonical upper-case name."""

    EMBED = 0
    RMS_NORM = 1
    RMS_NORM_FUSED_QKV = 2
    RMS_NORM_FUSED_MLP_GATE_UP = 3
    ROPE = 4
    RMS_NORM_FUSED_ROPE_KV_WRITE = 5
    FLASH_ATTN = 6
    FLASH_ATTN_BATCHED = 7
    MOE_GATE_TOPK = 8
    MOE_GATE_UP = 9
    MOE_SWIGLU = 10
    MOE_DOWN_ACC = 11
    SHARED_EXPERT = 12
    SSM_CONV1D = 13
    SSM_DELTA_NET = 14
    SSM_GATED_NORM = 15
    RESIDUAL_RMS_NORM = 16
    LM_HEAD = 17
    ARGMAX = 18
    SAMPLE = 19
    KV_WRITE_BATCHED = 20
    MATMUL_WMMA_F16 = 21
    MATMUL_WMMA_Q4K = 22
    BARRIER = 23
    STREAM_OUT = 24
    LOAD_REQUEST_STATE = 25
    STORE_REQUEST_STATE = 26
    VERIFY_K = 27
    # Our extension; the module's docstring says why each exists.
    MATMUL = 28
    BIAS_ADD = 29
    SWIGLU = 30
    KV_WRITE = 31
    RESIDUAL_ADD = 32
    SIGMOID_MUL = 33
    MUL = 34
    SCALE = 35
    SOFTCAP = 36
    POSITION_SCALE = 37
    GROUP_MATMUL = 38
    LAYER_NORM = 39
    ACTIVATE = 40
    ADD_POSITION = 41
    ROTATE = 42
    ROW_ATTN = 43
    GIVEN_ROWS = 44
    CLAMP = 45
    LORA_A = 46
    LORA_B = 47
    SSM_SCAN = 48
    JOIN_HEADS = 49
    INDEX_SCORES = 50
    INDEX_CHOICE = 51
    STREAM_NORM = 52
    STREAM_SUM = 53
    STREAM_ADD = 54
    STREAM_GATE = 55
    NGRAM_IDS = 56
    STREAM_MIX = 57
    POOL_BLOCKS = 58
    BLOCK_ATTN = 59


def name(op: Op) -> str:
    """The canonical name, upper case."""
    return op.name
