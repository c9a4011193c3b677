"""`gemma4-assistant`: the small model that drafts for a Gemma 4 model, in a file of its own.

A row has a token, embedded by the large model's table, and a hidden state: the large model's at the position before, or
the small model's own of the row before. The small model has no keys and values. A layer with a window reads those of
the large model's last layer with a window, and a layer without one those of its last layer without. All rows of a draft
stand at the position of the text's last token and see the positions before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import Residual
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition, ModelInfo
from zinc_rt.models.drafts import PRIOR
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.gemma4 import Gemma4Block, full_rotations
from zinc_rt.models.gemma4_config import Gemma4Info, head_width, rotations
from zinc_rt.models.hidden import HIDDEN
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.renaming import OWN, renamed
from zinc_rt.models.windows import windowed_layers

NAME: Final = "gemma4-assistant"
_TABLE: Final = "token_embd.weight"
_LARGE_TABLE: Final = f"target.{_TABLE}"
_SPARSE: Final = ("masked_embd_centroids.weight", "masked_embd_ordering")
"""What a head that computes some of the logits alone would read."""


@dataclass(frozen=True)
class AssistantInfo(ModelInfo):
    """Sizes. heads, windowed, n_ff, reads: by layer; reads is the large model's layer whose keys and values it reads.
    window: positions that windowed layers see.
    """

    heads: tuple[HeadSizes, ...]
    windowed: tuple[bool, ...]
    n_ff: tuple[int, ...]
    reads: tuple[int, ...]
    window: int
    rms_eps: float

    @classmethod
    def from_file(cls, file: GGUFFile, keys: Keys, model: Gemma4Info) -> AssistantInfo:
        """Raises `ModelError` for another model's."""
        info = read_info(file, keys)
        for what, own, wanted in (
            (keys.name("embedding_length_out"), keys.integer("embedding_length_out"), model.n_embd),
            (f"rows of {_TABLE}", info.n_vocab, model.n_vocab),
        ):
            if own != wanted:
                raise ModelError(f"{file.path} drafts for another model: {what} is {own}, of this one {wanted}")
        windowed = windowed_layers(keys, info.n_layers)
        reads = tuple(_last(model, near) for near in windowed)
        n_heads = keys.integers("attention.head_count", info.n_layers)
        heads = []
        for near, source, n in zip(windowed, reads, n_heads, strict=True):
            its, width = model.heads[source], head_width(keys, windowed=near)
            if width != its.head_dim:
                raise ModelError(f"heads of {width} elements cannot read the model's block {source}, of {its.head_dim}")
            heads.append(HeadSizes(n, its.n_kv_heads, width))
        return cls(
            **vars(info),
            heads=tuple(heads),
            windowed=windowed,
            n_ff=keys.integers("feed_forward_length", info.n_layers),
            reads=reads,
            window=keys.integer("attention.sliding_window"),
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
        )


def _last(model: Gemma4Info, windowed: bool) -> int:
    """The last layer of a kind that has keys and values. Raises `ModelError` where there is none."""
    found = [layer for layer in range(model.n_own) if model.windowed[layer] is windowed]
    if not found:
        raise ModelError(f"the model has no layer {'with' if windowed else 'without'} a window to read from")
    return found[-1]


def define_assistant(file: GGUFFile, target: GGUFFile, model: ModelInfo) -> ModelDefinition:
    """The graph of the drafting model. Weights of `target`, the large model's file, have its buffers' names, its own
    begin with `renaming.OWN`.

    Args:
        file: the drafting model's.
        target: the large model's.
        model: its figures.

    Raises:
        ModelError, UnsupportedTensorType: a file is not as needed, or they do not belong together.
    """
    if not isinstance(model, Gemma4Info):
        raise ModelError(f"{file.path} drafts for gemma4 models, not for architecture {model.architecture!r}")
    keys = Keys(file.metadata, NAME)
    info = AssistantInfo.from_file(file, keys, model)
    parts = GraphParts(file, info, info.rms_eps, causal=False, decodes=True)
    parts.leave(_SPARSE)
    rope, local_rope = rotations(keys, info.n_ctx_train)
    local = parts.rotation(local_rope, name="rope_local") if any(info.windowed) else None
    full = full_rotations(parts, info.windowed, rope)
    stream = Residual(parts, _input(parts, target, model.n_embd))
    for source in sorted(set(info.reads)):
        layer = info.reads.index(source)
        parts.states.kv_cache(source, info.heads[layer], window=info.window if info.windowed[layer] else None)
    for layer, windowed in enumerate(info.windowed):
        attention = AttentionSpec(
            info.heads[layer],
            local if windowed else full[layer],
            qk_norm=True,
            scale=1.0,
            # Of rows that see both ways a window is half before them.
            window=2 * info.window if windowed else None,
            shared_kv=info.reads[layer],
        )
        Gemma4Block(attention, FeedForwardSpec(info.n_ff[layer], activation="gelu"), None, None).emit(
            parts, stream, layer
        )
    h = parts.norm(stream.value(), "output_norm")
    parts.head(h, tied=True)
    y = parts.g.buffer(HIDDEN, BufferKind.OUTPUT, DType.F32, ("n_rows", model.n_embd))
    weight = parts.weight("nextn.post_projection.weight", model.n_embd, info.n_embd)
    parts.g.node(Op.MATMUL, [h, weight], [y], "nextn.post_projection.matmul")
    return renamed(parts.finish(), lambda name: _TABLE if name == _LARGE_TABLE else f"{OWN}{name}")


def _input(parts: GraphParts, target: GGUFFile, width: int) -> int:
    """The token's row of the large model's table, scaled, and the hidden state, put together and projected."""
    token = parts.temp("embd", width)
    table = parts.weight_of(target, _TABLE, _LARGE_TABLE)
    parts.g.node(Op.EMBED, [parts.step["token_ids"], table], [token], "embed")
    both: Sequence[int] = (parts.scale(token, math.sqrt(width), "embd_scaled"), parts.given(PRIOR, width))
    name, shape = "nextn.pre_projection", (parts.info.n_embd, 2 * width)
    made = [
        parts.product(x, parts.weight_columns(f"{name}.weight", shape, i, 2), f"{name}.{i}") for i, x in enumerate(both)
    ]
    return parts.add(made[0], made[1], f"{name}.sum")
