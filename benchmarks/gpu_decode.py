"""Predict a decode step of a large model on a card: layers executed on the emulator, their times multiplied.

python benchmarks/gpu_decode.py [MODEL-MIX] [--folder /tmp] [--experts 32] [--dispatches]

A model of the same widths is written, with two periods of its layers or four layers, few experts and a small
vocabulary, and a decode step of it is executed and measured. A layer counts as often as the model has layers of its
kind and formats, one of its kind where no such one was measured; the router's logits and the product of the logits are
scaled to their true sizes. The model of the card is that of `zinc emu profile` (docs/how/emulator.md). `zinc bench
--predict` does the same for a file, from the real graph.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import random_model
from shapes import SIZES, Gemma4, Hybrid, Routed, Sizes

from amdgpu_emu.constants import rates, spread
from amdgpu_emu.cost import bandwidth_of, phase_seconds, predict, step_seconds
from amdgpu_emu.models import R9700
from amdgpu_emu.profiler import DispatchRecord
from amdgpu_emu.residency import MEMORY
from amdgpu_emu.work import Work
from zinc_rt.backends.amdgpu.emulated import Prediction
from zinc_rt.backends.gpu.operations import GpuOperation, StepShape
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.cost import graph_cost
from zinc_rt.ir.sizes import CostSizes
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.models import define

SMALL_VOCABULARY = 2048
FEW_EXPERTS = 32
AHEAD = DECODE["ahead"].spec.function.name


@dataclass(frozen=True)
class Part:
    """A layer or what lies outside of them: phases of dispatches, bytes."""

    phases: list[tuple[list[Work], bool]]
    read: int
    written: int

    @classmethod
    def of(cls, records: list[DispatchRecord]) -> Part:
        phases = [list(group) for _, group in itertools.groupby(records, key=lambda r: r.phase)]
        return cls(
            [([r.work for r in group], group[0].full) for group in phases],
            sum(r.work.unique_read for r in records if r.name != AHEAD),  # the reader counts it
            sum(r.work.unique_written for r in records),
        )


def period(sizes: Sizes) -> int:
    """Layers after which the kinds of layers come again."""
    return 4 if isinstance(sizes, Hybrid) else 6 if isinstance(sizes, Gemma4) else 1


def cut(sizes: Sizes, experts: int) -> Sizes:
    """The same widths with few layers, experts and tokens. One period more, so that a norm follows each layer; of four
    layers the third has what some mixes give more bits.
    """
    small = replace(sizes, n_layers=max(4, 2 * period(sizes)), n_vocab=SMALL_VOCABULARY)
    return replace(small, n_experts=min(experts, small.n_experts)) if isinstance(small, Routed) else small


def measured(path: Path) -> tuple[list[DispatchRecord], list[str]]:
    """The dispatches of a decode step at position 1, and the nodes that they belong to; empty for copies."""
    with GGUFFile.open(path) as file, Engine(Options(Device.emu, n_ctx=64, n_batch=8)) as engine:
        engine.load(file, define(file))
        seq_id = engine.open_sequence()
        engine.step([SequenceChunk(seq_id, 0, [1])])
        engine.start_profile()
        engine.step([SequenceChunk(seq_id, 1, [2], (0,))])
        found = engine.finish_profile()
        assert isinstance(found, Prediction)
        lowered = engine._lowered
        operations: list[GpuOperation] = lowered.recorded._lowered.operations  # type: ignore[union-attr]
        names = [op.name for op in operations if op.when(StepShape(1, 1, 1))]
    records = list(found.records)
    given = [record for record in records if record.name != AHEAD]
    names = ["", *names, *[""] * (len(given) - len(names) - 1)]
    # The emulator runs the dispatches of a phase last to first.
    sizes = [len(list(group)) for _, group in itertools.groupby(given, key=lambda r: r.phase)]
    ends = list(itertools.accumulate(sizes))
    ordered = [name for end, n in zip(ends, sizes, strict=True) for name in reversed(names[end - n : end])]
    # What is brought for a later phase belongs to the phase beside which it is.
    by_phase = {record.phase: name for record, name in zip(given, ordered, strict=True)}
    rest = iter(ordered)
    return records, [by_phase[r.phase] if r.name == AHEAD else next(rest) for r in records]


def grown(record: DispatchRecord, name: str, small: Sizes, true: Sizes) -> DispatchRecord:
    """A dispatch at its true size: the router has a workgroup for each expert, the logits one for four tokens."""
    factor = 1
    if name.endswith("gate_topk") and isinstance(small, Routed) and isinstance(true, Routed):
        factor = true.n_experts // small.n_experts
    elif name == "lm_head":
        factor = true.n_vocab // small.n_vocab
    if factor == 1:
        return record
    few = record.work
    work = few.scaled(factor, min(few.unique_read, 4 * true.n_embd))
    # What was brought before is no more than it was.
    work = replace(work, l2_lines=few.l2_lines, levels={MEMORY: sum(work.levels.values())})
    return replace(record, work=work, cost=predict(work))


def parts(records: Iterable[DispatchRecord], names: Iterable[str]) -> dict[str, Part]:
    """By layer, or "ends"."""
    found: dict[str, list[DispatchRecord]] = defaultdict(list)
    for record, name in zip(records, names, strict=True):
        found[name.split(".")[1] if name.startswith("blk.") else "ends"].append(record)
    return {key: Part.of(group) for key, group in found.items()}


def stand_ins(small: Sizes, true: Sizes, quant: str) -> dict[str, int]:
    """How many layers of the model each layer of the small one stands for."""

    def formats(sizes: Sizes, layer: int) -> list[object]:
        return [sizes.format_of(role, layer, quant) for role, shape in sizes.layer(layer).items() if len(shape) > 1]

    turns, found = period(true), defaultdict[str, int](int)
    for i in range(true.n_layers):
        alike = range(i % turns, small.n_layers - 1, turns)
        found[str(next((j for j in alike if formats(small, j) == formats(true, i)), i % turns))] += 1
    return dict(sorted(found.items()))


def show(name: str, true: Sizes, found: Mapping[str, Part], active: int, counts: Mapping[str, int]) -> None:
    """A table, and the whole step. counts: of layers."""
    print(f"{'part':>12}{'times':>7}{'dispatches':>12}{'phases':>8}{'us':>10}{'MB read':>10}{'MB written':>12}")
    phases: list[tuple[list[Work], bool]] = []
    read, written = 0, 0
    # Not the last layer: the others end with the norm of the next one.
    for key in [*counts, "ends"]:
        part, times = found[key], counts.get(key, 1)
        phases += part.phases * times
        read, written = read + part.read * times, written + part.written * times
        label = key if key == "ends" else f"layer {key}"
        alone = sum(phase_seconds([predict(work) for work in works]) for works, _ in part.phases)
        print(
            f"{label:>12}{times:>7}{sum(len(works) for works, _ in part.phases):>12}{len(part.phases):>8}"
            f"{alone * 1e6:>10.1f}{part.read / 1e6:>10.2f}{part.written / 1e6:>12.2f}"
        )
    seconds = spread(lambda constants: step_seconds(phases, 1, R9700, constants))
    speed, bound = rates(seconds), bandwidth_of(R9700) / (read + written)
    print(f"{name}: {read / 1e9:.3f} GB read, {written / 1e9:.3f} GB written, {len(phases)} phases")
    print(f"  bytes that the graph says a step has to read: {active / 1e9:.3f} GB")
    print(f"  {seconds.low * 1e3:.2f}-{seconds.high * 1e3:.2f} ms, likely {seconds.likely * 1e3:.2f}")
    print(f"  {speed.low:.0f}-{speed.high:.0f} tokens/s, likely {speed.likely:.0f}; bandwidth alone {bound:.0f}")


def show_dispatches(records: Iterable[DispatchRecord], names: Iterable[str], turns: int) -> None:
    """A line for each dispatch of the first period, and of what lies outside of layers."""
    print(f"{'phase':>5}{'us':>8}{'MB':>8}  {'bound':8}{'node':36}kernel")
    for record, name in zip(records, names, strict=True):
        if not name.startswith("blk.") or int(name.split(".")[1]) < turns:
            mb = (record.work.unique_read + record.work.unique_written) / 1e6
            print(
                f"{record.phase:>5}{record.cost.seconds * 1e6:>8.2f}{mb:>8.2f}  {record.cost.bound:8}{name:36}"
                f"{record.name}"
            )


def active_bytes(path: Path, small: Sizes, true: Sizes, counts: Mapping[str, int]) -> int:
    """What the graph's cost model has a decode step read, with true numbers of layers, experts and tokens."""
    with GGUFFile.open(path) as file:
        graph = define(file).graph
    cost, total = graph_cost(graph, CostSizes(context=2)), 0.0
    for node, each in zip(graph.nodes, cost.nodes, strict=True):
        if not node.name.startswith("blk."):
            total += each.bytes_read * (true.n_vocab // small.n_vocab if node.name == "lm_head" else 1)
        elif (layer := node.name.split(".")[1]) in counts:
            wider = node.name.endswith("ffn_gate_inp.matmul") and isinstance(true, Routed) and isinstance(small, Routed)
            factor = true.n_experts // small.n_experts if wider else 1  # type: ignore[attr-defined]
            total += each.bytes_read * factor * counts[layer]
    return int(total)


def main() -> None:
    """Write the cut model, run it, print the prediction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="qwen3.6-35b-a3b-q4_k_m")
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--experts", type=int, default=FEW_EXPERTS)
    parser.add_argument("--dispatches", action="store_true", help="print each of them, too")
    args = parser.parse_args()
    true, mix = random_model.parse(args.name)
    small = cut(true, args.experts)
    SIZES["cut"] = small
    path = args.folder / f"cut-{args.name}.gguf"
    try:
        random_model.write(path, f"cut-{mix}")
        records, names = measured(path)
        counts = stand_ins(small, true, mix)
        active = active_bytes(path, small, true, counts)
    finally:
        path.unlink(missing_ok=True)
    scaled = [grown(record, name, small, true) for record, name in zip(records, names, strict=True)]
    if args.dispatches:
        show_dispatches(scaled, names, period(true))
    show(args.name, true, parts(scaled, names), active, counts)


if __name__ == "__main__":
    main()
