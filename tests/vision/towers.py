"""Tiny random projectors of every kind, and the formulas of their towers in float64."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers import add_tensors
from zinc_rt.gguf import GGMLType, GGUFWriter, ValueType

F64 = np.ndarray
Tensors = Mapping[str, F64]

E, HEADS, F, LAYERS, P, OUT = 64, 4, 96, 3, 4, 40
HEAD = E // HEADS
EPS = 1e-6


@dataclass(frozen=True)
class TinyProjector:
    """A file, the values that it holds, and the tower's formula.

    rows: f64[n_rows, n_out * (1 + deepstack layers)] of pixels f64[3, height, width] that are normalised, tile by tile.
    """

    path: Path
    tensors: Tensors
    rows: Callable[[Tensors, F64], F64]


def write(
    path: Path,
    kind: str,
    weights: GGMLType = GGMLType.F16,
    n_out: int = OUT,
    *,
    old: bool = False,
    n_layers: int = LAYERS,
) -> TinyProjector:
    """Make a projector of this kind up.

    weights: the format of matrices. n_out: elements of a text model's row. old: as old files, which name the two
    matrices of a feed-forward by each other and say no length of it. n_layers: those of the encoder; the formula is
    of `LAYERS`.
    """
    keys, shapes, rows = KINDS[kind]
    shapes = {name: tuple(n_out if n == OUT else n for n in shape) for name, shape in shapes.items()}
    for layer in range(n_layers, LAYERS):
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith(f"v.blk.{layer}.")}
    if old:
        keys = {**keys, "clip.vision.feed_forward_length": 0}
        other = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
        shapes = {re.sub("ffn_up|ffn_down", lambda found: other[found[0]], name): n for name, n in shapes.items()}
    writer = GGUFWriter(path)
    common: dict[str, Any] = {
        "general.architecture": "clip", "general.type": "mmproj", "clip.has_vision_encoder": True,
        "clip.projector_type": kind, "clip.vision.patch_size": P,
        "clip.vision.embedding_length": E, "clip.vision.feed_forward_length": F, "clip.vision.block_count": n_layers,
        "clip.vision.attention.head_count": HEADS, "clip.vision.attention.layer_norm_epsilon": EPS,
        "clip.vision.projection_dim": n_out, "clip.vision.image_mean": [0.5, 0.4, 0.3],
        "clip.vision.image_std": [0.5, 0.25, 0.3],
    }  # fmt: skip
    for key, value in (common | keys).items():
        writer.add(key, value, ValueType.UINT32 if type(value) is int else None)

    def format_of(name: str, shape: tuple[int, ...]) -> GGMLType:
        if len(shape) == 1 or "position_embd" in name:
            return GGMLType.F32
        plain = len(shape) > 2 or name == "mm.input_projection.weight" or shape[-1] % weights.block_size
        return GGMLType.F16 if plain and weights is not GGMLType.F32 else weights

    def values_of(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> F64:
        values = rng.standard_normal(shape).astype(np.float32)
        if name.endswith(("_min", "_max")):
            return np.abs(values) * np.float32(-0.5 if name.endswith("_min") else 0.5)
        if len(shape) > 1 and "position_embd" not in name:
            return values * np.float32(1.6 / np.sqrt(np.prod(shape[1:])))
        return 1 + values / 4 if name.endswith((".weight",)) and len(shape) == 1 else values / 4

    tensors = add_tensors(writer, shapes, format_of, np.random.default_rng(1), values_of)
    writer.write()
    return TinyProjector(path, tensors, rows)


# -- formulas --------------------------------------------------------------------------------------------------------


def layer_norm(t: Tensors, name: str, x: F64) -> F64:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + EPS) * t[f"{name}.weight"] + t[f"{name}.bias"]


def rms_norm(x: F64, weight: F64 | float) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def linear(t: Tensors, name: str, x: F64) -> F64:
    y = x @ t[f"{name}.weight"].T
    return y + t[f"{name}.bias"] if f"{name}.bias" in t else y


def gelu(x: F64) -> F64:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_quick(x: F64) -> F64:
    return x / (1 + np.exp(-1.702 * x))


def attention(q: F64, k: F64, v: F64, scale: float = HEAD**-0.5) -> F64:
    q, k, v = (x.reshape(len(x), HEADS, HEAD) for x in (q, k, v))
    s = np.einsum("nhd,mhd->hnm", q, k) * scale
    w = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hnm,mhd->nhd", w / w.sum(-1, keepdims=True), v).reshape(len(q), -1)


def patches(t: Tensors, pixels: F64, names: tuple[str, ...] = ("v.patch_embd.weight",)) -> F64:
    """f64[ny, nx, E]: each kernel over each patch."""
    ny, nx = pixels.shape[1] // P, pixels.shape[2] // P
    out = np.zeros((ny, nx, E))
    for y in range(ny):
        for x in range(nx):
            patch = pixels[:, y * P : (y + 1) * P, x * P : (x + 1) * P]
            for name in names:
                out[y, x] += np.einsum("eclk,clk->e", t[name], patch)
    return out + t["v.patch_embd.bias"] if "v.patch_embd.bias" in t else out


def join_blocks(x: F64, ny: int, nx: int, m: int) -> F64:
    """f64[ny * nx, E] in reading order to f64[blocks, m * m, E]."""
    return np.stack(
        [
            np.stack([x[(m * b + i) * nx + m * a + j] for i in range(m) for j in range(m)])
            for b in range(ny // m)
            for a in range(nx // m)
        ]
    )


def turned(y: F64, nx: int) -> F64:
    """Heads turned by line and column of patches in reading order."""
    y = y.reshape(len(y), HEADS, HEAD)
    out, at = y.copy(), np.divmod(np.arange(len(y)), nx)
    for j in range(HEAD // 2):
        k = j % (HEAD // 4)
        angle = at[0 if j < HEAD // 4 else 1] * 10000.0 ** (-4 * k / HEAD)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = y[:, :, j], y[:, :, j + HEAD // 2]
        out[:, :, j], out[:, :, j + HEAD // 2] = a * c - b * s, a * s + b * c
    return out.reshape(len(y), -1)


def qwen2vl(t: Tensors, pixels: F64) -> F64:
    x = patches(t, pixels, ("v.patch_embd.weight", "v.patch_embd.weight.1"))
    ny, nx = x.shape[:2]
    x = x.reshape(-1, E)
    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        q, k, v = (linear(t, f"{p}.attn_{name}", layer_norm(t, f"{p}.ln1", x)) for name in "qkv")
        x = x + linear(t, f"{p}.attn_out", attention(turned(q, nx), turned(k, nx), v))
        x = x + linear(t, f"{p}.ffn_down", gelu_quick(linear(t, f"{p}.ffn_up", layer_norm(t, f"{p}.ln2", x))))
    joined = join_blocks(layer_norm(t, "v.post_ln", x), ny, nx, 2).reshape(-1, 4 * E)
    return linear(t, "mm.2", gelu(linear(t, "mm.0", joined)))


def gemma4v(t: Tensors, pixels: F64) -> F64:
    def held(name: str, x: F64) -> F64:
        if f"{name}.input_min" in t:
            x = np.clip(x, t[f"{name}.input_min"][0], t[f"{name}.input_max"][0])
        y = x @ t[f"{name}.weight"].T
        if f"{name}.output_min" in t:
            y = np.clip(y, t[f"{name}.output_min"][0], t[f"{name}.output_max"][0])
        return y

    def heads_normed(x: F64, weight: F64 | float) -> F64:
        return rms_norm(x.reshape(len(x), HEADS, HEAD), weight)

    x = patches(t, 2 * pixels - 1)
    ny, nx = x.shape[:2]
    columns, lines = t["v.position_embd.weight"]
    x = (x + columns[:nx] + lines[:ny, None]).reshape(-1, E)
    line, column = np.divmod(np.arange(ny * nx), nx)

    def turned_by_halves(y: F64) -> F64:
        out, n = y.copy(), HEAD // 4
        for start, at in ((0, column), (HEAD // 2, line)):
            for j in range(n):
                angle = at * 100.0 ** (-4 * j / HEAD)
                c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
                a, b = y[:, :, start + j], y[:, :, start + j + n]
                out[:, :, start + j], out[:, :, start + j + n] = a * c - b * s, a * s + b * c
        return out.reshape(len(y), -1)

    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        h = rms_norm(x, t[f"{p}.ln1.weight"])
        q, k, v = (held(f"{p}.attn_{name}", h) for name in "qkv")
        q, k = (heads_normed(y, t[f"{p}.attn_{name}_norm.weight"]) for name, y in (("q", q), ("k", k)))
        a = attention(turned_by_halves(q), turned_by_halves(k), heads_normed(v, 1.0).reshape(len(v), -1), 1.0)
        x = x + rms_norm(held(f"{p}.attn_out", a), t[f"{p}.attn_post_norm.weight"])
        h = rms_norm(x, t[f"{p}.ln2.weight"])
        inner = gelu_quick(held(f"{p}.ffn_gate", h)) * held(f"{p}.ffn_up", h)
        x = x + rms_norm(held(f"{p}.ffn_down", inner), t[f"{p}.ffn_post_norm.weight"])
        if f"{p}.out_scale.weight" in t:
            x = x * t[f"{p}.out_scale.weight"][0]
    x = join_blocks(x, ny, nx, 3).mean(1) * np.sqrt(E)
    if "v.std_bias" in t:
        x = (x - t["v.std_bias"]) * t["v.std_scale"]
    return held("mm.input_projection", rms_norm(x, 1.0))


def qwen25vl(t: Tensors, pixels: F64) -> F64:
    x = patches(t, pixels, ("v.patch_embd.weight", "v.patch_embd.weight.1"))
    ny, nx = x.shape[:2]
    x = x.reshape(-1, E)
    line, column = np.divmod(np.arange(ny * nx), nx)
    side = 112 // P // 2 * 2  # of a window, in patches
    window = line // side * nx + column // side
    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        q, k, v = (linear(t, f"{p}.attn_{name}", rms_norm(x, t[f"{p}.ln1.weight"])) for name in "qkv")
        q, k = turned(q, nx), turned(k, nx)
        out = np.empty_like(x)
        for number in np.unique(window if (layer + 1) % 2 else 0 * window):
            rows = window == number if (layer + 1) % 2 else window >= 0
            out[rows] = attention(q[rows], k[rows], v[rows])
        x = x + linear(t, f"{p}.attn_out", out)
        h = rms_norm(x, t[f"{p}.ln2.weight"])
        gate = linear(t, f"{p}.ffn_gate", h)
        x = x + linear(t, f"{p}.ffn_down", gate / (1 + np.exp(-gate)) * linear(t, f"{p}.ffn_up", h))
    joined = join_blocks(rms_norm(x, t["v.post_ln.weight"]), ny, nx, 2).reshape(-1, 4 * E)
    return linear(t, "mm.2", gelu(linear(t, "mm.0", joined)))


def qwen3vl(t: Tensors, pixels: F64) -> F64:
    x = patches(t, pixels, ("v.patch_embd.weight", "v.patch_embd.weight.1"))
    ny, nx = x.shape[:2]
    n = QWEN_SIDE
    table = t["v.position_embd.weight"].reshape(n, n, E)
    for i in range(ny):
        for j in range(nx):
            a = i * (n - 1) / (ny - 1) if ny > 1 else 0.0
            b = j * (n - 1) / (nx - 1) if nx > 1 else 0.0
            i0, j0 = int(a), int(b)
            i1, j1 = min(i0 + 1, n - 1), min(j0 + 1, n - 1)
            u, w = a - i0, b - j0
            x[i, j] += (1 - u) * ((1 - w) * table[i0, j0] + w * table[i0, j1]) + u * (
                (1 - w) * table[i1, j0] + w * table[i1, j1]
            )
    x = x.reshape(-1, E)

    stacked = []
    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        q, k, v = np.split(linear(t, f"{p}.attn_qkv", layer_norm(t, f"{p}.ln1", x)), 3, axis=1)
        x = x + linear(t, f"{p}.attn_out", attention(turned(q, nx), turned(k, nx), v))
        x = x + linear(t, f"{p}.ffn_down", gelu(linear(t, f"{p}.ffn_up", layer_norm(t, f"{p}.ln2", x))))
        if layer in QWEN_STACKED:
            d = f"v.deepstack.{layer}"
            joined = join_blocks(x, ny, nx, 2).reshape(-1, 4 * E)
            stacked.append(linear(t, f"{d}.fc2", gelu(linear(t, f"{d}.fc1", layer_norm(t, f"{d}.norm", joined)))))
    joined = join_blocks(layer_norm(t, "v.post_ln", x), ny, nx, 2).reshape(-1, 4 * E)
    return np.concatenate([linear(t, "mm.2", gelu(linear(t, "mm.0", joined))), *stacked], axis=1)


def siglip(t: Tensors, pixels: F64) -> tuple[F64, int]:
    x = patches(t, pixels)
    n = x.shape[0]
    x = x.reshape(-1, E) + t["v.position_embd.weight"]
    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        h = layer_norm(t, f"{p}.ln1", x)
        x = x + linear(t, f"{p}.attn_out", attention(*(linear(t, f"{p}.attn_{name}", h) for name in "qkv")))
        x = x + linear(t, f"{p}.ffn_down", gelu(linear(t, f"{p}.ffn_up", layer_norm(t, f"{p}.ln2", x))))
    return layer_norm(t, "v.post_ln", x), n


def gemma3(t: Tensors, pixels: F64) -> F64:
    x, n = siglip(t, pixels)
    x = rms_norm(join_blocks(x, n, n, 2).mean(1), t["mm.soft_emb_norm.weight"])
    return x @ t["mm.input_projection.weight"]


def idefics3(t: Tensors, pixels: F64) -> F64:
    x, n = siglip(t, pixels)
    return linear(t, "mm.model.fc", join_blocks(x, n, n, 2).reshape(-1, 4 * E))


def pixtral(t: Tensors, pixels: F64) -> F64:
    x = patches(t, pixels)
    ny, nx = x.shape[:2]
    x = rms_norm(x.reshape(-1, E), t["v.pre_ln.weight"])
    line, column = np.divmod(np.arange(ny * nx), nx)

    def turned(y: F64) -> F64:
        y = y.reshape(len(y), HEADS, HEAD)
        out = y.copy()
        for j in range(HEAD // 2):
            i = j % (HEAD // 4)
            second = j >= HEAD // 4
            angle = (column if second else line) * 10000.0 ** (-(4 * i + (2 if second else 0)) / HEAD)
            c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
            a, b = y[:, :, 2 * j], y[:, :, 2 * j + 1]
            out[:, :, 2 * j], out[:, :, 2 * j + 1] = a * c - b * s, a * s + b * c
        return out.reshape(len(y), -1)

    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        q, k, v = (linear(t, f"{p}.attn_{name}", rms_norm(x, t[f"{p}.ln1.weight"])) for name in "qkv")
        x = x + linear(t, f"{p}.attn_out", attention(turned(q), turned(k), v))
        h = rms_norm(x, t[f"{p}.ln2.weight"])
        gate = linear(t, f"{p}.ffn_gate", h)
        x = x + linear(t, f"{p}.ffn_down", gate / (1 + np.exp(-gate)) * linear(t, f"{p}.ffn_up", h))
    x = rms_norm(x, t["mm.input_norm.weight"])
    joined = join_blocks(x, ny, nx, 2).transpose(0, 2, 1).reshape(-1, 4 * E)
    rows = linear(t, "mm.2", gelu(linear(t, "mm.1", linear(t, "mm.patch_merger", joined))))
    lines = rows.reshape(ny // 2, nx // 2, -1)
    ends = np.broadcast_to(t["v.token_embd.img_break"], (len(lines), 1, lines.shape[2]))
    return np.concatenate([lines, ends], axis=1).reshape(-1, lines.shape[2])[:-1]


# -- files -----------------------------------------------------------------------------------------------------------


def _norm(name: str, n: int = E) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (n,), f"{name}.bias": (n,)}


def _linear(name: str, n_out: int, n_in: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}


def _layers(projections: dict[str, int]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        shapes |= _norm(f"{p}.ln1") | _norm(f"{p}.ln2")
        for name, width in projections.items():
            shapes |= _linear(f"{p}.{name}", width, E)
        shapes |= _linear(f"{p}.attn_out", E, E) | _linear(f"{p}.ffn_up", F, E) | _linear(f"{p}.ffn_down", E, F)
    return shapes


QWEN_SIDE, QWEN_STACKED = 6, (0, 2)
_KERNEL = (E, 3, P, P)
_SIGLIP_SIDE = 4


def _siglip_shapes() -> dict[str, tuple[int, ...]]:
    return {
        "v.patch_embd.weight": _KERNEL, "v.patch_embd.bias": (E,), "v.position_embd.weight": (_SIGLIP_SIDE**2, E),
        **_layers({"attn_q": E, "attn_k": E, "attn_v": E}), **_norm("v.post_ln"),
    }  # fmt: skip


def _qwen3vl_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": _KERNEL, "v.patch_embd.weight.1": _KERNEL, "v.patch_embd.bias": (E,),
        "v.position_embd.weight": (QWEN_SIDE**2, E), **_layers({"attn_qkv": 3 * E}), **_norm("v.post_ln"),
        **_linear("mm.0", 4 * E, 4 * E), **_linear("mm.2", OUT, 4 * E),
    }  # fmt: skip
    for layer in QWEN_STACKED:
        p = f"v.deepstack.{layer}"
        shapes |= _norm(f"{p}.norm", 4 * E) | _linear(f"{p}.fc1", 4 * E, 4 * E) | _linear(f"{p}.fc2", OUT, 4 * E)
    return shapes


def _pixtral_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": _KERNEL, "v.pre_ln.weight": (E,), "mm.input_norm.weight": (E,),
        "mm.patch_merger.weight": (E, 4 * E), "v.token_embd.img_break": (OUT,), "mm.1.weight": (OUT, E),
        "mm.2.weight": (OUT, OUT),
    }  # fmt: skip
    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        shapes |= {f"{p}.ln1.weight": (E,), f"{p}.ln2.weight": (E,)}
        shapes |= {f"{p}.attn_{name}.weight": (E, E) for name in ("q", "k", "v", "out")}
        shapes |= {f"{p}.ffn_gate.weight": (F, E), f"{p}.ffn_up.weight": (F, E), f"{p}.ffn_down.weight": (E, F)}
    return shapes


def _qwen25vl_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": _KERNEL, "v.patch_embd.weight.1": _KERNEL, "v.post_ln.weight": (E,),
        **_linear("mm.0", 4 * E, 4 * E), **_linear("mm.2", OUT, 4 * E),
    }  # fmt: skip
    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        shapes |= {f"{p}.ln1.weight": (E,), f"{p}.ln2.weight": (E,), **_linear(f"{p}.ffn_down", E, F)}
        for name, width in {"attn_q": E, "attn_k": E, "attn_v": E, "attn_out": E, "ffn_gate": F, "ffn_up": F}.items():
            shapes |= _linear(f"{p}.{name}", width, E)
    return shapes


def _qwen2vl_shapes() -> dict[str, tuple[int, ...]]:
    return {
        "v.patch_embd.weight": _KERNEL, "v.patch_embd.weight.1": _KERNEL, **_norm("v.post_ln"),
        **_layers({"attn_q": E, "attn_k": E, "attn_v": E}), **_linear("mm.0", 4 * E, 4 * E),
        **_linear("mm.2", OUT, 4 * E),
    }  # fmt: skip


def _gemma4v_shapes() -> dict[str, tuple[int, ...]]:
    """With bounds of some matrices, and a factor behind one layer, which is not the last."""
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": _KERNEL, "v.position_embd.weight": (2, 3 * 1120, E), "v.std_bias": (E,),
        "v.std_scale": (E,), "mm.input_projection.weight": (OUT, E), "v.blk.0.out_scale.weight": (1,),
    }  # fmt: skip
    for layer in range(LAYERS):
        p = f"v.blk.{layer}"
        shapes |= {f"{p}.{name}.weight": (E,) for name in ("ln1", "ln2", "attn_post_norm", "ffn_post_norm")}
        shapes |= {f"{p}.attn_{name}_norm.weight": (HEAD,) for name in "qk"}
        shapes |= {f"{p}.attn_{name}.weight": (E, E) for name in ("q", "k", "v", "out")}
        shapes |= {f"{p}.ffn_gate.weight": (F, E), f"{p}.ffn_up.weight": (F, E), f"{p}.ffn_down.weight": (E, F)}
    held = [f"v.blk.1.{name}" for name in ("attn_q", "attn_v", "attn_out", "ffn_gate", "ffn_down")]
    for name in (*held, "mm.input_projection"):
        shapes |= {f"{name}.{end}": (1,) for end in ("input_min", "input_max", "output_min", "output_max")}
    return shapes


KINDS: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]], Callable[[Tensors, F64], F64]]] = {
    "qwen3vl_merger": (
        {"clip.use_gelu": True, "clip.vision.image_size": QWEN_SIDE * P, "clip.vision.spatial_merge_size": 2},
        _qwen3vl_shapes(),
        qwen3vl,
    ),
    "qwen2.5vl_merger": (
        {"clip.vision.image_size": 32 * P, "clip.vision.n_wa_pattern": 2, "clip.use_silu": True},
        _qwen25vl_shapes(),
        qwen25vl,
    ),
    "pixtral": (
        {"clip.vision.image_size": 32 * P, "clip.vision.spatial_merge_size": 2, "clip.use_silu": True},
        _pixtral_shapes(),
        pixtral,
    ),
    "qwen2vl_merger": ({"clip.vision.image_size": 32 * P}, _qwen2vl_shapes(), qwen2vl),
    "gemma4v": (
        {"clip.vision.image_size": 32 * P, "clip.vision.image_mean": [0.0] * 3, "clip.vision.image_std": [1.0] * 3},
        _gemma4v_shapes(),
        gemma4v,
    ),
    "gemma3": (
        {"clip.use_gelu": True, "clip.vision.image_size": _SIGLIP_SIDE * P, "clip.vision.projector.scale_factor": 2},
        {**_siglip_shapes(), "mm.soft_emb_norm.weight": (E,), "mm.input_projection.weight": (E, OUT)},
        gemma3,
    ),
    "idefics3": (
        {
            "clip.use_gelu": True,
            "clip.vision.image_size": _SIGLIP_SIDE * P,
            "clip.vision.projector.scale_factor": 2,
            "clip.vision.preproc_image_size": 2 * _SIGLIP_SIDE * P,
        },
        {**_siglip_shapes(), "mm.model.fc.weight": (OUT, 4 * E)},
        idefics3,
    ),
}
