"""A vocabulary of 152k tokens, as the qwen models have: opening is quick and takes little memory."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.gguf import build
from zinc_rt.gguf import GGUFFile, ValueType

N = 151_936
N_MERGES = 151_387


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    alphabet = np.array([*"abcdefghijklmnopqrstuvwxyzĠéß日本"])
    letters = rng.choice(alphabet, (N, 6))
    tokens = [f"{''.join(row[: i % 6 + 1])}{i}" for i, row in enumerate(letters)]
    merges = [f"{tokens[i]} {tokens[-i]}" for i in range(N_MERGES)]
    v = ValueType
    keys = [
        build.key("general.architecture", build.string("qwen3")),
        build.key("tokenizer.ggml.tokens", build.strings(tokens)),
        build.key("tokenizer.ggml.scores", build.array(v.FLOAT32, [struct.pack("<f", i) for i in range(N)])),
        build.key("tokenizer.ggml.token_type", build.array(v.INT32, [b"\1\0\0\0"] * N)),
        build.key("tokenizer.ggml.merges", build.strings(merges)),
        build.key("tokenizer.chat_template", build.string("{{ messages }}" * 500)),
    ]
    path = tmp_path_factory.mktemp("vocabulary") / "v.gguf"
    path.write_bytes(build.file(keys, [build.tensor("output_norm.weight", [8], 0, 0)], bytes(32)))
    return path


def test_it_opens_quickly(vocabulary: Path) -> None:
    """The best of several runs, in processor time: others may be using the machine, and the file is cached."""
    times = []
    for _ in range(4):
        start = time.process_time()
        GGUFFile.open(vocabulary).close()
        times.append(time.process_time() - start)
    assert min(times) < 0.15


def test_it_decodes_to_what_was_written(vocabulary: Path) -> None:
    with GGUFFile.open(vocabulary) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
        merges = file.metadata["tokenizer.ggml.merges"]
        assert len(tokens) == len(set(tokens)) == N
        assert [t.lstrip("abcdefghijklmnopqrstuvwxyzĠéß日本") for t in tokens] == [str(i) for i in range(N)]
        assert merges == [f"{tokens[i]} {tokens[-i]}" for i in range(N_MERGES)]
        assert file.metadata["tokenizer.ggml.scores"].tolist() == list(range(N))
        assert file.metadata["tokenizer.chat_template"] == "{{ messages }}" * 500


WORKER = """
import sys
from zinc_rt.gguf import GGUFFile
def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
GGUFFile.open(sys.argv[1]).close()
before = resident()
files = [GGUFFile.open(sys.argv[1]) for _ in range(5)]
print(resident() - before)
"""


def test_it_adds_little_memory(vocabulary: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WORKER, str(vocabulary)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5 * 512  # KiB for five open files; one decoded token list takes 10 MiB
