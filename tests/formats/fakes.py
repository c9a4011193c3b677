"""Formats that do not exist, put into the table before anything is derived from it.

Run as a program of its own:

    python -m tests.formats.fakes refused NAME     what every tier says of a record of `UNKNOWN`
    python -m tests.formats.fakes learned NAME     the same where the layout of tiles knows it and no kernel does
    python -m tests.formats.fakes same NAME        whether a record of `KNOWN` gives Q4_0's bits
    python -m tests.formats.fakes compared         each record of `variants` on each tier, against the reference

The first three take the name of a type that ggml has and the table does not, Q4_0_4_4: blocks of 32 elements in 18
bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from zinc_rt.formats.kinds import CodeLayout, Scale
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS

NAME = "Q4_0_4_4"
UNKNOWN = {
    "kind": Format(NAME, 32, 18, "trellis", Scale.BLOCK, q=2, offset=8),
    "scale": Format(NAME, 32, 18, CodeLayout.NIBBLES, "logarithm", q=2, offset=8),
    "codebook": Format(NAME, 32, 18, CodeLayout.NIBBLES, Scale.BLOCK, q=2, codebook=(-127, -104, -83)),
    "high bits": Format(NAME, 32, 18, CodeLayout.NIBBLES, Scale.BLOCK, q=2, high=0, high_bits=3),
}
"""Records that say something which no decoder knows."""
KNOWN = {
    "scale behind": Format(NAME, 32, 18, CodeLayout.NIBBLES, Scale.BLOCK, q=0, d=16, offset=8),
    "as Q4_0": Format(NAME, 32, 18, CodeLayout.NIBBLES, Scale.BLOCK, q=2, offset=8),
}
"""Records whose parts are of known kinds: their blocks hold what Q4_0's do."""


def attempts() -> Iterator[tuple[str, Callable[[], object]]]:
    """Everything that reads blocks, by name of the tier and the kernel."""
    import numpy as np

    from zinc_rt.backends.cpu.choice import TargetTuning
    from zinc_rt.gguf import GGMLType, blocks
    from zinc_rt.kernels.amd import boundary
    from zinc_rt.kernels.cpu import layout, matmul_float, repack
    from zinc_rt.kernels.cpu.tiles import Ahead
    from zinc_rt.kernels.gpu import block_tiles, catalogue, embed, float_tiles, matvec
    from zinc_rt.kernels.reference.matmul import Weight, matmul
    from zinc_rt.lang.frontend import Spec, emit_module
    from zinc_rt.lang.target import TARGETS

    kind = GGMLType[NAME]
    raw, x = np.zeros((2, 18), np.uint8), np.zeros((1, 32), np.float32)
    yield "reference unpack", lambda: blocks.unpack(kind, raw)
    yield "reference dequantize", lambda: blocks.dequantize(kind, raw)
    yield "reference matmul", lambda: matmul(x, Weight.from_raw(kind, raw))
    yield "cpu layout", lambda: layout.tile_bytes(kind, 32)
    specs = {}
    for isa in ("avx2", "avx512vnni", "amx", "aarch64-dotprod"):
        tuning = TargetTuning.of(TARGETS[isa])
        specs |= {f"{isa} {what}": (isa, Spec(*getattr(tuning, what)(kind))) for what in ("matmul", "repack", "embed")}
    floats = {"FMT": NAME, "W": 8, "BLOCKS": (1,), "AHEAD": Ahead(64, 64)}
    specs["avx2 matmul_float"] = "avx2", Spec(matmul_float.matmul_float, floats)
    specs["avx2 repack_float"] = "avx2", Spec(repack.repack_float, {"FMT": NAME})
    for name in ("matvec", "embed"):
        specs[f"gfx1201 {name}"] = "gfx1201", catalogue.DECODE[f"{name}_{NAME.lower()}"].spec
    specs["gfx1201 matvec_rows"] = "gfx1201", catalogue.matvec_rows(NAME, 2).spec
    tiles = block_tiles.block_tile, float_tiles.float_tile
    for function in (matvec.matvec_float, embed.embed_float, boundary.dmmv_serial, boundary.dmmv_argmax, *tiles):
        specs[f"gfx1201 {function.name}"] = "gfx1201", Spec(function, {"FMT": NAME})
    for name, (isa, spec) in specs.items():
        yield name, partial(emit_module, name, [spec], TARGETS[isa])


