"""The opcodes of the IR: the original table, then our extension at its end.

Opcodes 0 to 27 keep the numbers, stages and milestones of the original; they never move. The original lets
the attention output projection, the residual additions and the dense SwiGLU ride inside kernels that no
opcode names, so a graph written with its table alone cannot say what a dense model computes. Here the graph
is what runs, hence five opcodes more, at the table's end:

- `MATMUL`: a plain projection (attention output, FFN gate, up and down; q, k and v where nothing is fused).
- `BIAS_ADD`: the q, k and v biases of qwen2 and of some llama files.
- `SWIGLU`: the dense feed-forward activation; `MOE_SWIGLU` is the routed one.
- `KV_WRITE`: storing keys and values without a norm and a rotation fused in front
  (`RMS_NORM_FUSED_ROPE_KV_WRITE`) and for any mix of decode and prefill rows (`KV_WRITE_BATCHED` is prefill
  only).
- `RESIDUAL_ADD`: the last addition of a model, where no norm of the same sum follows (`RESIDUAL_RMS_NORM`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


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


class Stage(enum.StrEnum):
    """The kind of step an opcode was made for."""

    DECODE = "decode"
    PREFILL = "prefill"
    BOTH = "both"


class Milestone(enum.StrEnum):
    """The milestone of the original at which an opcode becomes executable."""

    M0 = "m0"
    M2 = "m2"
    M3 = "m3"
    M4 = "m4"
    M6 = "m6"


@dataclass(frozen=True, slots=True)
class Info:
    """What the table says about one opcode."""

    name: str
    stage: Stage
    milestone: Milestone


_DECODE, _PREFILL, _BOTH = Stage.DECODE, Stage.PREFILL, Stage.BOTH

# Every opcode that is not (decode, m0), which is what most of the table is.
_EXCEPTIONS: dict[Op, tuple[Stage, Milestone]] = {
    Op.RMS_NORM: (_BOTH, Milestone.M0),
    Op.RMS_NORM_FUSED_QKV: (_DECODE, Milestone.M2),
    Op.RMS_NORM_FUSED_MLP_GATE_UP: (_DECODE, Milestone.M2),
    Op.ROPE: (_BOTH, Milestone.M0),
    Op.RMS_NORM_FUSED_ROPE_KV_WRITE: (_DECODE, Milestone.M2),
    Op.FLASH_ATTN_BATCHED: (_PREFILL, Milestone.M2),
    Op.SAMPLE: (_DECODE, Milestone.M2),
    Op.KV_WRITE_BATCHED: (_PREFILL, Milestone.M2),
    Op.MATMUL_WMMA_F16: (_PREFILL, Milestone.M4),
    Op.MATMUL_WMMA_Q4K: (_PREFILL, Milestone.M4),
    Op.BARRIER: (_BOTH, Milestone.M0),
    Op.STREAM_OUT: (_DECODE, Milestone.M3),
    Op.LOAD_REQUEST_STATE: (_DECODE, Milestone.M3),
    Op.STORE_REQUEST_STATE: (_DECODE, Milestone.M3),
    Op.VERIFY_K: (_DECODE, Milestone.M6),
    Op.MATMUL: (_BOTH, Milestone.M0),
    Op.BIAS_ADD: (_BOTH, Milestone.M0),
    Op.SWIGLU: (_BOTH, Milestone.M0),
    Op.KV_WRITE: (_BOTH, Milestone.M0),
    Op.RESIDUAL_ADD: (_BOTH, Milestone.M0),
}

_TABLE: dict[Op, Info] = {op: Info(op.name, *_EXCEPTIONS.get(op, (_DECODE, Milestone.M0))) for op in Op}


def info(op: Op) -> Info:
    """The table's row for `op`."""
    return _TABLE[op]


def name(op: Op) -> str:
    """The canonical name, upper case."""
    return _TABLE[op].name


def from_name(text: str) -> Op | None:
    """The opcode called `text`, in any case; None where there is none."""
    # Upper-casing maps some other letters onto ASCII ones (the long s onto S), hence the check.
    return Op.__members__.get(text.upper()) if text.isascii() else None


def is_m0(op: Op) -> bool:
    """Whether the first milestone needs `op`."""
    return _TABLE[op].milestone is Milestone.M0
