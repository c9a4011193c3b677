"""The speed of the native CPU kernels, compared with llama.cpp and with the memory bandwidth.

    python benchmarks/native_tier.py [--models FOLDER] [--peer-bin FOLDER] [--rows decode,depth] [--quick]

Rounds alternate (read bandwidth, ours, the peer's, read bandwidth, ...), each side in a process of its own, so that a
machine that is shared treats both alike; rounds in which other work took the processor are done again; figures are
medians over the rounds. The result is compared with the last one of the same kind of machine. See README.md beside this
file. Ends with 1 where a row fell by more than the threshold.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bandwidth import read_bandwidth
from history import compare, last_result
from machine import Clock, host_state, machine_facts, version_facts
from ours import Traffic, apart
from peer import Figures, Measure, Peer, PeerError
from random_model import write
from report import Figure, Result, Run
from rows import Kind, Row, table

from zinc_rt.errors import ZincError

QUICK_ROUNDS = 2
QUICK_DEPTH = 512
CALM = 0.05
"""Share of the processor that others may take in a round."""
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Round:
    """The results of one round. elsewhere: share of the machine's processor time that went to other work meanwhile."""

    ours: Figures
    peer: Figures
    bandwidth: float | None
    elsewhere: float


def measure(row: Row, path: Path, peer: Peer, threads: int, rounds: int, kernels: str | None) -> Result:
    """Measure a row in alternating rounds; a failed side leaves empty cells and a note."""
    result = Result(row, threads)
    traffic = Traffic.read(path)
    folder = peer.folder(row)
    theirs = Measure(folder, path, row, threads) if folder is not None else None
    try:
        if peer.alone:
            _rounds(result, traffic, None, theirs, rounds)
        else:
            _rounds(result, traffic, lambda: apart(path, row, threads, kernels), theirs, rounds)
    except (ZincError, RuntimeError) as error:
        result.notes.append(f"ours: {error}")
        _rounds(result, traffic, None, theirs, rounds)
    if theirs is not None and theirs.best:
        result.notes.append(f"peer: {' '.join(theirs.best)}")
    return result


def _rounds(
    result: Result, traffic: Traffic, ours: Callable[[], Figures] | None, theirs: Measure | None, rounds: int
) -> None:
    """Rounds until enough of them were calm, twice as many at most; the calmest count."""
    seen: list[Round] = []
    while len(seen) < 2 * rounds and sum(r.elsewhere <= CALM for r in seen) < rounds:
        seen.append(_round(result, traffic, ours, theirs))
    kept = sorted(seen, key=lambda r: r.elsewhere)[:rounds]
    result.figures.clear()
    row = result.row
    per_token = traffic.step(row) / row.streams if row.counts_bytes else None
    for r in (r for r in seen if r in kept):
        for unit in r.ours | r.peer:
            figure = result.figures.setdefault(unit, Figure(unit))
            figure.add(r.ours.get(unit), r.peer.get(unit), per_token, r.bandwidth)
    result.elsewhere = max(r.elsewhere for r in kept)


def _round(result: Result, traffic: Traffic, ours: Callable[[], Figures] | None, theirs: Measure | None) -> Round:
    clock = Clock()
    bandwidth = read_bandwidth(traffic.weights, result.threads) if result.row.counts_bytes else None
    mine = ours() if ours is not None else {}
    other: Figures = {}
    try:
        other = theirs() if theirs is not None else {}
    except PeerError as error:
        if (note := f"peer: {error}") not in result.notes:
            result.notes.append(note)
    return Round(mine, other, bandwidth, clock.elsewhere())


