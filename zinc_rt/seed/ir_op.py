"""The page `ir_op`: opcodes, with stage and milestone by the page's table. Nothing here runs them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from zinc_rt.ir.op import Op, name

__all__ = ["Info", "Milestone", "Op", "Stage", "from_name", "info", "is_m0", "name"]


class Stage(enum.StrEnum):
    """The kind of step an opcode was made for."""

    DECODE = "decode"
    PREFILL = "prefill"
    BOTH = "both"


class Milestone(enum.StrEnum):
    """The milestone at which an opcode becomes executable."""

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
    Op.SIGMOID_MUL: (_BOTH, Milestone.M0),
    Op.MUL: (_BOTH, Milestone.M0),
    Op.SCALE: (_BOTH, Milestone.M0),
    Op.SOFTCAP: (_BOTH, Milestone.M0),
    Op.POSITION_SCALE: (_BOTH, Milestone.M0),
    Op.GROUP_MATMUL: (_BOTH, Milestone.M0),
    Op.LAYER_NORM: (_BOTH, Milestone.M0),
    Op.ACTIVATE: (_BOTH, Milestone.M0),
    Op.ADD_POSITION: (_BOTH, Milestone.M0),
    Op.ROTATE: (_BOTH, Milestone.M0),
    Op.ROW_ATTN: (_BOTH, Milestone.M0),
    Op.GIVEN_ROWS: (_BOTH, Milestone.M0),
    Op.CLAMP: (_BOTH, Milestone.M0),
    Op.LORA_A: (_BOTH, Milestone.M0),
    Op.LORA_B: (_BOTH, Milestone.M0),
    Op.SSM_SCAN: (_BOTH, Milestone.M0),
    Op.JOIN_HEADS: (_BOTH, Milestone.M0),
    Op.INDEX_SCORES: (_BOTH, Milestone.M0),
    Op.INDEX_CHOICE: (_BOTH, Milestone.M0),
    Op.STREAM_NORM: (_BOTH, Milestone.M0),
    Op.STREAM_SUM: (_BOTH, Milestone.M0),
    Op.STREAM_ADD: (_BOTH, Milestone.M0),
    Op.STREAM_GATE: (_BOTH, Milestone.M0),
    Op.NGRAM_IDS: (_BOTH, Milestone.M0),
    Op.STREAM_MIX: (_BOTH, Milestone.M0),
    Op.POOL_BLOCKS: (_BOTH, Milestone.M0),
    Op.BLOCK_ATTN: (_BOTH, Milestone.M0),
}


def from_name(text: str) -> Op | None:
    """The opcode called `text`, in any case; None where there is none."""
    # Upper-casing maps some other letters onto ASCII ones (the long s onto S), hence the check.
    return Op.__members__.get(text.upper()) if text.isascii() else None


def info(op: Op) -> Info:
    """The table's row for `op`."""
    return Info(name(op), *_EXCEPTIONS.get(op, (_DECODE, Milestone.M0)))


def is_m0(op: Op) -> bool:
    """Whether the first milestone needs `op`."""
    return info(op).milestone is Milestone.M0
