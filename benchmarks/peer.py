"""The peer's side of the table: llama.cpp's benchmark programs, if they are given.

    llama-bench          decode and prefill
    llama-batched-bench  several sequences in a step
    llama-completion     the command from its start to its end

Flash attention is tried off and on, for two rounds or until one is clearly better; then that one is kept, so that the
comparison is with llama.cpp at its best. Deep contexts, which the peer takes a quarter of an hour to fill, are measured
with it only: it is the faster one from a few thousand positions on.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ours import PROMPT, process
from rows import CONTEXT, Kind, Row

Figures = dict[str, float]
Variant = tuple[str, ...]
FLASH: tuple[Variant, ...] = (("-fa", "off"), ("-fa", "on"))
_ROUNDS_TO_CHOOSE = 2
_CLEAR = 1.1
_DEEP = 4096
_TIMEOUT = 3600


class PeerError(RuntimeError):
    """A program of the peer failed."""


class Peer:
    """llama.cpp's programs in `folder`, or the Python of an environment with the wheel of it (`peer_wheel.py`); with
    `levels`, builds for lesser instruction sets. alone: measure only it.
    """

    def __init__(self, folder: Path | None, levels: dict[str, Path], *, alone: bool = False) -> None:
        self.alone = alone
        self._folder = folder
        self._levels = levels

    def folder(self, row: Row) -> Path | None:
        """The folder of the programs for a row, or None."""
        return self._folder if row.level is None else self._levels.get(row.level)

    def version(self) -> str | None:
        """The version that the build reports."""
        if self._folder is None:
            return None
        if self._folder.is_file():
            code = "import xllamacpp; print('version: xllamacpp', xllamacpp.__version__)"
            command = [str(self._folder), "-c", code]
        else:
            command = [str(self._folder / "llama-bench"), "--version"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return None  # every row says that the program is missing
        lines = (done.stdout + done.stderr).strip().splitlines()
        return ", ".join(line.strip() for line in lines if line.startswith(("version", "built with"))) or None


class Measure:
    """The measurement of one row on the peer: called once a round."""

    def __init__(self, folder: Path, model: Path, row: Row, threads: int) -> None:
        self._folder, self._model, self._row, self._threads = folder, model, row, threads
        self._open = _ROUNDS_TO_CHOOSE
        self.best: Variant | None = None

    def __call__(self) -> Figures:
        """Figures of the best variant by unit. Raises `PeerError`."""
        variants = self._variants() if self.best is None or self._open > 0 else (self.best,)
        self._open -= 1
        figures = {variant: self._run(variant) for variant in variants}
        ranked = sorted(variants, key=lambda variant: -_speed(figures[variant]))
        if len(ranked) > 1 and _speed(figures[ranked[0]]) > _CLEAR * _speed(figures[ranked[1]]):
            self._open = 0
        self.best = ranked[0]
        return figures[self.best]

    def _variants(self) -> tuple[Variant, ...]:
        if self._row.kind is Kind.START:
            return (self._row.peer_flags,)
        return FLASH[1:] if self._row.depth > _DEEP else FLASH

    def _run(self, variant: Variant) -> Figures:
        if self._folder.is_file():
            return self._by_wheel(variant)
        runs: dict[Kind, Callable[[Variant], Figures]] = {
            Kind.DECODE: self._bench,
            Kind.PREFILL: self._bench,
            Kind.BATCH: self._batched,
            Kind.START: self._start,
        }
        return runs[self._row.kind](variant)

    def _by_wheel(self, variant: Variant) -> Figures:
        row = self._row
        if row.kind is Kind.START:
            raise PeerError("a wheel has no command whose start could be timed")
        wanted = {"kind": row.kind.value, "n": row.n, "depth": row.depth, "streams": row.streams}
        wanted |= {"threads": self._threads, "flash": variant[-1]}
        command = [str(self._folder), str(Path(__file__).with_name("peer_wheel.py")), str(self._model)]
        return {"tokens/s": float(_json_lines([*command, json.dumps(wanted)])[-1]["tokens/s"])}

    def _bench(self, variant: Variant) -> Figures:
        row = self._row
        what = ["-p", "0", "-n", str(row.n)] if row.kind is Kind.DECODE else ["-p", str(row.n), "-n", "0"]
        lines = self._lines("llama-bench", *what, "-d", str(row.depth), "-r", str(row.repeats), "-o", "jsonl", *variant)
        return {"tokens/s": statistics.median(lines[-1]["samples_ts"])}

    def _batched(self, variant: Variant) -> Figures:
        row = self._row
        sizes = ["-npp", str(row.depth), "-ntg", str(row.n), "-npl", str(row.streams)]
        context = str(row.streams * row.n_ctx)
        lines = self._lines("llama-batched-bench", *sizes, "-c", context, "--output-format", "jsonl", *variant)
        return {"tokens/s": float(lines[-1]["speed_tg"])}

    def _start(self, variant: Variant) -> Figures:
        command = [str(self._folder / "llama-completion"), "-m", str(self._model), "-c", str(CONTEXT)]
        command += ["-t", str(self._threads), "-n", "1", "--temp", "0", "-no-cnv", "-p", PROMPT, *variant]
        try:
            return process(command)
        except (OSError, RuntimeError) as error:
            raise PeerError(str(error)) from None

    def _lines(self, program: str, *arguments: str) -> list[dict[str, Any]]:
        command = [str(self._folder / program), "-m", str(self._model), "-t", str(self._threads)]
        return _json_lines([*command, *arguments])


def _json_lines(command: list[str]) -> list[dict[str, Any]]:
    """The JSON lines of a program's output. Raises `PeerError`."""
    program = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{program}: {error.__class__.__name__}") from None
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise PeerError(f"{program} ended with {done.returncode}: {said[-1]}")
    return lines


def _speed(figures: Figures) -> float:
    return figures["tokens/s"] if "tokens/s" in figures else 1 / figures["s"]
