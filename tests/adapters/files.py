"""Small random adapters for small random models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.helpers import packed
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, ValueType
from zinc_rt.llm.load import built_in_model

DENSE = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate.", "ffn_up.", "ffn_down.")


def write_adapter(
    path: Path,
    architecture: str,
    shapes: Mapping[str, tuple[int, ...]],
    names: tuple[str, ...] = DENSE,
    *,
    rank: int | Mapping[str, int] = 4,
    alpha: float | None = 8.0,
    kind: GGMLType = GGMLType.F32,
    seed: int = 1,
    size: float = 1.0,
    keys: Mapping[str, Any] | None = None,
    change: Mapping[str, tuple[int, ...] | None] | None = None,
) -> dict[str, np.ndarray]:
    """An adapter of the matrices whose names have one of `names` in them; what each adds to its matrix, f64.

    change: other shapes of tensors, None for none.
    """
    rng = np.random.default_rng(seed)
    writer = GGUFWriter(path)
    given = {"general.type": "adapter", "general.architecture": architecture, "adapter.type": "lora"} | dict(keys or {})
    for key, value in given.items():
        if value is not None:
            writer.add(key, value)
    if alpha is not None:
        writer.add("adapter.lora.alpha", alpha, ValueType.FLOAT32)
    added = {}
    for name, shape in shapes.items():
        if len(shape) < 2 or not any(part in name for part in names):
            continue
        r = rank if isinstance(rank, int) else next((n for part, n in rank.items() if part in name), 4)
        *experts, n_out, n_in = shape
        a, b = (*experts, r, n_in), (*experts, n_out, r)
        if name == "token_embd.weight":
            a, b = (n_out, r), (n_in, r)
        both = []
        for suffix, usual in ((".lora_a", a), (".lora_b", b)):
            wanted = (change or {}).get(name + suffix, usual)
            if wanted is None:
                continue
            values = (size * rng.standard_normal(wanted) / np.sqrt(wanted[-1])).astype(np.float32)
            raw = packed(kind, values.reshape(-1, wanted[-1]), rng)
            writer.add_tensor(name + suffix, raw, kind, wanted)
            theirs = gguf.GGMLQuantizationType(int(kind))
            both.append(gguf.quants.dequantize(raw, theirs).reshape(wanted).astype(np.float64))
        if change is None:
            down, up = both
            product = down @ up.T if name == "token_embd.weight" else up @ down
            added[name] = product * (alpha / r if alpha else 1.0)
    writer.write()
    return added


def story_adapters(folder: Path, names: str) -> list[Path]:
    """Adapters of the model in the package."""
    with GGUFFile.open(built_in_model()) as file:
        shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
        architecture = file.architecture
    for i, name in enumerate(names):
        write_adapter(folder / f"{name}.gguf", architecture, shapes, seed=i)
    return [folder / f"{name}.gguf" for name in names]
