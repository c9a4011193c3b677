"""Our server beside llama.cpp's: throughput, latency, fairness, limits, memory, under the same client.

    python benchmarks/serving.py --model FILE [--peer-bin FOLDER] [--loads greedy,gap] [--rounds 3]

A round starts each server as a whole process, warms it, runs the loads, and ends it; rounds alternate between the two,
and the read bandwidth is measured before each. Figures are medians over the rounds. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import serving_servers as servers
from bandwidth import read_bandwidth
from machine import Clock, machine_facts, version_facts
from ours import Traffic
from peer import Peer
from serving_bare import GENERATED, PROMPT, ours_alone, peer_alone
from serving_client import AnswerBroken
from serving_loads import CLIENTS, GREEDY, Site, body, crowd
from serving_servers import Server, ServerFailed
from serving_table import LOADS, Load, Table

from zinc_rt.errors import ZincError

RESULTS = Path(__file__).parent / "results"
_LOAD_SECONDS = 240.0


def alone(table: Table, side: str, args: argparse.Namespace) -> None:
    """The engine without a server: rates with 16 sequences and with one."""
    try:
        if side == "ours":
            found = ours_alone(args.model, args.threads)
        else:
            found = peer_alone(args.peer_bin, args.model, args.threads)
    except (OSError, RuntimeError) as error:
        table.note(f"bare, {side}: {error}")
        return
    many, one = found[CLIENTS], found[1]
    figures = {
        "16 sequences, decode, tokens/s": CLIENTS * (GENERATED - 1) / many["decode"],
        "16 sequences, prompts, tokens/s": CLIENTS * PROMPT / many["prompt"],
        "16 sequences, the work of `greedy`, tokens/s": CLIENTS * GENERATED / (many["decode"] + many["prompt"]),
        "1 sequence, step, ms": 1000 * one["decode"] / (GENERATED - 1),
    }
    if "cpu" in many:
        figures["16 sequences, us a token"] = 1e6 * many["cpu"] / (CLIENTS * (GENERATED - 1))
    table.add("bare", side, figures)


def derive(table: Table, side: str) -> None:
    """Figures of this round that compare loads with each other."""

    def last(load: str, name: str) -> float:
        return (table.values.get((load, name), {}).get(side) or [math.nan])[-1]

    fast, step = last("greedy", "tokens/s"), last("bare", "1 sequence, step, ms")
    made = {
        ("sampled", "of greedy"): last("sampled", "tokens/s") / fast,
        ("bare", "HTTP of the same work"): fast / last("bare", "16 sequences, the work of `greedy`, tokens/s"),
        ("bare", "HTTP of decode, while all decode"): last("greedy", "while all decode, tokens/s")
        / last("bare", "16 sequences, decode, tokens/s"),
        ("bare", "single: over the bare step"): last("single", "between tokens, ms") / step - 1,
        ("streams", "engine beside its bare steps, us a token"): last("streams", "engine, us a token")
        - last("bare", "16 sequences, us a token"),
    }
    for (load, name), value in made.items():
        if not math.isnan(value):
            table.add(load, side, {name: value})


async def run_loads(table: Table, server: Server, chosen: list[Load], n_vocab: int, scale: float) -> None:
    """Warm the server, then run the loads one after the other; what fails leaves a note."""
    site = Site(server, n_vocab, scale)
    await crowd(Site(server, n_vocab, 0.5), lambda i: body(site.prompt("warming", i, 32), 16, GREEDY))
    await settled(server)
    for load in chosen:
        clock, begin = Clock(server.cpu_seconds), time.perf_counter()
        cpu, own = server.cpu_seconds(), time.process_time()
        try:
            async with asyncio.timeout(_LOAD_SECONDS * max(1.0, scale)):
                figures = await load.run(site)
        except (AnswerBroken, TimeoutError, OSError, ValueError, IndexError, ZeroDivisionError) as error:
            table.note(f"{load.name}, {server.name}: {type(error).__name__} {error}")
            server.alive()
            await settled(server)
            continue
        seconds = time.perf_counter() - begin
        figures |= {"server, cores": (server.cpu_seconds() - cpu) / seconds}
        figures |= {"client, cores": (time.process_time() - own) / seconds, "others, share": clock.elsewhere()}
        table.add(load.name, server.name, figures)
        print(f"{server.name:5} {load.name:9}", ", ".join(f"{k} {v:.4g}" for k, v in figures.items()), file=sys.stderr)
        await settled(server)
    for note in site.notes:
        table.note(note)


async def settled(server: Server) -> None:
    """Wait until what was cancelled has left the server: it uses less than a tenth of a core, or 20 s are over."""
    for _ in range(40):
        before = server.cpu_seconds()
        await asyncio.sleep(0.5)
        if server.cpu_seconds() - before < 0.05:
            return


def one_round(table: Table, side: str, chosen: list[Load], args: argparse.Namespace, n_vocab: int, files: Path) -> None:
    """One side's part of a round: the engine alone, then a server for each of the sizes that the loads need."""
    table.bandwidth.append(read_bandwidth(Traffic.read(args.model).weights, args.threads))
    if args.bare:
        alone(table, side, args)
    for sizes in dict.fromkeys(load.sizes for load in chosen):
        if side == "ours":
            server = servers.ours(args.model, sizes, args.threads, files, args.flags.split())
        else:
            server = servers.peer(args.peer_bin, args.model, sizes, args.threads, files, args.peer_flags.split())
        server.urgent = args.urgent
        try:
            with server:
                table.add(f"start, {sizes.slots} slots", side, {"s": server.start_seconds, "MB": server.memory_mb()})
                mine = [load for load in chosen if load.sizes == sizes]
                asyncio.run(run_loads(table, server, mine, n_vocab, args.scale))
        except ServerFailed as error:
            table.note(f"{side}: {error}")
    derive(table, side)


