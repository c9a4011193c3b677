"""Servers as processes, and the models that they serve: the one in the package, also in a form that calls tools."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Started:
    """A server that answers. url: without a path. log: where its log goes."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def v1(self) -> str:
        """The base that OpenAI's clients take."""
        return f"{self.url}/v1"


@contextmanager
def started(log: Path, *options: str | Path) -> Iterator[Started]:
    """Run `zinc serve` on a free port, and end it as a service manager does."""
    command = [sys.executable, "-m", "zinc_rt", "serve", "--port", "0", *map(str, options)]
    with log.open("wb") as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as server:
        assert server.stdout is not None
        try:
            found = re.match(rb"zinc: (http://\S+)/v1 answers now", server.stdout.readline())
            assert found, log.read_text()
            yield Started(found[1].decode(), server, log)
            assert server.poll() is None, log.read_text()
            server.terminate()
            assert server.wait(60) == 0
        finally:
            server.kill()


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
