"""The model in the package with a chat template that calls tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zinc_rt.gguf import GGUFFile, GGUFWriter
from zinc_rt.loading import built_in_model

TEMPLATE = """{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c
in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Of a family whose models call tools."""


def write_caller(path: Path) -> Path:
    """Write the model in the package with a chat template that takes tools."""
    with GGUFFile.open(built_in_model()) as file:
        writer = GGUFWriter(path)
        for key, value in file.metadata.items():
            info = file.metadata.info(key)
            kind = None if isinstance(value, np.ndarray) else info.item or info.type
            writer.add(key, TEMPLATE if key == "tokenizer.chat_template" else value, kind)
        for tensor in file.tensors.values():
            writer.add_tensor(tensor.name, file.raw(tensor.name), tensor.type, tensor.shape)
        writer.write()
    return path
