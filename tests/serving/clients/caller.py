"""The model in the package with a template that calls tools, with tokens around a gap, or with one layer; one that says
little.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from zinc_rt.gguf import GGUFFile, GGUFWriter, ValueType
from zinc_rt.llm.load import built_in_model

TEMPLATE = """{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c
in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Of a family whose models call tools."""
LONG: Final = 1 << 17
"""Tokens that `write_reader`'s model takes."""


def write_caller(path: Path) -> Path:
    """Write the model in the package with a chat template that takes tools."""
    return _write(path, {"tokenizer.chat_template": TEMPLATE})


def write_coder(path: Path) -> Path:
    """Write the model in the package with tokens around a gap: three of its ordinary ones."""
    return _write(path, {f"tokenizer.ggml.fim_{name}_token_id": 3 + i for i, name in enumerate(("pre", "suf", "mid"))})


def write_reader(path: Path) -> Path:
    """Write a model with a long context and one layer, whose tokens are all equally likely.

    Sampling keeps the first 40 tokens of the vocabulary then. Two of them end the text: it has 20 tokens on average.
    """
    changes = {"tokenizer.chat_template": TEMPLATE, "qwen3.block_count": 1, "qwen3.context_length": LONG}
    return _write(path, changes, n_layers=1, zero="output_norm.weight")


def write_shallow(path: Path) -> Path:
    """Write the model in the package with its first layer alone."""
    return _write(path, {"qwen3.block_count": 1}, n_layers=1)


def _write(path: Path, changes: Mapping[str, Any], n_layers: int | None = None, zero: str = "") -> Path:
    with GGUFFile.open(built_in_model()) as file:
        writer = GGUFWriter(path)
        for key, value in file.metadata.items():
            info = file.metadata.info(key)
            kind = None if isinstance(value, np.ndarray) else info.item or info.type
            writer.add(key, changes.get(key, value), kind)
        for key in changes.keys() - file.metadata.keys():
            writer.add(key, changes[key], ValueType.UINT32)
        for tensor in file.tensors.values():
            of, at, _ = (tensor.name + "..").split(".", 2)
            if n_layers is None or of != "blk" or int(at) < n_layers:
                raw = file.raw(tensor.name)
                data = np.zeros_like(raw) if tensor.name == zero else raw
                writer.add_tensor(tensor.name, data, tensor.type, tensor.shape)
        writer.write()
    return path