def chosen(rows: Sequence[Row], patterns: str | None, quick: bool) -> list[Row]:
    """The rows whose name or group fits one of the comma-separated patterns; the short ones only when quick."""
    wanted = patterns.split(",") if patterns else ["*"]
    kept = [row for row in rows if any(fnmatch.fnmatch(row.name, p) or p == row.group for p in wanted)]
    if not quick:
        return kept
    kept = [row for row in kept if row.depth <= QUICK_DEPTH]
    return [replace(row, n=row.n // 4) if row.kind is Kind.DECODE else row for row in kept]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", type=Path, metavar="FOLDER", help="where the GGUF files are; what is not there is made for its rows"
    )
    parser.add_argument(
        "--peer-bin", type=Path, metavar="PATH", help="llama.cpp: folder of a build, or Python with its wheel"
    )
    parser.add_argument(
        "--peer-level",
        action="append",
        default=[],
        metavar="LEVEL=FOLDER",
        help="its build for a lesser level (avx2)",
    )
    parser.add_argument("--peer-only", action="store_true", help="leave our side out")
    parser.add_argument("--rows", metavar="NAME,...", help="groups or names of rows, * and ? allowed; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds, fewer tokens, no deep contexts")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--kernels", metavar="NAME", help="kernels of the engine; default: its own choice")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="where results are written")
    parser.add_argument("--name", default="native_tier", help="first part of the result files' names")
    parser.add_argument("--note", default="", metavar="TEXT", help="kept with the results, as what else was running")
    parser.add_argument(
        "--threshold", type=float, default=0.1, metavar="SHARE", help="how much less than the last result is a loss"
    )
    parser.add_argument("--list", action="store_true", help="print the rows' names and end")
    args = parser.parse_args()
    for level in args.peer_level:
        if "=" not in level:
            parser.error(f"--peer-level is {level!r}; it must look like avx2=FOLDER")
    if args.rounds < 1:
        parser.error(f"--rounds is {args.rounds}; it must be at least 1")
    return args


def main() -> int:
    """Measure the rows, print the table, and write both result files after every row; 1 where a row fell."""
    args = arguments()
    rows = chosen(table(), args.rows, args.quick)
    if args.list:
        print("\n".join(row.name for row in rows))
        return 0
    levels = {name: Path(folder) for name, _, folder in (level.partition("=") for level in args.peer_level)}
    peer = Peer(args.peer_bin, levels, alone=args.peer_only)
    run = Run(machine_facts(), version_facts(peer.version()), args.note)
    amx = "amx_int8" in run.machine["flags"]
    rounds = min(args.rounds, QUICK_ROUNDS) if args.quick else args.rounds
    last = last_result(args.out, args.name, run.machine)
    run.host = {"before": host_state(args.threads)}
    # A model is made once for all of its rows; the table keeps its own order.
    wanted = [row for row in rows if row.level != "avx512vnni" or amx]  # without AMX the plain rows are the same
    order = {row.name: i for i, row in enumerate(wanted)}
    for name in dict.fromkeys(row.model for row in wanted):
        with model_file(args.models, name) as path:
            for row in (row for row in wanted if row.model == name):
                print(f"{row.name} ...", end=" ", file=sys.stderr, flush=True)
                threads = row.threads or args.threads
                result = measure(row, path, peer, threads, min(rounds, row.rounds or rounds), args.kernels)
                run.results.append(result)
                run.results.sort(key=lambda r: order[r.row.name])
                print(result.line(), file=sys.stderr)
                run.write(args.out, args.name)
    run.host["after"] = host_state(args.threads)
    words, lost = compare(last, [result.as_dict() for result in run.results], args.threshold)
    run.comparison = words
    run.write(args.out, args.name)
    print(run.markdown())
    return int(lost)


@contextmanager
def model_file(folder: Path | None, name: str) -> Iterator[Path]:
    """A model from the folder; one that is not there is made of random weights, and deleted afterwards."""
    there = folder / f"{name}.gguf" if folder is not None else None
    if there is not None and there.exists():
        yield there
        return
    with tempfile.TemporaryDirectory(prefix="zinc-models-") as made:
        path = Path(made) / f"{name}.gguf"
        write(path, name)
        yield path


if __name__ == "__main__":
    sys.exit(main())
