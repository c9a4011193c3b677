"""The side of zinc_rt in the table: the engine through its Python API in a process of its own for each measurement, and
the command as a whole process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rows import CONTEXT, Kind, Row

from zinc_rt.engine.engine import Engine, Options, SequenceChunk
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import ModelDefinition, define

PROMPT = "Once upon a time"
PREFILL_ROWS = 512
"""Rows of a step at the most where prompts are computed."""


@dataclass(frozen=True)
class Traffic:
    """The bytes that a decode step reads of a model."""

    definition: ModelDefinition

    @classmethod
    def read(cls, path: Path) -> Traffic:
        """Of a model file. Raises `ZincError`."""
        with GGUFFile.open(path) as file:
            return cls(define(file))

    @property
    def weights(self) -> int:
        """Bytes of the matrices that a row reads: of experts, the chosen ones."""
        return self.definition.step_bytes(0, streams=0)

    def step(self, row: Row) -> float:
        """Bytes that a step of a decode row reads, at its middle step; dense weights are read once for all streams."""
        return self.definition.step_bytes(row.depth + row.n // 2, streams=row.streams)


def options(**wanted: Any) -> Options:
    """Options of the engine; None leaves one at its default.

    Raises `UsageError` for an option that it does not have.
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    known = {field.name for field in dataclasses.fields(Options)}
    if unknown := sorted(set(given) - known):
        raise UsageError(f"this version's engine has no option {', '.join(unknown)}")
    return Options(**given)


@contextmanager
def driver(path: Path, row: Row, threads: int, kernels: str | None) -> Iterator[Callable[[], dict[str, float]]]:
    """A function that measures the row once: figures by unit, of any kind but START.

    Raises `ZincError`: no such option, no such level, not enough memory.
    """
    n_batch = max(row.streams, PREFILL_ROWS if row.depth > 1 or row.kind is Kind.PREFILL else 1)
    wanted = options(
        n_ctx=row.n_ctx, n_batch=n_batch, n_slots=row.streams, threads=threads, kernels=kernels, isa=row.level
    )
    with GGUFFile.open(path) as file, Engine(wanted) as engine:
        definition = define(file)
        engine.load(file, definition)
        n_vocab = definition.info.n_vocab
        if row.kind is Kind.PREFILL:
            seq_id = engine.open_sequence()
            _prefill(engine, seq_id, min(row.n, 32), n_vocab)
            yield lambda: {"tokens/s": row.n / _prefill(engine, seq_id, row.n, n_vocab)}
            return
        seq_ids = [engine.open_sequence() for _ in range(row.streams)]
        for seq_id in seq_ids:
            _prefill(engine, seq_id, row.depth, n_vocab)
            if hasattr(engine, "checkpoint"):  # versions before had no model that needs one
                engine.cache.checkpoint(seq_id)
        _decode(engine, seq_ids, row.depth, min(row.n, 4))

        def decode() -> dict[str, float]:
            seconds = [_decode(engine, seq_ids, row.depth, row.n) for _ in range(row.repeats)]
            return {"tokens/s": row.n * row.streams / statistics.median(seconds)}

        yield decode


def _prefill(engine: Engine, seq_id: int, n: int, n_vocab: int) -> float:
    """Seconds for `n` tokens of a fresh sequence, the logits of the last wanted, as the peer does it."""
    tokens = np.random.default_rng(n).integers(0, n_vocab, n)
    engine.truncate(seq_id, 0)
    n_batch = engine.sizes.n_rows
    start = time.perf_counter()
    for at in range(0, n, n_batch):
        part = tokens[at : at + n_batch]
        last = at + len(part) == n
        engine.step([SequenceChunk(seq_id, at, part, logits_indices=(len(part) - 1,) if last else ())])
    return time.perf_counter() - start


def _decode(engine: Engine, seq_ids: list[int], depth: int, n: int) -> float:
    """Seconds for `n` steps of one row for each sequence, the likeliest token fed back; then the steps are undone."""
    tokens = [1 + seq_id for seq_id in seq_ids]
    start = time.perf_counter()
    for position in range(depth, depth + n):
        rows = [
            SequenceChunk(seq_id, position, (token,), logits_indices=(0,))
            for seq_id, token in zip(seq_ids, tokens, strict=True)
        ]
        tokens = [int(token) for token in engine.step(rows).tokens]
    seconds = time.perf_counter() - start
    for seq_id in seq_ids:
        if engine.truncate(seq_id, depth) not in (depth, None):
            raise SystemExit(f"sequence {seq_id} cannot go back to position {depth}")
    return seconds


_ROW_FIELDS = ("name", "model", "n", "depth", "streams", "level", "repeats")


def apart(path: Path, row: Row, threads: int, kernels: str | None) -> dict[str, float]:
    """Measure the row once in a process of its own, as the peer is measured. Raises `RuntimeError`."""
    if row.kind is Kind.START:
        return start(path, threads)
    fields = {name: getattr(row, name) for name in _ROW_FIELDS}
    given = json.dumps({"row": fields, "kind": row.kind.value, "threads": threads, "kernels": kernels})
    done = subprocess.run([sys.executable, __file__, str(path), given], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"the engine's process ended with {done.returncode}: {said[-1]}")
    answer = json.loads(lines[-1])
    if "problem" in answer:
        raise RuntimeError(answer["problem"])
    return dict(answer)


def _child() -> None:
    """What the process of `apart` does."""
    given = json.loads(sys.argv[2])
    row = Row(kind=Kind(given["kind"]), **given["row"])
    try:
        with driver(Path(sys.argv[1]), row, given["threads"], given["kernels"]) as measure:
            print(json.dumps(measure()))
    except ZincError as error:
        print(json.dumps({"problem": str(error)}))


def start(path: Path, threads: int) -> dict[str, float]:
    """Measure the command from its start to its end after one token."""
    zinc = [sys.executable, "-m", "zinc_rt", "run", "-m", str(path)]
    return process([*zinc, "-c", str(CONTEXT), "-t", str(threads), "-n", "1", "--temp", "0", "--raw", PROMPT])


def process(command: list[str]) -> dict[str, float]:
    """Wall time of a whole process, and the peak memory of it or a child. Raises `RuntimeError`."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        errors = child.stderr.read() if child.stderr is not None else b""
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        lines = errors.decode(errors="replace").strip().splitlines() or ["no message"]
        raise RuntimeError(f"{Path(command[0]).name} ended with {child.returncode}: {lines[-1]}")
    return {"s": seconds, "MB": usage.ru_maxrss * 1024 / 1e6}


if __name__ == "__main__":
    _child()
