"""Steps of the engine without a server, in a process of their own: what HTTP is compared with.

    python benchmarks/serving_bare.py MODEL [--threads N]       a JSON object a line, per number of sequences

Each sequence has a prompt of its own, all of them computed in one step, and then the likeliest token is fed back.
llama.cpp's `llama-batched-bench` measures the same for the peer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from ours import options

from zinc_rt.engine.engine import Engine, SequenceChunk
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define

PROMPT, GENERATED = 32, 64
"""Tokens of a request: read and generated."""
STREAMS = (1, 16)
_CONTEXT = 256
_REPEATS = 3


def measure(path: Path, threads: int, streams: int) -> dict[str, float]:
    """Seconds for the prompts of `streams` sequences and for the steps behind them, and of all threads' processor time
    for the latter; medians of three.
    """
    with (
        GGUFFile.open(path) as file,
        Engine(options(n_ctx=_CONTEXT, n_batch=max(streams * PROMPT, 32), n_slots=streams, threads=threads)) as engine,
    ):
        definition = define(file)
        engine.load(file, definition)
        seq_ids = [engine.open_sequence() for _ in range(streams)]
        prompts = np.random.default_rng(streams).integers(300, definition.info.n_vocab - 16, (streams, PROMPT))
        reading, decoding, working = [], [], []
        for _ in range(_REPEATS + 1):  # the first one warms up
            for seq_id in seq_ids:
                engine.truncate(seq_id, 0)
            begin = time.perf_counter()
            rows = [
                SequenceChunk(seq_id, 0, prompt, (PROMPT - 1,)) for seq_id, prompt in zip(seq_ids, prompts, strict=True)
            ]
            tokens = [int(token) for token in engine.step(rows).tokens]
            read, work = time.perf_counter(), time.process_time()
            for position in range(PROMPT, PROMPT + GENERATED - 1):
                rows = [
                    SequenceChunk(seq_id, position, (token,), (0,))
                    for seq_id, token in zip(seq_ids, tokens, strict=True)
                ]
                tokens = [int(token) for token in engine.step(rows).tokens]
            reading.append(read - begin)
            decoding.append(time.perf_counter() - read)
            working.append(time.process_time() - work)
        kinds = {"prompt": reading, "decode": decoding, "cpu": working}
        return {"streams": streams} | {kind: statistics.median(seconds[1:]) for kind, seconds in kinds.items()}


def ours_alone(model: Path, threads: int) -> dict[int, dict[str, float]]:
    """The figures of a process of this file, by number of sequences. Raises `RuntimeError`."""
    command = [sys.executable, __file__, str(model), "--threads", str(threads)]
    return {int(one["streams"]): one for one in _lines(command)}


def peer_alone(folder: Path, model: Path, threads: int) -> dict[int, dict[str, float]]:
    """The same of `llama-batched-bench`, which decodes one step more. Raises `RuntimeError`."""
    command = [str(folder / "llama-batched-bench"), "-m", str(model), "-t", str(threads), "-c", str(16 * _CONTEXT)]
    command += ["-npp", str(PROMPT), "-ntg", str(GENERATED), "-npl", ",".join(map(str, STREAMS))]
    found = {}
    for one in _lines([*command, "--output-format", "jsonl"]):
        steps = (GENERATED - 1) / GENERATED
        found[int(one["pl"])] = {"streams": one["pl"], "prompt": one["t_pp"], "decode": one["t_tg"] * steps}
    return found


def _lines(command: list[str]) -> list[dict[str, float]]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {said[-1]}")
    return lines


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for streams in STREAMS:
        print(json.dumps(measure(args.model, args.threads, streams)), flush=True)


if __name__ == "__main__":
    main()
