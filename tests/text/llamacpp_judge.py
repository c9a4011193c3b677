"""llama.cpp's own tokenizer as a judge: the wheel `xllamacpp` serves a tiny model with the vocabulary to ask about.

CONTRIBUTING.md says how to run the tests that use it. `python -m tests.text.llamacpp_judge` writes
`pretokenizers.json`, what it gives for a smaller set of texts.
"""

from __future__ import annotations

import http.client
import importlib
import json
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.text.random_texts import random_texts
from tests.text.vocabularies import bpe_metadata, gemma4_metadata
from zinc_rt.gguf import GGMLType, GGUFWriter
from zinc_rt.text.pretokenizers import PRE_TOKENIZERS

RECORDED = Path(__file__).with_name("pretokenizers.json")
_WIDTH = 32


def write_model(path: Path, tokenizer: Mapping[str, Any]) -> None:
    """A one-layer llama model of zeros with this tokenizer."""
    n_vocab = len(tokenizer["tokenizer.ggml.tokens"])
    writer = GGUFWriter(path)
    for key, value in {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.embedding_length": _WIDTH,
        "llama.feed_forward_length": _WIDTH,
        "llama.context_length": 64,
        "llama.attention.head_count": 1,
    }.items():
        writer.add(key, np.uint32(value) if isinstance(value, int) else value)
    writer.add("llama.attention.layer_norm_rms_epsilon", np.float32(1e-5))
    for key, value in tokenizer.items():
        writer.add(key, np.uint32(value) if key.endswith("_token_id") else value)
    square, row = (_WIDTH, _WIDTH), (_WIDTH,)
    shapes = {"token_embd": (n_vocab, _WIDTH), "output_norm": row, "output": (n_vocab, _WIDTH)}
    shapes |= {f"blk.0.{name}": row for name in ("attn_norm", "ffn_norm")}
    projections = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes |= {f"blk.0.{name}": square for name in projections}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32), GGMLType.F32, shape)
    writer.write()


class Judge:
    """A server that tokenizes."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=60)

    def ids(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """What llama.cpp makes of a text."""
        body = json.dumps({"content": text, "add_special": add_special, "parse_special": parse_special})
        self._connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        answer: list[int] = json.loads(self._connection.getresponse().read())["tokens"]
        return answer

    def all_ids(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """`ids` of each text."""
        return map(self.ids, texts)


@contextmanager
def judge(path: Path, tokenizer: Mapping[str, Any]) -> Iterator[Judge]:
    """llama.cpp over this tokenizer; `path` is where its model is written. Needs the package `xllamacpp`."""
    xllamacpp = importlib.import_module("xllamacpp")
    write_model(path, tokenizer)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.warmup = 64, False
    server = xllamacpp.Server(params)
    yield Judge(server.listening_address)
    del server


def one_name_each() -> list[str]:
    """The first name of each way to cut text."""
    return list({id(row): name for name, row in reversed(PRE_TOKENIZERS.items())}.values())[::-1]


def metadata_of(name: str) -> dict[str, Any]:
    """A test vocabulary under a pre-tokenizer's name."""
    return gemma4_metadata() if PRE_TOKENIZERS[name].raw else bpe_metadata(name)


def recorded_texts() -> list[str]:
    """The texts of `pretokenizers.json`, of snippets alone, so that all Pythons make the same."""
    return list(random_texts(5, 150, any_character=False))


def digest(ids: list[int]) -> int:
    """A number that stands for some ids."""
    return zlib.crc32(np.array(ids, "<i4").tobytes())


def main() -> None:
    """Write `pretokenizers.json`."""
    answers: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in one_name_each():
            with judge(Path(folder) / f"{name}.gguf", metadata_of(name)) as server:
                answers[name] = [digest(ids) for ids in server.all_ids(recorded_texts())]
    lines = ",\n".join(f'"{name}": {json.dumps(row, separators=(",", ":"))}' for name, row in answers.items())
    RECORDED.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