def refused() -> dict[str, str | None]:
    """What each attempt says: class and message of the error, or None where there was none."""
    from zinc_rt.errors import ZincError

    out: dict[str, str | None] = {}
    for name, attempt in attempts():
        try:
            attempt()
            out[name] = None
        except ZincError as error:
            out[name] = f"{type(error).__name__}: {error}"
    return out


def learned() -> dict[str, str | None]:
    """As `refused`, when the layout of tiles was thought of and the kernels were not."""
    from zinc_rt.kernels.cpu import layout

    layout.TILES[NAME] = layout.TileFormat(0, 32, 256)
    return {name: said for name, said in refused().items() if not name.startswith(("reference", "cpu layout"))}


def same() -> dict[str, bool]:
    """Whether the fake gives Q4_0's bits where the same numbers are stored, for each tier."""
    import numpy as np

    from tests.backends.cpu.both import LEVELS, Net, Step, expected, outputs
    from tests.kernels import material as m
    from tests.kernels.gpu.stage import stage
    from zinc_rt.backends.cpu.backend import CpuBackend
    from zinc_rt.gguf import GGMLType, blocks
    from zinc_rt.ir.op import Op
    from zinc_rt.kernels.amd.catalogue import KERNELS
    from zinc_rt.kernels.reference.activations import quantize_activations
    from zinc_rt.kernels.reference.matmul import Weight, matmul

    old, fake, f = GGMLType.Q4_0, GGMLType[NAME], FORMATS[NAME]
    rng = np.random.default_rng(3)
    n, n_rows = 1056, 37
    raw, x = m.adversarial_rows(old, rng, n_rows, n), m.activations(rng, 3, n)
    stored = raw.reshape(n_rows, -1, 18)
    moved = np.empty_like(stored)
    moved[..., f.q : f.q + 16], moved[..., f.d : f.d + 2] = stored[..., 2:], stored[..., :2]
    moved = moved.reshape(n_rows, -1)
    want = matmul(x, Weight.from_raw(old, raw))
    out = {
        "reference matmul": same_bits(matmul(x, Weight.from_raw(fake, moved)), want),
        "reference dequantize": same_bits(blocks.dequantize(fake, moved), blocks.dequantize(old, raw)),
    }

    def case(kind: GGMLType, rows: np.ndarray) -> object:
        net = Net(3, n_logits=3)
        ids, given = net.indices("ids", "n_rows"), net.rows("x", n)
        net.node(Op.EMBED, [ids, net.matrix(kind, rows)], [net.out("e", n)])
        net.node(Op.MATMUL, [given, net.matrix(kind, rows)], [net.out("y", n_rows)])
        return net.case([Step(3, {"x": x, "ids": np.array([5, 0, 36])})])

    first = expected(case(old, raw))
    for isa in dict.fromkeys((LEVELS[0], LEVELS[-1])):
        with CpuBackend(isa=isa, threads=2) as backend:
            backend.choice = replace(backend.choice, blocks=(1,))  # the least to compile
            got = outputs(backend, case(fake, moved))
        out[isa] = all((a[name] == b[name]).all() for a, b in zip(got, first, strict=True) for name in b)
    acts = quantize_activations(x[:1])
    q = acts.q.reshape(-1).astype(np.int8)
    sums = q.reshape(-1, 2, 16).sum(axis=2).astype(np.int16).view(np.uint32).reshape(-1)
    y, e = np.zeros(n_rows, np.float32), np.zeros((1, n), np.float32)
    with stage() as gpu:
        gpu._run(KERNELS[f"matvec_{NAME.lower()}"], 10, (moved, q, acts.d.reshape(-1).copy(), sums, y, n // 32, n_rows))
        gpu._run(KERNELS[f"embed_{NAME.lower()}"], 1, (moved, np.array([7], np.int32), e, n))
    out["gfx1201 matvec"] = same_bits(y[None], want[:1])
    out["gfx1201 embed"] = same_bits(e, blocks.dequantize(old, raw[7:8]))
    return out


def variants() -> list[Format]:
    """Records of known kinds in combinations and places that no format has, under names that the table lacks or whose
    records they take the place of.
    """
    names = iter(("Q4_2", "Q4_3", "Q8_1", "Q8_K", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0", "Q1_0", "Q4_0_4_4", "Q4_0_4_8",
                  "Q4_0_8_8", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "I8", "I16", "I64", "F64"))  # fmt: skip
    plain, six, halves = Scale.BLOCK, Scale.SIX_BIT, Scale.INT8_HALVES
    makers = (
        lambda n: Format(n, 32, 34, CodeLayout.BYTES, plain, q=0, d=32),
        lambda n: Format(n, 32, 36, CodeLayout.BYTES, plain, q=4, minimum=2),
        lambda n: Format(n, 32, 18, CodeLayout.NIBBLES, plain, q=2),
        lambda n: Format(n, 32, 18, CodeLayout.NIBBLES, plain, q=2, offset=16),
        lambda n: Format(n, 32, 20, CodeLayout.NIBBLES, plain, q=4, minimum=2, offset=8),
        lambda n: Format(n, 32, 24, CodeLayout.NIBBLES, plain, q=0, high=16, high_bits=1, d=20, minimum=22),
        lambda n: Format(n, 32, 22, CodeLayout.NIBBLES, plain, q=0, high=18, high_bits=1, d=16, offset=8),
        lambda n: Format(n, 256, 130, CodeLayout.PAIRS, plain, q=2, offset=8),
        lambda n: Format(n, 256, 132, CodeLayout.PAIRS, plain, q=0, d=130, minimum=128),
        lambda n: Format(n, 256, 144, CodeLayout.PAIRS, six, q=0, d=128, minimum=130, scales=132),
        lambda n: Format(n, 256, 144, CodeLayout.PAIRS, six, q=16, scales=4, minimum=2, offset=8),
        lambda n: Format(n, 256, 176, CodeLayout.PAIRS, six, q=16, high=144, high_bits=1, scales=4, minimum=2),
        lambda n: Format(n, 256, 146, CodeLayout.PAIRS, halves, q=0, d=144, scales=128, offset=32),
        lambda n: Format(n, 256, 194, CodeLayout.HALVES, plain, q=66, high=2, high_bits=2, offset=16),
        lambda n: Format(n, 256, 208, CodeLayout.HALVES, six, q=80, high=16, high_bits=2, scales=4, minimum=2),
        lambda n: Format(n, 256, 210, CodeLayout.HALVES, halves, q=82, high=18, high_bits=2, scales=2, offset=32),
        lambda n: Format(n, 256, 146, CodeLayout.HALVES, halves, q=18, scales=2, offset=32),
        lambda n: Format(n, 256, 288, CodeLayout.BYTES, six, q=32, scales=4, minimum=2),
        lambda n: Format(n, 256, 274, CodeLayout.BYTES, halves, q=18, scales=2),
    )
    return [make(name) for make, name in zip(makers, names, strict=True)]


def compared() -> dict[str, str]:
    """What each tier makes of each of `variants`: "same" as the reference, "differs", or why it refuses."""
    import numpy as np

    from tests.kernels import material as m
    from tests.kernels.gpu import stage
    from zinc_rt.gguf import GGMLType
    from zinc_rt.lang.diagnostics import KernelError
    from zinc_rt.lang.gpu import gpu_kernel

    stage.kernel_of = lambda entry, *_: gpu_kernel(entry.spec)  # not from the cache: the formats are made up
    out: dict[str, str] = {}
    rng = np.random.default_rng(4)
    x = m.activations(rng, 2, N_IN)
    with stage.stage() as gpu:
        for f in variants():
            kind = GGMLType[f.name]
            raw = m.packed_rows(kind, rng, N_OUT, N_IN)
            for tier, run in (*on_cpu(kind, raw, x), *on_gpu(gpu, kind, raw, x)):
                try:
                    out[f"{tier} {f.name}"] = "same" if run() else "differs"
                except KernelError as error:
                    out[f"{tier} {f.name}"] = str(error)
    return out


N_IN, N_OUT = 1280, 19
ROWS = (7, 0)
"""Of the embedding."""


def on_cpu(kind: Any, raw: Any, x: Any) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Embedding and product on the best and the least level of this machine."""
    import numpy as np

    from tests.backends.cpu.both import LEVELS, Net, Step, expected, native, outputs
    from zinc_rt.ir.op import Op

    def same_as_reference(case: Any, isa: str) -> bool:
        return same_bits(outputs(native(isa, 1), case)[0]["y"], expected(case)[0]["y"])

    net = Net(2)
    net.node(Op.EMBED, [net.indices("ids", "n_rows"), net.matrix(kind, raw)], [net.out("y", N_IN)])
    embed = net.case([Step(2, {"ids": np.array(ROWS)})])
    net = Net(2)
    net.node(Op.MATMUL, [net.rows("x", N_IN), net.matrix(kind, raw)], [net.out("y", N_OUT)])
    matmul = net.case([Step(2, {"x": x})])
    for isa in dict.fromkeys((LEVELS[0], LEVELS[-1])):
        yield f"{isa} embed", partial(same_as_reference, embed, isa)
        yield f"{isa} matmul", partial(same_as_reference, matmul, isa)


def on_gpu(gpu: Any, kind: Any, raw: Any, x: Any) -> Iterator[tuple[str, Callable[[], bool]]]:
    """The same on the emulated GPU."""
    import numpy as np

    from zinc_rt.gguf import blocks
    from zinc_rt.kernels.amd.catalogue import KERNELS
    from zinc_rt.kernels.reference.activations import quantize_activations
    from zinc_rt.kernels.reference.matmul import Weight, matmul

    acts = quantize_activations(x[:1])
    q = acts.q.reshape(-1).astype(np.int8)
    sums = q.reshape(-1, 2, 16).sum(axis=2).astype(np.int16).view(np.uint32).reshape(-1)

    def run(name: str, want: Any, groups: int, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
        y = np.zeros_like(want)
        gpu._run(KERNELS[f"{name}_{kind.name.lower()}"], groups, (raw, *before, y, *after))
        return same_bits(y, want)

    product = matmul(x[:1], Weight.from_raw(kind, raw))
    given = (q, acts.d.reshape(-1).copy(), sums)
    yield "gfx1201 matvec", partial(run, "matvec", product, 5, given, (N_IN // 32, N_OUT))
    row = blocks.dequantize(kind, raw[ROWS[0] :][:1])
    yield "gfx1201 embed", partial(run, "embed", row, 1, (np.array(ROWS[:1], np.int32),), (N_IN,))


def same_bits(a: object, b: object) -> bool:
    import numpy as np

    return bool((np.asarray(a).view(np.uint32) == np.asarray(b).view(np.uint32)).all())


if __name__ == "__main__":
    if sys.argv[1] == "compared":
        FORMATS.update({f.name: f for f in variants()})
    else:
        FORMATS[NAME] = (UNKNOWN | KNOWN)[sys.argv[2]]
    print(json.dumps({"refused": refused, "learned": learned, "same": same, "compared": compared}[sys.argv[1]]()))
