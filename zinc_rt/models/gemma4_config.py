"""Reads the metadata of `gemma4` files: sizes by layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.config import HeadSizes, check_heads, read_info
from zinc_rt.models.definition import ModelInfo
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.windows import windowed_layers


@dataclass(frozen=True)
class Gemma4Info(ModelInfo):
    """Sizes of a Gemma 4 model.

    n_ff, heads, windowed: by layer. window: positions that windowed layers see. rope, local_rope: of layers without and
    with one. n_own: layers that have keys and values of their own, the first ones. input_width: elements of a layer's
    own input, 0 for none.
    """

    n_ff: tuple[int, ...]
    heads: tuple[HeadSizes, ...]
    windowed: tuple[bool, ...]
    window: int
    rope: RopeConfig
    local_rope: RopeConfig
    n_own: int
    input_width: int
    rms_eps: float

    @classmethod
    def from_file(cls, file: GGUFFile, keys: Keys) -> Gemma4Info:
        """Raises `ModelError`."""
        info = read_info(file, keys)
        windowed = windowed_layers(keys, info.n_layers)
        width, local_width = head_width(keys), head_width(keys, windowed=True)
        kv_heads = keys.integers("attention.head_count_kv", info.n_layers)
        n_heads = keys.integers("attention.head_count", info.n_layers)
        heads = tuple(
            _heads(keys, n, kv, local_width if near else width)
            for n, kv, near in zip(n_heads, kv_heads, windowed, strict=True)
        )
        rope, local_rope = rotations(keys, info.n_ctx_train)
        shared = keys.integer("attention.shared_kv_layers", 0, minimum=0, maximum=info.n_layers)
        return cls(
            **vars(info),
            n_ff=keys.integers("feed_forward_length", info.n_layers),
            heads=heads,
            windowed=windowed,
            window=keys.integer("attention.sliding_window"),
            rope=rope,
            local_rope=local_rope,
            n_own=_own_layers(keys, windowed, heads, shared),
            input_width=keys.integer("embedding_length_per_layer_input", 0, minimum=0),
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
        )

    def reads(self, layer: int) -> int | None:
        """The layer whose keys and values a layer reads; None for its own."""
        if layer < self.n_own:
            return None
        return self.n_own - 2 if self.windowed[layer] else self.n_own - 1


def rotations(keys: Keys, n_ctx_train: int) -> tuple[RopeConfig, RopeConfig]:
    """How positions become angles in layers without and with a window. Raises `ModelError`."""
    width, local_width = head_width(keys), head_width(keys, windowed=True)
    rope = RopeConfig.from_keys(keys, width, n_ctx_train, interleaved=False)
    base = keys.number("rope.freq_base_swa", 10000.0, minimum=1.0, above=True)
    dim = keys.integer("rope.dimension_count_swa", local_width, maximum=local_width)
    if dim % 2:
        raise ModelError(f"{keys.name('rope.dimension_count_swa')} is {dim}, it must be even")
    return rope, replace(rope.unscaled(base), dim=dim)


def head_width(keys: Keys, *, windowed: bool = False) -> int:
    """Elements of a head of one kind of layer. Raises `ModelError` where keys and values differ."""
    end = "_swa" if windowed else ""
    key, value = f"attention.key_length{end}", f"attention.value_length{end}"
    default = keys.integer("attention.key_length") if end else None
    width = keys.integer(key, default)
    if keys.integer(value, width) != width:
        raise ModelError(f"{keys.name(value)} is {keys.integer(value)}, it must be as {keys.name(key)}, {width}")
    return width


def _heads(keys: Keys, n_heads: int, n_kv_heads: int, width: int) -> HeadSizes:
    names = (keys.name(f"attention.{key}") for key in ("head_count", "head_count_kv", "key_length"))
    check_heads(n_heads, n_kv_heads, width, *names)
    return HeadSizes(n_heads, n_kv_heads, width)


def _own_layers(keys: Keys, windowed: tuple[bool, ...], heads: tuple[HeadSizes, ...], shared: int) -> int:
    """Layers with keys and values of their own. The last two of these layers, one of each kind, serve the other layers
    of their kind.

    Raises `ModelError` where they cannot.
    """
    own, name = len(windowed) - shared, keys.name("attention.shared_kv_layers")
    if not shared:
        return own
    if own < 2 or not windowed[own - 2] or windowed[own - 1]:
        raise ModelError(
            f"{name} is {shared} of {len(windowed)} layers: layer {own - 2} must be there and have a window, and layer"
            f" {own - 1} none, for the layers behind them to read their keys and values"
        )
    for layer in range(own, len(windowed)):
        source = own - 2 if windowed[layer] else own - 1
        if heads[layer].n_kv_heads != heads[source].n_kv_heads:
            raise ModelError(
                f"{keys.name('attention.head_count_kv')} is {heads[layer].n_kv_heads} in layer {layer}, which reads the"
                f" keys and values of layer {source}, where it is {heads[source].n_kv_heads}"
            )
    return own