def arguments() -> argparse.Namespace:
    """The command line."""
    names = [load.name for load in LOADS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="FILE", help="a GGUF file (random_model.py)")
    parser.add_argument("--peer-bin", type=Path, metavar="FOLDER", help="llama-server and llama-batched-bench")
    parser.add_argument("--loads", metavar="NAME,...", help=f"of {', '.join(names)}; default: all but soak")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the loads' lengths; soak: minutes")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--no-bare", dest="bare", action="store_false", help="leave out the engine without a server")
    parser.add_argument("--urgent", action="store_true", help="go before other sessions' work (as root, on Linux)")
    parser.add_argument("--flags", default="", help="more options of zinc serve")
    parser.add_argument("--peer-flags", default="", help="more options of llama-server")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="where results are written")
    parser.add_argument("--name", default="serving", help="first part of the result files' names")
    parser.add_argument("--note", default="", metavar="TEXT", help="kept with the results, as what else was running")
    args = parser.parse_args()
    wanted = [load.name for load in LOADS if load.usual] if args.loads is None else args.loads.split(",")
    if unknown := sorted(set(wanted) - set(names)):
        parser.error(f"--loads has {', '.join(unknown)}; there are {', '.join(names)}")
    if args.rounds < 1:
        parser.error(f"--rounds is {args.rounds}; it must be at least 1")
    args.chosen = [load for load in LOADS if load.name in wanted]
    return args


def main() -> None:
    """Measure, print the table, and write both result files after every round."""
    args = arguments()
    if args.urgent:
        if os.getsid(0) != os.getpid():
            raise SystemExit("--urgent needs a session of its own: setsid -w python benchmarks/serving.py ...")
        servers.make_urgent(os.getpid())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    version = Peer(args.peer_bin, {}).version()
    facts = {"model": args.model.name, "rounds": args.rounds, "scale": args.scale, "threads": args.threads}
    facts |= {name: value for name, value in (("flags", args.flags), ("peer's flags", args.peer_flags)) if value}
    facts |= {"note": args.note} if args.note else {}
    table = Table(machine_facts(), version_facts(version), facts)
    n_vocab = vocabulary(args.model)
    sides = ["ours"] if args.peer_bin is None else ["ours", "peer"]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            for side in sides if number % 2 == 0 else sides[::-1]:
                one_round(table, side, args.chosen, args, n_vocab, Path(folder))
            table.write(args.out, args.name)
    print(table.markdown())


def vocabulary(path: Path) -> int:
    """Tokens of a model's vocabulary. Raises `SystemExit` for a file that cannot be read."""
    try:
        return Traffic.read(path).definition.info.n_vocab
    except ZincError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
