"""The cost of the reference kernels: start-up, speed and memory with the bundled model, and opening a large file.

    python benchmarks/reference_tier.py [--rounds 5] [--json]

Every figure is the median over the rounds with its range. Commands are timed as whole processes on a warm disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import zinc_rt
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter

ZINC = [sys.executable, "-m", "zinc_rt"]
PROMPT = "Once upon a time"
N_VOCAB = 151_936


def measure(rounds: int, run: Callable[[], float]) -> list[float]:
    """Measure one value per round, after one that is not counted."""
    run()
    return [run() for _ in range(rounds)]


def process_seconds(*args: str) -> float:
    """Wall time of a whole `zinc` process."""
    start = time.perf_counter()
    subprocess.run([*ZINC, *args], check=True, capture_output=True, timeout=120)
    return time.perf_counter() - start


def first_token_seconds() -> float:
    """Seconds from the start of the process to the first byte of text."""
    start = time.perf_counter()
    with subprocess.Popen(
        [*ZINC, "run", PROMPT, "-n", "8", "--seed", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        if process.stdout is None or not process.stdout.read(1):
            raise RuntimeError("zinc run printed nothing")
        seconds = time.perf_counter() - start
        process.stdout.read()
    return seconds


def peak_mib(code: str) -> float:
    """Peak resident memory of a Python process that runs `code`."""
    tail = "; import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", code + tail], check=True, capture_output=True, text=True, timeout=120)
    return int(done.stdout.split()[-1]) / 1024


def speeds(n_prompt: int, n_text: int) -> tuple[float, float]:
    """Prefill and decode tokens/s of one cold generation with a fresh model."""
    with zinc_rt.load(device="cpu") as model:
        ids = (model.tokenize("Once upon a time there was a little fox who lived by the river. ") * n_prompt)[:n_prompt]
        stats = model.generate(ids, max_tokens=n_text, ignore_eos=True, seed=1).stats
    return stats.prefill_tokens_per_second, stats.decode_tokens_per_second


def large_file(folder: Path) -> Path:
    """A file with the vocabulary of a current model: tokens, merges, types, scores."""
    path = folder / "vocab.gguf"
    tokens = [f"token{i:06d}" for i in range(N_VOCAB)]
    writer = GGUFWriter(path)
    writer.add("general.architecture", "qwen3")
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.merges", [f"{t[:5]} {t[5:]}" for t in tokens])
    writer.add("tokenizer.ggml.token_type", np.ones(N_VOCAB, np.int32))
    writer.add("tokenizer.ggml.scores", np.zeros(N_VOCAB, np.float32))
    writer.add_tensor("token_embd.weight", np.zeros((4, 128), np.uint8), GGMLType.F32, (4, 32))
    writer.write()
    return path


def open_seconds(path: Path) -> float:
    """Seconds to open a file, with the directory of tensors, and to close it."""
    start = time.perf_counter()
    with GGUFFile.open(path) as file:
        if "token_embd.weight" not in file.tensors:
            raise RuntimeError("the file lost its tensor")
    return time.perf_counter() - start


def figures(rounds: int) -> dict[str, list[float]]:
    """All figures, by name with unit."""
    pairs = [speeds(128, 64) for _ in range(rounds)]
    deep = [speeds(512, 16) for _ in range(rounds)]
    with tempfile.TemporaryDirectory() as folder:
        path = large_file(Path(folder))
        opened = measure(rounds, lambda: open_seconds(path))
        opening = f"from zinc_rt.gguf import GGUFFile; f = GGUFFile.open({str(path)!r}); f.tensors"
        open_memory = [peak_mib(opening) - peak_mib("import zinc_rt.gguf") for _ in range(rounds)]
    load = f"import zinc_rt; m = zinc_rt.load(device='cpu'); m.generate({PROMPT!r}, max_tokens=32, seed=1)"
    return {
        "zinc --help, s": measure(rounds, lambda: process_seconds("--help")),
        "command to first text, s": measure(rounds, first_token_seconds),
        "prefill of 128 tokens, tokens/s": [p for p, _ in pairs],
        "decode after 128 tokens, tokens/s": [d for _, d in pairs],
        "prefill of 512 tokens, tokens/s": [p for p, _ in deep],
        "decode after 512 tokens, tokens/s": [d for _, d in deep],
        "peak memory of a generation, MiB": [peak_mib(load) for _ in range(rounds)],
        "opening a 152k-token file, s": opened,
        "memory that opening adds, MiB": open_memory,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = figures(args.rounds)
    if args.json:
        print(json.dumps(results, indent=1))
        return
    print("| figure | median | min | max |\n|---|---|---|---|")
    for name, values in results.items():
        print(f"| {name} | {statistics.median(values):.3f} | {min(values):.3f} | {max(values):.3f} |")


if __name__ == "__main__":
    main()
