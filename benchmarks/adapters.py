"""What adapters cost a decode step: rows without any, with one adapter, with a different one for every few rows.

    python benchmarks/adapters.py MODEL ADAPTER [ADAPTER ...] --rows 1 16 --rounds 5 --threads 2

Each round runs every way once, in a process of its own: a model without room for adapters; with room, its rows with
none; all rows with the first adapter; the rows with all adapters by turns. The figures are milliseconds of a step: of
each process the median step, of these the median and the least over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

WAYS = ("no room", "none", "one", "all")
_STEPS = 24
_PROMPT = 16


def measure(model: str, adapters: list[str], way: str, n_rows: int, threads: int) -> float:
    """Seconds of the median step."""
    from zinc_rt.adapters.slots import AdapterRequest, AdapterSlots, AdapterUse
    from zinc_rt.engine.engine import Engine, Options, SequenceChunk
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.models import define

    with GGUFFile.open(model) as file, Engine(Options(n_ctx=128, n_slots=n_rows, threads=threads)) as engine:
        definition = define(file)
        if way != "no room":
            given = adapters if way == "all" else adapters[:1]
            definition = AdapterSlots.make(definition, file, [AdapterRequest(path) for path in given]).definition  # type: ignore[arg-type]
        engine.load(file, definition)
        sequences = [engine.open_sequence(salt=None) for _ in range(n_rows)]
        uses = [() if way in ("no room", "none") else (AdapterUse(i % len(given), 1.0),) for i in range(n_rows)]
        chosen = list(zip(sequences, uses, strict=True))
        for seq_id, use in chosen:
            engine.step([SequenceChunk(seq_id, 0, range(5, 5 + _PROMPT), adapters=use)])
        times = []
        for i in range(_STEPS):
            batch = [SequenceChunk(seq_id, _PROMPT + i, [7 + i], (0,), adapters=use) for seq_id, use in chosen]
            started = time.perf_counter()
            engine.step(batch)
            times.append(time.perf_counter() - started)
        return statistics.median(times[4:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("adapters", nargs="+")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.model, args.adapters, args.one, args.rows[0], args.threads)))
        return
    for n_rows in args.rows:
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(args.rounds):
            for way in WAYS:
                command = [sys.executable, __file__, args.model, *args.adapters, "--one", way, "--rows", str(n_rows)]
                done = subprocess.run([*command, "--threads", str(args.threads)], check=True, capture_output=True)
                found[way].append(1e3 * float(json.loads(done.stdout)))
        for way, values in found.items():
            print(f"{n_rows:3} rows, {way:8} {statistics.median(values):8.2f} ms, least {min(values):8.2f}", flush=True)


if __name__ == "__main__":
    main()
