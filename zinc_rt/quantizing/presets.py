"""The meaning of a format's name for a whole model: the format of each tensor.

A name such as Q4_K_M is a mixture, under the names and in the shares in which models are published, so that a file has
the size and the quality that its name promises. Tensors in which an error hurts most get more bits:

- the head (`output`, or the embedding where it is used twice), as its errors go straight into the logits;
- `attn_v`, which is small where heads share it and reaches the sum of attention unsoftened, unlike queries and keys;
- `ffn_down`, which has the largest outliers in its input;
- the first and the last layers, before others can make up for an error and after they have.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Final

from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.gguf.types import GGMLType as T
from zinc_rt.quantizing.rows import NEED_IMPORTANCE, WRITTEN


class Layers(Enum):
    """Which layers a rule is for."""

    ALL = "all"
    SOME = "the first and the last eighth, and every third between"
    FIRST_EIGHTH = "the first eighth"
    FIRST_SIXTEENTH = "the first sixteenth"
    FIRST_TWO = "the first two"
    FIRST_FOUR = "the first four"

    def holds(self, layer: int, n_layers: int) -> bool:
        """Whether the layer is one of them."""
        eighth = n_layers // 8
        return {
            Layers.ALL: True,
            Layers.SOME: layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2,
            Layers.FIRST_EIGHTH: layer < eighth,
            Layers.FIRST_SIXTEENTH: layer < n_layers // 16,
            Layers.FIRST_TWO: layer < 2,
            Layers.FIRST_FOUR: layer < 4,
        }[self]


@dataclass(frozen=True)
class FormatRule:
    """A format for the tensors whose role begins with `role`, in these layers.

    sharing: only where so many query heads share a key and value head, which makes the tensor small.
    """

    role: str
    type: T
    layers: Layers = Layers.ALL
    sharing: int = 1


@dataclass(frozen=True)
class Preset:
    """A mixture.

    file_type: `general.file_type`, enum llama_ftype of llama.h (llama.cpp repository). base: the format of matrices
    without a rule. head: of the matrix that makes logits. table: of an embedding that is not the head. None is `base`.
    rules: the first one that fits decides.
    """

    name: str
    file_type: int
    base: T
    head: T | None = None
    table: T | None = None
    rules: tuple[FormatRule, ...] = ()


_MANY: Final = 4
"""Query heads to a key and value head from which on `attn_v` is small."""
_Q4_STARTS: Final = (
    FormatRule("attn_v", T.Q5_K, sharing=_MANY),
    FormatRule("ffn_down", T.Q5_K, Layers.FIRST_EIGHTH),
)

_TABLE: Final = (
    Preset("F32", 0, T.F32),
    Preset("F16", 1, T.F16),
    Preset("BF16", 32, T.BF16),
    Preset("Q8_0", 7, T.Q8_0),
    Preset("Q6_K", 18, T.Q6_K),
    Preset(
        "Q5_K_M",
        17,
        T.Q5_K,
        T.Q6_K,
        rules=(
            FormatRule("attn_v", T.Q6_K, Layers.SOME),
            FormatRule("ffn_down", T.Q6_K, Layers.SOME),
            FormatRule("attn_qkv", T.Q6_K),
        ),
    ),
    Preset("Q5_K_S", 16, T.Q5_K, T.Q6_K),
    Preset("Q5_1", 9, T.Q5_1, T.Q6_K),
    Preset("Q5_0", 8, T.Q5_0, T.Q6_K),
    Preset(
        "Q4_K_M",
        15,
        T.Q4_K,
        T.Q6_K,
        rules=(
            FormatRule("attn_v", T.Q6_K, Layers.SOME),
            FormatRule("ffn_down", T.Q6_K, Layers.SOME),
            FormatRule("attn_qkv", T.Q5_K),
        ),
    ),
    Preset(
        "Q4_K_S",
        14,
        T.Q4_K,
        T.Q6_K,
        rules=(FormatRule("attn_v", T.Q5_K, Layers.FIRST_FOUR), FormatRule("ffn_down", T.Q5_K, Layers.FIRST_EIGHTH)),
    ),
    Preset("Q4_1", 3, T.Q4_1, T.Q6_K),
    Preset("Q4_0", 2, T.Q4_0, T.Q6_K),
    Preset("IQ4_NL", 25, T.IQ4_NL, T.Q6_K, rules=_Q4_STARTS),
    Preset("IQ4_XS", 30, T.IQ4_XS, T.Q6_K, rules=_Q4_STARTS),
    Preset(
        "MXFP4_MOE", 38, T.Q8_0, rules=tuple(FormatRule(f"ffn_{part}_exps", T.MXFP4) for part in ("gate", "up", "down"))
    ),
    Preset("MXFP4", 38, T.MXFP4, T.Q8_0, T.Q8_0),
    Preset("NVFP4", 39, T.NVFP4, T.Q8_0, T.Q8_0),
    Preset(
        "Q3_K_L",
        13,
        T.Q3_K,
        T.Q6_K,
        rules=(
            FormatRule("attn_v", T.Q5_K),
            FormatRule("ffn_down", T.Q5_K),
            FormatRule("attn_output", T.Q5_K),
            FormatRule("attn_qkv", T.Q4_K),
        ),
    ),
    Preset(
        "Q3_K_M",
        12,
        T.Q3_K,
        T.Q6_K,
        rules=(
            FormatRule("attn_v", T.Q5_K, Layers.FIRST_TWO),
            FormatRule("attn_v", T.Q4_K),
            FormatRule("ffn_down", T.Q5_K, Layers.FIRST_SIXTEENTH),
            FormatRule("ffn_down", T.Q4_K),
            FormatRule("attn_output", T.Q4_K),
            FormatRule("attn_qkv", T.Q4_K),
        ),
    ),
    Preset("Q3_K_S", 11, T.Q3_K, T.Q6_K),
    Preset(
        "Q2_K",
        10,
        T.Q2_K,
        T.Q6_K,
        rules=(
            FormatRule("attn_v", T.Q4_K, sharing=_MANY),
            FormatRule("attn_v", T.Q3_K),
            FormatRule("ffn_down", T.Q3_K),
            FormatRule("attn_output", T.Q3_K),
        ),
    ),
    # For models that were trained with two to four values a weight, in which no matrix asks for more.
    Preset("Q2_0", 41, T.Q2_0, T.Q6_K, T.Q4_K),
    Preset("TQ2_0", 37, T.TQ2_0, T.Q6_K, T.Q4_K),
    Preset("TQ1_0", 36, T.TQ1_0, T.Q6_K, T.Q4_K),
    Preset("Q1_0", 40, T.Q1_0, T.Q6_K, T.Q4_K),
)

PRESETS: Final = {preset.name: preset for preset in _TABLE}
"""By name, from the most to the fewest bits."""
ALIASES: Final = {"Q5_K": "Q5_K_M", "Q4_K": "Q4_K_M", "Q3_K": "Q3_K_M", "MXFP4-MOE": "MXFP4_MOE"}

FALLBACKS: Final = {
    T.Q2_K: T.IQ4_NL,
    T.Q3_K: T.IQ4_NL,
    T.IQ4_XS: T.IQ4_NL,
    T.Q4_K: T.Q5_0,
    T.Q5_K: T.Q5_1,
    T.Q6_K: T.Q8_0,
    T.NVFP4: T.MXFP4,
    **dict.fromkeys((T.Q2_0, T.TQ2_0, T.TQ1_0, T.Q1_0), T.IQ4_NL),
}
"""For rows that are no whole number of blocks of 256, 128 or 64, a format with blocks of 32 and no fewer bits."""


def preset_of(name: str) -> Preset:
    """The mixture of that name, in upper or lower case. Raises `UsageError`."""
    upper = name.upper()
    found = PRESETS.get(ALIASES.get(upper, upper))
    if found is not None:
        return found
    if upper.startswith(("IQ1", "IQ2", "IQ3")):
        raise UsageError(
            f"{upper} is not written: with so few bits a weight, a model is of use only where a text has shown which"
            f" weights matter, and that is not measured here; the smallest of the others are Q2_K, Q3_K_S and IQ4_XS"
        )
    raise UsageError(f"there is no format {name!r}; there are {', '.join(PRESETS)}")


def format_of(name: str) -> T:
    """The format of a tensor by its name, in upper or lower case. Raises `UsageError`."""
    upper = name.upper()
    for kind in WRITTEN:
        if kind.name == upper:
            return kind
    if upper in {kind.name for kind in NEED_IMPORTANCE}:
        preset_of(upper)
    raise UsageError(f"there is no format {name!r} for a tensor; there are {', '.join(t.name for t in WRITTEN)}")


def quantization_of(file: GGUFFile) -> str:
    """The mixture that a file names; where it names none of these, the format of most of its bytes."""
    number = file.metadata.get("general.file_type")
    names = [preset.name for preset in _TABLE if preset.file_type == number]
    if len(names) == 1:
        return names[0]
    sizes: Counter[str] = Counter()
    for tensor in file.tensors.values():
        sizes[tensor.type.name] += tensor.nbytes
    return sizes.most_common(1)[0][0]
