"""How much of an NVIDIA GPU's int8 rate `block_tile` can reach, by counts of its PTX and published constants.

No GPU is needed, and none has confirmed it: a bound. A multiprocessor has four schedulers that issue an instruction a
clock each, lanes for float32, a matrix unit each, and one local memory of 128 bytes a clock. Of a product of long rows
all is counted that grows with their length: bringing groups into local memory, multiplying, the tree over sums.

    .venv/bin/python benchmarks/mma_rate.py --columns 4096
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator

from zinc_rt.kernels.gpu import block_tiles as tiles
from zinc_rt.kernels.gpu.catalogue import QUANTIZED, block_tile
from zinc_rt.lang.gpu import gpu_kernel
from zinc_rt.numerics import GROUP, TREE_LANES
from zinc_rt.perf_model.published import PUBLISHED, PublishedGpu

WAVES = 16
SCHEDULERS = 4
MMA_OPS = 2 * 16 * 8 * 32
FLOAT = re.compile(r"(add|sub|mul|fma)\.rn\.f32")
SHARED = re.compile(r"(ld|st)\.shared(\.v([24]))?")
TREE = 4 * tiles.SUMS + 16
"""Instructions of a lane of the tree: sums are added, kept and cleared, a few of them through memory; and its loop."""


def instructions(lines: list[str]) -> Iterator[str]:
    """Opcodes, but for copies of registers, most of which the assembler leaves out."""
    for line in lines:
        found = re.match(r"\t(?:@!?%p\d+ )?([a-z][\w.]*)", line)
        if found and not found[1].startswith("mov"):
            yield found[1]


def counted(lines: list[str]) -> Counter[str]:
    """Instructions by what they keep busy: "issue" of all, "float", "mma", and "local", clocks of local memory."""
    out: Counter[str] = Counter()
    for op in instructions(lines):
        out["issue"] += 1
        out["float"] += bool(FLOAT.match(op))
        out["mma"] += op.startswith("mma")
        if found := SHARED.match(op):
            # Two lanes and more share the words that they load; what a wave stores is all different.
            out["local"] += {"4": 4, "2": 2 if found[1] == "st" else 1, None: 1}[found[3]]
    return out


def of_kernel(kind: str, target: str, chain: int) -> Counter[str]:
    """Counts of a wave for `STEP` groups, on average; chain: groups of a lane of the tree."""
    text = gpu_kernel(block_tile(kind, bias=False).spec, target).code.decode()
    at = text.index("mma.sync")
    start, end = text.rindex("$L__BB", 0, at), text.index(" bra", text.rindex("mma.sync"))
    multiply = counted(text[start:end].split("\n"))
    brought = text.split("bar.sync")[1]
    bring = counted(brought.split("\n"))
    total: Counter[str] = Counter()
    for name in ("issue", "float", "mma", "local"):
        # Half of the waves bring weights, the others activations: each does half of both on average.
        total[name] = tiles.STEP * multiply[name] + bring[name] // 2
    total["issue"] += TREE * tiles.STEP // chain
    return total


def share(gpu: PublishedGpu, count: Counter[str]) -> tuple[float, str]:
    """Of the published rate, and what bounds it."""
    assert gpu.int8_ops is not None
    clocks = {
        "issue": WAVES / SCHEDULERS * count["issue"],
        "float": WAVES * count["float"] * 32 / gpu.float_lanes,
        "mma": WAVES * count["mma"] * (MMA_OPS / gpu.int8_ops) * (MMA_OPS_OF[gpu.capability != "7.5"] / MMA_OPS),
        "local": WAVES * count["local"],
    }
    most = max(clocks, key=lambda name: clocks[name])
    work = 2 * tiles.TILE_X * tiles.TILE_W * GROUP * tiles.STEP / gpu.int8_ops
    return work / clocks[most], most


MMA_OPS_OF = {True: MMA_OPS, False: MMA_OPS // 4}
"""By whether the GPU has instructions of 16 rows and 32 columns; sm_75 has those of 8 and 16."""


def main() -> None:
    """Print a line for each format."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--columns", type=int, default=4096, help="of the matrix (%(default)s)")
    chain = -(-parser.parse_args().columns // (GROUP * TREE_LANES))
    cards = [gpu for gpu in PUBLISHED.values() if gpu.capability is not None]
    print("| format |", " | ".join(gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ") for gpu in cards), "|")
    print("|---" * (len(cards) + 1) + "|")
    for kind in QUANTIZED:
        found = [share(gpu, of_kernel(kind, "ptx" if gpu.capability == "7.5" else "ptx80", chain)) for gpu in cards]
        print(f"| {kind} |", " | ".join(f"{part:.2f} ({most})" for part, most in found), "|")


if __name__ == "__main__":
    main()
